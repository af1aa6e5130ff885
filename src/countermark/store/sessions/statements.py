"""The statements of sessions, over the tables of ``schema``, for every database.

Rules kept here:

1. What is asked about a batch is asked once for all of it: the ids come as one JSON list, whichever the database.
2. Every value is bound. A text of many words goes into the index by the words that the heart made of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from typing import Any, Final, final

from sqlalchemy import BindParameter, ColumnElement, Table, and_, bindparam, delete, func, insert, select, text, tuple_, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from countermark.store.sessions.schema import (
    event_conflicts,
    events,
    feed,
    session_checkpoints,
    session_keys,
    session_tags,
    sessions,
    sink_aside,
    sink_sessions,
    steps_taken,
    trace_names,
)
from countermark.store.statements import Statement

# -------------------------------------------------------------------------------------------------- lists of what is asked


class _Among(FunctionElement[bool]):
    """Whether a text column is one of those of a JSON list."""

    name = "among"
    inherit_cache = True


class _PairAmong(FunctionElement[bool]):
    """Whether two text columns together are one of the pairs of a JSON list of pairs."""

    name = "pair_among"
    inherit_cache = True


def _parts(element: FunctionElement[bool], compiler: SQLCompiler, named: Mapping[str, Any]) -> list[str]:
    return [compiler.process(each, **named) for each in element.clauses]


@compiles(_Among, "sqlite")
def _(element: _Among, compiler: SQLCompiler, **named: Any) -> str:
    column, given = _parts(element, compiler, named)
    return f"{column} IN (SELECT value FROM json_each({given}))"


@compiles(_Among, "postgresql")
def _(element: _Among, compiler: SQLCompiler, **named: Any) -> str:
    column, given = _parts(element, compiler, named)
    return f"{column} = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST({given} AS jsonb))))"


@compiles(_PairAmong, "sqlite")
def _(element: _PairAmong, compiler: SQLCompiler, **named: Any) -> str:
    one, other, given = _parts(element, compiler, named)
    return f"({one}, {other}) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each({given}))"


@compiles(_PairAmong, "postgresql")
def _(element: _PairAmong, compiler: SQLCompiler, **named: Any) -> str:
    one, other, given = _parts(element, compiler, named)
    return f"({one}, {other}) IN (SELECT pair ->> 0, pair ->> 1 FROM jsonb_array_elements(CAST({given} AS jsonb)) AS pair)"


def listed(items: Iterable[object]) -> str:
    """A list as these statements take it."""
    return dumps(list(items), ensure_ascii=False)


def _bind(name: str) -> BindParameter[Any]:
    return bindparam(name)


def among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Whether a text column is one of the JSON list that is bound under a name."""
    return _Among(column, _bind(name))


def _all_of(table: Table) -> dict[str, Any]:
    return {column.name: _bind(column.name) for column in table.columns}


# ------------------------------------------------------------------------------------------------------------- who writes

#: Held by whoever writes until its transaction ends; the schema's version comes with it.
HOLD: Final = Statement(
    select(feed.c.ordinal, select(func.max(steps_taken.c.version)).scalar_subquery().label("version")).with_for_update(of=feed)
)
LATEST: Final = Statement(select(feed.c.ordinal))
ADVANCE: Final = Statement(update(feed).values(ordinal=_bind("ordinal")))

# ----------------------------------------------------------------------------------------------------------------- events

KNOWN: Final = Statement(select(events.c.event_id, events.c.session_id, events.c.payload).where(_Among(events.c.event_id, _bind("ids"))))
PUT_EVENT: Final = Statement(insert(events).values(_all_of(events)))
PUT_CONFLICT: Final = Statement(postgresql.insert(event_conflicts).values(_all_of(event_conflicts)).on_conflict_do_nothing())
NAMES: Final = Statement(
    select(trace_names.c.trace, func.min(trace_names.c.session_id).label("session_id"))
    .where(_Among(trace_names.c.trace, _bind("traces")))
    .group_by(trace_names.c.trace)
)
PUT_NAME: Final = Statement(postgresql.insert(trace_names).values(_all_of(trace_names)).on_conflict_do_nothing())

