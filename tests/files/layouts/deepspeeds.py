"""Folders that DeepSpeed writes with ZeRO, made by hand as its sources describe them: tests break them in one place."""

import json
from pathlib import Path
from typing import Any

from tests.files.folders import adapter_bytes, adapter_config, generators, group, scheduler, trainer_state
from tests.files.torchfiles import Global, Named, Object, scalar, torch_file, zeros

FLAT = 96


def size(*numbers: int) -> Global:
    return Global("torch", "Size", (numbers,))


def model_states(*, step: int = 8, workers: int = 1, whole: bool = True, **changes: Any) -> dict[str, Any]:
    """What a file with the model's states holds; a worker that has a piece of the weights alone holds no module."""
    return {
        "module": {"w": zeros(4, 6), "v": zeros(6, 4)} if whole else {},
        "buffer_names": [],
        "optimizer": None,
        "param_shapes": [{"w": size(4, 6), "v": size(6, 4)}],
        "frozen_param_shapes": None,
        "shared_params": {},
        "lr_scheduler": scheduler(step),
        "data_sampler": None,
        "random_ltd": None,
        "sparse_tensor_module_names": Global("__builtin__", "set", ([],)),
        "skipped_steps": 0,
        "global_steps": step,
        "global_samples": step * 8,
        "dp_world_size": workers,
        "mp_world_size": 1,
        "ds_config": {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": "auto"},
        "ds_version": "0.18.2",
    } | changes


def optimizer_states(*, step: int = 8, workers: int = 1, **changes: Any) -> dict[str, Any]:
    """What a worker's piece of the optimizer holds, with the objects of DeepSpeed's classes that lie in it."""
    moments = {0: {"step": scalar(step), "exp_avg": zeros(FLAT), "exp_avg_sq": zeros(FLAT)}}
    state = {
        "loss_scaler": Object("deepspeed.runtime.fp16.loss_scaler", "LossScaler", {"cur_scale": 1.0}),
        "dynamic_loss_scale": False,
        "overflow": False,
        "clip_grad": 0.0,
        "base_optimizer_state": {"state": moments, "param_groups": [group([0])]},
        "single_partition_of_fp32_groups": [zeros(FLAT)],
        "zero_stage": Global("deepspeed.runtime.zero.config", "ZeroStageEnum", (2,)),
        "group_paddings": [0],
        "partition_count": [workers],
        "ds_version": "0.18.2",
        "param_slice_mappings": [{"w": Object("deepspeed.utils.tensor_fragment", "fragment_address", {"numel": FLAT, "start": 0})}],
    } | changes
    return {"optimizer_state_dict": state, "ds_config": {}, "ds_version": Named("torch", "float32")}


def megatrons() -> dict[str, Any]:
    """The states of the generators as Megatron's scripts keep them beside the model's."""
    kept = generators()
    return {"random_rng_state": kept["python"], "np_rng_state": kept["numpy"], "torch_rng_state": kept["cpu"]}


def optimizer_name(rank: int, prefix: str = "", step: int = 8) -> str:
    return f"global_step{step}/{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def model_name(step: int = 8) -> str:
    return f"global_step{step}/mp_rank_00_model_states.pt"


MODEL = model_name()


def alone(*, step: int = 8, workers: int = 1, prefix: str = "", **model: Any) -> dict[str, bytes]:
    """The files of a folder of DeepSpeed alone."""
    piece = torch_file(optimizer_states(step=step, workers=workers))
    return {
        "latest": f"global_step{step}".encode(),
        "zero_to_fp32.py": b"print('converts')",
        model_name(step): torch_file(model_states(step=step, workers=workers, **(megatrons() | model))),
        **{optimizer_name(rank, prefix, step): piece for rank in range(workers)},
    }


def trainers(*, step: int = 8, workers: int = 1, **model: Any) -> dict[str, bytes]:
    """The files of a Transformers trainer's checkpoint under DeepSpeed, with an adapter."""
    found = alone(step=step, workers=workers) | {
        model_name(step): torch_file(model_states(step=step, workers=workers, **model)),
        "adapter_model.safetensors": adapter_bytes(),
        "adapter_config.json": json.dumps(adapter_config()).encode(),
        "trainer_state.json": json.dumps(trainer_state(global_step=step, epoch=None)).encode(),
        "training_args.bin": b"a pickle that nobody reads",
    }
    ranks = ("rng_state.pth",) if workers == 1 else tuple(f"rng_state_{rank}.pth" for rank in range(workers))
    return found | {name: torch_file(generators()) for name in ranks}


def folder(parent: Path, name: str, files: dict[str, bytes | None]) -> Path:
    """A folder of these files; None leaves one out."""
    path = parent / name
    for file, content in files.items():
        if content is not None:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            (path / file).write_bytes(content)
    return path
