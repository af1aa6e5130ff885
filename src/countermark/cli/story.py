"""The story that ``countermark demo`` tells: every command in it is one that a person can type, run as a process of its own.

Rules kept here:

1. Nothing is shown that did not happen: each chapter states what it expects, and the story stops where that is not so.
2. Everything lies in one folder, which is left as it is, with its store, to be looked at.
3. It can be interrupted and told again: what was prepared is used again, and the runs are new ones of a new store.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, final

from countermark.lines.texts import plain

_PATIENCE_S: Final = 600.0
STORE: Final = ".countermark"


class StoryBroken(Exception):
    """A chapter did not end as it must; the text says which expectation failed."""


@final
@dataclass(slots=True)
class Teller:
    """Prints the story in a folder and runs its commands there."""

    folder: Path
    began: float = field(default_factory=time.monotonic)
    chapter_number: int = 0

    def chapter(self, title: str, *lines: str) -> None:
        """Begin a chapter."""
        self.chapter_number += 1
        elapsed = int(time.monotonic() - self.began)
        self._say("")
        self._say(f"━━ {self.chapter_number}. {title}  ({elapsed // 60}:{elapsed % 60:02d})")
        for line in lines:
            self._say("   " + line)

    def say(self, line: str) -> None:
        """One line of explanation."""
        self._say("   " + line)

    def _say(self, line: str) -> None:
        sys.stdout.write(plain(line, 4000) + "\n")
        sys.stdout.flush()

    def run(self, *args: str, expect: int = 0) -> None:
        """Run ``countermark ARGS…`` here, and show it with what it prints."""
        self.finish(self.start(*args, mark=""), expect)

    def ask(self, *args: str, expect: Sequence[int] = (0,)) -> dict[str, Any]:
        """Run ``countermark ARGS… --json`` without showing it, and return its document."""
        done = subprocess.run(
            self._command((*args, "--json")), cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=False
        )
        if done.returncode not in expect:
            raise StoryBroken(f"countermark {_shown(args)} --json ended with {done.returncode}: {done.stdout}{done.stderr}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def start(self, *args: str, mark: str = " &") -> "subprocess.Popen[str]":
        """Start ``countermark ARGS…`` here and go on."""
        self._say(f"   $ countermark {_shown(args)}{mark}")
        # One pipe for both streams, so that what is printed stands in the order in which it was printed.
        return subprocess.Popen(
            self._command(args), cwd=self.folder, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self, started: "subprocess.Popen[str]", expect: int) -> None:
        """Wait for what was started, and show what it printed."""
        printed, _ = started.communicate(timeout=_PATIENCE_S)
        for line in _columns(printed.splitlines()):
            self._say("     " + line)
        if started.returncode != expect:
            raise StoryBroken(f"it ended with exit code {started.returncode} instead of {expect}")

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds, saying what for."""
        self.say(f"… waiting until {what}")
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise StoryBroken(f"{what}: not within {_PATIENCE_S:.0f} s")
            time.sleep(0.05)

    def expect(self, holds: bool, what: str) -> None:
        """Say what was checked, or stop the story."""
        if not holds:
            raise StoryBroken(f"this does not hold: {what}")
        self.say(f"✓ {what}")

    def _command(self, args: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "countermark.cli.entry", *args]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERMARK_")}
        # Threads that wait by spinning take the time of whatever else this machine does, and slow a step down tenfold under load.
        waiting = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
        return {**kept, **waiting, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "1"}


def _columns(lines: Sequence[str]) -> list[str]:
    """Printed lines, with each run of tab-separated ones as aligned columns."""
    found: list[str] = []
    for separated, run in groupby(lines, key=lambda line: "\t" in line):
        cells = [line.split("\t") for line in run]
        if not separated:
            found.extend(row[0] for row in cells)
            continue
        widths = [max(len(row[at]) for row in cells if at < len(row)) for at in range(max(map(len, cells)))]
        found.extend("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in cells)
    return found


def _shown(args: Sequence[str]) -> str:
    return " ".join("python" if each == sys.executable else each if each.isascii() and " " not in each else repr(each) for each in args)


def attempt_folders(folder: Path) -> list[Path]:
    """The attempts of the story's store, oldest first."""
    attempts = folder / STORE / "attempts"
    return sorted(attempts.iterdir(), key=lambda each: each.stat().st_mtime_ns) if attempts.is_dir() else []


def kill_trainer(attempt: Path) -> int:
    """Send SIGKILL to the trainer of an attempt, as its own receipt names it; its pid."""
    receipt = json.loads((attempt / "process.json").read_text(encoding="utf-8"))
    pid: int = receipt["process"]["pid"]
    os.kill(pid, signal.SIGKILL)
    return pid
