"""The folder of Accelerate's ``save_state``: each form clean, each break alone, breaks together, and what a number in a name counts."""

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from countermark.files import checkpoints
from countermark.files.checkpoints import read_checkpoint
from countermark.files.layouts import Numbered, accelerate, torch_files
from countermark.run import checkpoint as admission
from countermark.run.checkpoint import (
    CheckpointReadback,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnreadable,
    DataPositionMismatch,
    PublicationUnobserved,
    WeightsOnlyCheckpoint,
    admit_weights_only,
)
from tests.faults import planted, proven_by
from tests.files import tensors
from tests.files.folders import generators, optimizer, scheduler
from tests.files.layouts.breaking import (
    GENERATORS,
    OPTIMIZER,
    POSITION,
    SCHEDULER,
    WEIGHTS,
    Break,
    Files,
    defects,
    expected,
    missing,
    of_workers,
    only_the_first,
    read,
    unread,
    written,
)
from tests.files.torchfiles import Global, torch_file, zeros

IN_PLACE = accelerate._IN_PLACE
#: Four micro batches to two steps each.
TAKEN = 8


def process(step: object = TAKEN) -> bytes:
    """The state of one process's generators."""
    of = generators()
    return torch_file({"step": step, "random_state": of["python"], "numpy_random_seed": of["numpy"], "torch_manual_seed": of["cpu"]})


def loader(**changes: Any) -> bytes:
    """The state of a loader without processes of its own."""
    state = {"_sampler_iter_yielded": TAKEN, "_num_yielded": TAKEN, "_sampler_iter_state": None, "_iterator_finished": False}
    return torch_file(state | changes)


CLEAN: Files = {
    "model.safetensors": tensors.encoded({"t0": tensors.f32(1.0)}),
    "optimizer.bin": torch_file(optimizer()),
    "scheduler.bin": torch_file(scheduler()),
    "random_states_0.pkl": process(),
    "dl_state_dict.bin": loader(),
}
SEVERAL = CLEAN | {
    "model_1.safetensors": tensors.encoded({"t1": tensors.f32(2.0)}),
    "optimizer_1.bin": torch_file(optimizer()),
    "scheduler_1.bin": torch_file(scheduler()),
    "dl_state_dict_1.bin": torch_file({"_snapshot": {}, "_steps_since_snapshot": 0, "_iterator_finished": True}),
    "custom_checkpoint_0.pkl": torch_file({"seen": 3}),
    "custom_checkpoint_1.pkl": torch_file({"average": zeros(2)}),
    "scaler.pt": torch_file({"scale": 65536.0}),
}
PICKLED = {name: content for name, content in CLEAN.items() if name != "model.safetensors"} | {
    "pytorch_model.bin": torch_file({"t0": zeros(2)}),
    "pytorch_model_1.bin": torch_file({"t1": zeros(2)}),
}


@pytest.mark.parametrize("contents", [CLEAN, SEVERAL, PICKLED], ids=["one of each", "several of each", "pickled weights"])
def test_each_form_of_the_folder_is_whole_and_unobserved(tmp_path: Path, contents: Files) -> None:
    folder = written(tmp_path / "checkpoint_0", contents)
    readback = read(folder)
    assert (readback.layout, readback.step) == ("accelerate", 4)
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])
    taken = {file.name for part in readback.components.values() if isinstance(part, ComponentRead) for file in part.files}
    assert taken == contents.keys()


def test_each_component_says_its_files_and_witnesses(tmp_path: Path) -> None:
    found = {}
    for component, part in read(written(tmp_path / "checkpoint_0", SEVERAL)).components.items():
        assert isinstance(part, ComponentRead)
        found[component] = (tuple(file.name for file in part.files), tuple((one.source, one.step) for one in part.steps))
    own = ("custom_checkpoint_0.pkl", "custom_checkpoint_1.pkl", "optimizer.bin", "optimizer_1.bin", "scaler.pt")
    assert found == {
        WEIGHTS: (("model.safetensors", "model_1.safetensors"), ()),
        OPTIMIZER: (own, (("optimizer.bin: step", 4), ("optimizer_1.bin: step", 4))),
        SCHEDULER: (("scheduler.bin", "scheduler_1.bin"), (("scheduler.bin: last_epoch", 4), ("scheduler_1.bin: last_epoch", 4))),
        GENERATORS: (("random_states_0.pkl",), ()),
        POSITION: (("dl_state_dict.bin", "dl_state_dict_1.bin"), ()),
    }


# ------------------------------------------------------------------------------------------------------------- the step


@proven_by(planted(checkpoints, "numbered", lambda name, kind, of: Numbered(7, 7)))
@pytest.mark.parametrize("name", ["checkpoint_7", "epoch_7", "step_4", "checkpoint-4", "kept"])
def test_the_step_is_the_optimizers_where_the_name_counts_something_else(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path / name, CLEAN)).step == 4


