"""Recipes for tests of the command line; the content that they name exists nowhere, because no test of this folder trains."""

from pathlib import Path
from typing import Final

LINES: Final[dict[str, str]] = {
    "base_artifact": f'"sha256:{"1" * 64}"',
    "tokenization": f'"sha256:{"2" * 64}"',
    "dataset": f'"sha256:{"3" * 64}"',
    "data_order": '"sequential"',
    "seed": "17",
    "method": '"lora(init=kaiming)"',
    "target_modules": '["q_proj", "v_proj"]',
    "rank": "8",
    "scaling": "2.0",
    "dropout": "0",
    "optimizer": '{ implementation = "adamw_torch", beta1 = 0.9, beta2 = 0.999, eps = 1e-8 }',
    "weight_decay": "0",
    "learning_rate": "2e-4",
    "lr_schedule": '"linear"',
    "warmup_steps": "0",
    "total_steps": "12",
    "max_grad_norm": "1.0",
    "numeric_format": '"fp32"',
    "sequence_length": "64",
    "packing": '"none"',
    "loss_mask": '"all_tokens"',
    "micro_batch": "2",
    "gradient_accumulation": "1",
}


def write_recipe(folder: Path, name: str = "recipe.toml", without: tuple[str, ...] = (), **changed: str) -> str:
    """A recipe file in ``folder`` and its name; ``without`` are coordinates that stay open."""
    lines = {key: value for key, value in {**LINES, **changed}.items() if key not in without}
    text = "\n".join(("countermark = 1", 'name = "toy"', "", "[coordinates]", *(f"{key} = {value}" for key, value in lines.items()))) + "\n"
    (folder / name).write_text(text, encoding="utf-8")
    return name
