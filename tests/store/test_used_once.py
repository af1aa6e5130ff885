"""A slot, an identity and a predecessor are used once, ever, by the database itself and on either ledger: whatever program writes to it."""

import sqlite3
from contextlib import AbstractContextManager

import psycopg
import pytest

from countermark.store import Store
from tests.faults import planted, proven_by
from tests.run.examples import claim, key
from tests.run.test_claims import RETRY
from tests.store.examples import RUN, loaded, recorded, won
from tests.store.past import Past

ONE = key(1).nonce.hex
#: What a row takes that another one has, by its column.
TAKEN = {"slot": claim(1).transition.slot().hex, "nonce": ONE, "version": 1}


def insert(**changed: object) -> str:
    row = {"run_id": RUN, "version": 77, "slot": "9" * 64, "nonce": "9" * 32, "cause": "[]", "predecessor": None} | changed
    values = ("NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'" for value in row.values())
    return f"INSERT INTO claims ({', '.join(row)}) VALUES ({', '.join(values)})"


def refused(past: Past, statement: str) -> bool:
    """Whether the database takes no such row."""
    try:
        past.change(statement)
    except (sqlite3.IntegrityError, psycopg.errors.UniqueViolation):
        return True
    return False


@pytest.fixture
def followed(store: Store) -> Store:
    """A run whose first attempt has a successor."""
    recorded(store)
    won(store, 1)
    won(store, 2, RETRY)
    return store


@pytest.mark.parametrize("column", TAKEN)
def test_what_another_claim_has_is_taken(followed: Store, past: Past, column: str) -> None:
    before = loaded(followed)
    assert refused(past, insert(**{column: TAKEN[column]}))
    assert loaded(followed) == before
    assert not refused(past, insert()), "the same row with nothing of another's is taken in"


def successors_are_not_counted() -> AbstractContextManager[object]:
    honest = Past.change

    def without_index(self: Past, *statements: str) -> None:
        honest(self, "DROP INDEX IF EXISTS one_successor")
        honest(self, *statements)

    return planted(Past, "change", without_index)()


@proven_by(successors_are_not_counted)
def test_a_predecessor_has_one_successor_in_the_database_too(followed: Store, past: Past) -> None:
    before = loaded(followed)
    assert refused(past, insert(predecessor=ONE))
    assert loaded(followed) == before
    assert not refused(past, insert(predecessor=key(2).nonce.hex))
