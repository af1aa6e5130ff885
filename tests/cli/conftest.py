"""Every test of the command line starts in an empty folder."""

from pathlib import Path

import pytest

from tests.cli.called import Caller


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Caller:
    """The command line, called from ``here``."""
    assert here.is_dir()
    return Caller(capsys)
