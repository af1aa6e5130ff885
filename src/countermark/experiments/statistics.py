"""What paired numbers say of a difference: intervals, p-values, and how small a difference they could have shown.

Rules kept here:

1. Differences are B − A. Every interval is two-sided at ``CONFIDENCE``, every p-value two-sided.
2. What the numbers cannot say is None, never NaN, never an interval of no width: one pair has no interval, differences without variance
   have no t.
3. Chance is handed in as ``Bits``: the same generator in the same state gives the same answer.
4. A cluster is the unit that was drawn: with clusters, n is their number wherever a degree of freedom is counted.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from countermark.experiments.distributions import coin_tail, normal_quantile, t_quantile, t_tail

CONFIDENCE: Final = 0.95
ALPHA: Final = 0.05
POWER: Final = 0.8
#: Signs are tried out in full for so many differences that are not 0.
SIGNS_EXACT_MAX: Final = 16
#: Draws of signs beyond, fewer where there are so many differences that drawing would take seconds.
DRAWS_MAX: Final = 9_999
DRAWS_MIN: Final = 999
_DRAWN_SIGNS_MAX: Final = 100_000_000
#: Precision of the sizes whose signs are drawn.
_SIZE_BITS: Final = 32
#: Discordant pairs that exact McNemar needs on one side before it can fall below ``ALPHA``: 2 × 2⁻⁶ is 0.031.
_DISCORDANT_MIN: Final = 6
#: Two sums of differences are one where they differ by less than rounding explains.
_ROUNDING: Final = 1e-12


class Bits(Protocol):
    """A source of chance, as ``random.Random`` is one."""

    def getrandbits(self, k: int, /) -> int: ...


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """Both ends of a confidence interval."""

    low: float
    high: float


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean difference with its standard error, and what the test of its name says of it; None is what it cannot say."""

    diff: float
    error: float | None
    interval: Interval | None
    p: float | None
    mde: float | None


@final
@dataclass(frozen=True, slots=True)
class Fourfold:
    """Pairs of binary scores: how many are 1 on both sides, only in A, only in B, on neither."""

    both: int
    only_a: int
    only_b: int
    neither: int

    def __post_init__(self) -> None:
        if min(self.both, self.only_a, self.only_b, self.neither) < 0:
            raise ValueError("a count of pairs is at least 0")

    @property
    def n(self) -> int:
        return self.both + self.only_a + self.only_b + self.neither


@final
@dataclass(frozen=True, slots=True)
class SignFlip:
    """The p-value of flipping signs; ``draws`` is None where all were tried."""

    p: float
    draws: int | None


def mean(values: Sequence[float]) -> float:
    """The mean, of one value at least."""
    return math.fsum(values) / len(values)


def wilson(successes: int, n: int) -> Interval:
    """Wilson's score interval of a proportion, without correction, for n ≥ 1."""
    z = normal_quantile(0.5 + CONFIDENCE / 2)
    p, square = successes / n, z * z
    middle = (p + square / (2 * n)) / (1 + square / n)
    half = z * math.sqrt(p * (1 - p) / n + square / (4 * n * n)) / (1 + square / n)
    return Interval(0.0 if successes == 0 else middle - half, 1.0 if successes == n else middle + half)


def newcombe(table: Fourfold) -> Interval | None:
    """Newcombe's interval of a difference of paired proportions (1998, method 10, with the corrected φ); None of fewer than two pairs."""
    n = table.n
    if n < 2:
        return None
    in_a, in_b = table.both + table.only_a, table.both + table.only_b
    one, other = wilson(in_b, n), wilson(in_a, n)
    p_b, p_a = in_b / n, in_a / n
    phi = _phi(table)
    down = _joined(p_b - one.low, other.high - p_a, phi)
    up = _joined(one.high - p_b, p_a - other.low, phi)
    diff = (table.only_b - table.only_a) / n
    return Interval(max(-1.0, diff - down), min(1.0, diff + up))


def _joined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _phi(table: Fourfold) -> float:
    """The correlation of both sides, where positive with n/2 off its numerator and never below 0; 0 where a margin is empty."""
    a, b, c, d = table.both, table.only_a, table.only_b, table.neither
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    if margins == 0:
        return 0.0
    excess = float(a * d - b * c)
    return (max(excess - table.n / 2, 0.0) if excess > 0 else excess) / math.sqrt(margins)


def mcnemar(table: Fourfold) -> float | None:
    """The exact McNemar p-value; None where there is no pair."""
    if table.n == 0:
        return None
    return min(1.0, 2.0 * coin_tail(min(table.only_a, table.only_b), table.only_a + table.only_b))


def binary_estimate(table: Fourfold) -> Estimate | None:
    """A difference of proportions: Newcombe's interval and McNemar's p. None where there is no pair.

    The detectable difference is at least the six discordant pairs, all one way, without which the exact test cannot fall below 5 %: near
    the ceiling the standard error alone would promise what no outcome could show.
    """
    n, discordant = table.n, table.only_a + table.only_b
    if n == 0:
        return None
    diff = (table.only_b - table.only_a) / n
    error = math.sqrt(max(0.0, discordant / n - diff * diff) / (n - 1)) if n > 1 else None
    least = _DISCORDANT_MIN / n
    mde = max(least, detectable(error, n - 1)) if error is not None and least <= 1 else None
    return Estimate(diff, error, newcombe(table), mcnemar(table) if n > 1 else None, mde)


