"""Sessions in a schema of their own in the ledger's database.

Rules kept here:

1. The schema is not the ledger's: whichever release looks that one over finds nothing in it that it does not know.
2. The tables come step by step, each step and its row by one commit. Who takes steps holds a lock of the database from the first to the
   last; who comes second finds them taken.
3. A commit is answered when it is on the server's disk; where the server would answer before, the store refuses.
"""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Self, final

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from countermark.store.failures import StoreError, StoreMissing, StoreOfAnotherVersion
from countermark.store.interface import Finding
from countermark.store.postgres import WAIT_S, PostgresDatabase, is_ours, read_url
from countermark.store.postgres_errors import translated
from countermark.store.postgres_schema import MAKING
from countermark.store.sessions import checks
from countermark.store.sessions.base import SqlSessions
from countermark.store.sessions.schema import SESSIONS_VERSION
from countermark.store.sessions.steps import BEGINNING, Step, spelled, take_missing, taken_in, version_of
from countermark.store.transaction import itself

#: The schema that holds sessions, and nothing else.
SESSIONS_SCHEMA: Final = "countermark_sessions"
#: Who takes steps holds this advisory lock of the database.
_TAKING: Final = MAKING + 1


@final
class PostgresSessions(PostgresDatabase, SqlSessions):
    """Sessions in a database. Threads share it, and a forked child may go on with it."""

    def __init__(self, url: URL, wait_s: float) -> None:
        super().__init__(url, wait_s, SESSIONS_SCHEMA)

    @classmethod
    def open(cls, address: str, create: bool, wait_s: float = WAIT_S, between: Callable[[Step], object] = lambda step: None) -> Self:
        """The sessions at an address, made first, or brought to this release's schema, where ``create`` is true. Raises ``StoreError``."""
        store = cls(read_url(address), wait_s)
        try:
            store._recognize(create, between)
        except BaseException:
            store.close()
            raise
        return store

    def _recognize(self, create: bool, between: Callable[[Step], object]) -> int:
        """How many steps were taken now; refused where the tables are of another version and may not be brought to this one."""
        with self._transaction(itself) as connection:
            version = version_of(taken_in(connection), self.location) if is_ours(connection, SESSIONS_SCHEMA) else None
        if version == SESSIONS_VERSION:
            return 0
        if not create:
            missing = StoreMissing(self.location) if version is None else StoreOfAnotherVersion(self.location, version, SESSIONS_VERSION)
            raise StoreError(missing)
        with self._taking():
            with self._transaction(itself) as connection:
                if not is_ours(connection, SESSIONS_SCHEMA):
                    connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SESSIONS_SCHEMA}")
                    connection.exec_driver_sql(spelled(BEGINNING, "postgresql"))
            return take_missing(self._planning, self.location, time.time_ns() // 1_000_000, between)

    @contextmanager
    def _taking(self) -> Generator[None, None, None]:
        """Nobody else takes steps meanwhile. The lock ends with the connection that took it, whatever becomes of us."""
        with translated(self._url, self._wait_s):
            holder = self._engine.connect()
            try:
                holder.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _TAKING})
                holder.commit()
                yield
            finally:
                holder.invalidate()
                holder.close()

    def _changing(self) -> AbstractContextManager[Connection]:
        return self._planning()

    def check(self) -> tuple[Finding, ...]:
        with self._reading() as connection:
            found = tuple(checks.row_findings(connection, self.location))
        with self._transaction(itself) as connection:
            schema = tuple(checks.schema_findings(connection, self.location, SESSIONS_SCHEMA))
            connection.rollback()
        return (*schema, *found)
