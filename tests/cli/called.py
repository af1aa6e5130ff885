"""Calls of the command line, within this process and in one of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.cli.main import main
from tests.contract import definition, misfits

PROGRAM: Final = (sys.executable, "-m", "countermark.cli.entry")


@dataclass(frozen=True)
class Called:
    """What a call left: exit code and both streams."""

    code: int
    out: str
    err: str
    args: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        assert {"ok", "defects", "warnings"} <= found.keys()
        assert found["ok"] == (self.code == 0)
        assert not (found["ok"] and found["defects"])
        # Without a command nothing is answered but refusals; a test may put another program in the place of ours.
        assert (definition(self.args) == "refusal" and found["ok"]) or misfits(definition(self.args), found) == []
        assert [each for each in (*found["defects"], *found["warnings"]) if not {"code", "message", "remedy"} <= each.keys()] == []
        return found

    def codes(self) -> list[str]:
        """The codes of the document's defects."""
        return [defect["code"] for defect in self.document()["defects"]]


class Caller:
    """Calls the command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> Called:
        self._capsys.readouterr()
        code = main(args)
        streams = self._capsys.readouterr()
        return Called(code, streams.out, streams.err, args)


def spawn(*args: str, cwd: Path, env: Mapping[str, str] | None = None, stdout: int = subprocess.PIPE, timeout_s: float = 60) -> Called:
    """A call in a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *args],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=timeout_s,
        check=False,
    )
    return Called(done.returncode, (done.stdout or b"").decode(), done.stderr.decode(), args)
