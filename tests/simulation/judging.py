"""What must never happen, asked at each conclusion and at the end of each history, against what really happened in the world.

Rules kept here:

1. The truth is what trainers, supervisors and folders did. An observer's refusal, a stopped process or a lost answer changes nothing of it.
2. A conclusion is judged by what was true while its sweep was made: what changed afterwards is old news, no falsehood.
3. A blocker is just only where its attempt really did that, or where the world told that lie of it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from countermark.evidence.members import Succeeded
from countermark.run.attempts import AttemptKey, InfrastructureRetry
from countermark.run.claims import SetAside
from countermark.verdict import Conclusion, Sweep
from countermark.verdict.kinds import (
    AttemptWithoutExecutionClaim,
    Blocked,
    Blocker,
    Cancelled,
    ContradictoryTerminals,
    Converged,
    EffectiveManifestDiverges,
    EvidenceOnRefusedDispatch,
    ExecutionRequired,
    LiveProcessAfterTerminal,
    Lost,
    SeveralCandidates,
    SeveralExecutions,
    SeveralLiveProcesses,
    SeveralOutputs,
    SharedLocation,
    SuccessWithoutOutput,
)
from tests.simulation.broken import Broken
from tests.simulation.checker import check
from tests.simulation.hosts import Execution, Folder
from tests.simulation.world import Actor, World

if TYPE_CHECKING:
    from countermark.verdict.kinds import CompletionCandidate


def folders_of(world: World, attempt: AttemptKey) -> list[Folder]:
    return [folder for (_, nonce), folder in world.folders.items() if nonce == attempt.nonce.hex]


def executions_of(world: World, attempt: AttemptKey) -> list[Execution]:
    return [execution for folder in folders_of(world, attempt) for execution in folder.executions]


def judge(world: World, actor: Actor, sweep: Sweep, conclusion: Conclusion) -> None:
    """Hold a conclusion against the truth."""
    verdict = conclusion.verdict
    world.figures[f"verdict: {type(verdict).__name__}"] += 1
    if isinstance(verdict, Lost):
        for attempt in verdict.attempts:
            _truly_lost(world, actor, sweep, attempt)
    elif isinstance(verdict, Converged):
        _truly_completed(world, sweep, verdict.candidate)
    elif isinstance(verdict, SeveralCandidates):
        for candidate in verdict.candidates:
            _truly_completed(world, sweep, candidate)
    elif isinstance(verdict, Blocked):
        for blocker in verdict.blockers:
            world.figures[f"blocker: {type(blocker).__name__}"] += 1
            _truly_blocked(world, blocker)
    elif isinstance(verdict, Cancelled):
        _truly_over(world, actor)
    elif isinstance(verdict, ExecutionRequired):
        looked = actor.stages.get("load", 0)
        if any(execution.began_at < looked for folder in world.folders.values() for execution in folder.executions):
            raise Broken("the run is to be started for the first time, and a trainer of it had begun before anybody looked")


def _truly_lost(world: World, actor: Actor, sweep: Sweep, attempt: AttemptKey) -> None:
    """No trainer that had begun before processes were read lives, and no terminal was there to be read afterwards."""
    if any(given.attempt == attempt for given in sweep.ledger.abandonments):
        return
    world.figures["lost by evidence"] += 1
    looked = actor.stages.get("processes", 0)
    for folder in folders_of(world, attempt):
        for execution in folder.executions:
            if execution.alive and execution.began_at < looked:
                if _not_shown_yet(world, actor, sweep, attempt):
                    world.figures["lost before the scheduler showed it"] += 1
                    continue
                raise Broken(
                    f"attempt {attempt.nonce.hex[:2]} is concluded to be lost, and its trainer has lived since before anybody looked"
                )
        # A supervisor that was stopped while processes were read, and went on afterwards, may have written it in between.
        woken = folder.started is not None and folder.started[2].continued >= looked
        if folder.terminal is not None and not woken:
            raise Broken(f"attempt {attempt.nonce.hex[:2]} is concluded to be lost, and its terminal says {folder.terminal}")


def _not_shown_yet(world: World, actor: Actor, sweep: Sweep, attempt: AttemptKey) -> bool:
    """Whether a job of the attempt was submitted so long after its intent that the grace was over before the scheduler showed it.

    Nobody had recorded an answer when the look began, so the grace counts from the intent; what a slow caller submits after it is seen one
    look too late. The fence, not this verdict, keeps a second trainer away, and that is judged where trainers begin.
    """
    jobs = world.jobs.get(attempt.nonce.hex, ())
    answered = any(outcome.attempt == attempt for outcome in sweep.ledger.outcomes)
    return not answered and any(job.late and job.listed_ms > actor.looked_ms for job in jobs)


def _truly_completed(world: World, sweep: Sweep, candidate: "CompletionCandidate") -> None:
    """One trainer of the attempt ran what was asked for, ended with 0, and published just this output; nobody's last word on anything
    that blocked it was to set it aside."""
    attempt = candidate.attempt
    name = attempt.nonce.hex[:2]
    last_words = {text: given for given in sweep.ledger.adjudications if given.attempt == attempt for text in given.blockers}
    if any(isinstance(given.ruling, SetAside) for given in last_words.values()):
        raise Broken(f"attempt {name} is a candidate, and it was set aside")
    executions = executions_of(world, attempt)
    if len(executions) != 1 or executions[0].end != Succeeded():
        raise Broken(f"attempt {name} is a candidate, and its trainers ended so: {[execution.end for execution in executions]}")
    folder = next(folder for folder in folders_of(world, attempt) if folder.executions)
    if folder.output is None or folder.output * 64 != candidate.output.hex:
        raise Broken(f"attempt {name} is a candidate for an output that it did not publish")
    if folder.integration != "agrees":
        raise Broken(f"attempt {name} is a candidate, and what it ran {folder.integration}")


Justice: TypeAlias = Callable[[Folder], bool]


def _ran_without_output(folder: Folder) -> bool:
    return any(execution.end == Succeeded() for execution in folder.executions) and folder.output is None


#: For each blocker, when it is just. One that no history can reach stands here as never just.
JUST: Mapping[type[Blocker], Justice] = {
    ContradictoryTerminals: lambda folder: "terminal" in folder.lies,
    LiveProcessAfterTerminal: lambda folder: "late process" in folder.lies,
    SeveralLiveProcesses: lambda folder: "second process" in folder.lies,
    SeveralExecutions: lambda folder: "second process" in folder.lies,
    SuccessWithoutOutput: lambda folder: _ran_without_output(folder) or "terminal" in folder.lies,
    SeveralOutputs: lambda folder: "second output" in folder.lies,
    EffectiveManifestDiverges: lambda folder: folder.integration == "diverges",
    AttemptWithoutExecutionClaim: lambda folder: False,
    EvidenceOnRefusedDispatch: lambda folder: "refusal" in folder.lies or folder.refused,
    SharedLocation: lambda folder: "shared place" in folder.lies,
}


def _truly_blocked(world: World, blocker: Blocker) -> None:
    attempts = blocker.attempts if isinstance(blocker, SharedLocation) else (blocker.attempt,)
    just = JUST[type(blocker)]
    if not all(any(just(folder) for folder in folders_of(world, attempt)) for attempt in attempts):
        raise Broken(f"blocked by {blocker}, which is not so")


def _truly_over(world: World, actor: Actor) -> None:
    """Nothing of a cancelled run lives that had begun before processes were read. What begins afterwards is found where it begins."""
    looked = actor.stages.get("processes", 0)
    for folder in world.folders.values():
        if any(execution.alive and execution.began_at < looked for execution in folder.executions) and not folder.lies:
            raise Broken(f"the run is concluded to be over, and a trainer of {folder.attempt.nonce.hex[:2]} lives")


def at_the_end(world: World) -> None:
    """Hold the whole recorded history against the rules of claims, and what was left running against the verdict."""
    violations = check(world.history, ends_known=True)
    if violations:
        raise Broken(f"the history breaks its rules: {violations}")
    asked = {entry.version: entry.by for entry in world.store.entries}
    retried = [
        claim for claim in world.store.ledger.claims if isinstance(claim.transition.cause, InfrastructureRetry) and not asked[claim.version]
    ]
    if len(retried) > world.retries:
        raise Broken(f"{len(retried)} retries were made that nobody asked for, and {world.retries} were allowed")
    if not world.store.is_open():
        alive = [f"{folder.attempt.nonce.hex[:2]}" for folder in world.folders.values() if folder.lives()]
        if alive:
            raise Broken(f"the run is closed ({world.store.closed_arm}), and trainers of {', '.join(alive)} live")
