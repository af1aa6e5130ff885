"""Claims, dispatch and their composition with the attempt graph.

Rules kept here:

1. The exclusion key is the transition ``(demand, work, cause)``. Its slot is used once, ever; the attempt's own identity excludes nothing.
2. ``admit_start_claim`` looks at the slot first (occupied is a success: carry on with the winner's occurrence), then at the version
   (moved: look again), then at every defect together. It decides purely; the store runs the transaction around it.
3. A predecessor has at most one committed successor.
4. Intents and outcomes exist only for committed claims; an attempt with an outcome is never dispatched again.
5. Control facts join the attempt graph once, on one subject, with every mismatch named.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from typing import Final, Literal, TypeVar, final

from countermark.recipe import WorkKey
from countermark.recipe.canonical import digest_of
from countermark.run.attempts import (
    Attempt,
    AttemptGraph,
    AttemptKey,
    CapabilityEscalation,
    Cause,
    InfrastructureRetry,
    InitialAttempt,
    Relaunch,
    RequestedReexecution,
    Resume,
    predecessor_of,
)
from countermark.run.demand import DemandId, Subject, TrainingRunDesired, subject_of
from countermark.values import NonEmpty, Refused, Sha256

_SEAL: Final = object()

Fact = TypeVar("Fact", "DispatchIntent", "DispatchOutcome", "Adjudication")
Launcher = Literal["local", "slurm", "ray"]


def creates_or_gets(launcher: Launcher) -> bool:
    """Whether a second dispatch of one claim by this launcher finds the first instead of starting another trainer."""
    match launcher:
        case "local" | "ray":
            return True
        case "slurm":
            return False


def cause_parts(cause: Cause) -> tuple[str, ...]:
    """A cause as texts, its arm first: what a slot is made of, and what a ledger row stores."""
    match cause:
        case InitialAttempt():
            return ("InitialAttempt",)
        case RequestedReexecution(request):
            return ("RequestedReexecution", request)
        case InfrastructureRetry(before):
            return ("InfrastructureRetry", before.nonce.hex)
        case CapabilityEscalation(before, capability):
            return ("CapabilityEscalation", before.nonce.hex, capability)
        case Relaunch(before, lost, checkpoint):
            begun = () if checkpoint is None else (str(checkpoint.step), checkpoint.digest.hex)
            return ("Relaunch", before.nonce.hex, lost, *begun)
        case Resume(before, checkpoint):
            return ("Resume", before.nonce.hex, str(checkpoint.step), checkpoint.digest.hex)


@final
@dataclass(frozen=True, slots=True)
class Transition:
    """What a start is claimed for; equal transitions compete for one slot, whoever asks."""

    demand: DemandId
    work: WorkKey
    cause: Cause

    def slot(self) -> Sha256:
        """The exclusion key: SHA-256 over the length-prefixed parts, so no two transitions share one."""
        texts = (
            "countermark/slot/1",
            self.demand.requester.text,
            self.demand.request.text,
            self.work.principal.text,
            self.work.digest.hex,
            *cause_parts(self.cause),
        )
        return digest_of(*[text.encode("utf-8", "surrogatepass") for text in texts])


@final
@dataclass(frozen=True, slots=True)
class ExecutionClaim:
    """A committed claim: this attempt, and no other, carries out the transition. Read from a ledger or minted by its commit."""

    transition: Transition
    attempt: AttemptKey
    version: int

    def as_attempt(self) -> Attempt:
        """The claim's attempt as a member of the graph."""
        return Attempt(self.attempt, self.transition.demand, self.transition.cause)


@final
@dataclass(frozen=True, slots=True)
class DispatchIntent:
    """Durably said before a launcher is called: which launcher, from which host, when (milliseconds UTC, as recorded)."""

    attempt: AttemptKey
    launcher: Launcher
    host: str
    recorded_ms: int


@final
@dataclass(frozen=True, slots=True)
class Dispatched:
    """The launcher took the claim."""

    detail: str


@final
@dataclass(frozen=True, slots=True)
class DispatchRefused:
    """The launcher surely started nothing."""

    why: str


@final
@dataclass(frozen=True, slots=True)
class DispatchUnknown:
    """The launch call timed out or broke: something may be running, so only look."""

    why: str


LaunchResult = Dispatched | DispatchRefused | DispatchUnknown


@final
@dataclass(frozen=True, slots=True)
class DispatchOutcome:
    """What the launcher answered for a claim, and when it was recorded (milliseconds UTC)."""

    attempt: AttemptKey
    result: LaunchResult
    recorded_ms: int


@final
@dataclass(frozen=True, slots=True)
class Cancellation:
    """A person ended the run; recovery never revives it."""

    by: str
    recorded_ms: int


