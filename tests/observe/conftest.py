"""What every test of observers starts from."""

from pathlib import Path

import pytest

from tests.observe.attempts import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "attempts")
