"""A clean checkpoint of Lightning, written by hand to match ``tests.recipe.examples`` and what Lightning 2.6 writes."""

from pathlib import Path
from typing import Any

from tests.files.folders import generators, group
from tests.files.torchfiles import Tensor, scalar, torch_file, zeros

SHAPES = {"body.weight": (3, 4), "body.bias": (3,)}


def counted(count: int) -> dict[str, int]:
    return {"ready": count, "completed": count, "started": count, "processed": count}


def loops(*, step: int = 4, taken: int = 8, here: int | None = None, epochs: int = 0, scheduled: int | None = None) -> dict[str, Any]:
    """The trainer's loops after ``step`` steps and ``taken`` batches, ``here`` of them in the epoch that runs."""
    progress = {"total": counted(step), "current": counted(step)}
    return {
        "fit_loop": {
            "state_dict": {},
            "epoch_loop.state_dict": {"_batches_that_stepped": step},
            "epoch_loop.batch_progress": {
                "total": counted(taken) | {"completed": taken - 1},
                "current": counted(taken if here is None else here),
                "is_last_batch": False,
            },
            "epoch_loop.scheduler_progress": {"total": counted(step if scheduled is None else scheduled), "current": counted(step)},
            "epoch_loop.automatic_optimization.optim_progress": {"optimizer": {"step": progress, "zero_grad": progress}},
            "epoch_loop.manual_optimization.optim_step_progress": {"total": counted(0), "current": counted(0)},
            "epoch_progress": {"total": counted(epochs + 1) | {"completed": epochs}, "current": counted(epochs + 1)},
        }
    }


def optimizer(step: float = 4, **changes: Any) -> dict[str, Any]:
    state = {at: {"step": scalar(step), "exp_avg": zeros(*shape), "exp_avg_sq": zeros(*shape)} for at, shape in enumerate(SHAPES.values())}
    return {"state": state, "param_groups": [group(list(range(len(SHAPES))), **changes)]}


def scheduler(step: int = 4) -> dict[str, Any]:
    return {"base_lrs": [0.0002], "last_epoch": step, "_step_count": step + 1, "_last_lr": [0.0001]}


def values(step: int = 4, **changes: Any) -> dict[str, Any]:
    """What is in a clean checkpoint. ``changes`` replace values at the top, or leave them out where they are None."""
    found = {
        "epoch": 0,
        "global_step": step,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {name: zeros(*shape) for name, shape in SHAPES.items()},
        "loops": loops(step=step),
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"monitor": None, "best_model_path": "/runs/a/epoch=0-step=4.ckpt"}},
        "optimizer_states": [optimizer(step)],
        "lr_schedulers": [scheduler(step)],
        "hparams_name": "kwargs",
        "hyper_parameters": {"rate": 0.0002},
        "rng_state": {"torch": Tensor("U8", (8,), (1,) * 8), "python": generators()["python"], "numpy": generators()["numpy"]},
    } | {name.replace("version", "pytorch-lightning_version"): value for name, value in changes.items()}
    return {name: value for name, value in found.items() if value is not None}


def checkpoint(parent: Path, step: int = 4, name: str | None = None, **changes: Any) -> Path:
    """A clean ``epoch=0-step=N.ckpt``."""
    parent.mkdir(parents=True, exist_ok=True)
    path = parent / (name or f"epoch=0-step={step}.ckpt")
    path.write_bytes(torch_file(values(step, **changes)))
    return path