@final
@dataclass(frozen=True, slots=True)
class Abandonment:
    """A person gave up an attempt that nobody can observe; what it still does is stopped and stays its own."""

    attempt: AttemptKey
    by: str
    recorded_ms: int


@final
@dataclass(frozen=True, slots=True)
class SetAside:
    """The attempt counts as one that ended without success: its outputs are nobody's result, and what of it lives is stopped."""


@final
@dataclass(frozen=True, slots=True)
class BelieveSource:
    """Of terminals that contradict each other, those of this source stand."""

    source: str


Ruling = SetAside | BelieveSource


@final
@dataclass(frozen=True, slots=True)
class Adjudication:
    """A person looked at blockers of one attempt and ruled on them. It is evidence beside the rest and erases nothing: it settles just the
    ``blockers`` that it names (their texts, as the verdict spelled them), and whatever else comes to light blocks again."""

    attempt: AttemptKey
    ruling: Ruling
    blockers: tuple[str, ...]
    by: str
    reason: str
    recorded_ms: int


def deciding(adjudications: Iterable[Adjudication]) -> dict[str, Adjudication]:
    """Of each blocker that rulings on one attempt name, the ruling that decides on it: the last one in the order of the ledger."""
    return {blocker: ruled for ruled in adjudications for blocker in ruled.blockers}


