"""Acting on a verdict: claim, dispatch, stop, resume, relaunch. Concluding is done elsewhere; here each act is recorded before it is made.

Rules kept here:

1. A transition is claimed on the version that the verdict was derived from; a moved ledger means: look again. A person is told so.
2. A slot that somebody else took is a success: the winner's claim is carried on with.
3. The intent is durable before the launcher is called and the outcome after; a call that broke is ``unknown``, never ``refused``.
4. Nothing is retried beyond the number that the caller allows. Beginning where an earlier resume or relaunch began is a retry too: no
   progress was made between, and a trainer that always dies, or is always lost, there is not started for ever.
5. Whatever could still begin late is fenced before another attempt follows it: what was lost, and what a launcher refused. So is what a
   person ended, whoever carries that out.
6. What a person asked for is not bounded, and counts as no retry: the ledger keeps who asked for a claim.
7. What was done is told, also where something beside it could not be done.
"""

from dataclasses import dataclass
from typing import final

from countermark.app.ports import Ports
from countermark.files.attempt_folder import ReceiptRead, read_terminal
from countermark.files.desired import Desired, encode_desired
from countermark.launch.local import Fenced, FenceFailed, FenceHeldOff, FenceResult
from countermark.launch.order import LaunchOrder
from countermark.launch.stopping import NothingToStop, StopFailed, Stopped, StopPending, StopResult
from countermark.lines.defects import known, sentence
from countermark.lines.surface import AttemptNotFenced, RetriesUsedUp, RunMovedMeanwhile
from countermark.run.attempts import (
    AttemptKey,
    Cause,
    CheckpointIdentity,
    InfrastructureRetry,
    InitialAttempt,
    Nonce,
    Relaunch,
    Resume,
    checkpoint_of,
    predecessor_of,
)
from countermark.run.checkpoint import AdmittedCheckpoint
from countermark.run.claims import (
    Committed,
    Dispatched,
    DispatchRefused,
    DispatchUnknown,
    ExecutionClaim,
    LaunchResult,
    RunLedger,
    SnapshotStale,
    Transition,
)
from countermark.run.dispatch import AlreadyDispatched, AttemptNotClaimed
from countermark.run.records import RunRecord
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import (
    Blocked,
    Cancelled,
    Converged,
    ExecutionRequired,
    InProgress,
    LaunchDispatchRequired,
    LaunchPending,
    Lost,
    ObservationRequired,
    ResumeAvailable,
    RetryRequired,
    SeveralCandidates,
    StopRequired,
    Verdict,
)


@final
@dataclass(frozen=True, slots=True)
class Acted:
    """What was done for a verdict, in lines; none when there was nothing to do or nothing allowed."""

    lines: tuple[str, ...]


def act(
    ports: Ports, record: RunRecord, verdict: Verdict, retries: int, admitted: tuple[AdmittedCheckpoint, ...]
) -> Acted | Refused[object]:
    """Do what the verdict asks for, once, and return without waiting for the trainer. ``admitted`` are the checkpoints of the run that can
    be gone on from, newest first."""
    match verdict:
        case ExecutionRequired():
            return start(ports, record, InitialAttempt())
        case LaunchDispatchRequired(attempts):
            return _together(*(dispatch(ports, record.run_id, attempt) for attempt in attempts))
        case StopRequired(attempts):
            return _together(*(_end(ports, attempt) for attempt in attempts))
        case Lost(attempts):
            return _together(*(relaunch(ports, record, attempt, admitted, retries) for attempt in attempts))
        case ResumeAvailable(attempt, checkpoints):
            return resume(ports, record, attempt, checkpoints.first, retries)
        case RetryRequired(attempts):
            if (refusal := _over(record, retries)) is not None:
                return refusal
            return start(ports, record, InfrastructureRetry(attempts.first))
        case Blocked() | Cancelled() | InProgress() | ObservationRequired() | LaunchPending() | SeveralCandidates() | Converged():
            return Acted(())


