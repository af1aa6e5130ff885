"""Members and populations of a stored sweep: structs ↔ values.

Rules kept here:

1. Every arm of every closed sum has a struct of its own, told by ``is``; nothing has a default, and what may be missing is a list of at
   most one.
2. An attempt at the sweep's own work is its nonce; any other one carries its Work key and account, so that a foreign member stays foreign.
3. A value reads itself: what is no value of ours raises ``ValueError`` here, which ``countermark.wire.sweep`` turns into a refusal.
"""

from collections.abc import Callable
from typing import Generic, TypeVar, final

from countermark.evidence.members import (
    CancelledByRequest,
    CheckpointSeen,
    EnumerationReceipt,
    ExecutionIdentity,
    Failed,
    How,
    Killed,
    ManifestSeen,
    Misfiled,
    NotAttempted,
    NotExecuted,
    Observed,
    Outcome,
    OutputSeen,
    Population,
    Preempted,
    ProcessSeen,
    ProcessState,
    Read,
    ReadRefused,
    SourceReading,
    Succeeded,
    Terminal,
    Unread,
)
from countermark.recipe import WorkKey
from countermark.run.attempts import AttemptKey, Nonce
from countermark.values import NonEmpty, Sha256, Unreadable
from countermark.wire.sweep_checkpoints import Arm, Maybe, Plain, ReadbackText, readback_of, readback_text

V = TypeVar("V")
M = TypeVar("M")


# ------------------------------------------------------------------------------------------------------------ attempts


def known(value: V | Unreadable) -> V:
    """The value that was read. Raises ``ValueError`` with the reason where there is none."""
    if isinstance(value, Unreadable):
        raise ValueError(value.why)
    return value


def attempt_text(attempt: AttemptKey, work: WorkKey) -> str:
    """An attempt as a sweep over ``work`` names it."""
    nonce = attempt.nonce.hex
    return nonce if attempt.work == work else f"{nonce} {attempt.work.spell()} {attempt.work.principal.text}"


def attempt_of(text: str, work: WorkKey) -> AttemptKey:
    """The attempt that ``attempt_text`` named. Raises ``ValueError``."""
    nonce, *foreign = text.split(" ")
    if not foreign:
        return AttemptKey(work, known(Nonce.read(nonce)))
    if len(foreign) != 2:
        raise ValueError("an attempt is a nonce, or a nonce with a Work key and an account")
    return AttemptKey(known(WorkKey.read(foreign[1], foreign[0])), known(Nonce.read(nonce)))


# -------------------------------------------------------------------------------------------------------------- members


@final
class SucceededText(Arm, frozen=True):
    """Exit code 0."""


@final
class FailedText(Arm, frozen=True):
    """Another exit code."""

    exit_code: int


@final
class NotExecutedText(Arm, frozen=True):
    """COMMAND never ran."""

    exit_code: int
    why: str


@final
class KilledText(Arm, frozen=True):
    """A signal."""

    signal: int


@final
class CancelledByRequestText(Arm, frozen=True):
    """Stopped on request."""


@final
class PreemptedText(Arm, frozen=True):
    """The machine was taken away."""


OutcomeText = SucceededText | FailedText | NotExecutedText | KilledText | CancelledByRequestText | PreemptedText


@final
class TerminalText(Plain, frozen=True):
    """An attempt's end."""

    attempt: str
    outcome: OutcomeText
    source: str
    at_ms: int


@final
class ExecutionText(Plain, frozen=True):
    """One execution on one machine."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int


@final
class ProcessText(Plain, frozen=True):
    """An execution of an attempt."""

    attempt: str
    execution: Maybe[ExecutionText]
    state: ProcessState


@final
class OutputText(Plain, frozen=True):
    """The folder at an attempt's output place."""

    attempt: str
    path: str
    digest: str
    size_bytes: int
    materialization: str


@final
class CheckpointText(Plain, frozen=True):
    """Something checkpoint-like."""

    attempt: str
    step: int
    path: str
    readback: ReadbackText


@final
class ReadText(Arm, frozen=True):
    """A coordinate that was read."""

    value: str
    how: How


@final
class UnreadText(Arm, frozen=True):
    """A coordinate that was not."""

    reason: str


@final
class ManifestText(Plain, frozen=True):
    """An effective manifest."""

    attempt: str
    source: str
    coordinates: dict[str, ReadText | UnreadText]


MemberText = TypeVar("MemberText", TerminalText, ProcessText, OutputText, CheckpointText, ManifestText)


def outcome_text(outcome: Outcome) -> OutcomeText:
    """An outcome as it is stored."""
    match outcome:
        case Succeeded():
            return SucceededText()
        case Failed(code):
            return FailedText(code)
        case NotExecuted(code, why):
            return NotExecutedText(code, why)
        case Killed(signal):
            return KilledText(signal)
        case CancelledByRequest():
            return CancelledByRequestText()
        case Preempted():
            return PreemptedText()


def outcome_of(text: OutcomeText) -> Outcome:
    """The outcome that was stored."""
    match text:
        case SucceededText():
            return Succeeded()
        case FailedText(exit_code=code):
            return Failed(code)
        case NotExecutedText(exit_code=code, why=why):
            return NotExecuted(code, why)
        case KilledText(signal=signal):
            return Killed(signal)
        case CancelledByRequestText():
            return CancelledByRequest()
        case PreemptedText():
            return Preempted()


def terminal_text(seen: Terminal, work: WorkKey) -> TerminalText:
    return TerminalText(attempt_text(seen.attempt, work), outcome_text(seen.outcome), seen.source, seen.at_ms)


def terminal_of(text: TerminalText, work: WorkKey) -> Terminal:
    return Terminal(attempt_of(text.attempt, work), outcome_of(text.outcome), text.source, text.at_ms)