def paired_t(differences: Sequence[float]) -> Estimate | None:
    """The paired t. None where there is no difference to speak of: no pair."""
    n = len(differences)
    if n == 0:
        return None
    middle = mean(differences)
    if n == 1:
        return Estimate(middle, None, None, None, None)
    squares = math.fsum([(each - middle) ** 2 for each in differences])
    return _by_t(middle, math.sqrt(squares / (n - 1) / n), n - 1, differences)


def clustered_t(differences: Sequence[float], clusters: Sequence[Hashable]) -> Estimate | None:
    """The t of a mean whose pairs came in clusters: C/(C − 1) correction, C − 1 degrees of freedom."""
    n = len(differences)
    if n == 0:
        return None
    middle = mean(differences)
    sums = _cluster_sums([each - middle for each in differences], clusters)
    count = len(sums)
    if count < 2:
        return Estimate(middle, None, None, None, None)
    squares = math.fsum([each**2 for each in sums])
    return _by_t(middle, math.sqrt(count / (count - 1) * squares) / n, count - 1, differences)


def _by_t(middle: float, error: float, df: int, differences: Sequence[float]) -> Estimate:
    scale = max(abs(each) for each in differences)
    if not math.isfinite(error) or error <= _ROUNDING * scale:
        # Differences that are all alike, or clusters that cancel: a t of them would be a division by rounding.
        return Estimate(middle, error, None, None, None)
    half = t_quantile(0.5 + CONFIDENCE / 2, df) * error
    p = min(1.0, 2.0 * t_tail(abs(middle) / error, df))
    return Estimate(middle, error, Interval(middle - half, middle + half), p, detectable(error, df))


def detectable(error: float, df: int) -> float:
    """The smallest true difference that a two-sided test at 5 % finds with 80 % power, by t: (t₀.₉₇₅ + t₀.₈) standard errors."""
    return (t_quantile(1 - ALPHA / 2, df) + t_quantile(POWER, df)) * error


def sign_flip(differences: Sequence[float], bits: Bits | None, clusters: Sequence[Hashable] | None = None) -> SignFlip | None:
    """How often a sum as far from 0 comes about where each difference (with clusters: each cluster's sum) may as well have the other sign.

    Exact for few, for many of one size, and for none; beyond that drawn from ``bits``, with the observed sum counted as a draw. None where
    it would have to be drawn and there is nothing to draw from, or where there is no pair.
    """
    if not differences:
        return None
    summed = differences if clusters is None else _cluster_sums(differences, clusters)
    scale = math.fsum([abs(each) for each in summed])
    sizes = [abs(each) for each in summed if abs(each) > _ROUNDING * scale]
    observed = abs(math.fsum(summed)) - _ROUNDING * scale
    if not sizes:
        return SignFlip(1.0, None)
    if max(sizes) - min(sizes) <= _ROUNDING * scale / len(sizes):
        positive = sum(1 for each in summed if each > _ROUNDING * scale)
        return SignFlip(min(1.0, 2.0 * coin_tail(min(positive, len(sizes) - positive), len(sizes))), None)
    if len(sizes) <= SIGNS_EXACT_MAX:
        return SignFlip(_all_signs(sizes, observed), None)
    return None if bits is None else _drawn_signs(sizes, observed, bits)


def _cluster_sums(differences: Sequence[float], clusters: Sequence[Hashable]) -> list[float]:
    parts: dict[Hashable, list[float]] = {}
    for each, cluster in zip(differences, clusters, strict=True):
        parts.setdefault(cluster, []).append(each)
    return [math.fsum(each) for each in parts.values()]


def _all_signs(sizes: Sequence[float], observed: float) -> float:
    # The first sign can stay: the other half of the sums are these with the opposite sign.
    sums = [sizes[0]]
    for each in sizes[1:]:
        sums = [total + each for total in sums] + [total - each for total in sums]
    return sum(1 for total in sums if abs(total) >= observed) / len(sums)


def _drawn_signs(sizes: Sequence[float], observed: float, bits: Bits) -> SignFlip:
    """Signs drawn for all sizes at once, as the bits of one whole number.

    The sizes are taken as whole numbers of ``_SIZE_BITS`` bits. Of each place in them there is a mask, with a bit for every size that has
    it: what the positive signs add up to is then a few counts of bits, and a draw over 100,000 differences takes less than a millisecond.
    """
    unit = max(sizes) / ((1 << _SIZE_BITS) - 1)
    whole = [round(each / unit) for each in sizes]
    digits = "".join([f"{each:0{_SIZE_BITS}b}" for each in whole])
    masks = [(1 << (_SIZE_BITS - 1 - place), int(digits[place::_SIZE_BITS], 2)) for place in range(_SIZE_BITS)]
    # Each size may have been rounded by half a unit: sums that near to the observed one are as far from 0.
    total, far_from = sum(whole), observed / unit - len(sizes) / 2
    draws = max(DRAWS_MIN, min(DRAWS_MAX, _DRAWN_SIGNS_MAX // len(sizes)))
    far = 0
    for _ in range(draws):
        drawn = bits.getrandbits(len(sizes))
        positive = sum([worth * (drawn & mask).bit_count() for worth, mask in masks])
        far += abs(2 * positive - total) >= far_from
    return SignFlip((far + 1) / (draws + 1), draws)


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order of the given ones."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = highest
    return tuple(adjusted)


def unweighted_error(errors: Iterable[float]) -> float:
    """The standard error of the unweighted mean of independent groups: √(Σ error²) over their number."""
    found = tuple(errors)
    return math.sqrt(math.fsum([each * each for each in found])) / len(found)
