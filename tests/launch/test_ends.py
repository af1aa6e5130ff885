"""The ways in which a trainer ends, with and without the product's integration: the true verdict each time, and never a lost attempt.

A trainer that is slow, stopped or silent has not ended: it is in progress for as long as anything of it lives.
"""

import itertools
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from countermark.app.ports import opened
from countermark.app.running import Demanded, Looked, demand_run
from countermark.evidence.members import Failed
from countermark.files import procfs
from countermark.files.attempt_folder import ReceiptRead, read_process_receipt
from countermark.files.dataset_file import MeasuredDataset, measure_dataset
from countermark.observe import local
from countermark.recipe import ROSTER, Requirements, contract_of, derive_work_key
from countermark.run.records import RunContext
from countermark.values import NonEmpty, Principal, Request
from countermark.verdict.kinds import (
    Blocked,
    Converged,
    CoordinatesUnread,
    InProgress,
    Lost,
    NoSuccess,
    ObservationRequired,
    ResumeAvailable,
    RetryRequired,
    SuccessWithoutOutput,
)
from tests.app.bench import SETTINGS, Bench, arm
from tests.faults import planted, proven_by
from tests.launch.conftest import Place
from tests.launch.ending import WAYS
from tests.recipe.examples import clean_resolution
from tests.train import tiny

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
#: What is said of each end that is no success.
SAID: Final[dict[str, str]] = {
    "exception": "failed with exit code 1",
    "exit 1": "failed with exit code 1",
    "SIGINT": "killed by signal 2",
    "SIGTERM": "killed by signal 15",
    "SIGKILL": "killed by signal 9",
    "os._exit(3)": "failed with exit code 3",
}


@dataclass
class Ends:
    """A bench whose runs end each in its own way."""

    bench: Bench
    runs: dict[str, str]

    def demand(self, name: str, argv: tuple[str, ...], sources: dict[str, str], trainer: dict[str, object], **spellings: str) -> None:
        resolution = clean_resolution(**spellings)
        work = derive_work_key(Principal("local"), contract_of(resolution), Requirements())
        context = RunContext("ends", sources, trainer, argv, str(self.bench.root), {"PYTHONPATH": str(ROOT)}, "local")
        demanded = demand_run(self.bench.ports, resolution, work, Principal("tester"), Request(f"way-{len(self.runs)}"), context)
        assert isinstance(demanded, Demanded), demanded
        self.runs[name] = demanded.record.run_id
        assert self.bench.acted(self.runs[name])

    def last(self, name: str) -> Looked:
        """Where the run came to rest; lost on no way there."""
        deadline = time.monotonic() + 240
        said: list[str] = []
        while time.monotonic() < deadline:
            looked = self.bench.look(self.runs[name])
            said.append(arm(looked))
            assert "Lost" not in said
            # An end that shows in the second reading of terminals only asks for another look.
            if said[-1] not in ("InProgress", "LaunchPending") and said[-2:] == [said[-1]] * 2:
                return looked
            time.sleep(0.2)
        raise AssertionError(f"still {said[-1]}")


@pytest.fixture(params=["sqlite", "postgresql"])
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ends]:
    url = None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with opened(tmp_path / ".countermark", create=True, url=url, **SETTINGS) as ports:
        yield Ends(Bench(tmp_path, ports, url), {})
        Place(tmp_path / ".countermark").close()


def every_end_looks_alike() -> AbstractContextManager[object]:
    return planted(local, "outcome_seen", lambda receipt: Failed(7))()


# -------------------------------------------------------------------------------------------------- without the integration


@pytest.mark.parametrize("way", WAYS)
@proven_by(every_end_looks_alike)
def test_how_a_foreign_command_ended_is_told(foreign: Ends, way: str) -> None:
    """What it publishes is told from what it does not, and what it did not say of its coordinates from what it did."""
    foreign.demand(way, (sys.executable, str(HERE / "ending.py"), way), {}, {})
    looked = foreign.last(way)
    attempt = foreign.bench.claims(foreign.runs[way])[0].attempt
    verdict = looked.conclusion.verdict
    if way == "return":
        unread = tuple(f"{name}: nobody read it" for name in ROSTER)
        assert isinstance(verdict, ObservationRequired)
        assert verdict.coordinates_unread == (CoordinatesUnread(attempt, unread),)
        assert (verdict.refused, verdict.not_attempted, verdict.orders_missing) == ((), (), ())
    elif way == "os._exit(0)":
        assert verdict == Blocked(NonEmpty(SuccessWithoutOutput(attempt)))
    else:
        assert verdict == RetryRequired(NonEmpty(attempt))
        assert looked.conclusion.why_not == (NoSuccess(attempt, SAID[way]),)


def the_lock_is_not_asked() -> AbstractContextManager[object]:
    """Who says nothing and cannot be found by its parent is dead."""
    return planted(local, "read_process", dead_unless_it_speaks)()


def dead_unless_it_speaks(folder: Path) -> object:
    seen = honest(folder)
    process = getattr(seen, "process", None)
    return local.Dead(seen.start, process, "it said nothing") if isinstance(seen, local.Alive) and process is not None else seen


