"""The embedded store: two SQLite files in a folder, for any number of processes on one machine.

Rules kept here:

1. Control facts are synced to the disk before their commit returns (``synchronous=FULL``); observations lie in a file of their own
   (``NORMAL``: the last of them may be lost with the power, none is torn).
2. Every writing transaction holds the ticket and begins ``IMMEDIATE``: from its first read on, nobody else writes.
3. Waiting is bounded; a failing environment is a ``StoreError`` that says what, where and how to mend it.
4. A store that is damaged, foreign, of another schema or on a network file system is refused and left as it is.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Literal, Self, TypeVar, final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import QueuePool

from countermark.files import durable
from countermark.run.records import StoredVerdict
from countermark.store import checks, creation, sweeps
from countermark.store.base import Held, SqlStore
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE
from countermark.store.failures import (
    NotAStore,
    StoreDamaged,
    StoreError,
    StoreForbidden,
    StoreIncomplete,
    StoreLocked,
    StoreMissing,
    StoreOfAnotherVersion,
    StoreOnNetwork,
    StoreReadOnly,
    StoreUnplaced,
)
from countermark.store.filesystem import mount_under, network_type
from countermark.store.interface import Finding
from countermark.store.ledger import is_recorded, version_of
from countermark.store.schema import APPLICATION_ID, LEDGER, OBSERVATIONS, SCHEMA_VERSION
from countermark.store.sqlite_errors import os_failure, translated, translation
from countermark.store.statements import cursor_of
from countermark.store.ticket import Ticket, TicketTimeout, open_ticket
from countermark.store.transaction import Transaction, itself
from countermark.store.where import JSON_WORD, json_word

Given = TypeVar("Given")

#: How long a writer waits for its turn, in seconds.
WAIT_S: Final = 20.0
_HEADER: Final = b"SQLite format 3\0"


@final
class SqliteFile:
    """One SQLite file, opened and known to be ours, of one version (None: whoever opens it looks). With it can be read what lies in the
    file ``beside``, if one is named."""

    def __init__(
        self,
        path: Path,
        synchronous: Literal["FULL", "NORMAL"],
        wait_s: float,
        version: int | None = SCHEMA_VERSION,
        settings: tuple[str, ...] = (),
        beside: Path | None = None,
    ) -> None:
        self.path = path
        self._beside = beside
        self._version = version
        self._settings = ("foreign_keys=ON", "recursive_triggers=ON", "trusted_schema=OFF", f"synchronous={synchronous}", *settings)
        self._where = str(path)
        self.wait_s = wait_s
        self.synchronous = synchronous
        found = regular_file(path)
        self._identity = (found.st_dev, found.st_ino)
        self.engine: Engine = create_engine("sqlite+pysqlite://", creator=self._connect, poolclass=QueuePool, pool_size=4, max_overflow=-1)
        self._idle: list[Connection] = []
        try:
            with translated(path, wait_s):
                self._recognize()
        except BaseException:
            self.engine.dispose()
            raise

    def _connect(self) -> sqlite3.Connection:
        """``mode=rw``: a file that is gone is an error, never a new empty one."""
        connection = sqlite3.connect(_place(self.path), uri=True, timeout=self.wait_s, isolation_level=None, check_same_thread=False)
        for setting in self._settings:
            connection.execute(f"PRAGMA {setting}")
        if self._beside is not None:
            connection.execute("ATTACH ? AS beside", (_place(self._beside),))
        connection.create_function(JSON_WORD, 1, json_word, deterministic=True)
        return connection

    def _recognize(self) -> None:
        where = self._where
        with self.engine.connect() as connection:
            mark = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
            if mark != APPLICATION_ID:
                raise StoreError(NotAStore(where, "it is another program's database"))
            if self._version is not None:
                version = connection.exec_driver_sql("SELECT max(version) FROM schema_versions").scalar_one()
                if not isinstance(version, int):
                    raise StoreError(StoreDamaged(where, "it does not say which schema it has"))
                if version != self._version:
                    raise StoreError(StoreOfAnotherVersion(where, version, self._version))
            mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar_one()
            if mode != "wal":
                raise StoreError(StoreDamaged(where, f"its journal mode is {mode} and cannot be set to wal"))

    def still_there(self) -> None:
        """A file that was removed or replaced under an open connection would take facts that nobody ever reads again."""
        try:
            found = os.stat(self._where)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise StoreError(StoreDamaged(self._where, "the file was moved, replaced or removed while it was open"))

    def lent(self) -> Connection:
        """A connection for one transaction. One that served well is kept as it is for the next: an engine's pool takes it apart and puts it
        together again, which costs as much as a statement."""
        try:
            return self._idle.pop()
        except IndexError:
            connection = self.engine.connect()
            connection.begin()
            return connection

    def given_back(self, connection: Connection) -> None:
        """The connection served well."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close every connection that nobody uses."""
        while self._idle:
            self._idle.pop().close()
        self.engine.dispose()

    def transaction(
        self, first: Callable[[Connection], Given], begin: Literal["BEGIN", "BEGIN IMMEDIATE"], hint: bool = False
    ) -> AbstractContextManager[Given]:
        """One transaction, committed when the block ends without an exception; ``first`` gives what the block is given. A ``hint`` may be
        lost with the power."""
        return _Transaction(self, first, begin, hint)


