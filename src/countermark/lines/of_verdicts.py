"""Sentences for blockers, for why a run has not converged yet, and for what is named beside a verdict."""

from collections.abc import Mapping
from typing import Final

from countermark.evidence.cut import OutOfOrder, Unobserved
from countermark.lines.of_evidence import stage_text
from countermark.lines.of_runs import name
from countermark.lines.sentence import Sentence, quoted
from countermark.lines.texts import counted, listed, plain
from countermark.run.claims import BelieveSource, Ruling, SetAside
from countermark.verdict.kinds import (
    AttemptWithoutExecutionClaim,
    AxisNotAttempted,
    AxisRefused,
    Blocker,
    BlockerAdjudicated,
    CheckpointNotAdmitted,
    ContradictoryTerminals,
    CoordinatesUnread,
    EffectiveManifestDiverges,
    EvidenceOnRefusedDispatch,
    GraceRunning,
    LiveProcessAfterTerminal,
    NoOutputRead,
    NoSuccess,
    NotBarred,
    Note,
    NoTerminal,
    NothingAttempted,
    OrderMissing,
    OrphanOutput,
    RulingEffect,
    SetAsideByPerson,
    SeveralExecutions,
    SeveralLiveProcesses,
    SeveralOutputs,
    SharedLocation,
    SuccessWithoutOutput,
    WhyNot,
)

VerdictDefect = Blocker | WhyNot | Note

_EVIDENCE = "look at what each source says: countermark evidence RUN"
_AGAIN = "look again: countermark reconcile RUN"
_ACT = "see what should happen and do it: countermark reconcile RUN --act"


def blocker_sentence(defect: Blocker) -> Sentence:
    match defect:
        case ContradictoryTerminals(attempt, sources):
            return Sentence(f"the terminals of {name(attempt)} contradict each other: {listed(map(plain, sources))}", _EVIDENCE)
        case LiveProcessAfterTerminal(attempt):
            return Sentence(f"{name(attempt)} has ended by its terminal, and a process of it lives", f"stop that process, then {_AGAIN}")
        case SeveralLiveProcesses(attempt, executions):
            return Sentence(
                f"{name(attempt)} runs more than once at once: {listed(map(plain, executions))}", f"stop all but one; {_EVIDENCE}"
            )
        case SeveralExecutions(attempt, executions):
            return Sentence(f"{name(attempt)} was started more than once: {listed(map(plain, executions))}", _EVIDENCE)
        case SuccessWithoutOutput(attempt):
            return Sentence(
                f"{name(attempt)} ended in success and its output place is empty",
                "publish the result at COUNTERMARK_OUTPUT before COMMAND ends; what this attempt wrote elsewhere is no output",
            )
        case SeveralOutputs(attempt, digests):
            return Sentence(f"{name(attempt)} has outputs with different digests: {listed(map(plain, digests))}", _EVIDENCE)
        case EffectiveManifestDiverges(attempt, coordinates):
            return Sentence(
                f"{name(attempt)} ran something else than was asked for: {listed(map(plain, coordinates))}",
                "make COMMAND follow the manifest that it is handed (countermark.train does), or ask for what it really runs",
            )
        case AttemptWithoutExecutionClaim(attempt):
            return Sentence(f"{name(attempt)} is in the graph and nobody claimed it", "see every such row: countermark store check")
        case EvidenceOnRefusedDispatch(attempt, stages):
            return Sentence(
                f"the launcher said that it started nothing for {name(attempt)}, and {listed(map(stage_text, stages))} show traces of it",
                _EVIDENCE,
            )
        case SharedLocation(path, attempts):
            return Sentence(
                f"{listed(map(name, attempts))} wrote to one place: {quoted(path)}",
                "nothing there can be attributed: give each attempt a place of its own (COUNTERMARK_OUTPUT is one)",
            )


