"""What one learning rate shows of the curve that it is on: agreement says nothing, a difference names what one change explains."""

import math

import pytest

from countermark.recipe import Manifest
from countermark.recipe.coordinates import Cosine, Linear
from countermark.run import rates
from countermark.run.rates import RATE, RatePoint, explained, rate_after
from countermark.run.readback import ArtifactFact
from tests.faults import planted, proven_by
from tests.recipe.examples import clean_manifest

SOURCE = "scheduler.pt: _last_lr"
STEP = 7


def point(manifest: Manifest, step: int = STEP) -> RatePoint:
    """What the scheduler of this computation has come to."""
    peak = float(manifest.learning_rate)
    warmup, total = manifest.warmup_steps.number, manifest.total_steps.number
    return RatePoint(step, rate_after(manifest.lr_schedule, warmup, total, step, peak), peak)


def shown(found: Manifest, *, asked: Manifest | None = None, step: int = STEP) -> dict[str, str]:
    """What a scheduler of ``found`` shows against what is asked for (the clean manifest), where its length is told beside it."""
    length = ArtifactFact("total_steps", found.total_steps.spell(), "trainer_state.json: max_steps")
    facts = explained((point(found, step).fact(SOURCE), length), asked or clean_manifest())
    assert facts[-1] == length and {fact.source for fact in facts[:-1]} <= {SOURCE}
    return {fact.leaf: fact.spelling for fact in facts[:-1]}


SCHEDULES = (
    "constant",
    "linear",
    "cosine",
    "cosine_with_restarts(cycles=3)",
    "cosine_with_min_lr(min_lr_rate=0.1)",
    "polynomial(lr_end=1e-7,power=2)",
    "inverse_sqrt(timescale=100)",
    "warmup_stable_decay(decay_steps=15,decay_shape=cosine,min_lr_rate=0.1)",
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("step", [0, 1, 2, 7, 19, 20])
def test_a_rate_on_the_curve_that_is_asked_for_shows_nothing(schedule: str, step: int) -> None:
    manifest = clean_manifest(lr_schedule=schedule)
    assert shown(manifest, asked=manifest, step=step) == {}


#: Schedule → step → rate after it, of a run of 20 steps, the first 4 of which lead up to a rate of 2. Each number is worked out by hand.
CURVES: dict[str, dict[int, float]] = {
    "constant": {0: 0, 1: 0.5, 3: 1.5, 4: 2, 19: 2, 24: 2},
    "linear": {0: 0, 2: 1, 4: 2, 8: 1.5, 12: 1, 19: 0.125, 20: 0, 24: 0},
    "cosine": {1: 0.5, 4: 2, 8: 1 + math.sqrt(0.5), 12: 1, 16: 1 - math.sqrt(0.5), 20: 0, 24: 1 - math.sqrt(0.5)},
    "cosine_with_restarts(cycles=2)": {1: 0.5, 4: 2, 6: 1 + math.sqrt(0.5), 8: 1, 12: 2, 16: 1, 20: 0, 24: 0},
    "cosine_with_min_lr(min_lr_rate=0.2)": {1: 0.5, 4: 2, 12: 1.2, 20: 0.4, 36: 2},
    "polynomial(lr_end=1,power=2)": {1: 0.5, 4: 2, 8: 1.5625, 12: 1.25, 20: 1, 21: 1, 40: 1},
    "inverse_sqrt(timescale=100)": {1: 0.5, 4: 2, 304: 1},
    "warmup_stable_decay(decay_steps=8,decay_shape=linear,min_lr_rate=0.2)": {
        0: 0.4,
        2: 1.2,
        4: 2,
        11: 2,
        12: 2,
        16: 1.2,
        18: 0.8,
        20: 0.4,
        24: 0.4,
    },
    "warmup_stable_decay(decay_steps=8,decay_shape=cosine,min_lr_rate=0.2)": {
        2: 1.2,
        12: 2,
        14: 1.2 + 0.8 * math.sqrt(0.5),
        16: 1.2,
        20: 0.4,
        24: 0.4,
    },
    "warmup_stable_decay(decay_steps=8,decay_shape=1-sqrt,min_lr_rate=0.2)": {2: 1.2, 12: 2, 14: 1.2, 20: 0.4, 24: 0.4},
}


@pytest.mark.parametrize("schedule", CURVES)
def test_a_curve_has_the_rates_that_its_formula_gives(schedule: str) -> None:
    curve = clean_manifest(lr_schedule=schedule).lr_schedule
    found = {step: rate_after(curve, 4, 20, step, 2.0) for step in CURVES[schedule]}
    assert found == pytest.approx(CURVES[schedule], rel=1e-12, abs=1e-12)


def test_a_run_that_ends_within_its_warm_up_or_one_step_after_it_has_a_curve_too() -> None:
    for length, rates_after in ((4, {4: (0, 2), 5: (0, 0)}), (5, {4: (2, 2), 5: (0, 0)}), (3, {2: (1, 1), 3: (1.5, 1.5)})):
        for step, (linear, cosine) in rates_after.items():
            assert rate_after(Linear(), 4, length, step, 2.0) == pytest.approx(linear), (length, step)
            assert rate_after(Cosine(), 4, length, step, 2.0) == pytest.approx(cosine), (length, step)
    curve = clean_manifest(lr_schedule="polynomial(lr_end=1,power=2)").lr_schedule
    assert [rate_after(curve, 4, 4, step, 2.0) for step in (2, 4, 5)] == [1, 2, 1]


@proven_by(planted(rates, "_gives", lambda point, schedule, warmup, total: False))
@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"warmup_steps": "5"}, {"warmup_steps": "5"}),
        ({"warmup_steps": "9"}, {"warmup_steps": "9"}),
        ({"lr_schedule": "cosine"}, {"lr_schedule": "cosine"}),
        ({"lr_schedule": "cosine", "warmup_steps": "5"}, {"lr_schedule": "cosine", "warmup_steps": "5"}),
        # At the top of its warm-up a rate is the peak, which is where a constant stays.
        ({"warmup_steps": "7"}, {"lr_schedule": "constant or warmup_steps", "warmup_steps": "7 or lr_schedule"}),
        ({"lr_schedule": "constant"}, {"lr_schedule": "constant or warmup_steps", "warmup_steps": "7 or lr_schedule"}),
        ({"total_steps": "40"}, {}),
        ({"learning_rate": "0.1"}, {}),
        ({"total_steps": "40", "warmup_steps": "5"}, {"warmup_steps": "5"}),
        ({"learning_rate": "0.1", "lr_schedule": "cosine"}, {"lr_schedule": "cosine"}),
    ],
)
def test_a_rate_off_the_curve_names_what_one_change_explains_and_else_two(changes: dict[str, str], wanted: dict[str, str]) -> None:
    """Another peak and another length are told by other facts; here they only say where the curve is judged."""
    assert shown(clean_manifest(**changes)) == wanted


