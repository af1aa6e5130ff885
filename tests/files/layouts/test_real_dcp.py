"""The reader of distributed checkpoints against what torch itself writes, in one process and without a process group."""

import os
import random
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint import state_dict as torch_states

from countermark.files.checkpoints import read_checkpoint
from countermark.files.layouts import dcp
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    Atomic,
    ComponentMissing,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnread,
    Incomplete,
    admit_checkpoint,
)
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, read
from tests.recipe.examples import clean_manifest

#: What torch's AdamW and a constant rate are beside the clean manifest.
DESIRED = {"learning_rate": "0.01", "weight_decay": "0.01", "total_steps": "4", "lr_schedule": "constant", "warmup_steps": "0"}


def trained(steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    for _ in range(steps):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return model, optimizer, scheduler


def save(folder: Path, *, steps: int = 4, flat: bool = False, told: int = 4, threads: int = 1) -> Path:
    """What a training script saves: everything under names, or as torchtitan names it. The data is let be a second older than its
    metadata, which a disk does not tell apart where both are written within one tick of its clock."""
    model, optimizer, scheduler = trained(steps)
    options = torch_states.StateDictOptions(flatten_optimizer_state_dict=flat)
    weights, moments = torch_states.get_state_dict(model, optimizer, options=options)
    place = {"step": torch.tensor(told)}
    saved: dict[str, Any] = {"optimizer": moments, "lr_scheduler": scheduler.state_dict(), "train_state": place}
    if flat:
        saved |= {**weights, "dataloader": {"dp_rank_0": b"a pickle of the loader's", "world_size": 1}}
    else:
        states = {"python": random.getstate(), "numpy": numpy.random.get_state(), "torch": torch.get_rng_state()}
        saved |= {"model": weights, "rng": states}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_dcp.save(saved, storage_writer=torch_dcp.FileSystemWriter(folder, thread_count=threads), no_dist=True)
    for data in folder.glob("*.distcp"):
        at = (folder / ".metadata").stat().st_mtime_ns - 10**9
        os.utime(data, ns=(at, at))
    return folder


def defects(folder: Path) -> Counter[object]:
    answer = admit_checkpoint(read_checkpoint(folder), clean_manifest(**DESIRED), frozenset())
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


@pytest.mark.parametrize("threads", [1, 3])
def test_what_torch_saves_is_admitted(tmp_path: Path, threads: int) -> None:
    folder = save(tmp_path / "checkpoint-4", threads=threads)
    admitted = admit_checkpoint(read_checkpoint(folder), clean_manifest(**DESIRED), frozenset())
    assert isinstance(admitted, AdmittedCheckpoint), admitted
    readback = read(folder)
    assert isinstance(readback.publication, Atomic) and readback.layout == "torch-dcp" and readback.optimizer_parameters == 4
    sizes = [part.bytes for part in readback.components.values() if isinstance(part, ComponentRead)]
    assert sum(sizes) == sum(file.stat().st_size for file in folder.glob("*.distcp"))


def test_names_that_are_flattened_as_torchtitan_does_tell_the_same(tmp_path: Path) -> None:
    titan, nested = read(save(tmp_path / "step-4", flat=True)), read(save(tmp_path / "checkpoint-4"))
    assert titan.layout == "torchtitan" and titan.facts == nested.facts
    assert (titan.model_shapes, titan.optimizer_shapes) == (nested.model_shapes, nested.optimizer_shapes)
    assert {one for one in defects(tmp_path / "step-4") if isinstance(one, ComponentMissing)} == {ComponentMissing(GENERATORS)}


@proven_by(planted(dcp, "_publication", lambda here, metadata: Atomic("it looks whole")))
def test_a_folder_that_was_written_over_and_not_finished_keeps_its_old_metadata(tmp_path: Path) -> None:
    """Torch loads it without a word: the pieces lie where they lay before."""
    folder = save(tmp_path / "checkpoint-4")
    kept = (folder / ".metadata").read_bytes()
    times = (folder / ".metadata").stat().st_mtime_ns
    save(folder, steps=8, told=8)
    (folder / ".metadata").write_bytes(kept)
    os.utime(folder / ".metadata", ns=(times - 10**10, times - 10**10))
    loaded = {"train_state": {"step": torch.tensor(0)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    assert loaded["train_state"]["step"].item() == 8
    why = ".metadata is older than __0_0.distcp: it is of an earlier save that was written over, or a copy did not keep the times"
    assert isinstance(found := read(folder).publication, Incomplete) and why in found.whys


@pytest.mark.parametrize(
    ("save_as", "expected"),
    [
        ({"steps": 8}, {ComponentStepMismatch(OPTIMIZER, 8), ComponentStepMismatch(SCHEDULER, 8)}),
        ({"told": 8}, {ComponentStepMismatch(POSITION, 8)}),
    ],
)
def test_a_component_of_another_step_is_named(tmp_path: Path, save_as: dict[str, Any], expected: set[object]) -> None:
    found = defects(save(tmp_path / "checkpoint-4", **save_as))
    assert {one for one in found if isinstance(one, ComponentStepMismatch)} == expected


def flipped(content: bytes) -> bytes:
    """One bit of the first layer's weights, which torch loads without a word."""
    layer = trained(4)[0].state_dict()["0.weight"].numpy().tobytes()
    at = content.index(layer)
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("change", [flipped, lambda content: content[:-1], lambda content: content + b"x", lambda _: b""])
def test_bytes_that_torch_would_load_or_stumble_over_are_refused_first(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    folder = save(tmp_path / "checkpoint-4")
    times = (folder / "__0_0.distcp").stat().st_mtime_ns
    (folder / "__0_0.distcp").write_bytes(change((folder / "__0_0.distcp").read_bytes()))
    os.utime(folder / "__0_0.distcp", ns=(times, times))
    assert any(isinstance(one, ComponentUnread) for one in defects(folder))
