"""What a person decides about a run: go on, begin again, do it once more, give an attempt up, end it. Each is recorded before it is made.

Rules kept here:

1. A decision is taken on a look made now, and refused with every reason where the run is not as the decision needs it.
2. What a person asked for is bounded by no number of retries, and the ledger keeps who asked.
3. Deciding twice decides once: the second call finds the first one's transition, carries on with it and says so.
"""

from dataclasses import dataclass
from itertools import count
from typing import final

from countermark.app.acting import Acted, end_here, relaunch_from, start
from countermark.app.compare import PREFIX_MIN
from countermark.app.ports import Ports
from countermark.app.running import Looked, look_at, look_soon
from countermark.app.sweeping import admitted
from countermark.lines.surface import (
    CapabilityNotForLost,
    CheckpointNotAmong,
    NothingNamed,
    ResumeUnavailable,
    RetryUnavailable,
    RunNamedForAttempt,
    RunNotAtRest,
    SeveralNamed,
)
from countermark.run.attempts import AttemptKey, CapabilityEscalation, InfrastructureRetry, RequestedReexecution, Resume, predecessor_of
from countermark.run.claims import RunCancelled, RunLedger
from countermark.run.records import Recorded
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import (
    Cancelled,
    Converged,
    InProgress,
    LaunchDispatchRequired,
    LaunchPending,
    Lost,
    ResumeAvailable,
    RetryRequired,
    SeveralCandidates,
    Verdict,
)


def cancel_run(ports: Ports, run_id: str, by: str) -> Acted | Refused[object]:
    """Record that the run is over, for good, and end what lives of it on this host."""
    answer = ports.store.cancel(run_id, by, ports.now_ms())
    if isinstance(answer, Refused):
        return Refused(answer.defects)
    said = "cancelled: nothing of it starts any more" if isinstance(answer, Recorded) else f"it was cancelled before, by {answer.fact.by}"
    record = ports.load(run_id)
    return Refused(record.defects) if isinstance(record, Refused) else Acted((said, *end_here(ports, record)))


def resume_run(ports: Ports, run_id: str, step: int | None, by: str) -> Acted | Refused[object]:
    """Go on from an admitted checkpoint of a run that ended without success: the newest, or that of ``step``."""
    looked = look_at(ports, run_id)
    if isinstance(looked, Refused):
        return looked
    verdict = looked.conclusion.verdict
    if not isinstance(verdict, ResumeAvailable):
        return Refused(NonEmpty(ResumeUnavailable(type(verdict).__name__)))
    chosen = next((one for one in verdict.checkpoints if step is None or one.step == step), None)
    if chosen is None:
        return Refused(NonEmpty(CheckpointNotAmong(step or 0, tuple(str(one.step) for one in verdict.checkpoints))))
    return _begun(ports, looked, start(ports, looked.record, Resume(verdict.attempt, chosen.identity), by))


def retry_run(ports: Ports, run_id: str, capability: str | None, from_nothing: bool, by: str) -> Acted | Refused[object]:
    """Make the attempt again that every way on from ended at. ``capability``: what the next attempt is given that this one lacked.
    ``from_nothing``: also where a checkpoint could be gone on from."""
    looked = look_at(ports, run_id)
    if isinstance(looked, Refused):
        return looked
    verdict = looked.conclusion.verdict
    if isinstance(verdict, RetryRequired):
        return _again(ports, looked, verdict.attempts.first, capability, by)
    if isinstance(verdict, ResumeAvailable) and from_nothing:
        return _again(ports, looked, verdict.attempt, capability, by)
    if isinstance(verdict, Lost) and capability is None:
        return _lost(ports, looked, verdict, from_nothing, by)
    if isinstance(verdict, Lost) and capability is not None:
        return Refused(NonEmpty(CapabilityNotForLost(capability)))
    return _refused(looked, RetryUnavailable(type(verdict).__name__))


def _again(ports: Ports, looked: Looked, attempt: AttemptKey, capability: str | None, by: str) -> Acted | Refused[object]:
    cause = InfrastructureRetry(attempt) if capability is None else CapabilityEscalation(attempt, capability)
    return _begun(ports, looked, start(ports, looked.record, cause, by))


def _begun(ports: Ports, looked: Looked, answer: Acted | Refused[object]) -> Acted | Refused[object]:
    """The answer, with the run on every controller's agenda for now: it may have been at rest for long."""
    look_soon(ports, looked.record.run_id)
    return answer


