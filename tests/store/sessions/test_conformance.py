"""What every store of sessions must do, against the protocol alone."""

from dataclasses import replace
from itertools import permutations

import pytest

from countermark.sessions.events import Event
from countermark.sessions.fold import folded
from countermark.sessions.genai import PICO, Usage
from countermark.sessions.records import (
    CheckpointOfSession,
    Conflict,
    EventCursor,
    SessionAmbiguous,
    SessionCursor,
    SessionListed,
    SessionPrefixShort,
    SessionUnknown,
)
from countermark.store.sessions import base, folding
from countermark.store.sessions.interface import Ingested, SessionStore
from countermark.values import NonEmpty, Refused
from countermark.wire.events import read_event
from tests.faults import planted, proven_by
from tests.store.sessions.conftest import Opener
from tests.store.sessions.examples import DAY, NOW, SECOND, T1, T2, chat, edit, event, ids, only, rows_of, spelled


def stored(*names: str) -> Ingested:
    return Ingested(names, (), ())


# ---------------------------------------------------------------------------------------------------------------- events


def test_an_event_comes_back_as_it_went_in_from_another_opening_too(stores: Opener) -> None:
    whole = Event(
        "e-1", "span", spelled({"b": [1, 2.5, "x"], "a": {"n": 2**70, "t": "a\0b"}}), NOW, "s-main", T1, "a" * 16, "b" * 16, "svc", "chat",
        NOW - 5, NOW - 3, True, ("name",),
    )  # fmt: skip
    bare = Event("e-2", "message", spelled({}), NOW + 1, source="svc")
    assert stores().ingest([whole, bare]) == stored("e-1", "e-2")
    other = stores()
    assert [each.event for session in ("s-main", "log:svc") for each in other.events(session).events] == [whole, bare]
    assert whole.payload.sanitized == ("payload.a.t",)
    assert (other.latest(), [each.ordinal for each in other.tail(0)]) == (2, [1, 2])


def test_an_empty_batch_and_an_empty_store_are_nothing(store: SessionStore) -> None:
    assert store.ingest([]) == stored()
    assert (store.sessions().items, store.latest(), store.tail(0), store.check()) == ((), 0, (), ())
    assert store.events("nobody").total == 0


def test_what_is_sent_again_changes_nothing_at_all(store: SessionStore, stores: Opener) -> None:
    batch = [event("e-1"), edit("e-2", "w", trace=T1), chat("e-3", "r", 10, trace=T1, session="s-main")]
    store.ingest(batch)
    before = rows_of(store)
    later = [replace(each, received_ns=each.received_ns + DAY) for each in batch]
    assert stores().ingest(later) == Ingested((), ("e-1", "e-2", "e-3"), ())
    assert rows_of(store) == before
    assert store.tail(3) == ()


def test_an_event_that_is_twice_in_a_batch_is_stored_once(store: SessionStore) -> None:
    one = event("e-1")
    assert store.ingest([one, one, replace(one, payload=spelled({"other": 1}))]) == Ingested(("e-1",), ("e-1",), ("e-1",))
    assert (only(store).session.sums.events, only(store).conflicts) == (1, 1)


@proven_by(planted(folding, "conflict_count", lambda connection, session: 0))
def test_another_payload_under_a_known_id_is_kept_beside_the_first(store: SessionStore) -> None:
    first = event("e-1", {"n": 1})
    other = event("e-1", {"n": "\ud800"}, received_ns=NOW + 5)
    store.ingest([first, event("e-2")])
    assert store.ingest([other, event("e-3", received_ns=NOW + 9)]) == Ingested(("e-3",), (), ("e-1",))
    assert store.conflicts("s-main") == (Conflict("e-1", other.payload, NOW + 5),)
    assert other.payload.sanitized == ("payload.n",)
    assert store.events("s-main").events[0].event == first
    assert (only(store).conflicts, only(store).updated_ns) == (1, NOW + 9)
    before = rows_of(store)
    assert store.ingest([replace(other, received_ns=NOW + DAY)]).conflicts == ("e-1",)
    assert rows_of(store) == before


def test_a_conflict_of_an_event_that_moves_goes_with_it(store: SessionStore) -> None:
    store.ingest([event("e-1", trace=T1), event("e-2")])
    store.ingest([event("e-1", {"other": 1}, trace=T1)])
    store.ingest([event("e-3", trace=T1, session="s-main")])
    assert (only(store).conflicts, len(store.conflicts("s-main"))) == (1, 1)
    assert store.check() == ()


def test_texts_that_no_database_keeps_are_replaced_the_same_in_all(store: SessionStore) -> None:
    document = {"id": "e\0\ud83e", "type": "message", "session": "s\0", "name": "\udfff", "payload": {"k\0": "a\x00b", "plain": "\\u0000"}}
    read = read_event(document, NOW)
    assert isinstance(read, Event)
    store.ingest([read])
    (kept,) = store.events("s\ufffd").events
    assert kept.event == read
    assert kept.event.payload.text == '{"k\ufffd":"a\ufffdb","plain":"\\\\u0000"}'
    assert kept.event.replaced == ("id", "session", "name", "payload.k\ufffd", "payload.k\ufffd")
    assert only(store).session.tags == ("text:sanitized",)


