"""What the evidence says of each single attempt: indexed once, in O(attempts + members), and judged without looking at another attempt.

Rules kept here:

1. Every check answers with all that it finds; none hides what another one finds.
2. Two things are told apart only where they are identified: an execution without an identity is not counted beside another one.
3. What one source says is a fact about that source. A success that another source disputes still lacks an output where there is none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
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
    NotExecuted,
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
from countermark.run.claims import Adjudication, ControlState, DispatchRefused, LaunchResult
from countermark.run.dispatch import strength
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
from countermark.verdict.rulings import NOTHING_RULED, Rulings


@final
@dataclass(slots=True)
class Standing:
    """The members that concern one attempt, as the sweep found them."""

    attempt: AttemptKey
    control: ControlState
    first_terminals: list[Terminal] = field(default_factory=list[Terminal])
    second_terminals: list[Terminal] = field(default_factory=list[Terminal])
    processes: list[ProcessSeen] = field(default_factory=list[ProcessSeen])
    unbarred: bool = False
    outputs: list[OutputSeen] = field(default_factory=list[OutputSeen])
    checkpoints: list[CheckpointSeen] = field(default_factory=list[CheckpointSeen])
    manifests: list[ManifestSeen] = field(default_factory=list[ManifestSeen])
    disbelieved: list[Terminal] = field(default_factory=list[Terminal])
    rulings: Rulings = NOTHING_RULED
    set_aside: Adjudication | None = None

    def terminals(self) -> list[Terminal]:
        """Terminals of both readings that stand."""
        return self.first_terminals + self.second_terminals

    def believe(self, source: str) -> None:
        """Let the terminals of this source stand alone. The others stay among what was seen and say nothing about how the attempt ended."""
        self.disbelieved = [terminal for terminal in self.terminals() if terminal.source != source]
        self.first_terminals = [terminal for terminal in self.first_terminals if terminal.source == source]
        self.second_terminals = [terminal for terminal in self.second_terminals if terminal.source == source]

    def succeeded(self) -> bool:
        """Whether every terminal, and at least one, says success, and no person set the attempt aside."""
        terminals = self.terminals()
        return bool(terminals) and self.set_aside is None and all(isinstance(terminal.outcome, Succeeded) for terminal in terminals)

    def success_said(self) -> bool:
        """Whether any source says success, disputed or not."""
        return any(isinstance(terminal.outcome, Succeeded) for terminal in self.terminals())

    def alive(self) -> bool:
        """Whether the trainer or a descendant of it lives."""
        return any(process.state == "alive" for process in self.processes)

    def stirring(self) -> bool:
        """Whether anything lives that may still start the trainer or record a terminal: the trainer or its supervisor."""
        return any(process.lives for process in self.processes)

    def unwanted(self, cancelled: bool) -> bool:
        """Whether something of the attempt lives that is to be stopped, or could begin in a cancelled run. Beside a terminal that is so
        where a person set the attempt aside; else it is a conflict or about to end by itself."""
        if self.set_aside is not None and self.alive():
            return True
        unwanted = cancelled or self.control.superseded or self.set_aside is not None
        return ((unwanted and self.stirring()) or (cancelled and self.unbarred)) and not self.terminals()

    def shown(self) -> bool:
        """Whether anything but a terminal that stands shows that the attempt was started."""
        return bool(self.processes or self.outputs or self.checkpoints or self.manifests or self.disbelieved)

    def launch_result(self) -> LaunchResult | None:
        """The strongest answer of a launcher."""
        return max((outcome.result for outcome in self.control.outcomes), key=strength, default=None)

    def dispatch_refused(self) -> bool:
        """Whether the launcher surely started nothing."""
        return isinstance(self.launch_result(), DispatchRefused)


def standings(evidence: EvidenceComposition, states: Mapping[AttemptKey, ControlState]) -> dict[AttemptKey, Standing]:
    """Every attempt of the graph with the members that concern it."""
    found = {key: Standing(key, states[key]) for key in evidence.graph.attempts}
    # Every member is one of the graph's, and these are all at one work: the nonce, whose hash is kept, tells them apart.
    of = {key.nonce.hex: standing for key, standing in found.items()}
    reads = evidence.readback.reads
    for terminal in reads.terminals.population.members():
        of[terminal.attempt.nonce.hex].first_terminals.append(terminal)
    for terminal in reads.terminals_again.population.members():
        of[terminal.attempt.nonce.hex].second_terminals.append(terminal)
    for process in reads.processes.population.members():
        standing = of[process.attempt.nonce.hex]
        if process.state == "unbarred":
            standing.unbarred = True
        else:
            standing.processes.append(process)
    for output in reads.outputs.population.members():
        of[output.attempt.nonce.hex].outputs.append(output)
    for checkpoint in reads.checkpoints.population.members():
        of[checkpoint.attempt.nonce.hex].checkpoints.append(checkpoint)
    for manifest in reads.manifests.population.members():
        of[manifest.attempt.nonce.hex].manifests.append(manifest)
    return found


def outcome_text(outcome: Outcome) -> str:
    """An outcome as conclusions name it."""
    match outcome:
        case Succeeded():
            return "succeeded"
        case Failed(code):
            return f"failed with exit code {code}"
        case NotExecuted(code, why):
            return f"never executed (exit code {code}): {why}"
        case Killed(signal):
            return f"killed by signal {signal}"
        case CancelledByRequest():
            return "cancelled"
        case Preempted():
            return "preempted"


def _execution_text(execution: ExecutionIdentity) -> str:
    place = f"{execution.host} boot {execution.boot_id} pid namespace {execution.pid_namespace}"
    return f"{place} pid {execution.pid} started at tick {execution.start_ticks}"


def terminal_blockers(standing: Standing) -> tuple[ContradictoryTerminals, ...]:
    """Terminals that contradict each other, whichever source or reading they come from."""
    terminals = standing.terminals()
    if len(terminals) < 2 or len({terminal.outcome for terminal in terminals}) < 2:
        return ()
    said = sorted({f"{terminal.source}: {outcome_text(terminal.outcome)}" for terminal in terminals})
    return (ContradictoryTerminals(standing.attempt, tuple(said)),)


def process_blockers(standing: Standing) -> tuple[Blocker, ...]:
    """More than one identified execution of the attempt, living or not."""
    if len(standing.processes) < 2:
        return ()
    identified = [(process.execution, process.state) for process in standing.processes if process.execution is not None]
    live = {execution for execution, state in identified if state == "alive"}
    executions = {execution for execution, _ in identified}
    defects: list[Blocker] = []
    if len(live) > 1:
        defects.append(SeveralLiveProcesses(standing.attempt, tuple(sorted(map(_execution_text, live)))))
    if len(executions) > 1 and executions != live:
        defects.append(SeveralExecutions(standing.attempt, tuple(sorted(map(_execution_text, executions)))))
    return tuple(defects)


def output_blockers(standing: Standing) -> tuple[Blocker, ...]:
    """Outputs with different digests."""
    if len(standing.outputs) < 2:
        return ()
    digests = sorted({output.digest.spell() for output in standing.outputs})
    return (SeveralOutputs(standing.attempt, tuple(digests)),) if len(digests) > 1 else ()


def control_blockers(standing: Standing) -> tuple[Blocker, ...]:
    """Evidence or attempts that control does not account for."""
    unclaimed = (AttemptWithoutExecutionClaim(standing.attempt),) if standing.control.claim is None else ()
    if not standing.dispatch_refused():
        return unclaimed
    traces: tuple[tuple[Stage, bool], ...] = (
        ("terminals", bool(standing.terminals() or standing.disbelieved)),
        ("processes", bool(standing.processes)),
        ("outputs", bool(standing.outputs)),
        ("checkpoints", bool(standing.checkpoints)),
        ("manifests", bool(standing.manifests)),
    )
    stages: tuple[Stage, ...] = tuple(stage for stage, seen in traces if seen)
    return (*unclaimed, EvidenceOnRefusedDispatch(standing.attempt, stages)) if stages else unclaimed


def ordered_blockers(
    standing: Standing, evidence: EvidenceComposition, outputs_complete: bool
) -> tuple[tuple[Blocker, ...], tuple[OrderMissing, ...]]:
    """Blockers that only a read order licenses, and those that the order at hand does not license. ``outputs_complete``: every source that
    speaks of this attempt's outputs was read completely."""
    if not standing.terminals():
        return (), ()
    defects: list[Blocker] = []
    missing: list[OrderMissing] = []
    stage: Stage
    if standing.success_said() and not standing.outputs and outputs_complete:
        first_success = any(isinstance(terminal.outcome, Succeeded) for terminal in standing.first_terminals)
        stage = "terminals" if first_success else "terminals_again"
        answer = evidence.order(stage, "outputs")
        if isinstance(answer, Ordered):
            defects.append(SuccessWithoutOutput(standing.attempt))
        else:
            missing.append(OrderMissing(standing.attempt, "SuccessWithoutOutput", stage, "outputs", answer))
    if standing.alive():
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


