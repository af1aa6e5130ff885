"""DeepSpeed's folders: a clean one of each kind, each break alone, breaks together, and what a hostile one says."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import list_checkpoints, read_checkpoint
from countermark.files.layouts import deepspeed, deepspeed_files
from countermark.files.layouts.reading import take, torch_state
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    CheckpointDefect,
    Component,
    ComponentForeign,
    ComponentMissing,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnread,
    PublicationIncomplete,
    PublicationUnobserved,
    StepWitness,
    admit_checkpoint,
    admit_weights_only,
)
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.files.folders import generators, group, scheduler
from tests.files.layouts import breaking
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, WEIGHTS, defects, read, whys
from tests.files.layouts.deepspeeds import MODEL, alone, folder, model_states, optimizer_name, optimizer_states, trainers
from tests.files.torchfiles import Global, scalar, torch_file, zeros
from tests.recipe.examples import clean_manifest

incomplete = partial(breaking.incomplete, 8)
IN_PLACE = PublicationUnobserved(("latest names 'global_step8', and DeepSpeed's ranks write in place, each for itself",))
Files = dict[str, bytes | None]


def steps(path: Path) -> dict[Component, set[int]]:
    return {one: {w.step for w in part.steps} for one, part in read(path).components.items() if isinstance(part, ComponentRead)}


# ---------------------------------------------------------------------------------------------------------- clean


@pytest.mark.parametrize(
    ("name", "files", "layout"),
    [("out", alone(), "deepspeed"), ("out", alone(prefix="bf16_"), "deepspeed"), ("checkpoint-8", trainers(), "transformers-deepspeed")],
)
def test_a_clean_folder_is_unobserved_and_nothing_else(tmp_path: Path, name: str, files: Files, layout: str) -> None:
    path = folder(tmp_path, name, files)
    assert defects(path) == Counter([IN_PLACE])
    admitted = admit_checkpoint(read_checkpoint(path), clean_manifest(), frozenset(), vouched=True)
    assert isinstance(admitted, AdmittedCheckpoint) and (admitted.layout, admitted.step) == (layout, 8)
    assert steps(path) == {WEIGHTS: {8}, OPTIMIZER: {8}, SCHEDULER: {8}, GENERATORS: set(), POSITION: {8}}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pytorch_model.bin", "pytorch_model.bin: it is too short for an archive"),
        ("model.safetensors", "'model.safetensors' has 2 bytes; a safetensors file has at least 8"),
    ],
)
@proven_by(planted(deepspeed, "CARRIERS", {}))
def test_weights_that_the_trainer_gathered_are_of_the_component_whatever_their_form(tmp_path: Path, name: str, why: str) -> None:
    own = {file: content for file, content in trainers().items() if not file.startswith("adapter")}
    broken = folder(tmp_path, "checkpoint-8", own | {name: b"PK"})
    assert whys(broken, WEIGHTS) == (why,)


def test_a_tag_is_read_by_itself_and_listed_by_its_number(tmp_path: Path) -> None:
    path = folder(tmp_path, "out", alone()) / "global_step8"
    [unobserved] = defects(path)
    assert unobserved == PublicationUnobserved(("it is one tag of a DeepSpeed folder, whose ranks write in place, each for itself",))
    (tmp_path / "out" / "global_step10").mkdir()
    listing = list_checkpoints(tmp_path / "out")
    assert getattr(listing, "checkpoints", None) == ((8, "global_step8"), (10, "global_step10"))


def test_what_a_worker_holds_alone_is_foreign_to_one_that_goes_on_by_itself(tmp_path: Path) -> None:
    path = folder(tmp_path, "checkpoint-8", trainers(workers=2))
    why = "it is the state of 2 workers, and one alone cannot go on from it"
    assert defects(path) == Counter([IN_PLACE, ComponentForeign(OPTIMIZER, why), ComponentForeign(GENERATORS, why)])


def test_a_component_in_the_models_file_has_a_digest_of_its_own(tmp_path: Path) -> None:
    first = read(folder(tmp_path / "a", "out", alone()))
    second = read(folder(tmp_path / "b", "out", alone(lr_scheduler=scheduler(8) | {"verbose": True})))
    differing = {
        one
        for one in Component
        if isinstance(a := first.components[one], ComponentRead)
        and isinstance(b := second.components[one], ComponentRead)
        and a.digest != b.digest
    }
    assert differing == {SCHEDULER}


# --------------------------------------------------------------------------------------------------------- breaks


@proven_by(planted(deepspeed, "_note", lambda read, component, what, missing: None))
def test_a_worker_whose_state_is_missing_is_named(tmp_path: Path) -> None:
    """Case O9: four of five."""
    path = folder(tmp_path, "out", alone(workers=5) | {optimizer_name(4): None})
    said = f"optimizer_state: workers' states: 4 of 5 are there; missing: {optimizer_name(4)}"
    foreign = ComponentForeign(GENERATORS, "it is the state of 5 workers, and one alone cannot go on from it")
    assert defects(path) == Counter([foreign, *incomplete(ComponentMissing(OPTIMIZER), whys=(said,))])


def test_without_latest_nothing_shows_that_it_was_finished_and_it_is_not_none(tmp_path: Path) -> None:
    """Case O9: ``latest`` is absent."""
    path = folder(tmp_path, "out", alone() | {"latest": None})
    why = "latest is not there, which DeepSpeed writes last and without which it loads nothing"
    assert defects(path) == Counter([PublicationUnobserved((why,))])
    two = alone() | {"latest": None, "global_step9/mp_rank_00_model_states.pt": b""}
    told = "latest is not there, and nothing else tells which of 'global_step8', 'global_step9' it is"
    assert whys(folder(tmp_path, "two", two), WEIGHTS) == (told,)


@pytest.mark.parametrize(
    ("latest", "why"),
    [
        (b"global_step9", "latest names 'global_step9', which is not there"),
        (b"../other", "latest names '../other', which is no folder in this one"),
        (b"", "latest names '', which is no folder in this one"),
        (b"\xff\n", "latest names '\\\\xff', which is not there"),
        (b"x" * 300, "'latest' has 300 bytes; a file of this kind has at most 256 bytes"),
    ],
)
def test_what_latest_names_is_there_or_it_is_said(tmp_path: Path, latest: bytes, why: str) -> None:
    path = folder(tmp_path, "out", alone() | {"latest": latest})
    unread = (ComponentUnread(one, why) for one in (WEIGHTS, OPTIMIZER))
    assert defects(path) == incomplete(*unread, *(ComponentMissing(one) for one in (SCHEDULER, GENERATORS, POSITION)), whys=(why,))


CUT = torch_file(optimizer_states())[:900]
BREAKS: Mapping[str, tuple[Files, CheckpointDefect]] = {
    "a cut optimizer": (
        {optimizer_name(0): CUT},
        ComponentUnread(OPTIMIZER, f"{optimizer_name(0)}: it is cut: the directory at its end is missing"),
    ),
    "an optimizer of another step": ({optimizer_name(0): torch_file(optimizer_states(step=4))}, ComponentStepMismatch(OPTIMIZER, 4)),
    "no generators": ({"rng_state.pth": None}, ComponentMissing(GENERATORS)),
    "no trainer's state": ({"trainer_state.json": None}, ComponentMissing(POSITION)),
    "a scheduler of another step": (
        {MODEL: torch_file(model_states(lr_scheduler={"last_batch_iteration": 3}))},
        ComponentStepMismatch(SCHEDULER, 4),
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_named_and_nothing_else(tmp_path: Path, name: str) -> None:
    files, defect = BREAKS[name]
    assert defects(folder(tmp_path, "checkpoint-8", trainers() | files)) == incomplete(defect)


def test_breaks_are_named_together(tmp_path: Path) -> None:
    first, second = BREAKS["an optimizer of another step"], BREAKS["no generators"]
    path = folder(tmp_path, "checkpoint-8", trainers() | first[0] | second[0])
    found = defects(path)
    assert {one for one in found if not isinstance(one, PublicationIncomplete)} == {first[1], second[1]} and sum(found.values()) == 3


SCHEDULERS = {"torch's": scheduler(5), "DeepSpeed's": {"last_batch_iteration": 4}, "the trainer's": None}


@pytest.mark.parametrize("whose", SCHEDULERS)
@proven_by(planted(deepspeed, "with_skipped", lambda source, step, skipped: StepWitness(source, step)))
def test_steps_that_were_skipped_are_those_of_the_optimizer_and_of_the_scheduler(tmp_path: Path, whose: str) -> None:
    """Where gradients overflow DeepSpeed steps neither of the two, and counts on."""
    files: Files = dict(trainers(skipped_steps=3, lr_scheduler=SCHEDULERS[whose]))
    files |= {optimizer_name(0): torch_file(optimizer_states(step=5))}
    if whose == "the trainer's":
        files["scheduler.pt"] = torch_file(scheduler(5))
    assert defects(folder(tmp_path / "clean", "checkpoint-8", files)) == Counter([IN_PLACE])
    torn = files | {optimizer_name(0): torch_file(optimizer_states(step=8))}
    assert defects(folder(tmp_path / "torn", "checkpoint-8", torn)) == incomplete(ComponentStepMismatch(OPTIMIZER, 11))


@pytest.mark.parametrize(
    "state",
    [
        {"base_optimizer_state": {"state": {0: {"exp_avg": zeros(2)}}, "param_groups": [group([0]) | {"step": 8}]}},
        {"base_optimizer_state": {"state": {0: {"exp_avg": zeros(2), "step": 8}}, "param_groups": [group([0]) | {"step": 0}]}},
        {"base_optimizer_state": [[{"exp_avg": zeros(2), "step": scalar(8)}]]},
        {"base_optimizer_state": [[{"exp_avg": zeros(2)}]], "base_optimizer_state_step": 8},
    ],
)
def test_the_optimizers_step_is_where_its_kernel_keeps_it(tmp_path: Path, state: dict[str, Any]) -> None:
    path = folder(tmp_path, "out", alone() | {optimizer_name(0): torch_file(optimizer_states(**state))})
    assert steps(path)[OPTIMIZER] == {8}


def divided(workers: int = 2, **changes: Any) -> dict[str, bytes]:
    """The files of a save whose weights are divided: a worker's are beside its piece of the optimizer's state."""
    kept = {key: value for key, value in optimizer_states()["optimizer_state_dict"].items() if key != "base_optimizer_state"}
    state = {"optimizer_state_dict": optimizer_states()["optimizer_state_dict"]["base_optimizer_state"], "fp32_flat_groups": [zeros(96)]}
    piece = torch_file({"optimizer_state_dict": kept | {"partition_count": workers} | state | changes})
    model = torch_file(model_states(workers=workers, whole=False))
    names = {f"global_step8/zero_pp_rank_{rank}_mp_rank_00_model_states.pt": model for rank in range(workers)}
    return {"latest": b"global_step8", **names, **{optimizer_name(rank): piece for rank in range(workers)}}


FOREIGN = ComponentForeign(OPTIMIZER, "it is the state of 2 workers, and one alone cannot go on from it")


def test_divided_weights_have_a_file_for_each_worker(tmp_path: Path) -> None:
    names = [name for name in divided() if name.endswith("model_states.pt")]
    path = folder(tmp_path, "out", dict(divided()))
    assert steps(path) == {WEIGHTS: {8}, OPTIMIZER: {8}, SCHEDULER: {8}, POSITION: {8}}
    assert not isinstance(admit_weights_only(read(path)), Refused)
    torn = defects(folder(tmp_path, "torn", divided() | {names[1]: None}))
    said = f"model_weights: files of model states: 1 of 2 are there; missing: {names[1]}"
    assert torn == incomplete(ComponentMissing(WEIGHTS), ComponentMissing(GENERATORS), whys=(said,)) + Counter([FOREIGN])


def taken_whole(read: deepspeed.TagReading, name: str) -> deepspeed._OptimizerSays | None:
    """As if the weights were not in it."""
    return take(read.parts[OPTIMIZER], read.folder, name, torch_state(deepspeed._optimizer_says, deepspeed.GLOBALS))


@proven_by(planted(deepspeed, "_take_divided", taken_whole))
def test_divided_weights_are_in_the_files_of_the_optimizer(tmp_path: Path) -> None:
    """Without one of them there are no weights either, and what changes in one component moves its digest alone."""
    clean = read(folder(tmp_path / "clean", "out", dict(divided())))
    for changed, changes in ((WEIGHTS, {"fp32_flat_groups": [zeros(95)]}), (OPTIMIZER, {"clip_grad": 1.0})):
        other = read(folder(tmp_path / changed, "out", dict(divided(**changes))))
        digests = [[part.digest for part in one.components.values() if isinstance(part, ComponentRead)] for one in (clean, other)]
        assert [one for one, a, b in zip((WEIGHTS, OPTIMIZER), *digests, strict=False) if a != b] == [changed]
    cut = folder(tmp_path, "cut", divided() | {optimizer_name(1): CUT})
    why = f"{optimizer_name(1)}: it is cut: the directory at its end is missing"
    assert defects(cut) == incomplete(ComponentUnread(WEIGHTS, why), ComponentUnread(OPTIMIZER, why), ComponentMissing(GENERATORS))
    gone = folder(tmp_path, "gone", divided() | {optimizer_name(1): None})
    said = f"optimizer_state: workers' states: 1 of 2 are there; missing: {optimizer_name(1)}"
    none = (ComponentMissing(WEIGHTS), ComponentMissing(OPTIMIZER), ComponentMissing(GENERATORS))
    assert defects(gone) == incomplete(*none, whys=(said,))
    kept = {name: torch_file(optimizer_states(workers=2)) for name in (optimizer_name(0), optimizer_name(1))}
    told = tuple(f"{name}: it holds no fp32_flat_groups, a piece of the weights" for name in kept)
    assert whys(folder(tmp_path, "two", divided() | kept), WEIGHTS) == told


def test_files_of_another_save_are_named(tmp_path: Path) -> None:
    extra = torch_file(optimizer_states())
    files = alone() | {optimizer_name(1): extra, optimizer_name(0, "bf16_"): extra}
    path = folder(tmp_path, "out", files)
    assert whys(path, OPTIMIZER) == tuple(
        f"{name} is of no worker of this save" for name in (optimizer_name(1), optimizer_name(0, "bf16_"))
    )
    four = folder(tmp_path, "four", alone() | {optimizer_name(0): torch_file(optimizer_states(workers=4))})
    assert whys(four, OPTIMIZER) == ("it was divided over 4 workers, and the model's states tell of 1",)


# -------------------------------------------------------------------------------------------------------- hostile


def test_no_number_of_workers_is_counted_up_to(tmp_path: Path) -> None:
    many = folder(tmp_path, "many", alone(dp_world_size=deepspeed_files.WORKERS_MAX))
    [told] = [one for one in defects(many) if isinstance(one, PublicationIncomplete)]
    assert f"1 of {deepspeed_files.WORKERS_MAX} are there" in told.whys[0] and "more" in told.whys[0] and len(told.whys[0]) < 1000
    more = folder(tmp_path, "more", alone(dp_world_size=deepspeed_files.WORKERS_MAX + 1))
    assert whys(more, WEIGHTS) == (f"{MODEL}: it tells of {deepspeed_files.WORKERS_MAX + 1} x 1 workers",)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dp_world_size": None, "global_steps": "8"}, ("it tells no dp_world_size", "it tells no global_steps")),
        ({"optimizer": {"state": {}}}, ("it holds a whole optimizer, which is not one of ZeRO",)),
        ({"dp_world_size": 0}, ("it tells of 0 x 1 workers",)),
        (
            {"module": None, "num_experts": [8]},
            (
                "it holds no module: the layers of a pipeline lie in files of their own, which are not read",
                "it is of a mixture of experts, which lie in files of their own that are not read",
            ),
        ),
        ({"num_experts": [8]}, ("it is of a mixture of experts, which lie in files of their own that are not read",)),
        ({"client": Global("os", "system", ("true",))}, ("its pickle names 'os system', which is not executed and not known",)),
        (
            {"client": Global("deepspeed.launcher", "main")},
            ("its pickle names 'deepspeed.launcher main', which is not executed and not known",),
        ),
    ],
)
def test_states_that_are_none_say_why(tmp_path: Path, changes: dict[str, Any], why: tuple[str, ...]) -> None:
    path = folder(tmp_path, "out", alone(**changes))
    assert whys(path, WEIGHTS) == tuple(f"{MODEL}: {one}" for one in why)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "it is no state of a ZeRO optimizer"),
        (optimizer_states(partition_count=[-1]), "its partition_count is no number of workers"),
        (optimizer_states(partition_count="many"), "its partition_count is no number of workers"),
    ],
)
def test_an_optimizer_that_is_none_says_why(tmp_path: Path, content: dict[str, Any], why: str) -> None:
    path = folder(tmp_path, "out", alone() | {optimizer_name(0): torch_file(content)})
    assert whys(path, OPTIMIZER) == (f"{optimizer_name(0)}: {why}",)


def test_generators_beside_the_model_are_whole_or_say_what_is_missing(tmp_path: Path) -> None:
    path = folder(tmp_path, "out", alone(np_rng_state=None, torch_rng_state=generators()["cpu"]))
    assert whys(path, GENERATORS) == (f"{MODEL}: the state of NumPy's generator is not in it",)


def test_a_link_in_place_of_a_tag_is_not_followed(tmp_path: Path) -> None:
    path = folder(tmp_path, "out", alone())
    (path / "global_step8").rename(tmp_path / "elsewhere")
    (path / "global_step8").symlink_to(tmp_path / "elsewhere")
    assert defects(path) == incomplete(*map(ComponentMissing, Component))
