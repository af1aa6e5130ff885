"""A checkpoint of any layout can be published, and is read as what it was."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.files import checkpoints, layouts, publishing
from countermark.files.checkpoints import read_checkpoint
from countermark.files.layouts import LAYOUTS, Kind, LayoutReading
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.files.reading import Entry
from countermark.run.checkpoint import CheckpointReadback, Component, ComponentMissing, SoundCheckpoint, component_defects, sound_checkpoint
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.files import folders
from tests.files.layouts import (
    breaking,
    dcps,
    deepspeeds,
    lightnings,
    orbaxes,
    test_accelerate,
    test_accelerate_deepspeed,
    test_transformers,
    torchtunes,
)
from tests.recipe.examples import clean_spellings

GIVEN: Final[dict[str, Any]] = {"step": 4, "attempt": folders.NONCE, "work_key": folders.WORK_KEY, "manifest": clean_spellings()}

#: A clean checkpoint of step 4 in each layout that has every component, under a name that its library gives.
MADE: Final[dict[str, Callable[[Path], Path]]] = {
    "transformers": lambda at: breaking.written(at / "checkpoint-4", test_transformers.REST | test_transformers.ONE_FILE),
    "transformers-peft": folders.checkpoint,
    "accelerate": lambda at: breaking.written(at / "checkpoint_0", test_accelerate.CLEAN),
    "lightning": lightnings.checkpoint,
    "orbax": orbaxes.checkpoint,
    "torch-dcp": lambda at: dcps.folder(at, "checkpoint_0", dcps.saved()),
    "deepspeed": lambda at: deepspeeds.folder(at, "out", deepspeeds.alone(step=4)),
    "accelerate-deepspeed": lambda at: breaking.written(at / "checkpoint_0", test_accelerate_deepspeed.files(step=4)),
    "transformers-deepspeed": lambda at: deepspeeds.folder(at, "checkpoint-4", deepspeeds.trainers(step=4)),
}
#: One in each layout that lacks some component, and what it lacks.
LACKING: Final[dict[str, tuple[Callable[[Path], Path], set[Component]]]] = {
    "torchtune": (torchtunes.checkpoint, {Component.SCHEDULER_STATE, Component.RNG_STATE}),
    "torchtitan": (lambda at: dcps.folder(at, "step-4", dcps.titans(workers=1)), {Component.RNG_STATE}),
}


def test_every_layout_is_tried() -> None:
    assert {*MADE, *LACKING} >= {layout.name for layout in LAYOUTS}


@pytest.mark.parametrize("name", LACKING)
@proven_by(planted(publishing, "component_defects", lambda readback: ()))
def test_a_layout_that_lacks_a_component_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    make, lacks = LACKING[name]
    try:
        answer: object = publish_checkpoint(make(tmp_path / "t"), tmp_path / "p", **GIVEN)
    except KeyError as error:
        answer = error
    assert isinstance(answer, Refused) and set(answer.defects) == {ComponentMissing(component) for component in lacks}
    assert list((tmp_path / "p").iterdir()) == []


def read_as_it_looks(path: Path, kind: Kind, entries: tuple[Entry, ...], declared: str | None) -> tuple[str, LayoutReading]:
    """The fault: what the manifest says of the layout is not asked for."""
    return layouts.read_layout(path, kind, entries)


@proven_by(planted(checkpoints, "read_layout", read_as_it_looks))
def test_a_single_file_lies_in_a_folder_when_it_is_published(tmp_path: Path) -> None:
    answer = publish_checkpoint(lightnings.checkpoint(tmp_path / "t"), tmp_path / "p", **GIVEN)
    assert isinstance(answer, PublishedCheckpoint)
    assert sorted(path.name for path in Path(answer.path).iterdir()) == ["countermark.json", "epoch=0-step=4.ckpt"]
    assert isinstance(sound_checkpoint(read_checkpoint(Path(answer.path))), SoundCheckpoint)


@pytest.mark.parametrize("name", MADE)
@proven_by(planted(publishing, "encode_manifest", lambda published: b"{}\n"))
def test_what_was_published_is_read_by_the_layout_that_it_had_and_is_atomic(tmp_path: Path, name: str) -> None:
    source = MADE[name](tmp_path / "t")
    before = read_checkpoint(source)
    assert isinstance(before, CheckpointReadback) and before.layout == name and component_defects(before) == ()
    answer = publish_checkpoint(source, tmp_path / "p", **GIVEN)
    assert isinstance(answer, PublishedCheckpoint), answer
    after = read_checkpoint(Path(answer.path))
    assert isinstance(after, CheckpointReadback) and after.layout == name
    assert isinstance(sound_checkpoint(after), SoundCheckpoint), after.publication
    # Nothing is the same file as before, and what is changed in one of them is seen.
    shutil.rmtree(tmp_path / "t")
    assert read_checkpoint(Path(answer.path)) == after
    for path in sorted(path for path in Path(answer.path).rglob("*") if path.is_file() and path.name != "countermark.json"):
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert isinstance(sound_checkpoint(read_checkpoint(Path(answer.path))), Refused), path.name
        path.write_bytes(content)
    assert isinstance(sound_checkpoint(read_checkpoint(Path(answer.path))), SoundCheckpoint)