@final
class _Transaction(Transaction[Given]):
    """What ``SqliteFile.transaction`` gives."""

    __slots__ = ("_begin", "_database", "_first", "_hint")

    def __init__(self, database: SqliteFile, first: Callable[[Connection], Given], begin: str, hint: bool) -> None:
        self._database = database
        self._first = first
        self._begin = begin
        self._hint = hint

    def begin(self) -> Given:
        connection = self.connection = self._database.lent()
        try:
            cursor = cursor_of(connection)
            if self._hint:
                cursor.execute("PRAGMA synchronous=NORMAL")
            cursor.execute(self._begin)
            self._database.still_there()
            return self._first(connection)
        except BaseException:
            self.undo()
            raise

    def keep(self) -> None:
        if self._hint:
            self._heavily()
        self._database.given_back(self.connection)

    def undo(self) -> None:
        connection = self.connection
        try:
            connection.rollback()
            # A commit that failed may leave the transaction open although SQLAlchemy has done with it.
            connection.connection.rollback()
        finally:
            if self._hint:
                self._heavily()
            connection.close()

    def translation(self, error: BaseException | None) -> StoreError | None:
        return translation(error, self._database.path, self._database.wait_s)

    def _heavily(self) -> None:
        """The next transaction waits for the disk again, or has another connection."""
        try:
            cursor_of(self.connection).execute(f"PRAGMA synchronous={self._database.synchronous}")
        except BaseException:
            self.connection.invalidate()
            self.connection.close()
            raise


def _place(path: Path) -> str:
    return f"file:{quote(os.fsencode(path))}?mode=rw"


def regular_file(path: Path) -> os.stat_result:
    """What ``path`` is, checked before SQLite sees it: SQLite takes an empty file for an empty database."""
    where = str(path)
    with translated(path, 0):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(NotAStore(where, "it is no regular file"))
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    if not header:
        raise StoreError(NotAStore(where, "it is empty"))
    if header != _HEADER:
        raise StoreError(NotAStore(where, "it is no SQLite database"))
    if not os.access(path, os.W_OK):
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        raise StoreError(StoreReadOnly(where) if read_only else StoreForbidden(where, "it may not be written"))
    return found


def refuse_network(folder: Path) -> None:
    where = str(folder)
    try:
        mount = mount_under(folder)
    except OSError as error:
        raise StoreError(StoreUnplaced(where, error.strerror or str(error))) from error
    if mount is None:
        raise StoreError(StoreUnplaced(where, "the mount table does not have it"))
    if (kind := network_type(mount)) is not None:
        raise StoreError(StoreOnNetwork(where, kind))


@final
class Turn(Ticket):
    """A store's ticket, with its failures as ours."""

    __slots__ = ()

    def __enter__(self) -> float:
        try:
            return super().__enter__()
        except TicketTimeout as error:
            raise StoreError(StoreLocked(str(self._path.parent), error.waited_ms, error.holder)) from error
        except OSError as error:
            raise StoreError(os_failure(error, self._path)) from error


@final
class _InTurn(Generic[Given]):
    """A transaction that waits for its turn, and whose turn is over when it is."""

    __slots__ = ("_transaction", "_turn")

    def __init__(self, turn: Turn, transaction: AbstractContextManager[Given]) -> None:
        self._turn = turn
        self._transaction = transaction

    def __enter__(self) -> Given:
        self._turn.__enter__()
        try:
            return self._transaction.__enter__()
        except BaseException:
            self._turn.__exit__()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._transaction.__exit__(kind, error, trace)
        finally:
            self._turn.__exit__()