def test_a_name_that_counts_steps_is_a_witness(tmp_path: Path) -> None:
    mismatches = [ComponentStepMismatch(OPTIMIZER, 4), ComponentStepMismatch(SCHEDULER, 4)]
    assert defects(written(tmp_path / "step_8", CLEAN)) == expected(IN_PLACE, 8, Break("", {}, tuple(mismatches)))


@pytest.mark.parametrize("told", [4, 8], ids=["split batches", "a step for each process"])
def test_a_scheduler_counts_the_steps_of_all_processes_or_of_one(tmp_path: Path, told: int) -> None:
    changes = {"scheduler.bin": torch_file(scheduler(told)), "random_states_1.pkl": process()}
    folder = written(tmp_path / "checkpoint_0", CLEAN, Break("", changes, ()))
    found = read(folder).components[SCHEDULER]
    assert isinstance(found, ComponentRead) and [one.step for one in found.steps] == [4]


def test_two_processes_are_not_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "checkpoint_0", CLEAN | {"random_states_1.pkl": process()})
    assert defects(folder) == Counter([of_workers(GENERATORS, 2), PublicationUnobserved(IN_PLACE.whys)])


# ----------------------------------------------------------------------------------------------------------- one place

EVIL = torch_file({"state": Global("os", "system", ("exit 1",))})
BREAKS = [
    Break("no weights", {"model.safetensors": None}, (missing(WEIGHTS),)),
    Break("no optimizer", {"optimizer.bin": None}, (missing(OPTIMIZER),)),
    Break(
        "an object of the script that executes",
        {"custom_checkpoint_0.pkl": EVIL},
        (unread(OPTIMIZER, "custom_checkpoint_0.pkl: its pickle names 'os system', which is not executed and not known"),),
    ),
    Break("a scheduler of another step", {"scheduler.bin": torch_file(scheduler(9))}, (ComponentStepMismatch(SCHEDULER, 9),)),
    Break(
        "a scheduler that is missing between",
        {"scheduler_2.bin": CLEAN["scheduler.bin"]},
        (unread(SCHEDULER, "scheduler_1.bin is missing, and others with higher numbers are there"),),
    ),
    Break("no generators", {"random_states_0.pkl": None}, (missing(GENERATORS),)),
    Break(
        "a process that is missing",
        {"random_states_0.pkl": None, "random_states_1.pkl": process()},
        (unread(GENERATORS, "random_states_0.pkl is missing, the state of one of 2 workers"),),
    ),
    Break(
        "processes apart",
        {"random_states_1.pkl": process(TAKEN - 1)},
        (unread(GENERATORS, "its processes had taken different numbers of micro batches: 7, 8"),),
    ),
    Break(
        "generators without a count",
        {"random_states_0.pkl": process(None)},
        (unread(GENERATORS, "random_states_0.pkl: it does not count micro batches: it has no step"),),
    ),
    Break("a loader that kept nothing", {"dl_state_dict.bin": None}, (missing(POSITION),)),
    Break(
        "a loader's state that is none",
        {"dl_state_dict.bin": torch_file({"step": 4})},
        (unread(POSITION, "dl_state_dict.bin: it is no state of a data loader"),),
    ),
    Break(
        "a sampler of live objects",
        {"sampler.bin": torch_file({"sampler": Global("accelerate.data_loader", "SeedableRandomSampler", ())})},
        (
            unread(
                POSITION,
                "sampler.bin: its pickle names 'accelerate.data_loader SeedableRandomSampler', which is not executed and not known",
            ),
        ),
    ),
]


@proven_by(planted(admission, "_component_defects", lambda readback, component: ()))
@pytest.mark.parametrize("one", BREAKS, ids=str)
def test_a_break_is_named_and_nothing_else(tmp_path: Path, one: Break) -> None:
    assert defects(written(tmp_path / "checkpoint_0", CLEAN, one)) == expected(IN_PLACE, 4, one)


@proven_by(planted(admission, "component_defects", only_the_first))
def test_two_breaks_are_both_named_whichever_they_are(tmp_path: Path) -> None:
    """Of different components: within one, what is unreadable takes the place of what is missing."""
    pairs = [pair for pair in combinations(BREAKS, 2) if pair[0].found[0].component is not pair[1].found[0].component]  # type: ignore[union-attr]
    for number, pair in enumerate(pairs):
        folder = written(tmp_path / str(number) / "step_4", CLEAN, *pair)
        assert defects(folder) == expected(IN_PLACE, 4, *pair), [str(one) for one in pair]


