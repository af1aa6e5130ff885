"""Where in the data a step leads to, counted in micro batches.

A step takes ``gradient_accumulation`` micro batches, except at the end of an epoch whose number of micro batches it does not divide: there
the trainer steps with what is left. The trainer's epoch count (micro batches / micro batches of an epoch) tells how long an epoch is.
"""

import math
from fractions import Fraction
from typing import Final

from countermark.values import NonEmpty

_CANDIDATES_MAX: Final = 100_000
#: Of two fractions with denominators up to here, a float64 tells which one it came from: one division rounds once.
_PER_EPOCH_MAX: Final = 1 << 24


def micro_batches_after(step: int, accumulation: int, per_epoch: int) -> int:
    """Micro batches taken after ``step`` optimizer steps, where an epoch has ``per_epoch`` of them."""
    steps_per_epoch = -(-per_epoch // accumulation)
    epochs, rest = divmod(step, steps_per_epoch)
    return epochs * per_epoch + rest * accumulation


def expected_micro_batches(step: int, accumulation: int, epoch: float | None) -> NonEmpty[int]:
    """The micro batches that ``step`` steps have taken: ``step × accumulation``, or fewer where the epoch count shows that an epoch ended
    within them. Several answers where several lengths of an epoch agree with the count."""
    whole = step * accumulation
    if epoch is None or not 0 < epoch < math.inf or not math.isfinite(whole / epoch):
        return NonEmpty(whole)
    # Each epoch that ended took up to accumulation - 1 micro batches less.
    fewest = max(1, whole - math.ceil(epoch) * (accumulation - 1))
    shortest, longest = max(1, math.floor(fewest / epoch)), math.ceil(whole / epoch)
    if longest - shortest > _CANDIDATES_MAX:
        return NonEmpty(whole)
    # The epoch count is one division and one addition away from whole numbers: less than the billionth that ``isclose`` lets pass.
    found = dict.fromkeys(
        taken
        for per_epoch in range(shortest, longest + 1)
        for taken in (micro_batches_after(step, accumulation, per_epoch),)
        if math.isclose(taken / per_epoch, epoch)
    )
    return NonEmpty.of(sorted(found, reverse=True)) or NonEmpty(whole)


def accumulation_divisor(step: int, epoch: float | None) -> int:
    """What the accumulation of a run is a multiple of, going by its epoch count within the first epoch; 1 where that says nothing.

    There the count is ``step × accumulation / micro batches of an epoch``, the last a whole number: 4/11 of an epoch after two steps took
    some multiple of four micro batches, and so two of them, or four, for each step.
    """
    if epoch is None or not 0 < epoch < 1 or step < 1:
        return 1
    part = Fraction(epoch).limit_denominator(_PER_EPOCH_MAX)
    if float(part) != epoch:
        return 1
    return part.numerator // math.gcd(part.numerator, step)