_UNNAMED: Final = and_(events.c.own_session.is_(None), events.c.trace.is_not(None))
#: The events of traces that go where their trace goes.
FOLLOWERS: Final = Statement(select(events).where(_UNNAMED, _Among(events.c.trace, _bind("traces"))), large=True)
MOVE: Final = Statement(update(events).values(session_id=_bind("session")).where(_UNNAMED, events.c.trace == _bind("moved")))

_IN_SESSION: Final = events.c.session_id == _bind("session")
_IN_ORDER: Final = (events.c.when_ns, events.c.ordinal)
_BEHIND: Final = tuple_(*_IN_ORDER) > tuple_(_bind("when_ns"), _bind("ordinal"))
#: One session's events from a place on, in its order.
OF_SESSION: Final = Statement(select(events).where(_IN_SESSION, _BEHIND).order_by(*_IN_ORDER).limit(_bind("limit")), large=True)
_RECEIVED_AFTER: Final = select(events).where(events.c.ordinal > _bind("after"))
TAIL: Final = Statement(_RECEIVED_AFTER.order_by(events.c.ordinal).limit(_bind("limit")), large=True)
TAIL_OF_SESSION: Final = Statement(_RECEIVED_AFTER.where(_IN_SESSION).order_by(events.c.ordinal).limit(_bind("limit")), large=True)

_CONFLICTS: Final = event_conflicts.join(events, event_conflicts.c.event_id == events.c.event_id)
CONFLICTS: Final = Statement(
    select(event_conflicts).select_from(_CONFLICTS).where(_IN_SESSION).order_by(event_conflicts.c.received_ns, event_conflicts.c.digest),
    large=True,
)
CONFLICT_COUNT: Final = Statement(select(func.count().label("conflicts")).select_from(_CONFLICTS).where(_IN_SESSION))

# --------------------------------------------------------------------------------------------------------------- sessions


def _upsert(table: Table, *key: str) -> Statement:
    """A row in the place of the one with its key, if there is one."""
    put = postgresql.insert(table).values(_all_of(table))
    changed = {column.name: put.excluded[column.name] for column in table.columns if column.name not in key}
    return Statement(put.on_conflict_do_update(index_elements=list(key), set_=changed))


SESSIONS_OF: Final = Statement(select(sessions).where(_Among(sessions.c.session_id, _bind("sessions"))))
PUT_SESSION: Final = _upsert(sessions, "session_id")
KEYS_OF: Final = Statement(select(session_keys).where(_PairAmong(session_keys.c.session_id, session_keys.c.key, _bind("pairs"))))
PUT_KEY: Final = _upsert(session_keys, "session_id", "key")
PUT_TAG: Final = Statement(postgresql.insert(session_tags).values(_all_of(session_tags)).on_conflict_do_nothing())
PUT_CHECKPOINT: Final = Statement(postgresql.insert(session_checkpoints).values(_all_of(session_checkpoints)).on_conflict_do_nothing())
EDITED: Final = Statement(
    select(session_checkpoints)
    .where(session_checkpoints.c.digest == _bind("digest"))
    .order_by(session_checkpoints.c.session_id, session_checkpoints.c.side)
)

#: Takes out what a session derives from its events.
UNFOLD: Final = tuple(
    Statement(delete(table).where(table.c.session_id == _bind("session")))
    for table in (sessions, session_keys, session_tags, session_checkpoints)
)
#: Sessions that an older fold made, and how many there are.
OLDER: Final = Statement(select(sessions.c.session_id).where(sessions.c.fold_version < _bind("version")).limit(_bind("limit")))
OLDER_COUNT: Final = Statement(select(func.count().label("left")).where(sessions.c.fold_version < _bind("version")))


