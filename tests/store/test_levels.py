"""On which level each call of a store commits: what is decided upon waits for the disk, on either ledger, and only hints do not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, Engine, text

from countermark.run.attempts import InitialAttempt
from countermark.run.claims import Adjudication, Dispatched, SetAside
from countermark.store import Store, transaction
from countermark.store.postgres import PostgresStore
from countermark.store.sqlite import SqliteFile, SqliteStore, _Transaction
from tests.faults import planted, proven_by
from tests.run.examples import desired, key
from tests.store.conftest import Opener
from tests.store.examples import CONTEXT, GOING_ON, RUN, intended, loaded, won

#: What one call after the other commits; each is the next thing that happens to one run.
CALLS: Final[dict[str, Callable[[Store], object]]] = {
    "demand": lambda store: store.record_demand(desired(), CONTEXT, 1_000),
    # A hint early on: what comes after it over the same connection is none.
    "lease": lambda store: store.take_due(10_000, 10, 9),
    "claim": lambda store: won(store, 1, InitialAttempt()),
    "intent": lambda store: intended(store, loaded(store).ledger.claims[0]),
    "outcome": lambda store: store.record_dispatch_outcome(loaded(store).ledger.intents[0], Dispatched("pid 7"), 4_000),
    "adjudication": lambda store: store.adjudicate(RUN, Adjudication(key(1), SetAside(), ("b",), "ada", "seen", 5_000)),
    "abandonment": lambda store: store.abandon(RUN, key(1), "ada", 5_500),
    "cancellation": lambda store: store.cancel(RUN, "ada", 6_000),
    "sweep": lambda store: store.record_sweep(RUN, "s1", b"{}", 1, 2),
    "verdict": lambda store: store.record_verdict("s1", GOING_ON),
}
CONTROL: Final = ("demand", "claim", "intent", "outcome", "adjudication", "abandonment", "cancellation")


def engines(store: Store) -> dict[str, Engine]:
    """The databases of a store by what lies in them."""
    if isinstance(store, SqliteStore):
        return {"ledger": store._ledger.engine, "observations": store._observations.engine}
    assert isinstance(store, PostgresStore)
    return {"all": store._engine}


def level(connection: Connection) -> str:
    """How a commit of this connection waits for the disk, as the database names it."""
    if connection.dialect.name == "postgresql":
        return str(connection.execute(text("SHOW synchronous_commit")).scalar_one())
    names = {1: "NORMAL", 2: "FULL"}
    return names[connection.exec_driver_sql("PRAGMA synchronous").scalar_one()]


@contextmanager
def noted(store: Store) -> Iterator[list[tuple[str, str]]]:
    """The commits of a store that had something to write: where, and on which level."""
    found: list[tuple[str, str]] = []
    names = {engine: name for name, engine in engines(store).items()}
    honest = transaction.commit

    def committing(connection: Connection) -> None:
        if _writes(connection):
            found.append((names[connection.engine], level(connection)))
        honest(connection)

    with planted(transaction, "commit", committing)():
        yield found


def _writes(connection: Connection) -> bool:
    """Whether the transaction wrote, or may have: a reading commits as well, and nothing of it waits for anything."""
    if connection.dialect.name == "postgresql":
        return str(connection.execute(text("SHOW transaction_read_only")).scalar_one()) == "off"
    driver: Any = connection.connection.dbapi_connection
    # How many rows it changed in its life, and had at its last commit.
    before = connection.info.get("changes before", 0)
    connection.info["changes before"] = driver.total_changes
    return bool(driver.total_changes > before)


@contextmanager
def hints_are_all() -> Iterator[None]:
    """The fault: every transaction may be lost with the power."""
    honest, hold = SqliteFile.transaction, PostgresStore._hold

    def lightly(self: SqliteFile, first: Any, begin: Any, hint: bool = True) -> Any:
        return honest(self, first, begin, hint=True)

    def hastily(self: PostgresStore, connection: Connection, run_id: str, *more: Any) -> object:
        held = hold(self, connection, run_id, *more)
        connection.execute(text("SET LOCAL synchronous_commit = off"))
        return held

    with planted(SqliteFile, "transaction", lightly)(), planted(PostgresStore, "_hold", hastily)():
        yield


@pytest.fixture
def opened(stores: Opener) -> Store:
    return stores()


@proven_by(hints_are_all)
def test_what_is_decided_upon_waits_for_the_disk(opened: Store) -> None:
    said: dict[str, set[tuple[str, str]]] = {}
    for name, call in CALLS.items():
        with noted(opened) as commits:
            call(opened)
        said[name] = set(commits)
    if isinstance(opened, SqliteStore):
        light = {("observations", "NORMAL")}
        assert said == {name: {("ledger", "FULL")} for name in CONTROL} | {
            "sweep": light, "verdict": light, "lease": {("ledger", "NORMAL")}
        }  # fmt: skip
    else:
        assert said == {name: {("all", "on")} for name in CALLS}


def lightly_for_ever() -> AbstractContextManager[object]:
    """The fault: a connection on which a hint was written goes on without waiting for the disk."""
    return planted(_Transaction, "_heavily", lambda self: None)()


@proven_by(lightly_for_ever)
@pytest.mark.parametrize("broken_off", [False, True])
def test_after_a_hint_the_same_connection_waits_for_the_disk_again(tmp_path: Path, broken_off: bool) -> None:
    levels: list[str] = []
    with SqliteStore.open(tmp_path / "store", create=True) as store:
        with suppress(ZeroDivisionError), store._planning() as connection:
            levels.append(level(connection))
            assert not (broken_off and 1 / 0)
        with store._writing(RUN) as held:
            levels.append(level(held.connection))
    assert levels == ["NORMAL", "FULL"]
