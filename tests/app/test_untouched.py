"""What a sweep reads in which order, and what an attempt that was followed keeps: all of it."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countermark.app import acting, sweeping
from countermark.evidence.cut import STAGES
from countermark.evidence.members import EnumerationReceipt, Observed, one_source
from countermark.run.attempts import predecessor_of
from tests.app.bench import Bench, arm
from tests.faults import planted, proven_by
from tests.verdict.scenes import Scene, ledger


def swapped() -> AbstractContextManager[object]:
    """Outputs are looked at before processes, and the cut says otherwise."""
    real = sweeping._looked

    def looked(given: Any, observer: Any, *rest: Any) -> Any:
        early = observer.outputs(given)
        late = SimpleNamespace(**{name: getattr(observer, name) for name in ("terminals", "processes", "checkpoints", "manifests")})
        late.outputs = lambda _: early
        return real(given, late, *rest)

    return planted(sweeping, "_looked", looked)()


def once() -> AbstractContextManager[object]:
    """The first reading of terminals stands for the second."""
    real = sweeping._looked

    def looked(given: Any, observer: Any, *rest: Any) -> Any:
        first: list[Any] = []
        names = ("processes", "outputs", "checkpoints", "manifests")
        kept = SimpleNamespace(**{name: getattr(observer, name) for name in names})
        kept.terminals = lambda of: first[0] if first else (first.append(observer.terminals(of)), first[0])[1]
        return real(given, kept, *rest)

    return planted(sweeping, "_looked", looked)()


@proven_by(swapped, once)
def test_a_sweep_looks_in_the_order_that_its_cut_says() -> None:
    asked: list[str] = []

    def axis(name: str) -> Any:
        def look(of: Any) -> Any:
            asked.append(name)
            return one_source(name, Observed((), EnumerationReceipt(f"{len(asked)}", "test", "n1", 0, 0)))

        return look

    observer: Any = SimpleNamespace(**{name: axis(name) for name in STAGES[:5]})
    told: list[str] = []
    found = sweeping.look(ledger(Scene()), observer, 0, told.append)
    assert asked == ["terminals", "processes", "outputs", "checkpoints", "manifests", "terminals"]
    assert tuple(read.stage for read in found.cut.stages) == STAGES
    assert told == [*(stage.replace("_", " ") for stage in STAGES), ""]
    assert [read.receipts for read in found.cut.stages] == [read.population.receipts() for read in found.reads.by_stage().values()]


# ------------------------------------------------------------------------------------------------ what was followed


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of an attempt, with the time at which it was written."""
    files = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return {str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def facts_of(bench: Bench, run: str) -> tuple[Any, ...]:
    """What the ledger holds about the first attempt."""
    ledger = bench.record(run).ledger
    first = ledger.claims[0].attempt
    return tuple(tuple(fact for fact in facts if fact.attempt == first) for facts in (ledger.claims, ledger.intents, ledger.outcomes))


def fences_what_it_follows() -> AbstractContextManager[object]:
    """Whatever is followed gets a fence, also what has ended."""
    real = acting.start

    def start(ports: Any, record: Any, cause: Any, *rest: Any) -> Any:
        if (before := predecessor_of(cause)) is not None:
            ports.launcher.fence(before.nonce.hex)
        return real(ports, record, cause, *rest)

    return planted(acting, "start", start)()


@proven_by(fences_what_it_follows)
@pytest.mark.parametrize(
    ("first", "cause"), [(("effective", "leave 3"), "InfrastructureRetry"), (("effective", "save 4", "kill"), "Resume")]
)
def test_what_follows_an_attempt_changes_nothing_of_it(bench: Bench, first: tuple[str, ...], cause: str) -> None:
    run = bench.told(first, ("effective", "save 8", "output"))
    bench.ended(run)
    before, facts = contents(bench.folder(run)), facts_of(bench, run)
    assert bench.acted(run, retries=1)
    assert arm(bench.ended(run)) == "Converged"
    assert bench.causes(run) == ["InitialAttempt", cause]
    assert contents(bench.folder(run, 0)) == before
    assert facts_of(bench, run) == facts
