"""Sessions as every surface reaches them: events are taken, sessions listed and shown, texts searched.

Rules kept here:

1. What a caller hands over as text (a filter, a cursor) is read here, once, and refused with everything that is wrong with it.
2. What became of a batch is told item by item. An event is stored, was there already, or is in conflict with the one that was there.
3. Pages are bounded; a surface that asks for more gets the most that there is in one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

from countermark.lines.serving import ParameterUnfit
from countermark.sessions.canonical import kept_text
from countermark.sessions.events import Batch, Event, EventRefused
from countermark.sessions.filters.binding import FilterDefect, read_where
from countermark.sessions.records import (
    Conflict,
    EventCursor,
    EventPage,
    Page,
    SessionCursor,
    SessionListed,
    SessionNotFound,
    StoredEvent,
)
from countermark.store.sessions.interface import Ingested, SessionStore
from countermark.values import NonEmpty, Refused, Unreadable, shown

#: The most rows of one page.
PAGE_MAX: Final = 500
#: The longest text that is searched for, in characters.
SEARCHED_MAX: Final = 1_000

Outcome: TypeAlias = Literal["stored", "duplicate", "conflict"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)


@final
@dataclass(frozen=True, slots=True)
class Item:
    """What became of one event of a batch: its place in it (from 0) and its id."""

    index: int
    id: str
    outcome: Outcome


@final
@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch, item by item in its order."""

    items: tuple[Item, ...]
    refused: tuple[EventRefused, ...]

    def count(self, outcome: Outcome) -> int:
        return sum(item.outcome == outcome for item in self.items)


def take(store: SessionStore, batch: Batch) -> Taken:
    """Store a batch's events; the answer comes after the commit. Raises ``StoreError``, and nothing is stored then."""
    found = store.ingest([event for _, event in batch.events]) if batch.events else Ingested((), (), ())
    return Taken(_items(batch.events, found), batch.refused)


def _items(events: Sequence[tuple[int, Event]], found: Ingested) -> tuple[Item, ...]:
    """The store tells what became of ids: which event of several with one id was which follows from what each says."""
    stored, duplicates, conflicts = set(found.stored), Counter(found.duplicates), set(found.conflicts)
    kept: dict[str, str] = {}
    for _, event in events:
        if event.id in stored:
            kept.setdefault(event.id, event.payload.text)
    # Where another was kept before, it says what as many events of this batch say as are duplicates.
    said = Counter((event.id, event.payload.text) for _, event in events if event.id in conflicts)
    for (event_id, text), count in said.items():
        if count == duplicates[event_id]:
            kept.setdefault(event_id, text)
    items: list[Item] = []
    for index, event in events:
        outcome: Outcome = "conflict" if event.id in conflicts and kept.get(event.id) != event.payload.text else "duplicate"
        if event.id in stored:
            stored.discard(event.id)
            outcome = "stored"
        items.append(Item(index, event.id, outcome))
    return tuple(items)


def list_sessions(
    store: SessionStore, where: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[SessionListed, SessionCursor] | Refused[FilterDefect | ParameterUnfit]:
    """The sessions for which a filter holds, those that changed last first."""
    defects: list[FilterDefect | ParameterUnfit] = []
    condition = None if where is None else read_where(where, "sessions")
    if isinstance(condition, Refused):
        defects.extend(condition.defects)
        condition = None
    after = None if cursor is None else SessionCursor.read(cursor)
    if isinstance(after, Unreadable):
        defects.append(_not_handed_out(cursor, after))
        after = None
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    return store.sessions(condition, min(limit, PAGE_MAX), after)


def show_session(store: SessionStore, asked: str) -> tuple[SessionListed, tuple[Conflict, ...]] | Refused[SessionNotFound]:
    """A session by its id, by the beginning of it, or by an id that it had before, and what is in conflict in it."""
    found = store.session(kept_text(asked))
    return found if isinstance(found, Refused) else (found, store.conflicts(found.id))


def show_events(
    store: SessionStore, asked: str, cursor: str | None = None, limit: int = 200
) -> tuple[SessionListed, EventPage] | Refused[SessionNotFound | ParameterUnfit]:
    """Some events of a session in its order, and where to go on."""
    after = None if cursor is None else EventCursor.read(cursor)
    found = store.session(kept_text(asked))
    defects: list[SessionNotFound | ParameterUnfit] = list(found.defects) if isinstance(found, Refused) else []
    if isinstance(after, Unreadable):
        defects.append(_not_handed_out(cursor, after))
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    assert not isinstance(found, Refused) and not isinstance(after, Unreadable)
    return found, store.events(found.id, after, min(limit, PAGE_MAX))


def events_of(store: SessionStore, session: str) -> Iterator[StoredEvent]:
    """Every event of the session with this id in its order, a page at a time. Raises ``StoreError``."""
    after: EventCursor | None = None
    while True:
        page = store.events(session, after, PAGE_MAX)
        yield from page.events
        if (after := page.next) is None:
            return


def search_events(
    store: SessionStore, text: str, limit: int = 50, before: int | None = None
) -> Page[StoredEvent, int] | Refused[ParameterUnfit]:
    """The events that hold every word of a text, the last received first."""
    if len(text) > SEARCHED_MAX:
        return Refused(NonEmpty(ParameterUnfit("q", shown(text), f"a text of at most {SEARCHED_MAX:,} characters")))
    return store.search(text, min(limit, PAGE_MAX), before)


def _not_handed_out(cursor: str | None, why: Unreadable) -> ParameterUnfit:
    return ParameterUnfit("cursor", shown(cursor), f"a cursor that a page ended with ({why.why})")
