"""A server for each test that asks for one."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.server.running import Running, served


@pytest.fixture
def server(tmp_path: Path) -> Generator[Running, None, None]:
    with served(tmp_path / "store") as running:
        yield running
