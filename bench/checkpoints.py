"""Checkpoints to measure on, made on the spot: ``python bench/checkpoints.py FOLDER NUMBER BYTES``.

``checkpoint-1`` to ``checkpoint-NUMBER``, each as a Transformers trainer with PEFT writes one: weights of a third of BYTES, an AdamW over
them with two moments of that size each, scheduler, states of the random generators, and the trainer's own state. It is a process of its
own, so that whoever measures stays small.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any, Final

import numpy
import torch
from safetensors.torch import save_file

LAYERS: Final = 4
COLUMNS: Final = 1_024
TOTAL: Final = 1_000
PEAK: Final = 0.0002


def config(rank: int) -> dict[str, Any]:
    return {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.05, "bias": "none",
        "target_modules": ["q_proj", "v_proj"], "init_lora_weights": True, "use_dora": False, "use_rslora": False,
    }  # fmt: skip


def written(folder: Path, step: int, size: int) -> None:
    """One checkpoint, its numbers all different."""
    folder.mkdir(parents=True)
    chance = torch.Generator().manual_seed(step)
    rank = max(1, size // 3 // (4 * COLUMNS * LAYERS * 4))
    names = [
        f"base_model.model.model.layers.{n}.self_attn.{t}.lora_{m}.weight"
        for n in range(LAYERS)
        for t in ("q_proj", "v_proj")
        for m in "AB"
    ]
    shapes = [(rank, COLUMNS) if name.endswith("A.weight") else (COLUMNS, rank) for name in names]

    def fresh(shape: tuple[int, int]) -> torch.Tensor:
        return torch.randn(shape, generator=chance)

    save_file({name: fresh(shape) for name, shape in zip(names, shapes, strict=True)}, folder / "adapter_model.safetensors")
    state = {at: {"step": torch.tensor(float(step)), "exp_avg": fresh(s), "exp_avg_sq": fresh(s) ** 2} for at, s in enumerate(shapes)}
    now = PEAK * (TOTAL - step) / TOTAL
    group = {"lr": now, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "initial_lr": PEAK, "params": list(range(len(shapes)))}
    torch.save({"state": state, "param_groups": [group]}, folder / "optimizer.pt")
    scheduler = {"base_lrs": [PEAK], "last_epoch": step, "_step_count": step + 1, "_last_lr": [now], "lr_lambdas": [{}]}
    torch.save(scheduler, folder / "scheduler.pt")
    generators = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.random.get_rng_state()}
    torch.save(generators, folder / "rng_state.pth")
    (folder / "adapter_config.json").write_text(json.dumps(config(rank)), encoding="utf-8")
    told = {"global_step": step, "epoch": step / TOTAL, "max_steps": TOTAL, "train_batch_size": 2, "log_history": []}
    (folder / "trainer_state.json").write_text(json.dumps(told), encoding="utf-8")


def main() -> None:
    folder, number, size = sys.argv[1:]
    for step in range(1, int(number) + 1):
        written(Path(folder) / f"checkpoint-{step}", step, int(size))


if __name__ == "__main__":
    main()
