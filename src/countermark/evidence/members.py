"""What observers may say: members of the five axes, and populations with three arms.

Rules kept here:

1. Each axis is a population of members, never a single value, and it has one arm per source.
2. There is no "absent": only ``Observed`` with no members says "there is none"; a partial read is ``ReadRefused``.
3. A process is identified by host, boot, pid namespace, pid and start time together; a pid alone is reused by the system.
4. An effective manifest is typed per coordinate, so that a difference has a name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, final

from countermark.run.attempts import AttemptKey
from countermark.run.checkpoint import CheckpointReadback
from countermark.run.demand import Subject
from countermark.values import NonEmpty, Sha256

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


@final
@dataclass(frozen=True, slots=True)
class Succeeded:
    """The trainer's main process exited with 0: its word, not yet a conclusion."""


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """The trainer exited with another code."""

    exit_code: int


@final
@dataclass(frozen=True, slots=True)
class NotExecuted:
    """COMMAND never ran; ``exit_code`` is what a shell would say (127 not found, 126 not executable), ``why`` what stood in its way."""

    exit_code: int
    why: str


@final
@dataclass(frozen=True, slots=True)
class Killed:
    """The trainer died of a signal."""

    signal: int


@final
@dataclass(frozen=True, slots=True)
class CancelledByRequest:
    """The attempt was stopped because somebody asked for it."""


@final
@dataclass(frozen=True, slots=True)
class Preempted:
    """The scheduler took the machine away."""


Outcome = Succeeded | Failed | NotExecuted | Killed | CancelledByRequest | Preempted


@final
@dataclass(frozen=True, slots=True)
class Terminal:
    """An attempt's end as one source recorded it; ``at_ms`` is that source's clock (UTC) and never used as order."""

    attempt: AttemptKey
    outcome: Outcome
    source: str
    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class ExecutionIdentity:
    """One execution on one machine: what tells a process from a later one with the same pid."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int


#: ``alive``: the trainer or a descendant holds the claim's lock. ``settling``: only the supervisor lives, its terminal may still come.
#: ``unbarred``: a cancelled run's attempt could still begin, for no trainer of it was seen, alive or dead, and no fence stands before it.
ProcessState = Literal["alive", "settling", "dead", "unbarred"]


@final
@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """An execution of an attempt. ``execution`` is the trainer's, also while only its supervisor lives; it is None when a lock proves life
    before the process wrote its receipt. An unidentified execution may be any other one that was seen, so it is never counted beside it."""

    attempt: AttemptKey
    execution: ExecutionIdentity | None
    state: ProcessState

    @property
    def lives(self) -> bool:
        """Whether the trainer, a descendant of it or its supervisor lives."""
        return self.state in ("alive", "settling")


@final
@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """Something checkpoint-like exists; licenses no resume by itself (see ``admit_checkpoint``)."""

    attempt: AttemptKey
    step: int
    path: str
    readback: CheckpointReadback


@final
@dataclass(frozen=True, slots=True)
class OutputSeen:
    """The folder at the attempt's output place, as the observer read it back: digest, bytes, and what proves its publication."""

    attempt: AttemptKey
    path: str
    digest: Sha256
    size_bytes: int
    materialization: str


How = Literal["live_object", "file_hash", "artifact", "passed_through"]


@final
@dataclass(frozen=True, slots=True)
class Read:
    """A coordinate's canonical spelling as it was found, and how."""

    value: str
    how: How


@final
@dataclass(frozen=True, slots=True)
class Unread:
    """Why nobody could read the coordinate."""

    reason: str


@final
@dataclass(frozen=True, slots=True)
class ManifestSeen:
    """An effective manifest: for each coordinate that ``source`` speaks of, what it read."""

    attempt: AttemptKey
    source: str
    coordinates: Mapping[str, Read | Unread]


Member = Terminal | ProcessSeen | CheckpointSeen | OutputSeen | ManifestSeen


@final
@dataclass(frozen=True, slots=True)
class EnumerationReceipt:
    """The enumeration that produced a reading: its id, who looked from which host, and when (milliseconds UTC, never order)."""

    id: str
    observer: str
    host: str
    started_ms: int
    ended_ms: int


@final
@dataclass(frozen=True, slots=True)
class Misfiled:
    """A receipt in an attempt's own folder that names another attempt (``names``, as it stood there): a member of neither."""

    folder: AttemptKey
    names: str


@final
@dataclass(frozen=True, slots=True)
class Observed(Generic[M_co]):
    """The source was read completely; no members means that there is none. ``misfiled`` receipts make the composition refuse."""

    members: tuple[M_co, ...]
    receipt: EnumerationReceipt
    misfiled: tuple[Misfiled, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class NotAttempted:
    """Nobody looked at this source."""

    why: str


@final
@dataclass(frozen=True, slots=True)
class ReadRefused:
    """Somebody looked and could not produce a complete reading."""

    reason: str
    receipt: EnumerationReceipt


@final
@dataclass(frozen=True, slots=True)
class SourceReading(Generic[M_co]):
    """One source of an axis and its arm. ``about``: the one attempt that the source can speak of, as a folder of its own; None: any."""

    source: str
    arm: "Observed[M_co] | NotAttempted | ReadRefused"
    about: AttemptKey | None = None


@final
@dataclass(frozen=True, slots=True)
class Population(Generic[M_co]):
    """An axis as read at one stage: every source with its own arm."""

    readings: NonEmpty[SourceReading[M_co]]

    def members(self) -> Iterator[M_co]:
        """Every member that any source saw; a refused source hides none of another's."""
        return (member for arm in self._complete_readings() for member in arm.members)

    def misfiled(self) -> Iterator[Misfiled]:
        """Every receipt that some source found in another attempt's folder than it names."""
        return (stray for arm in self._complete_readings() for stray in arm.misfiled)

    def _complete_readings(self) -> Iterator[Observed[M_co]]:
        return (reading.arm for reading in self.readings if isinstance(reading.arm, Observed))

    def complete(self) -> bool:
        """Whether a conclusion from absence is licensed about every attempt: every source was read completely."""
        return all(isinstance(reading.arm, Observed) for reading in self.readings)

    def blind_about(self) -> frozenset[AttemptKey | None]:
        """The attempts about which no conclusion from absence is licensed, because a source that speaks of them was not read completely;
        None among them stands for every attempt."""
        return frozenset(reading.about for reading in self.readings if not isinstance(reading.arm, Observed))

    def receipts(self) -> tuple[EnumerationReceipt, ...]:
        """The receipts of all sources that somebody looked at, in source order."""
        return tuple(reading.arm.receipt for reading in self.readings if not isinstance(reading.arm, NotAttempted))


def one_source(source: str, arm: "Observed[M] | NotAttempted | ReadRefused") -> Population[M]:
    """The population of an axis that has a single source."""
    return Population(NonEmpty(SourceReading(source, arm)))


@final
@dataclass(frozen=True, slots=True)
class RawRead(Generic[M_co]):
    """A population with the subject that it was read for."""

    subject: Subject
    population: Population[M_co]
