"""The observation cut: which stages of a sweep ran, in which order.

Rules kept here:

1. A sweep reads terminals, processes, outputs, checkpoints, manifests, and terminals again. No single pass over the axes could license
   every conclusion, so an axis may stand twice; order is asked between *stages*.
2. The cut is the sequence of stages that really ran, each with the receipts of its reading. There is no second table of positions. A
   stage at which nobody looked at any source did not run, even though the sweep went past it.
3. Wall-clock times are never order. A sweep that was broken off orders nothing.
4. Each stage's token is a type of its own, so skipping a stage does not type-check; it is refused at run time as well, because holding a
   token is no authorization: its subject is compared.
"""

from dataclasses import dataclass
from typing import Literal, final

from countermark.evidence.members import EnumerationReceipt
from countermark.run.demand import Subject

Stage = Literal["terminals", "processes", "outputs", "checkpoints", "manifests", "terminals_again"]
STAGES: tuple[Stage, ...] = ("terminals", "processes", "outputs", "checkpoints", "manifests", "terminals_again")


@final
@dataclass(frozen=True, slots=True)
class Ordered:
    """The earlier stage was read before the later one."""


@final
@dataclass(frozen=True, slots=True)
class OutOfOrder:
    """Both stages were read, the other way round."""


@final
@dataclass(frozen=True, slots=True)
class Unobserved:
    """The cut does not order the two: another subject's, broken off, or a stage is missing. This is no "no"."""

    why: str


Order = Ordered | OutOfOrder | Unobserved


@final
@dataclass(frozen=True, slots=True)
class StageRead:
    """One stage that ran, with the receipts of every source that was looked at."""

    stage: Stage
    receipts: tuple[EnumerationReceipt, ...]


@final
@dataclass(frozen=True, slots=True)
class ObservationCut:
    """The stages of one sweep over one subject, in the order in which they ran. ``finished`` is False when the sweep was broken off."""

    subject: Subject
    stages: tuple[StageRead, ...]
    finished: bool

    def __post_init__(self) -> None:
        names = [read.stage for read in self.stages]
        if len(set(names)) != len(names):
            raise ValueError("a stage runs once in a sweep")

    def order(self, subject: Subject, earlier: Stage, later: Stage) -> Order:
        """Whether this sweep read ``earlier`` before ``later`` for ``subject``."""
        if self.subject != subject:
            return Unobserved("the sweep is about another subject")
        if not self.finished:
            return Unobserved("the sweep was broken off")
        positions = {read.stage: position for position, read in enumerate(self.stages)}
        missing = [stage for stage in (earlier, later) if stage not in positions]
        if missing:
            return Unobserved("the sweep did not read " + " and ".join(missing))
        return Ordered() if positions[earlier] < positions[later] else OutOfOrder()


@dataclass(frozen=True, slots=True)
class _Token:
    subject: Subject
    stages: tuple[StageRead, ...]


@final
@dataclass(frozen=True, slots=True)
class TerminalsDone(_Token):
    """Terminals were read once; processes come next."""


@final
@dataclass(frozen=True, slots=True)
class ProcessesDone(_Token):
    """Processes were read; outputs come next."""


@final
@dataclass(frozen=True, slots=True)
class OutputsDone(_Token):
    """Outputs were read; checkpoints come next."""


@final
@dataclass(frozen=True, slots=True)
class CheckpointsDone(_Token):
    """Checkpoints were read; manifests come next."""


@final
@dataclass(frozen=True, slots=True)
class ManifestsDone(_Token):
    """Manifests were read; terminals come again."""


@final
@dataclass(frozen=True, slots=True)
class SweepDone(_Token):
    """All six stages were read."""


SweepToken = TerminalsDone | ProcessesDone | OutputsDone | CheckpointsDone | ManifestsDone | SweepDone
Receipts = tuple[EnumerationReceipt, ...]


class StageSkipped(ValueError):
    """A stage was recorded on the token of another stage or another subject: a bug in the sweep, never evidence."""


def _ran(stage: Stage, receipts: Receipts) -> tuple[StageRead, ...]:
    """The stage as the cut holds it: nothing where nobody looked."""
    return (StageRead(stage, receipts),) if receipts else ()


def _next(token: _Token, wanted: type[_Token], subject: Subject, stage: Stage, receipts: Receipts) -> tuple[StageRead, ...]:
    if type(token) is not wanted:
        raise StageSkipped(f"{stage} follows {wanted.__name__}, not {type(token).__name__}")
    if token.subject != subject:
        raise StageSkipped(f"{stage} was read for another subject than the sweep's")
    return (*token.stages, *_ran(stage, receipts))


def after_terminals(subject: Subject, receipts: Receipts) -> TerminalsDone:
    """Begin a sweep: terminals were read."""
    return TerminalsDone(subject, _ran("terminals", receipts))


def after_processes(token: TerminalsDone, subject: Subject, receipts: Receipts) -> ProcessesDone:
    """Processes were read, after terminals."""
    return ProcessesDone(subject, _next(token, TerminalsDone, subject, "processes", receipts))


def after_outputs(token: ProcessesDone, subject: Subject, receipts: Receipts) -> OutputsDone:
    """Outputs were read, after processes."""
    return OutputsDone(subject, _next(token, ProcessesDone, subject, "outputs", receipts))


def after_checkpoints(token: OutputsDone, subject: Subject, receipts: Receipts) -> CheckpointsDone:
    """Checkpoints were read, after outputs."""
    return CheckpointsDone(subject, _next(token, OutputsDone, subject, "checkpoints", receipts))


def after_manifests(token: CheckpointsDone, subject: Subject, receipts: Receipts) -> ManifestsDone:
    """Effective manifests were read, after checkpoints."""
    return ManifestsDone(subject, _next(token, CheckpointsDone, subject, "manifests", receipts))


def after_terminals_again(token: ManifestsDone, subject: Subject, receipts: Receipts) -> SweepDone:
    """Terminals were read a second time: the sweep is whole."""
    return SweepDone(subject, _next(token, ManifestsDone, subject, "terminals_again", receipts))


def cut_of(token: SweepToken) -> ObservationCut:
    """The cut of a sweep as far as it came; only a whole sweep orders anything."""
    return ObservationCut(token.subject, token.stages, isinstance(token, SweepDone))
