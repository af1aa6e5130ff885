"""From a manifest to the arguments of Transformers, TRL and PEFT.

Rules kept here:

1. Every coordinate is handed over explicitly, also where a library's default is the same today: defaults move, coordinates do not.
2. What a library cannot do, or does otherwise than the coordinate says, is a reason to refuse; all reasons come at once.
3. These functions build plain arguments; they import nothing of the training stack.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from countermark.recipe import Manifest
from countermark.recipe.coordinates import (
    Constant,
    Cosine,
    CosineWithMinLr,
    CosineWithRestarts,
    InverseSqrt,
    Linear,
    Off,
    Polynomial,
    SeededShuffle,
    Sequential,
    WarmupStableDecay,
)
from countermark.recipe.manifest import Dora
from countermark.train.assignment import Assignment
from countermark.train.failures import CannotTrain

#: What NumPy's generator, which every trainer of this family seeds, takes at most.
SEED_MAX: Final = 2**32 - 1
#: Storage of the base, flags of autocast, and whether the adapter is kept in float32 whatever the base is stored in.
_AUTOCAST: Final[Mapping[str, tuple[str, bool, bool]]] = {
    "fp32": ("float32", False, False),
    "fp32_bf16amp": ("float32", True, False),
    "bf16_bf16amp": ("bfloat16", True, False),
    "bf16_pure": ("bfloat16", False, False),
    "fp32_fp16amp": ("float32", False, True),
}
#: The manifest's word for how an adapter begins → PEFT's.
INITIALIZATIONS: Final[Mapping[str, object]] = {"kaiming": True, "gaussian": "gaussian", "orthogonal": "orthogonal"}
_PACKINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "none": {"packing": False},
    "concat_split": {"packing": True, "packing_strategy": "wrapped"},
    "bfd": {"packing": True, "packing_strategy": "bfd"},
    "bfd_split": {"packing": True, "packing_strategy": "bfd_split"},
}


@final
@dataclass(frozen=True, slots=True)
class Numbers:
    """How the base is stored (a torch dtype's name), whether an autocast computes, and whether the adapter stays in float32."""

    storage: str
    bf16: bool
    fp16: bool
    adapter_in_float32: bool


def numbers_of(manifest: Manifest) -> Numbers:
    """How the manifest's numeric format is carried out. Raises ``CannotTrain`` for a quantized base."""
    word = manifest.numeric_format.word
    if word not in _AUTOCAST:
        raise CannotTrain(f"numeric_format {word}: this integration builds no quantized base. Use one of {', '.join(_AUTOCAST)}.")
    storage, bf16, fp16 = _AUTOCAST[word]
    return Numbers(storage, bf16, fp16, word != "bf16_pure")


def training_arguments(assignment: Assignment, *, cpu: bool) -> dict[str, object]:
    """The arguments of ``transformers.TrainingArguments``. Raises ``CannotTrain`` with every reason why there are none."""
    manifest, settings = assignment.manifest, assignment.settings
    reasons = [f"seed {manifest.seed.spell()}: trainers take seeds up to {SEED_MAX}."] if manifest.seed.number > SEED_MAX else []
    try:
        numbers = numbers_of(manifest)
    except CannotTrain as error:
        raise CannotTrain(*reasons, *error.reasons) from None
    if reasons:
        raise CannotTrain(*reasons)
    schedule, details = _schedule(manifest)
    optimizer = manifest.optimizer
    return {
        "output_dir": str(assignment.work),
        "per_device_train_batch_size": manifest.micro_batch.number,
        "gradient_accumulation_steps": manifest.gradient_accumulation.number,
        "max_steps": manifest.total_steps.number,
        "learning_rate": float(manifest.learning_rate),
        "lr_scheduler_type": schedule,
        "lr_scheduler_kwargs": details,
        "warmup_steps": manifest.warmup_steps.number,
        "optim": optimizer.arm,
        "adam_beta1": float(optimizer.beta1),
        "adam_beta2": float(optimizer.beta2),
        "adam_epsilon": float(optimizer.eps),
        "weight_decay": float(manifest.weight_decay),
        "max_grad_norm": 0.0 if isinstance(manifest.max_grad_norm, Off) else float(manifest.max_grad_norm),
        "seed": manifest.seed.number,
        **_order(manifest),
        "bf16": numbers.bf16,
        "fp16": numbers.fp16,
        "activation_checkpointing": False,
        "save_strategy": "steps",
        "save_steps": settings.save_steps,
        "save_total_limit": None,
        "logging_strategy": "steps",
        "logging_steps": settings.logging_steps,
        "dataloader_num_workers": settings.dataloader_workers,
        "dataloader_pin_memory": not cpu,
        "ignore_data_skip": False,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": cpu,
    }


def optimizer_arguments(manifest: Manifest) -> dict[str, object]:
    """The arguments of ``torch.optim.AdamW``, beside what it optimizes. ``fused`` is handed over where it is asked for: torch chooses among
    its other ways by itself, and they are one implementation."""
    optimizer = manifest.optimizer
    return {
        "lr": float(manifest.learning_rate),
        "betas": (float(optimizer.beta1), float(optimizer.beta2)),
        "eps": float(optimizer.eps),
        "weight_decay": float(manifest.weight_decay),
        **({"fused": True} if optimizer.arm == "adamw_torch_fused" else {}),
    }


def scheduler_arguments(manifest: Manifest) -> dict[str, object]:
    """The arguments of ``transformers.get_scheduler``, beside the optimizer."""
    name, details = _schedule(manifest)
    return {
        "name": name,
        "num_warmup_steps": manifest.warmup_steps.number,
        "num_training_steps": manifest.total_steps.number,
        "scheduler_specific_kwargs": details,
    }


def lightning_arguments(assignment: Assignment, *, cpu: bool) -> dict[str, object]:
    """The arguments of Lightning's ``Trainer``. Raises ``CannotTrain`` for a quantized base."""
    manifest, numbers = assignment.manifest, numbers_of(assignment.manifest)
    mixed = "bf16-mixed" if numbers.bf16 else "16-mixed" if numbers.fp16 else None
    return {
        "default_root_dir": str(assignment.work),
        "accelerator": "cpu" if cpu else "gpu",
        "devices": 1,
        "max_steps": manifest.total_steps.number,
        "max_epochs": -1,
        "accumulate_grad_batches": manifest.gradient_accumulation.number,
        "gradient_clip_val": None if isinstance(manifest.max_grad_norm, Off) else float(manifest.max_grad_norm),
        "gradient_clip_algorithm": "norm",
        "precision": mixed or ("32-true" if numbers.storage == "float32" else "bf16-true"),
        "log_every_n_steps": assignment.settings.logging_steps,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }


def accelerator_arguments(manifest: Manifest, *, cpu: bool) -> dict[str, object]:
    """The arguments of ``accelerate.Accelerator``. Raises ``CannotTrain`` for a quantized base."""
    numbers = numbers_of(manifest)
    return {
        "cpu": cpu,
        "mixed_precision": "bf16" if numbers.bf16 else "fp16" if numbers.fp16 else "no",
        "gradient_accumulation_steps": manifest.gradient_accumulation.number,
    }


def sft_config(assignment: Assignment, *, cpu: bool) -> dict[str, object]:
    """The arguments of ``trl.SFTConfig``. Raises ``CannotTrain`` with every reason why there are none."""
    manifest = assignment.manifest
    reasons: list[str] = []
    packing, mask = manifest.packing.word, manifest.loss_mask.word
    if packing not in _PACKINGS:
        reasons.append(f"packing {packing}: TRL packs by {', '.join(_PACKINGS)}.")
    if mask == "last_turn":
        reasons.append("loss_mask last_turn: TRL takes the loss over all tokens, the completion or what the assistant says.")
    if _permuted(manifest):
        reasons.append("data_order numpy_permutation: TRL would shuffle by the run's seed. Use Training.dataset() with a plain Trainer.")
    try:
        arguments = training_arguments(assignment, cpu=cpu)
    except CannotTrain as error:
        raise CannotTrain(*reasons, *error.reasons) from None
    if reasons:
        raise CannotTrain(*reasons)
    # TRL's own default is on, and its alias of the older name wins there.
    arguments["gradient_checkpointing"] = False
    return arguments | {
        "max_length": manifest.sequence_length.number,
        **_PACKINGS[packing],
        "completion_only_loss": mask == "completion_only",
        "assistant_only_loss": mask == "assistant_only",
        "shuffle_dataset": False,
        "pad_to_multiple_of": None,
        "loss_type": "nll",
    }


def lora_config(manifest: Manifest) -> dict[str, object]:
    """The arguments of ``peft.LoraConfig``. Raises ``CannotTrain`` where no alpha gives the scaling to the bit."""
    method = manifest.method
    try:
        alpha, root = _alpha(manifest)
    except ValueError as error:
        raise CannotTrain(f"scaling {method.scaling.spell()}: {error}, with rank-stabilized scaling or without.") from None
    return {
        "r": method.rank.number,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "use_rslora": root,
        "lora_dropout": method.dropout.number / 1000,
        "target_modules": list(method.target_modules.names),
        "init_lora_weights": INITIALIZATIONS[method.init.word],
        "use_dora": isinstance(method, Dora),
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }


def _alpha(manifest: Manifest) -> tuple[float, bool]:
    """The alpha that PEFT makes the scaling out of, to the bit, and whether it divides it by the root of the rank."""
    try:
        return manifest.alpha(), False
    except ValueError:
        scaling, root = float(manifest.method.scaling), math.sqrt(manifest.method.rank.number)
        near = scaling * root
        for alpha in (near, math.nextafter(near, 0), math.nextafter(near, math.inf)):
            if alpha / root == scaling:
                return alpha, True
        raise


def _permuted(manifest: Manifest) -> bool:
    order = manifest.data_order
    return isinstance(order, SeededShuffle) and order.algorithm.word == "numpy_permutation"


def _order(manifest: Manifest) -> dict[str, object]:
    """How rows are drawn. A permutation that is the same in every epoch is laid into the dataset, which is then fed in its order."""
    order = manifest.data_order
    match order:
        case Sequential():
            return {"train_sampling_strategy": "sequential"}
        case SeededShuffle(_, seed):
            if _permuted(manifest):
                return {"train_sampling_strategy": "sequential"}
            return {"train_sampling_strategy": "random", "data_seed": seed.number}


def _schedule(manifest: Manifest) -> tuple[str, dict[str, object]]:
    """The scheduler's name in Transformers, and its own arguments."""
    schedule = manifest.lr_schedule
    match schedule:
        case Constant():
            return ("constant_with_warmup" if manifest.warmup_steps.number else "constant"), {}
        case Linear():
            return "linear", {}
        case Cosine():
            return "cosine", {}
        case CosineWithRestarts(cycles):
            return "cosine_with_restarts", {"num_cycles": cycles.number}
        case CosineWithMinLr(min_lr_rate):
            return "cosine_with_min_lr", {"min_lr_rate": float(min_lr_rate)}
        case Polynomial(lr_end, power):
            return "polynomial", {"lr_end": float(lr_end), "power": float(power)}
        case InverseSqrt(timescale):
            return "inverse_sqrt", {"timescale": timescale.number}
        case WarmupStableDecay(decay_steps, decay_shape, min_lr_rate):
            ratio = float(min_lr_rate)
            return "warmup_stable_decay", {
                "num_decay_steps": decay_steps.number,
                "decay_type": decay_shape.word,
                "min_lr_ratio": ratio,
            }
