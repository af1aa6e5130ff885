"""Folders that Accelerate's own ``save_state`` wrote: every component but the place in the data, which only stateful loaders tell."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate.accelerator
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import ProjectConfiguration

from countermark.files.checkpoints import CheckpointListing, list_checkpoints
from countermark.files.layouts.accelerate import _IN_PLACE
from countermark.run.checkpoint import (
    CheckpointReadback,
    ComponentAbsent,
    ComponentRead,
    ManifestDiverges,
    WeightsOnlyCheckpoint,
    admit_weights_only,
)
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, WEIGHTS, Break, defects, expected, missing, read


class Average:
    """An object of the script's own."""

    def __init__(self) -> None:
        self.values = torch.zeros(2)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "seen": 3}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state["values"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Accelerate keeps one state for the process: none is there before, and none stays."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    torch.set_num_threads(threads)


def trained(folder: Path, limit: int | None = None) -> Any:
    """Three steps of two micro batches each, with two models and two optimizers: the accelerator that can save them."""
    torch.manual_seed(0)
    saving = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True, total_limit=limit)
    accelerator: Any = Accelerator(cpu=True, project_config=saving, gradient_accumulation_steps=2)
    first, second = torch.nn.Linear(4, 2), torch.nn.Linear(2, 2)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.001) for model in (first, second)]
    curve = torch.optim.lr_scheduler.LambdaLR(optimizers[0], lambda step: 1 - step / 10)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 4)), batch_size=2, shuffle=True)
    first, second, *optimizers, curve, loader = accelerator.prepare(first, second, *optimizers, curve, loader)
    accelerator.register_for_checkpointing(Average())
    for (inputs,) in loader:
        with accelerator.accumulate(first, second):
            accelerator.backward(second(first(inputs)).pow(2).mean())
            for one in (*optimizers, curve):
                one.step()
            for one in optimizers:
                one.zero_grad()
    return accelerator


def saved(accelerator: Any, **options: Any) -> CheckpointReadback:
    return read(Path(accelerator.save_state(**options)))


@pytest.mark.parametrize("safe", [True, False])
def test_what_save_state_writes_is_whole_but_for_the_place_in_the_data(tmp_path: Path, safe: bool) -> None:
    readback = saved(trained(tmp_path), safe_serialization=safe)
    assert (readback.layout, readback.step, readback.marker) == ("accelerate", 3, _IN_PLACE)
    found = {
        component: (tuple(file.name for file in part.files), tuple(one.step for one in part.steps))
        for component, part in readback.components.items()
        if isinstance(part, ComponentRead)
    }
    weights = ("model.safetensors", "model_1.safetensors") if safe else ("pytorch_model.bin", "pytorch_model_1.bin")
    assert found == {
        WEIGHTS: (weights, ()),
        OPTIMIZER: (("custom_checkpoint_0.pkl", "optimizer.bin", "optimizer_1.bin"), (3, 3)),
        SCHEDULER: (("scheduler.bin",), (3,)),
        GENERATORS: (("random_states_0.pkl",), ()),
    }
    assert readback.components[POSITION] == ComponentAbsent(("dl_state_dict.bin",))
    assert isinstance(admit_weights_only(readback), WeightsOnlyCheckpoint)
    rates = {fact.spelling for fact in readback.facts if fact.leaf == "learning_rate"}
    assert rates == {"0.001"}


@pytest.mark.parametrize("lost", ["model_1.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl"])
def test_each_file_that_is_lost_is_named(tmp_path: Path, lost: str) -> None:
    """But the last of several: nothing in the folder tells how many there were."""
    folder = Path(trained(tmp_path).save_state())
    (folder / lost).unlink()
    of = {"optimizer.bin": OPTIMIZER, "scheduler.bin": SCHEDULER, "random_states_0.pkl": GENERATORS}
    told = Break("", {}, tuple(missing(one) for one in (POSITION, *([of[lost]] if lost in of else []))))
    found = defects(folder)
    diverging = [defect for defect in found if isinstance(defect, ManifestDiverges)]
    assert found - Counter(diverging) == expected(_IN_PLACE, 3, told)


class Stopped(Exception):
    """The machine is gone."""


def test_accelerate_takes_the_oldest_away_before_it_has_written_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the answer about its publication says of it; nothing that can be resumed from is left."""
    accelerator = trained(tmp_path, limit=1)
    first = Path(accelerator.save_state())

    def stopped(*given: object, **named: object) -> None:
        raise Stopped

    monkeypatch.setattr(accelerate.accelerator, "save_accelerator_state", stopped)
    with pytest.raises(Stopped):
        accelerator.save_state()
    assert not first.exists()
    listed = list_checkpoints(first.parent)
    assert isinstance(listed, CheckpointListing) and [name for _, name in listed.checkpoints] == ["checkpoint_1"]
    assert read(first.parent / "checkpoint_1").layout == "accelerate"
