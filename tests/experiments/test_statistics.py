"""What is said of paired numbers is what the large libraries and the literature say."""

import itertools
import math
import random
from typing import Any, Final

import pytest

from countermark.experiments import statistics
from countermark.experiments.statistics import (
    Estimate,
    Fourfold,
    Interval,
    SignFlip,
    binary_estimate,
    clustered_t,
    holm,
    mcnemar,
    mean,
    newcombe,
    paired_t,
    sign_flip,
    unweighted_error,
    wilson,
)
from tests.faults import planted, proven_by

#: Ten differences of the shared cases: mean 0.041, standard error 0.0105883.
_MEAN: Final = 0.041
_ERROR: Final = 0.0105883


def _near(interval: Interval | None, low: float, high: float, abs_: float = 5e-7) -> bool:
    assert interval is not None
    return math.isclose(interval.low, low, abs_tol=abs_) and math.isclose(interval.high, high, abs_tol=abs_)


def test_the_shared_case_of_forty_pairs() -> None:
    found = binary_estimate(Fourfold(18, 3, 12, 7))
    assert found is not None and found.p is not None
    assert found.diff == pytest.approx(0.225)
    assert found.p == pytest.approx(0.0351562, abs=5e-7)
    assert _near(found.interval, 0.037001, 0.391239)


@proven_by(planted(statistics, "t_quantile", lambda p, df: 1.959963984540054), planted(statistics, "t_tail", lambda t, df: 0.0))
def test_the_shared_case_of_ten_pairs() -> None:
    # Any ten differences of this mean and error have this t.
    shape = [-1.5, -1.0, -0.5, -0.25, 0.0, 0.0, 0.25, 0.5, 1.0, 1.5]
    scale = _ERROR / math.sqrt(sum(each * each for each in shape) / 9 / 10)
    found = paired_t([_MEAN + scale * each for each in shape])
    assert found is not None and found.error is not None and found.p is not None
    assert found.diff / found.error == pytest.approx(3.8722, abs=5e-5)
    assert found.p == pytest.approx(0.0037760, abs=2e-7)
    assert _near(found.interval, 0.0170477, 0.0649523, 2e-6)


# A − B in the literature, so its ends change places here.
_PUBLISHED: Final = [
    # Newcombe 1998 (Statistics in Medicine 17: 2635), table II, method 10.
    (Fourfold(36, 12, 2, 0), 0.0569, 0.3404),
    # Airway hyper-responsiveness before and after transplantation (Bentur 2009), as in Fagerland, Lydersen and Laake 2014.
    (Fourfold(1, 1, 7, 12), -0.507, -0.026),
]


@pytest.mark.parametrize(("table", "low", "high"), _PUBLISHED)
def test_published_intervals(table: Fourfold, low: float, high: float) -> None:
    digits = 5e-5 if abs(low) > 0.05 and low > 0 else 5e-4
    assert _near(newcombe(table), -high, -low, digits)


def _uncorrected(table: Fourfold) -> float:
    a, b, c, d = table.both, table.only_a, table.only_b, table.neither
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    return (a * d - b * c) / math.sqrt(margins) if margins else 0.0


@proven_by(planted(statistics, "_phi", _uncorrected))
def test_the_correlation_is_corrected() -> None:
    assert _near(newcombe(Fourfold(18, 3, 12, 7)), 0.037001, 0.391239)
    # ad − bc is positive and below n/2: the correlation is taken for none, never for a negative one.
    assert statistics._phi(Fourfold(20, 5, 6, 2)) == 0.0


def test_near_the_ceiling_there_is_still_a_width() -> None:
    found = binary_estimate(Fourfold(50, 0, 0, 0))
    assert found is not None and found.interval is not None and found.mde is not None
    assert _near(found.interval, -0.0713, 0.0713, 5e-5)
    assert (found.diff, found.error, found.p) == (0.0, 0.0, 1.0)
    # Fifty pairs without a discordant one: six discordant ones are the fewest that could be told from chance.
    assert found.mde == 6 / 50


