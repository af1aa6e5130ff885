"""A store by its address, whatever keeps it. No driver is imported before it is needed."""

from pathlib import Path
from typing import Final

from countermark.store.failures import DriverMissing, StoreAddressUnknown, StoreError
from countermark.store.interface import Store

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


def open_store(url: str, create: bool) -> Store:
    """The store at ``sqlite:///FOLDER`` or ``postgresql://…``; made first when it is not there and ``create`` is true.

    Raises ``StoreError``.
    """
    if (folder := folder_of(url)) is not None:
        from countermark.store.sqlite import SqliteStore

        return SqliteStore.open(folder, create=create)
    if is_postgresql(url):
        from countermark.store.postgres import PostgresStore, read_url
        from countermark.store.postgres_errors import place_of

        try:
            import psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError as error:
            # Also where it is there and finds no libpq: the extra brings one.
            raise StoreError(DriverMissing(place_of(read_url(url)), " ".join(str(error).split())[:300], "postgres")) from error
        return PostgresStore.open(url, create=create)
    raise StoreError(StoreAddressUnknown(scheme_of(url)))
