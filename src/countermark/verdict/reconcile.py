"""Reconciliation: a pure fold from evidence and control to a conclusion. It concludes and does nothing.

Rules kept here:

1. The same input gives the same conclusion, byte for byte: no clock, no randomness, order taken from the input alone.
2. Every blocker of every attempt is reported, unless a person ruled on just it: then it is named as ruled on. Conflicts are facts of one
   attempt; across attempts the same facts are history.
3. A conclusion from absence needs a complete reading by every source, and the read order that licenses it. What was not concluded for want
   of an order is named in every verdict.
4. Candidates come from every attempt, and so does what must be stopped or waited for; everything else is judged on the frontier (attempts
   without a successor).
5. Precedence is the order of the arms of ``Verdict``; the first that applies is concluded.
"""

from dataclasses import InitVar, dataclass
from typing import Final, Literal, final

from countermark.evidence.composition import EvidenceComposition
from countermark.evidence.cut import STAGES
from countermark.run.attempts import AttemptKey
from countermark.run.claims import ControlComposition
from countermark.values import NonEmpty, Refused
from countermark.verdict.fold import Admissions, Fold, adjudications, admissions, fold_of, followed_from, orphan_outputs, perhaps_alive
from countermark.verdict.kinds import (
    Blocked,
    Cancelled,
    Conclusion,
    Converged,
    ExecutionRequired,
    InProgress,
    LaunchDispatchRequired,
    LaunchPending,
    Lost,
    NoOutputRead,
    NoSuccess,
    NotBarred,
    Note,
    NoTerminal,
    NothingAttempted,
    ObservationRequired,
    ResumeAvailable,
    RetryRequired,
    SetAsideByPerson,
    SeveralCandidates,
    StopRequired,
    Verdict,
    WhyNot,
)
from countermark.verdict.places import Place, grace_running, launch_unobserved, needs, observation, place_of, unobserved
from countermark.verdict.standing import Standing, outcome_text, unread_note

_SEAL: Final = object()


@final
@dataclass(frozen=True, slots=True)
class HalvesDisagree:
    """Evidence and control are about different subjects (``half``: demand or work) or different attempts, so they cannot be joined."""

    half: Literal["demand", "work", "attempt"]


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
    if evidence.subject.work != control.subject.work:
        defects.append(HalvesDisagree("work"))
    elif evidence.graph.attempts.keys() != control.states.keys():
        defects.append(HalvesDisagree("attempt"))
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    return ConvergenceInput(evidence, control, grace_ms, _SEAL)


def reconcile(given: ConvergenceInput) -> Conclusion:
    """The conclusion that the evidence supports. Total: every input has exactly one. O(attempts + members)."""
    fold = fold_of(given.evidence, given.control, given.grace_ms)
    frontier = [fold.found[key] for key in given.evidence.graph.frontier()]
    verdict, further = _verdict(fold, frontier)
    not_concluded = (missing for orders in fold.orders.values() for missing in orders)
    reasons = () if isinstance(verdict, Converged | SeveralCandidates) else _reasons(fold, frontier)
    notes: tuple[Note, ...] = (*orphan_outputs(fold), *adjudications(fold))
    return Conclusion(verdict, tuple(dict.fromkeys((*further, *reasons, *not_concluded))), notes)


Walked = tuple[Verdict, tuple[WhyNot, ...]]
"""A verdict, and the reasons that only the way to it shows."""


