"""Sentences for what keeps a person's decision about a run from being taken, each with what could be decided instead."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.surface import (
    CapabilityNotForLost,
    CheckpointNotAmong,
    DecisionDefect,
    ResumeUnavailable,
    RetryUnavailable,
    RunMovedMeanwhile,
    RunNamedForAttempt,
    RunNotAtRest,
)
from countermark.lines.texts import listed, plain


def decision_sentence(defect: DecisionDefect) -> Sentence:
    match defect:
        case ResumeUnavailable(verdict):
            return Sentence(
                f"the run cannot be resumed as it stands: it is {plain(verdict)}", "see why, and what is next: countermark status RUN"
            )
        case CheckpointNotAmong(step, admitted):
            return Sentence(
                f"no checkpoint of step {step} can be resumed from; admitted: {listed(map(plain, admitted))}",
                "name one of those steps, or leave --from out for the newest",
            )

        case RetryUnavailable(verdict):
            return Sentence(f"the run cannot be begun again as it stands: it is {plain(verdict)}", _instead_of_retry(verdict))
        case CapabilityNotForLost(capability):
            return Sentence(
                f"{quoted(capability)} cannot be given to what follows a lost attempt: nobody saw it end for want of anything",
                "relaunch it as it was: countermark retry RUN",
            )
        case RunNotAtRest(verdict):
            return Sentence(
                f"the run cannot be done once more as it stands: it is {plain(verdict)}",
                "bring it to rest first: countermark status RUN says what is next",
            )
        case RunNamedForAttempt(name, attempts):
            return Sentence(
                f"{quoted(name)} is a run, and one of its attempts is to be named: {listed(map(plain, attempts)) or 'it has none yet'}",
                "see how each stands: countermark attempts RUN",
            )
        case RunMovedMeanwhile(current):
            return Sentence(
                f"somebody else acted on the run after it was looked at (its ledger is at version {current}), and nothing was claimed",
                "see how it stands now, then decide again: countermark status RUN",
            )


def _instead_of_retry(verdict: str) -> str:
    """What to do about a run of which not every way on has ended; ``verdict`` is the name of the arm."""
    instead = {
        "ResumeAvailable": "go on from its checkpoint: countermark resume RUN; or from nothing: countermark retry RUN --from-nothing",
        "Converged": "there is nothing to mend; to have the work done once more: countermark reexecute RUN",
        "SeveralCandidates": "there is nothing to mend; to have the work done once more: countermark reexecute RUN",
    }
    return instead.get(verdict, "see why, and what is next: countermark status RUN")
