"""``make fuzz``: every reader under a fuzzer that looks which branches an input reaches, for ten minutes each.

Rules kept here:

1. What was found worth keeping lies in ``.fuzz/``: broken off, a target goes on with its corpus for the time that it still has to run.
   A target that had its time is left alone, until a reader, a judge or the seeds change: then each has all its time again, over the corpus
   that it has. ``--fresh`` begins from nothing.
2. A finding ends its target, and is kept as the input that shows it; the other targets run. The next call tries what was found first.
3. Exit 0: every target had its time and nothing was found. 1: something was. 130: broken off.
"""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.fuzz.targets import TARGETS, Target

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / ".fuzz"
SECONDS: Final = 600
#: One input: longer than any seed, short enough for thousands in a second.
_BYTES_MAX: Final = 16 << 10
#: A process of one target: beyond it the input counts as a finding, whatever Python's own count of memory says.
_MEGABYTES_MAX: Final = 1024
_SECONDS_OF_AN_INPUT: Final = 20
_STATUS: Final = re.compile(r"^#(\d+)\s.*cov: (\d+) ft: (\d+) corp: (\d+)/")
_SHOWN_EVERY_S: Final = 15


@dataclass
class Standing:
    """What a target had so far: seconds under these readers, and all inputs, branches, and inputs kept."""

    sources: str = ""
    seconds: float = 0.0
    inputs: int = 0
    branches: int = 0
    kept: int = 0

    def line(self) -> str:
        return f"{self.seconds:6.0f} s  {self.inputs:11,} inputs  {self.branches:5} branches  {self.kept:5} inputs kept"


def sources() -> str:
    """A digest of everything that a run is about."""
    digest = sha256()
    for folder in (*(f"src/countermark/{room}" for room in ("files", "weights", "wire", "sessions")), "tests/fuzz"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def findings(name: str) -> list[Path]:
    """The inputs that showed something, of a target."""
    return sorted((PLACE / name / "findings").glob("*"))


def _prepared(target: Target) -> list[str]:
    """The folders of a target with its seeds and words, as arguments of libFuzzer."""
    place = PLACE / target.name
    for folder in ("corpus", "findings"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (place / "corpus" / sha256(seed).hexdigest()[:40]).write_bytes(seed)
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    (place / "words").write_text("".join(f'"{word}"\n' for word in escaped))
    return [f"-dict={place / 'words'}", f"-artifact_prefix={place / 'findings'}/", str(place / "corpus")]


def _run(target: Target, seconds: float, standing: Standing) -> int:
    """Runs a target and keeps its standing on the way. Returns the exit status of the fuzzer."""
    options = {
        "max_total_time": max(1, round(seconds)), "timeout": _SECONDS_OF_AN_INPUT, "rss_limit_mb": _MEGABYTES_MAX, "max_len": _BYTES_MAX,
    }  # fmt: skip
    arguments = [*(f"-{name}={value}" for name, value in options.items()), *_prepared(target)]
    command = [sys.executable, "-m", "tests.fuzz.child", target.name, *arguments]
    log = PLACE / target.name / "log"
    before, began, shown = standing.inputs, time.monotonic(), 0.0
    # The child is told to stop by this process alone: a Ctrl-C of the terminal would reach both, and cut the child's last words.
    with (
        log.open("w") as kept,
        subprocess.Popen(command, cwd=ROOT, text=True, errors="replace", stderr=subprocess.PIPE, start_new_session=True) as child,
    ):
        assert child.stderr is not None
        spent = standing.seconds
        try:
            for line in child.stderr:
                kept.write(line)
                if found := _STATUS.match(line):
                    now = time.monotonic() - began
                    standing.inputs, standing.branches, standing.kept = before + int(found[1]), int(found[2]), int(found[4])
                    standing.seconds = spent + now
                    if now - shown >= _SHOWN_EVERY_S:
                        shown = now
                        print(f"  {target.name:12} {standing.line()}", flush=True)
            standing.seconds = spent + time.monotonic() - began
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            raise
    return child.returncode


def _kept() -> dict[str, Standing]:
    try:
        told = json.loads((PLACE / "standing.json").read_text())
    except (OSError, ValueError):
        return {}
    return {name: Standing(**values) for name, values in told.items()}


def _keep(standings: dict[str, Standing]) -> None:
    PLACE.mkdir(exist_ok=True)
    beside = PLACE / "standing.json.new"
    beside.write_text(json.dumps({name: asdict(standing) for name, standing in standings.items()}, indent=1))
    beside.replace(PLACE / "standing.json")


def campaign(targets: Iterable[Target], seconds: float) -> int:
    """Every target until each had its time. Returns the exit status."""
    standings, now = _kept(), sources()
    red: list[str] = []
    for target in targets:
        standing = standings.setdefault(target.name, Standing())
        if standing.sources != now:
            standing.sources, standing.seconds = now, 0.0
        if standing.seconds < seconds:
            print(f"countermark: {target.name}: {seconds - standing.seconds:.0f} s to go, {standing.kept} inputs kept before", flush=True)
            try:
                status = _run(target, seconds - standing.seconds, standing)
            finally:
                _keep(standings)
            if status or findings(target.name):
                red.append(f"{target.name}: the fuzzer ended with {status}; {PLACE / target.name}/log and findings/ say on what")
        print(f"countermark: {target.name:12} {standing.line()}", flush=True)
    print("\n".join(red) if red else "countermark: nothing was found")
    return 1 if red else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description="Fuzz the readers of files that somebody else wrote.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; without any, all of them")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each target, what it had before counted in")
    parser.add_argument("--fresh", action="store_true", help="forget what was kept")
    asked = parser.parse_args()
    if unknown := set(asked.targets) - TARGETS.keys():
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    if asked.fresh:
        shutil.rmtree(PLACE, ignore_errors=True)
    try:
        return campaign([TARGETS[name] for name in asked.targets or TARGETS], asked.seconds)
    except KeyboardInterrupt:
        print("\ncountermark: broken off; what was found worth keeping is kept, and the next call goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
