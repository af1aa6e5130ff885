"""The shared store: one PostgreSQL database for any number of controllers on any number of machines.

Rules kept here:

1. Every writing transaction is READ COMMITTED and begins by locking the run's row; what it reads after that is what stands. Stricter levels
   would answer with serialization failures that say nothing about the run.
2. What two may insert at once is inserted ``ON CONFLICT DO NOTHING RETURNING``; who got nothing back reads the winner by another statement.
   One statement for both would show the loser nothing: its snapshot is older than the winner.
3. An answer stands for a commit on the server's disk. Where ``synchronous_commit`` is off, for whatever reason and since whenever, the
   store refuses; nothing here ever sets it.
4. A reading is one snapshot, and asks the server to write nothing.
5. Waiting is bounded, a process that stopped in a transaction loses it, and no message holds a password.
"""

import os
import select as system
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Self, TypeVar, final

from sqlalchemy import Connection, bindparam, create_engine, event, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError

from countermark.recipe.work import bytes_of_material, key_material
from countermark.run.demand import TrainingRunDesired
from countermark.run.records import StoredVerdict
from countermark.store import ledger, postgres_checks, rows, sweeps
from countermark.store.base import Held, SqlStore
from countermark.store.failures import (
    CommitNotDurable,
    NotAStore,
    ServerTakesNoWrites,
    ServerTooOld,
    StoreAddressUnknown,
    StoreDamaged,
    StoreError,
    StoreMissing,
    StoreOfAnotherVersion,
)
from countermark.store.interface import Finding
from countermark.store.postgres_errors import STARTING, place_of, state_of, translation
from countermark.store.postgres_schema import MAKING, SCHEMA, TABLES, postgres_script
from countermark.store.rows import Row
from countermark.store.schema import SCHEMA_VERSION, runs
from countermark.store.statements import Statement
from countermark.store.transaction import Transaction, itself

Given = TypeVar("Given")

#: Of every transaction that writes.
LEVEL: Final = "READ COMMITTED"
#: How long a writer waits for its turn, in seconds.
WAIT_S: Final = 20.0
#: How long a process may stop in the middle of a transaction before the server takes the transaction back, in seconds.
STOPPED_S: Final = 60.0
#: When a server's machine is given up that says nothing any more, in seconds and tries; its own system would wait for hours.
_KEEPALIVE: Final = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
_OLDEST: Final = 14
_PAUSE_S: Final = 0.05
#: How many connections that nobody uses are kept; at most 64 are used at a time.
_KEPT_MAX: Final = 8

#: Locks the run's row, if there is one, and tells in the same breath whether a commit is durable now.
_HOLD: Final = Statement(
    select(func.current_setting("synchronous_commit").label("commits")).where(runs.c.run_id == bindparam("run_id")).with_for_update(of=runs)
)
_COMMITS: Final = Statement(select(func.current_setting("synchronous_commit").label("commits")))
_RUNS: Final = TABLES.tables["runs"]
_GIVEN: Final[dict[str, Any]] = {column.name: bindparam(column.name) for column in _RUNS.columns if column.computed is None}
_RUN: Final = Statement(insert(_RUNS).values(_GIVEN).on_conflict_do_nothing().returning(_RUNS.c.run_id))


def read_url(address: str) -> URL:
    """The address of a database, for the driver that we use. Raises ``StoreError``."""
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise StoreError(StoreAddressUnknown("postgresql:…"))
    # A password in the query is moved to its own place: everything that shows an address hides it there, and nowhere else.
    password = url.query.get("password", url.password)
    url = url.difference_update_query(["password"]).set(drivername="postgresql+psycopg")
    return url if password is None else url.set(password=password if isinstance(password, str) else password[-1])


def _options(url: URL, wait_s: float, schema: str) -> dict[str, Any]:
    """What a connection asks for. The address may ask for more; what we need comes last and wins."""
    given = url.query.get("options", "")
    ours = {
        "search_path": schema,
        "lock_timeout": round(wait_s * 1000),
        "idle_in_transaction_session_timeout": round(STOPPED_S * 1000),
        "client_encoding": "UTF8",
    }
    told = " ".join([given if isinstance(given, str) else " ".join(given), *(f"-c {name}={value}" for name, value in ours.items())])
    # A migration finds out by this name who uses the store; a name that was asked for comes behind.
    asked = url.query.get("application_name", "")
    name = f"countermark {asked}".strip() if isinstance(asked, str) else "countermark"
    patience: dict[str, object] = {
        "connect_timeout": max(2, round(wait_s)),
        "tcp_user_timeout": max(2_000, round(wait_s * 1000)),
        **_KEEPALIVE,
    }
    unsaid = {each: value for each, value in patience.items() if each not in url.query}
    return {"options": told.strip(), "application_name": name, **unsaid}


