"""The Transformers trainer's folder in all its forms: each one clean, each break of one alone, breaks together."""

import json
import struct
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import list_checkpoints, read_checkpoint
from countermark.files.documents import CONFIG_BYTES_MAX
from countermark.files.layouts import torch_files, weights
from countermark.files.layouts.reading import IN_PLACE
from countermark.run import checkpoint as admission
from countermark.run.checkpoint import (
    ComponentRead,
    ComponentStepMismatch,
    PublicationIncomplete,
    PublicationUnobserved,
    WeightsOnlyCheckpoint,
    admit_weights_only,
)
from tests.faults import planted, proven_by
from tests.files import tensors
from tests.files.folders import adapter_names, files, generators, optimizer, scheduler, trainer_state
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
    incomplete,
    missing,
    of_workers,
    only_the_first,
    read,
    unread,
    written,
)
from tests.files.torchfiles import torch_file, zeros

PEFT = files()
REST = {name: content for name, content in PEFT.items() if not name.startswith(("adapter_", "README"))} | {"config.json": b"{}"}
SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
PICKLED_SHARDS = [f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)]


def index(shards: list[str]) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": {f"t{n}": shard for n, shard in enumerate(shards)}}).encode()


def named_optimizer() -> dict[str, Any]:
    """An optimizer that was gathered from shards: its tensors stand under their names."""
    state = optimizer()
    names = [name for name, _ in adapter_names(("q_proj", "v_proj"))]
    groups = [group | {"params": [names[at] for at in group["params"]]} for group in state["param_groups"]]
    return {"state": {names[at]: kept for at, kept in state["state"].items()}, "param_groups": groups}


ONE_FILE = {"model.safetensors": tensors.encoded({"t0": tensors.f32(1.0)})}
SHARDED = {"model.safetensors.index.json": index(SHARDS)} | {
    shard: tensors.encoded({f"t{n}": tensors.f32(float(n))}) for n, shard in enumerate(SHARDS)
}
PICKLED = {"pytorch_model.bin": torch_file({"t0": zeros(2, 3)})}
PICKLED_SHARDED = {"pytorch_model.bin.index.json": index(PICKLED_SHARDS)} | {
    shard: torch_file({f"t{n}": zeros(2)}) for n, shard in enumerate(PICKLED_SHARDS)
}
PICKLED_ADAPTER = {name: content for name, content in PEFT.items() if name != "adapter_model.safetensors"} | {
    "adapter_model.bin": torch_file({name: zeros(*((4, 6) if is_a else (6, 4))) for name, is_a in adapter_names(("q_proj", "v_proj"))})
}
ADAPTER_SHARD = "adapter_model-00001-of-00001.safetensors"
SHARDED_ADAPTER = {name: content for name, content in PEFT.items() if name != "adapter_model.safetensors"} | {
    ADAPTER_SHARD: PEFT["adapter_model.safetensors"],
    "adapter_model.safetensors.index.json": json.dumps(
        {"weight_map": {name: ADAPTER_SHARD for name, _ in adapter_names(("q_proj", "v_proj"))}}
    ).encode(),
}
GATHERED = {name: content for name, content in PEFT.items() if name != "optimizer.pt"} | {"optimizer.bin": torch_file(named_optimizer())}
FORMS: dict[str, tuple[str, Files]] = {
    "an adapter": ("transformers-peft", PEFT),
    "a pickled adapter": ("transformers-peft", PICKLED_ADAPTER),
    "an adapter in shards": ("transformers-peft", SHARDED_ADAPTER),
    "one file": ("transformers", REST | ONE_FILE),
    "shards": ("transformers", REST | SHARDED),
    "a pickled file": ("transformers", REST | PICKLED),
    "pickled shards": ("transformers", REST | PICKLED_SHARDED),
    "a gathered optimizer": ("transformers-peft", GATHERED),
    "a scaler": ("transformers-peft", PEFT | {"scaler.pt": torch_file({"scale": 65536.0})}),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_the_folder_is_whole_and_unobserved(tmp_path: Path, form: str) -> None:
    layout, contents = FORMS[form]
    folder = written(tmp_path / "checkpoint-4", contents)
    readback = read(folder)
    assert (readback.layout, readback.step) == (layout, 4)
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])
    taken = {file.name for part in readback.components.values() if isinstance(part, ComponentRead) for file in part.files}
    assert taken == contents.keys() - {"training_args.bin", "README.md", "config.json"}


