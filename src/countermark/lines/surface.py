"""Defects of the rooms above the formatters: of the operations and of the surfaces themselves.

They stand here, beneath the rooms that find them, because every defect has its sentence in this room and nothing is formatted elsewhere.
"""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class WrongUsage:
    """A command was called in a way that it does not have; ``why`` says so and ``usage`` shows how it is called."""

    why: str
    usage: str


@final
@dataclass(frozen=True, slots=True)
class SettingUnknown:
    """``source`` sets something that is no setting; ``nearest`` are the settings that are spelled like it."""

    setting: str
    source: str
    nearest: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SettingUnreadable:
    """``source`` sets ``setting`` to something that cannot be read; ``why`` is a clause that fits after "because"."""

    setting: str
    source: str
    found: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class EnvironmentFault:
    """Something outside failed (store, disk, machine): ``what`` failed, ``where``, and what mends it."""

    what: str
    where: str
    mend: str


@final
@dataclass(frozen=True, slots=True)
class RetriesUsedUp:
    """Another attempt would be a retry, and no more of them were allowed."""

    allowed: int
    used: int


@final
@dataclass(frozen=True, slots=True)
class CommandDiffers:
    """The run was attached to, and it was recorded with another command than the one given now; a warning."""

    recorded: tuple[str, ...]
    given: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class NameUnknown:
    """Nothing in the store is called so; ``kind`` is a phrase like "run" or "run or attempt"."""

    kind: str
    name: str


@final
@dataclass(frozen=True, slots=True)
class NameAmbiguous:
    """A shortened id names several things, all listed."""

    kind: str
    name: str
    candidates: tuple[str, ...]


SurfaceDefect = (
    WrongUsage | SettingUnknown | SettingUnreadable | EnvironmentFault | RetriesUsedUp | CommandDiffers | NameUnknown | NameAmbiguous
)
