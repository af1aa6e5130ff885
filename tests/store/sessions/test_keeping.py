"""What is kept and what is folded again: versions of the fold, and rows that were changed past us."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from countermark.store import StoreError
from countermark.store.sessions import base, checks, folding, rows
from countermark.store.sessions import statements as said
from countermark.store.sessions.base import SqlSessions
from countermark.store.sessions.interface import SessionStore
from countermark.store.sessions.sqlite import SqliteSessions
from tests.faults import planted, proven_by
from tests.store.sessions.conftest import Opener
from tests.store.sessions.examples import NOW, T1, chat, edit, event, ids, only, rows_of


@contextmanager
def fold_version(version: int) -> Iterator[None]:
    """A program of another version of the fold."""
    with patch.object(rows, "SESSION_FOLD_VERSION", version), patch.object(folding, "SESSION_FOLD_VERSION", version):
        with patch.object(base, "SESSION_FOLD_VERSION", version), patch.object(checks, "SESSION_FOLD_VERSION", version):
            yield


def test_what_an_older_fold_made_is_folded_again_in_batches_and_goes_on(store: SessionStore, stores: Opener) -> None:
    store.ingest([edit(f"e-{number}", "w", session=f"s-{number}") for number in range(7)])
    wanted = rows_of(store).tables
    assert store.refold() == 0
    told: list[tuple[int, int]] = []

    class Enough(Exception):
        pass

    def broken_off(done: int, left: int) -> None:
        told.append((done, left))
        with stores() as other:
            assert len(other.sessions().items) == 7, "readers wait for nothing"
        if done == 4:
            raise Enough

    with fold_version(2):
        with pytest.raises(Enough):
            store.refold(broken_off, batch=2)
        assert store.refold(lambda done, left: told.append((done, left)), batch=2) == 3
        assert (told, store.refold(), store.check()) == ([(2, 5), (4, 3), (2, 1), (3, 0)], 0, ())
    newer = rows_of(store).tables
    assert {row[-1] for row in newer.pop("sessions")} == {2}
    assert newer == {name: cells for name, cells in wanted.items() if name != "sessions"}


def test_a_session_of_another_fold_is_folded_anew_when_something_comes(store: SessionStore) -> None:
    store.ingest([edit("e-1", "w")])
    with store_connection(store) as connection:
        connection.execute(text("UPDATE sessions SET fold_version = 0, events = 70, weight_edits = 9"))
        connection.execute(text("INSERT INTO session_tags VALUES ('s-main', 'time:odd')"))
    store.ingest([edit("e-2", "v")])
    assert (only(store).session.sums.events, only(store).session.tensors, store.check()) == (2, 2, ())


@contextmanager
def store_connection(store: SessionStore) -> Iterator[Connection]:
    """Writing past the store."""
    assert isinstance(store, SqlSessions)
    with store._changing() as connection:
        yield connection


BROKEN = {
    "UPDATE sessions SET messages = messages + 1 WHERE session_id = 's-1'": ["SessionFoldDiffers"],
    "UPDATE sessions SET weights_changed = '00' || substr(weights_changed, 3, 37) || '9' WHERE session_id = 's-1'": ["SessionFoldDiffers"],
    "UPDATE session_keys SET input_tokens = 99 WHERE session_id = 's-2'": ["SessionFoldDiffers"],
    "DELETE FROM session_tags WHERE session_id = 's-1'": ["SessionFoldDiffers"],
    "DELETE FROM session_checkpoints": ["SessionFoldDiffers"],
    "DELETE FROM sessions WHERE session_id = 's-1'": ["SessionFoldDiffers"],
    "DELETE FROM event_conflicts": ["SessionFoldDiffers"],
    "INSERT INTO event_conflicts VALUES ('e-9', 'd', 1, '{}', '')": ["ConflictForeign"],
    "INSERT INTO session_tags VALUES ('s-9', 'time:odd')": ["SessionFoldDiffers"],
    "UPDATE events SET session_id = 's-2' WHERE event_id = 'e-1'": ["EventMisplaced", "SessionFoldDiffers", "SessionFoldDiffers"],
    "UPDATE events SET session_id = 's-2' WHERE event_id = 'e-3'": ["EventMisplaced", "SessionFoldDiffers", "SessionFoldDiffers"],
    "UPDATE feed SET ordinal = 2": ["EventNumberAhead"],
    "CREATE INDEX foreign_one ON sessions (source)": ["SchemaObjectForeign"],
    "DROP INDEX session_tags_by_tag": ["SchemaObjectMissing"],
}


@pytest.mark.parametrize("statement", BROKEN)
def test_a_check_finds_what_was_changed_past_us(store: SessionStore, statement: str) -> None:
    store.ingest([edit("e-1", "w", said={"checkpoint_after": "a" * 64}, session="s-1"), chat("e-2", "r", 5, session="s-2")])
    store.ingest([event("e-3", trace=T1), event("e-1", {"other": 1}, session="s-1")])
    assert store.check() == ()
    with store_connection(store) as connection:
        connection.execute(text(statement))
    assert [finding.code for finding in store.check()] == BROKEN[statement]


def index_entries(store: SessionStore, changes: Mapping[int, tuple[str, str]]) -> None:
    """Have the index say other words of events, by their numbers, than it does: those before, and those that it says now."""
    with store_connection(store) as connection:
        index = said.INDEX[connection.dialect.name]
        for ordinal, (before, after) in changes.items():
            if before:
                index.take_out.run(connection, ordinal=ordinal, words=before)
            if after:
                index.put.run(connection, ordinal=ordinal, words=after)


@proven_by(planted(checks, "_sum", lambda words: 0), planted(checks, "_indexed", lambda connection, where: {}))
@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({1: ("one two s", "one s")}, [("SearchWordsDiffer", "1 event of session 's'")]),
        ({1: ("one two s", "")}, [("SearchWordsDiffer", "1 event of session 's'")]),
        ({1: ("one two s", "one two s three")}, [("SearchWordsDiffer", "1 event of session 's'")]),
        ({1: ("one two s", "three t"), 3: ("three t", "one two s")}, [("SearchWordsDiffer", "'s'"), ("SearchWordsDiffer", "'t'")]),
        ({1: ("one two s", "one"), 2: ("two s", "")}, [("SearchWordsDiffer", "2 events of session 's'")]),
        ({9: ("", "nobody")}, [("SearchEntryForeign", "names 1 event that are not there: number 9")]),
    ],
)
def test_a_check_finds_whose_words_the_index_does_not_say(
    store: SessionStore, changes: Mapping[int, tuple[str, str]], wanted: list[tuple[str, str]]
) -> None:
    store.ingest([event("a", {"text": "one two"}, session="s"), event("b", {"text": "two"}, session="s")])
    store.ingest([event("c", {"text": "three"}, session="t"), event("d", {"n": 1}, trace=T1)])
    assert store.check() == ()
    index_entries(store, changes)
    found = store.check()
    assert [(finding.code, said in finding.what) for finding, (_, said) in zip(found, wanted, strict=True)] == [
        (code, True) for code, _ in wanted
    ]
    assert len(store.check()) == len(wanted), "looking changes nothing"


def test_an_index_that_cannot_be_read_is_told_of_beside_everything_else(tmp_path: Path) -> None:
    with SqliteSessions.open(tmp_path, create=True) as store:
        store.ingest([edit(f"e-{number}", f"w{number}") for number in range(50)])
        with store_connection(store) as connection:
            connection.execute(text("DELETE FROM search_data WHERE id > 10"))
            connection.execute(text("UPDATE sessions SET messages = 9"))
    with SqliteSessions.open(tmp_path, create=False) as store:
        assert [finding.code for finding in store.check()] == ["SearchDamaged", "SessionFoldDiffers"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = '{}'",
        "UPDATE events SET event_id = 'x' WHERE event_id = 'e-1'",
        "UPDATE events SET own_session = 'x'",
        "UPDATE event_conflicts SET payload = '{}'",
    ],
)
def test_what_was_received_is_never_changed(store: SessionStore, statement: str) -> None:
    store.ingest([event("e-1"), event("e-1", {"other": 1})])
    before = rows_of(store)
    with pytest.raises((StoreError, DBAPIError), match="is not changed"), store_connection(store) as connection:
        connection.execute(text(statement))
    assert rows_of(store) == before


def test_a_session_with_many_events_is_read_a_page_at_a_time(store: SessionStore) -> None:
    store.ingest([event(f"e-{number:05}", start_ns=NOW - number % 3) for number in range(2_100)])
    with store_connection(store) as connection:
        folding.refold(connection, "s-main")
    assert (only(store).session.sums.events, len(ids(store)), store.check()) == (2_100, 1_000, ())