@pytest.mark.parametrize(("table", "mde"), [(Fourfold(3, 1, 1, 0), None), (Fourfold(5, 0, 1, 0), 1.0)])
def test_so_few_pairs_detect_nothing(table: Fourfold, mde: float | None) -> None:
    found = binary_estimate(table)
    assert found is not None and (found.mde is None if mde is None else found.mde is not None and found.mde >= mde)


def test_one_pair_has_no_interval() -> None:
    assert paired_t([0.5]) == Estimate(0.5, None, None, None, None)
    assert binary_estimate(Fourfold(0, 0, 1, 0)) == Estimate(1.0, None, None, None, None)
    assert clustered_t([0.5, 0.1], ["c", "c"]) == Estimate(0.3, None, None, None, None)
    nothing: tuple[object, ...] = (paired_t([]), clustered_t([], []), binary_estimate(Fourfold(0, 0, 0, 0)), newcombe(Fourfold(0, 0, 0, 0)),
                                   mcnemar(Fourfold(0, 0, 0, 0)), sign_flip([], None))  # fmt: skip
    assert nothing == (None,) * 6


@pytest.mark.parametrize("differences", [[0.1] * 7, [0.0] * 3, [1e300] * 4, [0.1 + 0.2, 0.3, 0.3]])
def test_differences_without_variance_have_no_t(differences: list[float]) -> None:
    found = paired_t(differences)
    assert found is not None and (found.interval, found.p, found.mde) == (None, None, None)


def test_counts_are_counts() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Fourfold(1, 2, -1, 0)


def _against_libraries(count: int, seed: int) -> None:
    import numpy as np
    from scipy import stats
    from statsmodels.stats.contingency_tables import mcnemar as peer_mcnemar  # type: ignore[import-untyped]
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]
    from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

    drawn = random.Random(seed)
    for _ in range(count):
        n = drawn.choice([2, 3, 10, 100])
        a, b = ([drawn.gauss(0.0, 1.0) for _ in range(n)] for _ in range(2))
        differences = [two - one for one, two in zip(a, b, strict=True)]
        peer: Any = stats.ttest_rel(b, a)
        ends = peer.confidence_interval(0.95)
        found = paired_t(differences)
        assert found is not None and found.interval is not None
        assert (found.interval.low, found.interval.high) == pytest.approx((ends.low, ends.high), rel=1e-9, abs=1e-12)
        assert found.p == pytest.approx(peer.pvalue, rel=1e-9)
        table = Fourfold(*(drawn.randint(0, drawn.choice([1, 5, 60])) for _ in range(4)))
        if table.n > 1:
            rows = [[table.both, table.only_a], [table.only_b, table.neither]]
            assert mcnemar(table) == pytest.approx(peer_mcnemar(np.array(rows), exact=True).pvalue, rel=1e-11)
            at = wilson(table.both, table.n)
            assert (at.low, at.high) == pytest.approx(proportion_confint(table.both, table.n, method="wilson"), rel=1e-9, abs=1e-15)
        values = [drawn.random() ** 3 for _ in range(drawn.randint(1, 8))]
        assert holm(values) == pytest.approx(tuple(multipletests(values, method="holm")[1]), rel=1e-12)


def _clusters_against_statsmodels(count: int, seed: int) -> None:
    import numpy as np
    import statsmodels.api as sm  # type: ignore[import-untyped]

    drawn = random.Random(seed)
    for _ in range(count):
        n = drawn.randint(6, 60)
        clusters = [0, 1, *(drawn.randint(0, 7) for _ in range(n - 2))]
        differences = [drawn.gauss(0.1 * cluster, 1.0) for cluster in clusters]
        fit = sm.OLS(np.array(differences), np.ones(n)).fit(cov_type="cluster", cov_kwds={"groups": np.array(clusters)}, use_t=True)
        found = statistics.clustered_t(differences, clusters)
        assert found is not None and found.interval is not None
        assert found.error == pytest.approx(fit.bse[0], rel=1e-9)
        assert found.p == pytest.approx(fit.pvalues[0], rel=1e-8)
        assert (found.interval.low, found.interval.high) == pytest.approx(tuple(fit.conf_int()[0]), rel=1e-9, abs=1e-12)


