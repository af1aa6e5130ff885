"""A project for each test that asks for one."""

from pathlib import Path

import pytest

from countermark.mcp.desk import Desk
from tests.cli.called import Caller
from tests.mcp.asking import desk_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, in which the command line is called as well."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(capsys)


@pytest.fixture
def desk(here: Path) -> Desk:
    return desk_of(here)
