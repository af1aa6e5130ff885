"""A clean checkpoint folder of a Transformers trainer, written by hand to match ``tests.recipe.examples``: tests break it in one place."""

import json
from pathlib import Path
from typing import Any

from tests.files.tensors import encoded
from tests.files.torchfiles import Global, Tensor, scalar, torch_file, zeros

HIDDEN = 6
NONCE = "0123456789abcdef" * 2
WORK_KEY = "wk1:" + "e" * 64


def adapter_names(targets: tuple[str, ...], layers: int = 2) -> list[tuple[str, bool]]:
    """Names of an adapter's tensors, and whether each is an A matrix."""
    prefix = "base_model.model.model.layers"
    return [(f"{prefix}.{n}.self_attn.{t}.lora_{m}.weight", m == "A") for n in range(layers) for t in targets for m in "AB"]


def adapter_bytes(*, rank: int = 4, targets: tuple[str, ...] = ("q_proj", "v_proj"), fill: int = 0) -> bytes:
    """An adapter's weights, all bytes of the data equal to ``fill``."""
    shapes = {name: ([rank, HIDDEN] if is_a else [HIDDEN, rank]) for name, is_a in adapter_names(targets)}
    return encoded({name: ("F32", shape, bytes([fill]) * (4 * rank * HIDDEN)) for name, shape in shapes.items()}, {"format": "pt"})


def adapter_config(**changes: Any) -> dict[str, Any]:
    """An adapter's configuration as PEFT writes it, shortened to what matters; the rest has its default."""
    return {
        "base_model_name_or_path": "/models/base",
        "bias": "none",
        "init_lora_weights": True,
        "lora_alpha": 8,
        "lora_dropout": 0.05,
        "peft_type": "LORA",
        "r": 4,
        "target_modules": ["v_proj", "q_proj"],
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    } | changes


def group(params: list[int], **changes: Any) -> dict[str, Any]:
    """One group of an AdamW."""
    return {
        "lr": 0.0001, "betas": (0.9, 0.999), "eps": 1e-08, "weight_decay": 0.0, "amsgrad": False, "fused": None,
        "initial_lr": 0.0002, "params": params,
    } | changes  # fmt: skip


def optimizer(*, step: float = 4, rank: int = 4, targets: tuple[str, ...] = ("q_proj", "v_proj"), **changes: Any) -> dict[str, Any]:
    """The state of an AdamW over an adapter's tensors."""
    shapes = [(rank, HIDDEN) if is_a else (HIDDEN, rank) for _, is_a in adapter_names(targets)]
    state = {at: {"step": scalar(step), "exp_avg": zeros(*shape), "exp_avg_sq": zeros(*shape)} for at, shape in enumerate(shapes)}
    return {"state": state, "param_groups": [group(list(range(len(shapes))), **changes), group([], **changes)]}


def scheduler(step: int = 4, rate: float = 0.0002) -> dict[str, Any]:
    """The state of a scheduler that goes down linearly from the second step on, to nothing at the twentieth."""
    now = rate * (20 - step) / 18
    return {"base_lrs": [rate, rate], "last_epoch": step, "_step_count": step + 1, "_last_lr": [now, now], "lr_lambdas": [{}, {}]}


def generators(**changes: Any) -> dict[str, Any]:
    array = Global("numpy._core.multiarray", "_reconstruct", ())
    return {
        "python": (3, tuple(range(625)), None),
        "numpy": ("MT19937", array, 624, 0, 0.0),
        "cpu": Tensor("U8", (8,), (1,) * 8),
    } | changes


def trainer_state(**changes: Any) -> dict[str, Any]:
    return {
        "best_model_checkpoint": None,
        "epoch": 0.5,
        "global_step": 4,
        "log_history": [],
        "max_steps": 20,
        "num_train_epochs": 3,
        "train_batch_size": 2,
    } | changes


def files(step: int = 4) -> dict[str, bytes]:
    """The files of a clean checkpoint."""
    return {
        "adapter_model.safetensors": adapter_bytes(),
        "adapter_config.json": json.dumps(adapter_config()).encode(),
        "optimizer.pt": torch_file(optimizer(step=step)),
        "scheduler.pt": torch_file(scheduler(step)),
        "rng_state.pth": torch_file(generators()),
        "trainer_state.json": json.dumps(trainer_state(global_step=step)).encode(),
        "training_args.bin": b"a pickle that nobody reads",
        "README.md": b"---\nlibrary_name: peft\n---\n",
    }


def checkpoint(parent: Path, step: int = 4, name: str | None = None, **changes: bytes | None) -> Path:
    """A clean ``checkpoint-N``. ``changes`` replace files by name with ``.`` and ``-`` written as ``_``, or leave them out."""
    contents = files(step)
    by_word = {file.replace(".", "_"): file for file in contents}
    folder = parent / (name or f"checkpoint-{step}")
    folder.mkdir(parents=True)
    for word, content in changes.items():
        if content is None:
            del contents[by_word[word]]
        else:
            contents[by_word.get(word, word)] = content
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    return folder
