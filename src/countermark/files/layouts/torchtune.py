"""Checkpoints of torchtune: ``epoch_N`` or ``step_N`` with the weights, and the state of the recipe in it or beside it.

Rules kept here:

1. Up to version 0.6 there is one ``recipe_state/recipe_state.pt`` beside all ``epoch_N``, written over with each of them. It belongs to
   the one that its ``epochs_run`` tells; to any other it is the state of another epoch, and says so.
2. An adapter is resumed from ``adapter_model.pt``; what PEFT would load lies beside it and is part of the weights too. Its configuration
   tells rank, scaling and targets and nothing else: the rest that PEFT assumes is not what torchtune trained with.
3. The state of the recipe is one file of several components, each a portion of it with a digest of its own.
4. torchtune keeps no state of its scheduler, which it makes anew from the step, and none of the random generators: both are missing.
5. It writes in place, the recipe's state last, so nothing that it leaves proves that it had finished.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from countermark.files.layouts.portions import OpenValues, take_values
from countermark.files.layouts.reading import Layout, LayoutReading, Naming, Parts, Whys, gaps, take, torch_state
from countermark.files.layouts.states import fact, generators_say, optimizer_says, table_of, whole_number
from countermark.files.layouts.weights import is_adapter, take_weights
from countermark.files.pickles import TensorStub, TorchFile
from countermark.files.reading import Entry, OpenFile
from countermark.run.checkpoint import Component, StepWitness
from countermark.weights.refusals import FileAbsent

RECIPE_STATE: Final = "recipe_state.pt"
BESIDE: Final = f"recipe_state/{RECIPE_STATE}"
ADAPTER: Final = "adapter_model.pt"

_EPOCHS: Final = Naming("epoch_{epoch}")
_STEPS: Final = Naming("step_{step}")
_SHARD: Final = re.compile(r"model-([0-9]{5})-of-([0-9]{5})(\.safetensors|\.bin)", re.ASCII)
#: The optimizer's state in the recipe's, and the state of a generator, which one recipe keeps.
_OPTIMIZER: Final = "optimizer"
_GENERATOR: Final = "rng_state"
#: What an adapter's configuration tells that torchtune itself wrote there.
_TOLD: Final = frozenset({"rank", "scaling", "target_modules"})
#: Facts about coordinates, by the recipe's names for them.
_COORDINATES: Final[Mapping[str, str]] = MappingProxyType({"seed": "seed", "total_training_steps": "total_steps"})
_NO_SCHEDULER: Final = "torchtune keeps no state of the scheduler, and makes it anew from the step when it goes on"


@final
@dataclass(slots=True)
class _Recipe:
    """The components in the recipe's state, and what it tells."""

    optimizer: Parts = field(default_factory=Parts)
    generators: Parts = field(default_factory=Parts)
    position: Parts = field(default_factory=Parts)


def _recognises(path: Path, entries: tuple[Entry, ...]) -> bool:
    names = {entry.name for entry in entries}
    if any(name.endswith(".distcp") for name in names):
        return False
    shards = any(map(_SHARD.fullmatch, names)) or is_adapter(frozenset(names))
    return not names.isdisjoint({RECIPE_STATE, ADAPTER}) or (shards and _EPOCHS.numbered(path.name) is not None)


