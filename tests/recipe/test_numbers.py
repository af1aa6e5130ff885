"""Decimals that a float64 carries as they are written: one spelling each, and no neighbour is ever taken in silence."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe.numbers import DecayRate, NonNegativeReal, PositiveReal, Several
from countermark.values import Unreadable

FLOATS = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)


@given(FLOATS)
def test_every_float_is_carried_to_the_bit_and_spelled_once(number: float) -> None:
    real = PositiveReal.read(number)
    assert isinstance(real, PositiveReal)
    assert float(real) == number
    assert PositiveReal.read(real.spell()) == real
    assert PositiveReal.read(repr(number)) == PositiveReal.read(Decimal(repr(number))) == real


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_decimal_is_read_as_itself_or_refused(number: Decimal) -> None:
    real = NonNegativeReal.read(number)
    if isinstance(real, NonNegativeReal):
        assert real.number == number
        assert Decimal(repr(float(real))) == number
    else:
        assert number < 0 or Decimal(repr(float(number))) != number or abs(number.adjusted()) > 400


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("0.1000000000000000055511151231257827", "float64 cannot carry it as it is written; the nearest that it can is 0.1"),
        ("5.3333333333333333333", "the nearest that it can is 5.333333333333333"),
        ("1e-350", "the nearest that it can is 0.0"),
        ("1e350", "the nearest that it can is inf"),
        (12345678901234567890, "the nearest that it can is 1.2345678901234567e+19"),
        ("nan", "not a finite decimal"),
        (math.inf, "not a finite decimal"),
        ("", "not a finite decimal"),
        (True, "not a number"),
        (None, "not a number"),
        ("0", "greater than 0"),
        (-1, "greater than 0"),
        ("auto", "not a finite decimal"),
    ],
)
def test_what_no_trainer_could_compute_with_is_refused(raw: object, why: str) -> None:
    read = PositiveReal.read(raw)
    assert isinstance(read, Unreadable)
    assert why in read.why


def test_bounds() -> None:
    assert NonNegativeReal.read(0) == NonNegativeReal.read("-0.0") == NonNegativeReal(Decimal(0))
    assert DecayRate.read("0.999") == DecayRate(Decimal("0.999"))
    assert isinstance(DecayRate.read(1), Unreadable)
    assert isinstance(DecayRate.read("-0.1"), Unreadable)
    assert Several.read("2") == Several(2)
    assert Several.read(1) == Unreadable("it must be from 2")
    assert isinstance(Several.read("two"), Unreadable)


@pytest.mark.parametrize(
    ("kind", "number", "why"),
    [
        (PositiveReal, Decimal(0), "PositiveReal: it must be greater than 0"),
        (DecayRate, Decimal(1), "DecayRate: it must be less than 1"),
        (Several, 1, "Several: must be from 2"),
        (Several, 0, "PositiveInt: must be from 1 to 9223372036854775807"),
    ],
)
def test_constructors_hold_the_same_bounds(kind: type, number: object, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}$"):
        kind(number)
