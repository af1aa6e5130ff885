"""A batch of events into the tables, in one transaction.

Rules kept here:

1. What is new is found out before anything is written, by questions about the whole batch: no statement is run for each event.
2. Every event teaches what its trace names, also one that is there already and one that conflicts: then it makes no difference which of
   several came first. Where a trace names a smaller session than before, its events that name none go there.
3. A batch with nothing new writes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast, final

from sqlalchemy import Connection

from countermark.sessions.events import Event, session_of, smaller
from countermark.sessions.words import event_words
from countermark.store.sessions import folding
from countermark.store.sessions import statements as said
from countermark.store.sessions.interface import Ingested
from countermark.store.sessions.rows import conflict_row, event_row, stored_event


@final
@dataclass(frozen=True, slots=True)
class _Sorted:
    """A batch by what is new in it; ``conflicts`` also has what conflicts with an event of the batch itself."""

    new: list[Event] = field(default_factory=list[Event])
    duplicates: list[Event] = field(default_factory=list[Event])
    conflicts: list[Event] = field(default_factory=list[Event])


@final
class _Names:
    """What the traces of a batch name: before it, and with it."""

    def __init__(self, connection: Connection, batch: Sequence[Event]) -> None:
        traces = {event.trace for event in batch if event.trace is not None}
        rows = said.NAMES.rows(connection, traces=said.listed(traces)) if traces else ()
        self.before: Final = {cast(str, row["trace"]): cast(str, row["session_id"]) for row in rows}
        self.told: Final = {(event.trace, event.session) for event in batch if event.trace is not None and event.session is not None}
        self.after: Final = dict(self.before)
        for trace, session in self.told:
            self.after[trace] = smaller(self.after.get(trace), session) or session

    @property
    def changed(self) -> set[str]:
        return {trace for trace, session in self.after.items() if self.before.get(trace) != session}

    def session(self, event: Event) -> str:
        return session_of(event, None if event.trace is None else self.after.get(event.trace))


def ingest(connection: Connection, batch: Sequence[Event], last: int) -> Ingested:
    """Store what is new of a batch, whose first event gets the number after ``last``. The caller holds the feed."""
    found = _sorted_out(connection, batch)
    names = _Names(connection, batch)
    said.PUT_NAME.many(
        connection, [{"trace": trace, "session_id": session} for trace, session in sorted(names.told) if names.before.get(trace) != session]
    )
    added: defaultdict[str, list[Event]] = defaultdict(list)
    left = _move(connection, names, added)
    moved_to = set(added)
    _put(connection, found.new, names, last, added)
    recounted = moved_to | _put_conflicts(connection, found.conflicts)
    if added or recounted:
        folding.add(connection, added, left, recounted)
    return Ingested(_ids(found.new), _ids(found.duplicates), _ids(found.conflicts))


def _ids(events: Iterable[Event]) -> tuple[str, ...]:
    return tuple([event.id for event in events])


def _sorted_out(connection: Connection, batch: Sequence[Event]) -> _Sorted:
    rows = said.KNOWN.rows(connection, ids=said.listed({event.id for event in batch})) if batch else ()
    payloads = {cast(str, row["event_id"]): cast(str, row["payload"]) for row in rows}
    found = _Sorted()
    for event in batch:
        known = payloads.get(event.id)
        if known is None:
            payloads[event.id] = event.payload.text
            found.new.append(event)
        elif known == event.payload.text:
            found.duplicates.append(event)
        else:
            found.conflicts.append(event)
    return found


def _move(connection: Connection, names: _Names, added: defaultdict[str, list[Event]]) -> set[str]:
    """Let the events follow whose trace names another session now; the sessions that they left."""
    changed = names.changed
    rows = said.FOLLOWERS.rows(connection, traces=said.listed(changed)) if changed else ()
    left: set[str] = set()
    moved: set[str] = set()
    for stored in map(stored_event, rows):
        assert stored.event.trace is not None
        moved.add(stored.event.trace)
        left.add(stored.session)
        added[names.session(stored.event)].append(stored.event)
    said.MOVE.many(connection, [{"session": names.after[trace], "moved": trace} for trace in sorted(moved)])
    return left


def _put(connection: Connection, new: Sequence[Event], names: _Names, last: int, added: defaultdict[str, list[Event]]) -> None:
    if not new:
        return
    rows: list[dict[str, object]] = []
    words: list[dict[str, object]] = []
    for ordinal, event in enumerate(new, start=last + 1):
        session = names.session(event)
        added[session].append(event)
        rows.append(event_row(ordinal, session, event))
        if found := event_words(event):
            words.append({"ordinal": ordinal, "words": " ".join(found)})
    said.PUT_EVENT.many(connection, rows)
    said.INDEX[connection.dialect.name].put.many(connection, words)
    said.ADVANCE.run(connection, ordinal=last + len(new))


def _put_conflicts(connection: Connection, conflicting: Sequence[Event]) -> set[str]:
    """Keep payloads that came under known ids; the sessions whose events have one more now."""
    fresh = {event.id for event in conflicting if said.PUT_CONFLICT.run(connection, **conflict_row(event)) > 0}
    rows = said.KNOWN.rows(connection, ids=said.listed(fresh)) if fresh else ()
    return {cast(str, row["session_id"]) for row in rows}
