"""Admission of checkpoints: whether training can go on from what an observer read back.

Rules kept here:

1. Seeing a checkpoint shows that something was written. Only an ``AdmittedCheckpoint`` can be resumed from, and only ``admit_checkpoint``
   mints one.
2. Every defect is named: weights of one step beside an optimizer of another do not crash, they converge to a different model.
3. A person can vouch for a publication that nobody observed, never for one that is incomplete.
4. The desired manifest is held against what the checkpoint declares and against what its artifacts show, each coordinate on its own. What
   is another computation is told once: the data position is counted by the accumulation that the checkpoint itself declares, if it does.
5. An unadmitted checkpoint may still be good for its weights alone: that is another answer, under another name.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import Final, final

from countermark.recipe import ROSTER, Manifest, spelled
from countermark.run.attempts import CheckpointIdentity
from countermark.run.data_position import accumulation_divisor, expected_micro_batches
from countermark.run.rates import explained
from countermark.run.readback import (
    COMPONENTS,
    ArtifactFact,
    Atomic,
    CheckpointNotThere,
    CheckpointReadback,
    Component,
    ComponentAbsent,
    ComponentChanging,
    ComponentRead,
    ComponentReading,
    ComponentUnreadable,
    FileReading,
    Incomplete,
    Publication,
    StepWitness,
    Unobserved,
    component_digest,
    other_steps,
)
from countermark.values import NonEmpty, PositiveInt, Refused, Sha256

__all__ = [
    "COMPONENTS",
    "AdmittedCheckpoint",
    "ArtifactFact",
    "Atomic",
    "AttemptElsewhere",
    "AttemptNotMember",
    "CheckpointAbsent",
    "CheckpointDefect",
    "CheckpointNotThere",
    "CheckpointReadback",
    "Component",
    "ComponentAbsent",
    "ComponentChanging",
    "ComponentDigestMismatch",
    "ComponentForeign",
    "ComponentMissing",
    "ComponentRead",
    "ComponentReading",
    "ComponentStepMismatch",
    "ComponentUnread",
    "ComponentUnreadable",
    "DataPositionMismatch",
    "Divergence",
    "FileReading",
    "Incomplete",
    "ManifestDiverges",
    "Publication",
    "PublicationIncomplete",
    "PublicationUnobserved",
    "SoundCheckpoint",
    "StepWitness",
    "Unobserved",
    "WeightsOnlyCheckpoint",
    "admit_checkpoint",
    "admit_weights_only",
    "component_defects",
    "component_digest",
    "leaf_spelling",
    "sound_checkpoint",
]

_SEAL: Final = object()


# ---------------------------------------------------------------------------------------------------------------- defects


@final
@dataclass(frozen=True, slots=True)
class CheckpointAbsent:
    """There is no checkpoint at the path."""

    path: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class ComponentMissing:
    """The component is not there."""

    component: Component


@final
@dataclass(frozen=True, slots=True)
class ComponentUnread:
    """The component is there and could not be read."""

    component: Component
    why: str


@final
@dataclass(frozen=True, slots=True)
class ComponentStepMismatch:
    """The component belongs to another step than the checkpoint."""

    component: Component
    step: int


@final
@dataclass(frozen=True, slots=True)
class ComponentDigestMismatch:
    """The component's bytes are not those that were published."""

    component: Component


@final
@dataclass(frozen=True, slots=True)
class ComponentForeign:
    """The component belongs to something else, like an optimizer of another set of trained tensors."""

    component: Component
    why: str


@final
@dataclass(frozen=True, slots=True)
class DataPositionMismatch:
    """The data position is not the one that the step leads to; both in micro batches."""

    expected: int
    found: int


@final
@dataclass(frozen=True, slots=True)
class PublicationIncomplete:
    """The writer had not finished, or what it wrote was damaged."""

    whys: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class PublicationUnobserved:
    """Nobody can tell whether the writer had finished."""

    whys: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class AttemptNotMember:
    """The checkpoint names an attempt that is not one of this run's."""

    attempt: str


@final
@dataclass(frozen=True, slots=True)
class AttemptElsewhere:
    """The checkpoint was written by one attempt and lies in the folder of another, which may have written there too."""

    attempt: str
    holder: str


@final
@dataclass(frozen=True, slots=True)
class Divergence:
    """One coordinate, or a leaf of it, that the checkpoint shows otherwise than the manifest asks, and where it shows that."""

    leaf: str
    desired: str
    found: str
    source: str

    @property
    def coordinate(self) -> str:
        return self.leaf.partition(".")[0]


@final
@dataclass(frozen=True, slots=True)
class ManifestDiverges:
    """The checkpoint is of another computation; every divergence, in roster order."""

    divergences: tuple[Divergence, ...]

    @property
    def coordinates(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(divergence.coordinate for divergence in self.divergences))


