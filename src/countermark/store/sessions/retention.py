"""Taking sessions out for good, as every SQL database does it: some at a time, whole in the end, with everything that is kept of them.

Rules kept here:

1. What a transaction takes out goes with its words and its conflicts. A session of more events than that goes by several: until the last
   of them its sums are marked as another fold's, so that whatever comes to it meanwhile, or is left by a kill, is folded anew from what is
   there.
2. Whether a rule holds of a session is asked in the transaction that takes of it, never before.
3. What a sink still has to send, or to tell of, is not taken out by a rule, unless the rule says so.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, cast, final

from sqlalchemy import BindParameter, Connection, bindparam, func, select, text, tuple_

from countermark.sessions.records import Outdated, Page, Rule, SessionCursor
from countermark.sessions.words import event_words
from countermark.store.sessions import statements as said
from countermark.store.sessions.interface import Forgotten
from countermark.store.sessions.rows import askable, in_range, stored_event
from countermark.store.sessions.schema import events, sessions, sink_sessions, sinks
from countermark.store.sessions.sinks import SqlSinks
from countermark.store.sessions.steps import TO_SEND
from countermark.store.statements import Row, Statement

#: So many events are taken out by one transaction, so that nobody waits for long.
_FORGOTTEN_AT_ONCE: Final = 1_000
#: So many sessions are asked about at once.
_SESSIONS_AT_ONCE: Final = 100


def _bind(name: str) -> BindParameter[Any]:
    return bindparam(name)


#: When what happened last in a session happened; where its own time cannot be used, an event counts by its receipt.
_LAST: Final = select(func.max(events.c.when_ns)).where(events.c.session_id == sessions.c.session_id).scalar_subquery()
_STANDING: Final = select(sessions.c.session_id, sessions.c.updated_ns, sessions.c.events, func.coalesce(_LAST, 0).label("last_ns"))
_PLACE: Final = (sessions.c.updated_ns, sessions.c.session_id)
_SILENT: Final = Statement(
    _STANDING.where(sessions.c.updated_ns < _bind("quiet_ns"), tuple_(*_PLACE) > tuple_(_bind("updated_ns"), _bind("session")))
    .order_by(*_PLACE)
    .limit(_bind("limit"))
)
_STANDING_OF: Final = Statement(_STANDING.where(said.among(sessions.c.session_id, "sessions")))

_SINKS: Final = Statement(select(sinks.c.sink, sinks.c.ordinal))
_UNSENT: Final[Mapping[str, Statement]] = {
    dialect: Statement(text(f"SELECT 1 FROM {table} WHERE session_id = :session AND ordinal > :after AND {TO_SEND[dialect]} LIMIT 1"))
    for dialect, table in (("sqlite", "events INDEXED BY events_of_session"), ("postgresql", "events"))
}
_UNTOLD: Final = Statement(
    select(sink_sessions.c.sink, sink_sessions.c.session_id.label("meant"), sessions.c.session_id)
    .select_from(sink_sessions.outerjoin(sessions, sessions.c.session_id == sink_sessions.c.session_id))
    .where(sink_sessions.c.told == 0)
)


@final
@dataclass(frozen=True, slots=True)
class _Taken:
    """What a transaction took out, and how many of the sessions that it was given are dealt with."""

    forgotten: Forgotten
    done: int


class SqlRetention(SqlSinks, ABC):
    """How sessions leave a store."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self) -> AbstractContextManager[tuple[Connection, int]]: ...

    def outdated(self, rule: Rule, after: SessionCursor | None = None, limit: int = 500) -> Page[Outdated, SessionCursor]:
        start = after or SessionCursor(-1, "")
        with self._reading() as connection:
            place = {"updated_ns": start.updated_ns, "session": start.session}
            rows = _SILENT.rows(connection, quiet_ns=in_range(rule.quiet_ns), limit=limit, **place)
            found = [row for row in rows if _holds(rule, row)]
            owed = self._owed(connection, [cast(str, row["session_id"]) for row in found])
        told = tuple([_outdated(row, owed) for row in found])
        following = SessionCursor(cast(int, rows[-1]["updated_ns"]), cast(str, rows[-1]["session_id"])) if len(rows) == limit else None
        return Page(told, following)

    def forget(
        self, sessions: Sequence[str], rule: Rule | None = None, between: Callable[[Forgotten], object] = lambda forgotten: None
    ) -> Forgotten:
        forgotten = Forgotten(0, 0)
        left = list(dict.fromkeys(filter(askable, sessions)))
        while left:
            with self._writing() as (connection, _):
                taken = self._take_out(connection, left[:_SESSIONS_AT_ONCE], rule)
            left = left[taken.done :]
            forgotten = Forgotten(forgotten.sessions + taken.forgotten.sessions, forgotten.events + taken.forgotten.events)
            between(forgotten)
        return forgotten

    def _take_out(self, connection: Connection, chosen: Sequence[str], rule: Rule | None) -> _Taken:
        """Take out sessions, as far as they are there and the rule holds of them, until enough events went."""
        standing = {cast(str, row["session_id"]): row for row in _STANDING_OF.rows(connection, sessions=said.listed(chosen))}
        going = [each for each in chosen if each in standing and (rule is None or _holds(rule, standing[each]))]
        owed = {} if rule is None or rule.unsent else self._owed(connection, going)
        gone, room = 0, _FORGOTTEN_AT_ONCE
        for done, session in enumerate(chosen):
            if room == 0:
                return _Taken(Forgotten(gone, _FORGOTTEN_AT_ONCE - room), done)
            if session not in going or session in owed:
                continue
            taken = _take_events(connection, session, room)
            if taken == room:
                said.STALE.run(connection, session=session)
                return _Taken(Forgotten(gone, _FORGOTTEN_AT_ONCE), done)
            for statement in said.FORGET_REST:
                statement.run(connection, session=session)
            room -= taken
            gone += 1
        return _Taken(Forgotten(gone, _FORGOTTEN_AT_ONCE - room), len(chosen))

    def _owed(self, connection: Connection, asked: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The sinks that still have to send something of each of these sessions, or to tell of it."""
        wanted = set(asked)
        owed: defaultdict[str, set[str]] = defaultdict(set)
        if not wanted:
            return {}
        for row in _UNTOLD.rows(connection):
            sink, meant = cast(str, row["sink"]), cast(str, row["meant"])
            # A session that was sent under the id of its trace is told of under that, whatever it is called by now.
            now = {meant} if row["session_id"] is not None else set(self._formerly(connection, meant))
            for session in now & wanted:
                owed[session].add(sink)
        for row in _SINKS.rows(connection):
            if self._waits(connection, cast(int, row["ordinal"])):
                for session in wanted:
                    if _UNSENT[connection.dialect.name].rows(connection, session=session, after=row["ordinal"]):
                        owed[session].add(cast(str, row["sink"]))
        return {session: tuple(sorted(found)) for session, found in owed.items()}


def _take_events(connection: Connection, session: str, limit: int) -> int:
    """Take out the first events of a session; how many."""
    found = [stored_event(row) for row in said.OF_SESSION.rows(connection, session=session, when_ns=-1, ordinal=0, limit=limit)]
    if not found:
        return 0
    words = ((stored.ordinal, event_words(stored.event)) for stored in found)
    index = said.INDEX[connection.dialect.name]
    index.take_out.many(connection, [{"ordinal": ordinal, "words": " ".join(words_of)} for ordinal, words_of in words if words_of])
    for statement in said.FORGET_EVENTS:
        statement.run(connection, session=session, until_ns=found[-1].when_ns, until_ordinal=found[-1].ordinal)
    return len(found)


def _holds(rule: Rule, row: Row) -> bool:
    return cast(int, row["updated_ns"]) < rule.quiet_ns and cast(int, row["last_ns"]) < rule.before_ns


def _outdated(row: Row, owed: Mapping[str, tuple[str, ...]]) -> Outdated:
    session = cast(str, row["session_id"])
    return Outdated(session, cast(int, row["events"]), cast(int, row["last_ns"]), owed.get(session, ()))
