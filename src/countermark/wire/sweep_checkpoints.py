"""What was read back of a checkpoint, as a stored sweep holds it: structs ↔ values.

Rules kept here:

1. The five components stand under their names; all of them are there, and no other.
2. A floating-point number is its shortest round-trip text, because JSON has no name for every one.
"""

from typing import Annotated, TypeVar, final

import msgspec

from countermark.run.checkpoint import (
    COMPONENTS,
    ArtifactFact,
    Atomic,
    CheckpointReadback,
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
)
from countermark.values import Sha256, Unreadable

T = TypeVar("T")
#: At most one: what a value may or may not have.
Maybe = Annotated[tuple[T, ...], msgspec.Meta(max_length=1)]


class Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What every struct of a sweep is: frozen, and closed to unknown fields."""


class Arm(Plain, frozen=True, tag_field="is", tag=lambda name: name.removesuffix("Text")[0].lower() + name.removesuffix("Text")[1:]):
    """One arm of a closed sum, told by ``is``."""


@final
class FileText(Plain, frozen=True):
    """One file of a component."""

    name: str
    sha256: str
    bytes: int


@final
class WitnessText(Plain, frozen=True):
    """A place that tells the step."""

    source: str
    step: int


@final
class ComponentReadText(Arm, frozen=True):
    """Opened, parsed and hashed."""

    files: tuple[FileText, ...]
    steps: tuple[WitnessText, ...]
    declared: Maybe[str]


@final
class ComponentOfWorkersText(Arm, frozen=True):
    """Opened, parsed and hashed, in the parts of several workers."""

    files: tuple[FileText, ...]
    steps: tuple[WitnessText, ...]
    declared: Maybe[str]
    workers: Annotated[int, msgspec.Meta(ge=2)]


@final
class ComponentAbsentText(Arm, frozen=True):
    """Not there, or not all of it."""

    files: tuple[str, ...]


@final
class ComponentUnreadableText(Arm, frozen=True):
    """There, and not what it must be."""

    whys: tuple[str, ...]


@final
class ComponentChangingText(Arm, frozen=True):
    """Changed while it was read."""

    files: tuple[str, ...]


ComponentText = ComponentReadText | ComponentOfWorkersText | ComponentAbsentText | ComponentUnreadableText | ComponentChangingText


@final
class AtomicText(Arm, frozen=True):
    """A rename or commit marker was seen."""

    receipt: str


@final
class IncompleteText(Arm, frozen=True):
    """Something is missing or in progress."""

    whys: tuple[str, ...]


@final
class UnobservedText(Arm, frozen=True):
    """Nobody can tell."""

    whys: tuple[str, ...]


PublicationText = AtomicText | IncompleteText | UnobservedText


@final
class FactText(Plain, frozen=True):
    """What an artifact shows about a coordinate or a leaf of one."""

    leaf: str
    spelling: str
    source: str


@final
class ReadbackText(Plain, frozen=True):
    """A checkpoint as an observer read it back."""

    path: str
    layout: str
    step: int
    components: dict[str, ComponentText]
    marker: PublicationText
    attempt: Maybe[str]
    work_key: Maybe[str]
    declared: Maybe[dict[str, str]]
    facts: tuple[FactText, ...]
    model_shapes: Maybe[tuple[tuple[int, ...], ...]]
    optimizer_shapes: tuple[tuple[int, ...], ...]
    optimizer_parameters: Maybe[int]
    micro_batches: Maybe[int]
    epoch: Maybe[str]
    scaled: bool
    notes: tuple[str, ...]


def _component_text(reading: ComponentReading) -> ComponentText:
    match reading:
        case ComponentRead(files, steps, declared, workers):
            read = (
                tuple(FileText(file.name, file.sha256.spell(), file.bytes) for file in files),
                tuple(WitnessText(step.source, step.step) for step in steps),
                () if declared is None else (declared.spell(),),
            )
            return ComponentReadText(*read) if workers == 1 else ComponentOfWorkersText(*read, workers)
        case ComponentAbsent(files):
            return ComponentAbsentText(files)
        case ComponentUnreadable(whys):
            return ComponentUnreadableText(whys)
        case ComponentChanging(files):
            return ComponentChangingText(files)


def _component_of(text: ComponentText) -> ComponentReading:
    match text:
        case ComponentReadText() | ComponentOfWorkersText():
            return ComponentRead(
                tuple(FileReading(file.name, _digest(file.sha256), file.bytes) for file in text.files),
                tuple(StepWitness(step.source, step.step) for step in text.steps),
                next(map(_digest, text.declared), None),
                text.workers if isinstance(text, ComponentOfWorkersText) else 1,
            )
        case ComponentAbsentText(files=files):
            return ComponentAbsent(files)
        case ComponentUnreadableText(whys=whys):
            return ComponentUnreadable(whys)
        case ComponentChangingText(files=files):
            return ComponentChanging(files)


def _digest(text: str) -> Sha256:
    digest = Sha256.read(text)
    if isinstance(digest, Unreadable):
        raise ValueError(digest.why)
    return digest


def _publication_text(publication: Publication) -> PublicationText:
    match publication:
        case Atomic(receipt):
            return AtomicText(receipt)
        case Incomplete(whys):
            return IncompleteText(whys)
        case Unobserved(whys):
            return UnobservedText(whys)


def _publication_of(text: PublicationText) -> Publication:
    match text:
        case AtomicText(receipt=receipt):
            return Atomic(receipt)
        case IncompleteText(whys=whys):
            return Incomplete(whys)
        case UnobservedText(whys=whys):
            return Unobserved(whys)


def _maybe(value: T | None) -> tuple[T, ...]:
    return () if value is None else (value,)


def readback_text(readback: CheckpointReadback) -> ReadbackText:
    """A readback as it is stored."""
    return ReadbackText(
        readback.path,
        readback.layout,
        readback.step,
        {component.value: _component_text(reading) for component, reading in readback.components.items()},
        _publication_text(readback.marker),
        _maybe(readback.attempt),
        _maybe(readback.work_key),
        () if readback.declared is None else (dict(readback.declared),),
        tuple(FactText(fact.leaf, fact.spelling, fact.source) for fact in readback.facts),
        _maybe(readback.model_shapes),
        readback.optimizer_shapes,
        _maybe(readback.optimizer_parameters),
        _maybe(readback.micro_batches),
        () if readback.epoch is None else (repr(float(readback.epoch)),),
        readback.scaled,
        readback.notes,
    )


def readback_of(text: ReadbackText) -> CheckpointReadback:
    """The readback that was stored. Raises ``ValueError``."""
    if text.components.keys() != {component.value for component in COMPONENTS}:
        raise ValueError("a checkpoint's readback says something about each of its five components")
    return CheckpointReadback(
        text.path,
        text.layout,
        text.step,
        {component: _component_of(text.components[component.value]) for component in COMPONENTS},
        _publication_of(text.marker),
        next(iter(text.attempt), None),
        next(iter(text.work_key), None),
        next(iter(text.declared), None),
        tuple(ArtifactFact(fact.leaf, fact.spelling, fact.source) for fact in text.facts),
        next(iter(text.model_shapes), None),
        text.optimizer_shapes,
        next(iter(text.optimizer_parameters), None),
        next(iter(text.micro_batches), None),
        next(map(float, text.epoch), None),
        text.scaled,
        text.notes,
    )
