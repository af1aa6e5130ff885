"""The six numbers of a difference: by their definitions, whatever the type and wherever the blocks end."""

import math
import warnings
from contextlib import AbstractContextManager
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countermark.weights import statistics
from countermark.weights.difference import Numbers
from countermark.weights.dtypes import DTYPE_BITS
from countermark.weights.elements import SMALL_FLOATS, numbers_of
from countermark.weights.statistics import Comparison
from tests.faults import planted, proven_by

NAN, INF = math.nan, math.inf


def compared(dtype: str, a: bytes, b: bytes, step: int | None = None, to: str | None = None, raw: bool = False) -> Numbers:
    """Two tensors compared in blocks of ``step`` elements (all at once by default)."""
    comparison = Comparison(dtype, to or dtype, raw)
    sizes = [(len(side) if step is None else step * DTYPE_BITS[kind] // 8) for side, kind in ((a, dtype), (b, to or dtype))]
    for at in range(-(-len(a) // sizes[0])):
        left, right = (memoryview(side)[at * size : (at + 1) * size] for side, size in ((a, sizes[0]), (b, sizes[1])))
        comparison.add(left, right)
    return comparison.result()


def of(kind: str, *values: float) -> bytes:
    return np.array(values, dtype=kind).tobytes()


def test_the_vector_that_every_surface_reproduces() -> None:
    found = compared("F32", of("<f4", 0, 1, NAN, INF, 2, 3), of("<f4", -0.0, 1.5, NAN, INF, NAN, 3))
    assert (found.changed, found.value_changed, found.l2, found.max_abs) == (3, 2, 0.5, 0.5)
    assert (found.non_finite_created, found.non_finite_cleared, found.domain) == (1, 0, "float")


def test_a_half_that_overflows_is_created_and_left_out_of_the_norm() -> None:
    found = compared("F16", of("<f2", 65000, 1), of("<f2", INF, 1.5))
    assert (found.changed, found.l2, found.max_abs, found.non_finite_created, found.non_finite_cleared) == (2, 0.5, 0.5, 1, 0)
    back = compared("F16", of("<f2", INF, 1.5), of("<f2", 65000, 1))
    assert (back.non_finite_created, back.non_finite_cleared) == (0, 1)


def test_bfloat16_rounding_swallows_edits() -> None:
    """1 + 2⁻⁸ is a tie and rounds to even, 1 + 3·2⁻⁹ rounds up, 1 + 2⁻⁹ and 1 − 2⁻⁹ … only one of four arrives."""
    base = of("<f4", 1, 1, 1, 1)
    wanted = np.array([1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-9, 1 - 2**-9], dtype=np.float32)
    codes = wanted.view(np.uint32).astype(np.uint64)
    rounded = ((codes + 0x7FFF + ((codes >> 16) & 1)) >> 16).astype(np.uint16)
    found = compared("BF16", (np.frombuffer(base, np.uint32) >> 16).astype(np.uint16).tobytes(), rounded.tobytes())
    assert (found.changed, found.l2) == (1, 0.0078125)


def to_bf16(numbers: np.ndarray) -> np.ndarray:
    codes = numbers.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((codes + 0x7FFF + ((codes >> 16) & 1)) >> 16).astype(np.uint16)


@pytest.mark.parametrize(("spread", "per_mille", "share_of_norm"), [(1e-4, 677, 1.04), (1e-5, 117, 0.61), (1e-6, 12, 0.20)])
def test_the_smaller_an_edit_of_bfloat16_the_less_of_it_arrives(spread: float, per_mille: int, share_of_norm: float) -> None:
    dice = np.random.default_rng(7)
    base = to_bf16(dice.normal(0, 0.02, 200_000))
    wanted = dice.normal(0, spread, base.size).astype(np.float32)
    after = to_bf16((base.astype(np.uint32) << 16).view(np.float32) + wanted)
    found = compared("BF16", base.tobytes(), after.tobytes(), step=1 << 16)
    assert found.l2 is not None
    assert (round(1000 * found.changed / base.size), round(found.l2 / float(np.linalg.norm(wanted.astype(np.float64))), 2)) == (
        per_mille,
        share_of_norm,
    )


def test_a_truth_of_another_byte_has_other_bits_and_the_same_value() -> None:
    found = compared("BOOL", b"\1\0\2\0", b"\2\0\2\1")
    assert (found.changed, found.value_changed, found.l2) == (2, 1, 1.0)


@pytest.mark.parametrize(
    ("a", "b", "l2"),
    [
        ((1e-200, 0.0), (3e-200, 0.0), 2e-200),
        ((1e200, 1.0), (3e200, 1.0), 2e200),
        ((-1.7e308,), (1.7e308,), None),
        ((5e-324,), (0.0,), 5e-324),
    ],
)
def test_squares_neither_vanish_nor_overflow(a: tuple[float, ...], b: tuple[float, ...], l2: float | None) -> None:
    found = compared("F64", of("<f8", *a), of("<f8", *b))
    assert found.l2 == (pytest.approx(l2, rel=1e-12, abs=0) if l2 is not None else None)
    assert found.value_changed == 1


@proven_by(planted(statistics, "_kept", lambda square, values: square < 2.0**900))
def test_numbers_whose_squares_vanish_count_also_where_only_the_sign_of_a_zero_differs() -> None:
    found = compared("F64", of("<f8", 3e-200, 4e-200, 0.0), of("<f8", 3e-200, 4e-200, -0.0))
    assert (found.changed, found.value_changed, found.l2, found.norm_a) == (1, 0, 0.0, pytest.approx(5e-200, rel=1e-12, abs=0))
    same = compared("F64", *[of("<f8", 3e-200, 4e-200, 0.0)] * 2)
    assert (same.changed, same.l2, same.norm_a) == (0, 0.0, pytest.approx(5e-200, rel=1e-12, abs=0))


def warned_of_again() -> AbstractContextManager[object]:
    """Nothing keeps NumPy from warning."""
    return planted(Comparison, "add", Comparison._add)()


@proven_by(warned_of_again)
def test_a_nan_that_is_to_raise_a_signal_is_a_nan_and_nobody_is_warned() -> None:
    signalling = (0x7F81).to_bytes(2, "little") + (0x3F80).to_bytes(2, "little")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = compared("BF16", signalling, (0x3F80).to_bytes(2, "little") * 2)
        assert compared("F64", of("<f8", 1e200), of("<f8", -1e308)).changed == 1
    assert warned == []
    assert (found.changed, found.value_changed, found.non_finite_cleared, found.l2, found.norm_a) == (1, 1, 1, 0.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "dtype", "a", "b", "largest"),
    [
        ("<i8", "I64", -(2**63), 2**63 - 1, float(2**64 - 1)),
        ("<u8", "U64", 0, 2**64 - 1, float(2**64 - 1)),
        ("<i8", "I64", 2**62, 2**62 + 1, 1.0),
        ("|i1", "I8", -128, 127, 255.0),
    ],
)
def test_whole_numbers_are_compared_exactly(kind: str, dtype: str, a: int, b: int, largest: float) -> None:
    found = compared(dtype, np.array([a, 7], dtype=kind).tobytes(), np.array([b, 7], dtype=kind).tobytes())
    assert (found.changed, found.value_changed, found.max_abs, found.domain) == (1, 1, largest, "integer")


def test_complex_numbers_by_modulus() -> None:
    found = compared("C64", np.array([0, 1j], np.complex64).tobytes(), np.array([3 + 4j, 1j], np.complex64).tobytes())
    assert (found.changed, found.value_changed, found.l2, found.max_abs, found.domain) == (1, 1, 5.0, 5.0, "complex")


def test_raw_data_has_bits_and_no_values() -> None:
    assert compared("U8", bytes([1, 2, 3]), bytes([1, 9, 3]), raw=True) == Numbers(3, 1, None, None, None, 0, 0, None, "raw")


def test_a_cast_has_no_changed_bits_and_exact_values() -> None:
    found = compared("F32", of("<f4", 0.1, 1, -0.0), of("<f2", 0.1, 1, 0), to="F16")
    assert (found.changed, found.value_changed) == (None, 1)
    assert found.l2 == abs(float(np.float32(0.1)) - float(np.float16(0.1)))
    whole = compared("I64", np.array([2**53 + 1, 3], "<i8").tobytes(), of("<f8", 2**53, 3), to="F64")
    assert whole.value_changed == 1
    mixed = compared("I8", np.array([-1, 5], "|i1").tobytes(), np.array([2**64 - 1, 5], "<u8").tobytes(), to="U64")
    assert (mixed.value_changed, mixed.max_abs) == (1, float(2**64))


def small_value(bits: int, exponent_bits: int, mantissa_bits: int, bias: int, code: int) -> Fraction:
    sign = -1 if code >> (bits - 1) else 1
    exponent, mantissa = (code >> mantissa_bits) & (2**exponent_bits - 1), code & (2**mantissa_bits - 1)
    if exponent == 0:
        return sign * Fraction(mantissa, 2**mantissa_bits) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(mantissa, 2**mantissa_bits)) * Fraction(2) ** (exponent - bias)


@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS))
def test_small_floats_are_what_their_definitions_say(dtype: str) -> None:
    kind, bits = SMALL_FLOATS[dtype], DTYPE_BITS[dtype]
    for code in range(1 << bits):
        value = kind.value(code)
        if math.isfinite(value):
            assert Fraction(value) == small_value(bits, kind.exponent_bits, kind.mantissa_bits, kind.bias, code)
    largest = {
        "F4": 6.0,
        "F6_E2M3": 7.5,
        "F6_E3M2": 28.0,
        "F8_E5M2": 57344.0,
        "F8_E4M3": 448.0,
        "F8_E5M2FNUZ": 57344.0,
        "F8_E4M3FNUZ": 240.0,
    }
    assert max(filter(math.isfinite, map(kind.value, range(1 << bits)))) == largest[dtype]


