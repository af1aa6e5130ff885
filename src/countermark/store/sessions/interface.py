"""What every store of sessions can do; the conformance tests are written against this and nothing else.

Rules kept here:

1. An answer is given after the commit, never before: what ``ingest`` says is stored survives a kill. A batch is stored whole or not at all.
2. An event that is sent again changes nothing: no sum, no time of change, no place in ``tail``. Another payload under a known id is kept
   beside the first as a conflict.
3. Which session an event belongs to, and what a session comes to, follow from the events alone: their order and grouping change nothing.
4. Readers never wait for a writer. A reading is one snapshot.
5. A failing environment raises ``StoreError``. There is no clock here: an event says when it was received.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self, final

from countermark.sessions.events import Event
from countermark.sessions.filters.condition import Where
from countermark.sessions.records import (
    CheckpointOfSession,
    Conflict,
    EventCursor,
    EventPage,
    Outdated,
    Page,
    Rule,
    SessionCursor,
    SessionListed,
    SessionNotFound,
    StoredEvent,
)
from countermark.store.interface import Finding
from countermark.values import Refused


@final
@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a batch, by the ids of its events, each in the batch's order: those that are stored now, those that were there already
    with the same payload, and those that were there with another one."""

    stored: tuple[str, ...]
    duplicates: tuple[str, ...]
    conflicts: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was taken out for good: whole sessions, and events, those of a session of which some are left included."""

    sessions: int
    events: int


@final
@dataclass(frozen=True, slots=True)
class ToTell:
    """A session that ended or fell silent, some of whose edits were sent as those of session ``sent_as``."""

    sent_as: str
    listed: SessionListed


@final
@dataclass(frozen=True, slots=True)
class Aside:
    """What a sink never takes (the id of an event, or of a session behind ``session:``), the session that it belongs to, and why."""

    item: str
    session: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class SinkState:
    """How far a sink is: events that wait to be sent (counted up to ``WAITING_COUNTED_MAX``), sessions that are not told of yet, what was
    set aside, and the last failure (ns UTC, 0 where none is left, and a clause)."""

    waiting: int
    sessions: int
    aside: int
    failed_ns: int
    why: str


#: The sink of the server's setting: another address of it goes on where the one before was.
SERVE_SINK: Final = "serve.forward"
#: So many events that wait are counted; of more it is said that there are more.
WAITING_COUNTED_MAX: Final = 1_000_000


class SinkStore(Protocol):
    """The queue of what is sent on to other places. It is the events themselves, in the order of their receipt, and each sink has its place
    among them: what is stored is queued by the same commit, nothing is copied, and a sink that is away costs nobody anything.

    One sender at a time holds a sink, for a time; who does not hold it any more changes nothing (False)."""

    def hold_sink(self, sink: str, holder: str, now_ns: int, until_ns: int) -> bool:
        """Have a sink until a time, unless somebody else has it now. One that is new begins with what is stored from now on."""
        ...

    def release_sink(self, sink: str, holder: str) -> None:
        """Let others have it at once."""
        ...

    def waiting(self, sink: str, limit: int = 200) -> tuple[StoredEvent, ...]:
        """The next events that are to be sent: weight edits that no other store sent on, and maybe others whose payloads hold one."""
        ...

    def sent(self, sink: str, holder: str, ordinal: int, sessions: Sequence[str], aside: Sequence[Aside], now_ns: int) -> bool:
        """Everything up to an event was sent, as of these sessions, or is set aside."""
        ...

    def to_tell(self, sink: str, silent_since_ns: int, limit: int = 100) -> tuple[ToTell, ...]:
        """Sessions of edits that were sent, which are closed or to which nothing came since a time (ns UTC), and that are not told of."""
        ...

    def told(self, sink: str, holder: str, sent_as: Sequence[str], aside: Sequence[Aside], now_ns: int) -> bool:
        """These sessions were told of, or are set aside; never again."""
        ...

    def failed(self, sink: str, holder: str, now_ns: int, why: str) -> bool:
        """Sending failed; what is sent afterwards takes that back."""
        ...

    def sink_state(self, sink: str) -> SinkState | None:
        """How far a sink is; None for one that nobody held yet."""
        ...


class SessionStore(SinkStore, Protocol):
    """A store of sessions. Safe to use from several threads; a forked child opens its own."""

    @property
    def location(self) -> str:
        """Where the store is, as a person may be shown it."""
        ...

    def ingest(self, events: Sequence[Event]) -> Ingested:
        """Store what is new of a batch, all of it by one commit that is on the disk when this returns."""
        ...

    def sessions(
        self, where: Where | None = None, limit: int = 50, after: SessionCursor | None = None
    ) -> Page[SessionListed, SessionCursor]:
        """The sessions for which a condition holds, those that changed last first."""
        ...

    def session(self, asked: str) -> SessionListed | Refused[SessionNotFound]:
        """The session of an id, of the beginning of an id that no other session has, or of an id under which its events were before another
        was learnt."""
        ...

    def events(self, session: str, after: EventCursor | None = None, limit: int = 200) -> EventPage:
        """Events of the session with this id, by their time and, where that cannot be used, that of their receipt. None for an unknown
        session."""
        ...

    def search(self, text: str, limit: int = 50, before: int | None = None) -> Page[StoredEvent, int]:
        """The events that hold every word of the text (a run of letters and digits, whatever its case), the last received first.
        ``before``: only what was received before the event with this ordinal. No words find nothing."""
        ...

    def tail(self, after: int, limit: int = 200, session: str | None = None) -> tuple[StoredEvent, ...]:
        """What was received after the event with this ordinal, in the order of receipt, of all sessions or of one."""
        ...

    def latest(self) -> int:
        """The ordinal of the event that was received last; 0 before the first."""
        ...

    def conflicts(self, session: str) -> tuple[Conflict, ...]:
        """The other payloads that came under ids of the session's events, in the order of their receipt."""
        ...

    def edited(self, checkpoint: str) -> tuple[CheckpointOfSession, ...]:
        """The sessions whose weight edits name a digest of weights, in the order of their ids."""
        ...

    def outdated(self, rule: Rule, after: SessionCursor | None = None, limit: int = 500) -> Page[Outdated, SessionCursor]:
        """The sessions that a rule takes out, those to which nothing came for longest first. So many sessions are looked at for a page,
        which may have none."""
        ...

    def forget(
        self, sessions: Sequence[str], rule: Rule | None = None, between: Callable[[Forgotten], object] = lambda forgotten: None
    ) -> Forgotten:
        """Take out these sessions with all that is kept of them; with a rule, only those that it still takes out. An event of them that
        comes again is new. Some events go by each transaction; ``between`` is told after each what went so far. What was broken off leaves
        whole sessions, and maybe one with some of its events, whose sums are folded again."""
        ...

    def refold(self, progress: Callable[[int, int], object] = lambda done, left: None, batch: int = 100) -> int:
        """Fold again what another version of the fold made, so many sessions to a transaction; how many there were. ``progress`` is told
        after each how many are done and left. What was broken off goes on with what is left."""
        ...

    def to_refold(self) -> int:
        """How many sessions an older version of the fold made."""
        ...

    def check(self) -> tuple[Finding, ...]:
        """Everything that is wrong with the store; empty when it is whole. Reads every row and every entry of the index for searching, and
        folds every session from scratch."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