def _without_correction(values: list[float]) -> float:
    return math.fsum(values) / (len(values) + 1)


@proven_by(planted(statistics, "mean", _without_correction), planted(statistics, "coin_tail", lambda few, n: 0.25))
def test_a_share_as_the_libraries_have_it() -> None:
    _against_libraries(25, 1)


@proven_by(planted(statistics, "clustered_t", lambda differences, clusters: paired_t(differences)))
def test_clusters_as_statsmodels_has_them() -> None:
    _clusters_against_statsmodels(20, 1)


@pytest.mark.slow
def test_thousands_as_the_libraries_have_them() -> None:
    _against_libraries(4_000, 2)
    _clusters_against_statsmodels(2_000, 2)


def _flips(differences: list[float]) -> float:
    """By its definition: every choice of signs."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(total >= observed - 1e-9 for total in sums) / len(sums)


@proven_by(planted(statistics, "_all_signs", lambda sizes, observed: 0.5), planted(statistics, "_ROUNDING", 0.2))
def test_signs_are_tried_in_full() -> None:
    drawn = random.Random(4)
    for _ in range(40):
        differences = [drawn.choice([0.0, 0.5, -0.25, 1 / 3, drawn.gauss(0.3, 1)]) for _ in range(drawn.randint(1, 9))]
        found = sign_flip(differences, None)
        assert found == SignFlip(pytest.approx(_flips(differences)), None)


def test_signs_of_one_size_are_a_coin() -> None:
    differences = [1.0] * 12 + [-1.0] * 3 + [0.0] * 25
    found = sign_flip(differences, None)
    assert found is not None and found.draws is None
    assert found.p == mcnemar(Fourfold(18, 3, 12, 7))
    assert sign_flip([0.0, 0.0], None) == SignFlip(1.0, None)


@proven_by(planted(statistics, "_SIZE_BITS", 1))
def test_drawn_signs_come_near_what_all_of_them_say(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(5)
    for _ in range(3):
        differences = [drawn.gauss(0.5, 1.0) * 10 ** drawn.uniform(-3, 0) for _ in range(13)]
        exact = sign_flip(differences, None)
        with monkeypatch.context() as patched:
            patched.setattr(statistics, "SIGNS_EXACT_MAX", 5)
            found = sign_flip(differences, random.Random(6))
            again = sign_flip(differences, random.Random(6))
            nothing = sign_flip(differences, None)
        assert exact is not None and found is not None
        assert found == again and found.draws == statistics.DRAWS_MAX and nothing is None
        assert found.p == pytest.approx(exact.p, abs=5 * math.sqrt(0.25 / statistics.DRAWS_MAX))


def test_clusters_are_flipped_whole() -> None:
    differences, clusters = [1.0, 2.0, -0.5, 0.25, 3.0], ["a", "a", "b", "b", "c"]
    assert sign_flip(differences, None, clusters) == sign_flip([3.0, -0.25, 3.0], None)


def test_groups_without_weights() -> None:
    assert unweighted_error((0.05, 0.01)) == pytest.approx(math.sqrt(0.0026) / 2)
    assert mean([0.1] * 10) == 0.1


def _bonferroni(values: list[float]) -> tuple[float, ...]:
    return tuple(min(1.0, len(values) * each) for each in values)


@proven_by(planted(statistics, "holm", _bonferroni))
def test_the_correction_is_stepwise() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert statistics.holm([]) == ()