@final
@dataclass(frozen=True, slots=True)
class RunLedger:
    """Everything that the ledger holds about one run, at one version (the number of recorded control facts)."""

    desired: TrainingRunDesired
    version: int
    claims: tuple[ExecutionClaim, ...] = ()
    intents: tuple[DispatchIntent, ...] = ()
    outcomes: tuple[DispatchOutcome, ...] = ()
    cancellations: tuple[Cancellation, ...] = ()
    abandonments: tuple[Abandonment, ...] = ()
    adjudications: tuple[Adjudication, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The slot was used: the winner's claim, to be carried on with. A success, even for an old snapshot."""

    claim: ExecutionClaim


@final
@dataclass(frozen=True, slots=True)
class SnapshotStale:
    """The run's ledger moved since the snapshot: look again."""

    current: int


@final
@dataclass(frozen=True, slots=True)
class Admissible:
    """The claim may be inserted with this version, in the same transaction; the store answers ``Committed`` afterwards."""

    claim: ExecutionClaim


@final
@dataclass(frozen=True, slots=True)
class Committed:
    """The claim was inserted and the transaction committed."""

    claim: ExecutionClaim


@final
@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run was cancelled; nothing of it starts any more."""


@final
@dataclass(frozen=True, slots=True)
class PredecessorNotInGraph:
    """The transition follows an attempt that the run does not have."""

    predecessor: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class SuccessorExists:
    """The predecessor already has a committed successor."""

    predecessor: AttemptKey
    successor: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class TransitionOfAnotherRun:
    """The transition or the candidate names another demand or another work than the ledger's run."""


@final
@dataclass(frozen=True, slots=True)
class AttemptIdentityTaken:
    """The candidate's identity already belongs to another claim of the run."""

    attempt: AttemptKey


ClaimDefect = RunCancelled | PredecessorNotInGraph | SuccessorExists | TransitionOfAnotherRun | AttemptIdentityTaken


def admit_start_claim(
    ledger: RunLedger, snapshot: int, transition: Transition, candidate: AttemptKey
) -> AlreadyCommitted | SnapshotStale | Refused[ClaimDefect] | Admissible:
    """Whether ``candidate`` may be claimed for ``transition``, decided on the ledger as the transaction sees it.

    ``snapshot`` is the version on which the caller concluded that this transition is due.
    """
    if ledger.claims:
        slot = transition.slot()
        for claim in ledger.claims:
            if claim.transition.slot() == slot:
                return AlreadyCommitted(claim)
    if ledger.version != snapshot:
        return SnapshotStale(ledger.version)
    if (defects := NonEmpty.of(_claim_defects(ledger, transition, candidate))) is not None:
        return Refused(defects)
    return Admissible(ExecutionClaim(transition, candidate, ledger.version + 1))


def _claim_defects(ledger: RunLedger, transition: Transition, candidate: AttemptKey) -> list[ClaimDefect]:
    # Who claims holds the run, or the whole ledger, meanwhile: nothing is built for a comparison, nor for claims that are not there.
    demand, claims = ledger.desired.demand, ledger.claims
    predecessor = predecessor_of(transition.cause)
    defects: list[ClaimDefect] = []
    if ledger.cancellations:
        defects.append(RunCancelled())
    if transition.demand != demand.id or transition.work != demand.work or candidate.work != transition.work:
        defects.append(TransitionOfAnotherRun())
    if predecessor is not None:
        if all(claim.attempt != predecessor for claim in claims):
            defects.append(PredecessorNotInGraph(predecessor))
        followed = (claim.attempt for claim in claims if predecessor_of(claim.transition.cause) == predecessor)
        defects.extend(SuccessorExists(predecessor, successor) for successor in followed)
    if claims and any(claim.attempt == candidate for claim in claims):
        defects.append(AttemptIdentityTaken(candidate))
    return defects


@final
@dataclass(frozen=True, slots=True)
class ControlState:
    """What control did for one attempt: its claim, intents and outcomes in ledger order, whether it was superseded, and what persons ruled
    on it, in ledger order too."""

    claim: ExecutionClaim | None
    intents: tuple[DispatchIntent, ...]
    outcomes: tuple[DispatchOutcome, ...]
    superseded: bool
    adjudications: tuple[Adjudication, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ControlOnForeignAttempt:
    """A claim, intent, outcome, abandonment or adjudication (``kind``) concerns an attempt that is not in the admitted graph."""

    attempt: AttemptKey
    kind: str


@final
@dataclass(frozen=True, slots=True)
class SeveralClaims:
    """One attempt was claimed more than once."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class DispatchWithoutClaim:
    """An intent or outcome (``kind``) was recorded for an attempt that nobody claimed."""

    attempt: AttemptKey
    kind: str


@final
@dataclass(frozen=True, slots=True)
class OutcomeWithoutIntent:
    """A dispatch outcome was recorded although no intent came before it."""

    attempt: AttemptKey


@final
@dataclass(frozen=True, slots=True)
class ControlSubjectMismatch:
    """The ledger's run and the graph are about different subjects (``half``: demand or work)."""

    half: Literal["demand", "work"]


ControlDefect = ControlOnForeignAttempt | SeveralClaims | DispatchWithoutClaim | OutcomeWithoutIntent | ControlSubjectMismatch


@final
@dataclass(frozen=True, slots=True)
class ControlComposition:
    """Control facts joined to the graph of one subject; minted by ``compose_control`` alone."""

    subject: Subject
    desired: TrainingRunDesired
    states: Mapping[AttemptKey, ControlState]
    cancelled: bool
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a control composition is minted by compose_control")


def compose_control(graph: AttemptGraph, ledger: RunLedger) -> ControlComposition | Refused[ControlDefect]:
    """Join the ledger's facts to the graph, or refuse with every fact that does not fit. O(attempts + facts)."""
    subject = subject_of(ledger.desired)
    defects: list[ControlDefect] = []
    if graph.subject.demand != subject.demand:
        defects.append(ControlSubjectMismatch("demand"))
    if graph.subject.work != subject.work:
        defects.append(ControlSubjectMismatch("work"))
    claims = {claim.attempt: claim for claim in ledger.claims}
    intents = _by_attempt(ledger.intents)
    outcomes = _by_attempt(ledger.outcomes)
    rulings = _by_attempt(ledger.adjudications)
    kinds = {
        "claim": Counter(claim.attempt for claim in ledger.claims),
        "intent": Counter(intent.attempt for intent in ledger.intents),
        "outcome": Counter(outcome.attempt for outcome in ledger.outcomes),
        "abandonment": Counter(given.attempt for given in ledger.abandonments),
        "adjudication": Counter(ruled.attempt for ruled in ledger.adjudications),
    }
    for kind, counted in kinds.items():
        defects.extend(ControlOnForeignAttempt(attempt, kind) for attempt in counted if attempt not in graph.attempts)
    defects.extend(SeveralClaims(attempt) for attempt, times in kinds["claim"].items() if times > 1)
    for kind in ("intent", "outcome"):
        defects.extend(DispatchWithoutClaim(attempt, kind) for attempt in kinds[kind] if attempt not in claims)
    defects.extend(OutcomeWithoutIntent(attempt) for attempt in outcomes if attempt not in intents)
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    superseded = {given.attempt for given in ledger.abandonments}
    superseded.update(attempt.cause.predecessor for attempt in graph.attempts.values() if isinstance(attempt.cause, Relaunch))
    states = {
        key: ControlState(claims.get(key), intents.get(key, ()), outcomes.get(key, ()), key in superseded, rulings.get(key, ()))
        for key in graph.attempts
    }
    return ControlComposition(subject, ledger.desired, states, bool(ledger.cancellations), _SEAL)


def _by_attempt(facts: tuple[Fact, ...]) -> dict[AttemptKey, tuple[Fact, ...]]:
    grouped: dict[AttemptKey, list[Fact]] = {}
    for fact in facts:
        grouped.setdefault(fact.attempt, []).append(fact)
    return {attempt: tuple(members) for attempt, members in grouped.items()}
