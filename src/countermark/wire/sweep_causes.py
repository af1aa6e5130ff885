"""Causes of attempts and answers of launchers, as a stored sweep holds them: structs ↔ values."""

from typing import final

from countermark.recipe import WorkKey
from countermark.run.attempts import (
    CapabilityEscalation,
    Cause,
    CheckpointIdentity,
    InfrastructureRetry,
    InitialAttempt,
    Relaunch,
    RequestedReexecution,
    Resume,
)
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown, LaunchResult
from countermark.values import Sha256
from countermark.wire.sweep_checkpoints import Arm, Maybe, Plain
from countermark.wire.sweep_members import attempt_of, attempt_text, known


@final
class CheckpointIdentityText(Plain, frozen=True):
    """Which checkpoint is gone on from."""

    step: int
    digest: str


@final
class InitialAttemptText(Arm, frozen=True):
    """The demand's first attempt."""


@final
class RequestedReexecutionText(Arm, frozen=True):
    """Asked for once more."""

    request: str


@final
class InfrastructureRetryText(Arm, frozen=True):
    """After a failure."""

    predecessor: str


@final
class CapabilityEscalationText(Arm, frozen=True):
    """With another capability."""

    predecessor: str
    capability: str


@final
class RelaunchText(Arm, frozen=True):
    """After a loss."""

    predecessor: str
    lost: str
    checkpoint: Maybe[CheckpointIdentityText]


@final
class ResumeText(Arm, frozen=True):
    """From an admitted checkpoint."""

    predecessor: str
    checkpoint: CheckpointIdentityText


CauseText = InitialAttemptText | RequestedReexecutionText | InfrastructureRetryText | CapabilityEscalationText | RelaunchText | ResumeText


@final
class DispatchedText(Arm, frozen=True):
    """The launcher took the claim."""

    detail: str


@final
class DispatchRefusedText(Arm, frozen=True):
    """Nothing was started."""

    why: str


@final
class DispatchUnknownText(Arm, frozen=True):
    """Something may run."""

    why: str


ResultText = DispatchedText | DispatchRefusedText | DispatchUnknownText


def _identity_text(checkpoint: CheckpointIdentity) -> CheckpointIdentityText:
    return CheckpointIdentityText(checkpoint.step, checkpoint.digest.spell())


def _identity_of(text: CheckpointIdentityText) -> CheckpointIdentity:
    return CheckpointIdentity(text.step, known(Sha256.read(text.digest)))


def cause_text(cause: Cause, work: WorkKey) -> CauseText:
    """A cause as a sweep over ``work`` stores it."""
    match cause:
        case InitialAttempt():
            return InitialAttemptText()
        case RequestedReexecution(request):
            return RequestedReexecutionText(request)
        case InfrastructureRetry(before):
            return InfrastructureRetryText(attempt_text(before, work))
        case CapabilityEscalation(before, capability):
            return CapabilityEscalationText(attempt_text(before, work), capability)
        case Relaunch(before, lost, checkpoint):
            return RelaunchText(attempt_text(before, work), lost, () if checkpoint is None else (_identity_text(checkpoint),))
        case Resume(before, checkpoint):
            return ResumeText(attempt_text(before, work), _identity_text(checkpoint))


def cause_of(text: CauseText, work: WorkKey) -> Cause:
    """The cause that was stored. Raises ``ValueError``."""
    match text:
        case InitialAttemptText():
            return InitialAttempt()
        case RequestedReexecutionText(request=request):
            return RequestedReexecution(request)
        case InfrastructureRetryText(predecessor=before):
            return InfrastructureRetry(attempt_of(before, work))
        case CapabilityEscalationText(predecessor=before, capability=capability):
            return CapabilityEscalation(attempt_of(before, work), capability)
        case RelaunchText(predecessor=before, lost=lost, checkpoint=checkpoint):
            return Relaunch(attempt_of(before, work), lost, next(map(_identity_of, checkpoint), None))
        case ResumeText(predecessor=before, checkpoint=checkpoint):
            return Resume(attempt_of(before, work), _identity_of(checkpoint))


def result_text(result: LaunchResult) -> ResultText:
    """A launcher's answer as it is stored."""
    match result:
        case Dispatched(detail):
            return DispatchedText(detail)
        case DispatchRefused(why):
            return DispatchRefusedText(why)
        case DispatchUnknown(why):
            return DispatchUnknownText(why)


def result_of(text: ResultText) -> LaunchResult:
    """The launcher's answer that was stored."""
    match text:
        case DispatchedText(detail=detail):
            return Dispatched(detail)
        case DispatchRefusedText(why=why):
            return DispatchRefused(why)
        case DispatchUnknownText(why=why):
            return DispatchUnknown(why)
