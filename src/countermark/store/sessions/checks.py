"""Looking a store of sessions over: its tables as they should be, every event, and whatever is derived from them.

Rules kept here:

1. What is derived is compared with what the heart makes of the events from scratch, never with another derived row.
2. The words by which is searched are compared by sums of their hashes, one for each event: an index that keeps no texts gives its entries
   word by word, and a million events have fifty million of them.
3. Everything that is wrong is found at once, and nothing is mended.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

from sqlalchemy import Connection, and_, create_engine, func, or_, select, text, union
from sqlalchemy.exc import DBAPIError

from countermark.lines.texts import counted
from countermark.sessions.events import trace_session
from countermark.sessions.fold import SESSION_FOLD_VERSION
from countermark.sessions.records import StoredEvent
from countermark.sessions.words import event_words
from countermark.store import checks, postgres_checks
from countermark.store.interface import Finding
from countermark.store.sessions import folding
from countermark.store.sessions.rows import by_name
from countermark.store.sessions.schema import (
    OF_SESSION,
    event_conflicts,
    events,
    feed,
    session_checkpoints,
    session_keys,
    session_tags,
    sessions,
    trace_names,
)
from countermark.store.sessions.statements import INDEX
from countermark.store.sessions.steps import BEGINNING, STEPS, spelled
from countermark.store.statements import undecodable
from countermark.values import shown

_RESTORE: Final = "keep a copy of the store, then restore it from a backup; events stay what they are"
_HASH_MASK: Final = 2**64 - 1


def made_afresh(connection: Connection) -> None:
    """The tables of a store that is made now, in the place that the connection names."""
    dialect = connection.dialect.name
    for statement in (spelled(BEGINNING, dialect), *(each for step in STEPS for each in step.statements(dialect))):
        connection.exec_driver_sql(statement if dialect == "sqlite" else statement.replace("%", "%%"))


def _made_in_memory() -> checks.Objects:
    engine = create_engine("sqlite+pysqlite://")
    try:
        with engine.connect() as connection:
            made_afresh(connection)
            return checks.objects_in(connection)
    finally:
        engine.dispose()


def file_findings(connection: Connection, path: Path) -> Iterator[Finding]:
    """What is wrong with a file of SQLite itself, and with its tables."""
    yield from checks.database_findings(connection, path, _made_in_memory())


def schema_findings(connection: Connection, where: str, schema: str) -> Iterator[Finding]:
    """What is wrong with the tables in a schema of PostgreSQL. The caller rolls back."""
    yield from postgres_checks.schema_findings(connection, where, made_afresh, schema)


def row_findings(connection: Connection, where: str) -> Iterator[Finding]:
    """What is wrong with the rows, in one snapshot."""
    yield from _numbers(connection, where)
    yield from _misplaced(connection, where)
    yield from _conflicts_of_nothing(connection, where)
    indexed = _indexed(connection, where)
    sums = None if isinstance(indexed, Finding) else indexed
    if isinstance(indexed, Finding):
        yield indexed
    named = union(*(select(table.c.session_id) for table in (events, *OF_SESSION)))
    for session in connection.execute(named.order_by("session_id")).scalars().all():
        yield from _session(connection, where, str(session), sums)
    if sums:
        what = f"the index for searching names {counted(len(sums), 'event')} that are not there: number {min(sums)}"
        what += " and others" * (len(sums) > 1)
        yield Finding("SearchEntryForeign", where, what, _RESTORE)


def _numbers(connection: Connection, where: str) -> Iterator[Finding]:
    last = connection.execute(select(feed.c.ordinal)).scalar_one()
    highest = connection.execute(select(func.max(events.c.ordinal))).scalar_one() or 0
    if highest > last:
        what = f"event number {highest} stands there, and {last} is said to be the last: those to come may be refused"
        yield Finding("EventNumberAhead", where, what, _RESTORE)


def _misplaced(connection: Connection, where: str) -> Iterator[Finding]:
    """Events that are not in the session which follows from them and their trace."""
    named = select(func.min(trace_names.c.session_id)).where(trace_names.c.trace == events.c.trace).scalar_subquery()
    by_trace = func.coalesce(named, trace_session("") + events.c.trace)
    wrong = or_(
        and_(events.c.own_session.is_not(None), events.c.session_id != events.c.own_session),
        and_(events.c.own_session.is_(None), events.c.trace.is_not(None), events.c.session_id != by_trace),
    )
    for row in connection.execute(select(events.c.event_id, events.c.session_id).where(wrong).order_by(events.c.ordinal)):
        what = f"event {shown(row.event_id)} stands in session {shown(row.session_id)}, which does not follow from it and its trace"
        yield Finding("EventMisplaced", where, what, _RESTORE)


def _conflicts_of_nothing(connection: Connection, where: str) -> Iterator[Finding]:
    """Other payloads of events that are not there."""
    there = select(events.c.event_id).where(events.c.event_id == event_conflicts.c.event_id).exists()
    query = select(event_conflicts.c.event_id).where(~there).distinct().order_by(event_conflicts.c.event_id)
    for event_id in connection.execute(query).scalars().all():
        what = f"another payload is kept of event {shown(event_id)}, which is not there"
        yield Finding("ConflictForeign", where, what, _RESTORE)


def _indexed(connection: Connection, where: str) -> dict[int, int] | Finding:
    """What the index for searching says of each event that it names, by the event's number: the sum of the hashes of its words."""
    sums: defaultdict[int, int] = defaultdict(int)
    for statement in INDEX[connection.dialect.name].looking:
        connection.exec_driver_sql(statement)
    try:
        rows = connection.execute(text(INDEX[connection.dialect.name].entries), execution_options={"yield_per": 10_000})
        for ordinal, word in rows:
            sums[ordinal] = sums[ordinal] + hash(word) & _HASH_MASK
    except DBAPIError as error:
        damaged = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
        if not damaged and not undecodable(error.orig):
            raise
        return Finding("SearchDamaged", where, "the index for searching cannot be read", _RESTORE)
    return dict(sums)


