"""The tables of the ledger and of the observations, for every kind of database.

Rules kept here:

1. Append-only: on every table of recorded things, triggers refuse UPDATE, DELETE and an INSERT that would replace a row. ``agenda`` alone
   is derived from them and changes.
2. A slot, an attempt's nonce, and a predecessor are each used once, by unique indices: a mistake above cannot commit a double.
3. A run's version is the number of its rows in ``facts``; nothing stores it to be changed. Every control fact has one row there, whose
   primary key (run, version) makes two writers of the same version collide.
4. Derived columns (``run_id``, ``work_digest``, ``slot``) exist for joining and excluding; the loader derives each again at every read.
5. Free text is kept as ASCII JSON, so that any text of an operating system (NUL, stray bytes) survives in any database.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.schema import CreateIndex, CreateTable

#: The version of the schema that this program reads and writes.
SCHEMA_VERSION: Final = 2
#: Marks an SQLite file as ours: "CMRK".
APPLICATION_ID: Final = 0x434D524B

_Count = BigInteger().with_variant(Integer, "sqlite")


def _hex(name: str, digits: int) -> CheckConstraint:
    return CheckConstraint(f"length({name}) = {digits}", name=f"{name}_has_{digits}_digits")


def _versions(metadata: MetaData) -> Table:
    return Table(
        "schema_versions",
        metadata,
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("applied_ms", _Count, nullable=False),
        sqlite_strict=True,
    )


LEDGER: Final = MetaData()

ledger_versions: Final = _versions(LEDGER)

runs: Final = Table(
    "runs",
    LEDGER,
    Column("run_id", Text, primary_key=True),
    Column("requester", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("work_digest", Text, nullable=False, index=True),
    Column("requirements", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("recipe_name", Text, nullable=False),
    Column("sources", Text, nullable=False),
    Column("trainer", Text, nullable=False),
    Column("argv", Text, nullable=False),
    Column("cwd", Text, nullable=False),
    Column("env", Text, nullable=False),
    Column("launcher", Text, nullable=False),
    Column("receipts", Text, nullable=False),
    Column("created_ms", _Count, nullable=False),
    UniqueConstraint("requester", "request"),
    _hex("run_id", 32),
    _hex("work_digest", 64),
    sqlite_strict=True,
)

facts: Final = Table(
    "facts",
    LEDGER,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("version", _Count, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("recorded_ms", _Count, nullable=False),
    CheckConstraint("version >= 1", name="versions_begin_at_1"),
    CheckConstraint("kind IN ('claim', 'intent', 'outcome', 'cancellation', 'abandonment', 'adjudication')", name="kind_is_known"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)


def _fact_key() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", "version"], ["facts.run_id", "facts.version"])


def _of_claim(*columns: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", *columns], ["claims.run_id", "claims.nonce"])


claims: Final = Table(
    "claims",
    LEDGER,
    Column("run_id", Text, primary_key=True),
    Column("version", _Count, primary_key=True, autoincrement=False),
    Column("slot", Text, nullable=False),
    Column("nonce", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("predecessor", Text),
    Column("said_by", Text),
    UniqueConstraint("slot"),
    UniqueConstraint("nonce"),
    UniqueConstraint("run_id", "nonce"),
    _fact_key(),
    _of_claim("predecessor"),
    _hex("slot", 64),
    _hex("nonce", 32),
    sqlite_strict=True,
)
Index(
    "one_successor",
    claims.c.predecessor,
    unique=True,
    sqlite_where=claims.c.predecessor.is_not(None),
    postgresql_where=claims.c.predecessor.is_not(None),
)

intents: Final = Table(
    "intents",
    LEDGER,
    Column("run_id", Text, primary_key=True),
    Column("version", _Count, primary_key=True, autoincrement=False),
    Column("nonce", Text, nullable=False),
    Column("launcher", Text, nullable=False),
    Column("host", Text, nullable=False),
    UniqueConstraint("run_id", "nonce"),
    _fact_key(),
    _of_claim("nonce"),
    sqlite_strict=True,
)

outcomes: Final = Table(
    "outcomes",
    LEDGER,
    Column("run_id", Text, primary_key=True),
    Column("version", _Count, primary_key=True, autoincrement=False),
    Column("nonce", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("detail", Text, nullable=False),
    UniqueConstraint("nonce", "result"),
    _fact_key(),
    ForeignKeyConstraint(["run_id", "nonce"], ["intents.run_id", "intents.nonce"]),
    CheckConstraint("result IN ('dispatched', 'refused', 'unknown')", name="result_is_known"),
    sqlite_strict=True,
)

cancellations: Final = Table(
    "cancellations",
    LEDGER,
    Column("run_id", Text, primary_key=True),
    Column("version", _Count, nullable=False),
    Column("said_by", Text, nullable=False),
    _fact_key(),
    sqlite_strict=True,
)

abandonments: Final = Table(
    "abandonments",
    LEDGER,
    Column("run_id", Text, primary_key=True),
    Column("version", _Count, primary_key=True, autoincrement=False),
    Column("nonce", Text, nullable=False),
    Column("said_by", Text, nullable=False),
    UniqueConstraint("nonce"),
    _fact_key(),
    _of_claim("nonce"),
    sqlite_strict=True,
)

adjudications: Final = Table(
    "adjudications",
    LEDGER,
    Column("run_id", Text, primary_key=True),
    Column("version", _Count, primary_key=True, autoincrement=False),
    Column("nonce", Text, nullable=False),
    Column("ruling", Text, nullable=False),
    Column("source", Text),
    Column("blockers", Text, nullable=False),
    Column("said_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    _fact_key(),
    _of_claim("nonce"),
    CheckConstraint("ruling IN ('set_aside', 'believe_source')", name="ruling_is_known"),
    CheckConstraint("(ruling = 'believe_source') = (source IS NOT NULL)", name="a_source_is_what_is_believed"),
    sqlite_strict=True,
)

#: The table of each kind of control fact.
FACT_TABLES: Final = {
    "claim": claims,
    "intent": intents,
    "outcome": outcomes,
    "cancellation": cancellations,
    "abandonment": abandonments,
    "adjudication": adjudications,
}

#: A row for each run that may be open, and when it is to be looked at next. Derived from what is recorded, and the one table that changes.
agenda: Final = Table(
    "agenda",
    LEDGER,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("due_ms", _Count, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
Index("agenda_by_time", agenda.c.due_ms, agenda.c.run_id)

#: The tables whose rows are changed and taken out again.
DERIVED: Final = frozenset({agenda})

OBSERVATIONS: Final = MetaData()

observation_versions: Final = _versions(OBSERVATIONS)

sweeps: Final = Table(
    "sweeps",
    OBSERVATIONS,
    Column("ordinal", _Count, primary_key=True),
    Column("sweep_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("started_ms", _Count, nullable=False),
    Column("ended_ms", _Count, nullable=False),
    Column("digest", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),
    UniqueConstraint("sweep_id"),
    _hex("digest", 64),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)
Index("sweeps_of_run", sweeps.c.run_id, sweeps.c.ordinal)

verdicts: Final = Table(
    "verdicts",
    OBSERVATIONS,
    Column("ordinal", _Count, primary_key=True),
    Column("sweep_id", Text, ForeignKey("sweeps.sweep_id"), nullable=False, index=True),
    Column("run_id", Text, nullable=False),
    Column("arm", Text, nullable=False),
    Column("closed", Integer, nullable=False),
    Column("version", _Count, nullable=False),
    Column("text", LargeBinary, nullable=False),
    CheckConstraint("closed IN (0, 1)", name="closed_is_a_truth_value"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)
Index("verdicts_of_run", verdicts.c.run_id, verdicts.c.ordinal)


def _unique_keys(table: Table) -> tuple[tuple[str, ...], ...]:
    """Every set of columns of which a table holds a combination once."""
    keys = [tuple(column.name for column in table.primary_key.columns)]
    keys += sorted(tuple(c.name for c in unique.columns) for unique in table.constraints if isinstance(unique, UniqueConstraint))
    keys += sorted(tuple(c.name for c in index.columns) for index in table.indexes if index.unique)
    return tuple(keys)


def _sqlite_triggers(table: Table) -> tuple[str, ...]:
    """What keeps a table append-only in SQLite. INSERT OR REPLACE deletes past a DELETE trigger, so it has one of its own."""
    name = table.name
    refuse = f"BEGIN SELECT RAISE(ABORT, 'countermark: {name} is append-only'); END"
    same = " OR ".join("(" + " AND ".join(f"{c} = NEW.{c}" for c in key) + ")" for key in _unique_keys(table))
    return (
        f"CREATE TRIGGER {name}_never_updated BEFORE UPDATE ON {name} {refuse}",
        f"CREATE TRIGGER {name}_never_deleted BEFORE DELETE ON {name} {refuse}",
        f"CREATE TRIGGER {name}_never_replaced BEFORE INSERT ON {name} WHEN EXISTS (SELECT 1 FROM {name} WHERE {same}) {refuse}",
    )


def sqlite_script(metadata: MetaData) -> tuple[str, ...]:
    """Every statement that makes the tables, indices and triggers of ``metadata`` in SQLite, in order."""
    from sqlalchemy.dialects import sqlite

    dialect = sqlite.dialect()
    statements: list[str] = []
    for table in metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        statements.extend(
            str(CreateIndex(index).compile(dialect=dialect)) for index in sorted(table.indexes, key=lambda each: str(each.name))
        )
        statements.extend(() if table in DERIVED else _sqlite_triggers(table))
    return tuple(statements)