def test_packed_codes_are_unpacked_in_their_order() -> None:
    assert numbers_of("F4", memoryview(bytes([0x21]))).tolist() == [0.5, 1.0]
    packed = (1 | 2 << 6 | 3 << 12 | 63 << 18).to_bytes(3, "little")
    kind = SMALL_FLOATS["F6_E2M3"]
    assert numbers_of("F6_E2M3", memoryview(packed)).tolist() == [kind.value(code) for code in (1, 2, 3, 63)]


def first_blocks_alone(self: Comparison, a: memoryview, b: memoryview) -> None:
    if self.elements == 0:
        plain_add(self, a, b)


plain_add = Comparison.add


@proven_by(planted(Comparison, "add", first_blocks_alone))
def test_the_numbers_do_not_depend_on_where_blocks_end() -> None:
    rng = np.random.default_rng(17)
    a = rng.standard_normal(5000).astype("<f4")
    b = (a + rng.standard_normal(5000) * 1e-3).astype("<f4")
    b[7], a[4999] = np.nan, np.inf
    exact = math.sqrt(math.fsum((float(y) - float(x)) ** 2 for x, y in zip(a, b, strict=True) if math.isfinite(x) and math.isfinite(y)))
    for step in (1, 7, 333, 5000):
        found = compared("F32", a.tobytes(), b.tobytes(), step)
        assert found.l2 == pytest.approx(exact, rel=1e-12, abs=0)
        assert (found.elements, found.non_finite_created, found.non_finite_cleared) == (5000, 1, 1)