def _lost(ports: Ports, looked: Looked, lost: Lost, from_nothing: bool, by: str) -> Acted | Refused[object]:
    """Relaunch the first lost attempt. That moves the ledger, so another one is for the next call, and said to be."""
    checkpoints = () if from_nothing else admitted(looked.sweep)
    newest = checkpoints[0].identity if checkpoints else None
    answer = relaunch_from(ports, looked.record, lost.attempts.first, newest, by)
    others = tuple(f"attempt {other.nonce.hex[:8]} is lost as well: the next retry is for it" for other in lost.attempts.more)
    return _begun(ports, looked, answer if isinstance(answer, Refused) else Acted((*answer.lines, *others)))


def _refused(looked: Looked, defect: object) -> Refused[object]:
    """The defect, and that the run was cancelled where it was; of a cancelled run at rest the latter is all that is to be said."""
    cancelled = (RunCancelled(),) if looked.record.ledger.cancellations else ()
    others = () if isinstance(looked.conclusion.verdict, Cancelled) else (defect,)
    found = NonEmpty.of((*cancelled, *others))
    assert found is not None, "a run whose verdict is Cancelled was cancelled"
    return Refused(found)


def reexecute_run(ports: Ports, run_id: str, request: str | None, by: str) -> Acted | Refused[object]:
    """Have the work of a run at rest done once more, from nothing and beside what was done. A request that was made before, or that is
    under way where none is named, is carried on with."""
    looked = look_at(ports, run_id)
    if isinstance(looked, Refused):
        return looked
    ledger = looked.record.ledger
    verdict = looked.conclusion.verdict
    made = _requests(ledger)
    name = request if request is not None else _standing(looked) or next(each for each in _names() if each not in made)
    if ledger.cancellations or (name not in made and not _at_rest(verdict)):
        return _refused(looked, RunNotAtRest(type(verdict).__name__))
    return _begun(ports, looked, start(ports, looked.record, RequestedReexecution(name), by))


def _at_rest(verdict: Verdict) -> bool:
    return isinstance(verdict, Converged | SeveralCandidates | RetryRequired | ResumeAvailable)


def _names() -> "map[str]":
    """The names of requests that nobody named, in their order; who reads the same ledger takes the same one."""
    return map("again-{}".format, count(1))


def _requests(ledger: RunLedger) -> dict[str, AttemptKey]:
    """The requests for a re-execution that were made, each with the attempt that it caused."""
    causes = ((claim.transition.cause, claim.attempt) for claim in ledger.claims)
    return {cause.request: attempt for cause, attempt in causes if isinstance(cause, RequestedReexecution)}


def _standing(looked: Looked) -> str | None:
    """The request whose attempt, or one that followed it, is under way now; None where there is none."""
    verdict = looked.conclusion.verdict
    if not isinstance(verdict, InProgress | LaunchDispatchRequired | LaunchPending):
        return None
    before = {claim.attempt: predecessor_of(claim.transition.cause) for claim in looked.record.ledger.claims}
    by_attempt = {attempt: name for name, attempt in _requests(looked.record.ledger).items()}
    for each in verdict.attempts:
        step: AttemptKey | None = each
        while step is not None:
            if step in by_attempt:
                return by_attempt[step]
            step = before.get(step)
    return None


@final
@dataclass(frozen=True, slots=True)
class Abandoned:
    """The run of an attempt that was given up, and what is to be said of it."""

    run_id: str
    lines: tuple[str, ...]


def abandon_attempt(ports: Ports, text: str, by: str) -> Abandoned | Refused[object]:
    """Record that a person gave the attempt up, which 8 or more digits of its id name. It is superseded from now on: stopped where it
    shows up, never gone on with."""
    found = ports.store.find_attempt(text) if len(text) >= PREFIX_MIN else ()
    if not found:
        return Refused(NonEmpty(_no_attempt(ports, text)))
    one, *others = found
    if others:
        return Refused(NonEmpty(SeveralNamed(text, tuple(each.nonce.hex for each in found))))
    record = ports.load(one.run_id)
    if isinstance(record, Refused):
        return Refused(record.defects)
    attempt = AttemptKey(record.ledger.desired.demand.work, one.nonce)
    answer = ports.store.abandon(one.run_id, attempt, by, ports.now_ms())
    if isinstance(answer, Refused):
        return Refused(answer.defects)
    said = "given up" if isinstance(answer, Recorded) else f"given up before, by {answer.fact.by}"
    return Abandoned(one.run_id, (f"attempt {one.nonce.hex[:8]} is {said}",))


def _no_attempt(ports: Ports, text: str) -> NothingNamed | RunNamedForAttempt:
    """Why the text names no attempt; the attempts of the run that it names, where it names one."""
    runs = ports.store.find_runs(text) if len(text) >= PREFIX_MIN else ()
    record = ports.load(runs[0].run_id) if len(runs) == 1 else None
    if record is None or isinstance(record, Refused):
        return NothingNamed(text)
    return RunNamedForAttempt(text, tuple(claim.attempt.nonce.hex for claim in record.ledger.claims))