def test_the_trainers_pickle_of_live_objects_is_never_opened(tmp_path: Path) -> None:
    """Whatever is in it, the readings are the same."""
    folder = written(tmp_path / "checkpoint-4", PEFT)
    before = read(folder)
    (folder / "training_args.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    assert read(folder) == before


# ------------------------------------------------------------------------------------------------------------- one place

#: A length that the header of a safetensors file cannot have.
BOMB = struct.pack("<Q", 1 << 40) + b"{}"
ADAPTER_BREAKS = [
    Break("no configuration", {"adapter_config.json": None}, (missing(WEIGHTS),)),
    Break("an optimizer of the next step", {"optimizer.pt": torch_file(optimizer(step=5))}, (ComponentStepMismatch(OPTIMIZER, 5),)),
    Break("no scheduler", {"scheduler.pt": None}, (missing(SCHEDULER),)),
    Break(
        "generators that are no state",
        {"rng_state.pth": torch_file({"python": None})},
        tuple(unread(GENERATORS, f"rng_state.pth: the state of {one}'s generator is not in it") for one in ("Python", "NumPy", "torch")),
    ),
    Break(
        "an edited step",
        {"trainer_state.json": json.dumps(trainer_state(log_history=[{"step": 2}, {"step": 8, "loss": 1.0}])).encode()},
        (unread(POSITION, "trainer_state.json: its log goes on to step 8, after its global_step of 4"),),
    ),
]
MODEL_BREAKS = [
    Break("a missing shard", {SHARDS[2]: None}, (unread(WEIGHTS, f"the index names the shard '{SHARDS[2]}', which is not there"),)),
    Break(
        "two optimizers",
        {"optimizer.bin": torch_file(optimizer())},
        (unread(OPTIMIZER, "optimizer.pt and optimizer.bin are both there: nothing tells which of them goes with the weights"),),
    ),
    Break("a scheduler of another step", {"scheduler.pt": torch_file(scheduler(8))}, (ComponentStepMismatch(SCHEDULER, 8),)),
    Break(
        "a rank beside the one state",
        {"rng_state_1.pth": PEFT["rng_state.pth"]},
        (
            unread(GENERATORS, "rng_state.pth is the state of one worker, and beside it are those of several"),
            unread(GENERATORS, "rng_state_0.pth is missing, the state of one of 2 workers"),
        ),
    ),
    Break("no trainer state", {"trainer_state.json": None}, (missing(POSITION),)),
]
TABLES = [(PEFT, ADAPTER_BREAKS), (REST | SHARDED, MODEL_BREAKS)]
ALONE = [(contents, (one,)) for contents, breaks in TABLES for one in breaks]
TOGETHER = [(contents, pair) for contents, breaks in TABLES for pair in combinations(breaks, 2)]


@proven_by(planted(admission, "_component_defects", lambda readback, component: ()))
@pytest.mark.parametrize(("contents", "breaks"), ALONE, ids=lambda value: " and ".join(map(str, value)) if isinstance(value, tuple) else "")
def test_a_break_is_named_and_nothing_else(tmp_path: Path, contents: Files, breaks: tuple[Break, ...]) -> None:
    assert defects(written(tmp_path / "checkpoint-4", contents, *breaks)) == expected(IN_PLACE, 4, *breaks)


@proven_by(planted(admission, "component_defects", only_the_first))
def test_two_breaks_are_both_named_whichever_they_are(tmp_path: Path) -> None:
    for number, (contents, breaks) in enumerate(TOGETHER):
        folder = written(tmp_path / str(number) / "checkpoint-4", contents, *breaks)
        assert defects(folder) == expected(IN_PLACE, 4, *breaks), [one.name for one in breaks]


def test_what_a_trainer_logs_of_gradients_that_overflowed_speaks_against_nothing(tmp_path: Path) -> None:
    """Python writes what JSON has no number for, and the trainer reads it again."""
    log = [{"step": 1, "grad_norm": float("nan"), "loss": float("inf")}, {"step": 2, "grad_norm": float("-inf")}]
    state = json.dumps(trainer_state(log_history=log)).encode()
    assert b"NaN" in state and b"-Infinity" in state
    folder = written(tmp_path / "checkpoint-4", PEFT | {"trainer_state.json": state})
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])


