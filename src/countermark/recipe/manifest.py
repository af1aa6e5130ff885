"""The manifest: one exact computation, and the roster of its 23 coordinates.

Rules kept here:

1. The manifest type *is* the roster. Its fields are the coordinates, those of ``method``'s arms included; everything else (key,
   comparison, JSON, docs) iterates them. Adding a coordinate is one line.
2. The method is a sum of products: rank, scaling, dropout and targets belong to the low-rank arms, because a coordinate that the trainer
   never reads must not be writable.
3. What follows from coordinates (global batch, alpha, epochs, the Work key) is derived and never stored.
4. ``differing`` gives the whole population of differences, leaf by leaf.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, TypeAlias, cast, final

from countermark.recipe.coordinates import (
    AdapterInit,
    DataOrder,
    LossMask,
    LrSchedule,
    MaxGradNorm,
    ModuleNames,
    NumericFormat,
    Optimizer,
    Packing,
)
from countermark.recipe.numbers import NonNegativeReal, PositiveReal
from countermark.recipe.sums import Arm, Coordinate, Form, Kind, Says, coordinates_of_arm, kind_of, own_leaves, read_kind, unwrapped
from countermark.values import U64, NonEmpty, NonNegativeInt, PerMille, PositiveInt, Refused, Sha256, Unreadable, shown


@dataclass(frozen=True, slots=True)
class LowRank(Arm):
    """A low-rank adaptation: what the arms of ``method`` share. ``init`` is a leaf of ``method``; the others are coordinates."""

    init: AdapterInit
    target_modules: Annotated[
        ModuleNames,
        Says(
            "the modules that are adapted, by resolved name",
            'name them: target_modules = ["q_proj", "v_proj"]; what all-linear means is decided by a model',
        ),
    ]
    rank: Annotated[PositiveInt, Says("the rank of the update", "write it: rank = 16; an absent rank is 16 in one tool and 8 in another")]
    scaling: Annotated[
        PositiveReal,
        Says("the float64 that the update is multiplied by", "write alpha / rank, or alpha / sqrt(rank) with rsLoRA: scaling = 2"),
    ]
    dropout: Annotated[
        PerMille, Says("the adapter's dropout, in thousandths", "write thousandths from 0 to 1000 or a rate below 1: dropout = 50")
    ]
    key: ClassVar[str] = "adapter"


@final
@dataclass(frozen=True, slots=True)
class Lora(LowRank):
    """Low-rank adaptation."""

    arm: ClassVar[str] = "lora"


@final
@dataclass(frozen=True, slots=True)
class Dora(LowRank):
    """Weight-decomposed low-rank adaptation."""

    arm: ClassVar[str] = "dora"


Method: TypeAlias = Lora | Dora

_ORDER_PIN: Final = 'write data_order = "sequential", or { order = "shuffle", algorithm = "torch_randperm_epoch", seed = 3 }'
_OPTIMIZER_PIN: Final = 'write optimizer = { implementation = "adamw_torch", beta1 = 0.9, beta2 = 0.999, eps = 1e-8 }'


@final
@dataclass(frozen=True, slots=True)
class Manifest:
    """One computation, with nothing left open."""

    base_artifact: Annotated[Sha256, Says("the start point: weights and configuration", "name the folder in sources.model and use --pin")]
    tokenization: Annotated[
        Sha256, Says("tokenizer files, special ids, chat template", "name the folder in sources.tokenizer and use --pin")
    ]
    dataset: Annotated[Sha256, Says("the rows, in order, before any template", "name the file in sources.dataset and use --pin")]
    data_order: Annotated[DataOrder, Says("the order in which rows are fed", _ORDER_PIN)]
    seed: Annotated[U64, Says("what adapter initialization and dropout draw from", "write it: seed = 17")]
    method: Annotated[Method, Says("the kind of adaptation, and how it begins", 'write method = "lora(init=kaiming)"')]
    optimizer: Annotated[Optimizer, Says("the optimizer's implementation and its numbers", _OPTIMIZER_PIN)]
    weight_decay: Annotated[NonNegativeReal, Says("the decoupled weight decay", "write it: weight_decay = 0")]
    learning_rate: Annotated[PositiveReal, Says("the peak learning rate", "write it: learning_rate = 2e-4")]
    lr_schedule: Annotated[LrSchedule, Says("how the learning rate moves after its warm-up", 'write it: lr_schedule = "linear"')]
    warmup_steps: Annotated[NonNegativeInt, Says("the linear warm-up, in optimizer steps", "write steps, no ratio: warmup_steps = 0")]
    total_steps: Annotated[PositiveInt, Says("the length of the run, in optimizer steps", "write steps, no epochs: total_steps = 200")]
    max_grad_norm: Annotated[MaxGradNorm, Says("the norm that gradients are clipped to", 'write max_grad_norm = 1, or "off"')]
    numeric_format: Annotated[NumericFormat, Says("how numbers are stored, and computed with", 'write it: numeric_format = "fp32"')]
    sequence_length: Annotated[PositiveInt, Says("the longest sequence, in tokens", "write it: sequence_length = 512")]
    packing: Annotated[Packing, Says("how rows share a sequence", 'write it: packing = "none"')]
    loss_mask: Annotated[LossMask, Says("which tokens the loss is taken over", 'write it: loss_mask = "all_tokens"')]
    micro_batch: Annotated[PositiveInt, Says("rows in one forward pass", "write it: micro_batch = 4")]
    gradient_accumulation: Annotated[PositiveInt, Says("micro batches in one optimizer step", "write it: gradient_accumulation = 1")]

    def global_batch(self) -> int:
        """Rows in one optimizer step."""
        return self.micro_batch.number * self.gradient_accumulation.number

    def alpha(self) -> float:
        """The alpha of plain LoRA for which alpha / rank is ``scaling``, to the bit. Raises ``ValueError`` where no float64 is that alpha:
        of all of them the product is the nearest to it."""
        scaling, rank = float(self.method.scaling), self.method.rank.number
        alpha = scaling * rank
        if alpha / rank != scaling:
            raise ValueError(f"no alpha divided by the rank {rank} is {scaling!r}")
        return alpha

    def epochs(self, rows: int) -> float:
        """How often ``rows`` rows are gone through in ``total_steps``, the last batch of an epoch being as short as it comes out."""
        return self.total_steps.number / -(-rows // self.global_batch())


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the roster: the coordinate, what it says, how it is read, and the manifest's field that holds it."""

    name: str
    says: Says
    kind: Kind
    field: str