def single(self: statistics.SumOfSquares, part: float, exponent: int = 0) -> None:
    """A float32's sum."""
    self.total = float(np.float32(self.total) + np.float32(part))


@proven_by(planted(statistics.SumOfSquares, "add_sum", single))
def test_a_long_sum_keeps_twelve_digits() -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal(400_000).astype("<f4")
    b = a + np.float32(1e-3)
    exact = math.sqrt(math.fsum((float(y) - float(x)) ** 2 for x, y in zip(a, b, strict=True)))
    assert compared("F32", a.tobytes(), b.tobytes(), 100_000).l2 == pytest.approx(exact, rel=1e-12, abs=0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=40))
def test_against_a_plain_loop(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.array(side, "<f4") for side in zip(*pairs, strict=True))
    found = compared("F32", a.tobytes(), b.tobytes())
    kept = [(float(x), float(y)) for x, y in zip(a, b, strict=True) if math.isfinite(x) and math.isfinite(y)]
    differ = [not (x == y or (math.isnan(x) and math.isnan(y))) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    bits = zip(a.view(np.uint32).tolist(), b.view(np.uint32).tolist(), strict=True)
    assert found.changed == sum(x != y for x, y in bits)
    assert found.value_changed == sum(differ)
    assert found.max_abs == max((abs(y - x) for x, y in kept), default=0.0)
    assert found.l2 == pytest.approx(math.hypot(*(y - x for x, y in kept)), rel=1e-12, abs=0)
    assert found.norm_a == pytest.approx(math.hypot(*(float(x) for x in a if math.isfinite(x))), rel=1e-12, abs=0)
