"""Stores of the first version, on both kinds of database, with what was recorded in one of them when it was released."""

import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol, final

from sqlalchemy import Connection, create_engine, text

from countermark.recipe.work import bytes_of_material, key_material
from countermark.run.records import RunRecord
from countermark.store import Store
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.migrations import postgres, sqlite
from countermark.store.migrations.outcome import Migrated, Migration
from countermark.store.migrations.scripts import ONE_SCHEMA, upgrade
from countermark.store.postgres import PostgresStore
from countermark.store.sqlite import SqliteStore

RECORDED: Final = Path(__file__).resolve().parent.parent / "recorded"
#: The tables of the first version, each before those that refer to it.
TABLES: Final = {
    LEDGER_FILE: ("runs", "facts", "claims", "intents", "outcomes", "cancellations", "abandonments"),
    OBSERVATIONS_FILE: ("sweeps", "verdicts"),
}
WAIT_S: Final = 10.0

Rows = dict[str, list[dict[str, Any]]]


class Old(Protocol):
    """A store of the first version."""

    kind: str

    def migrate(self, dry_run: bool = False, wait_s: float = WAIT_S) -> Migration: ...

    def open(self) -> Store: ...

    def rows(self) -> Rows:
        """Every row of every table of the first version, by column, in the order of their keys."""
        ...

    def versions(self) -> list[list[int]]:
        """The versions that the store has had, in each place that says so."""
        ...

    def execute(self, *statements: str) -> None:
        """Statements past countermark, as somebody with the database's own tools gives them."""
        ...

    def copies(self) -> list[Path]:
        """What copies there are."""
        ...


def unpacked(folder: Path) -> Path:
    """The recorded store of the first version, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        (folder / name).write_bytes(gzip.decompress((RECORDED / "store-1" / f"{name}.gz").read_bytes()))
    return folder


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: repr(tuple(row.items())))


@final
class OldFolder:
    """The recorded store in a folder."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = unpacked(folder)

    def migrate(self, dry_run: bool = False, wait_s: float = WAIT_S) -> Migration:
        return sqlite.migrate(self.folder, dry_run, wait_s)

    def open(self) -> Store:
        return SqliteStore.open(self.folder, create=False, wait_s=WAIT_S)

    @contextmanager
    def raw(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.folder / LEDGER_FILE, isolation_level=None, timeout=WAIT_S)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("ATTACH ? AS observations", (str(self.folder / OBSERVATIONS_FILE),))
            yield connection

    def rows(self) -> Rows:
        with self.raw() as connection:
            found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for names in TABLES.values() for name in names}
        return {name: _sorted([dict(row) for row in rows]) for name, rows in found.items()}

    def versions(self) -> list[list[int]]:
        with self.raw() as connection:
            asked = (f"SELECT version FROM {place}.schema_versions ORDER BY version" for place in ("main", "observations"))
            return [[row[0] for row in connection.execute(query)] for query in asked]

    def execute(self, *statements: str) -> None:
        with self.raw() as connection:
            for statement in statements:
                connection.execute(statement)

    def copies(self) -> list[Path]:
        return sorted((self.folder / sqlite.BACKUPS).glob("*"))


@final
class OldDatabase:
    """The same rows in a database, whose tables the first version's script made."""

    kind = "postgresql"

    def __init__(self, url: str) -> None:
        self.url = url
        rows, materials = recorded_rows()
        with self._connected() as connection:
            connection.execute(text("CREATE SCHEMA countermark"))
            connection.execute(text("SET search_path TO countermark"))
            upgrade(connection, dict.fromkeys(ONE_SCHEMA, 0), 1, 1_000)
            for name in (name for names in TABLES.values() for name in names):
                # A claim comes after the one that it follows.
                for row in sorted(rows[name], key=lambda row: row.get("version", 0)):
                    _insert(connection, name, row, materials)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        engine = create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        try:
            with engine.begin() as connection:
                connection.execute(text("SET search_path TO countermark"))
                yield connection
        finally:
            engine.dispose()

    def migrate(self, dry_run: bool = False, wait_s: float = WAIT_S) -> Migration:
        return postgres.migrate(self.url, dry_run, wait_s)

    def open(self) -> Store:
        return PostgresStore.open(self.url, create=False, wait_s=WAIT_S)

    def rows(self) -> Rows:
        with self._connected() as connection:
            names = [name for names in TABLES.values() for name in names]
            found = {name: connection.execute(text(f"SELECT * FROM {name}")).mappings().all() for name in names}
        return {name: _sorted([dict(row) for row in rows]) for name, rows in found.items()}

    def versions(self) -> list[list[int]]:
        with self._connected() as connection:
            return [list(connection.scalars(text("SELECT version FROM schema_versions ORDER BY version")))]

    def execute(self, *statements: str) -> None:
        with self._connected() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def copies(self) -> list[Path]:
        return []


@cache
def recorded_rows() -> tuple[Rows, dict[str, bytes]]:
    """The rows of the recorded store, and what each run's Work key is the digest of."""
    with TemporaryDirectory() as scratch:
        source = OldFolder(Path(scratch))
        rows = source.rows()
        assert isinstance(source.migrate(), Migrated)
        with source.open() as store:
            return rows, {row["run_id"]: _material(store, row["run_id"]) for row in rows["runs"]}


def _material(store: Store, run_id: str) -> bytes:
    record = store.load_run(run_id)
    assert isinstance(record, RunRecord), record
    return bytes_of_material(key_material(record.ledger.desired.manifest, record.ledger.desired.requirements))


def _insert(connection: Connection, name: str, row: dict[str, Any], materials: dict[str, bytes]) -> None:
    given = dict(row)
    if name == "runs":
        given["material"] = materials[row["run_id"]]
        del given["work_digest"]
    columns = ", ".join(given)
    connection.execute(text(f"INSERT INTO {name} ({columns}) VALUES ({', '.join(f':{each}' for each in given)})"), given)
