"""What is sent on to other places: queued by the commit that stores it, in order, held by one sender, and never lost."""

from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import text

from countermark.sessions.events import ID_LENGTH_MAX
from countermark.store.sessions import sinks
from countermark.store.sessions.interface import Aside, SessionStore, SinkState
from countermark.store.sessions.sqlite import SqliteSessions
from countermark.store.statements import Statement
from tests.faults import planted, proven_by
from tests.store.sessions.conftest import Opener
from tests.store.sessions.examples import NOW, SECOND, T1, edit, event

SINK: Final = "sink"
ME: Final = "me"
#: Faults: every event waits; whoever comes may change a sink.
EVERYTHING: Final = dict.fromkeys(("sqlite", "postgresql"), Statement(text("SELECT * FROM events WHERE ordinal > :after LIMIT :limit")))
UNASKED: Final = Statement(text("UPDATE sinks SET why = :why, failed_ns = :failed_ns WHERE sink = :of_sink AND :mine <> ''"))


def held(store: SessionStore, holder: str = ME, now_ns: int = NOW, seconds: int = 10) -> bool:
    return store.hold_sink(SINK, holder, now_ns, now_ns + seconds * SECOND)


def waiting(store: SessionStore, limit: int = 200) -> list[str]:
    return [stored.event.id for stored in store.waiting(SINK, limit)]


def test_edits_wait_in_the_order_of_receipt_from_the_first_holding_on(store: SessionStore) -> None:
    store.ingest([edit("before", "w")])
    assert (waiting(store), store.sink_state(SINK), held(store)) == ([], None, True)
    store.ingest([edit("b", "w"), event("other", {"kind": "else"}), edit("a", "w", start_ns=5)])
    store.ingest([edit("c", "w"), edit("b", "w")])
    assert (waiting(store), waiting(store, 2)) == (["b", "a", "c"], ["b", "a"])
    assert store.sink_state(SINK) == SinkState(3, 0, 0, 0, "")


@proven_by(planted(sinks, "_WAITING", EVERYTHING))
def test_what_another_store_sent_on_does_not_wait(store: SessionStore) -> None:
    held(store)
    store.ingest([edit("theirs", "w", forwarded=True), edit("ours", "w")])
    assert waiting(store) == ["ours"]


def test_what_was_sent_is_behind_the_sink_for_good(stores: Opener) -> None:
    store = stores()
    held(store)
    store.ingest([edit("a", "w"), edit("b", "w", session="s-2"), edit("c", "w")])
    assert store.sent(SINK, ME, store.waiting(SINK)[1].ordinal, ["s-main", "s-2"], [Aside("b", "s-2", "answered 400")], NOW)
    other = stores()
    assert (waiting(other), other.sink_state(SINK)) == (["c"], SinkState(1, 2, 1, 0, ""))


@proven_by(planted(sinks, "_FAILED", UNASKED))
def test_who_does_not_hold_a_sink_changes_nothing(stores: Opener) -> None:
    store, other = stores(), stores()
    assert (held(store), held(other, "other"), held(store)) == (True, False, True)
    store.ingest([edit("a", "w")])
    assert not other.sent(SINK, "other", 1, ["s-main"], [], NOW)
    assert not other.told(SINK, "other", ["s-main"], [], NOW)
    assert not other.failed(SINK, "other", NOW, "no")
    assert store.sink_state(SINK) == SinkState(1, 0, 0, 0, "")
    assert held(other, "other", NOW + 11 * SECOND)
    assert not store.sent(SINK, ME, 1, ["s-main"], [], NOW)
    other.release_sink(SINK, "other")
    assert held(store)


