"""Progress is drawn on a terminal only, and cleared at its end."""

import io
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.cli import progress, watching
from countermark.cli.every import Progress
from countermark.cli.progress import STAGE_COUNT, hashing, say, sweeping
from countermark.evidence.cut import STAGES
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_drawn_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    draw = hashing("model")
    draw(1, 2)
    draw(2, 2)
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_the_share_and_a_clean_line_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.0)
    draw = hashing(HOSTILE)
    draw(500_000, 2_000_000)
    draw(2_000_000, 2_000_000)
    drawn = terminal.getvalue()
    assert "25 % of 2.0 MB" in drawn
    assert drawn.endswith("\r\x1b[K")
    assert drawn.replace("\r\x1b[K", "").isprintable()


def test_a_line_about_what_is_done_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    assert capsys.readouterr().err.removesuffix("\n").isprintable()


def nothing_is_drawn() -> AbstractContextManager[object]:
    return planted(watching, "sweeping", lambda: lambda stage: None)()


@proven_by(nothing_is_drawn)
def test_a_sweep_says_at_which_stage_it_is_and_leaves_a_clean_line(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recipe(here)
    silent = call("run", "recipe.toml", "--", "sh", "-c", "exit 3")
    assert "looking" not in silent.err, "no log fills with it"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    call("reconcile", call("runs", "--json").document()["runs"][0]["run"], "--watch")
    lines = [line for line in terminal.getvalue().split("\r\x1b[K") if line.startswith("looking")]
    assert lines[:6] == [f"looking: {stage.replace('_', ' ')} ({number} of 6)" for number, stage in enumerate(STAGES, start=1)]
    assert "\r\x1b[Kcountermark" not in terminal.getvalue() and STAGE_COUNT == len(STAGES)
    assert terminal.getvalue().count("(6 of 6)\r\x1b[K") == len(lines) // 6


def test_a_sweep_that_breaks_off_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    told = sweeping()
    told("outputs")
    told("")
    assert terminal.getvalue() == "\r\x1b[Klooking: outputs (1 of 6)\r\x1b[K"


def test_a_long_look_among_many_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    drawing = Progress()
    drawing.draw("3 done, 7 looks")
    drawing.stage("processes")
    for stage in ("outputs", "checkpoints", ""):
        drawing.drawn_s = 0.0
        drawing.stage(stage)
    told = [line for line in terminal.getvalue().split("\r\x1b[K") if line]
    assert told == ["3 done, 7 looks", "3 done, 7 looks: looking at outputs", "3 done, 7 looks: looking at checkpoints"]
