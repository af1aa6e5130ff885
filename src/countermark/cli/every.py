"""``reconcile --all``: every open run, once or until nothing is left to wait for, with progress that does not grow with the runs."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from countermark.cli.answers import DONE, REFUSED, Answer, Lines, Table
from countermark.cli.progress import say
from countermark.cli.running import concluded
from countermark.lines.conclusion import conclusion_lines
from countermark.lines.defects import AnyDefect, known, sentence
from countermark.lines.runs import run_name
from countermark.lines.sentence import short
from countermark.lines.texts import JsonValue, counted
from countermark.values import Refused

if TYPE_CHECKING:
    from countermark.app.ports import Ports
    from countermark.app.rounds import Turn
    from countermark.verdict.kinds import Verdict

_COLUMNS: Final = ("run", "name", "verdict", "next")
_DRAWN_EVERY_S: Final = 0.1


def every_run(
    ports: "Ports",
    retries: int,
    allowed: "Callable[[Verdict], bool]",
    warnings: tuple[AnyDefect, ...],
    acts: bool,
    watch: bool,
    stay: bool,
) -> Answer:
    """One turn for every open run, or turns until waiting changes nothing. What is refused for one run is that run's answer."""
    from countermark.app.rounds import Pause, Rounds, once_each

    found = _Found(keeps_closed=not stay)
    drawing = Progress()
    turns: Iterable[Turn | Pause] = (
        Rounds(ports, retries, allowed, acts, stay, told=drawing.say, progress=drawing.stage).turns()
        if watch
        else once_each(ports, retries, allowed, drawing.stage)
    )
    for turn in turns:
        if isinstance(turn, Pause):
            drawing.draw(f"round {turn.rounds}: {found.done} done, {turn.left} left", at_once=True)
            continue
        found.add(turn)
        for line in found.news(turn):
            drawing.act(line)
        drawing.draw(f"{found.done} done, {found.looks} looks")
    drawing.clear()
    return found.answer(warnings)


@final
@dataclass(slots=True)
class Progress:
    """One line on a terminal, redrawn in its place; elsewhere each act is a line of the log, and nothing else is."""

    terminal: bool = field(default_factory=lambda: sys.stderr.isatty())
    drawn_s: float = 0.0
    line: str = ""

    def stage(self, stage: str) -> None:
        """What the look that is under way reads now; a short one is over before the next line is due."""
        if stage:
            self.draw(f"{self.line}: looking at {stage}" if self.line else f"looking at {stage}", kept=self.line)

    def draw(self, line: str, at_once: bool = False, kept: str | None = None) -> None:
        self.line = line if kept is None else kept
        if self.terminal and (at_once or time.monotonic() - self.drawn_s >= _DRAWN_EVERY_S):
            self.drawn_s = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()

    def act(self, line: str) -> None:
        if not self.terminal:
            say(line)

    def say(self, line: str) -> None:
        self.clear()
        say(line)

    def clear(self) -> None:
        if self.terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@final
@dataclass(slots=True)
class _Found:
    """The latest answer about each run."""

    keeps_closed: bool
    done: int = 0
    looks: int = 0
    latest: "dict[str, Turn]" = field(default_factory=dict[str, "Turn"])
    said: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def add(self, turn: "Turn") -> None:
        self.looks += 1
        self.done += turn.closed
        if turn.closed and not self.keeps_closed:
            self.latest.pop(turn.run.run_id, None)
        else:
            self.latest[turn.run.run_id] = turn

    def news(self, turn: "Turn") -> tuple[str, ...]:
        """What was done for the run, unless it is what was done the last time as well."""
        run = turn.run.run_id
        lines = turn.done
        if not lines or self.said.get(run, ())[-len(lines) :] == lines:
            return ()
        if self.keeps_closed or not turn.closed:
            self.said[run] = (*self.said.get(run, ()), *lines)
        else:
            self.said.pop(run, None)
        return tuple(f"run {short(run)}: {line}" for line in lines)

    def answer(self, warnings: tuple[AnyDefect, ...]) -> Answer:
        """Every run with its verdict and what is next; all of it in the document."""
        from countermark.app.running import StepRefused

        documents: list[JsonValue] = []
        rows: list[tuple[str, ...]] = []
        defects: list[AnyDefect] = []
        for run, turn in self.latest.items():
            if isinstance(turn.step, Refused):
                against = known(turn.step.defects)
                defects.extend(against)
                documents.append({"ok": False, "run": run})
                rows.append((short(run), run_name(turn.run), "refused", sentence(against[0]).message))
                continue
            one = concluded(turn.step.looked, self.said.get(run, ()), ())
            against = known(turn.step.defects) if isinstance(turn.step, StepRefused) else one.defects
            defects.extend(against)
            documents.append({"ok": not against, **one.document})
            said, following, *_ = conclusion_lines(turn.step.looked.conclusion, short(run))
            rows.append((short(run), run_name(turn.run), said.partition(":")[0], following.removeprefix("next: ")))
        blocks = (Table(_COLUMNS, tuple(rows)), Lines((self._counted(),))) if rows else (Lines(("no run is open",)),)
        return Answer({"runs": documents}, blocks, tuple(defects), warnings, REFUSED if defects else DONE)

    def _counted(self) -> str:
        return f"{counted(len(self.latest), 'run')}, of which {self.done} closed now"
