"""Opening a store to read from it, also where nothing can be written: on a read-only disk, or in a folder of somebody else's.

Rules kept here:

1. Where a store can be opened as usual, it is. SQLite keeps an index beside a database even for reading, so what cannot be written is
   copied into a folder of its own first, and read there; the copy is gone afterwards.
2. A copy is taken whole or not at all: where a file changed while it was copied, it is copied again.
"""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.failures import StoreError, StoreForbidden, StoreLocked, StoreReadOnly
from countermark.store.interface import Store
from countermark.store.opening import SQLITE, folder_of, open_store
from countermark.store.sqlite_errors import os_failure

#: How often a store that somebody writes to is copied before that is given up.
_TRIES: Final = 5


@contextmanager
def open_to_read(url: str) -> Generator[Store, None, None]:
    """The store at ``url``, to be read from and nothing else. Raises ``StoreError``."""
    try:
        store = open_store(url, create=False)
    except StoreError as error:
        folder = folder_of(url)
        if folder is None or not isinstance(error.failure, StoreReadOnly | StoreForbidden):
            raise
    else:
        with store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="countermark-") as place:
        _copy(folder, Path(place))
        with open_store(f"{SQLITE}{place}", create=False) as copied:
            yield copied


def _files(folder: Path) -> tuple[Path, ...]:
    """What a store's databases consist of, each with its log; the index beside it is made anew."""
    names = (f"{name}{suffix}" for name in (LEDGER_FILE, OBSERVATIONS_FILE) for suffix in ("", "-wal"))
    return tuple(path for path in (folder / name for name in names) if path.exists())


def _state(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    found = ((path.name, path.stat()) for path in _files(folder))
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def _copy(folder: Path, place: Path) -> None:
    try:
        for _ in range(_TRIES):
            before = _state(folder)
            for path in _files(folder):
                shutil.copyfile(path, place / path.name)
            if _state(folder) == before:
                return
            for path in place.iterdir():
                path.unlink()
    except OSError as error:
        raise StoreError(os_failure(error, folder)) from error
    raise StoreError(StoreLocked(str(folder), 0, ""))
