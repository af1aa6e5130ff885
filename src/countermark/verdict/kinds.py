"""The closed sums of reconciliation: blockers, reasons why a run has not converged yet, notes, and verdicts."""

from dataclasses import InitVar, dataclass
from typing import Final, Literal, final, get_args

from countermark.evidence.cut import OutOfOrder, Stage, Unobserved
from countermark.run.attempts import AttemptKey
from countermark.run.checkpoint import AdmittedCheckpoint, CheckpointDefect
from countermark.run.claims import Ruling
from countermark.values import NonEmpty, Sha256

CANDIDATE_SEAL: Final = object()


@final
@dataclass(frozen=True, slots=True)
class ContradictoryTerminals:
    """Terminals of one attempt disagree; each ``source: outcome`` is kept."""

    attempt: AttemptKey
    sources: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class LiveProcessAfterTerminal:
    """A process of the attempt lives although its terminal had been read before."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class SeveralLiveProcesses:
    """Two or more executions of one attempt live at once."""

    attempt: AttemptKey
    executions: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SeveralExecutions:
    """One attempt was started more than once, though not all of its executions live."""

    attempt: AttemptKey
    executions: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SuccessWithoutOutput:
    """The attempt says success, and the output place, read afterwards, is empty."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class SeveralOutputs:
    """One attempt has outputs with different digests."""

    attempt: AttemptKey
    digests: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class EffectiveManifestDiverges:
    """What ran is not what was asked for; each coordinate is named as ``coordinate: desired → found (source)``."""

    attempt: AttemptKey
    coordinates: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class AttemptWithoutExecutionClaim:
    """The attempt is in the graph and nobody claimed it: a defect in control, never a reason to launch."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class EvidenceOnRefusedDispatch:
    """The launcher said that it started nothing, and the named stages show traces of the attempt."""

    attempt: AttemptKey
    stages: tuple[Stage, ...]


@final
@dataclass(frozen=True, slots=True)
class SharedLocation:
    """Several attempts wrote one place; they stand in the order of their nonces."""

    path: str
    attempts: tuple[AttemptKey, ...]


Blocker = (
    ContradictoryTerminals
    | LiveProcessAfterTerminal
    | SeveralLiveProcesses
    | SeveralExecutions
    | SuccessWithoutOutput
    | SeveralOutputs
    | EffectiveManifestDiverges
    | AttemptWithoutExecutionClaim
    | EvidenceOnRefusedDispatch
    | SharedLocation
)


@final
@dataclass(frozen=True, slots=True)
class NothingAttempted:
    """The run has no attempt."""


@final
@dataclass(frozen=True, slots=True)
class NoTerminal:
    """The attempt has not ended, as far as anybody recorded."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class NoSuccess:
    """The attempt ended otherwise (``outcome``)."""

    attempt: AttemptKey
    outcome: str


