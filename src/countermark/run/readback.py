"""What an observer read back of a checkpoint: its components, what was seen of its publication, and what its artifacts show.

Rules kept here:

1. The five components are a closed roster. Each has its own digest and its own reading: its bytes were opened, parsed and hashed.
2. How a checkpoint was published follows from the marker that was seen *and* from the components: what is missing, unparseable or of
   another step makes it ``Incomplete``, whatever a marker says.
3. A readback licenses nothing; ``countermark.run.checkpoint`` admits or refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from countermark.recipe.canonical import digest_of
from countermark.values import Sha256


class Component(StrEnum):
    """What must be carried over for training to go on as if it had not stopped."""

    MODEL_WEIGHTS = "model_weights"
    OPTIMIZER_STATE = "optimizer_state"
    SCHEDULER_STATE = "scheduler_state"
    RNG_STATE = "rng_state"
    DATA_POSITION = "data_position"


#: The roster, in the order in which everything lists it.
COMPONENTS: Final[tuple[Component, ...]] = tuple(Component)


@final
@dataclass(frozen=True, slots=True)
class FileReading:
    """One file of a component: its name in the folder, the digest of its bytes, and their number."""

    name: str
    sha256: Sha256
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class StepWitness:
    """A place in the checkpoint that tells its optimizer step."""

    source: str
    step: int


@final
@dataclass(frozen=True, slots=True)
class ComponentRead:
    """The component was opened, parsed and hashed. ``declared`` is the digest that the checkpoint's own manifest gives, if it has one, and
    ``workers`` how many processes each wrote their part of it."""

    files: tuple[FileReading, ...]
    steps: tuple[StepWitness, ...] = ()
    declared: Sha256 | None = None
    workers: int = 1

    @property
    def digest(self) -> Sha256:
        return component_digest(self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@final
@dataclass(frozen=True, slots=True)
class ComponentAbsent:
    """None of the files that would hold the component, or not all of them, are there."""

    files: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class ComponentUnreadable:
    """The component's files are there and are not what they must be."""

    whys: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class ComponentChanging:
    """A file of the component changed while it was read: a writer is at work."""

    files: tuple[str, ...]


ComponentReading = ComponentRead | ComponentAbsent | ComponentUnreadable | ComponentChanging


@final
@dataclass(frozen=True, slots=True)
class Atomic:
    """A rename or commit marker after all data was seen; ``receipt`` says which."""

    receipt: str


@final
@dataclass(frozen=True, slots=True)
class Incomplete:
    """Something is missing, unparseable, of another step, or marked as in progress."""

    whys: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Unobserved:
    """Nothing is wrong, and nothing shows that the writer had finished."""

    whys: tuple[str, ...]


Publication = Atomic | Incomplete | Unobserved


@final
@dataclass(frozen=True, slots=True)
class ArtifactFact:
    """What an artifact shows about a coordinate, or about a leaf of one (``optimizer.beta1``), in its canonical spelling."""

    leaf: str
    spelling: str
    source: str

    @property
    def coordinate(self) -> str:
        return self.leaf.partition(".")[0]


@final
@dataclass(frozen=True, slots=True)
class CheckpointReadback:
    """A checkpoint as an observer read it back.

    ``marker`` is what was seen of its publication; ``attempt``, ``work_key`` and ``declared`` are what its own manifest says (None: it has
    none). ``model_shapes`` are the trained tensors in the weights, ``optimizer_shapes`` those that the optimizer keeps moments for, and
    ``optimizer_parameters`` how many tensors it steps. ``micro_batches`` is the recorded data position; ``epoch`` the trainer's own count.
    Where a gradient scaler can have skipped the steps between (``scaled``), optimizer and scheduler may lag together.
    """

    path: str
    layout: str
    step: int
    components: Mapping[Component, ComponentReading]
    marker: Publication
    attempt: str | None = None
    work_key: str | None = None
    declared: Mapping[str, str] | None = None
    facts: tuple[ArtifactFact, ...] = ()
    model_shapes: tuple[tuple[int, ...], ...] | None = None
    optimizer_shapes: tuple[tuple[int, ...], ...] = ()
    optimizer_parameters: int | None = None
    micro_batches: int | None = None
    epoch: float | None = None
    scaled: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if tuple(self.components) != COMPONENTS:
            raise ValueError("a readback says something about each of the five components, in roster order")

    @property
    def publication(self) -> Publication:
        """The marker, unless the components speak against it."""
        whys = [why for component in COMPONENTS for why in _incomplete(self, component)]
        if isinstance(self.marker, Incomplete) or whys:
            return Incomplete((*(self.marker.whys if isinstance(self.marker, Incomplete) else ()), *whys))
        changing = [
            f"{name} changed while it was read"
            for reading in self.components.values()
            if isinstance(reading, ComponentChanging)
            for name in reading.files
        ]
        return Unobserved(tuple(changing)) if changing else self.marker

    @property
    def digest(self) -> Sha256 | None:
        """The digest over all components, None where one of them was not read."""
        parts = [b"countermark/checkpoint/1"]
        for component, reading in self.components.items():
            if not isinstance(reading, ComponentRead):
                return None
            parts += [component.value.encode(), reading.digest.hex.encode()]
        return digest_of(*parts)


@final
@dataclass(frozen=True, slots=True)
class CheckpointNotThere:
    """What was asked for does not exist; ``why`` is a phrase."""

    path: str
    why: str


def component_digest(files: tuple[FileReading, ...]) -> Sha256:
    """A component's digest: SHA-256 over the length-prefixed (name, hex of the file's SHA-256) pairs in name order."""
    parts = [part.encode() for file in sorted(files, key=lambda file: file.name) for part in (file.name, file.sha256.hex)]
    return digest_of(*parts)


def other_steps(readback: CheckpointReadback, component: Component) -> tuple[int, ...]:
    """The steps that the component tells and that are not the checkpoint's."""
    allowed = {readback.step}
    if readback.scaled and component in {Component.OPTIMIZER_STATE, Component.SCHEDULER_STATE}:
        told = [_told(readback, one) for one in (Component.OPTIMIZER_STATE, Component.SCHEDULER_STATE)]
        allowed |= {step for step in told[0] & told[1] if step <= readback.step}
    return tuple(sorted(_told(readback, component) - allowed))


def _told(readback: CheckpointReadback, component: Component) -> set[int]:
    reading = readback.components[component]
    return {witness.step for witness in reading.steps} if isinstance(reading, ComponentRead) else set()


def _incomplete(readback: CheckpointReadback, component: Component) -> tuple[str, ...]:
    """Why a component makes the whole incomplete."""
    reading = readback.components[component]
    match reading:
        case ComponentAbsent():
            return (f"{component} is missing",)
        case ComponentUnreadable():
            return (f"{component} is unreadable",)
        case ComponentChanging():
            return ()
        case ComponentRead():
            return tuple(f"{component} is of step {step}, not {readback.step}" for step in other_steps(readback, component))
