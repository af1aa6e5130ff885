"""Events as JSON documents: a batch of them, or one a line; bytes ↔ values.

Rules kept here:

1. A document's keys are those of ``KEYS`` and nothing else. Every item that is none is refused by its place with everything that is wrong
   with it, and loses none of its neighbours.
2. A time is ISO 8601 with its offset, or nanoseconds UTC as a whole number or as its digits (JavaScript rounds the number).
3. The payload of a weight edit is read as one and spelled again; any other payload is spelled as it came.
4. What is written is what is read.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, cast

from countermark.sessions.canonical import Json, Spelling, ValueUnspellable, kept_text, spelled_json
from countermark.sessions.edits import (
    EventFieldDefect,
    EventFieldInvalid,
    EventFieldMissing,
    EventFieldUnknown,
    is_edit,
    near,
    read_edit,
)
from countermark.sessions.events import (
    EVENT_TYPES,
    ID_LENGTH_MAX,
    KEYS,
    SPAN_ID,
    TRACE_ID,
    Batch,
    BatchTooLong,
    Event,
    EventDefect,
    EventNowhere,
    EventRefused,
    EventType,
    EventUnreadable,
    content_event_id,
    span_event_id,
)
from countermark.sessions.times import read_time, spell_time
from countermark.values import NonEmpty, Refused, shown

#: An id that something refused says is shown to so many characters.
ID_SHOWN_MAX: Final = 100
#: The longest line of a file or body of one event a line, in bytes.
LINE_BYTES_MAX: Final = 16 * 1024 * 1024

_KINDS: Final[Mapping[str, EventType]] = {kind: kind for kind in EVENT_TYPES}
_TEXT_KEYS: Final = ("id", "session", "source", "name")

_Table: TypeAlias = Mapping[str, object]


def batch_of_json(body: bytes, received_ns: int, items_max: int | None = None) -> Batch | EventUnreadable | BatchTooLong:
    """The events of a JSON document: a list of them, an object with such a list under ``events``, or one event. Unreadable as a whole where
    it is no such document, or has more than ``items_max`` items."""
    document = read_json(body)
    if isinstance(document, EventUnreadable):
        return document
    if isinstance(document, dict) and "events" in document:
        document = cast("dict[str, object]", document)["events"]
        if not isinstance(document, list):
            return EventUnreadable("what stands under events is no list")
    items: list[object] = cast("list[object]", document) if isinstance(document, list) else [document]
    return BatchTooLong(items_max) if items_max is not None and len(items) > items_max else _gathered(enumerate(items), received_ns)


def batch_of_lines(body: bytes, received_ns: int, items_max: int | None = None) -> Batch | BatchTooLong:
    """The events of a body of one JSON object a line; empty lines are none. ``items_max`` lines are read at most."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if items_max is not None and len(lines) > items_max:
        return BatchTooLong(items_max)
    return _gathered(((index, read_json(line)) for index, line in enumerate(lines)), received_ns)


def _gathered(items: Iterable[tuple[int, object]], received_ns: int) -> Batch:
    events: list[tuple[int, Event]] = []
    refused: list[EventRefused] = []
    for index, item in items:
        read = read_event(item, received_ns)
        if isinstance(read, Refused):
            refused.append(EventRefused(index, id_shown(item), read.defects))
        else:
            events.append((index, read))
    return Batch(tuple(events), tuple(refused))


def id_shown(item: object) -> str:
    """The id that something refused says, as far as it can be shown; empty where it says none."""
    found = cast("dict[str, object]", item).get("id") if isinstance(item, dict) else None
    return kept_text(found, ID_SHOWN_MAX) if isinstance(found, str) else ""


def read_json(text: bytes) -> object | EventUnreadable:
    """A JSON document, every key once; ``EventUnreadable`` where it is none."""
    if len(text) > LINE_BYTES_MAX:
        return EventUnreadable(f"it has {len(text):,} bytes, and {LINE_BYTES_MAX:,} are the most")
    try:
        return cast(object, json.loads(text, object_pairs_hook=_object))
    except RecursionError:
        return EventUnreadable("it is nested too deep")
    except ValueError as error:
        return EventUnreadable(f"it is not JSON ({error})")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def read_event(item: object, received_ns: int) -> Event | Refused[EventDefect]:
    """One document as an event, received at ``received_ns``; refused with everything that is wrong with it."""
    if isinstance(item, EventUnreadable):
        return Refused(NonEmpty(item))
    if not isinstance(item, dict):
        return Refused(NonEmpty(EventUnreadable(f"{shown(item)} is no JSON object")))
    document = cast("dict[str, object]", item)
    reader = _Reader(document)
    kind = reader.kind()
    texts = {key: reader.text(key) for key in _TEXT_KEYS}
    trace, span, parent = reader.hexadecimal("trace"), reader.hexadecimal("span"), reader.hexadecimal("parent")
    start_ns, end_ns = reader.time("time"), reader.time("endTime")
    forwarded = reader.flag("forwarded")
    spelling = reader.payload()
    reader.keys()
    if not reader.defects and texts["session"] is None and trace is None and texts["source"] is None:
        reader.defects.append(EventNowhere())
    if (refused := NonEmpty.of(reader.defects)) is not None:
        return Refused(refused)
    assert spelling is not None
    session, source, name = texts["session"], texts["source"], texts["name"] or ""
    event_id = texts["id"] or (
        span_event_id(trace, span)
        if kind == "span" and trace is not None and span is not None
        else content_event_id(kind, spelling, session=session, trace=trace, source=source, name=name, start_ns=start_ns)
    )
    return Event(
        event_id, kind, spelling, received_ns, session, trace, span, parent, source, name, start_ns, end_ns, forwarded,
        tuple(reader.replaced),
    )  # fmt: skip


