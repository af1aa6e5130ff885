"""The environment failing under a store: every way has a type, says what is wrong and where, and names what mends it.

These are no answers of the domain (those are ``Refused`` values): nothing was decided, and nothing that was recorded before is lost.
"""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class StoreMissing:
    """There is no store in the folder."""

    where: str

    def what(self) -> str:
        return "there is no store here"

    def remedy(self) -> str:
        return "go to the project's folder, or create one: countermark store init"


@final
@dataclass(frozen=True, slots=True)
class StoreIncomplete:
    """One of the store's files is gone while the other is there."""

    where: str
    missing: str

    def what(self) -> str:
        return f"the store's file {self.missing} is missing"

    def remedy(self) -> str:
        back = f"put {self.missing} back from a backup"
        if self.missing.startswith("ledger"):
            # An empty one is never made beside what a ledger recorded: it would hide that something was lost.
            return f"{back}; to begin anew without it, move {self.where} away, and then: countermark store init"
        return f"{back}; for an empty one (past sweeps stay lost): countermark store init"


@final
@dataclass(frozen=True, slots=True)
class NotAStore:
    """The file is not one of ours; it is left as it is."""

    where: str
    why: str

    def what(self) -> str:
        return f"this file is not a countermark store: {self.why}"

    def remedy(self) -> str:
        return "move the file out of the way or restore it from a backup; it was not touched"


@final
@dataclass(frozen=True, slots=True)
class StoreOfAnotherVersion:
    """The schema is newer or older than the one that this program reads."""

    where: str
    found: int
    supported: int

    def what(self) -> str:
        return f"the store has schema {self.found}, this countermark reads schema {self.supported}"

    def remedy(self) -> str:
        if self.found > self.supported:
            return "use the countermark release that wrote it, or a later one; the store was not touched"
        return "bring it to this release's schema, after every other countermark process has ended: countermark store migrate"


@final
@dataclass(frozen=True, slots=True)
class StoreLocked:
    """Another process holds the store longer than we wait."""

    where: str
    waited_ms: int
    holder: str

    def what(self) -> str:
        by = f" by process {self.holder}" if self.holder else ""
        return f"the store is locked{by}; waited {self.waited_ms / 1000:.1f} s"

    def remedy(self) -> str:
        look = f" (look at it: ps -fp {self.holder})" if self.holder else ""
        return f"try again when that process has finished, or end it{look}; nothing was written"


@final
@dataclass(frozen=True, slots=True)
class StoreInUse:
    """Others have the store open while it is to be migrated; ``holders`` are those of them that could be seen."""

    where: str
    waited_ms: int
    holders: tuple[str, ...]

    def what(self) -> str:
        by = f" by {', '.join(self.holders)}" if self.holders else ""
        return f"the store is open elsewhere{by}; waited {self.waited_ms / 1000:.1f} s"

    def remedy(self) -> str:
        return "end every countermark process of this store, those of an older release too, then: countermark store migrate"


@final
@dataclass(frozen=True, slots=True)
class StoreFull:
    """The disk, or a quota on it, has no room left."""

    where: str

    def what(self) -> str:
        return "the disk is full"

    def remedy(self) -> str:
        return "make room on this file system and repeat the command; what was recorded before is whole"


@final
@dataclass(frozen=True, slots=True)
class StoreReadOnly:
    """The store lies on something that cannot be written."""

    where: str

    def what(self) -> str:
        return "the store cannot be written: the file system is mounted read-only"

    def remedy(self) -> str:
        return "mount it for writing, or copy the folder to a disk that can be written and name that one as the store"


@final
@dataclass(frozen=True, slots=True)
class StoreForbidden:
    """The user may not read or write the store."""

    where: str
    why: str

    def what(self) -> str:
        return f"the store cannot be opened: {self.why}"

    def remedy(self) -> str:
        return "give your user read and write permission on the store's folder and the files in it"


@final
@dataclass(frozen=True, slots=True)
class StoreOnNetwork:
    """The file system is shared between machines, where SQLite's log and locks do not hold."""

    where: str
    filesystem: str

    def what(self) -> str:
        return f"the store would lie on a network file system ({self.filesystem}), where its locks do not hold"

    def remedy(self) -> str:
        return "keep the store on a local disk, for example --store sqlite:///home/…/.countermark"


@final
@dataclass(frozen=True, slots=True)
class StoreUnplaced:
    """It cannot be told on which kind of file system the store lies."""

    where: str
    why: str

    def what(self) -> str:
        return f"it cannot be told on which file system the store lies: {self.why}"

    def remedy(self) -> str:
        return "make /proc readable (mount -t proc proc /proc), so that a network file system can be told from a local one"


@final
@dataclass(frozen=True, slots=True)
class SqliteWithoutSearch:
    """The SQLite that this Python was built with lacks the extension by which sessions are searched."""

    where: str
    version: str

    def what(self) -> str:
        return f"this Python's SQLite ({self.version}) was built without FTS5, by which sessions are searched"

    def remedy(self) -> str:
        return "use a Python whose SQLite has FTS5, as those of python.org, Debian and conda have; nothing was written"


