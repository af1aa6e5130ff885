"""Answers are drawn on a terminal, stay plain in a pipe, and never move a cursor."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from countermark.cli.answers import Answer, Lines, Table, give
from countermark.lines.surface import ResumeUnavailable, RetriesUsedUp, SettingUnknown
from tests.cli.called import PROGRAM
from tests.cli.recipes import write_recipe
from tests.lines.samples import HOSTILE

_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def on_a_terminal(args: tuple[str, ...], cwd: Path, **env: str) -> bytes:
    """What a call writes to a terminal of 120 columns."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", **env}
    with subprocess.Popen([*PROGRAM, *args], cwd=cwd, stdin=other, stdout=other, stderr=other, env=environ) as running:
        os.close(other)
        written = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:
                break
            if not piece:
                break
            written += piece
        running.wait(timeout=30)
    os.close(main)
    return written


def test_a_table_is_drawn_on_a_terminal_and_plain_without_colour(here: Path) -> None:
    recipe = write_recipe(here)
    coloured = on_a_terminal(("resolve", recipe), here)
    assert _COLOUR.search(coloured) is not None
    assert "─".encode() in coloured
    plain = on_a_terminal(("resolve", recipe), here, NO_COLOR="1")
    assert b"38;5" not in plain
    assert re.search(rb"\x1b\[[0-9;]*3[0-7]", plain) is None
    assert b"\t" not in coloured


def test_a_table_in_a_pipe_is_columns_and_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    assert give(Answer(blocks=(Table(("a", "b"), (("1", "x\ty\n"), ("2", HOSTILE))), Lines(("end",)))), False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a\tb"
    assert lines[1] == "1\tx\\ty\\n"
    assert lines[2].count("\t") == 1
    assert lines[3:] == ["end"]
    assert all(part.isprintable() for line in lines for part in line.split("\t"))


def test_defects_and_warnings_go_to_standard_error_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(
        defects=(ResumeUnavailable("Converged"), RetriesUsedUp(0, 0)), warnings=(SettingUnknown("x", "y", ("z",)),), code=1, run="01234567"
    )
    assert give(answer, False) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.splitlines() == [
        "refused: 2 defects",
        "warning: SettingUnknown: x in y is no setting",
        "  → write z",
        "refused: ResumeUnavailable: the run cannot be resumed as it stands: it is Converged",
        "  → see why, and what is next: countermark status 01234567",
        "refused: RetriesUsedUp: another attempt would be a retry: 0 retries made, 0 allowed",
        (
            "  → look at why it ended (countermark attempts 01234567); to try again: countermark retry 01234567, "
            "or countermark reconcile 01234567 --act --retries 1"
        ),
    ]


def test_a_remedy_that_several_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    give(Answer(defects=(ResumeUnavailable("A"), ResumeUnavailable("B")), code=1), False)
    assert capsys.readouterr().err.count("→") == 1


def test_a_summary_stands_for_what_the_blocks_told(capsys: pytest.CaptureFixture[str]) -> None:
    give(Answer(blocks=(Lines(("told",)),), defects=(ResumeUnavailable("A"),), code=1, summary="it has not converged"), False)
    assert capsys.readouterr().err == "refused: it has not converged\n"


def test_a_document_is_ascii_and_never_not_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    give(Answer({"name": HOSTILE}), True)
    assert capsys.readouterr().out.isascii()
    with pytest.raises(ValueError, match="not JSON compliant"):
        give(Answer({"name": float("nan")}), True)


def test_this_interpreter_is_the_one_that_is_called() -> None:
    assert PROGRAM[0] == sys.executable
