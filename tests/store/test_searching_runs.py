"""A filter over runs in SQLite reads two files at once: it waits for no writer, no writer waits for it, and a missing file is said."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from countermark.run.claims import Committed
from countermark.sessions.filters.binding import read_where
from countermark.sessions.filters.condition import Where
from countermark.store import StoreError
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.sqlite import SqliteFile, SqliteStore
from tests.faults import planted, proven_by
from tests.run.examples import key, transition
from tests.store.examples import RUN, recorded

WAIT_S: Final = 0.2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path, create=True, wait_s=WAIT_S) as opened:
        recorded(opened)
        yield opened


def asked(store: SqliteStore, text: str = "closed = false AND verdict IS NULL") -> list[str]:
    where = read_where(text, "runs")
    assert isinstance(where, Where)
    return [each.run_id for each in store.runs_where(where)]


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process's writing transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.parametrize("name", [LEDGER_FILE, OBSERVATIONS_FILE])
def test_a_filter_waits_for_no_writer(store: SqliteStore, tmp_path: Path, name: str) -> None:
    with held(tmp_path / name):
        assert asked(store) == [RUN]


def _begins_to_write(store: SqliteStore) -> object:
    both = SqliteFile(store.folder / LEDGER_FILE, "FULL", WAIT_S, beside=store.folder / OBSERVATIONS_FILE)
    return both.transaction(lambda connection: connection, "BEGIN IMMEDIATE")


@proven_by(planted(SqliteStore, "_searching", _begins_to_write))
def test_no_writer_waits_for_a_filter(store: SqliteStore, tmp_path: Path) -> None:
    with store._searching() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM runs, verdicts").fetchall()
        with SqliteStore.open(tmp_path, create=False, wait_s=WAIT_S) as other:
            try:
                answer = other.claim_start(RUN, 0, transition(), key(1), 5)
            except StoreError as error:
                pytest.fail(error.what)
    assert isinstance(answer, Committed)


def test_observations_that_were_taken_away_are_said_and_not_made_anew(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / OBSERVATIONS_FILE).unlink()
    with pytest.raises(StoreError):
        asked(store)
    assert not (tmp_path / OBSERVATIONS_FILE).exists()
