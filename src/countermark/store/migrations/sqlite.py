"""Migrating a store of two SQLite files, both in one transaction.

Rules kept here:

1. Both files leave the write-ahead log for the time: only with rollback journals does SQLite commit two files as one. It lets a file leave
   the log for its only connection alone, so whoever else has the store open is found out by that, whatever its version.
2. The copies of what was are made, synced and named before the first change.
3. A kill at any moment leaves the old store or the new one; the next one who opens it rolls back what was not committed.
"""

import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from countermark.files import durable
from countermark.store import checks, creation
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE
from countermark.store.failures import NotAStore, StoreDamaged, StoreError, StoreIncomplete, StoreInUse, StoreMissing, StoreOfAnotherVersion
from countermark.store.interface import Finding
from countermark.store.migrations.outcome import Migrated, Migration, NothingToDo, NotWhole, Plan, WouldMigrate
from countermark.store.migrations.scripts import FILES, Database, steps, upgrade
from countermark.store.schema import APPLICATION_ID, LEDGER, OBSERVATIONS, SCHEMA_VERSION
from countermark.store.sqlite import WAIT_S, Turn, refuse_network, regular_file
from countermark.store.sqlite_errors import translated

#: The folder, in the store's own, that holds copies of what was.
BACKUPS: Final = "before-migration"
_NEW: Final = ".new"
_PAUSE_S: Final = 0.05
#: References of other tables are left as they are when a table steps aside, and nothing is deleted when it goes.
_SETTINGS: Final = ("PRAGMA foreign_keys=OFF", "PRAGMA legacy_alter_table=ON", "PRAGMA trusted_schema=OFF")
_NAMES: Final[Mapping[Database, str]] = dict(zip(FILES, (LEDGER_FILE, OBSERVATIONS_FILE), strict=True))


def open_file(path: Path, wait_s: float) -> sqlite3.Connection:
    """The connection that migrates, to the ledger; the other file is attached to it."""
    connection = sqlite3.connect(_place(path), uri=True, timeout=wait_s, isolation_level=None, check_same_thread=False)
    for setting in _SETTINGS:
        connection.execute(setting)
    return connection


def _place(path: Path) -> str:
    """``mode=rw``: a file that is gone is an error, never a new empty one."""
    return f"file:{quote(os.fsencode(path))}?mode=rw"


@final
class _Files:
    """Both files of a store over one connection."""

    def __init__(self, folder: Path, wait_s: float) -> None:
        self.folder = folder
        self._wait_s = wait_s
        self.paths: Final = {database: folder / name for database, name in _NAMES.items()}
        for path in self.paths.values():
            regular_file(path)
        self.raw: Final = open_file(folder / LEDGER_FILE, wait_s)
        self._engine = create_engine("sqlite+pysqlite://", creator=lambda: self.raw, poolclass=StaticPool)
        self.raw.execute("ATTACH ? AS observations", (_place(folder / OBSERVATIONS_FILE),))
        for database in FILES:
            self.raw.execute(f"PRAGMA {database.schema}.synchronous=FULL")

    def versions(self) -> dict[Database, int]:
        """The version of each file. Raises ``StoreError`` where one is not ours, or newer than we are."""
        found: dict[Database, int] = {}
        for database, path in self.paths.items():
            if self._one(f"PRAGMA {database.schema}.application_id") != APPLICATION_ID:
                raise StoreError(NotAStore(str(path), "it is another program's database"))
            version = self._one(f"SELECT max(version) FROM {database.schema}.schema_versions")
            if not isinstance(version, int) or version < 1:
                raise StoreError(StoreDamaged(str(path), "it does not say which schema it has"))
            if version > SCHEMA_VERSION:
                raise StoreError(StoreOfAnotherVersion(str(path), version, SCHEMA_VERSION))
            found[database] = version
        return found

    def _one(self, query: str) -> object:
        return self.raw.execute(query).fetchone()[0]

    @contextmanager
    def connected(self) -> Generator[Connection, None, None]:
        """SQLAlchemy's connection over the one that there is. What is not committed when the block ends is rolled back."""
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def alone(self) -> Generator[None, None, None]:
        """Nobody else has the files open, and one commit is for both. Raises ``StoreError`` after a wait in vain."""
        deadline = time.monotonic() + self._wait_s
        try:
            while not self._left_the_log():
                if time.monotonic() > deadline:
                    waited_ms = round(self._wait_s * 1000)
                    raise StoreError(StoreInUse(str(self.folder), waited_ms, _who_has_open(tuple(self.paths.values()))))
                time.sleep(_PAUSE_S)
            yield
        finally:
            self._back_to_the_log()

    def _left_the_log(self) -> bool:
        """Whether both files are held for this connection alone, none with a write-ahead log."""
        try:
            for database in FILES:
                if self._one(f"PRAGMA {database.schema}.journal_mode=DELETE") != "delete":
                    return False
                self.raw.execute(f"PRAGMA {database.schema}.locking_mode=EXCLUSIVE")
            self.raw.execute("BEGIN EXCLUSIVE")
            self.raw.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            self._back_to_the_log()
            return False
        return all(self._one(f"PRAGMA {database.schema}.journal_mode") == "delete" for database in FILES)

    def _back_to_the_log(self) -> None:
        """As whoever opens the store sets it, too. Nothing rests on it."""
        for database in FILES:
            with suppress(sqlite3.Error):
                self.raw.execute(f"PRAGMA {database.schema}.locking_mode=NORMAL")
                self.raw.execute(f"PRAGMA {database.schema}.journal_mode=WAL")
                # A lock is given up at the next reading.
                self.raw.execute(f"SELECT count(*) FROM {database.schema}.sqlite_master")

    def close(self) -> None:
        self._engine.dispose()
        self.raw.close()