@pytest.mark.parametrize("epoch", [b"NaN", b"1" + b"0" * 400])
def test_an_epoch_that_is_no_number_is_named(tmp_path: Path, epoch: bytes) -> None:
    state = PEFT["trainer_state.json"].replace(b'"epoch": 0.5', b'"epoch": ' + epoch)
    folder = written(tmp_path / "checkpoint-4", PEFT | {"trainer_state.json": state})
    assert defects(folder) == incomplete(4, unread(POSITION, "trainer_state.json: its epoch is no number"))


def test_a_trainer_may_have_logged_for_long(tmp_path: Path) -> None:
    log = [{"step": 1, "note": "x" * 200}] * 80_000
    state = json.dumps(trainer_state(log_history=log)).encode()
    assert len(state) > CONFIG_BYTES_MAX
    folder = written(tmp_path / "checkpoint-4", PEFT | {"trainer_state.json": state})
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])


def test_a_scheduler_that_goes_by_a_metric_tells_no_step(tmp_path: Path) -> None:
    """It was stepped with each evaluation."""
    state = torch_file({"last_epoch": 1, "num_bad_epochs": 0, "best": 0.5, "_last_lr": [0.0002]})
    folder = written(tmp_path / "checkpoint-4", PEFT | {"scheduler.pt": state})
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])


def test_an_optimizer_that_took_no_step_is_not_the_one_that_made_the_weights(tmp_path: Path) -> None:
    """A trainer takes it without a word, and begins with moments of nothing."""
    state = optimizer() | {"state": {}}
    folder = written(tmp_path / "checkpoint-4", PEFT | {"optimizer.pt": torch_file(state)})
    assert defects(folder) == incomplete(4, ComponentStepMismatch(OPTIMIZER, 0))


@pytest.mark.parametrize(
    ("changes", "whys"),
    [
        ({"pytorch_model.bin": torch_file({})}, ("pytorch_model.bin: it holds no tensor",)),
        ({"pytorch_model.bin": b"cos\nsystem\n"}, ("pytorch_model.bin: it is too short for an archive",)),
        (ONE_FILE, ("several files say that they hold the weights: 'model.safetensors' and 'pytorch_model.bin'",)),
        (
            {"pytorch_model.bin": None, "model.safetensors": BOMB},
            (f"'model.safetensors' says that its header has {1 << 40} bytes, and there is room for 2",),
        ),
    ],
)
def test_weights_that_are_none_say_why(tmp_path: Path, changes: dict[str, bytes | None], whys: tuple[str, ...]) -> None:
    folder = written(tmp_path / "checkpoint-4", REST | PICKLED, Break("", changes, ()))
    found = read(folder).components[WEIGHTS]
    assert isinstance(found, admission.ComponentUnreadable) and found.whys == whys


def test_pickled_shards_are_held_against_their_index(tmp_path: Path) -> None:
    changes = {PICKLED_SHARDS[0]: None, PICKLED_SHARDS[1]: torch_file({"t1": zeros(2), "t9": zeros(2)})}
    found = read(written(tmp_path / "checkpoint-4", REST | PICKLED_SHARDED, Break("", changes, ()))).components[WEIGHTS]
    assert isinstance(found, admission.ComponentUnreadable) and len(found.whys) == 2
    assert found.whys[0] == f"the index names the shard '{PICKLED_SHARDS[0]}', which is not there"
    said = "disagrees with the index: it holds 1 tensor ('t9') that the index does not put there"
    assert found.whys[1] == f"the shard '{PICKLED_SHARDS[1]}' {said}"


# --------------------------------------------------------------------------------------------------------- several workers


def workers(*ranks: int) -> Break:
    return Break("", {"rng_state.pth": None, **{f"rng_state_{rank}.pth": torch_file(generators()) for rank in ranks}}, ())


