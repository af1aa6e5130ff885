"""The types of the coordinates that are no plain numbers and digests: each reads, checks and spells itself.

Rules kept here:

1. No deferral can be represented: there is no ``auto``, ``latest``, null or -1 in any of these types.
2. Canonical means effective: what a trainer computes alike is one value (a cosine with one restart is the cosine), what differs in bits is
   two (``adamw_torch`` and ``adamw_torch_fused``).
3. An arm carries what its computation reads and nothing else; every arm can be built by Transformers 5 with PEFT, and read off its objects.
"""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Final, Self, TypeAlias, cast, final

from countermark.recipe.deferrals import SHORTHANDS
from countermark.recipe.numbers import DecayRate, NonNegativeReal, PositiveReal, Several
from countermark.recipe.sums import Arm
from countermark.values import U64, PositiveInt, Unreadable, shown

# ------------------------------------------------------------------------------------------------------- closed words


@dataclass(frozen=True, slots=True)
class _Word:
    """One word out of a closed list; ``words`` says what each means."""

    word: str
    words: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        if self.word not in self.words:
            raise ValueError(f"{type(self).__name__}: {shown(self.word)} is none of {', '.join(self.words)}")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        if isinstance(raw, str) and raw in cls.words:
            return cls(raw)
        return Unreadable("it must be one of " + ", ".join(cls.words))

    def spell(self) -> str:
        return self.word

    def __str__(self) -> str:
        return self.word


@final
@dataclass(frozen=True, slots=True)
class NumericFormat(_Word):
    """How the base's numbers are stored × how they are computed with; one word means two things in two tools."""

    words: ClassVar[dict[str, str]] = {
        "fp32": "stored and computed in float32",
        "fp32_bf16amp": "stored in float32, computed under bfloat16 autocast",
        "bf16_bf16amp": "stored in bfloat16, computed under bfloat16 autocast",
        "bf16_pure": "stored and computed in bfloat16, without autocast",
        "fp32_fp16amp": "stored in float32, computed under float16 autocast with loss scaling",
        "nf4_bf16": "stored in 4-bit NormalFloat, computed in bfloat16",
        "nf4dq_bf16": "stored in 4-bit NormalFloat with quantized constants, computed in bfloat16",
        "int8_bf16": "stored in 8-bit integers, computed in bfloat16",
    }


@final
@dataclass(frozen=True, slots=True)
class Packing(_Word):
    """How rows share a sequence."""

    words: ClassVar[dict[str, str]] = {
        "none": "one row, one sequence",
        "concat_split": "rows are joined end to end and cut at the sequence length, in the middle of rows too",
        "bfd": "best-fit decreasing; what exceeds the sequence length is cut off",
        "bfd_split": "best-fit decreasing; what exceeds the sequence length is split off and packed too",
        "first_fit": "each row goes into the first sequence that has room",
        "flatten": "the rows of a micro batch are laid end to end without padding",
    }


@final
@dataclass(frozen=True, slots=True)
class LossMask(_Word):
    """Which tokens the loss is taken over."""

    words: ClassVar[dict[str, str]] = {
        "all_tokens": "every token of the row",
        "completion_only": "the completion, not the prompt",
        "assistant_only": "what the assistant says, in every turn",
        "last_turn": "the last turn",
    }


@final
@dataclass(frozen=True, slots=True)
class AdapterInit(_Word):
    """How an adapter's matrices begin. Ways that need data or settings of their own, or that take the start off the base (after which the
    adapter fits no base artifact any more), have no word here."""

    words: ClassVar[dict[str, str]] = {
        "kaiming": "A uniform by Kaiming (a = √5), B zero: PEFT's own default",
        "gaussian": "A normal with standard deviation 1/rank, B zero",
        "orthogonal": "rows of A and columns of B from one orthogonal matrix",
    }


@final
@dataclass(frozen=True, slots=True)
class ShuffleAlgorithm(_Word):
    """Which order a shuffle's seed gives, for n rows in epoch e (from 0)."""

    words: ClassVar[dict[str, str]] = {
        "torch_randperm_epoch": "torch.randperm(n) by a CPU generator seeded with seed + e: Accelerate's SeedableRandomSampler, which the "
        "Transformers Trainer uses",
        "numpy_permutation": "numpy.random.default_rng(seed).permutation(n), the same in every epoch: Dataset.shuffle of datasets",
    }


