"""What the numbers of two arms say of each other.

Rules kept here:

1. Everything is over pairs: means, difference, interval and p speak of the ids that both sides have a score of.
2. Scores of samples are better upwards. Numbers that an arm gives of itself pair by repeat and are better downwards, unless named higher.
3. Binary scores get Newcombe's paired interval and exact McNemar; everything else the paired t; with clusters the clustered t, and never
   Newcombe. Which test spoke is said. A p by flipping signs stands beside it, and takes its place where it was asked for.
4. All p-values of one question are one family: Holm's correction is over every metric of every arm that is held against the first.
5. Nothing is ever said to be equal: a difference is resolved, or it is not and the smallest detectable one is told.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

from countermark.experiments.sides import Join, Reduced, Side, join, reduced
from countermark.experiments.statistics import (
    ALPHA,
    Bits,
    Estimate,
    Fourfold,
    Interval,
    SignFlip,
    binary_estimate,
    clustered_t,
    holm,
    mean,
    paired_t,
    sign_flip,
)
from countermark.experiments.warnings import ComparisonWarning, merged, pair_warnings
from countermark.values import NonEmpty, Refused

Test: TypeAlias = Literal["mcnemar", "paired_t", "clustered_t", "sign_flip"]
MetricKind: TypeAlias = Literal["score", "metric"]


@final
@dataclass(frozen=True, slots=True)
class Given:
    """Only the ids where a metric has a value, on both sides, are compared."""

    metric: str
    value: float = 1.0


@final
@dataclass(frozen=True, slots=True)
class Kept:
    """How many paired ids there were before a ``Given``, and after it."""

    given: Given
    before: int
    after: int


@final
@dataclass(frozen=True, slots=True)
class Flip:
    """A pair whose sides differ, with the value of each. ``wins`` says that B's is the better one."""

    id_a: str
    id_b: str
    a: float
    b: float
    wins: bool