def _roster() -> dict[str, Entry]:
    """The roster, read off the manifest's fields; a coordinate with arms is followed by the coordinates that belong to its arms."""
    found: dict[str, Entry] = {}

    def take(name: str, annotation: object, field: str) -> None:
        says = unwrapped(annotation)[1]
        assert says is not None, name
        found[name] = Entry(name, says, kind_of(annotation), field)

    for field in fields(Manifest):
        take(field.name, field.type, field.name)
        for arm in found[field.name].kind.arms:
            for name, annotation in coordinates_of_arm(arm).items():
                take(name, annotation, field.name)
    return found


#: The roster by name, in its order.
ENTRIES: Final[Mapping[str, Entry]] = MappingProxyType(_roster())
ROSTER: Final[tuple[str, ...]] = tuple(ENTRIES)


def read_coordinate(name: str, raw: object) -> Coordinate | Unreadable:
    """The value of the coordinate ``name`` (one of ``ROSTER``), or why the input is none: every reason, in one clause."""
    value = read_kind(raw, ENTRIES[name].kind)
    if not isinstance(value, tuple):
        return value
    return Unreadable("; ".join(f"{problem.leaf}: {problem.why}" if problem.leaf else problem.why for problem in value))


def values_of(manifest: Manifest) -> dict[str, Coordinate]:
    """The 23 coordinates by name, in roster order."""
    found: dict[str, Coordinate] = {}
    for name, entry in ENTRIES.items():
        value = getattr(manifest, entry.field)
        found[name] = _form(value) if name == entry.field else getattr(value, name)
    return found


def _form(value: object) -> Coordinate:
    """A value as its own coordinate: an arm without the coordinates that belong to it."""
    if isinstance(value, Arm) and coordinates_of_arm(type(value)):
        return Form(type(value), tuple((leaf, getattr(value, leaf)) for leaf in own_leaves(type(value))))
    return cast("Coordinate", value)