def _together(*answers: "Acted | Refused[object]") -> "Acted | Refused[object]":
    """What was done for several attempts. Where nothing was, every reason; what was not done beside something that was is told with it: the
    trainers that began are to be looked at soon, and the next look finds what is left by itself."""
    done = tuple(line for answer in answers if isinstance(answer, Acted) for line in answer.lines)
    defects = NonEmpty.of(defect for answer in answers if isinstance(answer, Refused) for defect in answer.defects)
    if defects is not None and not done:
        return Refused(defects)
    return Acted((*done, *(f"not done: {sentence(defect).message}" for defect in known(defects or ()))))


def _over(record: RunRecord, allowed: int) -> Refused[object] | None:
    used = retries_used(record)
    return Refused(NonEmpty(RetriesUsedUp(allowed, used))) if used >= allowed else None


def retries_used(record: RunRecord) -> int:
    """How many retries controllers made of the run by themselves."""
    return sum(again and not by for by, again in zip(_asked_by(record), _again(record.ledger), strict=True))


def _asked_by(record: RunRecord) -> tuple[str, ...]:
    """Who asked for each claim, in their order; empty where a controller claimed by itself."""
    by = {entry.version: entry.by for entry in record.history}
    return tuple(by.get(claim.version, "") for claim in record.ledger.claims)


def _again(ledger: RunLedger) -> tuple[bool, ...]:
    """Of each claim, in their order, whether it makes an attempt again where nothing was gained before."""
    begun: set[CheckpointIdentity | None] = set()
    found: list[bool] = []
    for claim in ledger.claims:
        cause = claim.transition.cause
        found.append(isinstance(cause, InfrastructureRetry) or (isinstance(cause, Resume | Relaunch) and checkpoint_of(cause) in begun))
        if isinstance(cause, Resume | Relaunch):
            begun.add(checkpoint_of(cause))
    return tuple(found)


def begun_again(ledger: RunLedger) -> tuple[CheckpointIdentity | None, ...]:
    """Where each resume and relaunch of the run began, in the order of their claims; None for the base artifact."""
    causes = (claim.transition.cause for claim in ledger.claims)
    return tuple(checkpoint_of(cause) for cause in causes if isinstance(cause, Resume | Relaunch))


def resume(ports: Ports, record: RunRecord, attempt: AttemptKey, checkpoint: AdmittedCheckpoint, retries: int) -> Acted | Refused[object]:
    """Go on from an admitted checkpoint under a new transition."""
    identity = checkpoint.identity
    if identity in begun_again(record.ledger) and (refusal := _over(record, retries)) is not None:
        return refusal
    return start(ports, record, Resume(attempt, identity))


def start(ports: Ports, record: RunRecord, cause: Cause, by: str = "") -> Acted | Refused[object]:
    """Claim the transition and dispatch the claim that holds its slot, whoever won it. ``by``: the person who asked for it, if one did."""
    if (refusal := _still_to_be_launched(ports, record.ledger, predecessor_of(cause))) is not None:
        return refusal
    demand = record.ledger.desired.demand
    candidate = AttemptKey(demand.work, Nonce(ports.new_nonce()))
    transition = Transition(demand.id, demand.work, cause)
    answer = ports.store.claim_start(record.run_id, record.ledger.version, transition, candidate, ports.now_ms(), by)
    if isinstance(answer, Refused):
        return Refused(answer.defects)
    if isinstance(answer, SnapshotStale):
        # A controller looks again by itself. A person decided on what is no longer so, and is told that nothing was done.
        meanwhile = Acted(("somebody else acted on the run meanwhile: look again",))
        return Refused(NonEmpty(RunMovedMeanwhile(answer.current))) if by else meanwhile
    attempt = answer.claim.attempt
    said = (
        f"claimed attempt {attempt.nonce.hex[:8]} ({type(cause).__name__})"
        if isinstance(answer, Committed)
        else f"attempt {attempt.nonce.hex[:8]} holds this transition already: carrying on with it"
    )
    dispatched = dispatch(ports, record.run_id, attempt)
    return dispatched if isinstance(dispatched, Refused) else Acted((said, *dispatched.lines))


