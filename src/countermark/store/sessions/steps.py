"""The steps that make the tables of sessions, version by version.

Rules kept here:

1. A step that was released never changes; a version that wants something else has steps of its own.
2. A step and the row that says it was taken are one commit. It does no harm taken again, so that a store of another kind, which cannot
   commit both as one, may take the same.
3. What was taken is the beginning of the steps that there are. A store that names more is of a later release, and is left as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, final

from sqlalchemy import Connection, insert, select

from countermark.store.failures import StoreDamaged, StoreError, StoreOfAnotherVersion
from countermark.store.sessions.schema import SESSIONS_VERSION, steps_taken

#: In what words two databases differ where tables are made.
_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "sqlite": {"text": "TEXT", "count": "INTEGER", "double": "REAL", "kept": " STRICT", "clustered": " STRICT, WITHOUT ROWID"},
    "postgresql": {"text": 'TEXT COLLATE "C"', "count": "BIGINT", "double": "DOUBLE PRECISION", "kept": "", "clustered": ""},
}

BEGINNING: Final = """
CREATE TABLE IF NOT EXISTS schema_versions (
    version INTEGER NOT NULL, step INTEGER NOT NULL, what {text} NOT NULL, applied_ms {count} NOT NULL, PRIMARY KEY (version, step)){kept}
"""


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One step of a version: what it makes, by statements for every database and by those of each."""

    version: int
    number: int
    what: str
    common: tuple[str, ...] = ()
    own: Mapping[str, tuple[str, ...]] | None = None

    def statements(self, dialect: str) -> tuple[str, ...]:
        """The statements for a kind of database, in order."""
        return (*(spelled(each, dialect) for each in self.common), *(self.own[dialect] if self.own else ()))


def spelled(statement: str, dialect: str) -> str:
    """A statement in the words of a kind of database."""
    return " ".join(statement.format_map(_WORDS[dialect]).split())


_REFUSE: Final = """
CREATE OR REPLACE FUNCTION countermark_not_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'countermark: % is not changed', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation'; END $$
""".strip()


def _guard(table: str, columns: str) -> Mapping[str, tuple[str, ...]]:
    """What keeps the columns of a table's rows from being changed."""
    trigger = f"{table}_never_changed BEFORE UPDATE OF {columns} ON {table}"
    refuse = f"BEGIN SELECT RAISE(ABORT, 'countermark: {table} is not changed'); END"
    return {
        "sqlite": (f"CREATE TRIGGER IF NOT EXISTS {trigger} {refuse}",),
        "postgresql": (_REFUSE, f"CREATE OR REPLACE TRIGGER {trigger} FOR EACH STATEMENT EXECUTE FUNCTION countermark_not_changed()"),
    }


_EVENT_COLUMNS: Final = (
    "ordinal, event_id, when_ns, type, name, own_session, trace, span, parent, source, start_ns, end_ns, received_ns, forwarded, payload, "
    "sanitized"
)

#: Which events are sent on. Beside weight edits that is what holds one: a payload has one spelling, so that a text tells them apart.
TO_SEND: Final[Mapping[str, str]] = {
    dialect: f"type = 'notification' AND forwarded = 0 AND {position}(payload, '\"kind\":\"weights.edit\"') > 0"
    for dialect, position in (("sqlite", "instr"), ("postgresql", "strpos"))
}

