"""What whole processes cost: seconds by the clock, of the processor, and memory at its highest.

Rules kept here:

1. A process is measured from its start to its end, with everything that it imports; the files are in the page cache.
2. Contenders take turns within a round, each round in the other direction, so that a slow minute of the machine is everybody's.
3. What is installed has its bytecode: a setting that keeps it from being written, and has ours compiled anew in each run, is taken away.
4. The highest memory that Linux tells of a process begins with that of the one which started it: whoever measures stays small.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: How ours is called: as a person would, from this tree.
OURS: Final = (sys.executable, "-m", "countermark.cli.entry")
#: Names the environment in which peers are installed, where ``--peers`` does not.
PEERS_FOLDER: Final = "COUNTERMARK_BENCH_PEERS"


@dataclass(frozen=True)
class Spent:
    """One run of one process and of those that it waited for."""

    wall_s: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True)
class Costs:
    """All runs of one contender."""

    runs: tuple[Spent, ...]

    @property
    def wall_s(self) -> float:
        """The median."""
        return statistics.median(one.wall_s for one in self.runs)

    @property
    def least_s(self) -> float:
        return min(one.wall_s for one in self.runs)

    @property
    def peak_mib(self) -> float:
        return max(one.peak_mib for one in self.runs)

    def told(self) -> str:
        cpu = statistics.median(one.cpu_s for one in self.runs)
        return f"{self.wall_s:7.2f} s median, {self.least_s:7.2f} s least, {cpu:7.2f} s of processors, {self.peak_mib:7.0f} MiB at most"


@dataclass(frozen=True)
class Contender:
    """A command, and the exit codes with which it has done its work."""

    command: Sequence[str]
    codes: tuple[int, ...] = (0,)


def spent(contender: Contender, more: Mapping[str, str]) -> Spent:
    """One run. Raises ``RuntimeError`` with what it said where it failed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "", **more}
    with tempfile.TemporaryFile() as said:
        began = monotonic()
        process = subprocess.Popen(contender.command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in contender.codes:
            said.seek(0)
            raise RuntimeError(
                f"{' '.join(contender.command)} ended with {process.returncode}: {said.read()[-2000:].decode(errors='replace')}"
            )
    return Spent(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def interleaved(contenders: Mapping[str, Contender], rounds: int, more: Mapping[str, str]) -> dict[str, Costs]:
    """What each costs in so many rounds."""
    runs: dict[str, list[Spent]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders)[:: 1 if number % 2 else -1]:
            runs[name].append(spent(contenders[name], more))
    return {name: Costs(tuple(each)) for name, each in runs.items()}


def ratio(costs: Mapping[str, Costs], ours: str, theirs: str, wanted: str) -> str:
    """How many times faster ours is, by the medians and by the least."""
    one, other = costs[ours], costs[theirs]
    times = f"{other.wall_s / one.wall_s:.2f}× as fast as {theirs} by medians, {other.least_s / one.least_s:.2f}× by the least"
    return f"{ours}: {times}" + (f" (wanted: {wanted})" if wanted else "")


def asked(what: str | None, rounds: int, room: str, peer: str) -> argparse.Namespace:
    """What a benchmark of whole processes is called with. ``room``: what it needs in its folder; ``peer``: what ``--peers`` is to have."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="small files and two rounds: says that it works, and nothing about speed")
    parser.add_argument("--keep", action="store_true", help="write the report under bench/results")
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds of each kind")
    parser.add_argument("--into", type=Path, help=f"a folder for {room}; by default the system's for what is temporary")
    named = os.environ.get(PEERS_FOLDER)
    parser.add_argument(
        "--peers", type=Path, default=Path(named) if named else None, help=f"an environment with {peer}, else {PEERS_FOLDER}"
    )
    options = parser.parse_args()
    if options.into is not None:
        options.into.mkdir(parents=True, exist_ok=True)
    return options
