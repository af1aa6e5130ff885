"""What is sent on to other places, as every SQL database keeps it: each sink's place among the events.

Rules kept here:

1. Nothing is written when an event comes in: the index of what is to be sent is the queue. A sink moves by the commit that says up to where
   it was served, and by no other.
2. Who holds a sink is asked in the transaction that changes something of it, never before.
3. A session that was sent under the id of its trace is told of under that id, whatever it is called by then; one that was forgotten is not.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, cast

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, insert, or_, select, text, update
from sqlalchemy.dialects import postgresql

from countermark.sessions.records import SessionListed, StoredEvent
from countermark.store.sessions.interface import WAITING_COUNTED_MAX, Aside, SinkState, ToTell
from countermark.store.sessions.rows import listed_session, stored_event
from countermark.store.sessions.schema import sessions, sink_aside, sink_sessions, sinks
from countermark.store.sessions.steps import TO_SEND
from countermark.store.statements import Statement


def _bind(name: str) -> BindParameter[Any]:
    return bindparam(name)


#: SQLite has no statistics here, and would pass every event instead.
_EVENTS: Final[Mapping[str, str]] = {"sqlite": "events INDEXED BY events_to_send", "postgresql": "events"}
_BEHIND: Final = {dialect: f"FROM {_EVENTS[dialect]} WHERE {TO_SEND[dialect]} AND ordinal > :after" for dialect in TO_SEND}
_WAITING: Final = {
    dialect: Statement(text(f"SELECT * {behind} ORDER BY ordinal LIMIT :limit"), large=True) for dialect, behind in _BEHIND.items()
}
_COUNT: Final = {
    dialect: Statement(text(f"SELECT count(*) AS found FROM (SELECT 1 {behind} LIMIT :limit) AS counted"))
    for dialect, behind in _BEHIND.items()
}

_THIS: Final = sinks.c.sink == _bind("of_sink")
_MINE: Final = (_THIS, sinks.c.holder == _bind("mine"))
_SINK: Final = Statement(select(sinks).where(_THIS))
_MAKE: Final = Statement(insert(sinks).values({column.name: _bind(column.name) for column in sinks.columns}))
_HOLD: Final = Statement(update(sinks).where(_THIS).values(holder=_bind("holder"), until_ns=_bind("until_ns")))
_RELEASE: Final = Statement(update(sinks).where(*_MINE).values(holder="", until_ns=0))
_SENT: Final = Statement(update(sinks).where(*_MINE).values(ordinal=_bind("ordinal"), failed_ns=0, why=""))
_SERVED: Final = Statement(update(sinks).where(*_MINE).values(failed_ns=0, why=""))
_FAILED: Final = Statement(update(sinks).where(*_MINE).values(failed_ns=_bind("failed_ns"), why=_bind("why")))

_put_session = postgresql.insert(sink_sessions).values({column.name: _bind(column.name) for column in sink_sessions.columns})
_PUT_SESSION: Final = Statement(_put_session.on_conflict_do_nothing())
_put_aside = postgresql.insert(sink_aside).values({column.name: _bind(column.name) for column in sink_aside.columns})
_PUT_ASIDE: Final = Statement(_put_aside.on_conflict_do_nothing())
_ASIDE_COUNT: Final = Statement(select(func.count().label("found")).where(sink_aside.c.sink == _bind("of_sink")))

_OF_SINK: Final = sink_sessions.c.sink == _bind("of_sink")
_NAMED: Final = (_OF_SINK, sink_sessions.c.sent_as == _bind("named"))
_UNTOLD: Final = (_OF_SINK, sink_sessions.c.told == 0)
_TO_TELL: Final = Statement(
    select(sink_sessions.c.sent_as, sink_sessions.c.session_id.label("meant"), sessions)
    .select_from(sink_sessions.outerjoin(sessions, sessions.c.session_id == sink_sessions.c.session_id))
    .where(*_UNTOLD, or_(sessions.c.session_id.is_(None), sessions.c.closed == 1, sessions.c.updated_ns < _bind("silent_since_ns")))
    .order_by(sink_sessions.c.sent_as)
    .limit(_bind("limit"))
)
_UNTOLD_COUNT: Final = Statement(select(func.count().label("found")).select_from(sink_sessions).where(*_UNTOLD))
_TOLD: Final = Statement(update(sink_sessions).where(*_NAMED).values(told=1))
_FOLLOW: Final = Statement(update(sink_sessions).where(*_NAMED).values(session_id=_bind("session")))
_LOSE: Final = Statement(delete(sink_sessions).where(*_NAMED))


class SqlSinks(ABC):
    """The sinks of a store of sessions."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self) -> AbstractContextManager[tuple[Connection, int]]: ...

    @abstractmethod
    def _formerly(self, connection: Connection, asked: str) -> dict[str, SessionListed]: ...

    def hold_sink(self, sink: str, holder: str, now_ns: int, until_ns: int) -> bool:
        with self._writing() as (connection, last):
            found = _SINK.rows(connection, of_sink=sink)
            if not found:
                _MAKE.run(connection, sink=sink, ordinal=last, holder=holder, until_ns=until_ns, failed_ns=0, why="")
                return True
            if found[0]["holder"] not in ("", holder) and cast(int, found[0]["until_ns"]) > now_ns:
                return False
            return _HOLD.run(connection, of_sink=sink, holder=holder, until_ns=until_ns) > 0

    def release_sink(self, sink: str, holder: str) -> None:
        with self._writing() as (connection, _):
            _RELEASE.run(connection, of_sink=sink, mine=holder)

    def waiting(self, sink: str, limit: int = 200) -> tuple[StoredEvent, ...]:
        with self._reading() as connection:
            found = _SINK.rows(connection, of_sink=sink)
            if not found:
                return ()
            rows = _WAITING[connection.dialect.name].rows(connection, after=found[0]["ordinal"], limit=limit)
        return tuple(map(stored_event, rows))

    def _waits(self, connection: Connection, after: int) -> bool:
        """Whether anything is to be sent behind a place."""
        return _found(_COUNT[connection.dialect.name].rows(connection, after=after, limit=1)) > 0

    def sent(self, sink: str, holder: str, ordinal: int, sessions: Sequence[str], aside: Sequence[Aside], now_ns: int) -> bool:
        with self._writing() as (connection, _):
            if _SENT.run(connection, of_sink=sink, mine=holder, ordinal=ordinal) == 0:
                return False
            named = [{"sink": sink, "sent_as": each, "session_id": each, "told": 0} for each in sorted(set(sessions))]
            _PUT_SESSION.many(connection, named)
            _put_aside_all(connection, sink, aside, now_ns)
        return True

    def to_tell(self, sink: str, silent_since_ns: int, limit: int = 100) -> tuple[ToTell, ...]:
        with self._reading() as connection:
            rows = _TO_TELL.rows(connection, of_sink=sink, silent_since_ns=silent_since_ns, limit=limit)
            gone = {cast(str, row["sent_as"]): cast(str, row["meant"]) for row in rows if row["session_id"] is None}
            now = {sent_as: min(self._formerly(connection, meant), key=str.encode, default=None) for sent_as, meant in gone.items()}
        if now:
            with self._writing() as (connection, _):
                for sent_as, session in now.items():
                    if session is None:
                        _LOSE.run(connection, of_sink=sink, named=sent_as)
                    else:
                        _FOLLOW.run(connection, of_sink=sink, named=sent_as, session=session)
        return tuple([ToTell(cast(str, row["sent_as"]), listed_session(row)) for row in rows if row["session_id"] is not None])

    def told(self, sink: str, holder: str, sent_as: Sequence[str], aside: Sequence[Aside], now_ns: int) -> bool:
        with self._writing() as (connection, _):
            if _SERVED.run(connection, of_sink=sink, mine=holder) == 0:
                return False
            _TOLD.many(connection, [{"of_sink": sink, "named": each} for each in sent_as])
            _put_aside_all(connection, sink, aside, now_ns)
        return True

    def failed(self, sink: str, holder: str, now_ns: int, why: str) -> bool:
        with self._writing() as (connection, _):
            return _FAILED.run(connection, of_sink=sink, mine=holder, failed_ns=now_ns, why=why) > 0

    def sink_state(self, sink: str) -> SinkState | None:
        with self._reading() as connection:
            found = _SINK.rows(connection, of_sink=sink)
            if not found:
                return None
            ((row,), counted) = found, _COUNT[connection.dialect.name]
            waiting = _found(counted.rows(connection, after=row["ordinal"], limit=WAITING_COUNTED_MAX))
            untold, aside = (_found(each.rows(connection, of_sink=sink)) for each in (_UNTOLD_COUNT, _ASIDE_COUNT))
            return SinkState(waiting, untold, aside, cast(int, row["failed_ns"]), cast(str, row["why"]))


def _found(rows: Sequence[Mapping[str, object]]) -> int:
    return cast(int, rows[0]["found"])


def _put_aside_all(connection: Connection, sink: str, aside: Sequence[Aside], now_ns: int) -> None:
    rows = [{"sink": sink, "item": each.item, "session_id": each.session, "aside_ns": now_ns, "why": each.why} for each in aside]
    _PUT_ASIDE.many(connection, rows)
