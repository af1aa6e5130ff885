"""What an OTLP request says, whichever encoding it came in: spans and log records with the emitter that they share, and the events that
they are.

Rules kept here:

1. Both readers (protobuf, JSON) make these records, and only this module makes events of them: a span says the same in either encoding.
2. A span or log record with the name of a weight edit is that edit, with the payload that the same edit has as JSON, byte for byte. An
   attribute with the edit's prefix that is none of its fields refuses it; other attributes belong to the emitter and not to the edit.
3. Any other span or log record is kept whole: what it does not say is absent, and a root span keeps its resource.
4. An id of nothing but zeros is none, as OTLP has it. A span without its ids is refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast, final

from countermark.sessions.canonical import Spelling, ValueUnspellable, kept_text, spelled_json
from countermark.sessions.edits import FIELDS, KIND, EventFieldDefect, EventFieldInvalid, EventFieldMissing
from countermark.sessions.events import (
    ID_LENGTH_MAX,
    SPAN_ID,
    TRACE_ID,
    Event,
    EventDefect,
    EventNowhere,
    EventType,
    content_event_id,
    span_event_id,
)
from countermark.sessions.genai import text_of
from countermark.sessions.times import TIME_MAX_NS
from countermark.values import NonEmpty, Refused, shown
from countermark.wire.events import spelled_payload

#: The names under which a span or a log record is a weight edit, and the prefixes of its fields.
EDIT_NAMES: Final = frozenset({"countermark.weights.edit", "weights.edit"})
EDIT_PREFIXES: Final = ("countermark.weights.", "coding_sh.weights.")
#: The attribute that is an event's id, and the one that says that a store of ours sent it on.
EVENT_ID: Final = "countermark.event.id"
FORWARDED: Final = "countermark.forwarded"
#: How much of an edit is sent on: what counts and measures it alone, or all that it says.
Mode: TypeAlias = Literal["metadata", "full"]
MODES: Final[tuple[Mode, ...]] = ("metadata", "full")
#: Resource attributes that name an emitter, the first that is there.
SOURCES: Final = ("service.instance.id", "service.name")

SPAN_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUS_CODES: Final = ("unset", "ok", "error")

_KEYS: Final[Mapping[str, str]] = {prefix + field.attribute: field.key for prefix in EDIT_PREFIXES for field in FIELDS}
_ID_WANTED: Final = f"a text of 1 to {ID_LENGTH_MAX} characters"
_HEX: Final[Mapping[int, re.Pattern[str]]] = {32: TRACE_ID, 16: SPAN_ID}

Attributes: TypeAlias = Mapping[str, object]
Document: TypeAlias = Mapping[str, object]


@final
@dataclass(frozen=True, slots=True)
class Emitter:
    """The resource and the scope that records share, as documents, the emitter's name, and what is wrong with them."""

    resource: Document
    scope: Document
    source: str | None
    defects: tuple[EventDefect, ...] = ()


@final
@dataclass(slots=True)
class SpanRecord:
    """A span as it was sent: ids in hexadecimal (empty: none), times in ns UTC (0: none), ``events`` and ``links`` as documents. ``more``
    is what is seldom said; ``defects`` what could not be read."""

    emitter: Emitter
    trace: str
    span: str
    parent: str
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: Attributes
    events: Sequence[Document]
    links: Sequence[Document]
    status: int
    status_message: str
    more: Document
    defects: list[EventDefect] = field(default_factory=list[EventDefect])


@final
@dataclass(slots=True)
class LogRecord:
    """A log record as it was sent, in the terms of ``SpanRecord``."""

    emitter: Emitter
    trace: str
    span: str
    event_name: str
    time_ns: int
    observed_ns: int
    severity: int
    severity_text: str
    body: object
    attributes: Attributes
    more: Document
    defects: list[EventDefect] = field(default_factory=list[EventDefect])


def emitter_of(resource: Document, scope: Document, defects: Sequence[EventDefect] = ()) -> Emitter:
    """The emitter of a resource's and a scope's documents, each with its ``attributes`` where it has some."""
    told = cast(Attributes, resource.get("attributes", {}))
    source = next((value for name in SOURCES if isinstance(value := told.get(name), str) and value), None)
    return Emitter(resource, scope, source, tuple(defects))


def said(**values: object) -> Document:
    """What was said of these: what is empty or 0 was not."""
    return {name: value for name, value in values.items() if value}


def event_of_span(record: SpanRecord, received_ns: int) -> Event | Refused[EventDefect]:
    """The event that a span is, or everything that is wrong with it."""
    about = _About(record.emitter, record.attributes, record.defects)
    trace, span = about.identity("traceId", record.trace, 32, True), about.identity("spanId", record.span, 16, True)
    parent = about.identity("parentSpanId", record.parent, 16)
    about.times(record.start_ns, record.end_ns)
    own = span_event_id(trace, span) if trace is not None and span is not None else None
    if record.name in EDIT_NAMES:
        return about.event("notification", "", about.edit(), received_ns, own, trace, span, parent)
    spelling = about.spelled(spelled_json(_payload_of_span(record, parent is None), "payload"))
    return about.event("span", record.name, spelling, received_ns, own, trace, span, parent)


def event_of_log(record: LogRecord, received_ns: int) -> Event | Refused[EventDefect]:
    """The event that a log record is, or everything that is wrong with it."""
    about = _About(record.emitter, record.attributes, record.defects)
    trace, span = about.identity("traceId", record.trace, 32), about.identity("spanId", record.span, 16)
    about.times(record.time_ns or record.observed_ns, 0)
    attribute = record.attributes.get("event.name")
    name = record.event_name or (attribute if isinstance(attribute, str) else "")
    if (name or (record.body if isinstance(record.body, str) else "")) in EDIT_NAMES:
        return about.event("notification", "", about.edit(), received_ns, None, trace, span)
    spelling = about.spelled(spelled_json(_payload_of_log(record), "payload"))
    return about.event("notification", name, spelling, received_ns, None, trace, span)