_AGREED = ManifestAgreement((), ())


def manifest_agreement(standing: Standing, desired: Mapping[str, str]) -> ManifestAgreement:
    """Compare what every source read with the desired spellings. A value that was passed through is no agreement, and where it differs it
    is a difference all the same: what was handed on was not what was asked for."""
    if len(standing.manifests) == 1 and _agrees(standing.manifests[0].coordinates, desired):
        return _AGREED
    said: defaultdict[str, list[tuple[str, Read | Unread]]] = defaultdict(list)
    for manifest in standing.manifests:
        for coordinate, reading in manifest.coordinates.items():
            said[coordinate].append((manifest.source, reading))
    diverging: list[str] = []
    unread: list[str] = []
    for coordinate, wanted in desired.items():
        reads = [(source, reading) for source, reading in said[coordinate] if isinstance(reading, Read)]
        others = {f"{reading.value} ({source})" for source, reading in reads if reading.value != wanted}
        if others:
            diverging.append(f"{coordinate}: {wanted} → {', '.join(sorted(others))}")
        elif all(reading.how == "passed_through" for _, reading in reads):
            unread.append(f"{coordinate}: {_why_unread(reading for _, reading in said[coordinate])}")
    return ManifestAgreement(tuple(diverging), tuple(unread))


def _agrees(found: Mapping[str, Read | Unread], desired: Mapping[str, str]) -> bool:
    """Whether one source alone read every coordinate, and read what was asked for."""
    for coordinate, wanted in desired.items():
        reading = found.get(coordinate)
        if not isinstance(reading, Read) or reading.value != wanted or reading.how == "passed_through":
            return False
    return True


def _why_unread(readings: Iterable[Read | Unread]) -> str:
    """Why what was said of a coordinate is no reading of it."""
    said = tuple(readings)
    reasons = sorted({reading.reason for reading in said if isinstance(reading, Unread)})
    return "; ".join(reasons) or ("passed through, which is no reading" if said else "nobody read it")


def manifest_blockers(standing: Standing, agreement: ManifestAgreement) -> tuple[Blocker, ...]:
    """Coordinates in which what ran differs from what was asked for."""
    return (EffectiveManifestDiverges(standing.attempt, agreement.diverging),) if agreement.diverging else ()


def unread_note(standing: Standing, agreement: ManifestAgreement) -> tuple[CoordinatesUnread, ...]:
    """The coordinates that nobody read, as a reason why there is no candidate."""
    return (CoordinatesUnread(standing.attempt, agreement.unread),) if agreement.unread else ()
