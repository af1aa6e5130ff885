"""Making a store on disk, so that a kill at any point leaves either nothing or a whole store.

Rules kept here:

1. Each database is made whole under a temporary name, closed, synced and renamed; the folder is synced. The ledger comes last: where it is,
   everything is.
2. One process makes a store at a time, behind the ticket; who comes second finds it made.
3. A ledger is never made where one has been: beside sweeps, attempts or a write-ahead log that was left behind, its absence is a loss, and
   an empty one would launch again what already ran.
"""

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from sqlalchemy import MetaData

from countermark.files.durable import sync_folder
from countermark.store.failures import StoreError, StoreIncomplete
from countermark.store.schema import APPLICATION_ID, LEDGER, OBSERVATIONS, SCHEMA_VERSION, sqlite_script

LEDGER_FILE: Final = "ledger.sqlite"
OBSERVATIONS_FILE: Final = "observations.sqlite"
TICKET_FILE: Final = "ticket.lock"
ATTEMPTS_FOLDER: Final = "attempts"
_NEW: Final = ".new"


def make_database(path: Path, script: Iterable[str]) -> None:
    """A database of ours at ``path``, which must not be there, made by these statements; the caller holds the ticket."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_NEW}")
    try:
        connection = sqlite3.connect(new, isolation_level=None)
        try:
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute("BEGIN IMMEDIATE")
            for statement in script:
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()
        descriptor = os.open(new, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.rename(path)
    except BaseException:
        _sweep_away(path)
        raise
    sync_folder(path.parent)


def _script(metadata: MetaData) -> tuple[str, ...]:
    """What makes our schema as it is now."""
    applied_ms = time.time_ns() // 1_000_000
    return (*sqlite_script(metadata), f"INSERT INTO schema_versions VALUES ({SCHEMA_VERSION}, {applied_ms})")


def _sweep_away(path: Path) -> None:
    """Take away what a broken-off creation of ``path`` left."""
    for stray in path.parent.glob(f".{path.name}.*{_NEW}*"):
        stray.unlink(missing_ok=True)


def ledger_was_here(folder: Path) -> bool:
    """Whether something in the folder could only have come after a ledger."""
    if any((folder / f"{LEDGER_FILE}{suffix}").exists() for suffix in ("-wal", "-journal")):
        return True
    attempts, observations = folder / ATTEMPTS_FOLDER, folder / OBSERVATIONS_FILE
    return (attempts.is_dir() and any(attempts.iterdir())) or (observations.exists() and _holds_sweeps(observations))


def _holds_sweeps(path: Path) -> bool:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
    try:
        return connection.execute("SELECT 1 FROM sweeps LIMIT 1").fetchone() is not None
    finally:
        connection.close()


def make_store(folder: Path, between: Callable[[str], None] = lambda done: None) -> tuple[str, ...]:
    """Make what is missing of a store; the caller holds the ticket. Returns the names of the files that were made.

    ``between`` is told each step once it is done. Raises ``StoreError`` where an empty ledger would hide a loss.
    """
    ledger, observations = folder / LEDGER_FILE, folder / OBSERVATIONS_FILE
    made: list[str] = []
    _sweep_away(ledger)
    _sweep_away(observations)
    if not ledger.exists() and ledger_was_here(folder):
        raise StoreError(StoreIncomplete(str(folder), LEDGER_FILE))
    if not observations.exists():
        between("begun")
        make_database(observations, _script(OBSERVATIONS))
        made.append(OBSERVATIONS_FILE)
        between(OBSERVATIONS_FILE)
    if not ledger.exists():
        make_database(ledger, _script(LEDGER))
        made.append(LEDGER_FILE)
        between(LEDGER_FILE)
    return tuple(made)