def edit_of(attributes: Attributes) -> dict[str, object]:
    """The payload of the weight edit that attributes say. One that is no field keeps its name, under which it is refused."""
    payload: dict[str, object] = {"kind": KIND}
    for name, value in attributes.items():
        if name.startswith(EDIT_PREFIXES):
            key = _KEYS.get(name, name)
            # Two prefixes that disagree about a field: the second stays under its own name, and is refused there.
            payload[key if payload.get(key, value) == value else name] = value
    return payload


def _payload_of_span(record: SpanRecord, root: bool) -> dict[str, object]:
    status = {"code": _named(STATUS_CODES, record.status)}
    if record.status_message:
        status["message"] = record.status_message
    payload: dict[str, object] = {
        **record.more,
        "name": record.name,
        "kind": _named(SPAN_KINDS, record.kind),
        "attributes": record.attributes,
        "status": status,
    }
    if record.events:
        payload["events"] = record.events
    if record.links:
        payload["links"] = record.links
    if record.emitter.scope:
        payload["scope"] = record.emitter.scope
    if root and record.emitter.resource:
        payload["resource"] = record.emitter.resource
    return payload


def _payload_of_log(record: LogRecord) -> dict[str, object]:
    severity = said(number=record.severity, text=record.severity_text)
    optional = said(severity=severity, scope=record.emitter.scope)
    return {**record.more, **optional, "kind": "log", "body": record.body, "attributes": record.attributes}


def _named(names: Sequence[str], code: int) -> object:
    """The name of an enumeration's value; one of a later version of the protocol is its number."""
    return names[code] if 0 <= code < len(names) else code


class _About:
    """What a record says of the event that it is, with everything that is wrong with it and the places of what was replaced."""

    def __init__(self, emitter: Emitter, attributes: Attributes, defects: Sequence[EventDefect]) -> None:
        self._source = emitter.source
        self._attributes = attributes
        self._defects: list[EventDefect] = [*emitter.defects, *defects]
        self._replaced: list[str] = []
        self._start_ns = self._end_ns = 0

    def identity(self, key: str, found: str, digits: int, required: bool = False) -> str | None:
        """An id of so many hexadecimal digits, None where there is none, or one that is refused."""
        if not found.strip("0"):
            if required:
                self._defects.append(EventFieldMissing(key))
            return None
        lowered = found.lower()
        if not _HEX[digits].fullmatch(lowered):
            self._invalid(key, found, f"{digits} hexadecimal digits (OTLP's JSON has them too, where other JSON has base64)")
            return None
        return lowered

    def times(self, start_ns: int, end_ns: int) -> None:
        for key, found in (("time", start_ns), ("endTime", end_ns)):
            if found > TIME_MAX_NS:
                self._invalid(key, found, "nanoseconds UTC, below 2^63")
        self._start_ns, self._end_ns = start_ns, end_ns

    def edit(self) -> Spelling | None:
        """The payload of the weight edit that the attributes say."""
        return self.spelled(spelled_payload(edit_of(self._attributes)))

    def spelled(self, read: Spelling | Refused[EventFieldDefect | ValueUnspellable]) -> Spelling | None:
        if isinstance(read, Refused):
            self._defects.extend(read.defects)
            return None
        return read

    def event(
        self, kind: EventType, name: str, spelling: Spelling | None, received_ns: int, own: str | None, trace: str | None,
        span: str | None, parent: str | None = None,
    ) -> Event | Refused[EventDefect]:  # fmt: skip
        """The event, refused with every defect that was found on the way; ``own`` is the id of a span that brings none."""
        told, session = self._own_id(), self._kept("session", text_of(self._attributes, "conversation"))
        source = self._kept("source", self._source)
        kept_name = kept_text(name, ID_LENGTH_MAX)
        if kept_name is not name:
            self._replaced.append("name")
        if not self._defects and session is None and trace is None and source is None:
            self._defects.append(EventNowhere())
        if (refused := NonEmpty.of(self._defects)) is not None:
            return Refused(refused)
        assert spelling is not None
        start_ns, end_ns = self._start_ns, self._end_ns
        event_id = (
            told or own or content_event_id(kind, spelling, session=session, trace=trace, source=source, name=kept_name, start_ns=start_ns)
        )
        forwarded = self._attributes.get(FORWARDED) is True
        return Event(
            event_id, kind, spelling, received_ns, session, trace, span, parent, source, kept_name, start_ns, end_ns, forwarded,
            tuple(self._replaced),
        )  # fmt: skip

    def _own_id(self) -> str | None:
        found = self._attributes.get(EVENT_ID)
        if found is None or (isinstance(found, str) and found):
            return self._kept("id", found)
        self._invalid("id", found, _ID_WANTED)
        return None

    def _kept(self, key: str, found: str | None) -> str | None:
        """A text that is kept whole: ids that were cut would be other ids."""
        if found is None:
            return None
        if len(found) > ID_LENGTH_MAX:
            self._invalid(key, found, _ID_WANTED)
        kept = kept_text(found)
        if kept is not found:
            self._replaced.append(key)
        return kept

    def _invalid(self, key: str, found: object, wanted: str) -> None:
        self._defects.append(EventFieldInvalid(key, shown(found), wanted))