CheckpointDefect = (
    CheckpointAbsent
    | ComponentMissing
    | ComponentUnread
    | ComponentStepMismatch
    | ComponentDigestMismatch
    | ComponentForeign
    | DataPositionMismatch
    | PublicationIncomplete
    | PublicationUnobserved
    | AttemptNotMember
    | AttemptElsewhere
    | ManifestDiverges
)


# -------------------------------------------------------------------------------------------------------------- admission


@final
@dataclass(frozen=True, slots=True)
class AdmittedCheckpoint:
    """A checkpoint that training can go on from. ``vouched``: a person stands in for a publication that nobody observed."""

    path: str
    layout: str
    step: int
    attempt: str | None
    components: Mapping[Component, Sha256]
    digest: Sha256
    vouched: bool
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("an admitted checkpoint is minted by admit_checkpoint")

    @property
    def identity(self) -> CheckpointIdentity:
        return CheckpointIdentity(self.step, self.digest)


@final
@dataclass(frozen=True, slots=True)
class WeightsOnlyCheckpoint:
    """A checkpoint whose weights were read and are whole: good for evaluation, never for going on."""

    path: str
    step: int
    digest: Sha256
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a checkpoint for its weights is minted by admit_weights_only")


@final
@dataclass(frozen=True, slots=True)
class SoundCheckpoint:
    """A checkpoint that is whole in itself, while nobody said which work is to go on from it; minted by ``sound_checkpoint`` alone. It is
    no ``AdmittedCheckpoint``: nothing is resumed from it before a manifest was held against it."""

    path: str
    step: int
    digest: Sha256
    vouched: bool
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a sound checkpoint is minted by sound_checkpoint")


def sound_checkpoint(
    readback: CheckpointReadback | CheckpointNotThere, *, vouched: bool = False
) -> SoundCheckpoint | Refused[CheckpointDefect]:
    """The checkpoint as one that is whole in itself, or everything that speaks against it whichever work it belongs to."""
    if isinstance(readback, CheckpointNotThere):
        return Refused(NonEmpty(CheckpointAbsent(readback.path, readback.why)))
    if refusal := NonEmpty.of((*component_defects(readback), *_publication(readback, vouched))):
        return Refused(refusal)
    digest = readback.digest
    assert digest is not None  # A component that was not read is a defect.
    return SoundCheckpoint(readback.path, readback.step, digest, vouched and isinstance(readback.publication, Unobserved), _SEAL)


def admit_checkpoint(
    readback: CheckpointReadback | CheckpointNotThere, desired: Manifest, members: frozenset[str], *, vouched: bool = False
) -> AdmittedCheckpoint | Refused[CheckpointDefect]:
    """The checkpoint as one that can be resumed from, or everything that speaks against it.

    ``members`` are the nonces (32 hexadecimal digits) of the run's admitted attempts.
    """
    if isinstance(readback, CheckpointNotThere):
        return Refused(NonEmpty(CheckpointAbsent(readback.path, readback.why)))
    defects: tuple[CheckpointDefect, ...] = (
        *component_defects(readback),
        *_data_position(readback, desired),
        *_publication(readback, vouched),
        *_membership(readback, members),
        *_divergences(readback, desired),
    )
    if refusal := NonEmpty.of(defects):
        return Refused(refusal)
    digest = readback.digest
    assert digest is not None  # A component that was not read is a defect.
    components = {component: reading.digest for component, reading in readback.components.items() if isinstance(reading, ComponentRead)}
    stands_in = vouched and isinstance(readback.publication, Unobserved)
    return AdmittedCheckpoint(readback.path, readback.layout, readback.step, readback.attempt, components, digest, stands_in, _SEAL)


def admit_weights_only(readback: CheckpointReadback | CheckpointNotThere) -> WeightsOnlyCheckpoint | Refused[CheckpointDefect]:
    """The checkpoint as a carrier of weights, or what is wrong with them; nothing is asked of the other components."""
    if isinstance(readback, CheckpointNotThere):
        return Refused(NonEmpty(CheckpointAbsent(readback.path, readback.why)))
    defects = _component_defects(readback, Component.MODEL_WEIGHTS)
    weights = readback.components[Component.MODEL_WEIGHTS]
    if refusal := NonEmpty.of(defects):
        return Refused(refusal)
    assert isinstance(weights, ComponentRead)
    return WeightsOnlyCheckpoint(readback.path, readback.step, weights.digest, _SEAL)


def component_defects(readback: CheckpointReadback) -> tuple[CheckpointDefect, ...]:
    """What is wrong with the components themselves, whoever wrote them and for whichever computation."""
    return (*(defect for component in COMPONENTS for defect in _component_defects(readback, component)), *_foreign(readback))


