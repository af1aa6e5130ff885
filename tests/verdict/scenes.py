"""Scenes to break: one run as control and observers know it, clean as ``CONVERGED`` has it, and changed in one place each.

Attempts are numbers here; the attempt 1 is ``key(1)`` of ``tests.run.examples``. Processes are read 100 s after time 0, dispatches are
recorded in the first second, and the grace is 60 s: unless a scene says otherwise, the grace has passed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from countermark.evidence.composition import RawReads
from countermark.evidence.cut import STAGES, ObservationCut, Stage, StageRead
from countermark.evidence.members import (
    CheckpointSeen,
    EnumerationReceipt,
    ExecutionIdentity,
    Failed,
    ManifestSeen,
    Misfiled,
    NotAttempted,
    Observed,
    Outcome,
    OutputSeen,
    Population,
    ProcessSeen,
    ProcessState,
    RawRead,
    Read,
    ReadRefused,
    SourceReading,
    Succeeded,
    Terminal,
    Unread,
)
from countermark.recipe import ROSTER
from countermark.run.attempts import Attempt, AttemptKey, Cause, InitialAttempt, Nonce
from countermark.run.checkpoint import (
    COMPONENTS,
    Atomic,
    CheckpointReadback,
    Component,
    ComponentRead,
    ComponentReading,
    FileReading,
    StepWitness,
)
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    BelieveSource,
    Cancellation,
    DispatchIntent,
    DispatchOutcome,
    ExecutionClaim,
    Launcher,
    LaunchResult,
    Ruling,
    RunLedger,
    Transition,
)
from countermark.run.demand import Subject, TrainingRunDesired, subject_of
from countermark.values import NonEmpty, Refused, Sha256
from countermark.verdict import Conclusion, Sweep, conclude
from countermark.verdict.kinds import Blocked, ContradictoryTerminals
from countermark.verdict.rulings import attempts_of, blocker_text
from tests.recipe.examples import CLEAN
from tests.run import examples

HERE = "n1"
PROCESSES_READ_MS = 100_000
SPELLINGS = CLEAN

#: What each source of an axis gave: members, ``NotAttempted`` because nobody looked, or a text: why there is no reading.
Axis = Mapping[str, Any]


@cache
def desired() -> TrainingRunDesired:
    return examples.desired()


@cache
def subject() -> Subject:
    return subject_of(desired())


@cache
def key(number: int) -> AttemptKey:
    return AttemptKey(desired().demand.work, Nonce(f"{number:08x}" + "0" * 24))


def number_of(attempt: AttemptKey) -> int:
    return int(attempt.nonce.hex[:8], 16)


# ------------------------------------------------------------------------------------------------------------ members


def ended(number: int, outcome: Outcome | None = None, source: str = "supervisor") -> Terminal:
    return Terminal(key(number), outcome or Succeeded(), source, 90_000)


def failed(number: int, source: str = "supervisor", code: int = 1) -> Terminal:
    return ended(number, Failed(code), source)


def process(number: int, state: ProcessState = "alive", pid: int = 100, boot: str = "b1", host: str = HERE) -> ProcessSeen:
    return ProcessSeen(key(number), ExecutionIdentity(host, boot, "4026531836", pid, 7), state)


def unidentified(number: int, state: ProcessState = "alive") -> ProcessSeen:
    return ProcessSeen(key(number), None, state)


def output(number: int, digest: str = "d", path: str | None = None) -> OutputSeen:
    return OutputSeen(key(number), path or f"/store/{number}/output", Sha256(digest * 64), 4096, "renamed into place")


def checkpoint(number: int, step: int = 5, path: str | None = None, **components: ComponentReading) -> CheckpointSeen:
    """A checkpoint that is admitted, unless a component's reading says otherwise."""
    place = path or f"/store/{number}/checkpoints/step-{step}"
    witness = (StepWitness("trainer_state.json", step),)
    whole: dict[Component, ComponentReading] = {
        component: ComponentRead((FileReading(f"{component}.bin", Sha256(f"{step:064x}"), 10),), witness) for component in COMPONENTS
    }
    whole |= {Component(name): reading for name, reading in components.items()}
    readback = CheckpointReadback(place, "transformers-peft", step, whole, Atomic("renamed"), key(number).nonce.hex, None, SPELLINGS)
    return CheckpointSeen(key(number), step, place, readback)


def manifest(number: int, source: str = "trainer", **changed: Read | Unread | None) -> ManifestSeen:
    """An effective manifest that agrees, with some coordinates read otherwise, unread, or (None) not spoken of."""
    coordinates: dict[str, Read | Unread] = {name: Read(SPELLINGS[name], "live_object") for name in ROSTER}
    for name, reading in changed.items():
        if reading is None:
            del coordinates[name]
        else:
            coordinates[name] = reading
    return ManifestSeen(key(number), source, coordinates)


