"""The words in which a version's script is written: where it works, and what can be made there.

Rules kept here:

1. What these words make never changes: a version that wants a table guarded otherwise spells that out itself.
2. A table that SQLite cannot alter is made again under its own name: the old one steps aside, so that the text of the new one is what a
   store made afresh has, and references of other tables stay as they are.
"""

from collections.abc import Iterable
from typing import Any, Final, final

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import BigInteger, Column, Connection, Integer, Text, text
from sqlalchemy.dialects.postgresql import TEXT
from sqlalchemy.schema import SchemaItem

#: A text that is compared byte by byte, whatever the database's language.
WORDS: Final = Text().with_variant(TEXT(collation="C"), "postgresql")
#: A count, or milliseconds.
COUNT: Final = BigInteger().with_variant(Integer, "sqlite")

GUARD: Final = """
CREATE FUNCTION countermark_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'countermark: % is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation'; END $$
""".strip()


@final
class Place:
    """A part of a store, in the caller's transaction. ``schema``: the attached file of SQLite that the part lies in; None elsewhere, where
    the search path says it."""

    def __init__(self, connection: Connection, schema: str | None, now_ms: int) -> None:
        # Names without a schema are those of the part; texts of statements say it themselves.
        self._connection = connection.execution_options(schema_translate_map={} if schema is None else {None: schema})
        self._prefix = "" if schema is None else f"{schema}."
        self.now_ms: Final = now_ms
        self.in_sqlite: Final = connection.dialect.name == "sqlite"
        self.operations: Final = Operations(MigrationContext.configure(connection))

    def execute(self, statement: str, **values: object) -> None:
        """A statement as it stands, with named values."""
        if values:
            self._connection.execute(text(statement), values)
        else:
            self._connection.exec_driver_sql(statement.replace("%", "%%") if not self.in_sqlite else statement)

    def create(self, name: str, *items: SchemaItem, **options: Any) -> None:
        """A table; in SQLite its columns hold what their types say."""
        self.operations.create_table(name, *items, sqlite_strict=True, **options)

    def create_again(self, name: str, *items: SchemaItem, kept: Iterable[str], **options: Any) -> None:
        """The table made anew with its rows of the columns ``kept``. Its indices and triggers are gone."""
        columns, aside = ", ".join(kept), f"{name}_before"
        self.execute(f"ALTER TABLE {self._prefix}{name} RENAME TO {aside}")
        self.create(name, *items, **options)
        self.execute(f"INSERT INTO {self._prefix}{name} ({columns}) SELECT {columns} FROM {self._prefix}{aside}")
        self.execute(f"DROP TABLE {self._prefix}{aside}")

    def index(self, name: str, table: str, *columns: str, **options: Any) -> None:
        """An index."""
        self.operations.create_index(name, table, list(columns), **options)

    def guard(self, name: str, *keys: tuple[str, ...]) -> None:
        """Have a table append-only; ``keys`` are the sets of columns of which it holds a combination once."""
        if not self.in_sqlite:
            when = f"BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} FOR EACH STATEMENT"
            self.execute(f"CREATE TRIGGER {name}_append_only {when} EXECUTE FUNCTION countermark_append_only()")
            return
        refuse = f"BEGIN SELECT RAISE(ABORT, 'countermark: {name} is append-only'); END"
        same = " OR ".join("(" + " AND ".join(f"{each} = NEW.{each}" for each in key) + ")" for key in keys)
        create = f"CREATE TRIGGER {self._prefix}{name}_never"
        self.execute(f"{create}_updated BEFORE UPDATE ON {name} {refuse}")
        self.execute(f"{create}_deleted BEFORE DELETE ON {name} {refuse}")
        self.execute(f"{create}_replaced BEFORE INSERT ON {name} WHEN EXISTS (SELECT 1 FROM {name} WHERE {same}) {refuse}")

    def versions(self) -> None:
        """The table of the schema's versions: one row for each that the store has had here."""
        number = Column("version", Integer, primary_key=True, autoincrement=False)
        self.create("schema_versions", number, Column("applied_ms", COUNT, nullable=False))
        self.guard("schema_versions", ("version",))

    def stamp(self, version: int) -> None:
        """Say that the part has this version now."""
        row = f"INSERT INTO {self._prefix}schema_versions (version, applied_ms) VALUES (:version, :now)"
        self.execute(row, version=version, now=self.now_ms)