def test_a_session_is_told_of_when_it_is_silent_or_closed_and_once(store: SessionStore) -> None:
    held(store)
    store.ingest([edit("a", "w"), edit("b", "w", session="s-2"), event("c", session="s-3")])
    store.sent(SINK, ME, 2, ["s-main", "s-2"], [], NOW)
    assert store.to_tell(SINK, NOW) == ()
    store.ingest([event("end", {}, "end", session="s-2")])
    assert [(each.sent_as, each.listed.session.sums.edits) for each in store.to_tell(SINK, NOW)] == [("s-2", 1)]
    assert [each.sent_as for each in store.to_tell(SINK, NOW + 1)] == ["s-2", "s-main"]
    assert store.told(SINK, ME, ["s-2"], [], NOW)
    assert store.sent(SINK, ME, 2, ["s-2"], [], NOW)
    assert [each.sent_as for each in store.to_tell(SINK, NOW + 1)] == ["s-main"]


def test_a_session_that_moved_is_told_of_under_the_id_by_which_its_edits_were_sent(store: SessionStore) -> None:
    held(store)
    store.ingest([edit("a", "w", trace=T1)])
    store.sent(SINK, ME, 1, [f"trace:{T1}"], [], NOW)
    store.ingest([event("b", trace=T1, session="s-named")])
    assert store.to_tell(SINK, NOW + 1) == ()
    (found,) = store.to_tell(SINK, NOW + 1)
    assert (found.sent_as, found.listed.id, found.listed.session.sums.edits) == (f"trace:{T1}", "s-named", 1)


def test_a_session_that_was_forgotten_leaves_nothing_behind(store: SessionStore) -> None:
    held(store)
    store.ingest([edit("a", "w"), edit("b", "w", session="s-2")])
    store.sent(SINK, ME, 1, ["s-main"], [Aside("a", "s-main", "answered 400")], NOW)
    store.forget(["s-main"])
    assert (store.to_tell(SINK, NOW + 1), store.sink_state(SINK)) == ((), SinkState(1, 0, 0, 0, ""))


def test_a_failure_is_told_until_something_is_sent(store: SessionStore) -> None:
    held(store)
    store.ingest([edit("a", "w")])
    assert store.failed(SINK, ME, NOW, "answered 503")
    assert store.sink_state(SINK) == SinkState(1, 0, 0, NOW, "answered 503")
    store.sent(SINK, ME, 1, ["s-main"], [], NOW)
    assert store.sink_state(SINK) == SinkState(0, 1, 0, 0, "")


@pytest.mark.parametrize("said", ['{"kind":"weights.edit"}', "weights.edit"])
def test_a_text_that_spells_an_edit_is_none(store: SessionStore, said: str) -> None:
    held(store)
    store.ingest([event("a", {"kind": "else", "text": said})])
    assert waiting(store) == []


def test_neither_events_nor_sessions_are_passed_to_find_what_is_to_be_sent(tmp_path: Path) -> None:
    with SqliteSessions.open(tmp_path, create=True) as store, store._reading() as connection:
        plans = [
            " ".join(str(row["detail"]) for row in Statement(text(f"EXPLAIN QUERY PLAN {asked}")).rows(connection, **given))
            for asked, given in (
                (f"SELECT * {sinks._BEHIND['sqlite']} ORDER BY ordinal", {"after": 1}),
                ("SELECT * FROM sink_sessions WHERE sink = :sink AND told = 0 ORDER BY sent_as", {"sink": SINK}),
            )
        ]
    assert plans == [
        "SEARCH events USING INDEX events_to_send (ordinal>?)",
        "SEARCH sink_sessions USING COVERING INDEX sink_sessions_untold (sink=? AND told=?)",
    ]


def test_the_longest_ids_are_kept(store: SessionStore) -> None:
    held(store)
    long = [f"{number}" + "".join(chr(0x10000 + (number + 1) * at) for at in range(ID_LENGTH_MAX - 1)) for number in (0, 1)]
    store.ingest([edit(long[0], "w", session=long[1])])
    assert store.sent(SINK, ME, 1, [long[1]], [Aside(long[0], long[1], "answered 400")], NOW)
    (found,) = store.to_tell(SINK, NOW + 1)
    assert store.told(SINK, ME, [found.sent_as], [Aside(f"session:{long[1]}", long[1], "answered 400")], NOW)
    assert store.sink_state(SINK) == SinkState(0, 0, 2, 0, "")
