"""What a store of sessions should hold, from the events alone: no row is added to, everything is folded from scratch."""

from collections.abc import Iterable, Sequence
from typing import Final, final

from countermark.sessions.events import Event, session_of, smaller
from countermark.sessions.fold import folded
from countermark.sessions.records import SessionListed
from countermark.sessions.words import event_words
from countermark.store.sessions.interface import Forgotten, Ingested


@final
class Model:
    """The events that are kept, what traces name, and the payloads that conflict."""

    def __init__(self) -> None:
        self.events: Final[dict[str, Event]] = {}
        self.names: Final[set[tuple[str, str]]] = set()
        self.conflicts: Final[set[tuple[str, str]]] = set()

    def session(self, event: Event) -> str:
        named: str | None = None
        for trace, session in self.names:
            named = smaller(named, session) if trace == event.trace else named
        return session_of(event, named)

    def ingest(self, batch: Sequence[Event]) -> Ingested:
        found: tuple[list[str], list[str], list[str]] = ([], [], [])
        for event in batch:
            if event.trace is not None and event.session is not None:
                self.names.add((event.trace, event.session))
            known = self.events.setdefault(event.id, event)
            same = known.payload.text == event.payload.text
            found[0 if known is event else 1 if same else 2].append(event.id)
            if not same:
                self.conflicts.add((event.id, event.payload.text))
        return Ingested(*map(tuple, found))

    def forget(self, session: str) -> Forgotten:
        gone = [event.id for event in self.events.values() if self.session(event) == session]
        for name in gone:
            del self.events[name]
        self.conflicts.difference_update({each for each in self.conflicts if each[0] in gone})
        if gone:
            self.names.difference_update({each for each in self.names if each[1] == session})
        return Forgotten(int(bool(gone)), len(gone))

    def listed(self) -> list[SessionListed]:
        """The sessions, those that changed last first."""
        by_session: dict[str, list[Event]] = {}
        for event in self.events.values():
            by_session.setdefault(self.session(event), []).append(event)
        found = [self._listed(session, events) for session, events in by_session.items()]
        return sorted(found, key=lambda each: (each.updated_ns, each.id.encode()), reverse=True)

    def _listed(self, session: str, events: list[Event]) -> SessionListed:
        source: str | None = None
        for event in events:
            source = smaller(source, event.source)
        own = {event.id for event in events}
        conflicts = sum(each in own for each, _ in self.conflicts)
        return SessionListed(folded(session, events), source or "", max(event.received_ns for event in events), conflicts)

    def of(self, session: str) -> set[str]:
        return {event.id for event in self.events.values() if self.session(event) == session}

    def holding(self, words: Iterable[str]) -> set[str]:
        return {event.id for event in self.events.values() if set(words) <= set(event_words(event))}
