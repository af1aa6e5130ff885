"""A store of sessions over SQL, whatever the database.

Rules kept here:

1. Who writes holds the feed from its first statement to its commit: events become visible in the order of their numbers, so that whoever
   follows them misses none.
2. With the feed comes the schema's version: a program that was overtaken by a migration writes nothing any more.
3. A prefix is looked for among the ids that sessions have, and those that they had before their events moved: what a trace names leads
   there.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Final, Self, cast

from sqlalchemy import Connection, Select, func, select, tuple_

from countermark.sessions.events import Event, trace_session
from countermark.sessions.filters.condition import Where
from countermark.sessions.fold import SESSION_FOLD_VERSION
from countermark.sessions.records import (
    NAMED_MAX,
    PREFIX_LENGTH_MIN,
    CheckpointOfSession,
    Conflict,
    EventCursor,
    EventPage,
    Page,
    SessionAmbiguous,
    SessionCursor,
    SessionListed,
    SessionNotFound,
    SessionPrefixShort,
    SessionUnknown,
    StoredEvent,
)
from countermark.sessions.words import words_of
from countermark.store.failures import StoreError, StoreOfAnotherVersion
from countermark.store.sessions import folding
from countermark.store.sessions import statements as said
from countermark.store.sessions.ingest import ingest
from countermark.store.sessions.interface import Ingested
from countermark.store.sessions.retention import SqlRetention
from countermark.store.sessions.rows import INT64_MAX, askable, by_name, conflict, in_range, listed_session, stored_event
from countermark.store.sessions.schema import SESSIONS_VERSION
from countermark.store.sessions.schema import sessions as sessions_table
from countermark.store.where import condition
from countermark.values import NonEmpty, Refused

#: From so many sessions on, a set is asked of each session that is passed, and no longer for its sessions first.
_FEW: Final = 2_000
_TRACE: Final = re.compile(r"trace:([0-9a-f]{32})", re.ASCII)


def _are_few(connection: Connection, ids: Select[Any]) -> bool:
    """Whether a query gives few ids. SQLite keeps no statistics: it would pass a million sessions for the few that have a tag, or look up
    half a million that have another one. PostgreSQL knows by itself."""
    if connection.dialect.name == "postgresql":
        return False
    return cast(int, connection.scalar(select(func.count()).select_from(ids.limit(_FEW).subquery()))) < _FEW


def beyond(prefix: str) -> str:
    """The smallest text, by bytes, that is greater than every text that begins with ``prefix``."""
    kept = prefix.rstrip("\U0010ffff")
    after = ord(kept[-1]) + 1 if kept else 0x10FFFF
    return kept[:-1] + chr(0xE000 if after == 0xD800 else after)


class SqlSessions(SqlRetention, ABC):
    """What is common to every SQL database; a subclass opens connections and runs transactions."""

    @property
    @abstractmethod
    def location(self) -> str: ...

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]:
        """A transaction that reads one snapshot and waits for nobody."""

    @abstractmethod
    def _changing(self) -> AbstractContextManager[Connection]:
        """A transaction that writes, and whose commit is on the disk when it ends."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Generator[tuple[Connection, int], None, None]:
        """A transaction that nobody else writes beside, and the number of the last event."""
        with self._changing() as connection:
            (row,) = said.HOLD.rows(connection)
            if row["version"] != SESSIONS_VERSION:
                raise StoreError(StoreOfAnotherVersion(self.location, cast(int, row["version"] or 0), SESSIONS_VERSION))
            yield connection, cast(int, row["ordinal"])

    # ------------------------------------------------------------------------------------------------------------- writing

    def ingest(self, events: Sequence[Event]) -> Ingested:
        with self._writing() as (connection, last):
            return ingest(connection, events, last)

    def refold(self, progress: Callable[[int, int], object] = lambda done, left: None, batch: int = 100) -> int:
        done = 0
        while True:
            with self._writing() as (connection, _):
                older = [cast(str, row["session_id"]) for row in said.OLDER.rows(connection, version=SESSION_FOLD_VERSION, limit=batch)]
                for session in older:
                    folding.refold(connection, session)
                (left,) = said.OLDER_COUNT.rows(connection, version=SESSION_FOLD_VERSION) if older else ({"left": 0},)
            if not older:
                return done
            done += len(older)
            progress(done, cast(int, left["left"]))

    # ------------------------------------------------------------------------------------------------------------- reading

    def to_refold(self) -> int:
        with self._reading() as connection:
            (row,) = said.OLDER_COUNT.rows(connection, version=SESSION_FOLD_VERSION)
        return cast(int, row["left"])

    def sessions(
        self, where: Where | None = None, limit: int = 50, after: SessionCursor | None = None
    ) -> Page[SessionListed, SessionCursor]:
        if where is not None and where.subject != "sessions":
            raise ValueError(f"a filter over {where.subject} says nothing of sessions")
        table = sessions_table
        place = (table.c.updated_ns, table.c.session_id)
        query = select(table).order_by(*(column.desc() for column in place)).limit(limit + 1)
        if after is not None:
            query = query.where(tuple_(*place) < (after.updated_ns, after.session))
        with self._reading() as connection:
            if where is not None:
                query = query.where(condition(where, table, connection.dialect.name, lambda ids: _are_few(connection, ids)))
            found = list(map(listed_session, by_name(connection.execute(query))))
        page = tuple(found[:limit])
        return Page(page, SessionCursor(page[-1].updated_ns, page[-1].id) if page and len(found) > limit else None)

    def session(self, asked: str) -> SessionListed | Refused[SessionNotFound]:
        if not askable(asked):
            return Refused(NonEmpty(SessionUnknown(asked)))
        with self._reading() as connection:
            found = self._called(connection, [asked]) or self._formerly(connection, asked)
            if not found and len(asked) < PREFIX_LENGTH_MIN:
                return Refused(NonEmpty(SessionPrefixShort(asked, PREFIX_LENGTH_MIN)))
            found = found or self._beginning(connection, asked)
        if len(found) > 1:
            return Refused(NonEmpty(SessionAmbiguous(asked, tuple(sorted(found, key=str.encode))[:NAMED_MAX])))
        return next(iter(found.values()), Refused(NonEmpty(SessionUnknown(asked))))

    def _called(self, connection: Connection, ids: Iterable[object]) -> dict[str, SessionListed]:
        """The sessions of these ids, as far as there are."""
        rows = said.SESSIONS_OF.rows(connection, sessions=said.listed(ids))
        return {found.id: found for found in map(listed_session, rows)}

    def _formerly(self, connection: Connection, asked: str) -> dict[str, SessionListed]:
        """The sessions in which the events are that were in one of this id before."""
        trace = _TRACE.fullmatch(asked)
        traces = [trace[1]] if trace else [row["trace"] for row in said.NAMED_BY.rows(connection, session=asked, limit=NAMED_MAX + 1)]
        return self._of_traces(connection, traces)

    def _of_traces(self, connection: Connection, traces: Iterable[object]) -> dict[str, SessionListed]:
        rows = said.NAMES.rows(connection, traces=said.listed(traces))
        return self._called(connection, {row["session_id"] for row in rows})

    def _beginning(self, connection: Connection, asked: str) -> dict[str, SessionListed]:
        """The sessions whose id begins so, now or before their events moved; of more than are named, the first."""
        bounds: dict[str, object] = {"first": asked, "beyond": beyond(asked), "limit": NAMED_MAX + 1}
        found = self._called(connection, (row["session_id"] for row in said.BEGINNING_SO.rows(connection, **bounds)))
        traces = [row["trace"] for row in said.NAMED_SO.rows(connection, **bounds)]
        prefix = trace_session("")
        if asked.startswith(prefix) and (rest := asked.removeprefix(prefix)):
            bounds |= {"first": rest, "beyond": beyond(rest)}
            traces += [row["trace"] for row in said.TRACES_SO.rows(connection, **bounds)]
        return found | self._of_traces(connection, traces)

    def events(self, session: str, after: EventCursor | None = None, limit: int = 200) -> EventPage:
        start = after or EventCursor(-1, 0, 0)
        with self._reading() as connection:
            found = self._called(connection, [session] if askable(session) else []).get(session)
            if found is None:
                return EventPage((), 0, 0, None)
            rows = said.OF_SESSION.rows(connection, session=session, when_ns=start.when_ns, ordinal=start.ordinal, limit=limit + 1)
        page = tuple(map(stored_event, rows[:limit]))
        passed = start.passed + len(page)
        following = EventCursor(page[-1].when_ns, page[-1].ordinal, passed) if page and len(rows) > limit else None
        return EventPage(page, start.passed + 1 if page else 0, found.session.sums.events, following)

    def search(self, text: str, limit: int = 50, before: int | None = None) -> Page[StoredEvent, int]:
        words = words_of(text)
        if not words:
            return Page((), None)
        with self._reading() as connection:
            index = said.INDEX[connection.dialect.name]
            asked = {"words": index.asked(words), "before": INT64_MAX if before is None else in_range(before), "limit": limit + 1}
            found = [stored_event(row) for row in index.find.rows(connection, **asked)]
        page = tuple(found[:limit])
        return Page(page, page[-1].ordinal if page and len(found) > limit else None)

    def tail(self, after: int, limit: int = 200, session: str | None = None) -> tuple[StoredEvent, ...]:
        if session is not None and not askable(session):
            return ()
        with self._reading() as connection:
            if session is None:
                rows = said.TAIL.rows(connection, after=in_range(after), limit=limit)
            else:
                rows = said.TAIL_OF_SESSION.rows(connection, after=in_range(after), limit=limit, session=session)
        return tuple(map(stored_event, rows))

    def latest(self) -> int:
        with self._reading() as connection:
            (row,) = said.LATEST.rows(connection)
        return cast(int, row["ordinal"])

    def conflicts(self, session: str) -> tuple[Conflict, ...]:
        if not askable(session):
            return ()
        with self._reading() as connection:
            return tuple(map(conflict, said.CONFLICTS.rows(connection, session=session)))

    def edited(self, checkpoint: str) -> tuple[CheckpointOfSession, ...]:
        if not askable(checkpoint):
            return ()
        with self._reading() as connection:
            rows = said.EDITED.rows(connection, digest=checkpoint)
        return tuple([CheckpointOfSession(cast(str, row["session_id"]), row["side"] == "after") for row in rows])
