"""Where in the data a step leads to: simulated trainers, and counts that are off by the accumulation."""

from hypothesis import given
from hypothesis import strategies as st

from countermark.run import data_position
from countermark.run.data_position import accumulation_divisor, expected_micro_batches, micro_batches_after
from countermark.values import NonEmpty
from tests.faults import planted, proven_by


def simulated(steps: int, accumulation: int, per_epoch: int) -> tuple[int, float]:
    """Micro batches taken and the epoch count after ``steps`` optimizer steps of the Transformers loop, counted one by one."""
    taken = 0
    epoch, in_epoch, held = 0, 0, 0
    while steps:
        taken, in_epoch, held = taken + 1, in_epoch + 1, held + 1
        if held == accumulation or in_epoch == per_epoch:
            steps, held = steps - 1, 0
            if not steps:
                break
        if in_epoch == per_epoch:
            epoch, in_epoch = epoch + 1, 0
    return taken, epoch + in_epoch / per_epoch


Trainers = (st.integers(1, 40), st.integers(1, 9), st.integers(1, 60))


@given(*Trainers)
def test_the_formula_is_what_a_trainer_does(steps: int, accumulation: int, per_epoch: int) -> None:
    assert micro_batches_after(steps, accumulation, per_epoch) == simulated(steps, accumulation, per_epoch)[0]


@given(*Trainers)
def test_what_a_trainer_really_took_is_always_expected(steps: int, accumulation: int, per_epoch: int) -> None:
    taken, epoch = simulated(steps, accumulation, per_epoch)
    assert taken in expected_micro_batches(steps, accumulation, epoch)


@proven_by(planted(data_position, "_CANDIDATES_MAX", -1))
def test_an_epoch_that_ended_within_a_step_shortens_it() -> None:
    assert simulated(3, 4, 10) == (10, 1.0)
    assert expected_micro_batches(3, 4, 1.0) == NonEmpty(12, (11, 10, 9))
    assert expected_micro_batches(4, 4, 1.4) == NonEmpty(14)


def test_an_epoch_count_is_taken_to_a_billionth_of_it() -> None:
    assert expected_micro_batches(3, 4, 1 + 0.5e-9) == NonEmpty(12, (11, 10, 9))
    assert expected_micro_batches(3, 4, 1 + 1.5e-9) == NonEmpty(12)
    assert 10_000 in expected_micro_batches(3_000, 4, 1_000 + 0.5e-6)


def test_epochs_of_a_hundred_thousand_lengths_are_tried_and_of_more_none() -> None:
    """Four steps that end two epochs, of lengths from one more than the accumulation to twice as many."""
    assert expected_micro_batches(4, 100_001, 2.0) == NonEmpty.of(range(400_004, 200_002, -2))
    assert expected_micro_batches(4, 100_002, 2.0) == NonEmpty(400_008)


def test_a_position_in_steps_is_not_expected() -> None:
    assert expected_micro_batches(10, 4, None) == NonEmpty(40)
    assert 10 not in expected_micro_batches(10, 4, 0.4)
    assert expected_micro_batches(10, 4, 0.4).first == 40


def test_counts_that_say_nothing_leave_the_plain_product() -> None:
    for epoch in (None, 0.0, -1.0, float("nan"), float("inf"), 1e-300, 5e-324):
        assert expected_micro_batches(10, 4, epoch) == NonEmpty(40)
    for epoch in (0.0, 0.5):
        assert expected_micro_batches(0, 4, epoch) == NonEmpty(0)


@given(*Trainers)
def test_the_accumulation_is_always_a_multiple_of_what_the_epoch_count_shows(steps: int, accumulation: int, per_epoch: int) -> None:
    assert accumulation % accumulation_divisor(steps, simulated(steps, accumulation, per_epoch)[1]) == 0


@proven_by(planted(data_position, "_PER_EPOCH_MAX", 10))
def test_an_epoch_count_that_no_other_accumulation_gives_shows_it() -> None:
    assert accumulation_divisor(2, 4 / 11) == 2
    assert accumulation_divisor(1, 4 / 11) == 4
    assert accumulation_divisor(3, 12 / 35) == 4


def test_an_epoch_count_that_says_nothing_divides_everything() -> None:
    for epoch in (None, 0.0, -0.5, 1.0, 1.5, float("nan"), float("inf"), 0.1 + 0.2, 1e-300):
        assert accumulation_divisor(2, epoch) == 1
    assert accumulation_divisor(0, 4 / 11) == 1
    assert accumulation_divisor(4, 0.5) == 1