@proven_by(planted(admission, "_foreign", lambda readback: ()))
def test_states_of_several_workers_are_whole_and_not_for_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "checkpoint-4", PEFT, workers(0, 1))
    assert defects(folder) == Counter([of_workers(GENERATORS, 2), PublicationUnobserved(IN_PLACE.whys)])
    reading = read(folder).components[GENERATORS]
    assert isinstance(reading, ComponentRead) and reading.workers == 2
    assert [file.name for file in reading.files] == ["rng_state_0.pth", "rng_state_1.pth"]


@proven_by(planted(torch_files, "gaps", lambda there, wanted: ((), 0)))
@pytest.mark.parametrize(
    ("ranks", "absent", "of"),
    [((0,), (1,), 2), ((1,), (0,), 2), ((0, 3), (1, 2), 4), ((12,), tuple(range(8)), 13)],
    ids=str,
)
def test_a_worker_that_is_missing_below_another_is_named(tmp_path: Path, ranks: tuple[int, ...], absent: tuple[int, ...], of: int) -> None:
    reading = read(written(tmp_path / "checkpoint-4", PEFT, workers(*ranks))).components[GENERATORS]
    more = of - len(ranks) - len(absent)
    rest = (f"the states of {more} more of {of} workers are missing",) if more else ()
    told = tuple(f"rng_state_{rank}.pth is missing, the state of one of {of} workers" for rank in absent)
    assert isinstance(reading, admission.ComponentUnreadable) and reading.whys == (*told, *rest)


def test_a_rank_beyond_all_counting_costs_nothing(tmp_path: Path) -> None:
    folder = written(tmp_path / "checkpoint-4", PEFT, Break("", {f"rng_state_{'9' * 200}.pth": b""}, ()))
    assert isinstance(read(folder).components[GENERATORS], admission.ComponentUnreadable)


def test_a_rename_that_a_second_node_did_not_follow_leaves_an_incomplete_one_and_no_other_candidate(tmp_path: Path) -> None:
    written(tmp_path / "checkpoint-4", PEFT, workers(0))
    written(tmp_path / "tmp-checkpoint-4", {"rng_state_1.pth": torch_file(generators())})
    listed = list_checkpoints(tmp_path)
    assert (getattr(listed, "checkpoints", None), getattr(listed, "others", None)) == (((4, "checkpoint-4"),), ("tmp-checkpoint-4",))
    why = "rng_state_1.pth is missing, the state of one of 2 workers"
    assert defects(tmp_path / "checkpoint-4") == Counter([unread(GENERATORS, why), PublicationIncomplete(("rng_state is unreadable",))])


# ------------------------------------------------------------------------------------------------------- stopped and named


@pytest.mark.parametrize(
    ("contents", "layout"),
    [
        ({name: PEFT[name] for name in ("adapter_model.safetensors", "adapter_config.json")}, "transformers-peft"),
        (ONE_FILE | {"config.json": b"{}"}, "transformers"),
        (PICKLED, "transformers"),
    ],
)
def test_a_save_that_was_killed_after_the_weights_goes_by_its_name_and_is_good_for_them(
    tmp_path: Path, contents: Files, layout: str
) -> None:
    readback = read(written(tmp_path / "checkpoint-8", contents))
    assert (readback.layout, readback.step) == (layout, 8)
    assert isinstance(admit_weights_only(readback), WeightsOnlyCheckpoint)
    elsewhere = read_checkpoint(written(tmp_path / "anything", contents))
    assert isinstance(elsewhere, admission.CheckpointReadback) and elsewhere.layout == "unknown"
    assert isinstance(admit_weights_only(elsewhere), WeightsOnlyCheckpoint)


@proven_by(planted(weights, "CARRIERS", {"model.safetensors": False, "adapter_model.safetensors": True}))
def test_a_model_beside_an_adapter_is_not_what_was_trained(tmp_path: Path) -> None:
    """And an adapter in two forms is refused."""
    assert defects(written(tmp_path / "1" / "checkpoint-4", PEFT | ONE_FILE)) == Counter([PublicationUnobserved(IN_PLACE.whys)])
    both = read(written(tmp_path / "2" / "checkpoint-4", PEFT | PICKLED_ADAPTER)).components[WEIGHTS]
    assert isinstance(both, admission.ComponentUnreadable)
