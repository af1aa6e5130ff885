"""Fields of live configurations that say the clean example's computation: neutral everywhere else."""

from typing import Any

from countermark.recipe.formats.live import Measured
from countermark.recipe.formats.live_tables import ACCELERATOR_CONFIG, LORA_CONFIG, SFT_CONFIG, TRAINING_ARGUMENTS
from countermark.recipe.formats.rules import FieldRule, Inert, Refuses
from countermark.values import Sha256


class Opaque:
    """What an inert field holds: nothing that a reader could know."""


def neutral(table: dict[str, FieldRule]) -> dict[str, Any]:
    """A neutral value for each field that is refused otherwise, and something opaque for each inert one."""
    return {
        name: rule.neutral[0] if isinstance(rule, Refuses) else Opaque()
        for name, rule in table.items()
        if isinstance(rule, Refuses | Inert)
    }


def arguments(**changes: object) -> dict[str, object]:
    """The fields of a TrainingArguments."""
    return {
        **neutral(dict(TRAINING_ARGUMENTS)),
        "per_device_train_batch_size": 2,
        "num_train_epochs": 3.0,
        "max_steps": 20,
        "learning_rate": 2e-4,
        "lr_scheduler_type": "linear",
        "lr_scheduler_kwargs": None,
        "warmup_steps": 2,
        "optim": "adamw_torch",
        "weight_decay": 0.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "gradient_accumulation_steps": 2,
        "max_grad_norm": 1.0,
        "bf16": False,
        "fp16": False,
        "auto_find_batch_size": False,
        "seed": 17,
        "data_seed": 3,
        "accelerator_config": accelerator(),
        "train_sampling_strategy": "random",
        **changes,
    }


def accelerator(**changes: object) -> dict[str, object]:
    """The fields of an AcceleratorConfig."""
    return {**neutral(dict(ACCELERATOR_CONFIG)), "use_seedable_sampler": True, **changes}


def sft(**changes: object) -> dict[str, object]:
    """The fields of an SFTConfig."""
    return {
        **arguments(),
        **neutral(dict(SFT_CONFIG)),
        "max_length": 64,
        "shuffle_dataset": False,
        "packing": False,
        "packing_strategy": "bfd",
        "padding_free": False,
        "completion_only_loss": False,
        "assistant_only_loss": False,
        **changes,
    }


def lora(**changes: object) -> dict[str, object]:
    """The fields of a LoraConfig."""
    return {
        **neutral(dict(LORA_CONFIG)),
        "r": 4,
        "target_modules": {"v_proj", "q_proj"},
        "lora_alpha": 8,
        "lora_dropout": 0.05,
        "use_rslora": False,
        "init_lora_weights": True,
        "use_dora": False,
        **changes,
    }


def measured(**changes: Any) -> Measured:
    """What was measured beside them."""
    return Measured(
        **{
            "base_artifact": Sha256("b" * 64),
            "tokenization": Sha256("c" * 64),
            "dataset": Sha256("d" * 64),
            "storage": "float32",
            "adapter_storage": "float32",
            "packing": "none",
            "loss_mask": "all_tokens",
            "sequence_length": 64,
            **changes,
        }
    )
