"""What one learning rate shows of the curve that it is on: agreement says nothing, a difference names what one change explains."""

import pytest

from countermark.recipe import Manifest
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
    assert facts[-1] == length
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
