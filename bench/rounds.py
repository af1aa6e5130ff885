"""What it costs to reconcile every open run: ``python bench/rounds.py [--quick] [--keep] [--runs N] [--ledger KIND]``.

Half of the runs were never claimed, half have a trainer at work; the observers are stand-ins that answer at once, so what is measured is
everything else: taking runs, loading them, composing, concluding, and recording sweep and verdict, each written and synced as it is for
a person. One process does it, in the two ways that ``reconcile --all`` has. Then runs of one recipe each, of which nothing can be derived
together, and the cost over the number of runs. What closed runs cost is measured by ``bench/listing.py``.
"""

import argparse
import cProfile
import gc
import pstats
import resource
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.ground import HOST, Ground, filled, ground, started  # noqa: E402
from bench.report import Report, curves  # noqa: E402
from countermark.app.ports import Ports  # noqa: E402
from countermark.app.rounds import Rounds, Turn, once_each  # noqa: E402
from countermark.app.running import Step  # noqa: E402
from countermark.evidence.members import EnumerationReceipt, ExecutionIdentity, Observed, Population, ProcessSeen, one_source  # noqa: E402
from countermark.launch.local import LocalLauncher  # noqa: E402
from countermark.run.claims import RunLedger  # noqa: E402
from countermark.run.records import Recorded  # noqa: E402
from countermark.store import Store  # noqa: E402
from countermark.store.opening import open_store  # noqa: E402
from countermark.verdict.kinds import Verdict  # noqa: E402
from tests.run.examples import desired  # noqa: E402
from tests.store.examples import CONTEXT  # noqa: E402


class Stub:
    """Sees a trainer at work for every claim, and nothing else."""

    def _seen(self, axis: str, *members: Any) -> Population[Any]:
        return one_source("stub", Observed(members, EnumerationReceipt(f"{axis}-{secrets.token_hex(8)}", "stub", HOST, 5_000, 5_001)))

    def terminals(self, ledger: RunLedger) -> Population[Any]:
        return self._seen("terminals")

    def processes(self, ledger: RunLedger) -> Population[Any]:
        execution = ExecutionIdentity(HOST, "b1", "1", 5, 5)
        return self._seen("processes", *(ProcessSeen(claim.attempt, execution, "alive") for claim in ledger.claims))

    def outputs(self, ledger: RunLedger) -> Population[Any]:
        return self._seen("outputs")

    def checkpoints(self, ledger: RunLedger) -> Population[Any]:
        return self._seen("checkpoints")

    def manifests(self, ledger: RunLedger) -> Population[Any]:
        return self._seen("manifests")


def nothing(verdict: Verdict) -> bool:
    """A person who only looks."""
    return False


def ports_of(folder: Path, store: Store) -> Ports:
    return Ports(
        folder=folder,
        store=store,
        launcher=LocalLauncher(folder / "attempts"),
        observer=Stub(),
        host=HOST,
        grace_ms=60_000,
        stop_grace_s=1.0,
        poll_s=0.1,
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: secrets.token_hex(16),
    )


class Spent:
    """Seconds by the clock and of the processor, of this process."""

    def __init__(self) -> None:
        gc.collect()
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def told(self) -> tuple[float, float]:
        return time.monotonic() - self._wall, time.process_time() - self._cpu


def open_ledger(made: Ground, kind: str, count: int) -> str:
    """A ledger with so many open runs, half of them at work."""
    url = made.new(kind)
    requests = [f"open-{number}" for number in range(count)]
    with open_store(url, create=False) as store:
        filled(store, requests)
        started(store, requests[::2])
    return url


def arms(turns: list[Turn]) -> str:
    found: dict[str, int] = {}
    for turn in turns:
        assert isinstance(turn.step, Step), turn.step
        name = type(turn.step.looked.conclusion.verdict).__name__
        found[name] = found.get(name, 0) + 1
    return ", ".join(f"{count:,} {arm}" for arm, count in sorted(found.items()))


def once(made: Ground, url: str) -> tuple[float, float, str]:
    """Each open run looked at once, as ``reconcile --all`` does: seconds by the clock, of the processor, and what was found."""
    with open_store(url, create=False) as store:
        ports, spent = ports_of(made.folder, store), Spent()
        turns = list(once_each(ports, 0, nothing))
        wall, cpu = spent.told()
    return wall, cpu, arms(turns)


def shared(made: Ground, url: str, count: int) -> tuple[float, float]:
    """The same by ``reconcile --all --act --watch``, which takes runs from the agenda and says when to look again."""
    with open_store(url, create=False) as store:
        ports, spent = ports_of(made.folder, store), Spent()
        looks = 0
        for turn in Rounds(ports, 0, nothing, shares=True, stay=True).turns():
            looks += isinstance(turn, Turn)
            if looks == count:
                break
        return spent.told()


def of_many_works(made: Ground, kind: str, count: int) -> tuple[float, float]:
    """Runs of which each is demanded for a work of its own, looked at by a process that never saw them before."""
    url = made.new(kind)
    with open_store(url, create=False) as store:
        for number in range(count):
            assert isinstance(store.record_demand(desired(f"open-{number}", seed=str(number)), CONTEXT, 1_000), Recorded)
    wall, cpu, _ = once(made, url)
    return wall, cpu


def told(wall: float, cpu: float, count: int) -> str:
    return f"{wall:.1f} s by the clock, {cpu:.1f} s of one core ({cpu / count * 1e3:.2f} ms a run)"


def measure(report: Report, made: Ground, kind: str, count: int, keep: bool) -> None:
    """All figures of one kind of ledger."""
    wall, cpu, found = once(made, open_ledger(made, kind, count))
    report.figure(f"{kind}: {count:,} open runs looked at once ({found})", told(wall, cpu, count), "< 30 s")
    spent = shared(made, open_ledger(made, kind, count), count)
    report.figure(f"{kind}: {count:,} taken from the agenda, as --act --watch does", told(*spent, count), "< 30 s")
    few = max(count // 10, 10)
    report.say(f"  {kind}: {few:,} open runs of {few:,} recipes, looked at once: {told(*of_many_works(made, kind, few), few)}")
    points: list[tuple[float, float]] = []
    for size in (max(count * share // 16, 10) for share in (1, 2, 4, 8, 16)):
        points.append((size, once(made, open_ledger(made, kind, size))[1]))
    curves(report, f"Every open run once, {kind}", "seconds of the processor over runs", {"once": points}, keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--keep", action="store_true", help="write the report and the curve under bench/results")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--ledger", choices=("SQLite", "PostgreSQL"), default="SQLite")
    parser.add_argument("--profile", action="store_true", help="instead of all figures: where the processor's time goes")
    options = parser.parse_args()
    count = 100 if options.quick else options.runs
    with tempfile.TemporaryDirectory(prefix="countermark-bench-") as folder, ground(Path(folder), options.ledger == "PostgreSQL") as made:
        if options.profile:
            url = open_ledger(made, options.ledger, count)
            profile = cProfile.Profile(time.process_time)
            profile.runcall(once, made, url)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45).sort_stats("cumulative").print_stats(70)
            return
        report = Report("rounds" if options.ledger == "SQLite" else "rounds-postgresql")
        measure(report, made, options.ledger, count, options.keep)
    report.say(f"  memory at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