def _read(path: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    names = frozenset(entry.name for entry in entries)
    reading = LayoutReading(notes=(_NO_SCHEDULER,))
    weights = _weights(path, names, reading)
    recipe = _recipe(path, names, reading)
    return reading.settle(
        {
            Component.MODEL_WEIGHTS: weights,
            Component.OPTIMIZER_STATE: recipe.optimizer,
            Component.RNG_STATE: recipe.generators,
            Component.DATA_POSITION: recipe.position,
        }
    )


def _weights(path: Path, names: frozenset[str], reading: LayoutReading) -> Parts:
    shards = sorted(name for name in names if _SHARD.fullmatch(name) and name.endswith(".bin"))
    own = ADAPTER in names
    parts = Parts() if shards or (own and not is_adapter(names)) else take_weights(path, names, reading)
    reading.facts = [told for told in reading.facts if told.coordinate in _TOLD]
    for name in shards:
        take(parts, path, name, torch_state(_tensors))
    parts.absent.extend(_missing_of(shards))
    if shards and (others := sorted(name for name in names if _SHARD.fullmatch(name) and name not in shards)):
        parts.whys.append(f"{shards[0]} and {others[0]} are both there: nothing tells which of them go with the optimizer")
    if own:
        found = take(parts, path, ADAPTER, torch_state(_tensors))
        reading.model_shapes = None if found is None else tuple(sorted(stub.shape for stub in found.values()))
    return parts


def _missing_of(shards: list[str]) -> Iterator[str]:
    """Names of shards that there are to be, as these tell it, and that are not there."""
    found: dict[str, list[int]] = {}
    for name in shards:
        if shard := _SHARD.fullmatch(name):
            found.setdefault(shard[2], []).append(int(shard[1]))
    for total, numbers in found.items():
        missing, _ = gaps(numbers, range(1, int(total) + 1))
        yield from (f"model-{number:05}-of-{total}.bin" for number in missing)


def _tensors(file: TorchFile, _: OpenFile) -> Mapping[str, TensorStub] | Whys:
    held = {str(name): value for name, value in table_of(file.value).items() if isinstance(value, TensorStub)}
    return held or Whys(("it holds no tensor",))


def _recipe(path: Path, names: frozenset[str], reading: LayoutReading) -> _Recipe:
    """The recipe's state, in the checkpoint or beside it."""
    inside = RECIPE_STATE in names
    folder, name = (path, RECIPE_STATE) if inside else (path.parent, BESIDE)
    numbered = _EPOCHS.numbered(path.name)
    epoch = None if inside or numbered is None else numbered.number
    found = take_values(folder, name, lambda held: _says(held, name, epoch, reading))
    if isinstance(found, _Recipe):
        return found
    recipe = _Recipe()
    for parts in (recipe.optimizer, recipe.position):
        if isinstance(found, Whys):
            parts.refuse(name, found)
        elif isinstance(found, FileAbsent):
            parts.absent.append(RECIPE_STATE)
        else:
            parts.defect(found)
    return recipe


def _says(held: OpenValues, name: str, epoch: int | None, reading: LayoutReading) -> _Recipe | Whys:
    """The components of an open recipe's state; ``epoch`` is the one that it must be of."""
    run = whole_number(held.values.get("epochs_run"))
    if run is None:
        return Whys(("it is no state of a recipe: it has no epochs_run",))
    if epoch is not None and run != epoch + 1:
        return Whys((f"it was written after {run} epochs, and epoch_{epoch} ends epoch {epoch + 1}",))
    recipe = _Recipe()
    for value in held.values:
        parts = {_OPTIMIZER: recipe.optimizer, _GENERATOR: recipe.generators}.get(value, recipe.position)
        held.put(parts, value, f"{name}: {value}")
    reading.step = whole_number(held.values.get("steps_run"))
    if reading.step is not None:
        recipe.position.steps.append(StepWitness(f"{name}: steps_run", reading.step))
    for told, coordinate in _COORDINATES.items():
        if held.values.get(told) is not None:
            reading.facts.append(fact(coordinate, held.values[told], f"{name}: {told}"))
    if _OPTIMIZER in held.values:
        _judge_optimizer(held, name, recipe.optimizer, reading)
    if _GENERATOR in held.values:
        recipe.generators.whys.extend(f"{name}: {why}" for why in generators_say({"cpu": held.values[_GENERATOR]}))
    return recipe


def _judge_optimizer(held: OpenValues, name: str, parts: Parts, reading: LayoutReading) -> None:
    source = f"{name}: {_OPTIMIZER}"
    says = optimizer_says(held.values[_OPTIMIZER], held.element, source)
    if isinstance(says, Whys):
        parts.refuse(source, says)
        return
    parts.steps.extend(StepWitness(f"{source}: step", step) for step in says.steps)
    reading.facts.extend(says.facts)
    reading.optimizer_shapes, reading.optimizer_parameters = says.shapes, says.parameters
    if reading.step is None and len(says.steps) == 1:
        reading.step = says.steps[0]


FOLDER: Final = Layout("torchtune", (_EPOCHS, _STEPS), _recognises, _read)
