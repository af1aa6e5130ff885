"""Every kind of store of sessions that the conformance tests are run against. A kind joins by one line in ``KINDS``."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from countermark.store.sessions.interface import SessionStore
from countermark.store.sessions.postgres import PostgresSessions
from countermark.store.sessions.sqlite import SqliteSessions

Opener = Callable[[], SessionStore]
"""Opens the test's one store anew, as another process would."""


def _sqlite(folder: Path, request: pytest.FixtureRequest) -> SessionStore:
    return SqliteSessions.open(folder / ".countermark", create=True, wait_s=10)


def _postgresql(folder: Path, request: pytest.FixtureRequest) -> SessionStore:
    return PostgresSessions.open(request.getfixturevalue("postgres_url"), create=True, wait_s=10)


KINDS: dict[str, Callable[[Path, pytest.FixtureRequest], SessionStore]] = {"postgresql": _postgresql, "sqlite": _sqlite}


@pytest.fixture(params=sorted(KINDS))
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Openers of one store; everything that was opened is closed at the end."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(KINDS[request.param](tmp_path, request))


@pytest.fixture
def store(stores: Opener) -> SessionStore:
    """One open store."""
    return stores()
