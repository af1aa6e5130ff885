"""torchtune's folders: a clean one of each kind, each break alone, breaks together, and the state that was written over."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import list_checkpoints
from countermark.files.layouts import torchtune
from countermark.files.layouts.reading import Parts
from countermark.run.checkpoint import (
    CheckpointDefect,
    CheckpointReadback,
    Component,
    ComponentForeign,
    ComponentMissing,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnread,
    Divergence,
    ManifestDiverges,
    PublicationIncomplete,
    StepWitness,
    Unobserved,
    WeightsOnlyCheckpoint,
    admit_weights_only,
)
from tests.faults import planted, proven_by
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, WEIGHTS, defects, read
from tests.files.layouts.torchtunes import SHAPES, checkpoint, model_checkpoint, optimizer, recipe_state
from tests.files.torchfiles import Tensor, torch_file, zeros

#: What torchtune never keeps.
NEVER: list[CheckpointDefect] = [ComponentMissing(SCHEDULER), ComponentMissing(GENERATORS)]


def beside_publication(path: Path, **changes: str) -> Counter[CheckpointDefect]:
    """Everything that admission says against a folder, apart from how it was published: that follows from the rest."""
    found = defects(path, **changes)
    assert sum(found.pop(one) for one in list(found) if isinstance(one, PublicationIncomplete)) == 1
    return found


def told(readback: CheckpointReadback) -> dict[Component, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]:
    return {
        component: (tuple(file.name for file in part.files), tuple((w.source, w.step) for w in part.steps))
        for component, part in readback.components.items()
        if isinstance(part, ComponentRead)
    }


def test_a_clean_folder_of_a_step_lacks_what_torchtune_never_keeps_and_nothing_else(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    assert beside_publication(folder) == Counter(NEVER)
    readback = read(folder)
    position = tuple(
        f"recipe_state.pt: {name}" for name in ("dataloader", "epochs_run", "seed", "steps_run", "total_epochs", "total_training_steps")
    )
    assert (readback.layout, readback.step) == ("torchtune", 4) and isinstance(readback.marker, Unobserved) and len(readback.notes) == 1
    assert told(readback) == {
        WEIGHTS: (("adapter_config.json", "adapter_model.pt", "adapter_model.safetensors"), ()),
        OPTIMIZER: (("recipe_state.pt: optimizer",), (("recipe_state.pt: optimizer: step", 4),)),
        POSITION: (position, (("recipe_state.pt: steps_run", 4),)),
    }


def test_a_clean_folder_of_an_epoch_has_its_recipes_state_beside_it(tmp_path: Path) -> None:
    folder = model_checkpoint(tmp_path)
    assert beside_publication(folder) == Counter(NEVER) and read(folder).step == 4
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json")
    assert told(read(folder))[WEIGHTS] == (shards, ())
    assert told(read(folder))[OPTIMIZER][1] == (("recipe_state/recipe_state.pt: optimizer: step", 4),)


@proven_by(planted(torchtune, "whole_number", lambda value: 2))
def test_a_recipes_state_that_a_later_epoch_wrote_over_is_of_none_before(tmp_path: Path) -> None:
    first = model_checkpoint(tmp_path)
    second = model_checkpoint(tmp_path, "epoch_1", epochs_run=2)
    why = "recipe_state/recipe_state.pt: it was written after 2 epochs, and epoch_0 ends epoch 1"
    assert beside_publication(second) == Counter(NEVER)
    assert beside_publication(first) == Counter([*NEVER, ComponentUnread(OPTIMIZER, why), ComponentUnread(POSITION, why)])
    assert isinstance(admit_weights_only(read(first)), WeightsOnlyCheckpoint)


STATES: list[tuple[dict[str, Any], list[CheckpointDefect]]] = [
    ({"optimizer": None}, [ComponentMissing(OPTIMIZER)]),
    ({"optimizer": {}}, [ComponentUnread(OPTIMIZER, "recipe_state.pt: optimizer: it is no state of an optimizer")]),
    ({"optimizer": optimizer(8)}, [ComponentStepMismatch(OPTIMIZER, 8)]),
    ({"steps_run": 8}, [ComponentStepMismatch(POSITION, 8)]),
    ({"steps_run": 8, "optimizer": None}, [ComponentStepMismatch(POSITION, 8), ComponentMissing(OPTIMIZER)]),
    (
        {"epochs_run": None},
        [ComponentUnread(one, "recipe_state.pt: it is no state of a recipe: it has no epochs_run") for one in (OPTIMIZER, POSITION)],
    ),
    (
        {"optimizer": optimizer(4, dict(list(SHAPES.items())[:4]))},
        [ComponentForeign(OPTIMIZER, "it steps 4 tensors and the weights hold 8")],
    ),
    (
        {"seed": 7, "total_training_steps": 40},
        [
            ManifestDiverges(
                (
                    Divergence("seed", "17", "7", "recipe_state.pt: seed"),
                    Divergence("total_steps", "20", "40", "recipe_state.pt: total_training_steps"),
                )
            )
        ],
    ),
]


def of_step_four(source: str, step: int) -> StepWitness:
    return StepWitness(source, 4)


@proven_by(planted(Parts, "refuse", lambda self, name, whys: None), planted(torchtune, "StepWitness", of_step_four))
def test_what_the_recipes_state_lacks_or_tells_otherwise_is_named(tmp_path: Path) -> None:
    contents = [torch_file(recipe_state(**state)) for state, _ in STATES]
    found = [beside_publication(checkpoint(tmp_path / str(at), recipe_state_pt=content)) for at, content in enumerate(contents)]
    assert found == [Counter([*NEVER, *expected]) for _, expected in STATES]


def test_a_generator_that_one_recipe_keeps_is_not_all_of_them(tmp_path: Path) -> None:
    state = torch_file(recipe_state(rng_state=Tensor("U8", (8,), (1,) * 8)))
    whys = [f"recipe_state.pt: the state of {whose}'s generator is not in it" for whose in ("Python", "NumPy")]
    assert beside_publication(checkpoint(tmp_path, recipe_state_pt=state)) == Counter(
        [ComponentMissing(SCHEDULER), *(ComponentUnread(GENERATORS, why) for why in whys)]
    )


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (("recipe_state.pt",), [ComponentMissing(OPTIMIZER), ComponentMissing(POSITION)]),
        (("adapter_model.safetensors",), [ComponentMissing(WEIGHTS)]),
        (("adapter_config.json", "recipe_state.pt"), [ComponentMissing(one) for one in (WEIGHTS, OPTIMIZER, POSITION)]),
    ],
)
def test_a_file_that_is_not_there_is_a_missing_component(
    tmp_path: Path, without: tuple[str, ...], expected: list[CheckpointDefect]
) -> None:
    assert beside_publication(checkpoint(tmp_path, without=without)) == Counter([*NEVER, *expected])


def test_files_that_are_cut_are_told_together(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    for name in ("recipe_state.pt", "adapter_model.pt"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
    cut = "it is cut: the directory at its end is missing"
    states: list[CheckpointDefect] = [ComponentUnread(one, f"recipe_state.pt: {cut}") for one in (OPTIMIZER, POSITION)]
    assert beside_publication(folder) == Counter([*NEVER, ComponentUnread(WEIGHTS, f"adapter_model.pt: {cut}"), *states])


def test_a_shard_that_is_not_there_is_named_of_either_kind(tmp_path: Path) -> None:
    folder = model_checkpoint(tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert Counter(type(one) for one in beside_publication(folder)) == Counter([ComponentMissing, ComponentMissing, ComponentUnread])
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00001-of-00002.safetensors").rename(folder / "model-00001-of-00002.bin")
    (folder / "model-00001-of-00002.bin").write_bytes(torch_file({"a": zeros(2)}))
    assert beside_publication(folder) == Counter([*NEVER, ComponentMissing(WEIGHTS)])
    (folder / "model-00002-of-00002.bin").write_bytes(torch_file({"b": zeros(2)}))
    assert beside_publication(folder) == Counter(NEVER)


def test_shards_of_both_kinds_are_of_two_saves(tmp_path: Path) -> None:
    folder = model_checkpoint(tmp_path)
    (folder / "model-00001-of-00001.bin").write_bytes(torch_file({"a": zeros(2)}))
    why = "model-00001-of-00001.bin and model-00001-of-00002.safetensors are both there: nothing tells which of them go with the optimizer"
    assert beside_publication(folder) == Counter([*NEVER, ComponentUnread(WEIGHTS, why)])


def test_folders_are_listed_by_their_numbers(tmp_path: Path) -> None:
    for name in ("step_900", "step_1000", "step_1000-tmp", "epoch_01", "recipe_state"):
        (tmp_path / name).mkdir()
    assert getattr(list_checkpoints(tmp_path), "checkpoints", None) == ((900, "step_900"), (1000, "step_1000"))