def connect(url: URL, wait_s: float, schema: str = SCHEMA) -> Engine:
    """An engine whose every connection is checked before it is used, and names the tables of one schema. Raises nothing yet."""
    asked = _options(url, wait_s, schema)
    engine = create_engine(
        url.difference_update_query(["options"]),
        isolation_level=LEVEL,
        connect_args=asked,
        pool_size=1,
        max_overflow=63,
        pool_timeout=wait_s,
        pool_use_lifo=True,
    )

    @event.listens_for(engine, "connect")
    def check(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        _check_server(connection, place_of(url))

    @event.listens_for(engine, "checkout")
    def awaken(connection: Any, *_: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        if _was_spoken_to(connection):
            raise DisconnectionError

    return engine


def _was_spoken_to(connection: Any) -> bool:
    """Whether the server said something on an idle connection: mostly that it ended. Asking the system costs no way to the server, and what
    it was need not be known: a new connection is as good."""
    socket = system.poll()
    try:
        socket.register(connection.fileno(), system.POLLIN)
    except connection.Error:
        return True
    return bool(socket.poll(0))


def _check_server(connection: Any, where: str) -> None:
    """What the server, the database and the role make of a new connection."""
    names = ("server_version_num", "server_version", "synchronous_commit", "fsync", "transaction_read_only")
    number, version, commits, synced, read_only = connection.execute(
        f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"
    ).fetchone()
    connection.rollback()
    if int(number) < _OLDEST * 10_000:
        raise StoreError(ServerTooOld(where, str(version), str(_OLDEST)))
    if commits == "off":
        raise StoreError(CommitNotDurable(where, ("synchronous_commit=off", *(("fsync=off",) if synced == "off" else ()))))
    if read_only == "on":
        raise StoreError(ServerTakesNoWrites(where))


_HOLDS: Final = """
SELECT count(*), count(*) FILTER (WHERE c.relname = 'schema_versions')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :name
"""


def is_ours(connection: Connection, schema: str) -> bool:
    """Whether a schema of a database holds a store; not where there is nothing in it. Raises ``StoreError``."""
    # By one statement: between two of them another process may have made the store.
    holds, versions = connection.execute(text(_HOLDS), {"name": schema}).one()
    if holds and not versions:
        raise StoreError(NotAStore(place_of(connection.engine.url), f"its schema {schema} holds tables of another program"))
    return bool(versions)


def version_in(connection: Connection) -> int | None:
    """The schema's version of the store in a database; None where there is none. Raises ``StoreError``."""
    if not is_ours(connection, SCHEMA):
        return None
    version = connection.scalar(text(f"SELECT max(version) FROM {SCHEMA}.schema_versions"))
    if not isinstance(version, int):
        raise StoreError(StoreDamaged(place_of(connection.engine.url), "it does not say which schema it has"))
    return version


def make_schema(connection: Connection) -> bool:
    """A store in a database that has none, in the caller's transaction; whether it was made. One process makes at a time."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MAKING})
    if version_in(connection) is not None:
        return False
    if connection.scalar(text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": SCHEMA}) is None:
        connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")
    for statement in postgres_script():
        connection.exec_driver_sql(statement.replace("%", "%%"))
    applied = {"version": SCHEMA_VERSION, "applied_ms": time.time_ns() // 1_000_000}
    connection.execute(insert(TABLES.tables["schema_versions"]), applied)
    return True


class PostgresDatabase:
    """The connections to a database, and transactions on them. Threads share it, and a forked child may go on with it: it makes connections
    of its own."""

    def __init__(self, url: URL, wait_s: float, schema: str) -> None:
        self._url = url
        self._wait_s = wait_s
        self._engine = connect(url, wait_s, schema)
        self._process = os.getpid()
        self._idle: Final[list[Connection]] = []
        #: Kept so that nobody ends them: they are another process's.
        self._of_the_parent: Final[list[Connection]] = []

    @property
    def location(self) -> str:
        return place_of(self._url)

    # --------------------------------------------------------------------------------------------------- transactions

    def _own(self) -> None:
        """A forked child lets go of its parent's connections without a word to the server, and makes its own. Where several of its threads
        do so at once, each goes on with what it has."""
        if os.getpid() != self._process:
            self._of_the_parent.extend(self._idle)
            self._idle.clear()
            self._engine.dispose(close=False)
            self._process = os.getpid()

    def _lent(self, read_only: bool) -> Connection:
        """A connection for one transaction. One that served well is kept as it is for the next: an engine's pool takes it apart and puts it
        together again, which costs more than a statement."""
        connection = self._idle_one() or self._engine.connect()
        driver: Any = connection.connection.dbapi_connection
        if driver.read_only is not read_only:
            connection.dialect.set_isolation_level(driver, "REPEATABLE READ" if read_only else LEVEL)
            driver.read_only = read_only
        return connection

    def _idle_one(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not _was_spoken_to(connection.connection.dbapi_connection):
                return connection
            _forgotten(connection)

    def given_back(self, connection: Connection) -> None:
        """The connection served well."""
        if len(self._idle) < _KEPT_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def _let_go(self) -> None:
        """End every connection that nobody uses."""
        while self._idle:
            _forgotten(self._idle.pop())
        self._engine.dispose()

    def begun(self, first: Callable[[Connection], Given], read_only: bool) -> tuple[Connection, Given]:
        """A connection, and what ``first`` gave on it. Nothing is written by then, so a connection that had broken while nobody used it is
        replaced, and a server that is just starting is waited for."""
        self._own()
        deadline = time.monotonic() + self._wait_s
        renewed = False
        while True:
            connection: Connection | None = None
            try:
                connection = self._lent(read_only)
                return connection, first(connection)
            except BaseException as error:
                broken = connection is not None and connection.invalidated
                if connection is not None:
                    connection.close()
                if broken and not renewed:
                    renewed = True
                    self._let_go()
                elif self._starting(error) and time.monotonic() < deadline:
                    time.sleep(_PAUSE_S)
                else:
                    raise

    @staticmethod
    def _starting(error: BaseException) -> bool:
        original = error.orig if isinstance(error, DBAPIError) else None
        return original is not None and (state_of(original) == STARTING or "the database system is" in str(original))

    def translation(self, error: BaseException | None) -> StoreError | None:
        """A failure of the environment as ours; None for mistakes of ours."""
        return translation(error, self._url, self._wait_s)

    def _transaction(self, first: Callable[[Connection], Given], read_only: bool = False) -> AbstractContextManager[Given]:
        """One transaction, committed when the block ends without an exception; ``first`` gives what the block is given."""
        return _Transaction(self, first, read_only)

    def _refuse_hasty(self, commits: object) -> None:
        if commits == "off":
            raise StoreError(CommitNotDurable(self.location, ("synchronous_commit=off",)))

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._transaction(itself, read_only=True)

    def _planning(self) -> AbstractContextManager[Connection]:
        def first(connection: Connection) -> Connection:
            self._refuse_hasty(_COMMITS.rows(connection)[0]["commits"])
            return connection

        return self._transaction(first)

    def close(self) -> None:
        self._let_go()


@final
class PostgresStore(PostgresDatabase, SqlStore):
    """A store in a database."""

    def __init__(self, url: URL, wait_s: float) -> None:
        super().__init__(url, wait_s, SCHEMA)

    @classmethod
    def open(cls, address: str, create: bool, wait_s: float = WAIT_S) -> Self:
        """The store at an address, made first when it is not there and ``create`` is true. Raises ``StoreError``."""
        store = cls(read_url(address), wait_s)
        try:
            store._recognize(create)
        except BaseException:
            store.close()
            raise
        event.listen(store._engine, "connect", store._still_of_this_version)
        return store

    @classmethod
    def initialise(cls, address: str, wait_s: float = WAIT_S) -> bool:
        """Have a store at an address; whether it was made now. Raises ``StoreError``."""
        store = cls(read_url(address), wait_s)
        try:
            return store._recognize(create=True)
        finally:
            store.close()

    def _recognize(self, create: bool) -> bool:
        """Whether the store was made now; refused where there is none, or one of another version."""
        with self._transaction(itself) as connection:
            version = version_in(connection)
        made = False
        if version is None:
            if not create:
                raise StoreError(StoreMissing(self.location))
            with self._transaction(itself) as connection:
                made = make_schema(connection)
                version = version_in(connection)
        if version != SCHEMA_VERSION:
            raise StoreError(StoreOfAnotherVersion(self.location, version or 0, SCHEMA_VERSION))
        return made

    def _still_of_this_version(self, connection: Any, _: Any) -> None:
        """The store may have been migrated while this process had no connection: then it writes nothing any more."""
        (version,) = connection.execute(f"SELECT max(version) FROM {SCHEMA}.schema_versions").fetchone()
        connection.rollback()
        if version != SCHEMA_VERSION:
            raise StoreError(StoreOfAnotherVersion(self.location, int(version or 0), SCHEMA_VERSION))

    def _hold(self, connection: Connection, run_id: str, *more: Statement) -> list[tuple[Row, ...]]:
        """Exclude every other writer of the run until the transaction ends. Gives a row if the run is recorded, and what ``more`` give:
        asked in one go and answered after it, since a statement sees what stands when it is its turn."""
        held: list[tuple[Row, ...]] = [()] * (1 + len(more))
        if rows.is_askable(run_id):
            held[:] = Statement.together(connection, _HOLD, *more, run_id=run_id)
        (row,) = held[0] or _COMMITS.rows(connection)
        self._refuse_hasty(row["commits"])
        return held

    def _writing(self, run_id: str) -> AbstractContextManager[Held]:
        def first(connection: Connection) -> Held:
            return Held(connection, run_id, self._material, self._hold(connection, run_id, *ledger.OF_RUN)[1:])

        return self._transaction(first)

    def _observed(self) -> AbstractContextManager[Connection]:
        return self._reading()

    def _searching(self) -> AbstractContextManager[Connection]:
        return self._reading()

    def _observing(self, run_id: str) -> AbstractContextManager[Connection | None]:
        """The run is held, so that the order of its sweeps is the order of their commits."""
        return self._transaction(lambda connection: connection if self._hold(connection, run_id)[0] else None)

    def _concluding(self, sweep_id: str, verdict: StoredVerdict) -> AbstractContextManager[tuple[Connection, Connection]]:
        """One transaction for both, so nothing can lie between them."""

        def first(connection: Connection) -> tuple[Connection, Connection]:
            self._hold(connection, sweeps.run_of(connection, sweep_id) or "")
            return connection, connection

        return self._transaction(first)

    # ------------------------------------------------------------------------------------------------------ the tables

    def _insert_run(self, connection: Connection, row: dict[str, object], desired: TrainingRunDesired) -> bool:
        given = {name: value for name, value in row.items() if name != "work_digest"}
        material = bytes_of_material(key_material(desired.manifest, desired.requirements))
        return bool(_RUN.rows(connection, **given, material=material))

    def check(self) -> tuple[Finding, ...]:
        with self._reading() as connection:
            found = tuple(postgres_checks.data_findings(connection, self.location))
        # Nothing of it lasts: the schema as it should be is made beside ours for comparison, and rolled back.
        with self._transaction(itself) as connection:
            schema = tuple(postgres_checks.schema_findings(connection, self.location))
            connection.rollback()
        return (*schema, *found)


@final
class _Transaction(Transaction[Given]):
    """What ``_transaction`` gives."""

    __slots__ = ("_first", "_read_only", "_store")

    def __init__(self, store: PostgresDatabase, first: Callable[[Connection], Given], read_only: bool) -> None:
        self._store = store
        self._first = first
        self._read_only = read_only

    def begin(self) -> Given:
        self.connection, given = self._store.begun(self._first, self._read_only)
        return given

    def keep(self) -> None:
        self._store.given_back(self.connection)

    def undo(self) -> None:
        """A connection that broke has nothing to roll back: the server did."""
        connection = self.connection
        try:
            if not connection.invalidated:
                connection.rollback()
        except DBAPIError:
            connection.invalidate()
        finally:
            connection.close()

    def translation(self, error: BaseException | None) -> StoreError | None:
        return self._store.translation(error)


def _forgotten(connection: Connection) -> None:
    """The connection is ended, and not used again."""
    connection.invalidate()
    connection.close()
