"""The checkpoint folder that a Transformers trainer writes for a PEFT adapter: ``checkpoint-N``.

Rules kept here:

1. Each file is opened once. What is hashed, parsed and judged is one descriptor, and a file that changed meanwhile gives no digest.
2. A component is whole or it is not read: all its files, and each of them parsed. ``training_args.bin`` is a pickle of live objects and
   belongs to no component.
3. Every step witness is handed on; which of them is right is not decided here.
4. States of several workers are named as such: a single worker cannot go on from them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, final

from countermark.files.adapter import ADAPTER_CONFIG, AdapterConfig, parse_adapter
from countermark.files.digest_cache import hash_file
from countermark.files.documents import CONFIG_BYTES_MAX, parse_object
from countermark.files.model_folder import INDEX_FILES, SINGLE_FILES, weight_headers
from countermark.files.pickles import TorchFile, read_torch_file, scalar
from countermark.files.reading import OpenFile, ShortRead, open_file, read_whole
from countermark.files.safetensors import read_table
from countermark.files.trainer_files import Whys, adapter_facts, generators_say, optimizer_says, scheduler_says, trainer_says
from countermark.lines.defects import sentence
from countermark.run.checkpoint import (
    COMPONENTS,
    ArtifactFact,
    Component,
    ComponentAbsent,
    ComponentChanging,
    ComponentRead,
    ComponentReading,
    ComponentUnreadable,
    FileReading,
    StepWitness,
)
from countermark.values import Refused, Unreadable
from countermark.weights import name_defects
from countermark.weights.refusals import FileAbsent, FileChanged, FileDefect, PickleUnreadable

LAYOUT: Final = "transformers-peft"

WEIGHTS: Final = "adapter_model.safetensors"
OPTIMIZER: Final = "optimizer.pt"
SCALER: Final = "scaler.pt"
SCHEDULER: Final = "scheduler.pt"
GENERATORS: Final = "rng_state.pth"
TRAINER_STATE: Final = "trainer_state.json"

#: Files that show the layout, and which component each belongs to.
FILES: Final[Mapping[str, Component]] = {
    WEIGHTS: Component.MODEL_WEIGHTS,
    ADAPTER_CONFIG: Component.MODEL_WEIGHTS,
    OPTIMIZER: Component.OPTIMIZER_STATE,
    SCALER: Component.OPTIMIZER_STATE,
    SCHEDULER: Component.SCHEDULER_STATE,
    GENERATORS: Component.RNG_STATE,
    TRAINER_STATE: Component.DATA_POSITION,
}
_OF_A_RANK: Final = re.compile(r"rng_state_[0-9]+\.pth", re.ASCII)

T = TypeVar("T")


@final
@dataclass(slots=True)
class LayoutReading:
    """What the files of one folder say, component by component."""

    components: dict[Component, ComponentReading] = field(default_factory=dict[Component, ComponentReading])
    facts: list[ArtifactFact] = field(default_factory=list[ArtifactFact])
    model_shapes: tuple[tuple[int, ...], ...] | None = None
    optimizer_shapes: tuple[tuple[int, ...], ...] = ()
    optimizer_parameters: int | None = None
    epoch: float | None = None
    scaled: bool = False
    trainer_step: int | None = None
    notes: tuple[str, ...] = ()


def read_layout(folder: Path, names: frozenset[str]) -> LayoutReading:
    """The five components of a folder whose entries have these names."""
    reading = LayoutReading()
    found = {
        Component.MODEL_WEIGHTS: _weights(folder, names, reading),
        Component.OPTIMIZER_STATE: _optimizer(folder, names, reading),
        Component.SCHEDULER_STATE: _scheduler(folder, reading),
        Component.RNG_STATE: _generators(folder, names),
        Component.DATA_POSITION: _trainer_state(folder, reading),
    }
    reading.components = {component: found[component].done() for component in COMPONENTS}
    return reading


@final
@dataclass(slots=True)
class _Parts:
    """One component while its files are read."""

    files: list[FileReading] = field(default_factory=list[FileReading])
    steps: list[StepWitness] = field(default_factory=list[StepWitness])
    absent: list[str] = field(default_factory=list[str])
    whys: list[str] = field(default_factory=list[str])
    changing: list[str] = field(default_factory=list[str])

    def done(self) -> ComponentReading:
        if self.whys:
            return ComponentUnreadable(tuple(self.whys))
        if self.absent:
            return ComponentAbsent(tuple(self.absent))
        if self.changing:
            return ComponentChanging(tuple(self.changing))
        return ComponentRead(tuple(sorted(self.files, key=lambda file: file.name)), tuple(self.steps))

    def defect(self, defect: FileDefect) -> None:
        if isinstance(defect, FileAbsent):
            self.absent.append(defect.file)
        elif isinstance(defect, FileChanged):
            self.changing.append(defect.file)
        else:
            self.whys.append(sentence(defect).message)

    def refuse(self, name: str, whys: Whys) -> None:
        self.whys.extend(why if name in why else f"{name}: {why}" for why in whys.texts)


def _take(parts: _Parts, folder: Path, name: str, parse: Callable[[OpenFile], T | Whys | FileDefect]) -> T | None:
    """One file of a component: hashed and parsed from one descriptor. What keeps it from counting is noted, and None returned."""
    opened = open_file(folder, name)
    if not isinstance(opened, OpenFile):
        parts.defect(opened)
        return None
    with opened:
        try:
            digest = opened.sha256(0, opened.size)
            parsed = parse(opened)
            if opened.changed():
                parsed = FileChanged(name)
        except (OSError, ShortRead) as error:
            parts.defect(opened.judged(error))
            return None
    if isinstance(parsed, FileDefect):
        parts.defect(parsed)
        return None
    if isinstance(parsed, Whys):
        parts.refuse(name, parsed)
        return None
    parts.files.append(FileReading(name, digest, opened.size))
    return parsed


def _weights(folder: Path, names: frozenset[str], reading: LayoutReading) -> _Parts:
    parts = _Parts()
    if WEIGHTS not in names and (others := sorted(name for name in (*SINGLE_FILES, *INDEX_FILES) if name in names)):
        return _full_weights(folder, names, others[0])
    shapes = _take(parts, folder, WEIGHTS, _shapes)
    config = _take(parts, folder, ADAPTER_CONFIG, _adapter)
    if shapes is not None:
        reading.model_shapes = shapes.shapes
    if config is not None:
        reading.facts.extend(adapter_facts(config))
    return parts


@final
@dataclass(frozen=True, slots=True)
class _Shapes:
    shapes: tuple[tuple[int, ...], ...]


def _shapes(opened: OpenFile) -> _Shapes | Whys | FileDefect:
    table = read_table(opened)
    if isinstance(table, Refused):
        return Whys(tuple(sentence(defect).message for defect in table.defects))
    if unprintable := name_defects(span.name for span in table.tensors):
        return Whys(tuple(sentence(defect).message for defect in unprintable))
    return _Shapes(tuple(sorted(span.shape for span in table.tensors))) if table.tensors else Whys(("it holds no tensor",))


def _adapter(opened: OpenFile) -> AdapterConfig | Whys | FileDefect:
    content = read_whole(opened, CONFIG_BYTES_MAX)
    if not isinstance(content, bytes):
        return content
    config = parse_adapter(content)
    return Whys((config.why,)) if isinstance(config, Unreadable) else config


def _full_weights(folder: Path, names: frozenset[str], first: str) -> _Parts:
    """The weights of a whole model, one file or shards: read for what they are worth on their own."""
    parts = _Parts()
    _, headers = weight_headers(folder, tuple(sorted(names)), ())
    parts.whys.extend(sentence(defect).message for defect in headers.defects)
    for name in sorted({*headers.tables, *({first} & set(INDEX_FILES))}):
        hashed = hash_file(folder, name)
        if isinstance(hashed, tuple):
            parts.files.append(FileReading(name, *hashed))
        else:
            parts.defect(hashed)
    return parts


def _torch(judge: Callable[[TorchFile, OpenFile], T | Whys]) -> Callable[[OpenFile], T | Whys | FileDefect]:
    def parse(opened: OpenFile) -> T | Whys | FileDefect:
        found = read_torch_file(opened)
        if isinstance(found, PickleUnreadable):
            return Whys(found.whys)
        return judge(found, opened) if isinstance(found, TorchFile) else found

    return parse


def _optimizer(folder: Path, names: frozenset[str], reading: LayoutReading) -> _Parts:
    parts = _Parts()
    says = _take(parts, folder, OPTIMIZER, _torch(lambda file, opened: optimizer_says(file.value, lambda at: scalar(opened, file, at))))
    if says is not None:
        parts.steps.extend(StepWitness(f"{OPTIMIZER}: step", step) for step in says.steps)
        reading.facts.extend(says.facts)
        reading.optimizer_shapes, reading.optimizer_parameters = says.shapes, says.parameters
    if SCALER in names:
        reading.scaled = _take(parts, folder, SCALER, _torch(lambda file, _: file)) is not None
    return parts


def _scheduler(folder: Path, reading: LayoutReading) -> _Parts:
    parts = _Parts()
    says = _take(parts, folder, SCHEDULER, _torch(lambda file, _: scheduler_says(file.value)))
    if says is not None:
        parts.steps.append(StepWitness(f"{SCHEDULER}: last_epoch", says.step))
        reading.facts.extend(says.facts)
    return parts


@final
@dataclass(frozen=True, slots=True)
class _Whole:
    """Nothing is to be said against it."""


def _generators_whole(file: TorchFile) -> _Whole | Whys:
    whys = generators_say(file.value)
    return Whys(whys) if whys else _Whole()


def _generators(folder: Path, names: frozenset[str]) -> _Parts:
    parts = _Parts()
    if GENERATORS not in names and any(_OF_A_RANK.fullmatch(name) for name in names):
        parts.whys.append("the states of the random generators are those of several workers")
        return parts
    _take(parts, folder, GENERATORS, _torch(lambda file, _: _generators_whole(file)))
    return parts


def _trainer_state(folder: Path, reading: LayoutReading) -> _Parts:
    parts = _Parts()

    def parse(opened: OpenFile) -> Mapping[str, object] | Whys | FileDefect:
        content = read_whole(opened, CONFIG_BYTES_MAX)
        if not isinstance(content, bytes):
            return content
        document = parse_object(content)
        return Whys((document.why,)) if isinstance(document, Unreadable) else document

    document = _take(parts, folder, TRAINER_STATE, parse)
    says = trainer_says(document) if document is not None else None
    if isinstance(says, Whys):
        parts.refuse(TRAINER_STATE, says)
    elif says is not None:
        parts.steps.append(StepWitness(f"{TRAINER_STATE}: global_step", says.step))
        reading.facts.extend(says.facts)
        reading.epoch, reading.trainer_step, reading.notes = says.epoch, says.step, says.notes
    return parts