def _still_to_be_launched(ports: Ports, ledger: RunLedger, before: AttemptKey | None) -> Refused[object] | None:
    """Bar an attempt whose dispatch was refused, before it is followed by another; every reason why it could not be.

    A refusal speaks of its own call. Another controller may have said the same intent and call the launcher later, and its trainer would
    run beside the successor's.
    """
    if before is None or not (results := [outcome.result for outcome in ledger.outcomes if outcome.attempt == before]):
        return None
    if not all(isinstance(result, DispatchRefused) for result in results):
        return None
    barred = _barred(ports, ledger, before)
    return barred if isinstance(barred, Refused) else None


def _barred(ports: Ports, ledger: RunLedger, attempt: AttemptKey) -> str | Refused[object]:
    """See to it that nothing of the attempt begins any more, and say how.

    A fence of this host is none on another. What was to be dispatched there is barred by whoever acts there, or given up by a person: from
    then on it is superseded, stopped where it shows up, and followed on that person's word.
    """
    name = attempt.nonce.hex[:8]
    elsewhere = tuple(sorted({intent.host for intent in ledger.intents if intent.attempt == attempt} - {ports.host}))
    if not elsewhere:
        refusal = _unfenced(attempt, ports.launcher.fence(attempt.nonce.hex))
        return f"fenced attempt {name}" if refusal is None else refusal
    if not any(given.attempt == attempt for given in ledger.abandonments):
        return Refused(NonEmpty(AttemptNotFenced(attempt, "nobody here can tell whether it begins there", elsewhere)))
    return f"attempt {name} cannot be fenced from here; should it live on {', '.join(elsewhere)}, it is stopped there"


def dispatch(ports: Ports, run_id: str, attempt: AttemptKey) -> Acted | Refused[object]:
    """Say the intent, call the launcher, record its answer. Safe to repeat: an attempt with an outcome is left alone."""
    record = ports.load(run_id)
    if isinstance(record, Refused):
        return Refused(record.defects)
    claim = next((one for one in record.ledger.claims if one.attempt == attempt), None)
    if claim is None:
        return Refused(NonEmpty(AttemptNotClaimed(attempt)))
    if any(outcome.attempt == attempt for outcome in record.ledger.outcomes):
        return Acted((f"attempt {attempt.nonce.hex[:8]} was dispatched before",))
    beginning = ports.beginning(record, claim)
    if isinstance(beginning, Refused):
        return beginning
    intent = ports.store.record_dispatch_intent(claim, "local", ports.host, ports.now_ms())
    if isinstance(intent, Refused):
        # Another controller may have dispatched it meanwhile, and gone on to its successor: none of that is a defect.
        done = any(isinstance(defect, AlreadyDispatched) for defect in intent.defects)
        return Acted((f"attempt {attempt.nonce.hex[:8]} was dispatched before",)) if done else Refused(intent.defects)
    result = _launch(ports, record, claim, beginning)
    outcome = ports.store.record_dispatch_outcome(intent.fact, result, ports.now_ms())
    if isinstance(outcome, Refused):
        return Refused(outcome.defects)
    match result:
        case Dispatched(detail):
            return Acted((f"dispatched attempt {attempt.nonce.hex[:8]} on {ports.host}: {detail}",))
        case DispatchRefused(why):
            return Acted((f"the launcher refused attempt {attempt.nonce.hex[:8]}: {why}",))
        case DispatchUnknown(why):
            return Acted((f"whether attempt {attempt.nonce.hex[:8]} was launched is unknown: {why}",))


