"""Changing what a store holds past the store, as somebody with the database's own tools would, on every kind of it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from countermark.store import Store
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.opening import folder_of
from countermark.store.postgres_schema import SCHEMA
from countermark.store.schema import OBSERVATIONS

_OBSERVED: Final = frozenset(table.name for table in OBSERVATIONS.sorted_tables) - {"schema_versions"}


class Past:
    """Runs statements past the store of an address: triggers out of the way, references unchecked."""

    def __init__(self, store: Store, address: str) -> None:
        self._folder = folder_of(store.location)
        self._address = address

    @property
    def in_sqlite(self) -> bool:
        return self._folder is not None

    def change(self, *statements: str) -> None:
        """Statements about one table each, one by one, each committed."""
        for statement in statements:
            if self._folder is None:
                self._change_database(statement)
            else:
                self._change_file(self._folder, statement)

    def _change_file(self, folder: Path, statement: str) -> None:
        name = OBSERVATIONS_FILE if _OBSERVED & set(statement.split()) else LEDGER_FILE
        with closing(sqlite3.connect(folder / name, isolation_level=None)) as raw:
            raw.execute("PRAGMA ignore_check_constraints=ON")
            triggers = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for trigger, _ in triggers:
                raw.execute(f"DROP TRIGGER {trigger}")
            raw.execute(statement)
            for _, made in triggers:
                raw.execute(made)

    def _change_database(self, statement: str) -> None:
        """A superuser's session that calls itself a replica: no trigger of ours fires, and no reference is looked at. A constraint that is
        in the way is put aside, and put back for what comes later."""
        with psycopg.connect(self._address, autocommit=True) as raw:
            raw.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(SCHEMA)))
            raw.execute("SET session_replication_role = replica")
            aside: list[str] = []
            while True:
                try:
                    raw.execute(statement.encode())
                    break
                except psycopg.errors.CheckViolation as error:
                    table, name = error.diag.table_name or "", error.diag.constraint_name or ""
                told = raw.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [name]).fetchone()
                assert told is not None
                raw.execute(f'ALTER TABLE "{table}" DROP CONSTRAINT "{name}"'.encode())
                aside.append(f'ALTER TABLE "{table}" ADD CONSTRAINT "{name}" {told[0]} NOT VALID')
            for again in aside:
                raw.execute(again.encode())