def _who_has_open(paths: tuple[Path, ...]) -> tuple[str, ...]:
    """The processes that have one of the files open, as far as we may look."""
    wanted = {(path.stat().st_dev, path.stat().st_ino) for path in paths}
    found: set[int] = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            status = link.stat()
            if (status.st_dev, status.st_ino) in wanted:
                found.add(int(link.parts[2]))
    return tuple(f"process {pid}" for pid in sorted(found - {os.getpid()}))


def _made_by_scripts(version: int) -> dict[Database, checks.Objects]:
    """What lies in the files of a store of a version."""
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    engine = create_engine("sqlite+pysqlite://", creator=lambda: memory, poolclass=StaticPool)
    try:
        for statement in (*_SETTINGS, "ATTACH ':memory:' AS observations"):
            memory.execute(statement)
        with engine.connect() as connection:
            upgrade(connection, dict.fromkeys(FILES, 0), version, 0)
            return {each: checks.objects_in(connection, str(each.schema)) for each in FILES}
    finally:
        engine.dispose()
        memory.close()


def _file_findings(connection: Connection, files: _Files, wanted: Mapping[Database, checks.Objects]) -> Iterator[Finding]:
    for database, path in files.paths.items():
        yield from checks.database_findings(connection, path, wanted[database], str(database.schema))


def _findings_now(connection: Connection, files: _Files) -> Iterator[Finding]:
    """What a check would find if the transaction were committed."""
    ledger, observations = (str(path) for path in files.paths.values())
    refused = checks.refused_runs(connection)
    yield from _file_findings(connection, files, dict(zip(FILES, map(checks.made_afresh, (LEDGER, OBSERVATIONS)), strict=True)))
    yield from checks.run_findings(refused, ledger)
    yield from checks.sweep_findings(connection, connection, observations)
    yield from checks.agenda_findings(checks.missing_from_agenda(connection, connection) - refused.keys(), ledger)


def _free_name(folder: Path, version: int) -> Path:
    names = (f"version-{version}{again}" for again in ("", *(f"-{number}" for number in range(2, 10_000))))
    return next(folder / BACKUPS / name for name in names if not (folder / BACKUPS / name).exists())


