"""Progress is drawn on a terminal only, and cleared at its end."""

import io
import sys

import pytest

from countermark.cli import progress
from countermark.cli.progress import hashing, say
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