@final
class SqliteStore(SqlStore):
    """A store in a folder. Threads share it; a forked child must open its own."""

    def __init__(self, folder: Path, ledger: SqliteFile, observations: SqliteFile, wait_s: float) -> None:
        self.folder = folder
        self._ticket = folder / TICKET_FILE
        self._ledger = ledger
        self._observations = observations
        self._wait_s = wait_s
        self._process = os.getpid()

    @classmethod
    def open(cls, folder: Path, create: bool, wait_s: float = WAIT_S) -> Self:
        """The store in ``folder``, made first when it is not there and ``create`` is true. Raises ``StoreError``."""
        folder = folder.absolute()
        with translated(folder, wait_s):
            refuse_network(folder)
            if not (folder / LEDGER_FILE).exists():
                if not create:
                    lost = folder.is_dir() and creation.ledger_was_here(folder)
                    raise StoreError(StoreIncomplete(str(folder), LEDGER_FILE) if lost else StoreMissing(str(folder)))
                cls.initialise(folder, wait_s)
            if not (folder / OBSERVATIONS_FILE).exists():
                raise StoreError(StoreIncomplete(str(folder), OBSERVATIONS_FILE))
            # The ticket's file is opened at every write: said now when that will fail.
            os.close(open_ticket(folder / TICKET_FILE))
            ledger = SqliteFile(folder / LEDGER_FILE, "FULL", wait_s)
            try:
                observations = SqliteFile(folder / OBSERVATIONS_FILE, "NORMAL", wait_s)
            except BaseException:
                ledger.close()
                raise
        return cls(folder, ledger, observations, wait_s)

    @classmethod
    def initialise(cls, folder: Path, wait_s: float = WAIT_S) -> tuple[str, ...]:
        """Make what is missing of the store in ``folder``; returns the names of the files that were made. Raises ``StoreError``, also where
        a file was there and cannot be used: of another schema, damaged, or no store at all."""
        folder = folder.absolute()
        refuse_network(folder)
        with translated(folder, wait_s):
            durable.make_folder(folder)
            with Turn(folder / TICKET_FILE, wait_s):
                made = creation.make_store(folder)
        cls.open(folder, create=False, wait_s=wait_s).close()
        return made

    @property
    def location(self) -> str:
        return f"sqlite:///{self.folder}"

    def _own(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("an SQLite store is not used across a fork: the child opens its own")

    def _reading(self) -> AbstractContextManager[Connection]:
        self._own()
        return self._ledger.transaction(itself, "BEGIN")

    @contextmanager
    def _searching(self) -> Generator[Connection, None, None]:
        """A connection of its own: a writer that begins on one with both files would lock both."""
        self._own()
        both = SqliteFile(self._ledger.path, "FULL", self._wait_s, beside=self._observations.path)
        try:
            with both.transaction(itself, "BEGIN") as connection:
                yield connection
        finally:
            both.close()

    def _turn(self) -> Turn:
        return Turn(self._ticket, self._wait_s)

    def _writing(self, run_id: str) -> AbstractContextManager[Held]:
        self._own()
        held = self._ledger.transaction(lambda connection: Held(connection, run_id, self._material), "BEGIN IMMEDIATE")
        return _InTurn(self._turn(), held)

    def _observed(self) -> AbstractContextManager[Connection]:
        self._own()
        return self._observations.transaction(itself, "BEGIN")

    @contextmanager
    def _observing(self, run_id: str) -> Generator[Connection | None, None, None]:
        with self._reading() as control:
            recorded = is_recorded(control, run_id)
        if not recorded:
            yield None
            return
        with self._turn(), self._observations.transaction(itself, "BEGIN IMMEDIATE") as connection:
            yield connection

    def _planning(self) -> AbstractContextManager[Connection]:
        self._own()
        return _InTurn(self._turn(), self._ledger.transaction(itself, "BEGIN IMMEDIATE", hint=True))

    @contextmanager
    def _concluding(self, sweep_id: str, verdict: StoredVerdict) -> Generator[tuple[Connection, Connection], None, None]:
        """The ticket is one for both files, so it excludes every other writer until both have committed, the inner one first.

        Whatever takes a run off the agenda commits after the verdict, and whatever puts it there before: a process that ends between the
        two leaves an entry too many, and never one too few.
        """
        self._own()
        observations = self._observations.transaction(itself, "BEGIN IMMEDIATE")
        with self._turn():
            takes_out = verdict.closed and not self._late(sweep_id, verdict.version)
            ledger = self._ledger.transaction(itself, "BEGIN IMMEDIATE", hint=takes_out)
            if takes_out:
                with ledger as control, observations as observed:
                    yield observed, control
            else:
                with observations as observed, ledger as control:
                    yield observed, control

    def _late(self, sweep_id: str, version: int) -> bool:
        """Whether the run of the sweep has moved past the version; the caller holds the ticket."""
        with self._observed() as observed:
            run_id = sweeps.run_of(observed, sweep_id)
        with self._reading() as control:
            return run_id is not None and version_of(control, run_id) > version

    def check(self) -> tuple[Finding, ...]:
        ledger, observations = str(self._ledger.path), str(self._observations.path)
        with self._reading() as control, self._observed() as observed:
            # Read first: a snapshot begins with its first read, and a run is recorded before its sweeps.
            first = tuple(checks.database_findings(observed, self._observations.path, checks.made_afresh(OBSERVATIONS)))
            refused = checks.refused_runs(control)
            found = (
                *first,
                *checks.database_findings(control, self._ledger.path, checks.made_afresh(LEDGER)),
                *checks.run_findings(refused, ledger),
                *checks.sweep_findings(control, observed, observations),
            )
            missing = checks.missing_from_agenda(control, observed) - refused.keys()
        if missing:
            # A run may have been closed between the two snapshots: looked at once more, while nobody writes.
            with self._turn(), self._reading() as control, self._observed() as observed:
                missing &= checks.missing_from_agenda(control, observed)
        return (*found, *checks.agenda_findings(missing, ledger))

    def close(self) -> None:
        self._ledger.close()
        self._observations.close()
