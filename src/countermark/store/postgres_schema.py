"""The tables of ``schema`` as PostgreSQL has them, in one schema of their own.

Rules kept here:

1. The tables, columns and keys are those of ``schema``: nothing is listed twice. What differs follows from the kind of database alone.
2. The Work key's digest is computed by the database from the material, so no program can record another one beside it; the loader derives
   it again all the same, from the manifest.
3. Append-only: triggers refuse UPDATE, DELETE and TRUNCATE of every table of recorded things, also of statements that would touch no row.
4. Texts are compared byte by byte, whatever the database's language.
"""

from typing import Final

from sqlalchemy import Column, Computed, Dialect, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from countermark.store.schema import DERIVED, LEDGER, OBSERVATIONS

#: The schema that holds everything of ours.
SCHEMA: Final = "countermark"
#: Who makes or migrates a store holds this advisory lock of the database: "CMRK" twice.
MAKING: Final = 0x434D524B434D524B


def as_in_postgresql(*parts: MetaData) -> MetaData:
    """The tables of ``parts`` together, with what PostgreSQL can do and SQLite cannot."""
    whole = MetaData()
    for part in parts:
        for table in part.sorted_tables:
            if table.name not in whole.tables:
                _adapt(table.to_metadata(whole))
    return whole


def _adapt(table: Table) -> None:
    for column in table.columns:
        if isinstance(column.type, Text):
            column.type = postgresql.TEXT(collation="C")
    if table.name == "runs":
        computed = Computed("encode(sha256(material), 'hex')", persisted=True)
        table.append_column(Column("work_digest", postgresql.TEXT(collation="C"), computed, nullable=False), replace_existing=True)
        table.append_column(Column("material", LargeBinary, nullable=False))


TABLES: Final = as_in_postgresql(LEDGER, OBSERVATIONS)

_REFUSE: Final = """
CREATE FUNCTION countermark_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'countermark: % is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation'; END $$
"""


def trigger_of(name: str) -> str:
    """What keeps a table append-only."""
    when = f"BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} FOR EACH STATEMENT"
    return f"CREATE TRIGGER {name}_append_only {when} EXECUTE FUNCTION countermark_append_only()"


def postgres_script() -> tuple[str, ...]:
    """Every statement that makes the tables, indices and triggers, in order, in the schema that the search path names."""
    dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    derived = {table.name for table in DERIVED}
    statements = [_REFUSE.strip()]
    for table in TABLES.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        statements.extend(
            str(CreateIndex(index).compile(dialect=dialect)) for index in sorted(table.indexes, key=lambda each: str(each.name))
        )
        if table.name not in derived:
            statements.append(trigger_of(table.name))
    return tuple(statements)
