"""Every kind of store that the conformance tests are run against. A kind joins by one line in ``KINDS``."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from countermark.store import Store
from countermark.store.postgres import PostgresStore
from countermark.store.sqlite import SqliteStore
from tests.store.past import Past

Opener = Callable[[], Store]
"""Opens the test's one store anew, as another process would."""


def _sqlite(folder: Path, request: pytest.FixtureRequest) -> Store:
    return SqliteStore.open(folder / ".countermark", create=True, wait_s=10)


def _postgresql(folder: Path, request: pytest.FixtureRequest) -> Store:
    return PostgresStore.open(request.getfixturevalue("postgres_url"), create=True, wait_s=10)


KINDS: dict[str, Callable[[Path, pytest.FixtureRequest], Store]] = {"postgresql": _postgresql, "sqlite": _sqlite}


@pytest.fixture(params=sorted(KINDS))
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Openers of one store; everything that was opened is closed at the end."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(KINDS[request.param](tmp_path, request))


@pytest.fixture
def past(stores: Opener, request: pytest.FixtureRequest) -> Past:
    """Changes the test's store past it."""
    with stores() as store:
        return Past(store, "" if store.location.startswith("sqlite") else request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(stores: Opener) -> Store:
    """One open store."""
    return stores()
