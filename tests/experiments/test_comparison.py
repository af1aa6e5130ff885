"""What two arms' numbers say of each other: pairs, tests, families, and what is left unsaid."""

import random
import time
from dataclasses import replace

import pytest

from countermark.experiments import comparison, sides
from countermark.experiments.comparison import (
    BaselineUnknown,
    Comparison,
    Flip,
    Given,
    GivenMetricUnknown,
    Kept,
    MetricComparison,
    NothingToCompare,
    against_baseline,
    compare,
)
from countermark.experiments.samples import Sample, Scored, Unscored
from countermark.experiments.sides import Counts, Join, Side, counts, join
from countermark.experiments.specs import Range
from countermark.experiments.statistics import Interval, clustered_t, holm, paired_t
from countermark.values import NonEmpty, Refused
from tests.experiments.arms import asked, content, forty, scored, side
from tests.faults import planted, proven_by


def compared(a: Side, *others: Side, given: Given | None = None, by_sign_flip: bool = False, seed: int = 1) -> Comparison:
    rest = NonEmpty.of(others)
    assert rest is not None
    found = compare(a, rest, random.Random(seed), given, by_sign_flip=by_sign_flip)
    assert isinstance(found, Comparison)
    return found


def only(a: Side, b: Side) -> MetricComparison:
    (found,) = compared(a, b).pairs.first.metrics
    return found


@proven_by(planted(comparison, "are_binary", lambda values: False), planted(comparison, "join", lambda a, b: Join("id", (), (), ())))
def test_the_forty_pairs() -> None:
    a, b = forty()
    shuffled = replace(b, asked=tuple(random.Random(3).sample(b.asked, 40)))
    found = only(a, shuffled)
    assert (found.test, found.n, found.wins, found.losses, found.ties) == ("mcnemar", 40, 12, 3, 25)
    assert found.estimate is not None and found.estimate.interval is not None
    assert (found.mean_a, found.mean_b) == (0.525, 0.75)
    assert found.p == pytest.approx(0.0351562, abs=5e-7)
    assert (found.estimate.interval.low, found.estimate.interval.high) == pytest.approx((0.037001, 0.391239), abs=5e-7)
    assert found.is_resolved and not found.is_regression
    assert only(b, a).is_regression


def test_the_discordant_ids() -> None:
    found = only(*forty())
    flips = tuple(found.flips())
    assert [flip.id_a for flip in flips] == [f"q{at}" for at in (*range(18, 21), *range(21, 33))]
    assert flips[0] == Flip("q18", "q18", 1.0, 0.0, wins=False)
    assert flips[-1] == Flip("q32", "q32", 0.0, 1.0, wins=True)


def _last(scores: list[float]) -> float:
    return scores[-1]


@proven_by(planted(sides, "mean", _last))
def test_repeats_are_one_value_an_id() -> None:
    once, twice = [0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]
    a = side("base", scored([0.0] * 4) + scored([0.0] * 4, repeat=1), 4, repeats=2)
    b = side("edited", scored(once) + scored(twice, repeat=1), 4, repeats=2)
    found = only(a, b)
    assert (found.n, found.test, found.values_b) == (4, "paired_t", (0.5, 1.0, 0.5, 0.0))
    # Where every id says the same in all its repeats, its value is 0 or 1 still.
    same = only(a, side("edited", scored(once) + scored(once, repeat=1), 4, repeats=2))
    assert (same.n, same.test) == (4, "mcnemar")


def test_a_second_result_has_no_second_weight() -> None:
    a, b = forty()
    double = replace(b, came=replace(b.came, samples=b.came.samples, duplicates=(("q0", 0),)))
    assert only(a, double).mean_b == only(a, b).mean_b


@proven_by(planted(comparison, "_clusters", lambda a, b, pairs: None))
def test_clusters_bring_their_own_t_and_never_newcombe() -> None:
    a, b = forty()
    a, b = (replace(each, asked=asked(40, lambda at: f"page {at // 5}" if at < 35 else None)) for each in (a, b))
    found = only(a, b)
    differences = [two - one for one, two in zip(found.values_a, found.values_b, strict=True)]
    own = [f"page {at // 5}" if at < 35 else f"q{at}" for at in range(40)]
    # Seven pages, and five samples of no page, each a cluster of its own.
    assert (found.test, found.clusters) == ("clustered_t", 12)
    assert found.estimate == clustered_t(differences, own)


@proven_by(planted(comparison, "holm", lambda values: tuple(values)))
def test_all_metrics_of_all_arms_are_one_family() -> None:
    a, b = forty()
    third = replace(b, arm="third")
    found = compared(a, b, third)
    known = [each.p for pair in found.pairs for each in pair.metrics]
    assert known == [pytest.approx(0.03515625)] * 2
    adjusted = [(each.family, each.p_adjusted) for pair in found.pairs for each in pair.metrics]
    assert adjusted == [(2, pytest.approx(each)) for each in holm([0.03515625, 0.03515625])]
    assert not found.pairs.first.metrics[0].is_resolved


