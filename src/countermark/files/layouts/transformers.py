"""The checkpoint folder that a Transformers trainer writes: ``checkpoint-N``, of a whole model or of a PEFT adapter.

Rules kept here:

1. ``training_args.bin`` is a pickle of live objects and belongs to no component: it is never parsed.
2. States of several workers are named as such: a single worker cannot go on from them.
3. A folder is the trainer's where a file lies in it that only this trainer writes. One that holds weights and no state of anything, or
   nothing at all, was stopped before that: then it goes by its name.
4. The trainer writes in place, so nothing that it leaves proves that it had finished.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.documents import CONFIG_BYTES_MAX, parse_object
from countermark.files.layouts.reading import Layout, LayoutReading, Naming, Parts, Whole, Whys, take, torch_state
from countermark.files.layouts.states import fact, generators_say, optimizer_says, scheduler_says, whole_number
from countermark.files.layouts.weights import is_adapter, take_weights
from countermark.files.pickles import TorchFile, scalar
from countermark.files.reading import Entry, OpenFile, read_whole
from countermark.run.checkpoint import ArtifactFact, Component, StepWitness
from countermark.values import Unreadable, shown
from countermark.weights.refusals import FileDefect

OPTIMIZER: Final = "optimizer.pt"
SCALER: Final = "scaler.pt"
SCHEDULER: Final = "scheduler.pt"
GENERATORS: Final = "rng_state.pth"
TRAINER_STATE: Final = "trainer_state.json"
ARGUMENTS: Final = "training_args.bin"

_NAMES: Final = (Naming("checkpoint-{step}"),)
#: Files that only this trainer writes.
_MARKS: Final = frozenset({OPTIMIZER, SCHEDULER, GENERATORS, TRAINER_STATE, ARGUMENTS})
_OF_A_RANK: Final = re.compile(r"rng_state_(0|[1-9][0-9]*)\.pth", re.ASCII)
#: Endings of files in which any library keeps a state.
_STATES: Final = (".pt", ".pth", ".bin", ".pkl", ".ckpt", ".distcp")


def _is_the_trainers(path: Path, entries: tuple[Entry, ...]) -> bool:
    names = {entry.name for entry in entries}
    if not names.isdisjoint(_MARKS) or any(map(_OF_A_RANK.fullmatch, names)):
        return True
    stateless = not any(entry.kind == "a folder" or entry.name.endswith(_STATES) for entry in entries)
    return stateless and _NAMES[0].numbered(path.name) is not None


def _of_a_model(path: Path, entries: tuple[Entry, ...]) -> bool:
    return _is_the_trainers(path, entries) and not _of_an_adapter(path, entries)


def _of_an_adapter(path: Path, entries: tuple[Entry, ...]) -> bool:
    return _is_the_trainers(path, entries) and is_adapter(frozenset(entry.name for entry in entries))


def _read(folder: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    names = frozenset(entry.name for entry in entries)
    reading = LayoutReading()
    return reading.settle(
        {
            Component.MODEL_WEIGHTS: take_weights(folder, names, reading),
            Component.OPTIMIZER_STATE: _optimizer(folder, names, reading),
            Component.SCHEDULER_STATE: _scheduler(folder, reading),
            Component.RNG_STATE: _generators(folder, names),
            Component.DATA_POSITION: _trainer_state(folder, reading),
        }
    )


def _optimizer(folder: Path, names: frozenset[str], reading: LayoutReading) -> Parts:
    parts = Parts()
    judge = torch_state(lambda file, opened: optimizer_says(file.value, lambda at: scalar(opened, file, at), OPTIMIZER))
    says = take(parts, folder, OPTIMIZER, judge)
    if says is not None:
        parts.steps.extend(StepWitness(f"{OPTIMIZER}: step", step) for step in says.steps)
        reading.facts.extend(says.facts)
        reading.optimizer_shapes, reading.optimizer_parameters = says.shapes, says.parameters
    if SCALER in names:
        reading.scaled = take(parts, folder, SCALER, torch_state(lambda file, _: Whole())) is not None
    return parts


def _scheduler(folder: Path, reading: LayoutReading) -> Parts:
    parts = Parts()
    says = take(parts, folder, SCHEDULER, torch_state(lambda file, _: scheduler_says(file.value, SCHEDULER)))
    if says is not None:
        parts.steps.append(StepWitness(f"{SCHEDULER}: last_epoch", says.step))
        reading.facts.extend(says.facts)
    return parts


def _generators_whole(file: TorchFile, _: OpenFile) -> Whole | Whys:
    whys = generators_say(file.value)
    return Whys(whys) if whys else Whole()


def _generators(folder: Path, names: frozenset[str]) -> Parts:
    parts = Parts()
    if GENERATORS not in names and any(map(_OF_A_RANK.fullmatch, names)):
        parts.whys.append("the states of the random generators are those of several workers")
        return parts
    take(parts, folder, GENERATORS, torch_state(_generators_whole))
    return parts


def _trainer_state(folder: Path, reading: LayoutReading) -> Parts:
    parts = Parts()
    says = take(parts, folder, TRAINER_STATE, _says)
    if says is not None:
        parts.steps.append(StepWitness(f"{TRAINER_STATE}: global_step", says.step))
        reading.facts.extend(says.facts)
        reading.epoch, reading.step, reading.notes = says.epoch, says.step, says.notes
    return parts


def _says(opened: OpenFile) -> "TrainerSays | Whys | FileDefect":
    content = read_whole(opened, CONFIG_BYTES_MAX)
    if not isinstance(content, bytes):
        return content
    document = parse_object(content)
    return Whys((document.why,)) if isinstance(document, Unreadable) else trainer_says(document)


@final
@dataclass(frozen=True, slots=True)
class TrainerSays:
    """The trainer's step and epoch, what its state shows, and notes that speak against nothing."""

    step: int
    epoch: float | None
    facts: tuple[ArtifactFact, ...]
    notes: tuple[str, ...]


def trainer_says(document: Mapping[str, object]) -> TrainerSays | Whys:
    """What ``trainer_state.json`` says."""
    step = whole_number(document.get("global_step"))
    epoch = document.get("epoch")
    whys = [] if step is not None else ["it has no global_step"]
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int | float)):
        whys.append("its epoch is no number")
    if whys or step is None:
        return Whys(tuple(whys))
    facts: list[ArtifactFact] = []
    if document.get("train_batch_size") is not None:
        facts.append(fact("micro_batch", document["train_batch_size"], "trainer_state.json: train_batch_size"))
    if document.get("max_steps") is not None:
        facts.append(fact("total_steps", document["max_steps"], "trainer_state.json: max_steps"))
    return TrainerSays(step, float(epoch) if isinstance(epoch, int | float) else None, tuple(facts), tuple(_notes(document)))


def _notes(document: Mapping[str, object]) -> Iterable[str]:
    best = document.get("best_model_checkpoint")
    if isinstance(best, str) and best and not _exists(best):
        yield f"trainer_state.json names {shown(best)} as the best checkpoint, which is not there; a trainer may stop at the end for that"


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


MODEL: Final = Layout("transformers", _NAMES, _of_a_model, _read)
ADAPTER: Final = Layout("transformers-peft", _NAMES, _of_an_adapter, _read)
