"""What a migration will do, did, or found."""

from dataclasses import dataclass
from typing import final

from countermark.store.interface import Finding


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One version's script: the version that it leads to, and what it changes."""

    version: int
    what: str


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The steps from version ``found`` to version ``wanted``; ``place`` is where the store lies, as a person may be shown it."""

    place: str
    found: int
    wanted: int
    steps: tuple[Step, ...]


@final
@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The store has the version that this program reads."""

    place: str
    version: int


@final
@dataclass(frozen=True, slots=True)
class WouldMigrate:
    """What a migration would do; nothing was written. ``backup``: the folder that copies would go to."""

    plan: Plan
    backup: str | None


@final
@dataclass(frozen=True, slots=True)
class Migrated:
    """The store has this program's version now. ``backup``: the folder with copies of what it was, where any were made."""

    plan: Plan
    backup: str | None


@final
@dataclass(frozen=True, slots=True)
class NotWhole:
    """The store is damaged and was left as it is."""

    plan: Plan
    findings: tuple[Finding, ...]


Migration = NothingToDo | WouldMigrate | Migrated | NotWhole


@final
@dataclass(frozen=True, slots=True)
class SessionsMigrated:
    """What became of a store's sessions, or would: from schema ``found`` to schema ``version``, and how many sessions are folded again
    (None where only another schema's tables could tell)."""

    found: int
    version: int
    refolded: int | None


@final
@dataclass(frozen=True, slots=True)
class StoreMigrated:
    """What became of both parts of a store, or would; None for a part that is not there."""

    ledger: Migration | None
    sessions: SessionsMigrated | None
