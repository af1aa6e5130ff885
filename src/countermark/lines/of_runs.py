"""Sentences for the defects of demands, attempt graphs, claims and dispatches."""

from countermark.lines.sentence import Sentence, quoted, short
from countermark.run.attempts import AbsentPredecessor, AttemptGraphDefect, AttemptKey, DuplicateIdentity, ForeignWork, Unrooted
from countermark.run.claims import (
    AttemptIdentityTaken,
    ClaimDefect,
    ControlDefect,
    ControlOnForeignAttempt,
    ControlSubjectMismatch,
    DispatchWithoutClaim,
    OutcomeWithoutIntent,
    PredecessorNotInGraph,
    RunCancelled,
    SeveralClaims,
    SuccessorExists,
    TransitionOfAnotherRun,
)
from countermark.run.demand import WorkNotDerived
from countermark.run.dispatch import (
    AlreadyDispatched,
    AttemptAbandoned,
    AttemptNotClaimed,
    AttemptSetAside,
    DispatchDefect,
    IntentElsewhere,
    IntentUsed,
)

RunDefect = WorkNotDerived | AttemptGraphDefect | ClaimDefect | ControlDefect | DispatchDefect

_CHECK = "the ledger was written by something else: countermark store check names every such row"
_SEE = "look at what the attempts did: countermark attempts RUN"


def name(attempt: AttemptKey) -> str:
    """An attempt as sentences name it."""
    return f"attempt {short(attempt.nonce.hex)}"


def run_sentence(defect: RunDefect) -> Sentence:
    match defect:
        case WorkNotDerived(demanded, derived):
            asked, found = (f"{key.spell()} of {key.principal}" for key in (demanded, derived))
            return Sentence(
                f"the demand is for {asked}, and this recipe derives {found}",
                "demand the work that the recipe derives (countermark key RECIPE), under the principal that it is counted for",
            )
        case ForeignWork() | AbsentPredecessor() | DuplicateIdentity() | Unrooted():
            return _graph(defect)
        case RunCancelled() | PredecessorNotInGraph() | SuccessorExists() | TransitionOfAnotherRun() | AttemptIdentityTaken():
            return _claim(defect)
        case ControlOnForeignAttempt() | SeveralClaims() | DispatchWithoutClaim() | OutcomeWithoutIntent() | ControlSubjectMismatch():
            return _control(defect)
        case AttemptNotClaimed() | AlreadyDispatched() | IntentElsewhere() | IntentUsed() | AttemptAbandoned() | AttemptSetAside():
            return _dispatch(defect)


def _graph(defect: AttemptGraphDefect) -> Sentence:
    match defect:
        case ForeignWork(attempt):
            return Sentence(f"{name(attempt)} is at another work than this run's", _CHECK)
        case AbsentPredecessor(attempt, predecessor):
            return Sentence(f"{name(attempt)} follows {name(predecessor)}, which is not an attempt of this run", _CHECK)
        case DuplicateIdentity(attempt):
            return Sentence(f"{name(attempt)} occurs more than once", _CHECK)
        case Unrooted(attempt):
            return Sentence(f"no chain of predecessors leads from {name(attempt)} to this run's demand", _CHECK)


def _claim(defect: ClaimDefect) -> Sentence:
    match defect:
        case RunCancelled():
            return Sentence(
                "the run was cancelled; nothing of it starts any more", "ask for the work again under another name: --request NAME"
            )
        case PredecessorNotInGraph(predecessor):
            return Sentence(f"{name(predecessor)}, which the transition follows, is not an attempt of this run", _SEE)
        case SuccessorExists(predecessor, successor):
            return Sentence(f"{name(predecessor)} is followed by {name(successor)} already", f"carry on with {name(successor)}; {_SEE}")
        case TransitionOfAnotherRun():
            return Sentence("the transition names another demand or another work than the run's", "look again: countermark reconcile RUN")
        case AttemptIdentityTaken(attempt):
            return Sentence(f"the identity of {name(attempt)} belongs to another claim", "call again: a new identity is drawn each time")


def _control(defect: ControlDefect) -> Sentence:
    match defect:
        case ControlOnForeignAttempt(attempt, kind):
            return Sentence(f"the ledger's {kind} concerns {name(attempt)}, which is not in the run's graph", _CHECK)
        case SeveralClaims(attempt):
            return Sentence(f"{name(attempt)} was claimed more than once", _CHECK)
        case DispatchWithoutClaim(attempt, kind):
            return Sentence(f"an {kind} was recorded for {name(attempt)}, which nobody claimed", _CHECK)
        case OutcomeWithoutIntent(attempt):
            return Sentence(f"a dispatch outcome was recorded for {name(attempt)} without an intent before it", _CHECK)
        case ControlSubjectMismatch(half):
            return Sentence(f"the ledger's run and the attempt graph are about different {half}s", _CHECK)


def _dispatch(
    defect: AttemptNotClaimed | AlreadyDispatched | IntentElsewhere | IntentUsed | AttemptAbandoned | AttemptSetAside,
) -> Sentence:
    match defect:
        case AttemptNotClaimed(attempt):
            return Sentence(f"the run has no claim for {name(attempt)}", _SEE)
        case AlreadyDispatched(attempt):
            return Sentence(f"{name(attempt)} was dispatched before and is never dispatched again", "look at it: countermark reconcile RUN")
        case IntentElsewhere(attempt, launcher, host):
            return Sentence(
                f"{name(attempt)} is being dispatched by launcher {launcher} on host {quoted(host)}",
                "carry on there, or only look from here: countermark reconcile RUN",
            )
        case IntentUsed(attempt, launcher):
            return Sentence(
                f"launcher {launcher} was called for {name(attempt)} and its answer was not recorded, so it may be running",
                "look until it shows or is lost: countermark reconcile RUN --watch",
            )
        case AttemptAbandoned(attempt):
            return Sentence(f"{name(attempt)} was given up and is not started any more", _SEE)
        case AttemptSetAside(attempt):
            return Sentence(
                f"a person set {name(attempt)} aside, and it is not started any more", "see who, and why: countermark claims RUN"
            )