def _begins(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """A text from ``first`` up to, and without, ``beyond``."""
    return and_(column >= _bind("first"), column < _bind("beyond"))


def _traces(asked: ColumnElement[bool]) -> Statement:
    return Statement(select(trace_names.c.trace).where(asked).distinct().order_by(trace_names.c.trace).limit(_bind("limit")))


BEGINNING_SO: Final = Statement(
    select(sessions.c.session_id).where(_begins(sessions.c.session_id)).order_by(sessions.c.session_id).limit(_bind("limit"))
)
#: Traces that name a session of this id, or one whose id begins so, or that begin so themselves.
NAMED_BY: Final = _traces(trace_names.c.session_id == _bind("session"))
NAMED_SO: Final = _traces(_begins(trace_names.c.session_id))
TRACES_SO: Final = _traces(_begins(trace_names.c.trace))

# --------------------------------------------------------------------------------------------------------------- retention

_TAKEN: Final = and_(_IN_SESSION, tuple_(*_IN_ORDER) <= tuple_(_bind("until_ns"), _bind("until_ordinal")))
#: Takes out a session's events up to a place, and what is in conflict with them.
FORGET_EVENTS: Final = (
    Statement(delete(event_conflicts).where(event_conflicts.c.event_id.in_(select(events.c.event_id).where(_TAKEN)))),
    Statement(delete(events).where(_TAKEN)),
)
#: Takes out everything else that is kept of a session.
FORGET_REST: Final = (
    *(Statement(delete(table).where(table.c.session_id == _bind("session"))) for table in (trace_names, sink_sessions, sink_aside)),
    *UNFOLD,
)
#: Has a session folded anew by whoever comes next.
STALE: Final = Statement(update(sessions).where(sessions.c.session_id == _bind("session")).values(fold_version=0))

# --------------------------------------------------------------------------------------------------------------- searching


@final
@dataclass(frozen=True, slots=True)
class Index:
    """How a database's index for searching is written and asked. A row's words stand in one text, a blank between any two."""

    put: Statement
    take_out: Statement
    find: Statement
    #: Whether a word is asked for in quotes.
    quoted: bool
    #: Gives every entry, the number of an event and one of its words, once ``looking`` was run.
    entries: str
    looking: tuple[str, ...] = ()

    def asked(self, words: Sequence[str]) -> str:
        """Words as the index is asked for all of them."""
        return " ".join(f'"{word}"' for word in words) if self.quoted else " ".join(words)


INDEX: Final[Mapping[str, Index]] = {
    "sqlite": Index(
        Statement(text("INSERT INTO search (rowid, words) VALUES (:ordinal, :words)")),
        # The words are said once more: an index that keeps no texts finds its entries by them alone.
        Statement(text("INSERT INTO search (search, rowid, words) VALUES ('delete', :ordinal, :words)")),
        Statement(
            text(
                "SELECT events.* FROM search JOIN events ON events.ordinal = search.rowid "
                "WHERE search MATCH :words AND search.rowid < :before ORDER BY search.rowid DESC LIMIT :limit"
            ),
            large=True,
        ),
        quoted=True,
        entries="SELECT doc, term FROM temp.search_entries",
        looking=("CREATE VIRTUAL TABLE IF NOT EXISTS temp.search_entries USING fts5vocab('main', 'search', 'instance')",),
    ),
    "postgresql": Index(
        Statement(text("INSERT INTO search (ordinal, words) VALUES (:ordinal, string_to_array(:words, ' '))")),
        Statement(text("DELETE FROM search WHERE ordinal = :ordinal")),
        Statement(
            text(
                "SELECT events.* FROM search JOIN events ON events.ordinal = search.ordinal "
                "WHERE search.words @> string_to_array(:words, ' ') AND search.ordinal < :before ORDER BY search.ordinal DESC LIMIT :limit"
            ),
            large=True,
        ),
        quoted=False,
        entries="SELECT ordinal, unnest(words) FROM search",
    ),
}
