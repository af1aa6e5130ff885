"""Statements of SQLAlchemy Core, compiled once for each kind of database and run by its driver.

Rules kept here:

1. A statement is written over the tables of ``schema``, never as text, and is the same for every database. Its values are texts, whole
   numbers and bytes, which every driver takes and gives as they are.
2. Running it costs what the driver costs: nothing is built, compiled or wrapped again for a call. Who claims holds the run, or the whole
   ledger, until it is done, so everybody waits for what is spent here.
3. A driver's error comes out as SQLAlchemy's own, and a connection that broke is not used again.
4. Several questions that do not depend on each other's answers are asked in one go where the driver can (PostgreSQL): each way to a server
   and back costs more than its answer.
5. A text that is no UTF-8 stops no query (SQLite keeps what it is given): its stray bytes come as surrogates, which no cell of ours holds,
   so the row is refused where it is read, by name, and the rows beside it are not.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, final

from sqlalchemy import Connection, Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

Row = Mapping[str, object]
#: Under which name a connection's cursors are kept beside it.
_CURSORS: Final = "countermark.cursors"


@final
@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement for one kind of database: its text, the values that do not change, and what puts all in order (None: they go by name)."""

    text: str
    fixed: Mapping[str, object]
    ordered: Callable[[Mapping[str, object]], object] | None

    def given(self, values: Mapping[str, object]) -> Any:
        """The values of one call, as the driver takes them."""
        named = {**self.fixed, **values} if self.fixed else values
        return named if self.ordered is None else self.ordered(named)


@final
class Statement:
    """One statement, whose changing values are named by ``bindparam``. Threads and databases share it. What a ``large`` one gives may take
    megabytes, which are let go at once."""

    def __init__(self, query: Executable, large: bool = False) -> None:
        self._query: Final = query
        self._large: Final = large
        self._compiled: Final[dict[str, _Compiled]] = {}
        self._names: Final[dict[str, tuple[str, ...]]] = {}

    def rows(self, connection: Connection, **values: object) -> tuple[Row, ...]:
        """Every row, by column name."""
        cursor, compiled = self._ready(connection)
        try:
            cursor.execute(compiled.text, compiled.given(values))
            found = cursor.fetchall()
        except connection.dialect.loaded_dbapi.Error as error:
            if not undecodable(error):
                raise _theirs(connection, compiled.text, error) from error
            with leniently(connection):
                found = cursor.execute(compiled.text, compiled.given(values)).fetchall()
        return self._by_name(connection, cursor, found)

    @staticmethod
    def together(connection: Connection, *asked: "Statement", **values: object) -> tuple[tuple[Row, ...], ...]:
        """Every row of each of these statements, which take the same values: each sees what stands when it is its turn, in this order."""
        if connection.dialect.name != "postgresql":
            return tuple([each.rows(connection, **values) for each in asked])
        ready = [each._ready(connection, at) for at, each in enumerate(asked)]
        driver: Any = connection.connection.dbapi_connection
        text = ""
        try:
            with driver.pipeline():
                for cursor, compiled in ready:
                    text = compiled.text
                    cursor.execute(text, compiled.given(values))
        except connection.dialect.loaded_dbapi.Error as error:
            raise _theirs(connection, text, error) from error
        return tuple([each._by_name(connection, cursor, cursor.fetchall()) for each, (cursor, _) in zip(asked, ready, strict=True)])

    def _by_name(self, connection: Connection, cursor: Any, found: Sequence[Sequence[object]]) -> tuple[Row, ...]:
        if not found:
            return ()
        names = self._names.get(connection.dialect.name) or self._named(connection, cursor.description or ())
        return tuple([dict(zip(names, row, strict=True)) for row in found])

    def _named(self, connection: Connection, description: Iterable[Sequence[Any]]) -> tuple[str, ...]:
        """The names of the columns, which a statement never changes; a driver takes them together anew each time that it is asked."""
        return self._names.setdefault(connection.dialect.name, tuple([column[0] for column in description]))

    def run(self, connection: Connection, **values: object) -> int:
        """For a statement that gives no rows; how many it wrote."""
        cursor, compiled = self._ready(connection)
        try:
            cursor.execute(compiled.text, compiled.given(values))
        except connection.dialect.loaded_dbapi.Error as error:
            raise _theirs(connection, compiled.text, error) from error
        return int(cursor.rowcount)

    def many(self, connection: Connection, values: Sequence[Mapping[str, object]]) -> int:
        """Run it once with each of these values, for a statement that gives no rows; how many it wrote in all."""
        if not values:
            return 0
        cursor, compiled = self._ready(connection)
        try:
            cursor.executemany(compiled.text, [compiled.given(each) for each in values])
        except connection.dialect.loaded_dbapi.Error as error:
            raise _theirs(connection, compiled.text, error) from error
        return int(cursor.rowcount)

    def _ready(self, connection: Connection, at: int = 0) -> tuple[Any, _Compiled]:
        """A cursor in a transaction, and what to give it. A cursor keeps what it gave last, so a large answer has one of its own."""
        if not connection.in_transaction():
            connection.begin()
        compiled = self._compiled.get(connection.dialect.name) or self._for(connection)
        return connection.connection.cursor() if self._large else cursor_of(connection, at), compiled

    def _for(self, connection: Connection) -> _Compiled:
        compiled = self._query.compile(dialect=connection.dialect)  # type: ignore[attr-defined]
        assert isinstance(compiled, SQLCompiler)
        fixed = {name: value for name, value in compiled.params.items() if not compiled.binds[name].required}
        ordered = None if compiled.positiontup is None else _in_order(compiled.positiontup)
        return self._compiled.setdefault(connection.dialect.name, _Compiled(compiled.string, fixed, ordered))


def _in_order(names: Sequence[str]) -> Callable[[Mapping[str, object]], object]:
    """Values by their names in this order."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda named: [named[name] for name in names]


def cursor_of(connection: Connection, at: int = 0) -> Any:
    """The driver's cursor for small statements. It takes as long to make as to use: a connection has one for all of them, or as many as are
    asked in one go, for as long as the driver's lasts."""
    cursors = connection.info.setdefault(_CURSORS, [])
    while len(cursors) <= at:
        cursors.append(connection.connection.cursor())
    return cursors[at]


def commit(connection: Connection) -> None:
    """Commit by the driver. What SQLAlchemy holds for its transaction goes on, and is that of the next one on this connection."""
    driver: Any = connection.connection.dbapi_connection
    try:
        driver.commit()
    except connection.dialect.loaded_dbapi.Error as error:
        raise _theirs(connection, "COMMIT", error) from error


def undecodable(error: BaseException | None) -> bool:
    """Whether SQLite's driver gave up on a text that is no UTF-8."""
    return error is not None and str(error).startswith("Could not decode to UTF-8")


@contextmanager
def leniently(connection: Connection) -> Generator[None, None, None]:
    """Have SQLite's driver give stray bytes as surrogates. It costs several times as much for each text, so it is for a second try."""
    driver: Any = connection.connection.dbapi_connection
    driver.text_factory = _with_surrogates
    try:
        yield
    finally:
        driver.text_factory = str


def _with_surrogates(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _theirs(connection: Connection, text: str, error: Exception) -> BaseException:
    driver = connection.dialect.loaded_dbapi.Error
    assert isinstance(error, driver)
    if connection.dialect.is_disconnect(error, connection.connection, None):
        connection.invalidate(error)
    return DBAPIError.instance(text, None, error, driver, dialect=connection.dialect)