STEPS: Final = (
    Step(
        1,
        1,
        "the number of the last event",
        (
            "CREATE TABLE IF NOT EXISTS feed (one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1), ordinal {count} NOT NULL){kept}",
            "INSERT INTO feed (one, ordinal) VALUES (1, 0) ON CONFLICT DO NOTHING",
        ),
    ),
    Step(
        1,
        2,
        "events",
        (
            """
            CREATE TABLE IF NOT EXISTS events (
                ordinal {count} NOT NULL PRIMARY KEY, event_id {text} NOT NULL UNIQUE, session_id {text} NOT NULL, when_ns {count} NOT NULL,
                type {text} NOT NULL, name {text} NOT NULL, own_session {text}, trace {text}, span {text}, parent {text}, source {text},
                start_ns {count} NOT NULL, end_ns {count} NOT NULL, received_ns {count} NOT NULL, forwarded INTEGER NOT NULL,
                payload {text} NOT NULL, sanitized {text} NOT NULL){kept}
            """,
            "CREATE INDEX IF NOT EXISTS events_of_session ON events (session_id, when_ns, ordinal)",
            "CREATE INDEX IF NOT EXISTS events_of_trace ON events (trace) WHERE own_session IS NULL AND trace IS NOT NULL",
        ),
        _guard("events", _EVENT_COLUMNS),
    ),
    Step(
        1,
        3,
        "what traces name",
        (
            """
            CREATE TABLE IF NOT EXISTS trace_names (
                trace {text} NOT NULL, session_id {text} NOT NULL, PRIMARY KEY (trace, session_id)){clustered}
            """,
            "CREATE INDEX IF NOT EXISTS trace_names_of_session ON trace_names (session_id)",
        ),
    ),
    Step(
        1,
        4,
        "other payloads of known events",
        (
            """
            CREATE TABLE IF NOT EXISTS event_conflicts (
                event_id {text} NOT NULL, digest {text} NOT NULL, received_ns {count} NOT NULL, payload {text} NOT NULL,
                sanitized {text} NOT NULL, PRIMARY KEY (event_id, digest)){kept}
            """,
        ),
        _guard("event_conflicts", "event_id, digest, received_ns, payload, sanitized"),
    ),
    Step(
        1,
        5,
        "sessions",
        (
            """
            CREATE TABLE IF NOT EXISTS sessions (
                session_id {text} NOT NULL PRIMARY KEY, source {text} NOT NULL, started_ns {count} NOT NULL, ended_ns {count} NOT NULL,
                updated_ns {count} NOT NULL, said_end_ns {count} NOT NULL, closed INTEGER NOT NULL, events {count} NOT NULL,
                messages {count} NOT NULL, tools {count} NOT NULL, errors {count} NOT NULL, odd_times {count} NOT NULL,
                sanitized {count} NOT NULL, conflicts {count} NOT NULL, input_tokens {count} NOT NULL, output_tokens {count} NOT NULL,
                cost {double} NOT NULL, usage {text} NOT NULL, weight_edits {count} NOT NULL, weight_tensors {count} NOT NULL,
                weights_changed {text} NOT NULL, fold_version {count} NOT NULL){kept}
            """,
            "CREATE INDEX IF NOT EXISTS sessions_by_change ON sessions (updated_ns, session_id)",
            "CREATE INDEX IF NOT EXISTS sessions_by_fold ON sessions (fold_version, session_id)",
        ),
    ),
    Step(
        1,
        6,
        "what counts once, tags and checkpoints",
        (
            """
            CREATE TABLE IF NOT EXISTS session_keys (
                session_id {text} NOT NULL, key {text} NOT NULL, input_tokens {count} NOT NULL, output_tokens {count} NOT NULL,
                cost_pico {count} NOT NULL, PRIMARY KEY (session_id, key)){clustered}
            """,
            """
            CREATE TABLE IF NOT EXISTS session_tags (
                session_id {text} NOT NULL, tag {text} NOT NULL, PRIMARY KEY (session_id, tag)){clustered}
            """,
            "CREATE INDEX IF NOT EXISTS session_tags_by_tag ON session_tags (tag, session_id)",
            """
            CREATE TABLE IF NOT EXISTS session_checkpoints (
                session_id {text} NOT NULL, side {text} NOT NULL, digest {text} NOT NULL, PRIMARY KEY (session_id, side, digest)){clustered}
            """,
            "CREATE INDEX IF NOT EXISTS session_checkpoints_by_digest ON session_checkpoints (digest, side, session_id)",
        ),
    ),
    Step(
        1,
        7,
        "the index for searching",
        (),
        {
            # Words come as they are to be found: this tokenizer takes what is a letter or a digit or no ASCII, and changes nothing.
            "sqlite": (
                "CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5(words, content='', columnsize=0, detail=none, tokenize='ascii')",
            ),
            "postgresql": (
                'CREATE TABLE IF NOT EXISTS search (ordinal BIGINT NOT NULL PRIMARY KEY, words TEXT[] COLLATE "C" NOT NULL)',
                "CREATE INDEX IF NOT EXISTS search_by_word ON search USING gin (words)",
            ),
        },
    ),
    Step(
        1,
        8,
        "what is sent on to other places",
        (
            """
            CREATE TABLE IF NOT EXISTS sinks (
                sink {text} NOT NULL PRIMARY KEY, ordinal {count} NOT NULL, holder {text} NOT NULL, until_ns {count} NOT NULL,
                failed_ns {count} NOT NULL, why {text} NOT NULL){kept}
            """,
            """
            CREATE TABLE IF NOT EXISTS sink_sessions (
                sink {text} NOT NULL, sent_as {text} NOT NULL, session_id {text} NOT NULL, told INTEGER NOT NULL,
                PRIMARY KEY (sink, sent_as)){clustered}
            """,
            "CREATE INDEX IF NOT EXISTS sink_sessions_of_session ON sink_sessions (session_id)",
            """
            CREATE TABLE IF NOT EXISTS sink_aside (
                sink {text} NOT NULL, item {text} NOT NULL, session_id {text} NOT NULL, aside_ns {count} NOT NULL, why {text} NOT NULL,
                PRIMARY KEY (sink, item)){clustered}
            """,
            "CREATE INDEX IF NOT EXISTS sink_aside_of_session ON sink_aside (session_id)",
        ),
        {
            # SQLite asks an index that holds all that is wanted, where it would pass what was told of otherwise.
            "sqlite": (
                f"CREATE INDEX IF NOT EXISTS events_to_send ON events (ordinal) WHERE {TO_SEND['sqlite']}",
                "CREATE INDEX IF NOT EXISTS sink_sessions_untold ON sink_sessions (sink, told, sent_as, session_id)",
            ),
            "postgresql": (
                f"CREATE INDEX IF NOT EXISTS events_to_send ON events (ordinal) WHERE {TO_SEND['postgresql']}",
                "CREATE INDEX IF NOT EXISTS sink_sessions_untold ON sink_sessions (sink, told, sent_as)",
            ),
        },
    ),
)


