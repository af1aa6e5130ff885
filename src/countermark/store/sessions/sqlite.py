"""Sessions in a file of their own beside a folder's ledger: what comes in never waits for the ledger's turn, nor the ledger for it.

Rules kept here:

1. Whoever writes waits for its turn at a ticket of the file's own, so that no process starves at the database's lock; readers never wait.
2. The file is made under a temporary name and renamed; its tables come step by step, each step and its row by one commit. One process takes
   steps at a time; who comes second finds them taken.
3. Every commit is synced before it is answered.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Self, final

from sqlalchemy import Connection

from countermark.files import durable
from countermark.store import creation
from countermark.store.failures import SqliteWithoutSearch, StoreError, StoreIncomplete, StoreMissing, StoreOfAnotherVersion
from countermark.store.interface import Finding
from countermark.store.sessions import checks
from countermark.store.sessions.base import SqlSessions
from countermark.store.sessions.schema import SESSIONS_VERSION
from countermark.store.sessions.steps import BEGINNING, Step, spelled, take_missing, taken_in, version_of
from countermark.store.sqlite import WAIT_S, SqliteFile, Turn, refuse_network
from countermark.store.sqlite_errors import translated
from countermark.store.ticket import open_ticket
from countermark.store.transaction import itself

SESSIONS_FILE: Final = "sessions.sqlite"
SESSIONS_TICKET: Final = "sessions.lock"
#: The extension of SQLite by which is searched.
_SEARCHES: Final = "fts5"
#: The log grows to 16 MiB before it is taken into the file; pages that were read are kept, 16 MiB of them for each connection.
_SETTINGS: Final = ("wal_autocheckpoint=4000", "cache_size=-16384", "temp_store=MEMORY")


@final
class SqliteSessions(SqlSessions):
    """Sessions in a folder. Threads share it; a forked child must open its own."""

    def __init__(self, folder: Path, file: SqliteFile, wait_s: float) -> None:
        self.folder = folder
        self._ticket = folder / SESSIONS_TICKET
        self._file = file
        self._wait_s = wait_s
        self._process = os.getpid()

    @classmethod
    def open(cls, folder: Path, create: bool, wait_s: float = WAIT_S, between: Callable[[Step], object] = lambda step: None) -> Self:
        """The sessions in ``folder``, made first, or brought to this release's schema, where ``create`` is true. Raises ``StoreError``."""
        folder = folder.absolute()
        path = folder / SESSIONS_FILE
        with translated(folder, wait_s):
            refuse_network(folder)
            if not path.exists():
                if not create:
                    raise StoreError(StoreMissing(str(path)))
                durable.make_folder(folder)
                with Turn(folder / SESSIONS_TICKET, wait_s):
                    _make(path)
            os.close(open_ticket(folder / SESSIONS_TICKET))
            store = cls(folder, SqliteFile(path, "FULL", wait_s, version=None, settings=_SETTINGS), wait_s)
            try:
                store._recognize(create, between)
            except BaseException:
                store.close()
                raise
        return store

    def _recognize(self, create: bool, between: Callable[[Step], object]) -> int:
        """How many steps were taken now; refused where the tables are of another version and may not be brought to this one."""
        where = str(self._file.path)
        with self._reading() as connection:
            if connection.exec_driver_sql(f"SELECT 1 FROM pragma_module_list WHERE name = '{_SEARCHES}'").first() is None:
                raise StoreError(SqliteWithoutSearch(where, sqlite3.sqlite_version))
            version = version_of(taken_in(connection), where)
        if version == SESSIONS_VERSION:
            return 0
        if not create:
            raise StoreError(StoreOfAnotherVersion(where, version, SESSIONS_VERSION))
        with Turn(self._ticket, self._wait_s):
            return take_missing(lambda: self._file.transaction(itself, "BEGIN IMMEDIATE"), where, time.time_ns() // 1_000_000, between)

    @property
    def location(self) -> str:
        return f"sqlite:///{self.folder}"

    def _own(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("an SQLite store is not used across a fork: the child opens its own")

    def _reading(self) -> AbstractContextManager[Connection]:
        self._own()
        return self._file.transaction(itself, "BEGIN")

    @contextmanager
    def _changing(self) -> Generator[Connection, None, None]:
        self._own()
        with Turn(self._ticket, self._wait_s), self._file.transaction(itself, "BEGIN IMMEDIATE") as connection:
            yield connection

    def check(self) -> tuple[Finding, ...]:
        with self._reading() as connection:
            return (*checks.file_findings(connection, self._file.path), *checks.row_findings(connection, str(self._file.path)))

    def close(self) -> None:
        self._file.close()


def _make(path: Path) -> None:
    """The file, with nothing in it but the table of its steps; the caller holds the ticket. A log without its file is a loss."""
    if path.exists():
        return
    if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
        raise StoreError(StoreIncomplete(str(path.parent), path.name))
    creation.make_database(path, [spelled(BEGINNING, "sqlite")])