def test_the_numbers_of_arms_pair_by_repeat_and_are_better_downwards() -> None:
    told_a = [{"edited_weights": 1200.0, "gain_pp": 0.0}, {"edited_weights": 1000.0, "gain_pp": 0.0}, {"gain_pp": 0.5}]
    told_b = [{"edited_weights": 1100.0, "gain_pp": 2.5}, {"edited_weights": 990.0, "gain_pp": 2.0}, {"edited_weights": 1.0}]
    a = side("base", (), 5, repeats=3, metrics=told_a, higher=frozenset({"gain_pp"}))
    b = side("edited", (), 5, repeats=3, metrics=told_b)
    weights, gain = compared(a, b).pairs.first.metrics
    assert (weights.name, weights.kind, weights.higher_is_better, weights.n) == ("edited_weights", "metric", False, 2)
    assert (weights.wins, weights.losses) == (2, 0)
    assert weights.estimate == paired_t([-100.0, -10.0])
    assert (gain.name, gain.higher_is_better, gain.n, gain.wins) == ("gain_pp", True, 2, 2)
    # An arm that tells its numbers alone owes no samples.
    assert counts(a) == Counts(0, 0, 0, 0, 0, 0)


@proven_by(planted(comparison, "paired_t", lambda differences: None))
def test_a_fall_of_what_is_better_downwards_is_no_regression() -> None:
    told = [{"loss": 1.0 + at / 100} for at in range(40)]
    less = [{"loss": each["loss"] - 0.5 - at / 1000} for at, each in enumerate(told)]
    a, b = side("base", (), 0, repeats=40, metrics=told), side("edited", (), 0, repeats=40, metrics=less)
    (found,) = compared(a, b).pairs.first.metrics
    assert found.is_resolved and not found.is_regression
    assert compared(b, a).pairs.first.metrics[0].is_regression


@proven_by(planted(comparison, "Kept", lambda given, before, after: Kept(given, before, before)))
def test_only_ids_where_a_metric_is_given_on_both_sides() -> None:
    a, b = (
        replace(each, came=replace(each.came, samples=tuple(
            replace(sample, outcome=Scored({**sample.outcome.scores, "parsed": float(at % cut != 0)}, sample.outcome.output))
            for at, sample in enumerate(each.came.samples) if isinstance(sample.outcome, Scored)
        )))
        for each, cut in zip(forty(), (4, 10), strict=True)
    )  # fmt: skip
    pair = compared(a, b, given=Given("parsed")).pairs.first
    assert pair.kept == Kept(Given("parsed"), 40, 28)
    assert [(found.name, found.n) for found in pair.metrics] == [("acc", 28)]
    none = compared(a, b, given=Given("parsed", 0.5)).pairs.first
    assert none.kept == Kept(Given("parsed", 0.5), 40, 0)
    assert (none.metrics[0].n, none.metrics[0].mean_a, none.metrics[0].estimate, none.metrics[0].p) == (0, None, None, None)
    refused = compare(a, NonEmpty(b), None, Given("nothing"))
    assert refused == Refused(NonEmpty(GivenMetricUnknown("nothing", ("acc", "parsed"))))


def test_signs_stand_beside_and_speak_where_they_are_asked() -> None:
    values = [random.Random(5).gauss(0.4, 1.0) for _ in range(30)]
    a, b = side("base", scored([0.0] * 30), 30), side("edited", scored([each + at / 9 for at, each in enumerate(values)]), 30)
    beside, asked_for = only(a, b), compared(a, b, by_sign_flip=True).pairs.first.metrics[0]
    assert beside.test == "paired_t" and beside.flipped is not None and beside.flipped.draws == 9_999
    assert asked_for.test == "sign_flip" and asked_for.p == beside.flipped.p != beside.p
    assert asked_for.estimate == beside.estimate


def test_the_unscored_are_bounded_where_a_range_is_declared() -> None:
    half = [1.0] * 5 + [None] * 5
    a = side("base", scored(half), 10, ranges={"acc": Range(0.0, 1.0)})
    found = only(a, side("edited", scored([1.0] * 10), 10))
    assert (found.n, found.mean_a, found.unscored_a, found.unscored_b) == (5, 1.0, 5, 0)
    assert (found.bounds_a, found.bounds_b) == (Interval(0.5, 1.0), Interval(1.0, 1.0))
    assert counts(a) == Counts(10, 5, 0, 5, 0, 0)
    undeclared = only(replace(a, ranges={}), side("edited", scored([1.0] * 10), 10))
    assert (undeclared.bounds_a, undeclared.bounds_b) == (None, None)


