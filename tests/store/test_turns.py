"""Whoever writes waits for its turn, whichever call it is and on either ledger; and what was begun lightly leaves nothing light behind."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection

from countermark.run.claims import Adjudication, Dispatched, SetAside
from countermark.store import Store, StoreError, sqlite
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE
from countermark.store.failures import StoreLocked
from countermark.store.postgres import PostgresStore
from countermark.store.postgres_schema import SCHEMA
from countermark.store.sqlite import SqliteStore
from countermark.store.statements import Statement
from countermark.store.ticket import Ticket
from tests.faults import planted, proven_by
from tests.run.examples import claim, desired, key, transition
from tests.run.test_claims import RETRY
from tests.store.examples import CANCELLED, CONTEXT, RUN, intended, loaded, recorded, won

#: Every call that writes something about a run.
WRITING: Final[dict[str, Callable[[Store], object]]] = {
    "demand": lambda store: store.record_demand(desired(), CONTEXT, 1_000),
    "claim": lambda store: store.claim_start(RUN, 3, transition(RETRY), key(2), 5_000),
    "intent": lambda store: store.record_dispatch_intent(claim(1), "local", "n1", 5_000),
    "outcome": lambda store: store.record_dispatch_outcome(loaded(store).ledger.intents[0], Dispatched("pid 7"), 5_000),
    "cancellation": lambda store: store.cancel(RUN, "ada", 5_000),
    "abandonment": lambda store: store.abandon(RUN, key(1), "ada", 5_000),
    "adjudication": lambda store: store.adjudicate(RUN, Adjudication(key(1), SetAside(), ("b",), "ada", "seen", 5_000)),
    "sweep": lambda store: store.record_sweep(RUN, "s2", b"{}", 1, 2),
    "closing verdict": lambda store: store.record_verdict("s1", CANCELLED),
}
#: What changes the agenda alone; in PostgreSQL what another one holds is passed over, and not waited for.
PLANNING: Final[dict[str, Callable[[Store], object]]] = {
    "lease": lambda store: store.take_due(10_000, 10, 9),
    "look again": lambda store: store.look_again(RUN, 77),
}


@pytest.fixture(params=["postgresql", "sqlite"])
def impatient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with a run, an intent and a sweep, whose writers wait for a moment only."""
    wait_s = 0.1
    address = "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    opened = PostgresStore.open(address, True, wait_s) if address else SqliteStore.open(tmp_path / "s", True, wait_s)
    with opened as store:
        recorded(store)
        intended(store, won(store, 1))
        store.record_sweep(RUN, "s1", b"{}", 1, 2)
        yield store


@contextmanager
def held(store: Store, address: str) -> Iterator[None]:
    """Another program holds what a writer of the run needs: the ticket, or the run's row."""
    if isinstance(store, SqliteStore):
        with Ticket(store.folder / TICKET_FILE, 1):
            yield
        return
    with psycopg.connect(address) as raw:
        raw.execute(sql.SQL("SELECT run_id FROM {}.runs FOR UPDATE").format(sql.Identifier(SCHEMA)))
        yield


def waits(store: Store, call: Callable[[Store], object]) -> bool:
    """Whether a call waited in vain for whoever holds the turn."""
    try:
        call(store)
    except StoreError as error:
        assert isinstance(error.failure, StoreLocked), error
        return True
    return False


@contextmanager
def nobody_is_waited_for() -> Iterator[None]:
    with (
        planted(sqlite, "Turn", lambda *_: nullcontext())(),
        planted(
            PostgresStore, "_hold", lambda self, connection, run_id, *more: [({},), *Statement.together(connection, *more, run_id=run_id)]
        )(),
    ):
        yield


@proven_by(nobody_is_waited_for)
def test_every_call_that_writes_of_a_run_waits_for_who_writes_of_it(impatient: Store, request: pytest.FixtureRequest) -> None:
    """A closing verdict beside a claim that is just made would take the run off the agenda, and nobody would look at it any more."""
    calls = WRITING | (PLANNING if isinstance(impatient, SqliteStore) else {})
    address = "" if isinstance(impatient, SqliteStore) else str(request.getfixturevalue("postgres_url"))
    before = loaded(impatient)
    with held(impatient, address):
        assert {name: waits(impatient, call) for name, call in calls.items()} == dict.fromkeys(calls, True)
    assert loaded(impatient) == before
    assert {name: waits(impatient, call) for name, call in calls.items()} == dict.fromkeys(calls, False)
    assert impatient.check() == ()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "s", True, 0.1) as store:
        recorded(store)
        store.record_sweep(RUN, "s1", b"{}", 1, 2)
        yield store


def begun_as_a_reader(self: sqlite.SqliteFile, first: Callable[[Connection], object], begin: str, hint: bool = False) -> object:
    return TRANSACTION(self, first, "BEGIN", hint)


TRANSACTION: Final = sqlite.SqliteFile.transaction


@proven_by(planted(sqlite.SqliteFile, "transaction", begun_as_a_reader))
def test_who_writes_has_the_file_from_the_beginning_also_against_a_program_without_a_ticket(embedded: SqliteStore) -> None:
    """What was read first would else be written over what somebody wrote in between."""
    writers = {"ledger": (LEDGER_FILE, embedded._writing(RUN)), "observations": (OBSERVATIONS_FILE, embedded._observing(RUN))}
    for name, (file, writing) in writers.items():
        with writing, closing(sqlite3.connect(embedded.folder / file, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                assert "locked" in str(error)
            else:
                pytest.fail(f"another program could write to the {name}")


@pytest.mark.parametrize("file", [LEDGER_FILE, OBSERVATIONS_FILE])
def test_a_file_that_another_program_took_out_of_its_log_is_put_back(embedded: SqliteStore, file: str) -> None:
    embedded.close()
    with closing(sqlite3.connect(embedded.folder / file)) as other:
        assert other.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    with SqliteStore.open(embedded.folder, create=False) as store:
        assert loaded(store).ledger.version == 0
    with closing(sqlite3.connect(embedded.folder / file)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