@final
@dataclass(frozen=True, slots=True)
class NoOutputRead:
    """No output of the successful attempt was read back."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class CoordinatesUnread:
    """Nobody could read these coordinates of what ran (``coordinate: reason``)."""

    attempt: AttemptKey
    coordinates: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class AxisNotAttempted:
    """Nobody looked at a source of this stage."""

    stage: Stage
    source: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class AxisRefused:
    """A source of this stage gave no reading."""

    stage: Stage
    source: str
    reason: str


@final
@dataclass(frozen=True, slots=True)
class OrderMissing:
    """What was seen of the attempt would make ``rule`` a conclusion, and the read order that licenses it was not there."""

    attempt: AttemptKey
    rule: Literal["SuccessWithoutOutput", "LiveProcessAfterTerminal", "Lost"]
    earlier: Stage
    later: Stage
    answer: OutOfOrder | Unobserved


@final
@dataclass(frozen=True, slots=True)
class GraceRunning:
    """Dispatched, nothing seen, and the grace since dispatch has not passed between the stored receipts (milliseconds)."""

    attempt: AttemptKey
    waited_ms: int
    grace_ms: int


@final
@dataclass(frozen=True, slots=True)
class CheckpointNotAdmitted:
    """A checkpoint was seen that cannot be resumed from, with all its defects."""

    attempt: AttemptKey
    step: int
    path: str
    defects: NonEmpty[CheckpointDefect]


@final
@dataclass(frozen=True, slots=True)
class SetAsideByPerson:
    """A person ruled that the attempt counts as ended without success, whatever it says itself."""

    attempt: AttemptKey
    by: str
    reason: str


@final
@dataclass(frozen=True, slots=True)
class NotBarred:
    """An attempt of a cancelled run that was to be launched: nobody saw a trainer of it, and no fence keeps one from beginning late."""

    attempt: AttemptKey


WhyNot = (
    NothingAttempted
    | NoTerminal
    | NoSuccess
    | NoOutputRead
    | CoordinatesUnread
    | AxisNotAttempted
    | AxisRefused
    | OrderMissing
    | GraceRunning
    | CheckpointNotAdmitted
    | SetAsideByPerson
    | NotBarred
)


@final
@dataclass(frozen=True, slots=True)
class OrphanOutput:
    """An output of an attempt without success: named, never a candidate."""

    attempt: AttemptKey
    path: str
    digest: Sha256


#: ``settled``: the blocker is to be seen and blocks no more. ``not enough``: it is to be seen and still blocks, since others must be ruled
#: on too or the source that was believed said nothing certain. ``not seen``: it is not to be seen now; the ruling stands. ``overruled``: a
#: later ruling decides on it.
RulingEffect = Literal["settled", "not enough", "not seen", "overruled"]


@final
@dataclass(frozen=True, slots=True)
class BlockerAdjudicated:
    """A person ruled on a blocker of the attempt, which ``blocker`` names. The facts stay in evidence, and so does every earlier ruling."""

    attempt: AttemptKey
    blocker: str
    ruling: Ruling
    by: str
    reason: str
    effect: RulingEffect


Note = OrphanOutput | BlockerAdjudicated


@final
@dataclass(frozen=True, slots=True)
class CompletionCandidate:
    """One attempt, claimed, ended in success, with exactly one output and the desired manifest; minted by reconciliation alone."""

    attempt: AttemptKey
    output: Sha256
    path: str
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not CANDIDATE_SEAL:
            raise ValueError("a completion candidate is minted by reconcile")


@final
@dataclass(frozen=True, slots=True)
class Blocked:
    """Conflicting facts about one attempt that nobody has ruled on, each named; a person looks."""

    blockers: NonEmpty[Blocker]


@final
@dataclass(frozen=True, slots=True)
class StopRequired:
    """Cancelled, superseded or set-aside attempts that still live, or whose supervisor does: it could still start the trainer. Of a run
    that was cancelled also those that were to be launched and that no fence keeps from beginning late."""

    attempts: NonEmpty[AttemptKey]


@final
@dataclass(frozen=True, slots=True)
class Cancelled:
    """Cancelled, nothing of it lives, and nothing of it can begin any more."""


@final
@dataclass(frozen=True, slots=True)
class InProgress:
    """Attempts with a live process and no terminal, wherever in the graph they stand: nothing is started beside them."""

    attempts: NonEmpty[AttemptKey]


@final
@dataclass(frozen=True, slots=True)
class ObservationRequired:
    """Something that a conclusion needs was not observed: who mends it is told by which population it stands in."""

    not_attempted: tuple[AxisNotAttempted, ...]
    refused: tuple[AxisRefused, ...]
    coordinates_unread: tuple[CoordinatesUnread, ...]
    orders_missing: tuple[OrderMissing, ...]


@final
@dataclass(frozen=True, slots=True)
class LaunchDispatchRequired:
    """Committed claims that may be dispatched (again, where the launcher creates or gets)."""

    attempts: NonEmpty[AttemptKey]


@final
@dataclass(frozen=True, slots=True)
class LaunchPending:
    """Dispatched, or with an unknown outcome, and nothing seen yet: only look again."""

    attempts: NonEmpty[AttemptKey]


@final
@dataclass(frozen=True, slots=True)
class Lost:
    """Dispatched, grace passed, no process and then no terminal; or given up or, without a terminal, set aside by a person. A relaunch
    needs a new transition."""

    attempts: NonEmpty[AttemptKey]


@final
@dataclass(frozen=True, slots=True)
class SeveralCandidates:
    """Two or more attempts completed; ``equal_weights`` says whether their outputs have one digest."""

    candidates: NonEmpty[CompletionCandidate]
    equal_weights: bool


@final
@dataclass(frozen=True, slots=True)
class Converged:
    """Positive evidence of exactly one completion."""

    candidate: CompletionCandidate


@final
@dataclass(frozen=True, slots=True)
class ResumeAvailable:
    """Every attempt ended without success; the frontier attempt can be followed from any of these checkpoints, newest first. Of several
    frontier attempts it is the one that the newest checkpoint's attempt led to."""

    attempt: AttemptKey
    checkpoints: NonEmpty[AdmittedCheckpoint]


@final
@dataclass(frozen=True, slots=True)
class RetryRequired:
    """Every attempt ended without success and nothing can be resumed."""

    attempts: NonEmpty[AttemptKey]


@final
@dataclass(frozen=True, slots=True)
class ExecutionRequired:
    """Nothing was attempted and nothing claimed, as a complete look at every axis shows."""


#: In order of precedence: the first arm that applies is the verdict.
Verdict = (
    Blocked
    | StopRequired
    | Cancelled
    | InProgress
    | ObservationRequired
    | LaunchDispatchRequired
    | LaunchPending
    | Lost
    | SeveralCandidates
    | Converged
    | ResumeAvailable
    | RetryRequired
    | ExecutionRequired
)
#: The verdicts by name, as they are stored.
ARMS: Final = frozenset(arm.__name__ for arm in get_args(Verdict))


@final
@dataclass(frozen=True, slots=True)
class Conclusion:
    """A verdict with why the run has not converged yet, and what is worth naming beside it."""

    verdict: Verdict
    why_not: tuple[WhyNot, ...]
    notes: tuple[Note, ...]