honest = local.read_process

SILENT: Final = "import os, time; os.closerange(0, 4096); time.sleep({s}); os.mkdir(os.environ['COUNTERMARK_OUTPUT'])"
SLOW: Final = "import os, time; time.sleep({s}); os.mkdir(os.environ['COUNTERMARK_OUTPUT'])"


@pytest.mark.parametrize(("name", "script"), [("slow", SLOW), ("silent", SILENT), ("stopped", SLOW)])
@proven_by(the_lock_is_not_asked)
def test_who_is_slow_silent_or_stopped_is_not_lost(foreign: Ends, name: str, script: str) -> None:
    """Ten graces long nothing is to be seen of it but that it lives, without its supervisor, too."""
    bench = foreign.bench
    foreign.demand(name, (sys.executable, "-c", script.format(s=3.5)), {}, {})
    run = foreign.runs[name]
    bench.wait(lambda: isinstance(read_process_receipt(bench.folder(run)), ReceiptRead))
    attempt = bench.claims(run)[0].attempt
    receipt = read_process_receipt(bench.folder(run))
    assert isinstance(receipt, ReceiptRead)
    named = receipt.receipt.process
    if name == "stopped":
        assert procfs.signal_exactly(named.pid, named.start_ticks, signal.SIGSTOP)
    for _ in range(6):
        time.sleep(0.45)
        looked = bench.look(run)
        assert looked.conclusion.verdict == InProgress(NonEmpty(attempt))
        assert [seen.state for seen in looked.sweep.reads.processes.population.members()] == ["alive"]
        assert bench.acted(run, retries=9) == ()
    procfs.signal_exactly(named.pid, named.start_ticks, signal.SIGCONT)
    assert arm(foreign.last(name)) == "ObservationRequired" and len(bench.claims(run)) == 1


# ----------------------------------------------------------------------------------------------------- with the integration


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def integrated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """A tiny training for each way to end, all begun at once: loading the libraries takes longer than all else."""
    root = tmp_path_factory.mktemp("ends")
    made = tiny.make_tiny(root, itertools.count(1))
    rows = made.attempt()
    dataset = next(root.glob("rows-*.jsonl"))
    measured = measure_dataset(dataset)
    assert isinstance(measured, MeasuredDataset)
    spellings = {**tiny.CLEAN, **made.hashes, "dataset": measured.dataset.spell()}
    sources = {"model": str(made.model), "tokenizer": str(made.model), "dataset": str(dataset)}
    assert rows.desired["dataset"] == spellings["dataset"]
    url = None if request.param == "sqlite" else str(request.getfixturevalue("postgres").new_database())
    with opened(root / ".countermark", create=True, url=url, **SETTINGS) as ports:
        ends = Ends(Bench(root, ports, url), {})
        for way in (*WAYS, "stalls"):
            ends.demand(way, (sys.executable, str(HERE / "ending.py"), way, "trained"), sources, dict(tiny.SETTINGS), **spellings)
        yield ends
        Place(root / ".countermark").close()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@proven_by(every_end_looks_alike)
def test_how_a_training_ended_is_told(integrated: Ends, way: str) -> None:
    looked = integrated.last(way)
    attempt = integrated.bench.claims(integrated.runs[way])[0].attempt
    verdict = looked.conclusion.verdict
    if way == "return":
        assert isinstance(verdict, Converged) and looked.conclusion.notes == ()
    elif way == "os._exit(0)":
        assert verdict == Blocked(NonEmpty(SuccessWithoutOutput(attempt)))
    else:
        assert isinstance(verdict, ResumeAvailable) and verdict.attempt == attempt
        assert [checkpoint.step for checkpoint in verdict.checkpoints] == [4, 2]
        assert looked.conclusion.why_not == (NoSuccess(attempt, SAID[way]),)


@pytest.mark.torch
@pytest.mark.slow
def test_a_training_that_stalls_or_is_stopped_is_not_lost(integrated: Ends) -> None:
    """Many graces long it makes no progress and says nothing, and then it is stopped; an observer that wants words would call it lost."""
    bench, run = integrated.bench, integrated.runs["stalls"]
    bench.wait((bench.root / "stalled").exists, 240)
    (claim,) = bench.claims(run)
    receipt = read_process_receipt(bench.folder(run))
    assert isinstance(receipt, ReceiptRead)
    named = receipt.receipt.process
    for number in (None, signal.SIGSTOP):
        assert number is None or procfs.signal_exactly(named.pid, named.start_ticks, number)
        for _ in range(4):
            time.sleep(0.4)
            assert bench.look(run).conclusion.verdict == InProgress(NonEmpty(claim.attempt))
            assert bench.acted(run, retries=9) == ()
    with the_lock_is_not_asked():
        assert bench.look(run).conclusion.verdict == Lost(NonEmpty(claim.attempt))
    assert procfs.signal_exactly(named.pid, named.start_ticks, signal.SIGCONT)
    (bench.root / "go on").touch()
    assert arm(integrated.last("stalls")) == "Converged" and bench.claims(run) == (claim,)
