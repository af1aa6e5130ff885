"""One clean example of everything that a recipe is: the tests of every room start from it and break it in one place each.

``clean_spellings`` → ``clean_manifest`` → ``clean_resolution``; ``clean_recipe_text`` says the same in the project's own format.
"""

from typing import Final

from countermark.recipe import Manifest, Observations, Resolution, manifest_from_spellings, observed, resolve
from countermark.values import Refused

CLEAN: Final = {
    "base_artifact": "sha256:" + "b" * 64,
    "tokenization": "sha256:" + "c" * 64,
    "dataset": "sha256:" + "d" * 64,
    "data_order": "shuffle(algorithm=torch_randperm_epoch,seed=3)",
    "seed": "17",
    "method": "lora(init=kaiming)",
    "target_modules": "q_proj,v_proj",
    "rank": "4",
    "scaling": "2",
    "dropout": "50",
    "optimizer": "adamw_torch(beta1=0.9,beta2=0.999,eps=1e-8)",
    "weight_decay": "0",
    "learning_rate": "0.0002",
    "lr_schedule": "linear",
    "warmup_steps": "2",
    "total_steps": "20",
    "max_grad_norm": "1",
    "numeric_format": "fp32",
    "sequence_length": "64",
    "packing": "none",
    "loss_mask": "all_tokens",
    "micro_batch": "2",
    "gradient_accumulation": "2",
}

_TEXT: Final = """\
countermark = 1
name = "topics-lora"

[coordinates]
base_artifact = "sha256:{b}"
tokenization = "sha256:{c}"
dataset = "sha256:{d}"
data_order = {{ order = "shuffle", algorithm = "torch_randperm_epoch", seed = 3 }}
seed = 17
method = "lora(init=kaiming)"
target_modules = ["q_proj", "v_proj"]
rank = 4
scaling = 2.0
dropout = 0.05
optimizer = {{ implementation = "adamw_torch", beta1 = 0.9, beta2 = 0.999, eps = 1e-8 }}
weight_decay = 0.0
learning_rate = 2e-4
lr_schedule = "linear"
warmup_steps = 2
total_steps = 20
max_grad_norm = 1.0
numeric_format = "fp32"
sequence_length = 64
packing = "none"
loss_mask = "all_tokens"
micro_batch = 2
gradient_accumulation = 2

[sources]
model = "models/SmolLM2-135M"
tokenizer = "models/SmolLM2-135M"
dataset = "data/topics.jsonl"

[trainer]
save_steps = 5
"""


def clean_spellings(**changes: str) -> dict[str, str]:
    """The 23 canonical spellings, with ``changes`` by coordinate."""
    return CLEAN | changes


def clean_manifest(**changes: str) -> Manifest:
    """The manifest of ``clean_spellings``."""
    manifest = manifest_from_spellings(clean_spellings(**changes))
    if isinstance(manifest, Refused):
        raise ValueError(f"the example is not clean: {tuple(manifest.defects)}")
    return manifest


def clean_observations(**changes: str) -> Observations:
    """The observations that these spellings are."""
    return observed(clean_spellings(**changes), "example", "tests")


def clean_resolution(**changes: str) -> Resolution:
    """The resolution of these observations."""
    resolution = resolve(clean_observations(**changes))
    if isinstance(resolution, Refused):
        raise ValueError(f"the example is not clean: {tuple(resolution.defects)}")
    return resolution


def clean_recipe_text() -> str:
    """The same computation in the project's own format, with sources and a trainer's setting."""
    return _TEXT.format(b="b" * 64, c="c" * 64, d="d" * 64)
