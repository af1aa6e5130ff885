"""A store by its address, whatever keeps it. No driver is imported before it is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from countermark.store.failures import DriverMissing, StoreAddressUnknown, StoreError, StoreMissing, StoreOfAnotherVersion
from countermark.store.interface import Finding, Store
from countermark.store.sessions.interface import SessionStore, SinkState

if TYPE_CHECKING:
    from countermark.store.migrations.outcome import Migration, SessionsMigrated

SQLITE: Final = "sqlite:///"
POSTGRESQL: Final = ("postgresql://", "postgres://")


def folder_of(url: str) -> Path | None:
    """The folder of an SQLite store's address, in which the ledger's own file means its folder; None for any other address."""
    if not url.startswith(SQLITE) or url == SQLITE or "\0" in url:
        return None
    path = Path(url.removeprefix(SQLITE))
    return path.parent if path.suffix == ".sqlite" else path


def is_postgresql(url: str) -> bool:
    """Whether an address names a PostgreSQL database."""
    return url.startswith(POSTGRESQL)


def scheme_of(url: str) -> str:
    """What may be shown of an address that is none of ours: never a password."""
    scheme, colon, _ = url.partition(":")
    return f"{scheme[:40]}:…" if colon else "an address without a scheme"


def _with_driver(url: str) -> None:
    """Raises ``StoreError`` where a database's driver is not installed."""
    from countermark.store.postgres import read_url
    from countermark.store.postgres_errors import place_of

    try:
        import psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        # Also where it is there and finds no libpq: the extra brings one.
        raise StoreError(DriverMissing(place_of(read_url(url)), " ".join(str(error).split())[:300], "postgres")) from error


def open_store(url: str, create: bool) -> Store:
    """The store at ``sqlite:///FOLDER`` or ``postgresql://…``; made first when it is not there and ``create`` is true.

    Raises ``StoreError``.
    """
    if (folder := folder_of(url)) is not None:
        from countermark.store.sqlite import SqliteStore

        return SqliteStore.open(folder, create=create)
    if is_postgresql(url):
        from countermark.store.postgres import PostgresStore

        _with_driver(url)
        return PostgresStore.open(url, create=create)
    raise StoreError(StoreAddressUnknown(scheme_of(url)))


def open_sessions(url: str, create: bool) -> SessionStore:
    """The sessions of the store at ``sqlite:///FOLDER`` or ``postgresql://…``; made first, or brought to this release's schema, where
    ``create`` is true: they need no ledger beside them.

    Raises ``StoreError``.
    """
    if (folder := folder_of(url)) is not None:
        from countermark.store.sessions.sqlite import SqliteSessions

        return SqliteSessions.open(folder, create=create)
    if is_postgresql(url):
        _with_driver(url)
        from countermark.store.sessions.postgres import PostgresSessions

        return PostgresSessions.open(url, create=create)
    raise StoreError(StoreAddressUnknown(scheme_of(url)))


def _sessions_there(url: str) -> SessionStore | None:
    """The sessions of the store at an address, as they are; None where there are none. Raises ``StoreError``."""
    try:
        return open_sessions(url, create=False)
    except StoreError as error:
        if isinstance(error.failure, StoreMissing):
            return None
        raise


def check_sessions(url: str) -> tuple[Finding, ...] | None:
    """Everything that is wrong with the sessions of the store at an address; None where there are none. Raises ``StoreError``."""
    if (store := _sessions_there(url)) is None:
        return None
    with store:
        return store.check()


def sink_of(url: str, sink: str) -> SinkState | None:
    """How far a sink of the store at an address is; None where nothing was sent on from there. Raises ``StoreError``."""
    if (store := _sessions_there(url)) is None:
        return None
    with store:
        return store.sink_state(sink)


def migrate_sessions(url: str, dry_run: bool = False) -> "SessionsMigrated | None":
    """Bring the sessions of the store at an address to this release's schema and fold, or say what that would do; None where there are
    none. Raises ``StoreError``."""
    from countermark.store.migrations.outcome import SessionsMigrated
    from countermark.store.sessions.schema import SESSIONS_VERSION

    found = SESSIONS_VERSION
    try:
        if (there := _sessions_there(url)) is None:
            return None
        with there:
            if dry_run:
                return SessionsMigrated(found, SESSIONS_VERSION, there.to_refold())
    except StoreError as error:
        if not isinstance(error.failure, StoreOfAnotherVersion) or error.failure.found > error.failure.supported:
            raise
        found = error.failure.found
        if dry_run:
            return SessionsMigrated(found, SESSIONS_VERSION, None)
    with open_sessions(url, create=True) as store:
        return SessionsMigrated(found, SESSIONS_VERSION, store.refold())


def make_store(url: str) -> bool:
    """Have a whole store at an address; whether anything of it was made now. Raises ``StoreError``."""
    if (folder := folder_of(url)) is not None:
        from countermark.store.sqlite import SqliteStore

        return bool(SqliteStore.initialise(folder))
    if is_postgresql(url):
        from countermark.store.postgres import PostgresStore

        _with_driver(url)
        return PostgresStore.initialise(url)
    raise StoreError(StoreAddressUnknown(scheme_of(url)))


def migrate_store(url: str, dry_run: bool) -> "Migration":
    """Bring the store at an address to this release's schema, or say what that would do. Raises ``StoreError``."""
    if (folder := folder_of(url)) is not None:
        from countermark.store.migrations.sqlite import migrate as migrate_folder

        return migrate_folder(folder, dry_run)
    if is_postgresql(url):
        from countermark.store.migrations.postgres import migrate as migrate_database

        _with_driver(url)
        return migrate_database(url, dry_run)
    raise StoreError(StoreAddressUnknown(scheme_of(url)))