def version_of(taken: Sequence[tuple[int, int]], where: str, steps: Sequence[Step] = STEPS) -> int:
    """The version of a store in which these steps were taken, 0 before the last step of the first. Raises ``StoreError`` where they are of
    a later release, or no beginning of ours."""
    ours = [(step.version, step.number) for step in steps]
    newest = max((version for version, _ in taken), default=0)
    if newest > SESSIONS_VERSION:
        raise StoreError(StoreOfAnotherVersion(where, newest, SESSIONS_VERSION))
    if list(taken) != ours[: len(taken)]:
        raise StoreError(StoreDamaged(where, "the steps by which it says to have been made are not those of any release"))
    left = [version for version, _ in ours[len(taken) :]]
    return min(left) - 1 if left else newest


def taken_in(connection: Connection) -> list[tuple[int, int]]:
    """The steps that were taken, in their order; the table of them is there."""
    rows = connection.execute(select(steps_taken.c.version, steps_taken.c.step).order_by(steps_taken.c.version, steps_taken.c.step))
    return [(int(version), int(step)) for version, step in rows]


def take(connection: Connection, step: Step, now_ms: int) -> None:
    """A step, in the caller's transaction, with the row that says so."""
    for statement in step.statements(connection.dialect.name):
        connection.exec_driver_sql(statement if connection.dialect.name == "sqlite" else statement.replace("%", "%%"))
    row = {"version": step.version, "step": step.number, "what": step.what, "applied_ms": now_ms}
    connection.execute(insert(steps_taken), row)


def take_missing(
    transaction: Callable[[], AbstractContextManager[Connection]],
    where: str,
    now_ms: int,
    between: Callable[[Step], object] = lambda step: None,
) -> int:
    """Take every step that is missing, each by a transaction of its own, while nobody else does; how many there were. ``between`` is told
    each step before it is taken. Raises ``StoreError``, also where the store is of a later release."""
    with transaction() as connection:
        taken = taken_in(connection)
    version_of(taken, where)
    missing = STEPS[len(taken) :]
    for step in missing:
        between(step)
        with transaction() as connection:
            take(connection, step, now_ms)
    return len(missing)
