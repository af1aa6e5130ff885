"""Care for stores and the machine: creating, checking, and saying what is missing."""

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar, final

from countermark.app.stores import ledger_of
from countermark.lines.texts import counted
from countermark.store import Finding, StoreError
from countermark.store.failures import StoreMissing
from countermark.store.migrations.outcome import NotWhole, StoreMigrated

_Looked = TypeVar("_Looked")


def store_init(folder: Path, url: str | None = None) -> bool:
    """Create the store in ``folder`` (its ledger at ``url``), or what is missing of it; whether it was whole before. Raises
    ``StoreError``."""
    from countermark.store.opening import make_store

    return not make_store(ledger_of(folder, url))


def store_migrate(folder: Path, url: str | None, dry_run: bool) -> StoreMigrated:
    """Bring the store in ``folder`` (its ledger at ``url``) to this release's schema, or say what that would do. Either part may be
    missing: sessions need no ledger. Raises ``StoreError``."""
    from countermark.store.opening import migrate_sessions, migrate_store

    address = ledger_of(folder, url)
    ledger, missing = _unless_missing(lambda: migrate_store(address, dry_run))
    sessions = None if isinstance(ledger, NotWhole) else migrate_sessions(address, dry_run)
    if missing is not None and sessions is None:
        raise missing
    return StoreMigrated(ledger, sessions)


def store_check(folder: Path, url: str | None = None) -> tuple[Finding, ...]:
    """Everything that is wrong with the store in ``folder`` (its ledger at ``url``), either part of which may be missing. Raises
    ``StoreError`` where it cannot be opened."""
    from countermark.store.opening import check_sessions, open_store

    def ledger() -> tuple[Finding, ...]:
        with open_store(ledger_of(folder, url), create=False) as store:
            return store.check()

    found, missing = _unless_missing(ledger)
    sessions = check_sessions(ledger_of(folder, url))
    if missing is not None and sessions is None:
        raise missing
    return (*(found or ()), *(sessions or ()))


def _unless_missing(look: Callable[[], _Looked]) -> tuple[_Looked, None] | tuple[None, StoreError]:
    """What looking gave, or that nothing is there to look at. Raises any other ``StoreError``."""
    try:
        return look(), None
    except StoreError as error:
        if not isinstance(error.failure, StoreMissing):
            raise
        return None, error


@final
@dataclass(frozen=True, slots=True)
class Checkup:
    """One thing that was looked at: whether it is well, what was found, and what mends it (empty where it is well)."""

    name: str
    ok: bool
    found: str
    remedy: str


#: What each optional part needs, and what it is for.
_PARTS = (
    ("torch", "train", "training with countermark.train"),
    ("transformers", "train", "training with countermark.train"),
    ("peft", "train", "training with countermark.train"),
    ("accelerate", "train", "training with countermark.train"),
    ("psycopg", "postgres", "a ledger in PostgreSQL"),
    ("numpy", "weights", "countermark weights diff"),
    ("trl", "trl", "recipes and trainers of TRL"),
    ("pyarrow", "parquet", "countermark export to Parquet"),
    ("mcp", "mcp", "countermark mcp"),
    ("lightning", "lightning", "training with Lightning"),
    ("starlette", "server", "taking in events over HTTP"),
)
_FREE_BYTES_MIN = 1 << 30


def doctor(folder: Path, url: str | None = None, forward: str = "") -> tuple[Checkup, ...]:
    """The machine, the store, sending on (to ``forward``, if anywhere) and the optional parts, each with what mends it."""
    sending = (_forwarding(folder, url, forward),) if forward else ()
    return (_machine(), _locks(), _disk(folder), _store(folder, url), *sending, *(_part(*part) for part in _PARTS))


def _machine() -> Checkup:
    found = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    well = platform.system() == "Linux"
    return Checkup("machine", well, found, "" if well else "the local launcher needs Linux: run countermark there")


def _locks() -> Checkup:
    import fcntl

    well = hasattr(fcntl, "F_OFD_SETLK") and Path("/proc/self/stat").exists()
    found = "open-file-description locks and /proc are there" if well else "open-file-description locks or /proc are missing"
    return Checkup("process observation", well, found, "" if well else "mount /proc, and use a kernel of 3.15 or later")


def _disk(folder: Path) -> Checkup:
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    writable = os.access(place, os.W_OK)
    well = free >= _FREE_BYTES_MIN and writable
    found = f"{free >> 20} MiB are free at {place}" + ("" if writable else ", and it cannot be written")
    return Checkup("disk", well, found, "" if well else "make room or permissions there, or name another place with --store")


def _store(folder: Path, url: str | None) -> Checkup:
    from countermark.store.creation import LEDGER_FILE
    from countermark.store.sessions.sqlite import SESSIONS_FILE

    if url is None and not any((folder / name).exists() for name in (LEDGER_FILE, SESSIONS_FILE)):
        return Checkup("store", True, f"none yet at {folder}; the first run creates it", "")
    try:
        findings = store_check(folder, url)
    except StoreError as error:
        return Checkup("store", False, f"{error.what} ({error.where})", error.remedy)
    place = str(folder) if url is None else "the database"
    if findings:
        return Checkup("store", False, f"{len(findings)} findings at {place}", "see them: countermark store check")
    return Checkup("store", True, f"whole, at {place}", "")


def _forwarding(folder: Path, url: str | None, forward: str) -> Checkup:
    """How far what is sent on to a receiver is."""
    from countermark.store.opening import sink_of
    from countermark.store.sessions.interface import SERVE_SINK, WAITING_COUNTED_MAX

    try:
        state = sink_of(ledger_of(folder, url), SERVE_SINK)
    except StoreError as error:
        return Checkup("forwarding", False, f"{error.what} ({error.where})", error.remedy)
    if state is None:
        return Checkup("forwarding", True, f"nothing yet; countermark serve sends edits on to {forward}", "")
    more = " or more" if state.waiting == WAITING_COUNTED_MAX else ""
    found = f"{counted(state.waiting, 'edit')}{more} waiting for {forward}, {counted(state.aside, 'item')} set aside that it never takes"
    if state.why:
        found += f"; {state.why}"
    remedy = "see that the receiver is there and takes OTLP: serve.forward.endpoint, .mode and .headers"
    return Checkup("forwarding", not state.why and not state.aside, found, remedy if state.why or state.aside else "")


def _part(module: str, extra: str, purpose: str) -> Checkup:
    if importlib.util.find_spec(module) is None:
        return Checkup(module, False, f"not installed; {purpose} needs it", f"pip install 'countermark[{extra}]'")
    try:
        return Checkup(module, True, version(module), "")
    except PackageNotFoundError:
        return Checkup(module, True, "installed, of unknown version", "")
