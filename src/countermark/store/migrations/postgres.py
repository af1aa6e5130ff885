"""Migrating a store in a PostgreSQL database, in one transaction.

Rules kept here:

1. The advisory lock under which stores are made lets one migration at a time in; the tables are locked before they are looked at.
2. No other session of countermark is connected: one that recognized the old version would go on writing as that did. One that comes later
   waits for the tables and then sees the new version.
3. The store is compared with what its version's scripts make, before, and looked over as ``store check`` does it, after. What differs rolls
   everything back.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from countermark.store import postgres_checks
from countermark.store.failures import StoreError, StoreInUse, StoreMissing, StoreOfAnotherVersion
from countermark.store.interface import Finding
from countermark.store.migrations.outcome import Migrated, Migration, NothingToDo, NotWhole, Plan, WouldMigrate
from countermark.store.migrations.scripts import ONE_SCHEMA, steps, upgrade
from countermark.store.postgres import WAIT_S, connect, read_url, version_in
from countermark.store.postgres_errors import place_of, translated
from countermark.store.postgres_schema import MAKING, SCHEMA
from countermark.store.schema import SCHEMA_VERSION

_PAUSE_S: Final = 0.05
#: A session that migrates is told apart from those that use the store.
_MIGRATING: Final = "migrating countermark"
_OTHERS: Final = """
SELECT pid, coalesce(host(client_addr), 'this host') FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'countermark%' AND pid <> pg_backend_pid() ORDER BY pid
"""
_TABLES: Final = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = :schema ORDER BY 1"


@contextmanager
def _undone(connection: Connection) -> Generator[None, None, None]:
    """What happens inside is looked at and taken back."""
    with connection.begin_nested() as savepoint:
        yield
        savepoint.rollback()


def _others(connection: Connection) -> tuple[str, ...]:
    """The sessions of countermark that use the database, as far as the server shows them."""
    connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return tuple(f"session {pid} from {where}" for pid, where in connection.execute(text(_OTHERS)).all())


def _findings_before(connection: Connection, where: str, version: int) -> tuple[Finding, ...]:
    """How the schema differs from one of its version."""

    def made_by_scripts(beside: Connection) -> None:
        upgrade(beside, dict.fromkeys(ONE_SCHEMA, 0), version, 0)

    with _undone(connection):
        return tuple(postgres_checks.schema_findings(connection, where, made_by_scripts))


def _findings_now(connection: Connection, where: str) -> Iterator[Finding]:
    """What a check would find if the transaction were committed; the server's settings are no matter of the store's."""
    with _undone(connection):
        yield from tuple(postgres_checks.schema_findings(connection, where))
    yield from postgres_checks.row_findings(connection, where)


def _looked_at(connection: Connection, url: URL, go_on: Callable[[Plan], Migration]) -> Migration:
    """What there is to do, and ``go_on`` where there is something and the schema is as its version has it."""
    where = place_of(url)
    version = version_in(connection)
    if version is None:
        raise StoreError(StoreMissing(where))
    if version > SCHEMA_VERSION:
        raise StoreError(StoreOfAnotherVersion(where, version, SCHEMA_VERSION))
    if version == SCHEMA_VERSION:
        return NothingToDo(where, version)
    plan = Plan(where, version, SCHEMA_VERSION, steps(version, SCHEMA_VERSION))
    findings = _findings_before(connection, where, version)
    return NotWhole(plan, findings) if findings else go_on(plan)


def _migrate(connection: Connection, plan: Plan) -> Migration:
    upgrade(connection, dict.fromkeys(ONE_SCHEMA, plan.found), plan.wanted, time.time_ns() // 1_000_000)
    findings = tuple(_findings_now(connection, plan.place))
    if findings:
        connection.rollback()
        return NotWhole(plan, findings)
    connection.commit()
    return Migrated(plan, None)


def _hold_alone(connection: Connection, where: str, wait_s: float) -> None:
    """One migration at a time, the tables locked, and nobody else there."""
    deadline = time.monotonic() + wait_s
    while True:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MAKING})
        others = _others(connection)
        if not others:
            tables = ", ".join(connection.scalars(text(_TABLES), {"schema": SCHEMA}))
            if tables:
                connection.exec_driver_sql(f"LOCK TABLE {tables.replace('%', '%%')} IN ACCESS EXCLUSIVE MODE")
            # Whoever came between the two looks has seen the old version.
            others = _others(connection)
        if not others:
            return
        connection.rollback()
        if time.monotonic() > deadline:
            raise StoreError(StoreInUse(where, round(wait_s * 1000), others))
        time.sleep(_PAUSE_S)


def migrate(address: str, dry_run: bool = False, wait_s: float = WAIT_S) -> Migration:
    """Bring the store at an address to this program's version. Raises ``StoreError``, also where it is of a later one."""
    url = read_url(address)
    engine = connect(url, wait_s)
    try:
        with translated(url, wait_s), engine.connect() as connection:
            connection.execute(text("SELECT set_config('application_name', :name, false)"), {"name": _MIGRATING})
            connection.commit()
            found = _looked_at(connection, url, lambda plan: WouldMigrate(plan, None))
            connection.rollback()
            if dry_run or not isinstance(found, WouldMigrate):
                return found
            _hold_alone(connection, place_of(url), wait_s)
            return _looked_at(connection, url, lambda plan: _migrate(connection, plan))
    finally:
        engine.dispose()
