"""Defects of the rooms above the formatters: of the operations and of the surfaces themselves.

They stand here, beneath the rooms that find them, because every defect has its sentence in this room and nothing is formatted elsewhere.
"""

from dataclasses import dataclass
from typing import final

from countermark.lines.rulings import RulingDefect
from countermark.run.attempts import AttemptKey


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
    """Something outside failed (store, disk, machine): ``what`` failed, ``where``, and what mends it; ``fault`` is its stable name."""

    fault: str
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
class AttemptNotFenced:
    """An attempt could not be barred from beginning late, so starting another beside it is not safe; ``why`` is a clause that fits after
    "because". ``hosts``: where it was to be dispatched, if that is not here."""

    attempt: AttemptKey
    why: str
    hosts: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class StoreFinding:
    """One thing that a check of a store found: its stable name, the place, and what mends it."""

    finding: str
    where: str
    what: str
    mend: str


@final
@dataclass(frozen=True, slots=True)
class NothingNamed:
    """No recipe file, checkpoint, run or attempt goes by this name."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class SeveralNamed:
    """The prefix names several runs or attempts."""

    name: str
    candidates: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SeveralOfStep:
    """Several checkpoints of a folder bear the name of one step, so that the step alone names none of them."""

    path: str
    step: int
    names: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class CheckpointDeclaresNothing:
    """The checkpoint has no manifest of ours in it, so it does not say which computation it belongs to."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class AttemptUnnamed:
    """The folder lies in no attempt's folder, so it does not say whose checkpoint it is."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class AttemptUnrecorded:
    """The folder lies in that of an attempt which no ledger here knows, so nobody can tell which of its checkpoints are needed."""

    path: str
    attempt: str


@final
@dataclass(frozen=True, slots=True)
class CheckpointGone:
    """No checkpoint of the run that can be resumed from is the one that the claim names (its step and digest)."""

    step: int
    digest: str


@final
@dataclass(frozen=True, slots=True)
class SweepUndecodable:
    """A stored sweep has the bytes that were recorded, and they are no sweep of this version; ``why`` is a phrase."""

    sweep: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class ResumeUnavailable:
    """A run cannot be resumed as it stands; ``verdict`` is the arm that was concluded."""

    verdict: str


@final
@dataclass(frozen=True, slots=True)
class CheckpointNotAmong:
    """No admitted checkpoint of the run has the step that was asked for; ``admitted`` are the steps that there are."""

    step: int
    admitted: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class RetryUnavailable:
    """A run cannot be begun again as it stands; ``verdict`` is the arm that was concluded."""

    verdict: str


@final
@dataclass(frozen=True, slots=True)
class CapabilityNotForLost:
    """A capability is given to what follows an attempt that ended; a lost one is relaunched as it was."""

    capability: str


@final
@dataclass(frozen=True, slots=True)
class RunNotAtRest:
    """A run is done once more when every attempt of it has ended and nobody has to look or act first; ``verdict`` is the arm that was
    concluded instead."""

    verdict: str


@final
@dataclass(frozen=True, slots=True)
class RunNamedForAttempt:
    """The id is that of a run, where one of its attempts (``attempts``) is to be named."""

    name: str
    attempts: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class RunMovedMeanwhile:
    """Somebody else acted on the run after it was looked at for this decision; its ledger is at version ``current`` by now."""

    current: int


#: What keeps a person's decision about a run from being taken.
DecisionDefect = (
    ResumeUnavailable | CheckpointNotAmong | RetryUnavailable | CapabilityNotForLost | RunNotAtRest | RunNamedForAttempt
    | RunMovedMeanwhile
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class DifferenceFailsOn:
    """A difference of weights holds what the caller wants to fail on; ``tensors`` are the names that do it."""

    rule: str
    tensors: tuple[str, ...]


SurfaceDefect = (
    WrongUsage | SettingUnknown | SettingUnreadable | EnvironmentFault | RetriesUsedUp | CommandDiffers | AttemptNotFenced | StoreFinding
    | NothingNamed | SeveralNamed | SeveralOfStep | CheckpointDeclaresNothing | AttemptUnnamed | AttemptUnrecorded | CheckpointGone
    | SweepUndecodable | DifferenceFailsOn | DecisionDefect | RulingDefect
)  # fmt: skip
