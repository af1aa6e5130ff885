"""Reconciliation: a pure fold from evidence and control to a conclusion. It concludes and does nothing.

Rules kept here:

1. The same input gives the same conclusion, byte for byte: no clock, no randomness, order taken from the input alone.
2. Every blocker of every attempt is reported. Conflicts are facts of one attempt; across attempts the same facts are history.
3. A conclusion from absence needs a complete reading by every source, and the read order that licenses it.
4. Candidates come from every attempt; everything else is judged on the frontier (attempts without a successor).
5. Precedence is the order of the arms of ``Verdict``; the first that applies is concluded.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from typing import Final, Literal, final

from countermark.evidence.composition import EvidenceComposition
from countermark.evidence.cut import STAGES, Ordered, Stage
from countermark.evidence.members import NotAttempted, Observed, ReadRefused
from countermark.recipe import spellings
from countermark.run.attempts import AttemptKey
from countermark.run.checkpoint import AdmittedCheckpoint, admit_checkpoint
from countermark.run.claims import ControlComposition, Dispatched, DispatchRefused, DispatchUnknown, creates_or_gets
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import (
    CANDIDATE_SEAL,
    AxisNotAttempted,
    AxisRefused,
    Blocked,
    Blocker,
    Cancelled,
    CheckpointNotAdmitted,
    CompletionCandidate,
    Conclusion,
    Converged,
    CoordinatesUnread,
    ExecutionRequired,
    GraceRunning,
    InProgress,
    LaunchDispatchRequired,
    LaunchPending,
    Lost,
    NoOutputRead,
    NoSuccess,
    NoTerminal,
    NothingAttempted,
    ObservationRequired,
    OrderMissing,
    OrphanOutput,
    ResumeAvailable,
    RetryRequired,
    SeveralCandidates,
    SharedLocation,
    StopRequired,
    Verdict,
    WhyNot,
)
from countermark.verdict.standing import (
    ManifestAgreement,
    Standing,
    control_blockers,
    manifest_agreement,
    manifest_blockers,
    ordered_blockers,
    outcome_text,
    output_blockers,
    process_blockers,
    standings,
    terminal_blockers,
    unread_note,
)

_SEAL: Final = object()


@final
@dataclass(frozen=True, slots=True)
class HalvesDisagree:
    """Evidence and control are about different subjects (``half``), so they cannot be joined."""

    half: Literal["demand", "work"]


@final
@dataclass(frozen=True, slots=True)
class ConvergenceInput:
    """Evidence and control joined on one subject; minted by ``join`` alone. ``grace_ms``: how long a dispatch may show nothing."""

    evidence: EvidenceComposition
    control: ControlComposition
    grace_ms: int
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a convergence input is minted by join")


def join(evidence: EvidenceComposition, control: ControlComposition, grace_ms: int) -> ConvergenceInput | Refused[HalvesDisagree]:
    """Join the two compositions, or name each half of the subject in which they differ."""
    defects: list[HalvesDisagree] = []
    if evidence.subject.demand != control.subject.demand:
        defects.append(HalvesDisagree("demand"))
    if evidence.subject.work != control.subject.work or evidence.graph.attempts.keys() != control.states.keys():
        defects.append(HalvesDisagree("work"))
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    return ConvergenceInput(evidence, control, grace_ms, _SEAL)


#: Where a frontier attempt of which nothing lives stands.
Place = Literal["candidate", "ended", "success", "claimed", "redispatch", "pending", "lost", "refused"]


@final
@dataclass(slots=True)
class _Fold:
    """The indexed input and what the passes over it found."""

    given: ConvergenceInput
    found: dict[AttemptKey, Standing]
    agreements: dict[AttemptKey, ManifestAgreement]
    blockers: list[Blocker]
    orders: dict[AttemptKey, tuple[OrderMissing, ...]]
    candidates: list[CompletionCandidate]

    def complete(self, stage: Stage) -> bool:
        return self.given.evidence.readback.population(stage).complete()


def reconcile(given: ConvergenceInput) -> Conclusion:
    """The conclusion that the evidence supports. Total: every input has exactly one. O(attempts + members)."""
    fold = _index(given)
    verdict, reasons = _verdict(fold)
    return Conclusion(verdict, reasons, _orphans(fold))


def _index(given: ConvergenceInput) -> _Fold:
    found = standings(given.evidence, dict(given.control.states))
    desired = spellings(given.control.desired.manifest)
    fold = _Fold(given, found, {}, [], {}, [])
    for standing in found.values():
        agreement = manifest_agreement(standing, desired)
        ordered, missing = ordered_blockers(standing, given.evidence)
        blockers = (
            *terminal_blockers(standing),
            *process_blockers(standing),
            *output_blockers(standing),
            *manifest_blockers(standing, agreement),
            *control_blockers(standing),
            *ordered,
        )
        fold.agreements[standing.attempt] = agreement
        fold.orders[standing.attempt] = missing
        fold.blockers.extend(blockers)
        if not blockers and standing.succeeded() and standing.outputs and agreement.equal():
            output = standing.outputs[0]
            fold.candidates.append(CompletionCandidate(standing.attempt, output.digest, output.path, CANDIDATE_SEAL))
    fold.blockers.extend(_shared_locations(found.values()))
    return fold


def _shared_locations(found: Iterable[Standing]) -> tuple[SharedLocation, ...]:
    """Places that more than one attempt wrote."""
    writers: defaultdict[str, dict[AttemptKey, None]] = defaultdict(dict)
    for standing in found:
        for member in (*standing.outputs, *standing.checkpoints):
            writers[member.path][standing.attempt] = None
    return tuple(SharedLocation(path, tuple(attempts)) for path, attempts in writers.items() if len(attempts) > 1)


def _orphans(fold: _Fold) -> tuple[OrphanOutput, ...]:
    return tuple(
        OrphanOutput(standing.attempt, output.path, output.digest)
        for standing in fold.found.values()
        if not standing.succeeded()
        for output in standing.outputs
    )


def _verdict(fold: _Fold) -> tuple[Verdict, tuple[WhyNot, ...]]:
    """Walk the arms in their precedence."""
    frontier = [fold.found[key] for key in fold.given.evidence.graph.frontier()]
    reasons = _reasons(fold, frontier)
    if (blockers := NonEmpty.of(fold.blockers)) is not None:
        return Blocked(blockers), reasons
    cancelled = fold.given.control.cancelled
    stop = (s.attempt for s in fold.found.values() if s.alive() and not s.terminals() and (cancelled or s.control.superseded))
    if (attempts := NonEmpty.of(stop)) is not None:
        return StopRequired(attempts), reasons
    if cancelled:
        needed = _unobserved(fold, ("processes",))
        return (Cancelled() if not needed else _observation(needed, (), ()), (*needed, *reasons))
    live = (s.attempt for s in frontier if s.stirring() and not s.terminals())
    if (attempts := NonEmpty.of(live)) is not None:
        return InProgress(attempts), reasons
    if not frontier:
        needed = _unobserved(fold, STAGES)
        return (ExecutionRequired() if not needed else _observation(needed, (), ()), (*needed, *reasons))
    return _frontier_verdict(fold, frontier, reasons)


def _frontier_verdict(fold: _Fold, frontier: list[Standing], reasons: tuple[WhyNot, ...]) -> tuple[Verdict, tuple[WhyNot, ...]]:
    """The arms below ``InProgress``, over attempts of which none lives."""
    completed = {candidate.attempt for candidate in fold.candidates}
    places = {standing.attempt: _place(fold, standing, standing.attempt in completed) for standing in frontier}
    admitted, rejected = _admissions(fold) if any(place in ("ended", "refused") for place in places.values()) else ((), ())
    reasons = (*reasons, *rejected)
    observation = _needs(fold, frontier, places, bool(admitted))
    if observation is not None:
        return observation, (*observation.not_attempted, *observation.refused, *reasons)

    def at(*wanted: Place) -> NonEmpty[AttemptKey] | None:
        return NonEmpty.of(attempt for attempt, place in places.items() if place in wanted)

    if (attempts := at("claimed", "redispatch")) is not None:
        return LaunchDispatchRequired(attempts), reasons
    if (attempts := at("pending")) is not None:
        return LaunchPending(attempts), (*reasons, *_grace(fold, attempts))
    if (attempts := at("lost")) is not None:
        return Lost(attempts), reasons
    if (candidates := NonEmpty.of(fold.candidates)) is not None:
        if candidates.more:
            return SeveralCandidates(candidates, len({candidate.output for candidate in candidates}) == 1), ()
        return Converged(candidates.first), ()
    ended = at("ended", "refused")
    assert ended is not None, "every frontier attempt has a place above"
    if (checkpoints := NonEmpty.of(admitted)) is not None:
        return ResumeAvailable(ended.first, checkpoints), reasons
    return RetryRequired(ended), reasons


def _place(fold: _Fold, standing: Standing, completed: bool) -> Place:
    """Where a frontier attempt that does not live stands."""
    if completed:
        return "candidate"
    if standing.succeeded():
        return "success"
    if standing.terminals():
        return "ended"
    control = standing.control
    if not control.intents:
        return "claimed"
    if not control.outcomes:
        intent = control.intents[-1]
        here = intent.launcher != "local" or intent.host in _hosts(fold)
        if creates_or_gets(intent.launcher) and here:
            return "redispatch"
        return _after_dispatch(fold, standing)
    match control.outcomes[-1].result:
        case DispatchRefused():
            return "refused"
        case DispatchUnknown():
            return "pending"
        case Dispatched():
            return _after_dispatch(fold, standing)


def _hosts(fold: _Fold) -> set[str]:
    """The hosts from which this sweep looked at processes."""
    return {receipt.host for receipt in fold.given.evidence.readback.reads.processes.population.receipts()}


def _after_dispatch(fold: _Fold, standing: Standing) -> Place:
    waited = _waited_ms(fold, standing)
    ordered = isinstance(fold.given.evidence.order("processes", "terminals_again"), Ordered)
    return "lost" if ordered and waited is not None and waited >= fold.given.grace_ms else "pending"


def _waited_ms(fold: _Fold, standing: Standing) -> int | None:
    """Milliseconds between the stored dispatch and the stored receipt of the reading of processes; None without a receipt."""
    facts = [fact.recorded_ms for fact in (*standing.control.intents, *standing.control.outcomes)]
    receipts = [receipt.started_ms for receipt in fold.given.evidence.readback.reads.processes.population.receipts()]
    return min(receipts) - max(facts) if facts and receipts else None


def _grace(fold: _Fold, attempts: NonEmpty[AttemptKey]) -> tuple[GraceRunning, ...]:
    waits = ((attempt, _waited_ms(fold, fold.found[attempt])) for attempt in attempts)
    return tuple(
        GraceRunning(attempt, max(waited, 0), fold.given.grace_ms)
        for attempt, waited in waits
        if waited is not None and waited < fold.given.grace_ms
    )


#: The stages that must have been read completely before an attempt in this place is concluded upon.
_RESTS_ON: Mapping[Place, tuple[Stage, ...]] = {
    "candidate": (),
    "claimed": (),
    "success": (),
    "redispatch": ("terminals", "processes", "terminals_again"),
    "pending": ("terminals", "processes", "terminals_again"),
    "lost": ("terminals", "processes", "terminals_again"),
    "refused": ("terminals", "processes", "terminals_again"),
    "ended": ("processes",),
}


def _needs(fold: _Fold, frontier: list[Standing], places: dict[AttemptKey, Place], resumable: bool) -> ObservationRequired | None:
    """What the arms below ``ObservationRequired`` need and this sweep did not bring, or None."""
    stages: dict[Stage, None] = {}
    coordinates: list[CoordinatesUnread] = []
    orders: list[OrderMissing] = []
    for standing in frontier:
        place = places[standing.attempt]
        stages.update(dict.fromkeys(_RESTS_ON[place]))
        if place in ("ended", "refused") and not resumable:
            stages["checkpoints"] = None
        if place == "success":
            if not standing.outputs:
                stages["outputs"] = None
            stages["manifests"] = None
            coordinates.extend(unread_note(standing, fold.agreements[standing.attempt]))
        if place in ("success", "ended"):
            orders.extend(fold.orders[standing.attempt])
        if place == "pending" and not standing.control.superseded:
            orders.extend(_lost_order(fold, standing))
    needed = _unobserved(fold, tuple(stage for stage in STAGES if stage in stages))
    return _observation(needed, tuple(coordinates), tuple(orders)) if needed or coordinates or orders else None


def _lost_order(fold: _Fold, standing: Standing) -> tuple[OrderMissing, ...]:
    """The read order without which a dispatched attempt that shows nothing, after its grace, is not concluded to be lost."""
    dispatched = standing.control.outcomes and isinstance(standing.control.outcomes[-1].result, Dispatched)
    waited = _waited_ms(fold, standing)
    answer = fold.given.evidence.order("processes", "terminals_again")
    if isinstance(answer, Ordered) or not dispatched or waited is None or waited < fold.given.grace_ms:
        return ()
    return (OrderMissing(standing.attempt, "Lost", "processes", "terminals_again", answer),)


def _unobserved(fold: _Fold, stages: tuple[Stage, ...]) -> tuple[AxisNotAttempted | AxisRefused, ...]:
    """Every source of these stages that was not read completely."""
    missing: list[AxisNotAttempted | AxisRefused] = []
    for stage in stages:
        for reading in fold.given.evidence.readback.population(stage).readings:
            match reading.arm:
                case Observed():
                    pass
                case NotAttempted(why):
                    missing.append(AxisNotAttempted(stage, reading.source, why))
                case ReadRefused(reason, _):
                    missing.append(AxisRefused(stage, reading.source, reason))
    return tuple(missing)


def _observation(
    needed: tuple[AxisNotAttempted | AxisRefused, ...], coordinates: tuple[CoordinatesUnread, ...], orders: tuple[OrderMissing, ...]
) -> ObservationRequired:
    not_attempted = tuple(need for need in needed if isinstance(need, AxisNotAttempted))
    refused = tuple(need for need in needed if isinstance(need, AxisRefused))
    return ObservationRequired(not_attempted, refused, coordinates, orders)


def _admissions(fold: _Fold) -> tuple[tuple[AdmittedCheckpoint, ...], tuple[CheckpointNotAdmitted, ...]]:
    """Every checkpoint of the run, admitted (highest step first) or rejected with all its defects."""
    members = frozenset(key.nonce.hex for key in fold.found)
    manifest = fold.given.control.desired.manifest
    admitted: list[AdmittedCheckpoint] = []
    rejected: list[CheckpointNotAdmitted] = []
    for standing in fold.found.values():
        for seen in standing.checkpoints:
            answer = admit_checkpoint(seen.readback, manifest, members)
            if isinstance(answer, Refused):
                rejected.append(CheckpointNotAdmitted(seen.attempt, seen.step, seen.path, answer.defects))
            else:
                admitted.append(answer)
    return tuple(sorted(admitted, key=lambda checkpoint: -checkpoint.step)), tuple(rejected)


def _reasons(fold: _Fold, frontier: list[Standing]) -> tuple[WhyNot, ...]:
    """Why the frontier has not converged, attempt by attempt."""
    if not frontier:
        return (NothingAttempted(),)
    reasons: list[WhyNot] = []
    completed = {candidate.attempt for candidate in fold.candidates}
    for standing in frontier:
        if standing.attempt in completed:
            continue
        if not standing.terminals():
            reasons.append(NoTerminal(standing.attempt))
        elif not standing.succeeded():
            outcomes = sorted({outcome_text(terminal.outcome) for terminal in standing.terminals()})
            reasons.append(NoSuccess(standing.attempt, ", ".join(outcomes)))
        elif not standing.outputs:
            reasons.append(NoOutputRead(standing.attempt))
        reasons.extend(fold.orders[standing.attempt])
        if standing.succeeded():
            reasons.extend(unread_note(standing, fold.agreements[standing.attempt]))
    return tuple(reasons)
