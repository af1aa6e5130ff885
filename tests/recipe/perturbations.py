"""Two values for every leaf of the roster: what the controls of the Work key move.

``leaves_wanted`` is computed from the roster, so a coordinate or leaf without two values here turns the controls red.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from countermark.recipe import ENTRIES
from countermark.recipe.sums import own_leaves


@dataclass(frozen=True)
class Perturbation:
    """Two spellings of one coordinate that differ in one leaf alone."""

    coordinate: str
    a: str
    b: str


def _of(leaf: str, a: str, b: str) -> tuple[str, Perturbation]:
    return leaf, Perturbation(leaf.partition(".")[0], a, b)


def _adams() -> Iterator[tuple[str, Perturbation]]:
    for arm in ENTRIES["optimizer"].kind.arms:
        name, start = f"optimizer.{arm.arm}", f"{arm.arm}(beta1=0.9,beta2=0.999,eps=1e-8)"
        yield _of(f"{name}.beta1", start, f"{arm.arm}(beta1=0.95,beta2=0.999,eps=1e-8)")
        yield _of(f"{name}.beta2", start, f"{arm.arm}(beta1=0.9,beta2=0.95,eps=1e-8)")
        yield _of(f"{name}.eps", start, f"{arm.arm}(beta1=0.9,beta2=0.999,eps=0.000001)")


#: Leaf → two values. A leaf of an arm is ``coordinate.arm.leaf``; the choice between arms is ``coordinate.key``.
PERTURBATIONS: Final = dict(
    [
        _of("base_artifact", "sha256:" + "b" * 64, "sha256:" + "b" * 63 + "c"),
        _of("tokenization", "sha256:" + "c" * 64, "sha256:" + "d" * 64),
        _of("dataset", "sha256:" + "d" * 64, "sha256:" + "e" * 64),
        _of("data_order.order", "shuffle(algorithm=torch_randperm_epoch,seed=3)", "sequential"),
        _of(
            "data_order.shuffle.algorithm",
            "shuffle(algorithm=torch_randperm_epoch,seed=3)",
            "shuffle(algorithm=numpy_permutation,seed=3)",
        ),
        _of("data_order.shuffle.seed", "shuffle(algorithm=torch_randperm_epoch,seed=3)", "shuffle(algorithm=torch_randperm_epoch,seed=4)"),
        _of("seed", "17", "18"),
        _of("method.adapter", "lora(init=kaiming)", "dora(init=kaiming)"),
        _of("method.lora.init", "lora(init=kaiming)", "lora(init=gaussian)"),
        _of("method.dora.init", "dora(init=kaiming)", "dora(init=gaussian)"),
        _of("target_modules", "q_proj,v_proj", "q_proj"),
        _of("rank", "4", "8"),
        _of("scaling", "2", "2.000000000000001"),
        _of("dropout", "0", "1"),
        _of(
            "optimizer.implementation",
            "adamw_torch(beta1=0.9,beta2=0.999,eps=1e-8)",
            "adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)",
        ),
        *_adams(),
        _of("weight_decay", "0", "0.01"),
        _of("learning_rate", "0.0002", "0.0003"),
        _of("lr_schedule.schedule", "linear", "cosine"),
        _of("lr_schedule.cosine_with_restarts.cycles", "cosine_with_restarts(cycles=2)", "cosine_with_restarts(cycles=3)"),
        _of(
            "lr_schedule.cosine_with_min_lr.min_lr_rate",
            "cosine_with_min_lr(min_lr_rate=0.1)",
            "cosine_with_min_lr(min_lr_rate=0.2)",
        ),
        _of("lr_schedule.polynomial.lr_end", "polynomial(lr_end=1e-7,power=1)", "polynomial(lr_end=0,power=1)"),
        _of("lr_schedule.polynomial.power", "polynomial(lr_end=0,power=1)", "polynomial(lr_end=0,power=2)"),
        _of("lr_schedule.inverse_sqrt.timescale", "inverse_sqrt(timescale=10)", "inverse_sqrt(timescale=11)"),
        _of(
            "lr_schedule.warmup_stable_decay.decay_steps",
            "warmup_stable_decay(decay_steps=5,decay_shape=linear,min_lr_rate=0)",
            "warmup_stable_decay(decay_steps=6,decay_shape=linear,min_lr_rate=0)",
        ),
        _of(
            "lr_schedule.warmup_stable_decay.decay_shape",
            "warmup_stable_decay(decay_steps=5,decay_shape=linear,min_lr_rate=0)",
            "warmup_stable_decay(decay_steps=5,decay_shape=1-sqrt,min_lr_rate=0)",
        ),
        _of(
            "lr_schedule.warmup_stable_decay.min_lr_rate",
            "warmup_stable_decay(decay_steps=5,decay_shape=linear,min_lr_rate=0)",
            "warmup_stable_decay(decay_steps=5,decay_shape=linear,min_lr_rate=0.1)",
        ),
        _of("warmup_steps", "0", "2"),
        _of("total_steps", "20", "21"),
        _of("max_grad_norm.clip", "off", "1"),
        _of("max_grad_norm", "1", "2"),
        _of("numeric_format", "fp32", "fp32_bf16amp"),
        _of("sequence_length", "64", "65"),
        _of("packing", "none", "bfd"),
        _of("loss_mask", "all_tokens", "completion_only"),
        _of("micro_batch", "2", "4"),
        _of("gradient_accumulation", "2", "1"),
    ]
)


def leaves_wanted() -> set[str]:
    """Every leaf that needs two values: plain coordinates, choices between forms, and the leaves of each arm."""
    wanted: set[str] = set()
    for name, entry in ENTRIES.items():
        if entry.kind.plain:
            wanted.add(name)
        if entry.kind.arms:
            wanted.add(f"{name}.{entry.kind.key}")
        wanted |= {f"{name}.{arm.arm}.{leaf}" for arm in entry.kind.arms for leaf in own_leaves(arm)}
    return wanted