def process_text(seen: ProcessSeen, work: WorkKey) -> ProcessText:
    one = seen.execution
    execution = () if one is None else (ExecutionText(one.host, one.boot_id, one.pid_namespace, one.pid, one.start_ticks),)
    return ProcessText(attempt_text(seen.attempt, work), execution, seen.state)


def process_of(text: ProcessText, work: WorkKey) -> ProcessSeen:
    execution = next((ExecutionIdentity(e.host, e.boot_id, e.pid_namespace, e.pid, e.start_ticks) for e in text.execution), None)
    return ProcessSeen(attempt_of(text.attempt, work), execution, text.state)


def output_text(seen: OutputSeen, work: WorkKey) -> OutputText:
    return OutputText(attempt_text(seen.attempt, work), seen.path, seen.digest.spell(), seen.size_bytes, seen.materialization)


def output_of(text: OutputText, work: WorkKey) -> OutputSeen:
    digest = known(Sha256.read(text.digest))
    return OutputSeen(attempt_of(text.attempt, work), text.path, digest, text.size_bytes, text.materialization)


def checkpoint_text(seen: CheckpointSeen, work: WorkKey) -> CheckpointText:
    return CheckpointText(attempt_text(seen.attempt, work), seen.step, seen.path, readback_text(seen.readback))


def checkpoint_of(text: CheckpointText, work: WorkKey) -> CheckpointSeen:
    return CheckpointSeen(attempt_of(text.attempt, work), text.step, text.path, readback_of(text.readback))


def manifest_text(seen: ManifestSeen, work: WorkKey) -> ManifestText:
    coordinates: dict[str, ReadText | UnreadText] = {
        name: ReadText(found.value, found.how) if isinstance(found, Read) else UnreadText(found.reason)
        for name, found in seen.coordinates.items()
    }
    return ManifestText(attempt_text(seen.attempt, work), seen.source, coordinates)


def manifest_of(text: ManifestText, work: WorkKey) -> ManifestSeen:
    coordinates: dict[str, Read | Unread] = {
        name: Read(found.value, found.how) if isinstance(found, ReadText) else Unread(found.reason)
        for name, found in text.coordinates.items()
    }
    return ManifestSeen(attempt_of(text.attempt, work), text.source, coordinates)


# ---------------------------------------------------------------------------------------------------------- populations


@final
class ReceiptText(Plain, frozen=True):
    """The enumeration that produced a reading."""

    id: str
    observer: str
    host: str
    started_ms: int
    ended_ms: int


@final
class MisfiledText(Plain, frozen=True):
    """A receipt in another attempt's folder."""

    folder: str
    names: str


class ObservedText(Arm, Generic[MemberText], frozen=True):
    """A source that was read completely."""

    members: tuple[MemberText, ...]
    receipt: ReceiptText
    misfiled: tuple[MisfiledText, ...]


@final
class NotAttemptedText(Arm, frozen=True):
    """A source that nobody looked at."""

    why: str


@final
class RefusedText(Arm, frozen=True):
    """A source that gave no reading."""

    reason: str
    receipt: ReceiptText


class SourceText(Plain, Generic[MemberText], frozen=True):
    """One source of an axis and its arm."""

    source: str
    about: Maybe[str]
    arm: ObservedText[MemberText] | NotAttemptedText | RefusedText


def receipt_text(receipt: EnumerationReceipt) -> ReceiptText:
    return ReceiptText(receipt.id, receipt.observer, receipt.host, receipt.started_ms, receipt.ended_ms)


def receipt_of(text: ReceiptText) -> EnumerationReceipt:
    return EnumerationReceipt(text.id, text.observer, text.host, text.started_ms, text.ended_ms)


def population_text(
    population: Population[M], work: WorkKey, member: Callable[[M, WorkKey], MemberText]
) -> tuple[SourceText[MemberText], ...]:
    """A population as it is stored, source by source."""

    def arm(found: Observed[M] | NotAttempted | ReadRefused) -> ObservedText[MemberText] | NotAttemptedText | RefusedText:
        match found:
            case Observed(members, receipt, misfiled):
                misplaced = tuple(MisfiledText(attempt_text(one.folder, work), one.names) for one in misfiled)
                return ObservedText(tuple(member(one, work) for one in members), receipt_text(receipt), misplaced)
            case NotAttempted(why):
                return NotAttemptedText(why)
            case ReadRefused(reason, receipt):
                return RefusedText(reason, receipt_text(receipt))

    return tuple(
        SourceText(reading.source, () if reading.about is None else (attempt_text(reading.about, work),), arm(reading.arm))
        for reading in population.readings
    )


def population_of(sources: tuple[SourceText[MemberText], ...], work: WorkKey, member: Callable[[MemberText, WorkKey], M]) -> Population[M]:
    """The population that was stored. Raises ``ValueError``."""

    def arm(text: ObservedText[MemberText] | NotAttemptedText | RefusedText) -> Observed[M] | NotAttempted | ReadRefused:
        match text:
            case ObservedText(members=members, receipt=receipt, misfiled=misfiled):
                misplaced = tuple(Misfiled(attempt_of(one.folder, work), one.names) for one in misfiled)
                return Observed(tuple(member(one, work) for one in members), receipt_of(receipt), misplaced)
            case NotAttemptedText(why=why):
                return NotAttempted(why)
            case RefusedText(reason=reason, receipt=receipt):
                return ReadRefused(reason, receipt_of(receipt))

    found = NonEmpty.of(
        SourceReading(text.source, arm(text.arm), next((attempt_of(one, work) for one in text.about), None)) for text in sources
    )
    if found is None:
        raise ValueError("an axis has at least one source")
    return Population(found)