def _launch(ports: Ports, record: RunRecord, claim: ExecutionClaim, resume_path: str | None) -> LaunchResult:
    """Call the launcher. A call that breaks is unknown: something may be running."""
    context = record.context
    demand = record.ledger.desired.demand
    nonce = claim.attempt.nonce.hex
    desired = Desired(nonce, demand.work.spell(), record.ledger.desired.manifest, context.sources, context.trainer)
    order = LaunchOrder(
        nonce=nonce,
        work_key=demand.work.spell(),
        demand=f"{demand.id.requester}/{demand.id.request}",
        argv=context.argv,
        cwd=context.cwd,
        env=context.env,
        resume=resume_path,
        manifest=encode_desired(desired),
    )
    try:
        return ports.launcher.dispatch(order)
    except OSError as error:
        return DispatchUnknown(f"the launch call failed: {error}")


def _end(ports: Ports, attempt: AttemptKey) -> Acted:
    """Bar the attempt and stop what lives of it, in lines. Its launch may be under way at this moment, or still to come from a controller
    that said its intent: behind the fence it does not become COMMAND any more. What lives already holds the fence off, and is stopped."""
    name = attempt.nonce.hex[:8]
    fenced = ports.launcher.fence(attempt.nonce.hex)
    stopped = ports.launcher.stop(attempt.nonce.hex, ports.stop_grace_s)
    failed = (f"attempt {name} could not be fenced: {fenced.why}",) if isinstance(fenced, FenceFailed) else ()
    return Acted((*failed, f"attempt {name} {_stopped(stopped)}"))


def _stopped(answer: StopResult) -> str:
    match answer:
        case Stopped():
            return "is stopped"
        case NothingToStop():
            return "had not started, and will not"
        case StopPending(why):
            return f"was asked to stop and may still live: {why}"
        case StopFailed(why):
            return f"could not be stopped: {why}"


def end_here(ports: Ports, record: RunRecord) -> tuple[str, ...]:
    """End whatever of a cancelled run was dispatched on this host, in lines; what was dispatched on another one is named and left to it."""
    hosts = {intent.attempt: intent.host for intent in record.ledger.intents}
    lines: list[str] = []
    for attempt, host in hosts.items():
        name = attempt.nonce.hex[:8]
        if host != ports.host:
            lines.append(
                f"attempt {name} was dispatched on {host}: if it lives, it is stopped from there (countermark reconcile RUN --act)"
            )
        elif not isinstance(read_terminal(ports.launcher.folder(attempt.nonce.hex)), ReceiptRead):
            lines.extend(_end(ports, attempt).lines)
    return tuple(lines)


def relaunch(
    ports: Ports, record: RunRecord, attempt: AttemptKey, checkpoints: tuple[AdmittedCheckpoint, ...], retries: int
) -> Acted | Refused[object]:
    """Fence the lost attempt, then claim and start a new one from the newest admitted checkpoint, or from the beginning."""
    newest = checkpoints[0].identity if checkpoints else None
    if newest in begun_again(record.ledger) and (refusal := _over(record, retries)) is not None:
        return refusal
    return relaunch_from(ports, record, attempt, newest)


def relaunch_from(
    ports: Ports, record: RunRecord, attempt: AttemptKey, checkpoint: CheckpointIdentity | None, by: str = ""
) -> Acted | Refused[object]:
    """Bar the lost attempt, then claim and start a new one from this checkpoint, or from the beginning."""
    barred = _barred(ports, record.ledger, attempt)
    if isinstance(barred, Refused):
        return barred
    started = start(ports, record, Relaunch(attempt, "process", checkpoint), by)
    return started if isinstance(started, Refused) else Acted((barred, *started.lines))


def _unfenced(attempt: AttemptKey, answer: FenceResult) -> Refused[object] | None:
    match answer:
        case Fenced():
            return None
        case FenceHeldOff():
            return Refused(NonEmpty(AttemptNotFenced(attempt, "its lock is held: something of it lives", ())))
        case FenceFailed(why):
            return Refused(NonEmpty(AttemptNotFenced(attempt, why, ())))