def _session(connection: Connection, where: str, session: str, indexed: dict[int, int] | None) -> Iterator[Finding]:
    """How what is derived of a session differs from what follows from its events. What the index says of these is taken out of
    ``indexed``."""
    unlike: list[StoredEvent] = []

    def passed() -> Iterator[StoredEvent]:
        for stored in folding.events_of(connection, session):
            if indexed is not None and indexed.pop(stored.ordinal, 0) != _sum(event_words(stored.event)):
                unlike.append(stored)
            yield stored

    yield from _fold(connection, where, session, passed())
    if unlike:
        first = shown(unlike[0].event.id)
        many = counted(len(unlike), "event")
        what = f"the index for searching says other words of {many} of session {shown(session)} than they hold; the first is {first}"
        yield Finding("SearchWordsDiffer", where, what, _RESTORE)


def _sum(words: Iterable[str]) -> int:
    return sum(map(hash, words)) & _HASH_MASK


def _fold(connection: Connection, where: str, session: str, stored: Iterable[StoredEvent]) -> Iterator[Finding]:
    """How a session's rows differ from the fold of its events, every one of which is passed."""
    counting = folding.counted_from_scratch(session, (each.event for each in stored))
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for account in counting.accounts.values():
        account.conflicts = folding.conflict_count(connection, session)
        wanted["sessions"].add(_spelled(account.row()))
        wanted["session_tags"].update(_spelled({"session_id": session, "tag": tag}) for tag in account.session.tags)
        wanted["session_checkpoints"].update(
            _spelled({"session_id": session, "side": side, "digest": digest}) for side, digest in account.checkpoints
        )
    wanted["session_keys"].update(_spelled(row) for row in counting.key_rows())
    found = {
        table.name: {_spelled(row) for row in by_name(connection.execute(select(table).where(table.c.session_id == session)))}
        for table in (sessions, session_keys, session_tags, session_checkpoints)
    }
    rows = [cast("dict[str, object]", json.loads(each)) for each in found["sessions"]]
    if any(row["fold_version"] != SESSION_FOLD_VERSION for row in rows):
        return
    differing = [name for name, cells in found.items() if cells != wanted[name]]
    if differing:
        what = f"what {', '.join(differing)} say of session {shown(session)} does not follow from its events"
        yield Finding("SessionFoldDiffers", where, what, _RESTORE)


def _spelled(row: object) -> str:
    return json.dumps(row, sort_keys=True)