def why_not_sentence(defect: WhyNot) -> Sentence:
    match defect:
        case NothingAttempted():
            return Sentence("nothing was attempted yet", _ACT)
        case NoTerminal(attempt):
            return Sentence(
                f"{name(attempt)} has not ended, as far as anybody recorded", "wait, or watch it: countermark reconcile RUN --watch"
            )
        case NoSuccess(attempt, outcome):
            return Sentence(
                f"{name(attempt)} ended otherwise: {plain(outcome)}", f"its log lies in its folder (countermark attempts RUN); {_ACT}"
            )
        case NoOutputRead(attempt):
            return Sentence(f"no output of {name(attempt)} was read back", _AGAIN)
        case CoordinatesUnread(attempt, coordinates):
            return Sentence(
                f"of what {name(attempt)} ran, {counted(len(coordinates), 'coordinate')} stayed unread: {_by_reason(coordinates)}",
                "use countermark.train in COMMAND: its callback writes what really ran",
            )
        case AxisNotAttempted(stage, source, why):
            return Sentence(f"nobody looked at {stage_text(stage)} through {plain(source)}: {plain(why)}", "look from where it can be seen")
        case AxisRefused(stage, source, reason):
            return Sentence(f"{plain(source)} gave no reading of {stage_text(stage)}: {plain(reason)}", f"mend that, then {_AGAIN}")
        case OrderMissing(attempt, rule, earlier, later, answer):
            found = _order(answer)
            return Sentence(
                f"{rule} of {name(attempt)} is not concluded: {stage_text(earlier)} must be read before {stage_text(later)}, and {found}",
                _AGAIN,
            )
        case GraceRunning(attempt, waited_ms, grace_ms):
            return Sentence(
                f"{name(attempt)} was dispatched {waited_ms / 1000:.1f} s before the reading, and has {grace_ms / 1000:.1f} s to show up",
                "wait, then look again: countermark reconcile RUN --watch",
            )
        case CheckpointNotAdmitted(_, step, path, defects):
            return Sentence(
                f"the checkpoint of step {step} cannot be resumed from ({counted(len(defects), 'defect')}): {quoted(path)}",
                "see every defect: countermark checkpoint inspect PATH --for RUN",
            )
        case NotBarred(attempt):
            return Sentence(
                f"{name(attempt)} was to be launched, and no fence keeps it from beginning late",
                f"bar it; {_ACT}",
            )
        case SetAsideByPerson(attempt, by, reason):
            return Sentence(
                f"{plain(by)} set {name(attempt)} aside ({quoted(reason)}), so it counts as ended without success",
                f"the ruling stands; {_ACT}",
            )


def note_sentence(defect: Note) -> Sentence:
    match defect:
        case OrphanOutput(attempt, path, digest):
            return Sentence(
                f"{name(attempt)} left an output without success: {quoted(path)} ({digest.spell()}); it is never taken for the result",
                "keep or remove it as you like",
            )
        case BlockerAdjudicated(attempt, blocker, ruling, by, reason, effect):
            return Sentence(
                f"{plain(by)} ruled {ruling_text(ruling, name(attempt))} ({quoted(reason)}); {_EFFECTS[effect]}: {plain(blocker, 2000)}",
                "see every ruling: countermark claims RUN; a later one takes the place of an earlier one while the blocker is to be seen",
            )


_EFFECTS: Final[Mapping[RulingEffect, str]] = {
    "settled": "this settles",
    "not enough": "this alone does not settle",
    "not seen": "it stands, though this is not to be seen now",
    "overruled": "a later ruling took its place for",
}


def ruling_text(ruling: Ruling, attempt: str) -> str:
    """What was ruled, as a clause that fits after "ruled"."""
    match ruling:
        case SetAside():
            return f"that {attempt} counts as ended without success"
        case BelieveSource(source):
            return f"that of the terminals of {attempt} those by {quoted(source)} stand"


def _by_reason(coordinates: tuple[str, ...]) -> str:
    """``coordinate: reason`` texts, with each reason said once."""
    reasons: dict[str, list[str]] = {}
    for each in coordinates:
        coordinate, _, reason = each.partition(": ")
        reasons.setdefault(reason, []).append(plain(coordinate))
    return "; ".join(f"{listed(names)} ({plain(reason)})" if reason else listed(names) for reason, names in reasons.items())


def _order(answer: OutOfOrder | Unobserved) -> str:
    match answer:
        case OutOfOrder():
            return "they were read the other way round"
        case Unobserved(why):
            return plain(why)