@final
@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric on both sides; ``test`` names what ``p`` is of. ``p_adjusted`` is by Holm over ``family`` p-values."""

    name: str
    kind: MetricKind
    higher_is_better: bool
    n: int
    mean_a: float | None
    mean_b: float | None
    estimate: Estimate | None
    test: Test
    p: float | None
    p_adjusted: float | None
    family: int
    flipped: SignFlip | None
    wins: int
    losses: int
    ties: int
    clusters: int | None
    unscored_a: int
    unscored_b: int
    bounds_a: Interval | None
    bounds_b: Interval | None
    pairs: tuple[tuple[str, str], ...]
    values_a: tuple[float, ...]
    values_b: tuple[float, ...]

    @property
    def is_resolved(self) -> bool:
        """Whether the corrected p falls to 5 % or below."""
        return self.p_adjusted is not None and self.p_adjusted <= ALPHA

    @property
    def is_regression(self) -> bool:
        """Whether B is worse, and that is resolved."""
        if not self.is_resolved or self.estimate is None:
            return False
        return self.estimate.diff < 0 if self.higher_is_better else self.estimate.diff > 0

    def flips(self) -> Iterator[Flip]:
        """The pairs whose sides differ, in their order."""
        for (id_a, id_b), a, b in zip(self.pairs, self.values_a, self.values_b, strict=True):
            if a != b:
                yield Flip(id_a, id_b, a, b, (b > a) == self.higher_is_better)


@final
@dataclass(frozen=True, slots=True)
class PairComparison:
    """An arm held against the first one."""

    a: Side
    b: Side
    join: Join
    kept: Kept | None
    metrics: tuple[MetricComparison, ...]


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """Every arm that was held against the first, and what there is to be wary of."""

    pairs: NonEmpty[PairComparison]
    warnings: tuple[ComparisonWarning, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        """The first side, then the others."""
        return (self.pairs.first.a, *(pair.b for pair in self.pairs))


@final
@dataclass(frozen=True, slots=True)
class BaselineUnknown:
    """An experiment has no arm of the name that was to be the baseline."""

    baseline: str
    arms: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class NothingToCompare:
    """One experiment with one arm is compared with nothing."""

    arm: str


@final
@dataclass(frozen=True, slots=True)
class GivenMetricUnknown:
    """No sample of one side or the other has a score of the metric that was to be given."""

    metric: str
    known: tuple[str, ...]


ComparisonDefect = BaselineUnknown | NothingToCompare | GivenMetricUnknown


def against_baseline(arms: NonEmpty[Side], baseline: str | None) -> tuple[Side, NonEmpty[Side]] | Refused[ComparisonDefect]:
    """The arms of one experiment as the baseline, which is the first unless named, and the others."""
    names = tuple(side.arm for side in arms)
    if baseline is not None and baseline not in names:
        return Refused(NonEmpty(BaselineUnknown(baseline, names)))
    first = next(side for side in arms if baseline is None or side.arm == baseline)
    others = NonEmpty.of(side for side in arms if side is not first)
    return Refused(NonEmpty(NothingToCompare(first.arm))) if others is None else (first, others)


def compare(
    a: Side, others: NonEmpty[Side], bits: Bits | None, given: Given | None = None, *, by_sign_flip: bool = False
) -> Comparison | Refused[ComparisonDefect]:
    """Every other side held against ``a``. Chance is drawn from ``bits`` where signs are too many to try; ``given`` keeps some ids."""
    reduced_a = reduced(a)
    found: list[PairComparison] = []
    warnings: list[ComparisonWarning] = []
    defects: list[ComparisonDefect] = []
    for b in others:
        reduced_b = reduced(b)
        if given is not None and not (given.metric in reduced_a.found and given.metric in reduced_b.found):
            defects.append(GivenMetricUnknown(given.metric, tuple(dict.fromkeys((*reduced_a.found, *reduced_b.found)))))
            continue
        pair = _pair(_Question(a, b, reduced_a, reduced_b, bits, by_sign_flip), given)
        found.append(pair)
        warnings.extend(pair_warnings(a, b, pair.join, (reduced_a, reduced_b), _spreads(pair.metrics)))
    if (refused := NonEmpty.of(dict.fromkeys(defects))) is not None:
        return Refused(refused)
    pairs = NonEmpty.of(_adjusted(found))
    assert pairs is not None, "others are at least one"
    return Comparison(pairs, merged(warnings))


@final
@dataclass(frozen=True, slots=True)
class _Question:
    """Two sides with their scores, and how they are to be judged."""

    a: Side
    b: Side
    reduced_a: Reduced
    reduced_b: Reduced
    bits: Bits | None
    by_sign_flip: bool


def _pair(asked: _Question, given: Given | None) -> PairComparison:
    joined = join(asked.a, asked.b)
    pairs, kept = joined.pairs, None
    if given is not None:
        in_a, in_b = asked.reduced_a.values(given.metric), asked.reduced_b.values(given.metric)
        pairs = tuple(pair for pair in pairs if in_a.get(pair[0]) == given.value == in_b.get(pair[1]))
        kept = Kept(given, len(joined.pairs), len(pairs))
    names = [name for name in dict.fromkeys((*asked.reduced_a.found, *asked.reduced_b.found)) if given is None or name != given.metric]
    metrics = [_score(asked, name, pairs, kept is not None) for name in names]
    if given is None:
        metrics.extend(_arm_metrics(asked))
    return PairComparison(asked.a, asked.b, joined, kept, tuple(metrics))


def _score(asked: _Question, name: str, pairs: Sequence[tuple[str, str]], some: bool) -> MetricComparison:
    in_a, in_b = asked.reduced_a.values(name), asked.reduced_b.values(name)
    both = tuple(pair for pair in pairs if pair[0] in in_a and pair[1] in in_b)
    clusters = _clusters(asked.a, asked.b, both)
    found = _judged(asked, name, "score", both, [in_a[one] for one, _ in both], [in_b[other] for _, other in both], clusters)
    declared = asked.a.ranges.get(name) or asked.b.ranges.get(name)
    # The bounds are of everything that was asked; of some ids alone there is no telling which of the unscored belong to them.
    bounded = None if some else declared
    return replace(
        found,
        unscored_a=asked.reduced_a.unscored(name),
        unscored_b=asked.reduced_b.unscored(name),
        bounds_a=None if bounded is None else asked.reduced_a.bounds(name, bounded),
        bounds_b=None if bounded is None else asked.reduced_b.bounds(name, bounded),
    )


def _clusters(a: Side, b: Side, pairs: Sequence[tuple[str, str]]) -> list[Hashable] | None:
    """The cluster of each pair; a sample that is in none is one of its own. None where there are none at all."""
    in_a: Mapping[str, str] = {each.id: each.cluster for each in a.asked if each.cluster is not None}
    in_b: Mapping[str, str] = {each.id: each.cluster for each in b.asked if each.cluster is not None}
    if not in_a and not in_b:
        return None
    named = [in_a.get(one, in_b.get(other)) for one, other in pairs]
    return [(cluster, None) if cluster is not None else pair for pair, cluster in zip(pairs, named, strict=True)]


def _arm_metrics(asked: _Question) -> Iterator[MetricComparison]:
    """The numbers that both arms give of themselves, paired by repeat."""
    in_a, in_b = ({found.repeat: found.values for found in side.came.metrics} for side in (asked.a, asked.b))
    names = dict.fromkeys(name for values in (*in_a.values(), *in_b.values()) for name in values)
    for name in names:
        repeats = [repeat for repeat in sorted(in_a) if name in in_a[repeat] and name in in_b.get(repeat, {})]
        pairs = tuple((f"repeat {repeat}", f"repeat {repeat}") for repeat in repeats)
        yield _judged(asked, name, "metric", pairs, [in_a[each][name] for each in repeats], [in_b[each][name] for each in repeats], None)


def are_binary(values: Sequence[float]) -> bool:
    """Whether every value is 0 or 1."""
    return set(values) <= {0.0, 1.0}


def _judged(
    asked: _Question,
    name: str,
    kind: MetricKind,
    pairs: tuple[tuple[str, str], ...],
    a: Sequence[float],
    b: Sequence[float],
    clusters: Sequence[Hashable] | None,
) -> MetricComparison:
    differences = [two - one for one, two in zip(a, b, strict=True)]
    test: Test
    if clusters is not None:
        test, estimate = "clustered_t", clustered_t(differences, clusters)
    elif kind == "score" and are_binary(a) and are_binary(b):
        test, estimate = "mcnemar", binary_estimate(_fourfold(a, b))
    else:
        test, estimate = "paired_t", paired_t(differences)
    # Of one pair, or one cluster, no sign says anything.
    units = len(differences) if clusters is None else len(set(clusters))
    flipped = sign_flip(differences, asked.bits, clusters) if units > 1 else None
    p = None if estimate is None else estimate.p
    if asked.by_sign_flip:
        test, p = "sign_flip", None if flipped is None else flipped.p
    up, down = sum([each > 0 for each in differences]), sum([each < 0 for each in differences])
    higher = kind == "score" or name in asked.a.higher or name in asked.b.higher
    return MetricComparison(
        name, kind, higher, len(differences), mean(a) if a else None, mean(b) if b else None, estimate, test, p, p, 0, flipped,
        up if higher else down, down if higher else up, len(differences) - up - down, None if clusters is None else units,
        0, 0, None, None, pairs, tuple(a), tuple(b),
    )  # fmt: skip


def _fourfold(a: Sequence[float], b: Sequence[float]) -> Fourfold:
    both = sum([1 for one, other in zip(a, b, strict=True) if one and other])
    in_a, in_b = round(sum(a)), round(sum(b))
    return Fourfold(both, in_a - both, in_b - both, len(a) - in_a - in_b + both)


def _spreads(metrics: Sequence[MetricComparison]) -> tuple[tuple[str, int, bool], ...]:
    """Each metric with its pairs, and whether all its differences are alike."""
    return tuple(
        (found.name, found.n, found.n > 1 and len({two - one for one, two in zip(found.values_a, found.values_b, strict=True)}) == 1)
        for found in metrics
    )


def _adjusted(pairs: Sequence[PairComparison]) -> tuple[PairComparison, ...]:
    """The pairs with every p corrected for all of them."""
    known = [found.p for pair in pairs for found in pair.metrics if found.p is not None]
    corrected = iter(holm(known))
    return tuple(
        replace(
            pair,
            metrics=tuple(
                replace(found, family=len(known), p_adjusted=None if found.p is None else next(corrected)) for found in pair.metrics
            ),
        )
        for pair in pairs
    )
