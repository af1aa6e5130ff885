"""What FSDP leaves in pieces in a trainer's folder and in Accelerate's: clean ones, each break alone, breaks together."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from countermark.files.layouts import accelerate, fsdp, transformers, weights
from countermark.files.layouts.reading import IN_PLACE, Parts
from countermark.run.checkpoint import (
    CheckpointDefect,
    ComponentForeign,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnreadable,
    PublicationIncomplete,
    PublicationUnobserved,
    Unobserved,
)
from tests.faults import planted, proven_by
from tests.files import folders, tensors
from tests.files.layouts import dcps, test_accelerate
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, WEIGHTS, Files, defects, missing, read, unread, written
from tests.files.torchfiles import torch_file, zeros

SAVED = {trail[1:]: value for trail, value in dcps.saved().items() if trail[0] == "app"}
PARTS = {"pytorch_model_fsdp_0": "model", "optimizer_0": "optimizer"}
TRAINERS = {name: content for name, content in folders.files().items() if not name.startswith(("adapter", "optimizer"))}
ACCELERATES = {name: content for name, content in test_accelerate.CLEAN.items() if not name.startswith(("model", "optimizer"))}
WHOLES: dict[str, tuple[str, Files, Unobserved]] = {
    "transformers": ("checkpoint-4", TRAINERS, IN_PLACE),
    "accelerate": ("step_4", ACCELERATES, accelerate._IN_PLACE),
}
BESIDE = {"transformers": "optimizer.pt", "accelerate": "optimizer.bin"}


def sharded(parent: Path, of: str, saved: dcps.Saved = SAVED, files: tuple[str, str] = dcps.ALONE) -> Path:
    """A folder of one of the two, with weights and optimizer in pieces."""
    name, around, _ = WHOLES[of]
    folder = written(parent / name, around)
    for part, word in PARTS.items():
        dcps.folder(folder, part, {trail: value for trail, value in saved.items() if trail[0] == word}, files=files)
    return folder


@pytest.mark.parametrize("of", WHOLES)
def test_weights_and_optimizer_in_pieces_are_whole_and_the_folder_unobserved(tmp_path: Path, of: str) -> None:
    folder = sharded(tmp_path, of)
    readback = read(folder)
    assert (readback.layout, readback.step, readback.optimizer_parameters) == (of, 4, 8)
    assert defects(folder) == Counter([PublicationUnobserved(WHOLES[of][2].whys)])
    for component, part in zip((WEIGHTS, OPTIMIZER), PARTS, strict=True):
        found = readback.components[component]
        assert isinstance(found, ComponentRead) and {file.name for file in found.files} == {
            f"{part}/{file}: {component}" for file in dcps.ALONE
        }
    stepped = readback.components[OPTIMIZER]
    assert isinstance(stepped, ComponentRead) and {one.step for one in stepped.steps} == {4}


def test_weights_that_were_gathered_are_in_one_file(tmp_path: Path) -> None:
    gathered = TRAINERS | {"pytorch_model_fsdp.bin": torch_file({"t0": zeros(2)}), "optimizer.bin": torch_file(folders.optimizer())}
    assert defects(written(tmp_path / "checkpoint-4", gathered)) == Counter([PublicationUnobserved(IN_PLACE.whys)])


@pytest.mark.parametrize("contents", [{"model.safetensors": b""}, folders.files()], ids=["a model", "an adapter"])
@proven_by(planted(weights, "_GATHERED", "another.bin"))
def test_what_was_gathered_lies_beside_what_everybody_else_loads(tmp_path: Path, contents: Files) -> None:
    """The trainer writes both where FSDP gathers, goes on from the one, and both are the weights."""
    own = {name: content for name, content in contents.items() if name.startswith(("model", "adapter"))}
    own |= {"model.safetensors": tensors.encoded({"t0": tensors.f32(1.0)})} if "model.safetensors" in own else {}
    gathered = TRAINERS | own | {"pytorch_model_fsdp.bin": torch_file({"t0": zeros(2)}), "optimizer.bin": torch_file(folders.optimizer())}
    folder = written(tmp_path / "checkpoint-4", gathered)
    assert defects(folder) == Counter([PublicationUnobserved(IN_PLACE.whys)])
    found = read(folder).components[WEIGHTS]
    assert isinstance(found, ComponentRead) and {file.name for file in found.files} == {*own, "pytorch_model_fsdp.bin"}
    torn = written(tmp_path / "torn" / "checkpoint-4", gathered | {"pytorch_model_fsdp.bin": b"PK"})
    assert read(torn).components[WEIGHTS] == ComponentUnreadable(("pytorch_model_fsdp.bin: it is too short for an archive",))


def test_accelerate_gathers_each_model_into_a_file_of_its_own(tmp_path: Path) -> None:
    """And each of them is of the weights, or is missing."""
    names = [f"pytorch_model_fsdp{number}.bin" for number in ("", "_1", "_2")]
    gathered = ACCELERATES | {"optimizer.bin": torch_file(folders.optimizer())} | {name: torch_file({"t": zeros(2)}) for name in names}
    found = read(written(tmp_path / "step_4", gathered)).components[WEIGHTS]
    assert isinstance(found, ComponentRead) and {file.name for file in found.files} == set(names)
    lost = {name: content for name, content in gathered.items() if name != names[1]}
    why = f"{names[1]} is missing, and others with higher numbers are there"
    assert read(written(tmp_path / "lost" / "step_4", lost)).components[WEIGHTS] == ComponentUnreadable((why,))


@proven_by(planted(fsdp, "note_gaps", lambda parts, numbers, form, first: None))
def test_of_several_models_and_optimizers_none_is_missing_below_the_highest(tmp_path: Path) -> None:
    folder = sharded(tmp_path, "accelerate")
    for part in PARTS:
        (folder / part).rename(folder / part.replace("_0", "_1"))
    found = [unread(part, f"{name} is missing, and others with higher numbers are there") for part, name in zip(TWO, PARTS, strict=True)]
    whys = ("model_weights is unreadable", "optimizer_state is unreadable")
    assert defects(folder) == Counter([*found, PublicationIncomplete(whys)])


TWO = (WEIGHTS, OPTIMIZER)
Told = tuple[tuple[CheckpointDefect, ...], tuple[str, ...]]


def cut(folder: Path, of: str) -> Told:
    file = folder / "pytorch_model_fsdp_0/__0_1.distcp"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    dcps.made(folder / "pytorch_model_fsdp_0/.metadata", 9)
    return (unread(WEIGHTS, f"pytorch_model_fsdp_0/__0_1.distcp: it has {size - 1} bytes and its pieces have {size}"),), ()


def unfinished(folder: Path, of: str) -> Told:
    (folder / "optimizer_0/.metadata").unlink()
    return (missing(OPTIMIZER),), ("optimizer_0: .metadata, which is written last, is not there",)


def written_over(folder: Path, of: str) -> Told:
    dcps.made(folder / "optimizer_0/.metadata", -1)
    why = "it is of an earlier save that was written over, or a copy did not keep the times"
    return (), (f"optimizer_0: .metadata is older than __0_0.distcp, __0_1.distcp: {why}",)


def twice(folder: Path, of: str) -> Told:
    (folder / BESIDE[of]).write_bytes(torch_file(folders.optimizer()))
    return (unread(OPTIMIZER, f"{BESIDE[of]} lies beside the pieces of an optimizer"),), ()


def copied(folder: Path, of: str) -> Told:
    (folder / "model.safetensors").write_bytes(tensors.encoded({"t0": tensors.f32(1.0)}))
    return (unread(WEIGHTS, "model.safetensors lies beside the pieces of the weights"),), ()


BREAKS: list[Callable[[Path, str], Told]] = [cut, unfinished, written_over, twice, copied]


def told(*found: Told) -> Counter[CheckpointDefect]:
    every = [defect for defects, _ in found for defect in defects]
    whys = [f"{one} is {'missing' if one_missing else 'unreadable'}" for one, one_missing in _states(every)]
    return Counter([*every, PublicationIncomplete((*(why for _, marked in found for why in marked), *whys))])


def _states(found: list[CheckpointDefect]) -> list[tuple[object, bool]]:
    parts = [(component, missing(component) in found) for component in (WEIGHTS, OPTIMIZER)]
    return [(component, gone) for component, gone in parts if any(getattr(one, "component", None) is component for one in found)]


@proven_by(planted(transformers, "take_pieces", lambda folder, entries, reading: {}))
@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_break_is_named_and_nothing_else(tmp_path: Path, broken: Callable[[Path, str], Told]) -> None:
    folder = sharded(tmp_path, "transformers")
    found = broken(folder, "transformers")
    assert defects(folder) == told(found)


@proven_by(planted(accelerate, "workers_of", lambda names: 1), planted(transformers, "workers_of", lambda names: 1))
def test_the_pieces_tell_how_many_workers_have_their_generators_there(tmp_path: Path) -> None:
    lost = sharded(tmp_path, "accelerate", files=dcps.TOGETHER)
    why = "random_states_1.pkl is missing, the state of one of 2 workers"
    assert read(lost).components[GENERATORS] == ComponentUnreadable((why,))
    folder = sharded(tmp_path, "transformers", files=dcps.TOGETHER)
    assert defects(folder) == Counter([missing(GENERATORS), PublicationIncomplete(("rng_state is missing",))])
    state = (folder / "rng_state.pth").read_bytes()
    (folder / "rng_state.pth").unlink()
    (folder / "rng_state_0.pth").write_bytes(state)
    (folder / "rng_state_1.pth").write_bytes(state)
    alone = ComponentForeign(GENERATORS, "it is the state of 2 workers, and one alone cannot go on from it")
    assert defects(folder) == Counter([alone, PublicationUnobserved(IN_PLACE.whys)])


@proven_by(planted(fsdp, "judge_optimizer", lambda found, reading: None))
@pytest.mark.parametrize("of", WHOLES)
def test_an_optimizer_in_pieces_of_another_step_is_named(tmp_path: Path, of: str) -> None:
    later = {trail[1:]: value for trail, value in dcps.saved(step=5).items() if trail[0] == "app"}
    found = defects(sharded(tmp_path, of, later))
    assert found == Counter([ComponentStepMismatch(OPTIMIZER, 5), PublicationIncomplete(("optimizer_state is of step 5, not 4",))])


@proven_by(planted(fsdp, "_joined", lambda component, found: found[0].parts[component] if component is WEIGHTS else Parts()))
def test_two_breaks_are_both_named(tmp_path: Path) -> None:
    """In either kind of folder; the ones that contradict each other are left out."""
    for of in WHOLES:
        for first, second in ((cut, unfinished), (cut, written_over), (cut, twice), (written_over, twice), (twice, copied)):
            folder = sharded(tmp_path / f"{of}-{first.__name__}-{second.__name__}", of)
            found = (first(folder, of), second(folder, of))
            assert defects(folder) == told(*found), (of, first, second)


def test_pieces_that_hold_something_else_are_not_what_they_are_called(tmp_path: Path) -> None:
    folder = written(tmp_path / "checkpoint-4", TRAINERS)
    dcps.folder(folder, "pytorch_model_fsdp_0", SAVED)
    dcps.folder(folder, "optimizer_0", {trail: value for trail, value in SAVED.items() if trail[0] == "model"})
    found = read(folder).components
    assert found[WEIGHTS] == ComponentUnreadable(("pytorch_model_fsdp_0 holds something of optimizer_state too",))
    assert found[OPTIMIZER] == ComponentUnreadable(("its pieces hold nothing of optimizer_state",))