def _copy(files: _Files, version: int) -> Path:
    """A folder with copies of both files, whole and durable once it has its name."""
    home = files.folder / BACKUPS
    durable.make_folder(home)
    for stray in home.glob(f".*{_NEW}"):
        shutil.rmtree(stray)
    new = home / f".{secrets.token_hex(8)}{_NEW}"
    new.mkdir()
    for database, path in files.paths.items():
        copy = sqlite3.connect(new / path.name)
        try:
            files.raw.backup(copy, name=str(database.schema))
        finally:
            copy.close()
        descriptor = os.open(new / path.name, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    durable.sync_folder(new)
    named = _free_name(files.folder, version)
    new.rename(named)
    durable.sync_folder(home)
    return named


def _take_away(copy: Path) -> None:
    """A copy of a store that was left as it is."""
    shutil.rmtree(copy)
    with suppress(OSError):
        copy.parent.rmdir()


def _migrate(files: _Files, versions: Mapping[Database, int], plan: Plan, now_ms: int) -> Migration:
    with files.alone():
        copy = _copy(files, plan.found)
        needed = False
        try:
            files.raw.execute("BEGIN IMMEDIATE")
            with files.connected() as connection:
                upgrade(connection, versions, SCHEMA_VERSION, now_ms)
                findings = tuple(_findings_now(connection, files))
                if not findings:
                    needed = True
                    files.raw.execute("COMMIT")
        except BaseException:
            if not needed:
                _take_away(copy)
            raise
        if findings:
            _take_away(copy)
            return NotWhole(plan, findings)
    return Migrated(plan, str(copy))


def _refuse_incomplete(folder: Path) -> None:
    if not (folder / LEDGER_FILE).exists():
        lost = folder.is_dir() and creation.ledger_was_here(folder)
        raise StoreError(StoreIncomplete(str(folder), LEDGER_FILE) if lost else StoreMissing(str(folder)))
    if not (folder / OBSERVATIONS_FILE).exists():
        raise StoreError(StoreIncomplete(str(folder), OBSERVATIONS_FILE))


def migrate(folder: Path, dry_run: bool = False, wait_s: float = WAIT_S) -> Migration:
    """Bring the store in ``folder`` to this program's version. Raises ``StoreError``, also where it is of a later one."""
    folder = folder.absolute()
    refuse_network(folder)
    with translated(folder, wait_s):
        found = _looked_at(folder, wait_s, lambda files, versions, plan: WouldMigrate(plan, str(_free_name(folder, plan.found))))
        if dry_run or not isinstance(found, WouldMigrate):
            return found
        now_ms = time.time_ns() // 1_000_000
        with Turn(folder / TICKET_FILE, wait_s):
            return _looked_at(folder, wait_s, lambda files, versions, plan: _migrate(files, versions, plan, now_ms))


def _plan(folder: Path, found: int) -> Plan:
    return Plan(f"sqlite:///{folder}", found, SCHEMA_VERSION, steps(found, SCHEMA_VERSION))


def _torn_logs(folder: Path) -> NotWhole | None:
    """A log that SQLite would pass over, and take away with every commit in it: it is found before SQLite sees it."""
    findings = tuple(each for name in _NAMES.values() for each in checks.log_findings(folder / f"{name}-wal"))
    if not findings:
        return None
    file = sqlite3.connect(f"{_place(folder / LEDGER_FILE)}&immutable=1", uri=True)
    try:
        (version,) = file.execute("SELECT max(version) FROM schema_versions").fetchone()
    finally:
        file.close()
    return NotWhole(_plan(folder, int(version or 0)), findings)


def _looked_at(folder: Path, wait_s: float, go_on: Callable[[_Files, Mapping[Database, int], Plan], Migration]) -> Migration:
    """What there is to do, and ``go_on`` where there is something and the files are as their versions have them."""
    _refuse_incomplete(folder)
    if (torn := _torn_logs(folder)) is not None:
        return torn
    files = _Files(folder, wait_s)
    try:
        versions = files.versions()
        oldest = min(versions.values())
        if oldest == SCHEMA_VERSION:
            return NothingToDo(f"sqlite:///{folder}", oldest)
        plan = _plan(folder, oldest)
        with files.connected() as connection:
            wanted = {each: _made_by_scripts(version)[each] for each, version in versions.items()}
            findings = tuple(_file_findings(connection, files, wanted))
        return NotWhole(plan, findings) if findings else go_on(files, versions, plan)
    finally:
        files.close()
