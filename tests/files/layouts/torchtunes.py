"""Clean checkpoints of torchtune, as its sources describe them: an adapter's, and a whole model's."""

import json
from pathlib import Path
from typing import Any

from tests.files.folders import group
from tests.files.tensors import encoded
from tests.files.torchfiles import scalar, torch_file, zeros

SHAPES = {f"layers.{layer}.attn.{target}.lora_{m}.weight": s for layer in (0, 1) for target in ("q_proj", "v_proj") for m, s in
          (("a", (4, 6)), ("b", (6, 4)))}  # fmt: skip


def optimizer(step: float = 4, shapes: dict[str, tuple[int, ...]] = SHAPES, **changes: Any) -> dict[str, Any]:
    """An AdamW whose state names its tensors, as it is gathered from workers."""
    state = {name: {"step": scalar(step), "exp_avg": zeros(*shape), "exp_avg_sq": zeros(*shape)} for name, shape in shapes.items()}
    return {"state": state, "param_groups": [group(list(shapes), **changes)]}


def recipe_state(step: int = 4, **changes: Any) -> dict[str, Any]:
    """The recipe's state in the folder of a step; a change to None leaves a value out."""
    found = {
        "optimizer": optimizer(step),
        "seed": 17,
        "epochs_run": 0,
        "total_epochs": 3,
        "max_steps_per_epoch": None,
        "steps_run": step,
        "total_training_steps": 20,
        "dataloader": {"_num_yielded": 8, "_iterator_finished": False},
    } | changes
    return {name: value for name, value in found.items() if value is not None}


def files(step: int = 4, **state: Any) -> dict[str, bytes]:
    """The files of an adapter's checkpoint: the weights for torchtune, those for PEFT, and the recipe's state."""
    peft = {f"base_model.model.{name}": ("F32", list(shape), bytes(4 * 24)) for name, shape in SHAPES.items()}
    config = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "peft_type": "LORA", "base_model_name_or_path": ""}
    return {
        "adapter_model.pt": torch_file({name: zeros(*shape) for name, shape in SHAPES.items()}),
        "adapter_model.safetensors": encoded(peft, {"format": "pt"}),
        "adapter_config.json": json.dumps(config).encode(),
        "config.json": b"{}",
        "recipe_state.pt": torch_file(recipe_state(step, **state)),
    }


def checkpoint(parent: Path, name: str = "step_4", step: int = 4, without: tuple[str, ...] = (), **contents: bytes) -> Path:
    """A clean adapter's checkpoint; ``contents`` replace files by name with ``.`` written as ``_``."""
    named = {file.replace(".", "_"): file for file in files()}
    kept = files(step) | {named[word]: content for word, content in contents.items()}
    return written(parent / name, {file: content for file, content in kept.items() if file not in without})


def model_checkpoint(parent: Path, name: str = "epoch_0", **state: Any) -> Path:
    """A whole model's checkpoint of version 0.6, the recipe's state beside it; a step's names are those of the epochs."""
    shapes: dict[str, tuple[int, ...]] = {"a.weight": (2, 3), "b.weight": (3,)}
    shards = [f"model-0000{at}-of-00002.safetensors" for at in (1, 2)]
    index = {"metadata": {"total_size": 36}, "weight_map": dict(zip(shapes, shards, strict=True))}
    contents = {
        shard: encoded({tensor: ("F32", list(shape), bytes(24 if len(shape) == 2 else 12))}, {"format": "pt"})
        for shard, (tensor, shape) in zip(shards, shapes.items(), strict=True)
    }
    old = {"epochs_run": 1, "optimizer": optimizer(4, shapes), "steps_run": None, "total_training_steps": None, "dataloader": None} | state
    written(parent / "recipe_state", {"recipe_state.pt": torch_file(recipe_state(**old))})
    return written(parent / name, contents | {"model.safetensors.index.json": json.dumps(index).encode(), "tokenizer.model": b"x"})


def written(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder
