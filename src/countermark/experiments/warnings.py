"""What there is to be wary of when two arms are compared: each a class, whose stable code is its name in capitals.

Rules kept here:

1. ``ComparisonWarning`` is closed and is the one roster of codes. Every warning that holds is told, in the order of the roster.
2. What one side has and the other does not say counts as different: nobody can hold it to be the same.
3. An experiment that regrades the other's outputs has the same weights and the same outputs by design, and is not warned of for that.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final, get_args

from countermark.experiments.samples import Key, spelled_stamp
from countermark.experiments.sides import Counts, Join, Reduced, Side, counts, outputs
from countermark.experiments.specs import told
from countermark.experiments.stamps import sameness

#: Fewer pairs than so many are few.
FEW_BELOW: Final = 30
#: Samples that a warning names.
NAMED_MAX: Final = 20


@final
@dataclass(frozen=True, slots=True)
class SameWeights:
    """Both sides ran the same weights."""

    a: str
    b: str
    digest: str


@final
@dataclass(frozen=True, slots=True)
class OneSidedStamp:
    """One side says which weights ran, the other does not."""

    stamped: str
    unstamped: str


@final
@dataclass(frozen=True, slots=True)
class NoStamp:
    """Neither side says which weights ran."""

    sides: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class AssertedOnly:
    """Nobody measured the weights of these sides: their digests are as they were given."""

    sides: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class CannotTell:
    """The digests of both sides are of unlike kinds, and say nothing of each other."""

    a: str
    b: str
    digest_a: str
    digest_b: str


@final
@dataclass(frozen=True, slots=True)
class DatasetDiffers:
    """Both sides were not shown to have been asked the same; ``changed`` pairs have one id and say something else."""

    a: str
    b: str
    dataset_a: str | None
    dataset_b: str | None
    changed: int


@final
@dataclass(frozen=True, slots=True)
class GraderDiffers:
    """Both sides were not shown to have been graded alike."""

    a: str
    b: str
    grader_a: str | None
    grader_b: str | None


@final
@dataclass(frozen=True, slots=True)
class DecodingDiffers:
    """Both sides were not shown to have decoded alike."""

    a: str
    b: str
    decoding_a: str | None
    decoding_b: str | None


@final
@dataclass(frozen=True, slots=True)
class SeedUnrecorded:
    """These sides do not say which seed they used; one that they were given need not have reached what draws."""

    sides: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class RepeatsDiffer:
    """Both sides ran unlike often."""

    a: str
    b: str
    repeats_a: int
    repeats_b: int


@final
@dataclass(frozen=True, slots=True)
class DuplicateId:
    """A side told of samples more than once; each counts once. The first of them are named."""

    side: str
    samples: tuple[str, ...]
    count: int


@final
@dataclass(frozen=True, slots=True)
class CachedSamples:
    """Samples of a side came from a cache, and not from its weights; ``count`` is None where only that a cache was on is known."""

    side: str
    count: int | None


@final
@dataclass(frozen=True, slots=True)
class MixedStamps:
    """The samples of a side come from attempts under several stamps."""

    side: str
    stamps: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class PartialRun:
    """Not everything that was asked of a side is scored."""

    side: str
    asked: int
    scored: int
    unscored: int
    errored: int
    missing: int


@final
@dataclass(frozen=True, slots=True)
class IdenticalOutputs:
    """Every output of these sides is the same, byte for byte, and their weights are not known to be: the weights, or an adapter, were
    probably not loaded."""

    sides: tuple[str, ...]
    outputs: int


@final
@dataclass(frozen=True, slots=True)
class ScoresDifferSameWeights:
    """The same weights got other scores: something else than the weights differs, or answers are drawn."""

    a: str
    b: str
    metrics: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class FewPairs:
    """A metric with the few pairs that it has."""

    name: str
    n: int


@final
@dataclass(frozen=True, slots=True)
class LowN:
    """So few pairs that hardly any difference could be resolved."""

    a: str
    b: str
    metrics: tuple[FewPairs, ...]
    few_below: int


@final
@dataclass(frozen=True, slots=True)
class ZeroVariance:
    """The differences of these metrics are all alike: nothing can be said of how much they would vary."""

    a: str
    b: str
    metrics: tuple[str, ...]


ComparisonWarning = (
    SameWeights | OneSidedStamp | NoStamp | AssertedOnly | CannotTell | DatasetDiffers | GraderDiffers | DecodingDiffers | SeedUnrecorded
    | RepeatsDiffer | DuplicateId | CachedSamples | MixedStamps | PartialRun | IdenticalOutputs | ScoresDifferSameWeights | LowN
    | ZeroVariance
)  # fmt: skip

_HUMP: Final = re.compile(r"(?<!^)(?=[A-Z])")


def code_of(kind: type[ComparisonWarning]) -> str:
    """The stable code of a warning: ``SAME_WEIGHTS``."""
    return _HUMP.sub("_", kind.__name__).upper()


#: Every warning's class by its code, in the order of the roster.
WARNING_CODES: Final[Mapping[str, type[ComparisonWarning]]] = {code_of(kind): kind for kind in get_args(ComparisonWarning)}
_ORDER: Final = {kind: at for at, kind in enumerate(get_args(ComparisonWarning))}


def pair_warnings(
    a: Side, b: Side, joined: Join, scores: tuple[Reduced, Reduced], spreads: Sequence[tuple[str, int, bool]]
) -> tuple[ComparisonWarning, ...]:
    """Everything to be wary of. ``scores`` are those of ``a`` and of ``b``; ``spreads`` are the compared metrics, each with its pairs and
    whether its differences are all alike."""
    return (
        *_of_weights(a, b),
        *_of_conditions(a, b, joined),
        *(found for side in (a, b) for found in _of_side(side)),
        *_of_answers(a, b, joined, scores),
        *_of_numbers(a, b, spreads),
    )


def _regrades(a: Side, b: Side) -> bool:
    return b.regrades == a.experiment or a.regrades == b.experiment or (a.regrades is not None and a.regrades == b.regrades)


def _of_weights(a: Side, b: Side) -> tuple[ComparisonWarning, ...]:
    if a.stamp is None or b.stamp is None:
        if a.stamp is None and b.stamp is None:
            return (NoStamp((a.name, b.name)),)
        stamped, unstamped = (a, b) if b.stamp is None else (b, a)
        return (OneSidedStamp(stamped.name, unstamped.name), *_asserted(stamped))
    digests = a.stamp.digest.spell(), b.stamp.digest.spell()
    found: list[ComparisonWarning] = []
    match sameness(a.stamp, b.stamp):
        case "same":
            found.extend(() if _regrades(a, b) else (SameWeights(a.name, b.name, digests[0]),))
        case "cannot_tell":
            found.append(CannotTell(a.name, b.name, *digests))
        case "different":
            pass
    return (*found, *_asserted(a, b))


def _asserted(*sides: Side) -> tuple[ComparisonWarning, ...]:
    names = tuple(side.name for side in sides if side.stamp is not None and side.stamp.ran == "asserted")
    return (AssertedOnly(names),) if names else ()


def _of_conditions(a: Side, b: Side, joined: Join) -> tuple[ComparisonWarning, ...]:
    found: list[ComparisonWarning] = []
    if a.dataset != b.dataset or joined.changed:
        found.append(DatasetDiffers(a.name, b.name, told(a.dataset), told(b.dataset), joined.changed))
    if a.grader != b.grader:
        found.append(GraderDiffers(a.name, b.name, told(a.grader), told(b.grader)))
    if a.decoding != b.decoding:
        said = (None if each.decoding is None else each.decoding.text for each in (a, b))
        found.append(DecodingDiffers(a.name, b.name, *said))
    if unsaid := tuple(side.name for side in (a, b) if side.seed_used is None):
        found.append(SeedUnrecorded(unsaid))
    if a.repeats != b.repeats:
        found.append(RepeatsDiffer(a.name, b.name, a.repeats, b.repeats))
    return tuple(found)


def _of_side(side: Side) -> tuple[ComparisonWarning, ...]:
    found: list[ComparisonWarning] = []
    known = counts(side)
    if side.came.duplicates:
        named = tuple(_named(key) for key in side.came.duplicates[:NAMED_MAX])
        found.append(DuplicateId(side.name, named, len(side.came.duplicates)))
    if known.cached or side.cache_uncounted:
        found.append(CachedSamples(side.name, known.cached or None))
    if len(side.came.stamps) > 1:
        found.append(MixedStamps(side.name, tuple(map(spelled_stamp, side.came.stamps))))
    return (*found, *_partial(side, known))


def _partial(side: Side, known: Counts) -> tuple[ComparisonWarning, ...]:
    if known.scored == known.asked:
        return ()
    return (PartialRun(side.name, known.asked, known.scored, known.unscored, known.errored, known.missing),)


def _named(key: Key) -> str:
    return key[0] if key[1] == 0 else f"{key[0]} (repeat {key[1]})"


def _of_answers(a: Side, b: Side, joined: Join, scores: tuple[Reduced, Reduced]) -> tuple[ComparisonWarning, ...]:
    same = a.stamp is not None and b.stamp is not None and sameness(a.stamp, b.stamp) == "same"
    if _regrades(a, b):
        return ()
    if same:
        metrics = _unlike_scores(joined, *scores)
        return (ScoresDifferSameWeights(a.name, b.name, metrics),) if metrics else ()
    in_a, in_b = outputs(a), outputs(b)
    both = 0
    for one, other in joined.pairs:
        for repeat in range(min(a.repeats, b.repeats)):
            told_a, told_b = in_a.get((one, repeat)), in_b.get((other, repeat))
            if told_a is None or told_b is None:
                continue
            if told_a != told_b:
                return ()
            both += 1
    return (IdenticalOutputs((a.name, b.name), both),) if both else ()


def _unlike_scores(joined: Join, scores_a: Reduced, scores_b: Reduced) -> tuple[str, ...]:
    unlike: list[str] = []
    for metric in scores_a.found:
        in_a, in_b = scores_a.values(metric), scores_b.values(metric)
        if any(one in in_a and other in in_b and in_a[one] != in_b[other] for one, other in joined.pairs):
            unlike.append(metric)
    return tuple(unlike)


def _of_numbers(a: Side, b: Side, spreads: Sequence[tuple[str, int, bool]]) -> tuple[ComparisonWarning, ...]:
    found: list[ComparisonWarning] = []
    if few := tuple(FewPairs(name, n) for name, n, _ in spreads if n < FEW_BELOW):
        found.append(LowN(a.name, b.name, few, FEW_BELOW))
    if alike := tuple(name for name, _, is_alike in spreads if is_alike):
        found.append(ZeroVariance(a.name, b.name, alike))
    return tuple(found)


def merged(warnings: Iterable[ComparisonWarning]) -> tuple[ComparisonWarning, ...]:
    """The warnings of several pairs, each once, in the order of the roster; those that only list sides list all of them."""
    found: dict[ComparisonWarning, None] = {}
    listed: dict[type[NoStamp | AssertedOnly | SeedUnrecorded], dict[str, None]] = {}
    identical: list[IdenticalOutputs] = []
    for each in warnings:
        if isinstance(each, NoStamp | AssertedOnly | SeedUnrecorded):
            listed.setdefault(type(each), {}).update(dict.fromkeys(each.sides))
        elif isinstance(each, IdenticalOutputs):
            identical.append(each)
        else:
            found[each] = None
    for kind, sides in listed.items():
        found[kind(tuple(sides))] = None
    if identical:
        sides = dict.fromkeys(side for each in identical for side in each.sides)
        found[IdenticalOutputs(tuple(sides), min(each.outputs for each in identical))] = None
    return tuple(sorted(found, key=lambda each: _ORDER[type(each)]))
