"""The normal, Student's t and the fair coin: tails and quantiles to the accuracy of a double.

Rules kept here:

1. A tail is computed as a tail, never as one minus the rest: small p-values keep their digits.
2. Every function is total on its domain and raises ``ValueError`` outside it, because an argument there is a bug of ours.
3. A quantile is the root of the tail that stands here, so that the two agree.
"""

import math
from typing import Final

_SQRT_2: Final = math.sqrt(2.0)
_SQRT_PI: Final = math.sqrt(math.pi)
_TINY: Final = 1e-300
#: Up to here the mass of a fair coin is a quotient of exact whole numbers.
_EXACT_TOSSES_MAX: Final = 2_000
#: Γ(a + 1/2) / Γ(a) over √a, as a series in 1/a.
_RATIO_SERIES: Final = (1.0, -1 / 8, 1 / 128, 5 / 1024, -21 / 32768, -399 / 262144, 869 / 4194304)


def normal_tail(z: float) -> float:
    """P(Z > z)."""
    return 0.5 * math.erfc(z / _SQRT_2)


def normal_quantile(p: float) -> float:
    """The z with P(Z ≤ z) = p, for 0 < p < 1."""
    if not 0.0 < p < 1.0:
        raise ValueError("a quantile is asked for strictly between 0 and 1")
    if p == 0.5:
        return 0.0
    tail = min(p, 1.0 - p)
    # Hastings' rational start (Abramowitz and Stegun 26.2.23), then Halley's steps on the tail itself.
    u = math.sqrt(-2.0 * math.log(tail))
    z = u - (2.515517 + u * (0.802853 + u * 0.010328)) / (1.0 + u * (1.432788 + u * (0.189269 + u * 0.001308)))
    for _ in range(4):
        density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        step = (normal_tail(z) - tail) / density
        z += step / (1.0 - 0.5 * z * step)
    return z if p > 0.5 else -z


def _gamma_ratio(a: float) -> float:
    """Γ(a + 1/2) / Γ(a), which the difference of two logarithms would lose digits of."""
    if a < 100.0:
        return math.gamma(a + 0.5) / math.gamma(a)
    return math.sqrt(a) * sum(each / a**power for power, each in enumerate(_RATIO_SERIES))


def t_density(t: float, df: float) -> float:
    """Student's density with ``df`` degrees of freedom."""
    return _gamma_ratio(df / 2.0) / (math.sqrt(df) * _SQRT_PI) * math.exp(-0.5 * (df + 1.0) * math.log1p(t * t / df))


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t with ``df`` > 0 degrees of freedom."""
    if not df > 0.0 or math.isnan(t):
        raise ValueError("a t has more than no degrees of freedom")
    if t < 0.0:
        return 1.0 - t_tail(-t, df)
    if math.isinf(t):
        return 0.0
    square = t * t
    if not math.isfinite(square):
        return 0.0 if df > 2.0 else _far_tail(t, df)
    x, rest = df / (df + square), square / (df + square)
    half = df / 2.0
    front = 0.5 * _gamma_ratio(half) / _SQRT_PI * math.exp(-half * math.log1p(square / df)) * math.sqrt(rest)
    return front / _beta_fraction(half, 0.5, x, rest) if square > 4.0 else 0.5 - front * _central(half, rest)


def _central(half: float, rest: float) -> float:
    """The mass in the middle over its leading term: a series of positive terms."""
    total = term = 2.0
    n = 0
    while term > 1e-17 * total:
        term *= (half + 0.5 + n) * rest / (1.5 + n)
        total += term
        n += 1
    return total


def _far_tail(t: float, df: float) -> float:
    """The tail where t² is beyond a double: its leading power."""
    return t_density(0.0, df) * math.exp((df + 1.0) / 2.0 * math.log(df) - df * math.log(t)) / df


def _beta_fraction(a: float, b: float, x: float, rest: float) -> float:
    """What the leading term of the incomplete beta I_x(a, b) is divided by: a continued fraction (DiDonato and Morris, 1992), by the
    modified method of Lentz. It takes 1 − x as ``rest``: with many degrees of freedom x lies so near to 1 that their difference has lost
    its digits."""
    ahead = (a + b) * rest - b + 1.0
    c = found = a / (a + 1.0) * ahead
    d = 0.0
    for n in range(1, 10_000):
        bend = n * (b - n) * x / (a + 2 * n - 1.0)
        numerator = (a + n - 1.0) * (a + b + n - 1.0) * x / (a + 2 * n - 1.0) * bend
        denominator = n + bend + (a + n) / (a + 2 * n + 1.0) * (ahead + n * (1.0 + rest))
        d = denominator + numerator * d
        d = 1.0 / (d if abs(d) > _TINY else _TINY)
        c = denominator + numerator / c
        c = c if abs(c) > _TINY else _TINY
        found *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return found


def t_quantile(p: float, df: float) -> float:
    """The t with P(T ≤ t) = p, for 0 < p < 1."""
    if not 0.0 < p < 1.0:
        raise ValueError("a quantile is asked for strictly between 0 and 1")
    if p == 0.5:
        return 0.0
    tail = min(p, 1.0 - p)
    low, high = 0.0, 1.0
    while t_tail(high, df) > tail:
        low, high = high, 2.0 * high
    t = min(max(normal_quantile(1.0 - tail) if tail > 1e-16 else high, low), high) or high / 2.0
    for _ in range(200):
        found = t_tail(t, df)
        low, high = (t, high) if found > tail else (low, t)
        # Newton's step on the logarithm of the tail, which is nearly straight; halving where it leaves the bracket.
        step = found * math.log(found / tail) / t_density(t, df)
        after = t + step if low < t + step < high else 0.5 * (low + high)
        if abs(after - t) <= 2e-16 * after:
            t = after
            break
        t = after
    return t if p > 0.5 else -t


def coin_tail(successes: int, tosses: int) -> float:
    """P(X ≤ successes) for X heads of a fair coin, ``successes`` at most half of the ``tosses``."""
    if not 0 <= 2 * successes <= tosses:
        raise ValueError("the lower tail is asked for up to the middle")
    mass = _coin_mass(successes, tosses)
    total = term = 1.0
    for heads in range(successes, 0, -1):
        term *= heads / (tosses - heads + 1)
        total += term
        if term < 1e-18 * total:
            break
    return min(1.0, mass * total)


def _coin_mass(successes: int, tosses: int) -> float:
    if tosses <= _EXACT_TOSSES_MAX:
        return math.comb(tosses, successes) / (1 << tosses)
    if successes < 16:
        # Below the smallest double, for this many tosses.
        return 0.0
    failures, half = tosses - successes, tosses / 2.0
    rest = _stirling_rest(tosses) - _stirling_rest(successes) - _stirling_rest(failures)
    log_mass = rest - _deviance(successes, half) - _deviance(failures, half)
    return math.exp(log_mass) * math.sqrt(tosses / (2.0 * math.pi * successes * failures))


def _stirling_rest(n: int) -> float:
    """log(n!) minus Stirling's formula, for n ≥ 16."""
    square = float(n) * n
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / n


def _deviance(x: float, mean: float) -> float:
    """x·log(x / mean) + mean − x, by a series where the two terms would cancel."""
    if abs(x - mean) >= 0.1 * (x + mean):
        return x * math.log(x / mean) + mean - x
    v = (x - mean) / (x + mean)
    total, power = (x - mean) * v, 2.0 * x * v
    for j in range(1, 1000):
        power *= v * v
        after = total + power / (2 * j + 1)
        if after == total:
            break
        total = after
    return total
