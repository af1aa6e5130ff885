"""What a reader says of a checkpoint's folder, and what admission makes of it: a clean one, each break alone, breaks together."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from countermark.files import checkpoints, reading
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint
from countermark.files.layouts import Kind, LayoutReading, Numbered, torch_files
from countermark.files.layouts.states import ScalerSays
from countermark.files.reading import Entry
from countermark.lines.defects import sentence
from countermark.run import checkpoint as admission
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    CheckpointAbsent,
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
    PublicationUnobserved,
    WeightsOnlyCheckpoint,
    admit_checkpoint,
    admit_weights_only,
)
from countermark.values import Refused
from countermark.weights.refusals import FileNotRegular, LinkLeavesFolder
from tests.faults import planted, proven_by
from tests.files import tensors
from tests.files.folders import adapter_bytes, adapter_config, checkpoint, generators, optimizer, scheduler, trainer_state
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, WEIGHTS, defects, incomplete
from tests.files.torchfiles import torch_file
from tests.recipe.examples import clean_manifest

IN_PLACE = PublicationUnobserved(("its trainer writes in place, file after file",))


def missing(*components: Component) -> Counter[CheckpointDefect]:
    found: list[CheckpointDefect] = [ComponentMissing(component) for component in components]
    return Counter([*found, PublicationIncomplete(tuple(f"{component} is missing" for component in components))])


def encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


# ---------------------------------------------------------------------------------------------------------- clean


def test_a_clean_checkpoint_is_unobserved_and_nothing_else(tmp_path: Path) -> None:
    assert defects(checkpoint(tmp_path)) == Counter([IN_PLACE])


def test_a_clean_checkpoint_is_admitted_when_somebody_vouches(tmp_path: Path) -> None:
    admitted = admit_checkpoint(read_checkpoint(checkpoint(tmp_path)), clean_manifest(), frozenset(), vouched=True)
    assert isinstance(admitted, AdmittedCheckpoint)
    assert admitted.vouched and admitted.step == 4 and admitted.attempt is None
    assert tuple(admitted.components) == tuple(Component) and admitted.identity.digest == admitted.digest


def test_each_component_says_its_files_and_witnesses(tmp_path: Path) -> None:
    readback = read_checkpoint(checkpoint(tmp_path))
    assert isinstance(readback, CheckpointReadback)
    found = {}
    for component, part in readback.components.items():
        assert isinstance(part, ComponentRead)
        found[component] = (tuple(file.name for file in part.files), tuple((w.source, w.step) for w in part.steps))
    assert found == {
        WEIGHTS: (("adapter_config.json", "adapter_model.safetensors"), ()),
        OPTIMIZER: (("optimizer.pt",), (("optimizer.pt: step", 4),)),
        SCHEDULER: (("scheduler.pt",), (("scheduler.pt: last_epoch", 4),)),
        GENERATORS: (("rng_state.pth",), ()),
        POSITION: (("trainer_state.json",), (("trainer_state.json: global_step", 4),)),
    }


def test_each_component_has_a_digest_of_its_own(tmp_path: Path) -> None:
    first = read_checkpoint(checkpoint(tmp_path / "a"))
    second = read_checkpoint(checkpoint(tmp_path / "b", adapter_model_safetensors=adapter_bytes(fill=1)))
    assert isinstance(first, CheckpointReadback) and isinstance(second, CheckpointReadback)
    differing = {
        component
        for component in Component
        if isinstance(a := first.components[component], ComponentRead)
        and isinstance(b := second.components[component], ComponentRead)
        and a.digest != b.digest
    }
    assert differing == {WEIGHTS} and first.digest != second.digest


# -------------------------------------------------------------------------------------------------------- missing

REMOVED = {
    "adapter_model_safetensors": WEIGHTS,
    "adapter_config_json": WEIGHTS,
    "optimizer_pt": OPTIMIZER,
    "scheduler_pt": SCHEDULER,
    "rng_state_pth": GENERATORS,
    "trainer_state_json": POSITION,
}


@proven_by(planted(admission, "_component_defects", lambda readback, component: ()))
@pytest.mark.parametrize("file", REMOVED)
def test_a_missing_file_is_a_missing_component(tmp_path: Path, file: str) -> None:
    assert defects(checkpoint(tmp_path, **{file: None})) == missing(REMOVED[file])


def of_the_optimizer_alone(readback: CheckpointReadback) -> tuple[CheckpointDefect, ...]:
    return admission._component_defects(readback, Component.OPTIMIZER_STATE)


@proven_by(planted(admission, "component_defects", of_the_optimizer_alone))
def test_a_save_that_was_killed_after_the_weights_lacks_all_the_rest_at_once(tmp_path: Path) -> None:
    torn = checkpoint(tmp_path, 8, optimizer_pt=None, scheduler_pt=None, rng_state_pth=None, trainer_state_json=None)
    assert defects(torn) == missing(OPTIMIZER, SCHEDULER, GENERATORS, POSITION)


def test_vouching_mends_nothing_that_is_missing(tmp_path: Path) -> None:
    assert defects(checkpoint(tmp_path, rng_state_pth=None), vouched=True) == missing(GENERATORS)


@pytest.mark.parametrize("name", ["checkpoint-3", "empty", "step-3"])
def test_an_empty_folder_lacks_everything(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert defects(tmp_path / name) == missing(*Component)


@pytest.mark.parametrize(
    ("make", "why"),
    [("nothing", "nothing is there"), ("file", "a link, or no folder, is there"), ("link", "a link, or no folder, is there")],
)
def test_what_is_no_folder_is_absent(tmp_path: Path, make: str, why: str) -> None:
    path = tmp_path / "checkpoint-4"
    if make == "file":
        path.write_text("x")
    if make == "link":
        path.symlink_to(checkpoint(tmp_path / "elsewhere"))
    assert defects(path) == Counter([CheckpointAbsent(str(path), why)])


# ------------------------------------------------------------------------------------------------------ unreadable


def test_two_files_that_were_cut_are_reported_together(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    for name, size in (("optimizer.pt", 1500), ("adapter_model.safetensors", len(adapter_bytes()) - 1)):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:size])
    last = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"
    assert defects(folder) == Counter(
        [
            ComponentUnread(WEIGHTS, f"tensor '{last}' of 'adapter_model.safetensors' ends at byte 768 of 767: the file was cut"),
            ComponentUnread(OPTIMIZER, "optimizer.pt: it is cut: the directory at its end is missing"),
            PublicationIncomplete(("model_weights is unreadable", "optimizer_state is unreadable")),
        ]
    )


def unread(folder: Path) -> set[tuple[Component, str]]:
    return {(defect.component, defect.why) for defect in defects(folder) if isinstance(defect, ComponentUnread)}


def test_a_pointer_file_is_named_as_one(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
    folder = checkpoint(tmp_path, adapter_model_safetensors=pointer)
    assert unread(folder) == {(WEIGHTS, "'adapter_model.safetensors' is a git-lfs pointer, not the weights")}


def test_trailing_bytes_are_unread(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, adapter_model_safetensors=adapter_bytes() + bytes(16))
    assert unread(folder) == {(WEIGHTS, "16 bytes follow the last tensor of 'adapter_model.safetensors'")}


def test_a_state_of_random_generators_must_hold_all_three(tmp_path: Path) -> None:
    partial = {key: value for key, value in generators().items() if key == "cpu"}
    folder = checkpoint(tmp_path, rng_state_pth=torch_file(partial))
    assert unread(folder) == {
        (GENERATORS, "rng_state.pth: the state of Python's generator is not in it"),
        (GENERATORS, "rng_state.pth: the state of NumPy's generator is not in it"),
    }


def test_shards_that_are_not_there_are_named_and_nothing_is_globbed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, adapter_model_safetensors=None, adapter_config_json=None)
    shards = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {f"t{n}": shard for n, shard in enumerate(shards)}}))
    for n, shard in enumerate(shards[:2]):
        (folder / shard).write_bytes(tensors.encoded({f"t{n}": tensors.f32(1.0)}))
    assert unread(folder) == {(WEIGHTS, f"the index names the shard '{shards[2]}', which is not there")}


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "adapter_model.safetensors", "trainer_state.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link out"])
def test_what_is_no_file_is_never_opened(tmp_path: Path, file: str, kind: str) -> None:
    folder = checkpoint(tmp_path)
    target = tmp_path / "elsewhere"
    (folder / file).rename(target)
    if kind == "pipe":
        os.mkfifo(folder / file)
    elif kind == "folder":
        (folder / file).mkdir()
    else:
        (folder / file).symlink_to(target)
    component = REMOVED[file.replace(".", "_")]
    found = {
        "pipe": FileNotRegular(file, "a pipe"),
        "folder": FileNotRegular(file, "a folder"),
        "link out": LinkLeavesFolder(file),
    }
    assert unread(folder) == {(component, sentence(found[kind]).message)}


@proven_by(planted(reading.OpenFile, "changed", lambda self: False))
def test_a_file_that_changes_while_it_is_read_is_unread_and_its_publication_unobserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path)
    original = reading.OpenFile.sha256

    def writing(self: reading.OpenFile, begin: int, end: int, progress: reading.Progress | None = None) -> object:
        digest = original(self, begin, end, progress)
        if self.name == "scheduler.pt":
            path = folder / self.name
            path.write_bytes(path.read_bytes())
        return digest

    monkeypatch.setattr(reading.OpenFile, "sha256", writing)
    why = "scheduler.pt changed while it was read"
    assert defects(folder) == Counter([ComponentUnread(SCHEDULER, why), PublicationUnobserved((why,))])


def test_a_file_that_appears_while_the_others_are_read_leaves_publication_unobserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path)
    original = checkpoints.read_layout

    def writing(path: Path, kind: Kind, entries: tuple[Entry, ...], declared: str | None) -> tuple[str, LayoutReading]:
        found = original(path, kind, entries, declared)
        (path / "global_step8").mkdir()
        return found

    monkeypatch.setattr(checkpoints, "read_layout", writing)
    assert defects(folder) == Counter([PublicationUnobserved(("the folder changed while it was read",))])


# ------------------------------------------------------------------------------------------------------------ steps


def of_step(step: int, *components: Component, of: int = 4) -> Counter[CheckpointDefect]:
    found: list[CheckpointDefect] = [ComponentStepMismatch(component, step) for component in components]
    return Counter([*found, PublicationIncomplete(tuple(f"{component} is of step {step}, not {of}" for component in components))])


@proven_by(planted(admission, "other_steps", lambda readback, component: ()))
@pytest.mark.parametrize(
    ("changes", "component"),
    [
        ({"optimizer_pt": torch_file(optimizer(step=8))}, OPTIMIZER),
        ({"scheduler_pt": torch_file(scheduler(8))}, SCHEDULER),
        ({"trainer_state_json": encoded(trainer_state(global_step=8))}, POSITION),
    ],
)
def test_a_component_of_another_step_is_named(tmp_path: Path, changes: dict[str, bytes], component: Component) -> None:
    assert defects(checkpoint(tmp_path, **changes)) == of_step(8, component)


def test_the_folders_name_is_a_witness_too(tmp_path: Path) -> None:
    assert defects(checkpoint(tmp_path, name="checkpoint-8")) == of_step(4, OPTIMIZER, SCHEDULER, POSITION, of=8)


@pytest.mark.parametrize("step", [4.5, float("nan"), -1.0, 1e30])
def test_a_step_that_is_no_number_of_steps_is_unread(tmp_path: Path, step: float) -> None:
    found = unread(checkpoint(tmp_path, optimizer_pt=torch_file(optimizer(step=step))))
    assert found == {(OPTIMIZER, f"optimizer.pt: the step of tensor {at} is no number of steps") for at in range(8)}


def test_a_gradient_scaler_lets_optimizer_and_scheduler_lag_together(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, optimizer_pt=torch_file(optimizer(step=3)), scheduler_pt=torch_file(scheduler(3)))
    assert defects(folder) == of_step(3, OPTIMIZER, SCHEDULER)
    (folder / "scaler.pt").write_bytes(torch_file({"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 3}))
    assert defects(folder) == Counter([IN_PLACE])


@proven_by(planted(torch_files, "scaler_says", lambda value: ScalerSays(2.0**-99, 0.5, 2.0, 1)))
def test_a_gradient_scaler_excuses_no_more_steps_than_it_can_have_skipped(tmp_path: Path) -> None:
    """Weights of step 40 beside the optimizer and the scheduler of step 4: each step that was skipped halved the scale."""
    state = json.dumps(trainer_state(global_step=40, epoch=None)).encode()
    content = torch_file({"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3})
    steady = {name: value for name, value in scheduler().items() if name != "lr_lambdas"}
    both = [ComponentStepMismatch(component, 23) for component in (OPTIMIZER, SCHEDULER)]
    for step, found in ((23, incomplete(40, *both)), (24, Counter([IN_PLACE]))):
        states = {"optimizer_pt": torch_file(optimizer(step=step)), "scheduler_pt": torch_file(steady | {"last_epoch": step})}
        folder = checkpoint(tmp_path / str(step), step=40, trainer_state_json=state, **states)
        (folder / "scaler.pt").write_bytes(content)
        assert defects(folder) == found


def test_a_gradient_scaler_excuses_neither_alone(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, optimizer_pt=torch_file(optimizer(step=3)))
    (folder / "scaler.pt").write_bytes(torch_file({"scale": 65536.0}))
    assert defects(folder) == of_step(3, OPTIMIZER)


# ---------------------------------------------------------------------------------------------------------- foreign


@proven_by(planted(admission, "_foreign", lambda readback: ()))
@pytest.mark.parametrize(
    ("state", "why"),
    [
        (optimizer(targets=("q_proj", "v_proj", "k_proj")), "it steps 12 tensors and the weights hold 8"),
        (optimizer(rank=2), "it has tensors of shape [2, 6], [6, 2], which the weights have not"),
    ],
)
def test_an_optimizer_of_another_trainable_set_is_foreign(tmp_path: Path, state: dict[str, Any], why: str) -> None:
    assert defects(checkpoint(tmp_path, optimizer_pt=torch_file(state))) == Counter([ComponentForeign(OPTIMIZER, why), IN_PLACE])


# ---------------------------------------------------------------------------------------------------------- manifest


def divergences(folder: Path, **changes: str) -> tuple[Divergence, ...]:
    """The divergences, where nothing else but the writing in place is said."""
    found = defects(folder, **changes)
    assert found.pop(IN_PLACE) == 1
    diverging = [defect for defect in found if isinstance(defect, ManifestDiverges)]
    assert len(diverging) == len(found) <= 1
    return diverging[0].divergences if diverging else ()


@proven_by(planted(admission, "_divergences", lambda readback, desired: ()))
@pytest.mark.parametrize(
    ("coordinate", "desired", "leaf", "found", "sources"),
    [
        ("learning_rate", "0.005", "learning_rate", "0.0002", {"optimizer.pt: initial_lr", "scheduler.pt: base_lrs"}),
        ("optimizer", "adamw_torch(beta1=0.8,beta2=0.999,eps=1e-8)", "optimizer.beta1", "0.9", {"optimizer.pt: beta1"}),
        ("optimizer", "adamw_torch(beta1=0.9,beta2=0.99,eps=1e-8)", "optimizer.beta2", "0.999", {"optimizer.pt: beta2"}),
        ("optimizer", "adamw_torch(beta1=0.9,beta2=0.999,eps=1e-7)", "optimizer.eps", "1e-8", {"optimizer.pt: eps"}),
        ("weight_decay", "0.1", "weight_decay", "0", {"optimizer.pt: weight_decay"}),
        ("micro_batch", "4", "micro_batch", "2", {"trainer_state.json: train_batch_size"}),
        ("total_steps", "40", "total_steps", "20", {"trainer_state.json: max_steps"}),
        ("rank", "8", "rank", "4", {"adapter_config.json: r"}),
        ("scaling", "4", "scaling", "2", {"adapter_config.json: lora_alpha, r, use_rslora"}),
        ("dropout", "0", "dropout", "50", {"adapter_config.json: lora_dropout"}),
        ("target_modules", "q_proj", "target_modules", "q_proj,v_proj", {"adapter_config.json: target_modules"}),
        ("lr_schedule", "cosine", "lr_schedule", "linear", {"scheduler.pt: _last_lr"}),
        ("warmup_steps", "3", "warmup_steps", "2", {"scheduler.pt: _last_lr"}),
        (
            "optimizer",
            "adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)",
            "optimizer.implementation",
            "adamw_torch",
            {"optimizer.pt: fused"},
        ),
        ("method", "dora(init=kaiming)", "method", "lora(init=kaiming)", {"adapter_config.json: init_lora_weights, use_dora"}),
        ("method", "lora(init=gaussian)", "method", "lora(init=kaiming)", {"adapter_config.json: init_lora_weights, use_dora"}),
    ],
)
def test_what_artifacts_show_is_held_against_the_manifest(
    tmp_path: Path, coordinate: str, desired: str, leaf: str, found: str, sources: set[str]
) -> None:
    told = divergences(checkpoint(tmp_path), **{coordinate: desired})
    assert {(one.leaf, one.found, one.source) for one in told} == {(leaf, found, source) for source in sources}
    assert ManifestDiverges(told).coordinates == (coordinate,)


@pytest.mark.parametrize("coordinate", ["seed", "max_grad_norm", "gradient_accumulation", "sequence_length"])
def test_what_no_artifact_shows_is_not_held_against_it(tmp_path: Path, coordinate: str) -> None:
    assert divergences(checkpoint(tmp_path), **{coordinate: "9"}) == ()


def test_several_diverging_coordinates_are_all_named_in_roster_order(tmp_path: Path) -> None:
    config = adapter_config(r=4, lora_alpha=4, lora_dropout=0.0125, use_rslora=True)
    folder = checkpoint(tmp_path, adapter_config_json=encoded(config), trainer_state_json=encoded(trainer_state(max_steps=-1)))
    assert ManifestDiverges(divergences(folder, learning_rate="0.1")).coordinates == ("dropout", "learning_rate", "total_steps")


def test_a_rank_stabilized_scaling_of_the_same_float_agrees(tmp_path: Path) -> None:
    config = adapter_config(lora_alpha=4, use_rslora=True)
    assert divergences(checkpoint(tmp_path, adapter_config_json=encoded(config))) == ()


def test_a_best_checkpoint_that_is_gone_is_a_note_and_no_defect(tmp_path: Path) -> None:
    state = encoded(trainer_state(best_model_checkpoint="/gone/checkpoint-2"))
    readback = read_checkpoint(checkpoint(tmp_path, trainer_state_json=state))
    assert isinstance(readback, CheckpointReadback)
    assert [note.partition(",")[0] for note in readback.notes] == ["trainer_state.json names '/gone/checkpoint-2' as the best checkpoint"]
    assert defects(tmp_path / "checkpoint-4") == Counter([IN_PLACE])


# ------------------------------------------------------------------------------------------------------ weights only


def test_a_torn_checkpoint_is_still_good_for_its_weights(tmp_path: Path) -> None:
    torn = checkpoint(tmp_path, optimizer_pt=None, rng_state_pth=None)
    answer = admit_weights_only(read_checkpoint(torn))
    assert isinstance(answer, WeightsOnlyCheckpoint) and answer.step == 4


def test_broken_weights_are_not(tmp_path: Path) -> None:
    answer = admit_weights_only(read_checkpoint(checkpoint(tmp_path, adapter_model_safetensors=None, optimizer_pt=None)))
    assert isinstance(answer, Refused) and set(answer.defects) == {ComponentMissing(WEIGHTS)}


# ----------------------------------------------------------------------------------------------------------- listing


def first_number(name: str, kind: Kind) -> Numbered | None:
    found = re.search("checkpoint-([0-9]+)|step-([0-9]+)", name)
    return Numbered(int(found[1] or found[2]), None) if found else None


@proven_by(planted(checkpoints, "numbered", first_number))
def test_checkpoints_order_by_number_and_only_whole_names_count(tmp_path: Path) -> None:
    others = ("checkpoint-1000-tmp", "tmp-checkpoint-2000", ".tmp-step-30-ab", "checkpoint-007")
    for name in ("checkpoint-900", "checkpoint-1000", "step-20", *others):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-5000").write_text("a file")
    found = list_checkpoints(tmp_path)
    assert isinstance(found, CheckpointListing)
    assert found.checkpoints == ((20, "step-20"), (900, "checkpoint-900"), (1000, "checkpoint-1000"))
    assert set(found.others) == {*others, "checkpoint-5000"}


@pytest.mark.parametrize("name", ["tmp-checkpoint-4", "checkpoint-4-tmp", ".tmp-step-4-ab", "tmp-step-4"])
def test_a_name_that_says_in_progress_is_incomplete_however_whole(tmp_path: Path, name: str) -> None:
    assert defects(checkpoint(tmp_path, name=name), vouched=True) == Counter(
        [PublicationIncomplete((f"its name '{name}' says that it is still being written",))]
    )


def test_a_folder_under_another_name_takes_its_step_from_the_trainer(tmp_path: Path) -> None:
    readback = read_checkpoint(checkpoint(tmp_path, name="kept-by-hand"))
    assert isinstance(readback, CheckpointReadback) and readback.step == 4