# ------------------------------------------------------------------------------------------------------------- scenes


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt as control knows it. ``result``: None for an intent without an outcome, "claimed" for a claim alone."""

    number: int
    result: LaunchResult | str | None
    cause: Cause = field(default_factory=InitialAttempt)
    launcher: Launcher = "local"
    host: str = HERE
    recorded_ms: int = 500
    claimed: bool = True


@dataclass(frozen=True, slots=True)
class Scene:
    """A run at one sweep. Each axis maps its sources to what they gave; ``again`` None means the first reading of terminals once more."""

    tries: tuple[Try, ...] = ()
    terminals: Axis = field(default_factory=lambda: {"supervisor": ()})
    processes: Axis = field(default_factory=lambda: {"local": ()})
    outputs: Axis = field(default_factory=lambda: {"local": ()})
    checkpoints: Axis = field(default_factory=lambda: {"local": ()})
    manifests: Axis = field(default_factory=lambda: {"local": ()})
    again: Axis | None = None
    cancelled: bool = False
    abandoned: tuple[int, ...] = ()
    adjudications: tuple[Adjudication, ...] = ()
    grace_ms: int = 60_000
    order: tuple[Stage, ...] = STAGES
    finished: bool = True
    cut_subject: Subject | None = None
    misfiled: Mapping[Stage, tuple[Misfiled, ...]] = field(default_factory=dict)

    def axis(self, stage: Stage) -> Axis:
        match stage:
            case "terminals":
                return self.terminals
            case "processes":
                return self.processes
            case "outputs":
                return self.outputs
            case "checkpoints":
                return self.checkpoints
            case "manifests":
                return self.manifests
            case "terminals_again":
                return self.terminals if self.again is None else self.again


def receipt(stage: Stage, source: str) -> EnumerationReceipt:
    started = PROCESSES_READ_MS + 10 * (STAGES.index(stage) - STAGES.index("processes"))
    return EnumerationReceipt(f"{stage}/{source}", f"observer of {source}", HERE, started, started + 5)


def population(scene: Scene, stage: Stage) -> Population[Any]:
    def arm(source: str, given: Any) -> Observed[Any] | NotAttempted | ReadRefused:
        if isinstance(given, NotAttempted):
            return given
        if isinstance(given, str):
            return ReadRefused(given, receipt(stage, source))
        return Observed(given, receipt(stage, source), scene.misfiled.get(stage, ()))

    readings = NonEmpty.of(SourceReading(source, arm(source, given)) for source, given in scene.axis(stage).items())
    assert readings is not None
    return Population(readings)


def ledger(scene: Scene) -> RunLedger:
    claims: list[ExecutionClaim] = []
    intents: list[DispatchIntent] = []
    outcomes: list[DispatchOutcome] = []
    for version, one in enumerate(scene.tries, start=1):
        if one.claimed:
            transition = Transition(desired().demand.id, desired().demand.work, one.cause)
            claims.append(ExecutionClaim(transition, key(one.number), version))
        if one.result != "claimed":
            intents.append(DispatchIntent(key(one.number), one.launcher, one.host, one.recorded_ms - 100))
        if one.result is not None and not isinstance(one.result, str):
            outcomes.append(DispatchOutcome(key(one.number), one.result, one.recorded_ms))
    cancellations = (Cancellation("ada", 50_000),) if scene.cancelled else ()
    abandonments = tuple(Abandonment(key(number), "ada", 50_000) for number in scene.abandoned)
    return RunLedger(desired(), 9, tuple(claims), tuple(intents), tuple(outcomes), cancellations, abandonments, scene.adjudications)


def sweep(scene: Scene) -> Sweep:
    """The scene as a sweep brings it home."""
    reads = {stage: RawRead(subject(), population(scene, stage)) for stage in STAGES}
    ran = tuple(StageRead(stage, reads[stage].population.receipts()) for stage in scene.order if reads[stage].population.receipts())
    attempts = tuple(Attempt(key(one.number), desired().demand.id, one.cause) for one in scene.tries)
    cut = ObservationCut(scene.cut_subject or subject(), ran, scene.finished)
    return Sweep(ledger(scene), attempts, RawReads(*(reads[stage] for stage in STAGES)), cut, scene.grace_ms)


def concluded(scene: Scene) -> Conclusion:
    """The conclusion of a scene whose parts fit together."""
    conclusion = conclude(sweep(scene))
    assert not isinstance(conclusion, Refused), conclusion
    return conclusion


def ruled(scene: Scene, number: int, ruling: Ruling, by: str = "ada", reason: str = "seen to") -> Scene:
    """The scene after a person ruled on every blocker of the attempt that the ruling can settle and that is to be seen in it."""
    verdict = concluded(scene).verdict
    blockers = tuple(verdict.blockers) if isinstance(verdict, Blocked) else ()
    fits = (one for one in blockers if isinstance(one, ContradictoryTerminals) or not isinstance(ruling, BelieveSource))
    texts = tuple(blocker_text(one) for one in fits if key(number) in attempts_of(one))
    return changed(scene, adjudications=(*scene.adjudications, Adjudication(key(number), ruling, texts, by, reason, 60_000)))


def changed(scene: Scene, **fields: Any) -> Scene:
    """The scene with some of its fields otherwise."""
    return replace(scene, **fields)


def plus(axis: Axis, *members: object, source: str = "") -> Axis:
    """The axis with more members of its first (or the named) source."""
    name = source or next(iter(axis))
    before = axis.get(name, ())
    assert isinstance(before, tuple)
    return {**axis, name: (*before, *members)}
