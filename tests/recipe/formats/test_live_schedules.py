"""Schedules in their effective form: defaults as the libraries set them, and no setting dropped in silence."""

import pytest

from countermark.recipe.formats.live_schedules import Schedule, ScheduleInput, read_schedule


def given(
    kind: object, learning_rate: float | None = 2e-4, warmup: int | None = 2, total: int | None = 20, **settings: object
) -> ScheduleInput:
    return ScheduleInput(kind, settings, learning_rate, warmup, total)


CASES = [
    (given("constant", junk=1), Schedule("constant", {}, ())),
    (given("constant_with_warmup"), Schedule("constant", {}, ())),
    (given("linear"), Schedule("linear", {}, ())),
    (given("linear", junk=1), Schedule("linear", {}, ("junk",))),
    (given("cosine"), Schedule("cosine", {}, ())),
    (given("cosine", num_cycles=0.5), Schedule("cosine", {}, ())),
    (given("cosine", num_cycles=1.5), Schedule("cosine", {}, ("num_cycles",))),
    (given("cosine_with_restarts"), Schedule("cosine", {}, ())),
    (given("cosine_with_restarts", num_cycles=1.0), Schedule("cosine", {}, ())),
    (given("cosine_with_restarts", num_cycles=3), Schedule("cosine_with_restarts", {"cycles": 3}, ())),
    (given("cosine_with_restarts", num_cycles=3.0), Schedule("cosine_with_restarts", {"cycles": 3}, ())),
    (given("cosine_with_restarts", num_cycles=2.5), Schedule("cosine_with_restarts", {"cycles": 2.5}, ())),
    (given("cosine_with_min_lr", min_lr_rate=0.1), Schedule("cosine_with_min_lr", {"min_lr_rate": 0.1}, ())),
    (given("cosine_with_min_lr", min_lr=2e-5), Schedule("cosine_with_min_lr", {"min_lr_rate": 2e-5 / 2e-4}, ())),
    (given("cosine_with_min_lr", min_lr=0.0), Schedule("cosine", {}, ())),
    (given("cosine_with_min_lr"), Schedule("cosine_with_min_lr", {"min_lr_rate": None}, ())),
    (given("cosine_with_min_lr", learning_rate=None, min_lr=1e-5), Schedule("cosine_with_min_lr", {"min_lr_rate": None}, ())),
    (given("polynomial"), Schedule("polynomial", {"lr_end": 1e-7, "power": 1.0}, ())),
    (given("polynomial", power=2, lr_end=0), Schedule("polynomial", {"lr_end": 0, "power": 2}, ())),
    (given("inverse_sqrt"), Schedule("inverse_sqrt", {"timescale": 2}, ())),
    (given("inverse_sqrt", warmup=0), Schedule("inverse_sqrt", {"timescale": 10_000}, ())),
    (given("inverse_sqrt", warmup=None), Schedule("inverse_sqrt", {"timescale": None}, ())),
    (given("inverse_sqrt", timescale=7), Schedule("inverse_sqrt", {"timescale": 7}, ())),
    (
        given("warmup_stable_decay", num_decay_steps=5),
        Schedule("warmup_stable_decay", {"decay_steps": 5, "decay_shape": "cosine", "min_lr_rate": 0}, ()),
    ),
    (
        given("warmup_stable_decay", num_decay_steps=5, num_stable_steps=13, warmup_type="linear", decay_type="1-sqrt", min_lr_ratio=0.1),
        Schedule("warmup_stable_decay", {"decay_steps": 5, "decay_shape": "1-sqrt", "min_lr_rate": 0.1}, ()),
    ),
    (
        given("warmup_stable_decay", num_decay_steps=5, num_stable_steps=12, warmup_type="cosine", num_cycles=2),
        Schedule(
            "warmup_stable_decay",
            {"decay_steps": 5, "decay_shape": "cosine", "min_lr_rate": 0},
            ("num_stable_steps", "warmup_type", "num_cycles"),
        ),
    ),
    (
        given("warmup_stable_decay", total=None),
        Schedule("warmup_stable_decay", {"decay_steps": None, "decay_shape": "cosine", "min_lr_rate": 0}, ()),
    ),
    (given("reduce_lr_on_plateau"), None),
    (given("greedy"), None),
    (given("cosine_warmup_with_min_lr", min_lr_rate=0.1), None),
    (given(None), None),
    (given(7), None),
]


@pytest.mark.parametrize(("asked", "found"), CASES, ids=[f"{asked.kind} {dict(asked.settings)}" for asked, _ in CASES])
def test_each_schedule(asked: ScheduleInput, found: Schedule | None) -> None:
    assert read_schedule(asked) == found
