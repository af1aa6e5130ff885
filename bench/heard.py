"""What the database drivers are given, heard at the driver itself, and said again bare.

Rules kept here:

1. Every statement, value and commit of a call is heard in its order, whoever issued it, and whether its rows were fetched; so are the
   settings that a new connection is given.
2. Said again, only the values that name the run, its attempt and its slot are another run's. They are put in before the clock runs.
3. Nothing is said more cheaply than a driver can: by one cursor of one connection that is kept, without anything between; one after
   another, also where the store asks several in one go.
"""

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from countermark.store.creation import LEDGER_FILE, TICKET_FILE
from countermark.store.postgres import connect, read_url
from countermark.store.ticket import Ticket

#: A statement, its values by place or by name (COMMIT has none), and whether its rows are fetched.
Said: TypeAlias = tuple[str, Any, bool]
_COMMIT: Final = "COMMIT"
_SETTINGS: Final = ("PRAGMA", "SET")
_WAIT_S: Final = 20.0


@dataclass(frozen=True)
class Heard:
    """The settings of a connection, the statements of one call, and which of its values name what."""

    settings: tuple[Said, ...]
    statements: tuple[Said, ...]
    names: Mapping[str, str]

    def again(self, values: Mapping[str, str]) -> tuple[Said, ...]:
        """The statements with another run's values."""
        return tuple((text, self._others(given, values), fetched) for text, given, fetched in self.statements)

    def _others(self, given: Any, values: Mapping[str, str]) -> Any:
        if isinstance(given, dict):
            return {key: self._other(value, values) for key, value in given.items()}
        return [self._other(value, values) for value in given or ()]

    def _other(self, value: Any, values: Mapping[str, str]) -> Any:
        name = self.names.get(value) if isinstance(value, str) else None
        return value if name is None else values[name]


class Ear:
    """Listens while a call is made."""

    def __init__(self) -> None:
        self._all: list[tuple[object, Said]] = []
        self._from = 0

    def hear(self, connection: object, text: str, given: Any = ()) -> int:
        """A driver's connection is given a statement; gives its number."""
        self._all.append((connection, (text, given, False)))
        return len(self._all) - 1

    def fetched(self, number: int) -> None:
        """The rows of a statement are fetched, which need not be the last one: several may be asked in one go."""
        connection, (text, given, _) = self._all[number]
        self._all[number] = (connection, (text, given, True))

    def begin(self) -> None:
        """What comes now is the call."""
        self._from = len(self._all)

    def end(self, names: Mapping[str, str]) -> Heard:
        """The call is over; ``names`` has the values that name its run, attempt and slot. The settings are its own connection's."""
        (connection,) = {id(connection): connection for connection, _ in self._all[self._from :]}.values()
        before = [said for where, said in self._all[: self._from] if where is connection]
        settings = tuple(said for said in before if said[0].lstrip().upper().startswith(_SETTINGS))
        call = tuple(said for _, said in self._all[self._from :])
        return Heard(settings, call, {value: name for name, value in names.items()})


@contextmanager
def hearing() -> Generator[Ear, None, None]:
    """Connections of both drivers that are made inside the block are listened to."""
    import psycopg

    ear = Ear()
    plain, plain_postgres = sqlite3.connect, psycopg.connect

    class Cursor(sqlite3.Cursor):
        def execute(self, text: str, given: Any = (), /) -> "Cursor":
            self.heard = ear.hear(self.connection, text, given)
            super().execute(text, given)
            return self

        def fetchall(self) -> list[Any]:
            ear.fetched(self.heard)
            return super().fetchall()

    class Connected(sqlite3.Connection):
        def cursor(self, *_: Any, **__: Any) -> Any:
            return super().cursor(Cursor)

        def execute(self, *said: Any) -> Any:
            return self.cursor().execute(*said)

        def commit(self) -> None:
            if self.in_transaction:
                ear.hear(self, _COMMIT)
            super().commit()

    class PostgresCursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **more: Any) -> "PostgresCursor":
            self.heard = ear.hear(self.connection, query, params)
            super().execute(query, params, **more)
            return self

        def fetchall(self) -> list[Any]:
            ear.fetched(self.heard)
            return super().fetchall()

    class PostgresConnected(psycopg.Connection[Any]):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.cursor_factory = PostgresCursor

        def commit(self) -> None:
            if self.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                ear.hear(self, _COMMIT)
            super().commit()

    sqlite3.connect = lambda *given, **more: plain(*given, **more, factory=Connected)
    psycopg.connect = PostgresConnected.connect
    try:
        yield ear
    finally:
        sqlite3.connect, psycopg.connect = plain, plain_postgres


@contextmanager
def bare_runner(url: str, heard: Heard) -> Generator[Callable[[Sequence[Said]], None], None, None]:
    """Says again, on a connection of its own, what ``Heard.again`` gives for a run."""
    if url.startswith("sqlite:"):
        folder = Path(url.removeprefix("sqlite:///"))
        queue = folder / TICKET_FILE
        with closing(sqlite3.connect(folder / LEDGER_FILE, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)) as connection:
            cursor = connection.cursor()
            for text, given, _ in heard.settings:
                cursor.execute(text, given)

            def run(saying: Sequence[Said]) -> None:
                with Ticket(queue, _WAIT_S):
                    for text, given, fetched in saying:
                        cursor.execute(text, given)
                        if fetched:
                            cursor.fetchall()

            yield run
    else:
        # The store's own way to connect: the same options, checked once.
        engine = connect(read_url(url), _WAIT_S)
        with closing(engine.raw_connection()) as pooled:
            postgres: Any = pooled.driver_connection
            teller = postgres.cursor()

            def run_postgres(saying: Sequence[Said]) -> None:
                for text, given, fetched in saying:
                    if text == _COMMIT:
                        postgres.commit()
                    else:
                        teller.execute(text, given)
                        if fetched:
                            teller.fetchall()

            yield run_postgres
        engine.dispose()
