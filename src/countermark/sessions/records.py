"""Sessions and events as a store gives them back, where a reader goes on, and what a store says of a session that it does not find.

Rules kept here:

1. A cursor names the last row that was read, never a number of rows to pass over: what comes in meanwhile moves nobody's place.
2. A cursor has one spelling, which surfaces hand out and take back as it is; a text that is none is ``Unreadable``.
"""

import re
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeAlias, TypeVar, final

from countermark.sessions.canonical import Spelling, kept_text
from countermark.sessions.events import ID_LENGTH_MAX, Event
from countermark.sessions.fold import Session
from countermark.sessions.times import TIME_MAX_NS
from countermark.values import Unreadable, shown

Item_co = TypeVar("Item_co", covariant=True)
Cursor_co = TypeVar("Cursor_co", covariant=True)

#: With fewer characters than this a session is found by its whole id alone.
PREFIX_LENGTH_MIN: Final = 8
#: So many sessions are named at most where a prefix is that of several.
NAMED_MAX: Final = 10

_NUMBERS: Final = re.compile(r"\d{1,19}", re.ASCII)


def _is_number(text: str) -> bool:
    """Whether a text is a number of 64 bits from 0 on, as every database has it."""
    return _NUMBERS.fullmatch(text) is not None and int(text) <= TIME_MAX_NS


@final
@dataclass(frozen=True, slots=True)
class SessionCursor:
    """The last session of a page: when something of it was last stored (ns UTC), and its id."""

    updated_ns: int
    session: str

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        number, _, session = raw.partition(".") if isinstance(raw, str) else ("", "", "")
        if not session or kept_text(session, ID_LENGTH_MAX) is not session or not _is_number(number):
            return Unreadable(f"{shown(raw)} does not come from a page of sessions")
        return cls(int(number), session)

    def spell(self) -> str:
        return f"{self.updated_ns}.{self.session}"


@final
@dataclass(frozen=True, slots=True)
class EventCursor:
    """The last event of a page of one session: its time (ns UTC), its number among all events, and how many of the session come before it
    and with it."""

    when_ns: int
    ordinal: int
    passed: int

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        parts = raw.split(".") if isinstance(raw, str) else []
        if len(parts) != 3 or not all(map(_is_number, parts)):
            return Unreadable(f"{shown(raw)} does not come from a page of events")
        return cls(*map(int, parts))

    def spell(self) -> str:
        return f"{self.when_ns}.{self.ordinal}.{self.passed}"


@final
@dataclass(frozen=True, slots=True)
class Page(Generic[Item_co, Cursor_co]):
    """Some of many, and where to go on; None where nothing follows."""

    items: tuple[Item_co, ...]
    next: Cursor_co | None


@final
@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its number in the order of receipt, the session that it belongs to now, and the time that it is sorted by (ns UTC): its
    own where that can be used, else that of its receipt."""

    ordinal: int
    session: str
    when_ns: int
    event: Event


@final
@dataclass(frozen=True, slots=True)
class EventPage:
    """Events of one session in its order: those from number ``first`` on (counted from 1) of ``total``; 0 where there are none."""

    events: tuple[StoredEvent, ...]
    first: int
    total: int
    next: EventCursor | None


@final
@dataclass(frozen=True, slots=True)
class SessionListed:
    """A session as a list has it. ``source`` is the byte-smallest emitter that an event of it names, or empty; ``updated_ns`` is when the
    last event that was new to it was received; ``conflicts`` counts the other payloads that came under ids of its events."""

    session: Session
    source: str
    updated_ns: int
    conflicts: int

    @property
    def id(self) -> str:
        return self.session.id


@final
@dataclass(frozen=True, slots=True)
class Conflict:
    """Another payload under the id of an event that is kept, and when it was first received (ns UTC)."""

    event: str
    payload: Spelling
    received_ns: int


@final
@dataclass(frozen=True, slots=True)
class CheckpointOfSession:
    """A session one of whose weight edits names a checkpoint, as what it was made of or as what it made."""

    session: str
    made: bool


@final
@dataclass(frozen=True, slots=True)
class SessionUnknown:
    """No session has this id, and none an id that begins with it."""

    asked: str


@final
@dataclass(frozen=True, slots=True)
class SessionPrefixShort:
    """Nothing has this id, and it is too short to be looked for as the beginning of one."""

    asked: str
    length_min: int


@final
@dataclass(frozen=True, slots=True)
class SessionAmbiguous:
    """Several sessions begin so; ``found`` are the first of them."""

    asked: str
    found: tuple[str, ...]


SessionNotFound: TypeAlias = SessionUnknown | SessionPrefixShort | SessionAmbiguous


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """Which sessions are outdated: those in which what happened last happened before a time, and to which nothing came since another
    (ns UTC). ``unsent``: also those of which a sink still has to send something, or to tell."""

    before_ns: int
    quiet_ns: int
    unsent: bool = False


@final
@dataclass(frozen=True, slots=True)
class Outdated:
    """A session that a rule takes out: how many events it has, when what happened last in it happened (ns UTC; by its receipt where its own
    time cannot be used), and the sinks that still owe something of it to others, for which it is kept unless the rule says otherwise."""

    id: str
    events: int
    last_ns: int
    owed: tuple[str, ...]