# ------------------------------------------------------------------------------------------------------------- module names

_MODULE: Final = re.compile(r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*", re.ASCII)
_MODULE_LENGTH_MAX: Final = 400


@final
@dataclass(frozen=True, slots=True)
class ModuleNames:
    """A non-empty set of resolved module names, sorted and unique. A name stands for every module that it is, or ends (after a dot), as
    PEFT matches them; so a longer name beside its own ending says nothing and is left out."""

    names: tuple[str, ...]
    of_modules: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.names or _canonical(self.names) != self.names or any(_no_module(name) for name in self.names):
            raise ValueError("module names are a sorted set of at least one dotted name, none of which another one ends")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        items = raw.split(",") if isinstance(raw, str) else raw
        if not isinstance(items, Sequence | Set) or isinstance(items, bytes | bytearray):
            return Unreadable("it must be a list of module names")
        names: list[str] = []
        for item in cast("Sequence[object] | Set[object]", items):
            if not isinstance(item, str) or len(item) > _MODULE_LENGTH_MAX:
                return Unreadable(f"{shown(item)} is no module name")
            if why := _no_module(item.strip()):
                return Unreadable(why)
            names.append(item.strip())
        return cls(_canonical(tuple(names))) if names else Unreadable("it names no module")

    def spell(self) -> str:
        return ",".join(self.names)

    def __str__(self) -> str:
        return self.spell()


def _no_module(name: str) -> str:
    """Why a text is no module's name; empty for one that is."""
    if name.lower() in SHORTHANDS:
        return f"{name} stands for whatever the model has"
    return "" if _MODULE.fullmatch(name) else f"{shown(name)} is no module name, and a pattern stands for whatever the model has"


def _canonical(names: tuple[str, ...]) -> tuple[str, ...]:
    """The sorted set without names that another one covers."""
    kept = set(names)
    endings = {name: {name[place + 1 :] for place, letter in enumerate(name) if letter == "."} for name in kept}
    return tuple(sorted(name for name in kept if not endings[name] & kept))


# ------------------------------------------------------------------------------------------------------------ data order


@final
@dataclass(frozen=True, slots=True)
class Sequential(Arm):
    """Rows are fed in the dataset's order, epoch after epoch."""

    arm: ClassVar[str] = "sequential"
    key: ClassVar[str] = "order"


@final
@dataclass(frozen=True, slots=True)
class SeededShuffle(Arm):
    """Rows are shuffled by a named algorithm with a seed of its own."""

    algorithm: ShuffleAlgorithm
    seed: U64
    arm: ClassVar[str] = "shuffle"
    key: ClassVar[str] = "order"


DataOrder: TypeAlias = Sequential | SeededShuffle

# ------------------------------------------------------------------------------------------------------------ optimizers


@dataclass(frozen=True, slots=True)
class _Adam(Arm):
    """Adam with decoupled weight decay, steered by exactly three numbers."""

    beta1: DecayRate
    beta2: DecayRate
    eps: NonNegativeReal
    key: ClassVar[str] = "implementation"


@final
@dataclass(frozen=True, slots=True)
class AdamwTorch(_Adam):
    """PyTorch's AdamW."""

    arm: ClassVar[str] = "adamw_torch"


@final
@dataclass(frozen=True, slots=True)
class AdamwTorchFused(_Adam):
    """PyTorch's AdamW in one fused kernel; its bits differ."""

    arm: ClassVar[str] = "adamw_torch_fused"


@final
@dataclass(frozen=True, slots=True)
class AdamwTorch8bit(_Adam):
    """torchao's AdamW with 8-bit state."""

    arm: ClassVar[str] = "adamw_torch_8bit"


@final
@dataclass(frozen=True, slots=True)
class AdamwTorch4bit(_Adam):
    """torchao's AdamW with 4-bit state."""

    arm: ClassVar[str] = "adamw_torch_4bit"


@final
@dataclass(frozen=True, slots=True)
class AdamwBnb8bit(_Adam):
    """bitsandbytes' AdamW with 8-bit state; ``adamw_8bit`` is another spelling of it."""

    arm: ClassVar[str] = "adamw_bnb_8bit"


@final
@dataclass(frozen=True, slots=True)
class PagedAdamw32bit(_Adam):
    """bitsandbytes' AdamW with 32-bit state that pages to the host."""

    arm: ClassVar[str] = "paged_adamw_32bit"


@final
@dataclass(frozen=True, slots=True)
class PagedAdamw8bit(_Adam):
    """bitsandbytes' AdamW with 8-bit state that pages to the host."""

    arm: ClassVar[str] = "paged_adamw_8bit"


Optimizer: TypeAlias = AdamwTorch | AdamwTorchFused | AdamwTorch8bit | AdamwTorch4bit | AdamwBnb8bit | PagedAdamw32bit | PagedAdamw8bit

# ------------------------------------------------------------------------------------------------- learning-rate schedules


@dataclass(frozen=True, slots=True)
class _Schedule(Arm):
    """How the rate goes on after its linear warm-up over ``warmup_steps`` (0: none)."""

    key: ClassVar[str] = "schedule"


@final
@dataclass(frozen=True, slots=True)
class Constant(_Schedule):
    """It stays. Transformers' ``constant`` reads no warm-up, its ``constant_with_warmup`` does: 0 warm-up steps tell them apart."""

    arm: ClassVar[str] = "constant"


@final
@dataclass(frozen=True, slots=True)
class Linear(_Schedule):
    """Linearly to 0."""

    arm: ClassVar[str] = "linear"


@final
@dataclass(frozen=True, slots=True)
class Cosine(_Schedule):
    """Down to 0 along half a wave."""

    arm: ClassVar[str] = "cosine"


@final
@dataclass(frozen=True, slots=True)
class CosineWithRestarts(_Schedule):
    """Down to 0 along half a wave, ``cycles`` times over; once is the plain cosine, which would then have two names."""

    cycles: Several
    arm: ClassVar[str] = "cosine_with_restarts"


@final
@dataclass(frozen=True, slots=True)
class CosineWithMinLr(_Schedule):
    """Along half a wave down to ``min_lr_rate`` times the learning rate."""

    min_lr_rate: PositiveReal
    arm: ClassVar[str] = "cosine_with_min_lr"


@final
@dataclass(frozen=True, slots=True)
class Polynomial(_Schedule):
    """Along a polynomial of degree ``power`` down to ``lr_end``."""

    lr_end: NonNegativeReal
    power: PositiveReal
    arm: ClassVar[str] = "polynomial"


@final
@dataclass(frozen=True, slots=True)
class InverseSqrt(_Schedule):
    """With the inverse square root of the step; ``timescale`` in optimizer steps."""

    timescale: PositiveInt
    arm: ClassVar[str] = "inverse_sqrt"


@final
@dataclass(frozen=True, slots=True)
class DecayShape(_Word):
    """Along what the last phase goes down."""

    words: ClassVar[dict[str, str]] = {"linear": "a line", "cosine": "half a wave", "1-sqrt": "one minus a square root"}


@final
@dataclass(frozen=True, slots=True)
class WarmupStableDecay(_Schedule):
    """It stays until ``decay_steps`` before the end, and then goes down to ``min_lr_rate`` times the learning rate, from where it came."""

    decay_steps: PositiveInt
    decay_shape: DecayShape
    min_lr_rate: NonNegativeReal
    arm: ClassVar[str] = "warmup_stable_decay"


LrSchedule: TypeAlias = Constant | Linear | Cosine | CosineWithRestarts | CosineWithMinLr | Polynomial | InverseSqrt | WarmupStableDecay

# ---------------------------------------------------------------------------------------------------------- gradient norm


@final
@dataclass(frozen=True, slots=True)
class Off(Arm):
    """Gradients are not clipped: a value, not a deferral."""

    arm: ClassVar[str] = "off"
    key: ClassVar[str] = "clip"


MaxGradNorm: TypeAlias = Off | PositiveReal
