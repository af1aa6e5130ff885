"""What can be wrong with a file of samples and with what an arm printed: every fault on its line, counted from 1."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class OutputLineUnreadable:
    """A line that was to be a result and is none."""

    line: int
    why: str


@final
@dataclass(frozen=True, slots=True)
class OutputOfUnknownSample:
    """A result for an id that this job was not asked."""

    line: int
    id: str


@final
@dataclass(frozen=True, slots=True)
class OutputRepeated:
    """A second result for one id; the first finished one counts."""

    line: int
    id: str
    first_line: int


@final
@dataclass(frozen=True, slots=True)
class OutputOfOtherRepeat:
    """A result for another repeat than the job's."""

    line: int
    repeat: int
    expected: int


@final
@dataclass(frozen=True, slots=True)
class ScoreUnusable:
    """A score, or a number of the arm, that cannot be compared. ``id`` is empty for a number of the arm."""

    line: int
    id: str
    metric: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class ArmMetricRepeated:
    """A number of the arm that was told before; the first one counts."""

    line: int
    metric: str


@final
@dataclass(frozen=True, slots=True)
class SeedNotUsed:
    """The arm says that it used another seed than it was given, or several."""

    line: int
    given: str
    used: str


@final
@dataclass(frozen=True, slots=True)
class SampleMissing:
    """An id that was asked and of which the arm told nothing."""

    id: str


@final
@dataclass(frozen=True, slots=True)
class FaultsOmitted:
    """More faults than are listed."""

    count: int


OutputFault = (
    OutputLineUnreadable | OutputOfUnknownSample | OutputRepeated | OutputOfOtherRepeat | ScoreUnusable | ArmMetricRepeated | SeedNotUsed
    | SampleMissing | FaultsOmitted
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class SampleLineUnreadable:
    """A line of a file of samples that is no sample."""

    line: int
    why: str


@final
@dataclass(frozen=True, slots=True)
class SampleIdRepeated:
    """Two samples have one id."""

    line: int
    id: str
    first_line: int


@final
@dataclass(frozen=True, slots=True)
class SamplesMissing:
    """A file of samples without one."""


@final
@dataclass(frozen=True, slots=True)
class ClusterKeyUnknown:
    """No sample has the key that was to name its cluster."""

    key: str


SamplesDefect = SampleLineUnreadable | SampleIdRepeated | SamplesMissing | ClusterKeyUnknown | FaultsOmitted
