"""What SQLite and the operating system say, as the failures of a store.

SQLite numbers the rows of observations itself. Where somebody forged a number so that there is no next one, it says that the disk is full,
or our own triggers refuse every row to come: then the file is looked at, so that the failure says what it is.
"""

import errno
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Final

from sqlalchemy import Table
from sqlalchemy.exc import DBAPIError

from countermark.store.creation import OBSERVATIONS_FILE
from countermark.store.failures import (
    NotAStore,
    StoreBroken,
    StoreDamaged,
    StoreError,
    StoreFailure,
    StoreForbidden,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
)
from countermark.store.rows import BadCell
from countermark.store.schema import OBSERVATIONS
from countermark.store.transaction import translated_by
from countermark.values import shown

_WHY_MAX: Final = 300
#: The last number of a row.
ORDINAL_MAX: Final = 2**63 - 1
#: The tables whose rows the database numbers, from 1 on.
NUMBERED: Final[tuple[Table, ...]] = tuple(table for table in OBSERVATIONS.sorted_tables if "ordinal" in table.columns)
_NO_NEXT: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT_TRIGGER)


def uncounted(table: str, ordinal: int) -> str:
    """What is wrong with a row whose number the database never gave."""
    return f"a row of {table} is numbered {ordinal}, which is no count of rows: those to come are refused"


def _no_next(path: Path) -> StoreDamaged | None:
    """Why no row can be added to the store's observations; None where that does not show. ``path``: the store's folder, or a file in it."""
    file = (path if path.is_dir() else path.parent).absolute() / OBSERVATIONS_FILE
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as looked:
            for table in NUMBERED:
                query = f"SELECT ordinal FROM {table.name} WHERE ordinal IN (-1, {ORDINAL_MAX})"
                query += f" UNION SELECT seq FROM sqlite_sequence WHERE name = '{table.name}' AND seq >= {ORDINAL_MAX}"
                if (found := looked.execute(query).fetchone()) is not None:
                    return StoreDamaged(str(file), uncounted(table.name, found[0]))
    except sqlite3.Error:
        return None
    return None


def os_failure(error: OSError, path: Path) -> StoreFailure:
    """What an error of the operating system means for a store at ``path``."""
    where = str(path)
    match error.errno:
        case errno.EROFS:
            return StoreReadOnly(where)
        case errno.ENOSPC | errno.EDQUOT:
            return StoreFull(where)
        case errno.EACCES | errno.EPERM:
            return StoreForbidden(where, "permission denied")
        case errno.ENOTDIR | errno.EEXIST:
            return StoreForbidden(where, "a part of this path is no folder")
        case errno.ELOOP:
            return StoreForbidden(where, "it is a link where none is expected")
        case errno.ENAMETOOLONG:
            return StoreForbidden(where, "the path is too long")
        case int() | None:
            return StoreBroken(where, error.strerror or str(error))


def sqlite_failure(error: sqlite3.Error, path: Path, wait_s: float) -> StoreFailure | None:
    """What an error of SQLite means, or None when it speaks of a mistake of ours and not of the environment."""
    where, why = str(path), shown(str(error), _WHY_MAX)
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return None
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return StoreDamaged(where, "the file was moved or removed while it was open")
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:
        # The index of the log is made even for a reading; it failed to grow, and only room can be missing for that.
        return StoreFull(where)
    primary = code & 0xFF
    simple: dict[int, StoreFailure] = {
        sqlite3.SQLITE_BUSY: StoreLocked(where, round(wait_s * 1000), ""),
        sqlite3.SQLITE_LOCKED: StoreLocked(where, round(wait_s * 1000), ""),
        sqlite3.SQLITE_PROTOCOL: StoreLocked(where, round(wait_s * 1000), ""),
        sqlite3.SQLITE_FULL: StoreFull(where),
        sqlite3.SQLITE_READONLY: StoreReadOnly(where),
        sqlite3.SQLITE_CORRUPT: StoreDamaged(where, why),
        sqlite3.SQLITE_NOTADB: NotAStore(where, "it is no SQLite database"),
        sqlite3.SQLITE_CANTOPEN: StoreForbidden(where, "the database, or a file beside it, cannot be opened"),
        sqlite3.SQLITE_PERM: StoreForbidden(where, "permission denied"),
        sqlite3.SQLITE_IOERR: StoreBroken(where, f"{why} ({getattr(error, 'sqlite_errorname', 'SQLITE_IOERR')})"),
        sqlite3.SQLITE_NOLFS: StoreBroken(where, why),
        sqlite3.SQLITE_NOMEM: StoreBroken(where, "out of memory"),
    }
    if primary in simple:
        return simple[primary]
    if primary == sqlite3.SQLITE_ERROR and ("no such table" in str(error) or "no such column" in str(error)):
        return StoreDamaged(where, why)
    return None


def translation(error: BaseException | None, path: Path, wait_s: float) -> StoreError | None:
    """A failure of the environment as ours; None for mistakes of ours."""
    failure: StoreFailure | None = None
    match error:
        case DBAPIError() | sqlite3.Error():
            original = error.orig if isinstance(error, DBAPIError) else error
            if isinstance(original, sqlite3.Error):
                refused = getattr(original, "sqlite_errorcode", None) in _NO_NEXT
                failure = (_no_next(path) if refused else None) or sqlite_failure(original, path, wait_s)
        case BadCell():
            failure = StoreDamaged(str(path), str(error))
        case OSError():
            failure = os_failure(error, path)
        case BaseException() | None:
            pass
    if failure is None:
        return None
    told = StoreError(failure)
    told.__cause__ = error
    return told


def translated(path: Path, wait_s: float) -> AbstractContextManager[None]:
    """Turns failures of the environment inside the block into ``StoreError``; mistakes of ours go through as they are."""
    return translated_by(lambda error: translation(error, path, wait_s))