@proven_by(planted(torch_files, "gaps", lambda there, wanted: ((), 0)))
def test_what_is_missing_beside_what_is_unreadable_is_told_with_it(tmp_path: Path) -> None:
    changes = {"random_states_1.pkl": process(None), "random_states_0.pkl": None}
    found = read(written(tmp_path / "checkpoint_0", CLEAN, Break("", changes, ()))).components[GENERATORS]
    assert isinstance(found, ComponentUnreadable) and len(found.whys) == 2


# -------------------------------------------------------------------------------------------- the place that a loop registered


def registered(**changes: Any) -> Files:
    """A folder whose loop registered where it is, after an object of the script."""
    place = {"countermark": 1, "global_step": 4, "micro_batches": TAKEN, "epoch": 0, "batch": TAKEN, "batches_per_epoch": 16} | changes
    own = {"custom_checkpoint_0.pkl": torch_file({"seen": 3}), "custom_checkpoint_1.pkl": torch_file(place)}
    return {name: content for name, content in CLEAN.items() if not name.startswith("dl_")} | own


def test_the_place_that_a_loop_registered_is_that_in_the_data(tmp_path: Path) -> None:
    folder = written(tmp_path / "checkpoint_0", registered())
    readback = read(folder)
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])
    assert (readback.step, readback.micro_batches, readback.epoch) == (4, TAKEN, 0.5)
    found = {one: part for one, part in readback.components.items() if isinstance(part, ComponentRead)}
    assert [file.name for file in found[POSITION].files] == ["custom_checkpoint_1.pkl"]
    assert [(one.source, one.step) for one in found[POSITION].steps] == [("custom_checkpoint_1.pkl: global_step", 4)]
    assert "custom_checkpoint_0.pkl" in {file.name for file in found[OPTIMIZER].files}


PLACES: list[tuple[dict[str, Any], list[admission.CheckpointDefect]]] = [
    ({"global_step": 5}, [ComponentStepMismatch(OPTIMIZER, 4), ComponentStepMismatch(SCHEDULER, 4)]),
    (
        {"batches_per_epoch": 0},
        [missing(POSITION), unread(OPTIMIZER, "custom_checkpoint_1.pkl: it does not tell where in the data its loop is")],
    ),
    (
        {"micro_batches": -1},
        [missing(POSITION), unread(OPTIMIZER, "custom_checkpoint_1.pkl: it does not tell where in the data its loop is")],
    ),
]


@pytest.mark.parametrize(("changes", "found"), PLACES)
def test_a_place_of_another_step_or_of_none_is_named(
    tmp_path: Path, changes: dict[str, Any], found: list[admission.CheckpointDefect]
) -> None:
    folder = written(tmp_path / "checkpoint_0", registered(**changes))
    told = expected(IN_PLACE, 5, Break("", {}, tuple(found)))
    assert {one: times for one, times in defects(folder).items() if not isinstance(one, DataPositionMismatch)} == told


def test_steps_that_a_gradient_scaler_skipped_are_the_loops_all_the_same(tmp_path: Path) -> None:
    """The optimizer and the scheduler take none of them, and the folder's name counts saves."""
    lagging = {
        "optimizer.bin": torch_file(optimizer(step=3)),
        "scheduler.bin": torch_file(scheduler(3)),
        "scaler.pt": torch_file({"scale": 2.0**31}),
    }
    folder = written(tmp_path / "checkpoint_0", registered() | lagging)
    assert read(folder).step == 4
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])


def test_a_gradient_scaler_skipped_no_more_than_its_scale_allows(tmp_path: Path) -> None:
    """Of forty steps sixteen at the most: the optimizer of the fourth is that of another save."""
    folder = written(tmp_path / "step_40", CLEAN | {"scaler.pt": torch_file({"scale": 65536.0})})
    mismatches = (ComponentStepMismatch(OPTIMIZER, 4), ComponentStepMismatch(SCHEDULER, 4))
    assert defects(folder) == expected(IN_PLACE, 40, Break("", {}, mismatches))


# ----------------------------------------------------------------------------------------------------- stopped and named


def test_a_save_killed_after_the_weights_goes_by_the_name_of_a_save(tmp_path: Path) -> None:
    contents = {"model.safetensors": CLEAN["model.safetensors"]}
    readback = read_checkpoint(written(tmp_path / "checkpoint_3", contents))
    assert isinstance(readback, CheckpointReadback) and readback.layout == "accelerate"
    assert isinstance(admit_weights_only(readback), WeightsOnlyCheckpoint)
    torn = {name: CLEAN[name] for name in ("model.safetensors", "optimizer.bin")}
    assert defects(written(tmp_path / "kept", torn)) == expected(
        IN_PLACE, 4, Break("", {}, (missing(SCHEDULER), missing(GENERATORS), missing(POSITION)))
    )
