"""Events as documents: what is written is what is read, and a bad one loses none of its neighbours."""

import json
from contextlib import AbstractContextManager
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions.canonical import ValueUnspellable
from countermark.sessions.edits import EventFieldInvalid, EventFieldMissing, EventFieldUnknown
from countermark.sessions.events import (
    EVENT_TYPES,
    KEYS,
    Batch,
    Event,
    EventDefect,
    EventNowhere,
    EventRefused,
    EventUnreadable,
    span_event_id,
)
from countermark.values import NonEmpty, Refused
from countermark.wire import events
from countermark.wire.events import (
    LINE_BYTES_MAX,
    batch_of_json,
    batch_of_lines,
    event_document,
    event_line,
    read_event,
)
from tests.faults import planted, proven_by
from tests.sessions.test_edits import WHOLE as EDIT
from tests.sessions.test_events import NOW, TRACE

SPAN: Final = "b7ad6b7169203331"
WHOLE: Final[dict[str, Any]] = {
    "id": "018f-1", "type": "notification", "session": "s", "trace": TRACE, "span": SPAN, "parent": "1" * 16, "source": "job",
    "name": "edited", "time": "2026-12-03T08:00:00.123Z", "endTime": "2026-12-03T08:00:01Z", "forwarded": True, "payload": EDIT,
}  # fmt: skip
TIME: Final = "a time with its offset, as 2026-12-03T08:00:00.000Z, or nanoseconds UTC"


def refused(document: object) -> tuple[EventDefect, ...]:
    found = read_event(document, NOW)
    return tuple(found.defects) if isinstance(found, Refused) else ()


def taken(document: object) -> Event:
    found = read_event(document, NOW)
    assert isinstance(found, Event)
    return found


def first_alone() -> AbstractContextManager[object]:
    """Only the first thing that is wrong is named."""
    return planted(NonEmpty, "of", lambda items: NonEmpty(found[0]) if (found := tuple(items)) else None)()


def test_a_whole_document_is_taken_as_it_stands() -> None:
    found = taken(WHOLE)
    assert (found.id, found.type, found.session, found.trace, found.span, found.parent) == (
        "018f-1", "notification", "s", TRACE, SPAN, "1" * 16,
    )  # fmt: skip
    assert (found.source, found.name, found.forwarded, found.received_ns) == ("job", "edited", True, NOW)
    assert (found.start_ns, found.end_ns) == (1796284800123000000, 1796284801000000000)
    assert event_document(found)["payload"] == {**EDIT, "sha256Before": EDIT["sha256After"], "checkpointAfter": EDIT["sha256After"]}
    assert taken(json.loads(event_line(found))) == found


#: For each key, what no event holds there, and what it holds instead.
WRONG: Final[dict[str, tuple[tuple[object, ...], str]]] = {
    "id": (("", 5, None, "x" * 513), "a text of 1 to 512 characters"),
    "type": (("edit", None, 1, []), "one of " + ", ".join(EVENT_TYPES)),
    "session": (("", [], "x" * 513), "a text of 1 to 512 characters"),
    "trace": (("", "0" * 32, "ab", "x" * 32, 5, "CvdlGRbNQ92ESOshHIAxnA==", TRACE + "\n"), "32 hexadecimal digits, not all of them 0"),
    "span": (("0" * 16, SPAN[1:], None), "16 hexadecimal digits, not all of them 0"),
    "parent": (("g" * 16,), "16 hexadecimal digits, not all of them 0"),
    "source": ((1,), "a text of 1 to 512 characters"),
    "name": (("",), "a text of 1 to 512 characters"),
    "time": (("yesterday", "2026-12-03", "2026-12-03T08:00:00", "2026-13-03T08:00:00Z", -1, 1.5, True, 2**63, "9" * 20, None), TIME),
    "endTime": (("1969-12-31T23:59:59Z", "2500-01-01T00:00:00Z", {}), TIME),
    "forwarded": ((1, "true", None), "true or false"),
    "payload": (([], "x", None, 1), "a JSON object"),
}


@proven_by(planted(events, "shown", lambda raw: "?"))
def test_a_key_that_holds_what_it_cannot_is_named_alone() -> None:
    assert sorted([*WRONG]) == sorted(KEYS)
    for key, (values, wanted) in WRONG.items():
        for value in values:
            assert refused({**WHOLE, key: value}) == (EventFieldInvalid(key, events.shown(value), wanted),) != ()
    assert refused({**WHOLE, "trace": 5}) == (EventFieldInvalid("trace", "5", "32 hexadecimal digits, not all of them 0"),)


@proven_by(first_alone)
def test_every_two_keys_that_are_wrong_are_both_named() -> None:
    for one, (values, _) in WRONG.items():
        for other, (others, _) in WRONG.items():
            if one < other:
                defects = refused({**WHOLE, one: values[0], other: others[-1]})
                assert sorted(getattr(defect, "field", "?") for defect in defects) == sorted((one, other))