@proven_by(planted(rates, "_gives", lambda point, schedule, warmup, total: True))
def test_a_rate_that_no_change_of_two_explains_is_on_another_curve() -> None:
    assert shown(clean_manifest(lr_schedule="inverse_sqrt(timescale=100)")) == {"lr_schedule": "another curve"}


def told(*facts: ArtifactFact, **asked: str) -> list[ArtifactFact]:
    return list(explained(facts, clean_manifest(**asked)))


def test_every_schedule_that_gives_the_rate_is_named_and_where_that_was_seen() -> None:
    """Half of the way down, half of the rate is left on a line as on a cosine."""
    half = RatePoint(11, 1.0, 2.0).fact(SOURCE)
    assert told(half, lr_schedule="constant") == [ArtifactFact("lr_schedule", "linear or cosine", SOURCE)]


def test_a_warm_up_is_looked_for_up_to_the_whole_run_and_no_further() -> None:
    until_the_end, beyond = RatePoint(7, 7 / 20, 1.0).fact(SOURCE), RatePoint(7, 7 / 21, 1.0).fact(SOURCE)
    assert told(until_the_end) == [ArtifactFact("warmup_steps", "20", SOURCE)]
    assert told(beyond) == [ArtifactFact("lr_schedule", "another curve", SOURCE)]


def test_of_two_warm_ups_that_explain_the_rate_the_shorter_is_named() -> None:
    """After two of four steps a warm-up of three has come to 2/3, and one of a single step has left as much."""
    assert told(RatePoint(2, 2 / 3, 1.0).fact(SOURCE), total_steps="4") == [ArtifactFact("warmup_steps", "1", SOURCE)]


def test_the_length_of_a_run_is_what_is_told_as_that_and_is_a_number() -> None:
    rate, seed, unread = point(clean_manifest()).fact(SOURCE), ArtifactFact("seed", "5", "a"), ArtifactFact("total_steps", "many", "b")
    assert told(seed, unread, rate) == [seed, unread]


def test_a_rate_may_be_off_by_a_billionth_of_the_peak() -> None:
    assert told(RatePoint(20, 1e-9, 1.0).fact(SOURCE)) == []
    assert told(RatePoint(20, 1.1e-9, 1.0).fact(SOURCE)) != []


def test_within_both_warm_ups_no_schedule_is_blamed() -> None:
    assert shown(clean_manifest(lr_schedule="cosine"), step=1) == {}
    assert shown(clean_manifest(lr_schedule="cosine", warmup_steps="10"), step=5) == {"warmup_steps": "10"}


@pytest.mark.parametrize("text", ["", "4", "4:0.1", "x:0.1/0.2", "4:nan/0.1", "4:0.1/0", "4:inf/1", "-1:0.1/0.1", "4:0.1/inf"])
def test_what_is_no_point_is_another_curve(text: str) -> None:
    assert RatePoint.read(text) is None
    assert explained((ArtifactFact(RATE, text, SOURCE),), clean_manifest()) == (ArtifactFact("lr_schedule", "another curve", SOURCE),)


def test_a_points_text_reads_back_to_the_bit() -> None:
    for rate in (0.1 + 0.2, 1e-300, 0.0):
        assert RatePoint.read(RatePoint(4, rate, 0.7).spell()) == RatePoint(4, rate, 0.7)