def _verdict(fold: Fold, frontier: list[Standing]) -> Walked:
    """Walk the arms in their precedence."""
    if (blockers := NonEmpty.of(fold.blockers)) is not None:
        return Blocked(blockers), ()
    cancelled = fold.control.cancelled
    unwanted = [standing for standing in fold.found.values() if standing.unwanted(cancelled)]
    if (attempts := NonEmpty.of(standing.attempt for standing in unwanted)) is not None:
        return StopRequired(attempts), tuple(NotBarred(standing.attempt) for standing in unwanted if not standing.stirring())
    if cancelled:
        maybe_alive = tuple(missing for standing in fold.found.values() for missing in perhaps_alive(fold, standing))
        return _unless(Cancelled(), observation(unobserved(fold, {"processes": None}), (), maybe_alive))
    stirring = (standing.attempt for standing in fold.found.values() if standing.stirring() and not standing.terminals())
    if (attempts := NonEmpty.of(stirring)) is not None:
        return InProgress(attempts), ()
    if not frontier:
        return _unless(ExecutionRequired(), observation(unobserved(fold, dict.fromkeys(STAGES)), (), ()))
    return _at_rest(fold, frontier)


def _unless(verdict: Verdict, needed: ObservationRequired | None) -> Walked:
    """The verdict, unless something that it rests on was not observed."""
    return (verdict, ()) if needed is None else (needed, _named(needed))


def _named(needed: ObservationRequired) -> tuple[WhyNot, ...]:
    return (*needed.not_attempted, *needed.refused, *needed.coordinates_unread, *needed.orders_missing)


def _at_rest(fold: Fold, frontier: list[Standing]) -> Walked:
    """The arms below ``InProgress``, over attempts of which none lives."""
    places: dict[AttemptKey, Place] = {standing.attempt: place_of(fold, standing) for standing in frontier}
    only_ended = not fold.candidates and all(place in ("ended", "refused") for place in places.values())
    looked: Admissions = admissions(fold) if only_ended else ((), ())
    admitted, rejected = NonEmpty.of(looked[0]), looked[1]
    needed = needs(fold, places, only_ended, admitted is not None)
    if needed is not None:
        return needed, (*_named(needed), *rejected)

    def at(*wanted: Place) -> NonEmpty[AttemptKey] | None:
        return NonEmpty.of(attempt for attempt, place in places.items() if place in wanted)

    if (attempts := at("claimed", "redispatch")) is not None:
        return LaunchDispatchRequired(attempts), ()
    if (attempts := at("pending", "elsewhere", "unknown")) is not None:
        return LaunchPending(attempts), (*launch_unobserved(fold, places), *grace_running(fold, places))
    if (attempts := at("lost", "abandoned", "set aside")) is not None:
        return Lost(attempts), ()
    if (candidates := NonEmpty.of(fold.candidates)) is not None:
        if candidates.more:
            return SeveralCandidates(candidates, len({candidate.output for candidate in candidates}) == 1), ()
        return Converged(candidates.first), ()
    ended = at("ended", "refused")
    # Any other place was answered above, and a success that is no candidate is among what is needed.
    assert ended is not None
    if admitted is None:
        return RetryRequired(ended), rejected
    newest, *older = (checkpoint for _, checkpoint in admitted)
    return ResumeAvailable(followed_from(fold, ended, admitted.first[0]), NonEmpty(newest, tuple(older))), rejected


def _reasons(fold: Fold, frontier: list[Standing]) -> tuple[WhyNot, ...]:
    """Why the frontier has not converged, attempt by attempt."""
    if not frontier:
        return (NothingAttempted(),)
    reasons: list[WhyNot] = []
    completed = {candidate.attempt for candidate in fold.candidates}
    for standing in frontier:
        if standing.attempt in completed:
            continue
        if standing.set_aside is not None:
            reasons.append(SetAsideByPerson(standing.attempt, standing.set_aside.by, standing.set_aside.reason))
        elif not standing.terminals():
            reasons.append(NoTerminal(standing.attempt))
        elif not standing.succeeded():
            outcomes = sorted({outcome_text(terminal.outcome) for terminal in standing.terminals()})
            reasons.append(NoSuccess(standing.attempt, ", ".join(outcomes)))
        elif not standing.outputs:
            reasons.append(NoOutputRead(standing.attempt))
        if standing.succeeded():
            reasons.extend(unread_note(standing, fold.agreement(standing)))
    return tuple(reasons)