@proven_by(first_alone)
def test_what_is_missing_unknown_or_wrong_within_the_payload_is_named_together() -> None:
    assert refused({}) == (EventFieldMissing("type"), EventFieldMissing("payload"))
    edit = {**EDIT, "l2": -1, "colour": 1}
    assert refused({"type": "message", "trace_id": TRACE, "end_time": 5, "colour": 1, "payload": edit}) == (
        EventFieldInvalid("payload.l2", "-1", "a finite number, 0 or more"),
        EventFieldUnknown("payload.'colour'", ""),
        EventFieldUnknown("'trace_id'", ""),
        EventFieldUnknown("'end_time'", "endTime"),
        EventFieldUnknown("'colour'", ""),
    )
    assert refused({"type": "message", "session": "s", "payload": {"a": float("nan"), "b": [float("inf")]}}) == (
        ValueUnspellable("payload.a", "nan is not a finite number"),
        ValueUnspellable("payload.b[0]", "inf is not a finite number"),
    )


@proven_by(planted(events, "EventNowhere", lambda: EventFieldMissing("session")))
def test_an_event_belongs_somewhere() -> None:
    bare = {"type": "message", "payload": {}}
    assert refused(bare) == (EventNowhere(),)
    assert all(taken({**bare, key: value}) for key, value in (("session", "s"), ("source", "job"), ("trace", TRACE)))


def test_what_no_database_keeps_is_replaced_in_the_envelope_too() -> None:
    found = taken({"type": "message", "session": "s\0", "name": "\ud83e", "payload": {"a": "\0"}})
    assert (found.session, found.name, found.replaced) == ("s\ufffd", "\ufffd", ("session", "name", "payload.a"))


def test_ids_in_capitals_are_the_same_ids_and_an_event_that_brings_none_is_known_by_what_it_says() -> None:
    bare = {"type": "span", "trace": TRACE.upper(), "span": SPAN.upper(), "payload": {}}
    assert taken(bare).id == span_event_id(TRACE, SPAN)
    assert taken({**bare, "type": "message"}).id != span_event_id(TRACE, SPAN)
    assert taken({**bare, "payload": {"a": 1}}).id == taken(bare).id
    message = {"type": "message", "session": "s", "payload": {"a": 1}}
    assert taken(message).id == taken({**message, "payload": {"a": 1.0}}).id != taken({**message, "payload": {"a": 2}}).id


BATCH: Final = Batch(
    ((1, taken(WHOLE)),),
    (
        EventRefused(0, "bad", NonEmpty(EventFieldMissing("type"), (EventFieldMissing("payload"),))),
        EventRefused(2, "", NonEmpty(EventUnreadable("5 is no JSON object"))),
    ),
)


@proven_by(planted(events, "batch_of_json", lambda body, received: EventUnreadable("some item of it is no event")))
def test_a_bad_item_loses_none_of_its_neighbours() -> None:
    items: list[object] = [{"id": "bad"}, WHOLE, 5]
    assert events.batch_of_json(json.dumps(items).encode(), NOW) == BATCH
    assert events.batch_of_json(json.dumps({"events": items}).encode(), NOW) == BATCH
    assert events.batch_of_json(json.dumps(WHOLE).encode(), NOW) == Batch(((0, taken(WHOLE)),), ())
    assert events.batch_of_json(b"[]", NOW) == Batch((), ())


def test_a_bad_line_loses_none_of_its_neighbours() -> None:
    lines = [b'{"a":1,"a":2}', b"", event_line(taken(WHOLE)).strip(), b"{", b"[" * 100_000, b'{"x":"' + b"x" * LINE_BYTES_MAX + b'"}']
    found = batch_of_lines(b"\n".join(lines), NOW)
    assert found.events == ((1, taken(WHOLE)),)
    assert [item.index for item in found.refused] == [0, 2, 3, 4]
    whys = [item.defects.first.why for item in found.refused if isinstance(item.defects.first, EventUnreadable)]
    assert [why.partition(" (")[0] for why in whys] == [
        "it is not JSON", "it is not JSON", "it is nested too deep",
        f"it has {LINE_BYTES_MAX + 8:,} bytes, and {LINE_BYTES_MAX:,} are the most",
    ]  # fmt: skip


def test_a_body_that_is_no_document_is_unreadable_as_a_whole() -> None:
    whys = [batch_of_json(body, NOW) for body in (b"", b"\xff", b"[1", b'{"events": {}}', b"9" * 5000)]
    assert all(isinstance(why, EventUnreadable) for why in whys)
    assert whys[3] == EventUnreadable("what stands under events is no list")


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_raises(body: bytes) -> None:
    assert isinstance(batch_of_json(body, NOW), Batch | EventUnreadable)
    assert isinstance(batch_of_lines(body, NOW), Batch)
