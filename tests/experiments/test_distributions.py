"""Tails and quantiles are those of SciPy, which takes a second to import, over their whole range."""

import math
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from countermark.experiments import distributions
from countermark.experiments.distributions import coin_tail, normal_quantile, normal_tail, t_density, t_quantile, t_tail
from tests.faults import planted, proven_by

_DEGREES: Final = (1, 2, 3, 5, 9, 39, 199, 200, 201, 9_999, 99_999)


def _probabilities(count: int, seed: int) -> Iterator[float]:
    drawn = random.Random(seed)
    for _ in range(count):
        far = 10 ** drawn.uniform(-14, -0.31)
        yield far if drawn.random() < 0.5 else 1 - 10 ** drawn.uniform(-10, -0.31)


def _scipy() -> tuple[Any, Any]:
    from scipy import special, stats  # type: ignore[import-untyped]

    return stats, special


def _against_scipy(count: int, seed: int) -> None:
    stats, special = _scipy()
    drawn = random.Random(seed)
    for p in _probabilities(count, seed):
        df = drawn.choice(_DEGREES) if drawn.random() < 0.7 else 10 ** drawn.uniform(0, 6)
        t = 10 ** drawn.uniform(-4, 2)
        n = drawn.randint(1, 200_000)
        heads = drawn.randint(0, n // 2) if drawn.random() < 0.3 else max(0, n // 2 - drawn.randint(0, 4 * math.isqrt(n)))
        assert normal_quantile(p) == pytest.approx(special.ndtri(p), rel=1e-13, abs=1e-290)
        assert normal_tail(t / 10) == pytest.approx(stats.norm.sf(t / 10), rel=1e-13, abs=1e-290)
        assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-11, abs=0)
        assert t_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-11, abs=1e-290)
        # SciPy's own binomial tail loses digits here; ours is held to the exact one below.
        assert coin_tail(heads, n) == pytest.approx(stats.binom.cdf(heads, n, 0.5), rel=1e-10, abs=1e-290)


@proven_by(
    planted(distributions, "_gamma_ratio", lambda a: math.sqrt(a)),
    planted(distributions, "_central", lambda half, rest: 2.0),
    planted(distributions, "_stirling_rest", lambda n: 0.0),
)
def test_a_share_of_them_as_scipy_has_them() -> None:
    _against_scipy(250, 1)


@pytest.mark.slow
def test_thousands_of_them_as_scipy_has_them() -> None:
    _against_scipy(8_000, 2)


@proven_by(planted(distributions, "_deviance", lambda x, mean: x * math.log(x / mean) + mean - x))
def test_a_fair_coin_is_exact_beside_whole_numbers() -> None:
    for n, heads in ((2_001, 1_000), (2_003, 900)):
        exact = sum(math.comb(n, k) for k in range(heads + 1)) / (1 << n)
        assert abs(coin_tail(heads, n) / exact - 1) < 2e-13
    # Summed with 40 digits.
    assert coin_tail(49_800, 100_000) == pytest.approx(0.10351948588211245, rel=1e-14, abs=0)


def test_known_values() -> None:
    assert normal_quantile(0.975) == pytest.approx(1.959963984540054, rel=1e-15)
    # With one degree of freedom the tail is an arc tangent, with two a square root.
    for t in (1e-6, 0.01, 0.5, 1.9, 2.1, 30.0, 1e8):
        assert t_tail(t, 1) == pytest.approx(math.atan2(1, t) / math.pi, rel=1e-14)
        root = math.sqrt(2 + t * t)
        assert t_tail(t, 2) == pytest.approx(1 / (root * (root + t)), rel=1e-14)
    assert t_quantile(0.75, 1) == pytest.approx(1.0, rel=1e-14)
    assert coin_tail(0, 6) == 1 / 64
    assert coin_tail(3, 6) == pytest.approx(42 / 64, rel=1e-15)


def test_the_ends() -> None:
    assert t_tail(math.inf, 3) == 0.0
    assert t_tail(1e200, 5) == 0.0
    assert t_tail(1e160, 1) == pytest.approx(1e-160 / math.pi, rel=1e-12)
    assert t_tail(-2.0, 7) == 1 - t_tail(2.0, 7)
    assert t_tail(0.0, 7) == 0.5
    assert normal_quantile(0.5) == t_quantile(0.5, 4) == 0.0
    assert normal_quantile(1e-300) == pytest.approx(-37.0471, rel=1e-5)
    assert t_quantile(1e-20, 3) == pytest.approx(-t_quantile(1 - 1e-16, 3) * 21.54, rel=0.5)
    assert t_density(0.0, 1) == pytest.approx(1 / math.pi, rel=1e-15)
    assert coin_tail(0, 0) == 1.0
    assert coin_tail(3, 100_000) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: normal_quantile(0.0), lambda: normal_quantile(math.nan), lambda: t_quantile(1.0, 3), lambda: t_tail(1.0, 0.0),
        lambda: t_tail(math.nan, 3), lambda: coin_tail(4, 6), lambda: coin_tail(-1, 6),
    ],
)  # fmt: skip
def test_an_argument_outside_is_a_fault_of_ours(call: Any) -> None:
    with pytest.raises(ValueError, match=r"quantile|degrees|tail"):
        call()