def test_one_pair_says_nothing() -> None:
    found = only(side("base", scored([1.0]), 1), side("edited", scored([0.0]), 1))
    assert found.estimate is not None
    assert (found.n, found.estimate.diff, found.estimate.interval, found.p, found.flipped, found.family) == (1, -1.0, None, None, None, 0)


def test_no_pair_at_all() -> None:
    a = side("base", scored([1.0, 1.0]), 2)
    b = replace(side("edited", scored([1.0, 1.0]), 2), asked=())
    found = only(a, b)
    assert (found.n, found.mean_a, found.estimate, found.p, found.flipped) == (0, None, None, None, None)


@proven_by(planted(sides, "_once", lambda asked: {}))
def test_renumbered_ids_are_joined_by_what_they_say() -> None:
    a, b = forty()
    renumbered = {f"q{at}": f"q{(at + 7) % 40}" for at in range(40)}
    moved = replace(
        b,
        asked=tuple(replace(each, id=renumbered[each.id]) for each in b.asked),
        came=replace(b.came, samples=tuple(replace(each, id=renumbered[each.id]) for each in b.came.samples)),
    )
    pair = compared(a, moved).pairs.first
    assert (pair.join.by, len(pair.join.pairs), pair.join.only_a, pair.join.changed) == ("content", 40, (), 0)
    assert pair.metrics[0].p == pytest.approx(0.0351562, abs=5e-7)


def test_what_stands_on_one_side_alone() -> None:
    a, b = side("base", scored([1.0] * 5), 5), side("edited", scored([1.0] * 5), 5)
    shorter = replace(b, asked=b.asked[1:4])
    assert join(a, shorter) == Join("id", (("q1", "q1"), ("q2", "q2"), ("q3", "q3")), ("q0", "q4"), ())
    assert join(shorter, a) == Join("id", (("q1", "q1"), ("q2", "q2"), ("q3", "q3")), (), ("q0", "q4"))
    edited = replace(b, asked=(replace(b.asked[0], content=content("other words")), *b.asked[1:]))
    assert join(a, edited) == Join("id", tuple((f"q{at}", f"q{at}") for at in range(5)), (), (), 1)
    unknown = replace(b, asked=tuple(replace(each, content=None) for each in b.asked))
    assert join(a, unknown) == Join("id", tuple((f"q{at}", f"q{at}") for at in range(5)), (), ())
    # A text that stands twice on a side pairs nothing by what it says.
    twice = replace(b, asked=(replace(b.asked[0], id="x0"), replace(b.asked[0], id="x1"), replace(b.asked[2], id="x2")))
    assert join(a, twice) == Join("content", (("q2", "x2"),), ("q0", "q1", "q3", "q4"), ("x0", "x1"))


def test_the_first_arm_is_the_baseline_unless_another_is_named() -> None:
    a, b = forty()
    third = replace(b, arm="third")
    arms = NonEmpty(a, (b, third))
    assert against_baseline(arms, None) == (a, NonEmpty(b, (third,)))
    assert against_baseline(arms, "third") == (third, NonEmpty(a, (b,)))
    assert against_baseline(arms, "none") == Refused(NonEmpty(BaselineUnknown("none", ("base", "edited", "third"))))
    assert against_baseline(NonEmpty(a), None) == Refused(NonEmpty(NothingToCompare("base")))


def test_what_is_scored_in_one_metric_alone() -> None:
    a = side("base", scored([1.0, 0.0, 1.0]), 3)
    samples = (
        Sample("q0", 0, Scored({"acc": 1.0, "f1": 0.5})),
        Sample("q1", 0, Scored({"acc": None, "f1": 0.25})),
        Sample("q2", 0, Unscored()),
    )
    b = side("edited", samples, 3)
    acc, f1 = compared(a, b).pairs.first.metrics
    assert (acc.n, acc.unscored_a, acc.unscored_b) == (1, 0, 2)
    assert (f1.n, f1.unscored_a, f1.unscored_b, f1.mean_b) == (0, 3, 1, None)
    assert counts(b) == Counts(3, 2, 1, 0, 0, 0)


@pytest.mark.slow
def test_a_hundred_thousand_pairs_take_a_moment() -> None:
    drawn = random.Random(8)
    n = 100_000
    a, b = (side(arm, scored([drawn.gauss(more, 1.0) for _ in range(n)], said=arm), n) for arm, more in (("base", 0), ("edited", 0.01)))
    begun = time.process_time()
    found = only(a, b)
    assert time.process_time() - begun < 4.0, "two seconds are promised, of a machine that does nothing else"
    assert found.n == 100_000 and found.flipped is not None and found.flipped.draws == 1_000