@final
@dataclass(frozen=True, slots=True)
class StoreDamaged:
    """The database says of itself that it is damaged, or was moved or replaced while it was open."""

    where: str
    why: str

    def what(self) -> str:
        return f"the store is damaged: {self.why}"

    def remedy(self) -> str:
        return "stop every countermark process, keep a copy of the folder, and look: countermark store check; then restore a backup"


@final
@dataclass(frozen=True, slots=True)
class StoreBroken:
    """The operating system failed a read or write."""

    where: str
    why: str

    def what(self) -> str:
        return f"reading or writing the store failed: {self.why}"

    def remedy(self) -> str:
        return "look at the disk (dmesg, df, quota), then repeat the command: whether the last fact was written shows when it is read again"


@final
@dataclass(frozen=True, slots=True)
class StoreAddressUnknown:
    """The address names no kind of store that there is; or ``why`` no driver takes it."""

    where: str
    why: str = ""

    def what(self) -> str:
        return f"this address cannot be used: {self.why}" if self.why else "this address names no kind of store"

    def remedy(self) -> str:
        return "name a folder as sqlite:///PATH, or a database as postgresql://USER@HOST/DATABASE"


@final
@dataclass(frozen=True, slots=True)
class DriverMissing:
    """The package that talks to the database is not installed, or lacks a part; ``extra`` installs it."""

    where: str
    why: str
    extra: str

    def what(self) -> str:
        return f"the driver for this database is not installed: {self.why}"

    def remedy(self) -> str:
        return f"pip install 'countermark[{self.extra}]'"


@final
@dataclass(frozen=True, slots=True)
class ServerUnreachable:
    """No database server answers, or it broke off."""

    where: str
    why: str

    def what(self) -> str:
        return f"the database server cannot be reached: {self.why}"

    def remedy(self) -> str:
        return "see that the server runs and takes connections, then repeat the command: whether the last fact was written shows then"


@final
@dataclass(frozen=True, slots=True)
class DatabaseMissing:
    """The server has no database of this name."""

    where: str
    name: str

    def what(self) -> str:
        return f"the server has no database {self.name}"

    def remedy(self) -> str:
        return f"check the address, or make the database (createdb {self.name}) and then the store: countermark store init"


@final
@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The server does not let this user in."""

    where: str
    user: str
    why: str

    def what(self) -> str:
        return f"the database server refuses {self.user or 'the user'}: {self.why}"

    def remedy(self) -> str:
        return "check user and password (a password may lie in ~/.pgpass or PGPASSWORD), and the server's pg_hba.conf"


@final
@dataclass(frozen=True, slots=True)
class PrivilegeMissing:
    """The user lacks a right on the database or on the tables."""

    where: str
    why: str

    def what(self) -> str:
        return f"the database user lacks a right: {self.why}"

    def remedy(self) -> str:
        return (
            "let the owner grant it: USAGE on schema countermark and on its sequences, SELECT and INSERT on its tables, UPDATE on runs, "
            "all on agenda; who makes a store needs CREATE on the database"
        )


@final
@dataclass(frozen=True, slots=True)
class ServerTooOld:
    """The server lacks what the store needs."""

    where: str
    found: str
    needed: str

    def what(self) -> str:
        return f"the database server is PostgreSQL {self.found}, and {self.needed} or later is needed"

    def remedy(self) -> str:
        return f"use a server of PostgreSQL {self.needed} or later; nothing was written"


@final
@dataclass(frozen=True, slots=True)
class ServerTakesNoWrites:
    """The server is a standby, or set to read only."""

    where: str

    def what(self) -> str:
        return "the database server takes no writes: it is a standby, or it is set to read only"

    def remedy(self) -> str:
        return "name the primary server (the address may list several hosts with target_session_attrs=read-write)"


@final
@dataclass(frozen=True, slots=True)
class CommitNotDurable:
    """The server would answer before a commit is on its disk; ``settings`` are those that say so, each with its value."""

    where: str
    settings: tuple[str, ...]

    def what(self) -> str:
        return f"the server answers before a commit is on its disk: {', '.join(self.settings)}"

    def remedy(self) -> str:
        return "set synchronous_commit to on (and fsync too) for the server, the database and the role: a lost claim starts a run twice"


StoreFailure = (
    StoreMissing
    | StoreIncomplete
    | NotAStore
    | StoreOfAnotherVersion
    | StoreLocked
    | StoreInUse
    | StoreFull
    | StoreReadOnly
    | StoreForbidden
    | StoreOnNetwork
    | StoreUnplaced
    | SqliteWithoutSearch
    | StoreDamaged
    | StoreBroken
    | StoreAddressUnknown
    | DriverMissing
    | ServerUnreachable
    | DatabaseMissing
    | LoginRefused
    | PrivilegeMissing
    | ServerTooOld
    | ServerTakesNoWrites
    | CommitNotDurable
)


class StoreError(Exception):
    """A store that cannot be used now: ``what`` is wrong, ``where``, and the ``remedy``. Surfaces exit with 3."""

    def __init__(self, failure: StoreFailure) -> None:
        self.failure = failure
        self.what = failure.what()
        self.where = failure.where
        self.remedy = failure.remedy()
        super().__init__(f"{self.what} ({self.where}): {self.remedy}")
