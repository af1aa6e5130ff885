"""Walls stand: every illegal line in ``walls.py`` is an error, for the reason that it names, and a fallen wall is noticed."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
WALLS: Final = Path(__file__).with_name("walls.py")
_IGNORE: Final = re.compile(r"\s+# type: (?:ignore)\[([a-z-]+)\]$")
_REPORT: Final = re.compile(r"^[^:]+:(\d+): error: .*\[([a-z-]+)\]$")

#: One worker: two runs of mypy at once would write one cache.
pytestmark = pytest.mark.xdist_group("mypy")


def reported(module: Path) -> list[tuple[int, str]]:
    """(line, code) of every error that the gate's own mypy finds in the module."""
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary", "--hide-error-context", str(module)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert run.returncode in {0, 1} and not run.stderr, run.stderr or run.stdout
    errors = [line for line in run.stdout.splitlines() if ": note: " not in line]
    found = [_REPORT.match(line) for line in errors]
    assert all(found), run.stdout
    return [(int(match[1]), match[2]) for match in found if match]


def claimed() -> list[tuple[int, str]]:
    """(line, code) of every wall."""
    lines = enumerate(WALLS.read_text(encoding="utf-8").splitlines(), start=1)
    return [(number, match[1]) for number, line in lines if (match := _IGNORE.search(line))]


def test_every_wall_stands() -> None:
    assert claimed()
    assert reported(WALLS) == []


def test_every_wall_errs_for_the_reason_that_it_names(tmp_path: Path) -> None:
    """Without the comments, exactly the walls err, each with its code: none is hidden by another, none is there by accident."""
    bare = tmp_path / "bare_walls.py"
    bare.write_text("".join(_IGNORE.sub("", line) + "\n" for line in WALLS.read_text(encoding="utf-8").splitlines()), encoding="utf-8")
    assert sorted(reported(bare)) == sorted(claimed())


def test_a_fallen_wall_is_noticed(tmp_path: Path) -> None:
    fallen = tmp_path / "fallen_walls.py"
    text = WALLS.read_text(encoding="utf-8").replace("    wants_sha256(digest)\n", "    wants_sha256(digest)  # type: ignore[arg-type]\n")
    line = text.splitlines().index("    wants_sha256(digest)  # type: ignore[arg-type]") + 1
    fallen.write_text(text, encoding="utf-8")
    assert reported(fallen) == [(line, "unused-ignore")]
