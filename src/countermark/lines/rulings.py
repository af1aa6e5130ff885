"""Defects of a person's ruling on a blocked run, and of replaying a stored sweep."""

from dataclasses import dataclass
from typing import final

from countermark.run.attempts import AttemptKey


@final
@dataclass(frozen=True, slots=True)
class RunNotBlocked:
    """There is nothing to rule on: the run is not blocked; ``verdict`` is the arm that was concluded."""

    verdict: str


@final
@dataclass(frozen=True, slots=True)
class AttemptNotOfRun:
    """No attempt of the run, or more than one, goes by this name; ``attempts`` are those that there are."""

    name: str
    attempts: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class AttemptNotBlocked:
    """No conflict is about this attempt; ``blocked`` are those that conflicts are about."""

    attempt: AttemptKey
    blocked: tuple[AttemptKey, ...]


@final
@dataclass(frozen=True, slots=True)
class SeveralBlocked:
    """Conflicts are about several attempts, and a ruling is on one."""

    attempts: tuple[AttemptKey, ...]


@final
@dataclass(frozen=True, slots=True)
class NothingToBelieve:
    """Of the attempt no terminals contradict each other, so believing ``source`` would settle nothing; ``blockers`` are its conflicts."""

    attempt: AttemptKey
    source: str
    blockers: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SourceSilent:
    """The source said nothing about how the attempt ended; ``sources`` did."""

    attempt: AttemptKey
    source: str
    sources: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SourceContradictsItself:
    """The source said several things about how the attempt ended (``said``), so believing it tells nothing."""

    attempt: AttemptKey
    source: str
    said: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SweepOfAnotherRun:
    """The sweep looked at another run (``of``) than the one named."""

    sweep: str
    of: str
    run: str


@final
@dataclass(frozen=True, slots=True)
class VerdictDiffers:
    """What follows from the sweep now is not what was stored with it, byte for byte."""

    sweep: str
    stored: str
    replayed: str


RulingDefect = (
    RunNotBlocked | AttemptNotOfRun | AttemptNotBlocked | SeveralBlocked | NothingToBelieve | SourceSilent | SourceContradictsItself
    | SweepOfAnotherRun | VerdictDiffers
)  # fmt: skip
