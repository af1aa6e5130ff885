"""What the evidence says of each single attempt: indexed once, in O(attempts + members), and judged without looking at another attempt."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import final

from countermark.evidence.composition import EvidenceComposition
from countermark.evidence.cut import Ordered, Stage
from countermark.evidence.members import (
    CancelledByRequest,
    CheckpointSeen,
    ExecutionIdentity,
    Failed,
    Killed,
    ManifestSeen,
    Outcome,
    OutputSeen,
    Preempted,
    ProcessSeen,
    Read,
    Succeeded,
    Terminal,
    Unread,
)
from countermark.run.attempts import AttemptKey
from countermark.run.claims import ControlState, DispatchRefused
from countermark.verdict.kinds import (
    AttemptWithoutExecutionClaim,
    Blocker,
    ContradictoryTerminals,
    CoordinatesUnread,
    EffectiveManifestDiverges,
    EvidenceOnRefusedDispatch,
    LiveProcessAfterTerminal,
    OrderMissing,
    SeveralExecutions,
    SeveralLiveProcesses,
    SeveralOutputs,
    SuccessWithoutOutput,
)


@final
@dataclass(slots=True)
class Standing:
    """The members that concern one attempt, as the sweep found them."""

    attempt: AttemptKey
    control: ControlState
    first_terminals: list[Terminal] = field(default_factory=list)
    second_terminals: list[Terminal] = field(default_factory=list)
    processes: list[ProcessSeen] = field(default_factory=list)
    outputs: list[OutputSeen] = field(default_factory=list)
    checkpoints: list[CheckpointSeen] = field(default_factory=list)
    manifests: list[ManifestSeen] = field(default_factory=list)

    def terminals(self) -> list[Terminal]:
        """Terminals of both readings."""
        return self.first_terminals + self.second_terminals

    def succeeded(self) -> bool:
        """Whether every terminal, and at least one, says success."""
        terminals = self.terminals()
        return bool(terminals) and all(isinstance(terminal.outcome, Succeeded) for terminal in terminals)

    def ended_without_success(self) -> bool:
        """Whether there is a terminal and it is no success."""
        return bool(self.terminals()) and not self.succeeded()

    def alive(self) -> bool:
        """Whether the trainer or a descendant of it lives."""
        return any(process.state == "alive" for process in self.processes)

    def stirring(self) -> bool:
        """Whether anything lives that may still record a terminal: the trainer or its supervisor."""
        return any(process.state != "dead" for process in self.processes)

    def dispatch_refused(self) -> bool:
        """Whether the launcher surely started nothing."""
        return any(isinstance(outcome.result, DispatchRefused) for outcome in self.control.outcomes)


def standings(evidence: EvidenceComposition, states: dict[AttemptKey, ControlState]) -> dict[AttemptKey, Standing]:
    """Every attempt of the graph with the members that concern it."""
    found = {key: Standing(key, states[key]) for key in evidence.graph.attempts}
    reads = evidence.readback.reads
    for terminal in reads.terminals.population.members():
        found[terminal.attempt].first_terminals.append(terminal)
    for terminal in reads.terminals_again.population.members():
        found[terminal.attempt].second_terminals.append(terminal)
    for process in reads.processes.population.members():
        found[process.attempt].processes.append(process)
    for output in reads.outputs.population.members():
        found[output.attempt].outputs.append(output)
    for checkpoint in reads.checkpoints.population.members():
        found[checkpoint.attempt].checkpoints.append(checkpoint)
    for manifest in reads.manifests.population.members():
        found[manifest.attempt].manifests.append(manifest)
    return found


def outcome_text(outcome: Outcome) -> str:
    """An outcome as conclusions name it."""
    match outcome:
        case Succeeded():
            return "succeeded"
        case Failed(code):
            return f"failed with exit code {code}"
        case Killed(signal):
            return f"killed by signal {signal}"
        case CancelledByRequest():
            return "cancelled"
        case Preempted():
            return "preempted"


def _execution_text(execution: ExecutionIdentity | None) -> str:
    if execution is None:
        return "unidentified (lock held, no receipt)"
    return f"{execution.host} boot {execution.boot_id} pid {execution.pid} started at tick {execution.start_ticks}"


def terminal_blockers(standing: Standing) -> tuple[Blocker, ...]:
    """Terminals that contradict each other, whichever source or reading they come from."""
    if len({terminal.outcome for terminal in standing.terminals()}) < 2:
        return ()
    said = sorted({f"{terminal.source}: {outcome_text(terminal.outcome)}" for terminal in standing.terminals()})
    return (ContradictoryTerminals(standing.attempt, tuple(said)),)


def process_blockers(standing: Standing) -> tuple[Blocker, ...]:
    """More than one execution of the attempt, living or not."""
    live = {process.execution for process in standing.processes if process.state == "alive"}
    executions = {process.execution for process in standing.processes}
    defects: list[Blocker] = []
    if len(live) > 1:
        defects.append(SeveralLiveProcesses(standing.attempt, tuple(sorted(map(_execution_text, live)))))
    if len(executions) > 1 and executions != live:
        defects.append(SeveralExecutions(standing.attempt, tuple(sorted(map(_execution_text, executions)))))
    return tuple(defects)


def output_blockers(standing: Standing) -> tuple[Blocker, ...]:
    """Outputs with different digests."""
    digests = sorted({output.digest.spell() for output in standing.outputs})
    return (SeveralOutputs(standing.attempt, tuple(digests)),) if len(digests) > 1 else ()


def control_blockers(standing: Standing) -> tuple[Blocker, ...]:
    """Evidence or attempts that control does not account for."""
    defects: list[Blocker] = []
    if standing.control.claim is None:
        defects.append(AttemptWithoutExecutionClaim(standing.attempt))
    traces: tuple[tuple[Stage, bool], ...] = (
        ("terminals", bool(standing.terminals())),
        ("processes", bool(standing.processes)),
        ("outputs", bool(standing.outputs)),
        ("checkpoints", bool(standing.checkpoints)),
        ("manifests", bool(standing.manifests)),
    )
    stages = tuple(stage for stage, seen in traces if seen)
    if standing.dispatch_refused() and stages:
        defects.append(EvidenceOnRefusedDispatch(standing.attempt, stages))
    return tuple(defects)


def ordered_blockers(standing: Standing, evidence: EvidenceComposition) -> tuple[tuple[Blocker, ...], tuple[OrderMissing, ...]]:
    """Blockers that only a read order licenses, and those that the order at hand does not license."""
    defects: list[Blocker] = []
    missing: list[OrderMissing] = []
    reads = evidence.readback.reads
    first_success = any(isinstance(terminal.outcome, Succeeded) for terminal in standing.first_terminals)
    if standing.succeeded() and not standing.outputs and reads.outputs.population.complete():
        answer = evidence.order("terminals" if first_success else "terminals_again", "outputs")
        if isinstance(answer, Ordered):
            defects.append(SuccessWithoutOutput(standing.attempt))
        else:
            stage: Stage = "terminals" if first_success else "terminals_again"
            missing.append(OrderMissing(standing.attempt, "SuccessWithoutOutput", stage, "outputs", answer))
    if standing.terminals() and standing.alive():
        stage = "terminals" if standing.first_terminals else "terminals_again"
        answer = evidence.order(stage, "processes")
        if isinstance(answer, Ordered):
            defects.append(LiveProcessAfterTerminal(standing.attempt))
        else:
            missing.append(OrderMissing(standing.attempt, "LiveProcessAfterTerminal", stage, "processes", answer))
    return tuple(defects), tuple(missing)


@final
@dataclass(frozen=True, slots=True)
class ManifestAgreement:
    """How an effective manifest compares with the desired one: what differs, and what nobody read."""

    diverging: tuple[str, ...]
    unread: tuple[str, ...]

    def equal(self) -> bool:
        """Whether every coordinate was read and agrees."""
        return not self.diverging and not self.unread


def manifest_agreement(standing: Standing, desired: dict[str, str]) -> ManifestAgreement:
    """Compare what every source read with the desired spellings. A value that was passed through is no agreement."""
    said: defaultdict[str, list[tuple[str, Read | Unread]]] = defaultdict(list)
    for manifest in standing.manifests:
        for coordinate, reading in manifest.coordinates.items():
            said[coordinate].append((manifest.source, reading))
    diverging: list[str] = []
    unread: list[str] = []
    for coordinate, wanted in desired.items():
        reads = [(source, reading) for source, reading in said[coordinate] if isinstance(reading, Read)]
        others = [f"{reading.value} ({source})" for source, reading in reads if reading.value != wanted]
        if others:
            diverging.append(f"{coordinate}: {wanted} → {', '.join(sorted(set(others)))}")
        elif not any(reading.how != "passed_through" for _, reading in reads):
            reasons = sorted({reading.reason for _, reading in said[coordinate] if isinstance(reading, Unread)})
            why = "; ".join(reasons) or ("passed through, which is no reading" if reads else "nobody read it")
            unread.append(f"{coordinate}: {why}")
    return ManifestAgreement(tuple(diverging), tuple(unread))


def manifest_blockers(standing: Standing, agreement: ManifestAgreement) -> tuple[Blocker, ...]:
    """Coordinates in which what ran differs from what was asked for."""
    return (EffectiveManifestDiverges(standing.attempt, agreement.diverging),) if agreement.diverging else ()


def unread_note(standing: Standing, agreement: ManifestAgreement) -> tuple[CoordinatesUnread, ...]:
    """The coordinates that nobody read, as a reason why there is no candidate."""
    return (CoordinatesUnread(standing.attempt, agreement.unread),) if agreement.unread else ()