# ----------------------------------------------------------------------------------------------------------------- folds

ROOT = event("root", {"attributes": {"gen_ai.operation.name": "invoke_agent"}}, "span", trace=T1, session="s-main", start_ns=NOW - 9)
CHILD = chat("child", "r-1", 10, trace=T1, received_ns=NOW + DAY, start_ns=NOW - 7)
EDIT = edit("edit", "layers.0.w", trace=T1, start_ns=NOW - 5)


@pytest.mark.parametrize("order", list(permutations([ROOT, CHILD, EDIT])), ids=lambda order: " ".join(each.id for each in order))
def test_every_order_of_arrival_gives_the_same_session(store: SessionStore, order: tuple[Event, ...]) -> None:
    for number, each in enumerate(order, start=1):
        store.ingest([each])
        assert sum(listed.session.sums.events for listed in store.sessions().items) == number, "visible at once"
    listed = only(store)
    assert listed == SessionListed(folded("s-main", [ROOT, CHILD, EDIT]), "", NOW + DAY, 0)
    assert (listed.session.usage, listed.session.closed) == (Usage(10, 1, PICO // 4), False)
    assert ids(store) == ["root", "child", "edit"]


def test_a_call_that_two_report_counts_once_and_most_of_what_they_say(store: SessionStore) -> None:
    store.ingest([chat("client", "r-1", 10)])
    store.ingest([chat("gateway", "r-1", 12), chat("other", "r-2", 1)])
    assert only(store).session.usage == Usage(13, 2, PICO // 2)
    assert store.check() == ()


def test_sums_are_exact_beyond_64_bits(store: SessionStore) -> None:
    most = 2**63 - 1
    for number in range(3):
        store.ingest([edit(f"e-{number}", f"w{number}", most), chat(f"c-{number}", f"r-{number}", 10**12)])
        costly = {"usage": {"cost": 1e6, "inputTokens": 10**12}}
        store.ingest([event(f"m-{number}-{each}", costly, "message") for each in range(4)])
    session = only(store).session
    assert session.sums.weights_changed == 3 * most
    assert session.usage == Usage(15 * 10**12, 3, 12 * 10**6 * PICO + 3 * PICO // 4)
    assert session.usage.cost_pico > most
    assert store.check() == ()


def test_times_that_cannot_be_used_order_nothing_and_are_kept(store: SessionStore) -> None:
    batch = [
        event("late", start_ns=NOW + 3, received_ns=NOW + 4),
        event("backwards", start_ns=NOW + 1, end_ns=NOW - 1, received_ns=NOW + 5),
        event("ahead", start_ns=NOW + 70 * 365 * DAY, received_ns=NOW + 6),
        event("without", start_ns=0, received_ns=NOW + 2),
    ]
    store.ingest(batch)
    assert ids(store) == ["backwards", "without", "late", "ahead"]
    session = only(store).session
    assert (session.sums.odd_times, session.sums.first_ns, session.sums.last_ns) == (2, NOW + 1, NOW + 3)
    assert session.tags == ("time:odd",)
    assert [each.event for each in store.tail(0)] == batch


# ------------------------------------------------------------------------------------------------------------ identities


def test_a_conversation_that_is_learnt_late_takes_its_events_along_and_the_old_id_leads_there(store: SessionStore) -> None:
    store.ingest([event("e-1", trace=T1), event("e-2", trace=T2)])
    store.ingest([event("e-3", trace=T1)])
    assert {listed.id for listed in store.sessions().items} == {f"trace:{T1}", f"trace:{T2}"}
    store.ingest([event("e-4", trace=T1, session="talk-2026")])
    assert ids(store, "talk-2026") == ["e-1", "e-3", "e-4"]
    assert {listed.id for listed in store.sessions().items} == {"talk-2026", f"trace:{T2}"}
    for asked in ("talk-2026", "talk-202", f"trace:{T1}", f"trace:{T1[:3]}"):
        listed = store.session(asked)
        assert isinstance(listed, SessionListed) and listed.id == "talk-2026", asked
    store.ingest([event("e-5", trace=T1)])
    assert only_of(store, "talk-2026").session.sums.events == 4
    assert store.check() == ()


def only_of(store: SessionStore, session: str) -> SessionListed:
    listed = store.session(session)
    assert isinstance(listed, SessionListed)
    return listed


def test_of_several_names_the_smallest_by_bytes_counts_and_the_others_lead_there(store: SessionStore) -> None:
    first = event("e-1", trace=T1)
    store.ingest([first])
    # An event that is there already names the session now: nothing of its own is in it.
    assert store.ingest([replace(first, session="talk-\uffff")]).duplicates == ("e-1",)
    assert ids(store, "talk-\uffff") == ["e-1"]
    store.ingest([event("e-2", trace=T1, session="talk-\U00010000")])
    assert ids(store, "talk-\uffff") == ["e-1"], "UTF-16 would have it the other way round"
    store.ingest([event("e-3", trace=T1, session="talk-a")])
    assert (ids(store, "talk-a"), ids(store, "talk-\U00010000"), ids(store, "talk-\uffff")) == (["e-1", "e-3"], ["e-2"], [])
    assert only_of(store, "talk-\uffff").id == "talk-a"
    assert store.check() == ()


@proven_by(planted(base.SqlSessions, "_formerly", lambda self, connection, asked: {}))
def test_a_former_id_is_found_by_itself_alone_however_short(store: SessionStore) -> None:
    first = event("e-1", trace=T1)
    store.ingest([first, replace(first, session="short")])
    store.ingest([event("e-2", trace=T1, session="a")])
    assert only_of(store, "short").id == "a"
    assert store.session("shor") == Refused(NonEmpty(SessionPrefixShort("shor", 8)))


def test_what_is_not_found_says_why(store: SessionStore) -> None:
    store.ingest([event(f"e-{number}", session=f"session-{number:02}") for number in range(12)])
    named = tuple(f"session-{number:02}" for number in range(10))
    assert store.session("session-") == Refused(NonEmpty(SessionAmbiguous("session-", named)))
    assert store.session("session-1") == Refused(NonEmpty(SessionAmbiguous("session-1", ("session-10", "session-11"))))
    assert store.session("session-11") == only_of(store, "session-11")
    assert store.session("sess") == Refused(NonEmpty(SessionPrefixShort("sess", 8)))
    for asked in ("", "nobody-here", "session-\0", "session-\ud800", "x" * 600, "session%", "session_", "\U0010ffff" * 9):
        assert store.session(asked) == Refused(NonEmpty(SessionUnknown(asked)))


# ----------------------------------------------------------------------------------------------------------------- pages


def test_sessions_come_with_those_that_changed_last_first_and_page_by_page(store: SessionStore) -> None:
    store.ingest([event(f"e-{number}", session=f"s-{number % 7}", received_ns=NOW + number // 2) for number in range(20)])
    whole = store.sessions(limit=7)
    assert whole.next is None
    places = [(listed.updated_ns, listed.id) for listed in whole.items]
    assert places == sorted(places, reverse=True) and len(places) == 7
    pages: list[str] = []
    after: SessionCursor | None = None
    while True:
        page = store.sessions(limit=3, after=after)
        pages += [listed.id for listed in page.items]
        if page.next is None:
            break
        after = SessionCursor.read(page.next.spell())  # type: ignore[assignment]
    assert pages == [listed.id for listed in whole.items]


def test_events_come_page_by_page_and_say_of_how_many(store: SessionStore) -> None:
    # Two of them at each time: the order of receipt decides.
    store.ingest([event(f"e-{number:02}", start_ns=NOW - number // 2) for number in range(11)])
    wanted = sorted((f"e-{number:02}" for number in range(11)), key=lambda name: (-(int(name[2:]) // 2), name))
    seen: list[str] = []
    after: EventCursor | None = None
    while True:
        page = store.events("s-main", after, limit=4)
        assert (page.first, page.total) == (len(seen) + 1, 11)
        seen += [each.event.id for each in page.events]
        if page.next is None:
            break
        after = EventCursor.read(page.next.spell())  # type: ignore[assignment]
    assert seen == wanted
    store.ingest([event("earliest", start_ns=NOW - DAY)])
    assert [each.event.id for each in store.events("s-main", after, limit=4).events] == wanted[8:], "nobody's place moves"


def test_what_follows_is_told_in_the_order_of_receipt(store: SessionStore) -> None:
    store.ingest([event("e-1", start_ns=NOW), event("e-2", start_ns=NOW - SECOND, session="s-other")])
    place = store.latest()
    store.ingest([event("e-3", start_ns=NOW - DAY), event("e-4", session="s-other"), event("e-5")])
    assert [each.event.id for each in store.tail(place)] == ["e-3", "e-4", "e-5"]
    assert [each.event.id for each in store.tail(place, limit=2)] == ["e-3", "e-4"]
    assert [each.event.id for each in store.tail(0, session="s-other")] == ["e-2", "e-4"]


def test_a_checkpoint_leads_to_the_sessions_that_name_it(store: SessionStore) -> None:
    before, after = "a" * 64, "wr1:" + "b" * 64
    said = {"checkpoint_before": before, "checkpoint_after": after}
    store.ingest([edit("e-1", "w", said=said, session="s-2"), edit("e-2", "v", said={"checkpoint_after": before}, session="s-1")])
    store.ingest([edit("e-3", "w", said=said, session="s-2")])
    assert store.edited(before) == (CheckpointOfSession("s-1", True), CheckpointOfSession("s-2", False))
    assert store.edited(after) == (CheckpointOfSession("s-2", True),)
    assert store.edited("c" * 64) == ()
