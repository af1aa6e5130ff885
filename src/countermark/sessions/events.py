"""Events: what a session consists of, and who each one is.

Rules kept here:

1. An event's id is the one that it brings, else that of its span, else the digest of everything that it says: a record that is sent
   twice is one event, whoever sends it.
2. A session is the one that the event names, else the byte-smallest that any event of its trace names, else the trace, else its emitter.
   So neither depends on the order in which events arrive.
3. Events are ordered by their times where these can be used, and by their receipt where not.
4. Two events of one id are the same event when their payloads are; another payload under a known id is a conflict, and the first is kept.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from countermark.recipe.canonical import length_prefixed
from countermark.sessions.canonical import Spelling, ValueUnspellable
from countermark.sessions.edits import EventFieldDefect
from countermark.sessions.times import Times, times_of
from countermark.values import NonEmpty

EventType: TypeAlias = Literal["message", "tool_call", "tool_result", "span", "notification", "end"]
#: What each type of event is.
TYPES: Final[Mapping[EventType, str]] = {
    "message": "something that was said; its payload may have role and text or content",
    "tool_call": "a call of a tool; its payload may have tool and arguments",
    "tool_result": "what a call gave; an error that is not empty counts as one",
    "span": "a span of OpenTelemetry; its payload has name, kind, attributes, status, events and links",
    "notification": "anything else that happened; its payload's kind says what, and weights.edit is a weight edit",
    "end": "the session ended; it counts as closed while nothing later is heard of it",
}
EVENT_TYPES: Final[tuple[EventType, ...]] = tuple(TYPES)

#: The keys of an event's document, and what each means.
KEYS: Final[Mapping[str, str]] = {
    "id": "who the event is: one that comes again under its id changes nothing; without one it is the digest of all that it says",
    "type": "one of the types below",
    "session": "the session that it names",
    "trace": "the id of its trace, 32 hexadecimal digits; without a session it belongs to that of its trace",
    "span": "the id of its span, 16 hexadecimal digits",
    "parent": "the id of the span above it",
    "source": "its emitter; without a session and a trace it belongs to that of its source",
    "name": "a short name of what happened",
    "time": "when it was or began: ISO 8601 with an offset, or nanoseconds UTC as a number or as its digits",
    "endTime": "when it ended",
    "forwarded": "true where another store of this program sent it on: it is not sent on again",
    "payload": "an object: what happened",
}

#: The longest id of an event, a session or a source, and the longest name of an event, in characters.
ID_LENGTH_MAX: Final = 512

TRACE_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
SPAN_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class Event:
    """One event as it came in; ``id`` is who it is. Ids of traces and spans are lower-case hexadecimal; times are ns UTC, 0 for none.
    ``source`` is the emitter, ``forwarded`` says that another store of ours sent it on, ``sanitized`` names the places of the envelope in
    which something was replaced (those of the payload are told by its spelling)."""

    id: str
    type: EventType
    payload: Spelling
    received_ns: int
    session: str | None = None
    trace: str | None = None
    span: str | None = None
    parent: str | None = None
    source: str | None = None
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    forwarded: bool = False
    sanitized: tuple[str, ...] = ()

    @property
    def times(self) -> Times:
        return times_of(self.start_ns, self.end_ns, self.received_ns)

    @property
    def replaced(self) -> tuple[str, ...]:
        """Every place in which something was replaced to be kept."""
        return (*self.sanitized, *self.payload.sanitized)


@final
@dataclass(frozen=True, slots=True)
class EventUnreadable:
    """What came in is no event at all; ``why`` is a clause about it."""

    why: str


@final
@dataclass(frozen=True, slots=True)
class EventNowhere:
    """An event names neither a session nor a trace nor a source, so that it belongs to none."""


@final
@dataclass(frozen=True, slots=True)
class BatchTooLong:
    """A batch has more items than are taken at once; nothing of it was read."""

    items_max: int


@final
@dataclass(frozen=True, slots=True)
class EventConflicts:
    """An event came under the id of another one whose payload says something else: the first is kept, and this one stands beside it."""

    event: str


@final
@dataclass(frozen=True, slots=True)
class EventLineRefused:
    """A line of a file (``line``, from 1) is no event; ``why`` says everything that is wrong with it."""

    file: str
    line: int
    why: str


EventDefect = EventUnreadable | EventNowhere | EventFieldDefect | ValueUnspellable


@final
@dataclass(frozen=True, slots=True)
class EventRefused:
    """One item of a batch that is not taken: its place in it (from 0), its id as far as it says one, and all that is wrong with it."""

    index: int
    id: str
    defects: NonEmpty[EventDefect]


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """What came in at once: the events, each with its place among all items (from 0), and the items that are none."""

    events: tuple[tuple[int, Event], ...]
    refused: tuple[EventRefused, ...]


def span_event_id(trace: str, span: str) -> str:
    """The id of the event that a span is, where it brings none: 32 hexadecimal digits."""
    return _digest(b"span", trace.encode(), span.encode())


def content_event_id(
    kind: EventType, payload: Spelling, *, session: str | None, trace: str | None, source: str | None, name: str, start_ns: int
) -> str:
    """The id of an event that brings none and is no span: a digest of what it says, so that identical records are one."""
    said = (kind, payload.text, session or "", trace or "", source or "", name, str(start_ns))
    return _digest(b"event", *(part.encode() for part in said))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(length_prefixed(*parts)).hexdigest()[:32]


def trace_session(trace: str) -> str:
    """The session of a trace that names none."""
    return f"trace:{trace}"


def session_of(event: Event, named_by_trace: str | None) -> str:
    """The session of an event; ``named_by_trace`` is the byte-smallest id that any event of its trace names, if one does."""
    if event.session is not None:
        return event.session
    if event.trace is not None:
        return named_by_trace or trace_session(event.trace)
    return f"log:{event.source or 'unknown'}"


def smaller(one: str | None, other: str | None) -> str | None:
    """The byte-smaller of two ids, each None where there is none."""
    if one is None or other is None:
        return one if other is None else other
    return min(one, other, key=str.encode)
