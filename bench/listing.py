"""What closed runs cost: ``python bench/listing.py [--quick] [--keep] [--closed N] [--ledger KIND]``.

A hundred open runs beside none, ten thousand, a hundred thousand and a million closed ones: listing the open ones, taking those that are
due from the agenda, and a whole round over them, which loads each, concludes and records (stand-ins look, as in ``bench/rounds.py``).
The baseline is the same ledger before a run was closed. Then more open runs among the million. Of each, the fastest of several times
stands beside the middle one and beside what the processor spent in this process, for the machine may be busy with something else.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.ground import Ground, closed, filled, ground, settled, started  # noqa: E402
from bench.report import Report, curves  # noqa: E402
from bench.rounds import nothing, ports_of  # noqa: E402
from countermark.app.rounds import once_each  # noqa: E402
from countermark.store import Store  # noqa: E402
from countermark.store.opening import open_store  # noqa: E402

OPEN: Final = 100
LOOK: Final = "a round over the open runs"
LIST: Final = "listing the open runs"
TAKE: Final = "taking the runs that are due"


def times_of(act: Callable[[], int], count: int, times: int) -> tuple[list[float], float]:
    """Milliseconds by the clock, shortest first, and the fewest of the processor; ``act`` gives as many runs as there are open ones."""
    spent: list[float] = []
    least = float("inf")
    for _ in range(times):
        gc.collect()
        began, of_processor = time.perf_counter(), time.process_time()
        found = act()
        spent.append((time.perf_counter() - began) * 1e3)
        least = min(least, (time.process_time() - of_processor) * 1e3)
        assert found == count, f"{found} runs instead of {count}"
    return sorted(spent), least


def acts(made: Ground, store: Store) -> dict[str, Callable[[], int]]:
    """What is measured, by name. A lease of no time gives the same runs again."""
    ports = ports_of(made.folder, store)
    return {
        LIST: lambda: len(store.list_runs(open_only=True)),
        TAKE: lambda: len(store.take_due(ports.now_ms(), 0, OPEN)),
        LOOK: lambda: len(list(once_each(ports, 0, nothing))),
    }


def told(spent: list[float], least: float) -> str:
    return f"{spent[0]:.1f} ms (in the middle {statistics.median(spent):.1f} ms of {len(spent)} times; {least:.1f} ms of the processor)"


def measure(report: Report, made: Ground, kind: str, sizes: tuple[int, ...], keep: bool) -> None:
    """All figures of one kind of ledger."""
    url = made.new(kind)
    lines: dict[str, list[tuple[float, float]]] = {LIST: [], TAKE: [], LOOK: []}
    alone: dict[str, float] = {}
    with open_store(url, create=False) as store:
        first = [f"open-{number}" for number in range(OPEN)]
        filled(store, first)
        started(store, first[::2])
        there = 0
        for size in sizes:
            began = time.monotonic()
            closed(store, [f"closed-{number}" for number in range(there, size)])
            settled(store)
            report.say(f"  {kind}: {OPEN} open runs beside {size:,} closed ones (made in {time.monotonic() - began:.0f} s)")
            there = size
            for name, act in acts(made, store).items():
                spent, least = times_of(act, OPEN, 5 if name == LOOK else 15)
                alone.setdefault(name, spent[0])
                lines[name].append((size + OPEN, spent[0]))
                wanted = "< 50 ms" if name == LIST else "as without closed runs"
                report.figure(f"  {name}", f"{told(spent, least)}, {spent[0] / alone[name]:.2f}× of without closed runs", wanted)
        for count in (1_000, 10_000):
            filled(store, [f"more-{count}-{number}" for number in range(count - len(store.list_runs(open_only=True)))])
            settled(store)
            spent, least = times_of(acts(made, store)[LIST], count, 9)
            report.say(f"  {kind}: listing {count:,} open runs beside {there:,} closed ones: {told(spent, least)}")
    curves(report, f"A hundred open runs beside closed ones, {kind}", "milliseconds over all runs", lines, keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--keep", action="store_true", help="write the report and the curves under bench/results")
    parser.add_argument("--closed", type=int, default=1_000_000)
    parser.add_argument("--ledger", choices=("SQLite", "PostgreSQL"), default="SQLite")
    options = parser.parse_args()
    most = 1_000 if options.quick else options.closed
    sizes = (0, most // 100, most // 10, most)
    with tempfile.TemporaryDirectory(prefix="countermark-bench-") as folder, ground(Path(folder), options.ledger == "PostgreSQL") as made:
        report = Report("listing" if options.ledger == "SQLite" else "listing-postgresql")
        measure(report, made, options.ledger, sizes, options.keep)
    if options.keep:
        report.keep()


if __name__ == "__main__":
    main()