def spellings(manifest: Manifest) -> dict[str, str]:
    """The 23 canonical spellings by name, in roster order: the manifest's JSON form."""
    return {name: value.spell() for name, value in values_of(manifest).items()}


@lru_cache(maxsize=64)
def spelled(manifest: Manifest) -> Mapping[str, str]:
    """``spellings``, kept: many runs, attempts and checkpoints are held against few manifests."""
    return MappingProxyType(spellings(manifest))


def manifest_of(values: Mapping[str, Coordinate]) -> Manifest:
    """The manifest of 23 coordinate values. Raises ``KeyError`` when one is missing: callers name that first."""
    built: dict[str, Any] = {}
    for field in fields(Manifest):
        value = values[field.name]
        if isinstance(value, Form):
            belonging = {name: values[name] for name in coordinates_of_arm(value.kind)}
            built[field.name] = cast("Any", value.kind)(**dict(value.leaves), **belonging)
        else:
            built[field.name] = value
    return Manifest(**built)


@final
@dataclass(frozen=True, slots=True)
class CoordinateMissing:
    """A stored manifest lacks a coordinate."""

    coordinate: str


@final
@dataclass(frozen=True, slots=True)
class CoordinateUnreadable:
    """A stored manifest's coordinate cannot be read; ``why`` is a clause that fits after "because"."""

    coordinate: str
    found: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class CoordinateUnknown:
    """A stored manifest has something that is no coordinate."""

    coordinate: str


ManifestDefect = CoordinateMissing | CoordinateUnreadable | CoordinateUnknown


def manifest_from_spellings(stored: Mapping[str, object]) -> Manifest | Refused[ManifestDefect]:
    """The manifest of stored spellings, or everything that is wrong with them. A spelling that is not canonical is unreadable here."""
    defects: list[ManifestDefect] = [CoordinateUnknown(str(name)) for name in stored if name not in ENTRIES]
    values: dict[str, Coordinate] = {}
    for name in ROSTER:
        if name not in stored:
            defects.append(CoordinateMissing(name))
            continue
        value = read_coordinate(name, stored[name])
        if isinstance(value, Unreadable):
            defects.append(CoordinateUnreadable(name, shown(stored[name]), value.why))
        elif value.spell() != stored[name]:
            defects.append(CoordinateUnreadable(name, shown(stored[name]), f"its canonical spelling is {value.spell()}"))
        else:
            values[name] = value
    found = NonEmpty.of(defects)
    return manifest_of(values) if found is None else Refused(found)


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """One differing coordinate, or leaf of one (``leaf`` is ``coordinate.leaf`` or the coordinate itself), with both spellings."""

    coordinate: str
    leaf: str
    a: str
    b: str


def leaves_of(name: str, value: Coordinate) -> dict[str, str]:
    """A coordinate's leaves with their spellings, the choice of its arm among them; a coordinate without leaves is its own."""
    if isinstance(value, Form):
        kind, leaves = value.kind, dict(value.leaves)
    elif isinstance(value, Arm):
        kind, leaves = type(value), {leaf: getattr(value, leaf) for leaf in own_leaves(type(value))}
    else:
        return {name: value.spell()}
    return {f"{name}.{kind.key}": kind.arm, **{f"{name}.{leaf}": inner.spell() for leaf, inner in leaves.items()}}


def differing(a: Manifest, b: Manifest) -> tuple[Difference, ...]:
    """Every coordinate in which the two differ: leaf by leaf where both have the same leaves, as a whole otherwise."""
    left, right = values_of(a), values_of(b)
    found: list[Difference] = []
    for name in ROSTER:
        if left[name] == right[name]:
            continue
        ours, theirs = leaves_of(name, left[name]), leaves_of(name, right[name])
        if ours.keys() != theirs.keys():
            found.append(Difference(name, name, left[name].spell(), right[name].spell()))
        else:
            found += (Difference(name, leaf, ours[leaf], theirs[leaf]) for leaf in ours if ours[leaf] != theirs[leaf])
    return tuple(found)
