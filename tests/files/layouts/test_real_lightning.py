"""A file that Lightning itself wrote: every component but the random generators, which it does not keep, and they where a callback does."""

import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from countermark.files.checkpoints import CheckpointListing, list_checkpoints
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    ComponentMissing,
    ComponentRead,
    DataPositionMismatch,
    PublicationIncomplete,
    admit_checkpoint,
)
from countermark.values import Refused
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, read
from tests.recipe.examples import clean_manifest

#: Lightning is loaded within the tests: it sets a variable of the environment as soon as it is.
pytestmark = pytest.mark.filterwarnings("ignore")


def keeps_generators() -> Any:
    """A callback that keeps what Lightning does not."""
    from lightning.pytorch import Callback

    class Generators(Callback):  # type: ignore[misc]
        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
            checkpoint["rng_state"] = {"torch": torch.get_rng_state(), "numpy": numpy.random.get_state(), "python": random.getstate()}

    return Generators()


def small(overflowing: int | None = None) -> Any:
    """A module of one layer; the gradients of this micro batch are no numbers."""
    from lightning.pytorch import LightningModule

    class Small(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(4, 3)

        def training_step(self, batch: Any, at: int) -> Any:
            return self.body(batch[0]).pow(2).mean() * (float("nan") if at == overflowing else 1.0)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.0002, weight_decay=0.0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3), "interval": "step"},
            }

    return Small()


def trained(at: Path, *callbacks: Any, resume: Path | None = None, plugins: Any = None, overflowing: int | None = None) -> Path:
    """The folder of a run of eight steps of two micro batches, saved at every fourth."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    rows = torch.utils.data.TensorDataset(torch.zeros(30, 4))
    saving = ModelCheckpoint(at, every_n_train_steps=4, save_top_k=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "plugins": plugins}
        trainer = Trainer(max_steps=8, accumulate_grad_batches=2, callbacks=[saving, *callbacks], default_root_dir=at, **quiet)
        trainer.fit(small(overflowing), torch.utils.data.DataLoader(rows, batch_size=2), ckpt_path=resume, weights_only=False)
    return at


def test_what_lightning_writes_lacks_the_generators_and_nothing_else(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run")
    listed = list_checkpoints(folder)
    assert isinstance(listed, CheckpointListing) and [number for number, _ in listed.checkpoints] == [4, 8]
    for step, name in listed.checkpoints:
        answer = admit_checkpoint(read(folder / name), clean_manifest(weight_decay="0"), frozenset())
        assert isinstance(answer, Refused)
        # Eight steps are an epoch of fifteen micro batches, the last of which was stepped with alone.
        assert Counter(answer.defects) == Counter([ComponentMissing(GENERATORS), PublicationIncomplete(("rng_state is missing",))]), step
    parts = read(folder / "epoch=0-step=8.ckpt").components.items()
    witnesses = {one: {w.step for w in part.steps} for one, part in parts if isinstance(part, ComponentRead)}
    assert witnesses[OPTIMIZER] == witnesses[SCHEDULER] == witnesses[POSITION] == {8}


def test_with_the_generators_kept_it_is_admitted_and_going_on_within_an_epoch_shows_what_was_taken_twice(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", keeps_generators())
    first = folder / "epoch=0-step=4.ckpt"
    manifest = clean_manifest(weight_decay="0")
    assert isinstance(admit_checkpoint(read(first), manifest, frozenset()), AdmittedCheckpoint)
    # Lightning goes on from the micro batch before the one that the fourth step ended with, and says nothing.
    again = trained(tmp_path / "again", keeps_generators(), resume=first) / first.name
    answer = admit_checkpoint(read(again), manifest, frozenset())
    assert isinstance(answer, Refused) and set(answer.defects) == {DataPositionMismatch(8, 9)}


def test_a_step_that_a_gradient_scaler_skipped_is_the_optimizers_alone(tmp_path: Path) -> None:
    """Lightning counts it, and steps its scheduler."""
    from lightning.pytorch.plugins.precision import MixedPrecision

    scaling = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1.0))
    folder = trained(tmp_path, keeps_generators(), plugins=scaling, overflowing=2)
    readback = read(folder / "epoch=0-step=4.ckpt")
    state = torch.load(folder / "epoch=0-step=4.ckpt", weights_only=False)
    assert {int(kept["step"]) for kept in state["optimizer_states"][0]["state"].values()} == {3}
    assert state["lr_schedulers"][0]["last_epoch"] == 4 and readback.scaled
    assert isinstance(admit_checkpoint(readback, clean_manifest(weight_decay="0"), frozenset()), AdmittedCheckpoint)