def _component_defects(readback: CheckpointReadback, component: Component) -> tuple[CheckpointDefect, ...]:
    reading = readback.components[component]
    match reading:
        case ComponentAbsent():
            return (ComponentMissing(component),)
        case ComponentUnreadable(whys):
            return tuple(ComponentUnread(component, why) for why in whys)
        case ComponentChanging(files):
            return tuple(ComponentUnread(component, f"{name} changed while it was read") for name in files)
        case ComponentRead():
            steps = tuple(ComponentStepMismatch(component, step) for step in other_steps(readback, component))
            replaced = reading.declared is not None and reading.declared != reading.digest
            return (*steps, ComponentDigestMismatch(component)) if replaced else steps


def _foreign(readback: CheckpointReadback) -> tuple[CheckpointDefect, ...]:
    """Whether the optimizer steps the tensors that the weights hold, and whether every state is that of one worker: a recipe is for one."""
    several = [
        ComponentForeign(component, f"it is the state of {reading.workers} workers, and one alone cannot go on from it")
        for component, reading in readback.components.items()
        if isinstance(reading, ComponentRead) and reading.workers > 1
    ]
    return (*several, *_foreign_optimizer(readback))


def _foreign_optimizer(readback: CheckpointReadback) -> tuple[CheckpointDefect, ...]:
    shapes, count = readback.model_shapes, readback.optimizer_parameters
    if shapes is None or count is None:
        return ()
    if count != len(shapes):
        why = f"it steps {count} tensors and the weights hold {len(shapes)}"
        return (ComponentForeign(Component.OPTIMIZER_STATE, why),)
    if others := Counter(readback.optimizer_shapes) - Counter(shapes):
        found = ", ".join(sorted(str(list(shape)) for shape in others))
        return (ComponentForeign(Component.OPTIMIZER_STATE, f"it has tensors of shape {found}, which the weights have not"),)
    return ()


def _data_position(readback: CheckpointReadback, desired: Manifest) -> tuple[CheckpointDefect, ...]:
    found = readback.micro_batches
    # Without the trainer's own position, or with that of another step, nothing says how long an epoch is; and that is a defect already.
    known = isinstance(readback.components[Component.DATA_POSITION], ComponentRead) and not other_steps(readback, Component.DATA_POSITION)
    if found is None or not known:
        return ()
    accumulation = _accumulation(readback) or desired.gradient_accumulation.number
    expected = expected_micro_batches(readback.step, accumulation, readback.epoch)
    return () if found in expected else (DataPositionMismatch(expected.first, found),)


def _accumulation(readback: CheckpointReadback) -> int | None:
    """The accumulation that the checkpoint says it was made with, None where it says none."""
    read = None if readback.declared is None else PositiveInt.read(readback.declared.get("gradient_accumulation"))
    return read.number if isinstance(read, PositiveInt) else None


def _publication(readback: CheckpointReadback, vouched: bool) -> tuple[CheckpointDefect, ...]:
    match readback.publication:
        case Atomic():
            return ()
        case Incomplete(whys):
            return (PublicationIncomplete(whys),)
        case Unobserved(whys):
            return () if vouched else (PublicationUnobserved(whys),)


def _membership(readback: CheckpointReadback, members: frozenset[str]) -> tuple[CheckpointDefect, ...]:
    attempt = readback.attempt
    return () if attempt is None or attempt in members else (AttemptNotMember(attempt),)


def _divergences(readback: CheckpointReadback, desired: Manifest) -> tuple[CheckpointDefect, ...]:
    wanted = spelled(desired)
    declared = wanted if readback.declared is None else readback.declared
    found = [
        Divergence(name, wanted[name], declared.get(name, "nothing"), "its manifest")
        for name in ROSTER
        if declared.get(name) != wanted[name]
    ]
    for fact in explained(readback.facts, desired):
        desired_leaf = leaf_spelling(wanted[fact.coordinate], fact.leaf)
        if fact.spelling != desired_leaf:
            found.append(Divergence(fact.leaf, desired_leaf, fact.spelling, fact.source))
    divisor = accumulation_divisor(readback.step, readback.epoch)
    if desired.gradient_accumulation.number % divisor:
        told = f"a multiple of {divisor}"
        found.append(Divergence("gradient_accumulation", wanted["gradient_accumulation"], told, "the epoch count"))
    place = {name: at for at, name in enumerate(ROSTER)}
    found.sort(key=lambda divergence: place[divergence.coordinate])
    return (ManifestDiverges(tuple(found)),) if found else ()


def leaf_spelling(spelling: str, leaf: str) -> str:
    """The part of a coordinate's canonical text that spells a leaf (``optimizer.beta1``, and ``optimizer.implementation`` for its form), or
    all of it for the coordinate itself."""
    name = leaf.partition(".")[2]
    if not name:
        return spelling
    form, _, inner = spelling.partition("(")
    if name == "implementation":
        return form
    for part in inner.removesuffix(")").split(","):
        key, _, value = part.partition("=")
        if key == name:
            return value
    return "nothing"