class _Reader:
    """One document's fields, with everything that is wrong with them and the places of what was replaced."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document = document
        self.defects: list[EventDefect] = []
        self.replaced: list[str] = []

    def kind(self) -> EventType:
        found = self._document.get("type")
        if found is None and "type" not in self._document:
            self.defects.append(EventFieldMissing("type"))
        elif (known := _KINDS.get(found) if isinstance(found, str) else None) is not None:
            return known
        else:
            self._invalid("type", "one of " + ", ".join(EVENT_TYPES))
        return "notification"

    def text(self, key: str) -> str | None:
        """A text that is kept whole: ids that were cut would be other ids."""
        if key not in self._document:
            return None
        found = self._document[key]
        if not isinstance(found, str) or not found or len(found) > ID_LENGTH_MAX:
            self._invalid(key, f"a text of 1 to {ID_LENGTH_MAX} characters")
            return None
        kept = kept_text(found)
        if kept is not found:
            self.replaced.append(key)
        return kept

    def hexadecimal(self, key: str) -> str | None:
        if key not in self._document:
            return None
        found, form, digits = self._document[key], *((TRACE_ID, 32) if key == "trace" else (SPAN_ID, 16))
        lowered = found.lower() if isinstance(found, str) else ""
        if not form.fullmatch(lowered) or not lowered.strip("0"):
            self._invalid(key, f"{digits} hexadecimal digits, not all of them 0")
            return None
        return lowered

    def time(self, key: str) -> int:
        if key not in self._document:
            return 0
        read = read_time(self._document[key])
        if read is None:
            self._invalid(key, "a time with its offset, as 2026-12-03T08:00:00.000Z, or nanoseconds UTC")
        return read or 0

    def flag(self, key: str) -> bool:
        found = self._document.get(key, False)
        if not isinstance(found, bool):
            self._invalid(key, "true or false")
        return found is True

    def payload(self) -> Spelling | None:
        if "payload" not in self._document:
            self.defects.append(EventFieldMissing("payload"))
            return None
        found = self._document["payload"]
        if not isinstance(found, dict):
            self._invalid("payload", "a JSON object")
            return None
        read = spelled_payload(cast("dict[str, object]", found))
        if isinstance(read, Refused):
            self.defects.extend(read.defects)
            return None
        return read

    def keys(self) -> None:
        unknown = [key for key in self._document if key not in KEYS]
        self.defects.extend(EventFieldUnknown(shown(key), near(key, KEYS)) for key in unknown)

    def _invalid(self, key: str, wanted: str) -> None:
        self.defects.append(EventFieldInvalid(key, shown(self._document[key]), wanted))


def spelled_payload(payload: Mapping[str, object]) -> Spelling | Refused[EventFieldDefect | ValueUnspellable]:
    """The spelling of a payload; that of a weight edit is read as one first, and every field that is wrong refuses it."""
    if not is_edit(payload):
        return spelled_json(payload, "payload")
    read = read_edit(payload, "payload.")
    if isinstance(read, Refused):
        return Refused(NonEmpty(read.defects.first, read.defects.more))
    return spelled_json(read.payload(), "payload")


def event_document(event: Event) -> dict[str, Json]:
    """An event as its document; what it does not say is absent."""
    said: dict[str, Json] = {
        "id": event.id,
        "type": event.type,
        "session": event.session,
        "trace": event.trace,
        "span": event.span,
        "parent": event.parent,
        "source": event.source,
        "name": event.name or None,
        "time": spell_time(event.start_ns) if event.start_ns else None,
        "endTime": spell_time(event.end_ns) if event.end_ns else None,
        "forwarded": event.forwarded or None,
        "payload": event.payload.value,
    }
    return {key: value for key, value in said.items() if value is not None}


def event_line(event: Event) -> bytes:
    """An event as one line with its end."""
    spelled = spelled_json(event_document(event), "event")
    assert not isinstance(spelled, Refused), "what was read has a spelling"
    return spelled.text.encode() + b"\n"
