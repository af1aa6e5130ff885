"""How far two tensors are apart: six numbers, accumulated block by block, that do not depend on where the blocks end.

Definitions (the same on every surface):

1. ``changed`` counts elements whose bits differ; it is 0 exactly when the data's hashes are equal. Between different types it has no
   meaning and is None.
2. ``value_changed`` counts elements whose values differ, after exact widening: −0.0 equals 0.0, and NaN equals NaN.
3. ``l2`` and ``max_abs`` are of B − A over the pairs that are finite on both sides, by modulus for complex numbers. They are accumulated in
   float64 with a relative error of at most 1e-12, also where a square of a float64 would overflow or vanish.
4. ``non_finite_created`` counts elements that are finite in A and not in B, ``non_finite_cleared`` the other way round.
5. ``norm_a`` is the l2 of A over its finite elements, so that a difference can be called large or small.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, cast, final

import numpy as np
from numpy.typing import NDArray

from countermark.weights.difference import Numbers
from countermark.weights.dtypes import DTYPE_BITS
from countermark.weights.elements import Elements, Wide, codes_of, domain_of, element_count, numbers_of

#: Elements that are widened at once: they stay near the cores, and two threads seldom wait for the interpreter's lock.
PIECE: Final = 1 << 17
#: Elements that are summed plainly: few enough to keep 13 digits.
_ROW: Final = 8_192
_TINY: Final = 2.0**-400
_HUGE: Final = 2.0**400
#: Of a sum of squares between these, a part that vanished or was rounded among the smallest float64 is none that anybody sees.
_SQUARES_MIN: Final = 2.0**-700
_SQUARES_MAX: Final = 2.0**900


@final
@dataclass(slots=True)
class SumOfSquares:
    """A sum of squares of float64 numbers as ``sum × 4^exponent``: neither overflows nor vanishes; sums of blocks are added exactly enough
    (compensated) that their number does not matter."""

    total: float = 0.0
    lost: float = 0.0
    exponent: int = 0

    def add(self, values: NDArray[np.float64], largest: float) -> None:
        """Add the squares of ``values`` (flat, finite), of which ``largest`` is the greatest magnitude."""
        if largest == 0.0:
            return
        exponent = 0 if _TINY < largest < _HUGE else math.frexp(largest)[1]
        scaled = values if exponent == 0 else np.ldexp(values, -exponent)
        self.add_sum(float(np.add.reduce(np.square(scaled))), exponent)

    def add_sum(self, part: float, exponent: int = 0) -> None:
        """Add a sum of squares that was made elsewhere, times ``4^exponent``."""
        if part == 0.0:
            return
        if self.total == 0.0:
            self.exponent = exponent
        elif exponent > self.exponent:
            self.total, self.lost = (math.ldexp(one, 2 * (self.exponent - exponent)) for one in (self.total, self.lost))
            self.exponent = exponent
        elif exponent < self.exponent:
            part = math.ldexp(part, 2 * (exponent - self.exponent))
        grown = self.total + part
        self.lost += (self.total - grown) + part if self.total >= part else (part - grown) + self.total
        self.total = grown

    def root(self) -> float | None:
        """The square root of the sum; None where no float64 holds it."""
        try:
            return math.ldexp(math.sqrt(self.total + self.lost), self.exponent)
        except OverflowError:
            return None


def _no_squares() -> SumOfSquares:
    return SumOfSquares()


def _two_wide() -> tuple[Wide, Wide]:
    return Wide(PIECE), Wide(PIECE)


@final
@dataclass(slots=True)
class Comparison:
    """Two tensors of equal element count, compared as their blocks come. ``raw``: by bits alone."""

    dtype_a: str
    dtype_b: str
    raw: bool = False
    elements: int = 0
    changed: int = 0
    value_changed: int = 0
    created: int = 0
    cleared: int = 0
    largest: float = 0.0
    squares: SumOfSquares = field(default_factory=_no_squares)
    squares_a: SumOfSquares = field(default_factory=_no_squares)
    _wide: tuple[Wide, Wide] = field(default_factory=_two_wide, repr=False)

    def add(self, a: memoryview, b: memoryview) -> None:
        """One block of each side, ending with the same element."""
        # A signalling NaN that is widened, and a square that no float64 holds, are nothing that a person is to be warned of.
        with np.errstate(invalid="ignore", over="ignore"):
            self._add(a, b)

    def _add(self, a: memoryview, b: memoryview) -> None:
        self.elements += element_count(self.dtype_a, len(a))
        if not self.raw and domain_of(self.dtype_a) == domain_of(self.dtype_b) == "float":
            steps = (PIECE * DTYPE_BITS[self.dtype_a] // 8, PIECE * DTYPE_BITS[self.dtype_b] // 8)
            for at in range(-(-len(a) // steps[0])):
                self._real(a[at * steps[0] : (at + 1) * steps[0]], b[at * steps[1] : (at + 1) * steps[1]])
            return
        differing = self._differing(a, b)
        if self.raw:
            return
        left = numbers_of(self.dtype_a, a)
        if differing == 0:
            self._norms_of_equal(left)
        else:
            self._values(left, numbers_of(self.dtype_b, b))

    def _differing(self, a: memoryview, b: memoryview) -> int | None:
        """Counts the elements that differ in their bits, and says how many; None between different types."""
        if self.dtype_a != self.dtype_b:
            return None
        differing = int(np.count_nonzero(codes_of(self.dtype_a, a) != codes_of(self.dtype_b, b)))
        self.changed += differing
        return differing

    def _real(self, a: memoryview, b: memoryview) -> None:
        """A piece of real numbers: at once where all are finite, and none of a size whose square is lost; else the long way."""
        differing = self._differing(a, b)
        left = self._wide[0].of(self.dtype_a, a)
        square_a = _square(left)
        if differing == 0:
            if _kept(square_a, left):
                self.squares_a.add_sum(square_a)
            else:
                self._norms_of_equal(left)
            return
        plain = _kept(square_a, left)
        # A difference is finite only where both its numbers are, and 0 only where they are equal.
        apart = np.subtract(self._wide[1].of(self.dtype_b, b), left, out=left)
        square = _square(apart)
        if not (plain and _kept(square, apart)):
            self._values(numbers_of(self.dtype_a, a), numbers_of(self.dtype_b, b))
            return
        self.value_changed += int(np.count_nonzero(apart != 0))
        self.largest = max(self.largest, _largest(apart))
        self.squares_a.add_sum(square_a)
        self.squares.add_sum(square)

    def _norms_of_equal(self, both: Elements) -> None:
        finite = _finite_parts(both)
        largest = _largest(finite)
        self.squares_a.add(finite, largest)

    def _values(self, a: Elements, b: Elements) -> None:
        if a.dtype.kind in "iu" and b.dtype.kind in "iu":
            self._whole(a, b)
            return
        wide: Any = np.complex128 if np.iscomplexobj(a) or np.iscomplexobj(b) else np.float64
        left, right = a.astype(wide), b.astype(wide)
        finite_a, finite_b = np.isfinite(left), np.isfinite(right)
        self.created += int(np.count_nonzero(finite_a & ~finite_b))
        self.cleared += int(np.count_nonzero(~finite_a & finite_b))
        # A whole number of 64 bits is no float64: there the values are compared as what they are.
        exact = _exactly_equal(a, b)
        equal = exact if exact is not None else (left == right) | (np.isnan(left) & np.isnan(right))
        self.value_changed += int(equal.size - np.count_nonzero(equal))
        pairs = finite_a & finite_b
        self._apart(left[pairs], right[pairs])
        kept = _flat(left[finite_a])
        self.squares_a.add(kept, _largest(kept))

    def _apart(self, left: Elements, right: Elements) -> None:
        """Add l2 and maximum of the difference of finite numbers."""
        apart = right - left
        if apart.size and not bool(np.isfinite(apart).all()):
            # Two float64 of opposite sign can be further apart than float64 reaches: halves are not.
            apart = right / 2 - left / 2
            flat = _flat(apart)
            halved = _largest_modulus(apart)
            scaled = SumOfSquares()
            scaled.add(flat, _largest(flat))
            self.largest = max(self.largest, 2 * halved)
            self.squares.add_sum(scaled.total + scaled.lost, scaled.exponent + 1)
            return
        self.largest = max(self.largest, _largest_modulus(apart))
        flat = _flat(apart)
        self.squares.add(flat, _largest(flat))

    def _whole(self, a: Elements, b: Elements) -> None:
        """Whole numbers: the magnitude of a difference of two 64-bit numbers is a 64-bit number without a sign."""
        apart = _magnitudes(a, b)
        self.value_changed += int(np.count_nonzero(apart))
        if apart.size:
            self.largest = max(self.largest, float(apart.max()))
        for values, squares in ((apart, self.squares), (a, self.squares_a)):
            flat = values.astype(np.float64)
            squares.add(flat, _largest(flat))

    def result(self) -> Numbers:
        """The numbers so far."""
        same_type = self.dtype_a == self.dtype_b
        changed = self.changed if same_type else None
        if self.raw:
            return Numbers(self.elements, changed, None, None, None, 0, 0, None, "raw")
        domain = domain_of(self.dtype_a) if domain_of(self.dtype_a) != "integer" else domain_of(self.dtype_b)
        return Numbers(
            self.elements,
            changed,
            self.value_changed,
            self.squares.root(),
            self.largest if math.isfinite(self.largest) else None,
            self.created,
            self.cleared,
            self.squares_a.root(),
            domain,
        )


def _flat(values: Elements) -> NDArray[np.float64]:
    """Real parts and imaginary parts one after another: the sum of their squares is that of the moduli."""
    if np.iscomplexobj(values):
        return np.ascontiguousarray(values).view(np.float64).reshape(-1)
    return values.reshape(-1)


def _finite_parts(values: Elements) -> NDArray[np.float64]:
    """A tensor's finite numbers as float64."""
    wide = values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)
    finite = np.isfinite(wide)
    return _flat(wide if bool(finite.all()) else wide[finite])


def _square(values: NDArray[np.float64]) -> float:
    """The sum of the squares. For rows so short, no library of linear algebra takes threads of its own, which would fight ours."""
    whole = values.size // _ROW * _ROW
    rows, rest = values[:whole].reshape(-1, _ROW), values[whole:]
    return float(np.add.reduce(np.vecdot(rows, rows))) + float(np.vecdot(rest, rest))


def _kept(square: float, values: NDArray[np.float64]) -> bool:
    """Whether the sum of the squares of numbers is exact: all are finite, and none so large or so small that its square is lost."""
    return _SQUARES_MIN < square < _SQUARES_MAX or (square == 0.0 and not bool(values.any()))


def _largest(flat: NDArray[np.float64]) -> float:
    return max(float(flat.max()), -float(flat.min())) if flat.size else 0.0


def _largest_modulus(values: Elements) -> float:
    if not values.size:
        return 0.0
    if np.iscomplexobj(values):
        return float(np.hypot(values.real, values.imag).max())
    return _largest(values)


def _magnitudes(a: Elements, b: Elements) -> Elements:
    """|b − a| of whole numbers as unsigned ones of 64 bits, exactly."""
    if np.uint64 in (a.dtype, b.dtype) and a.dtype != b.dtype:
        signed, unsigned = (b, a) if a.dtype == np.uint64 else (a, b)
        wide = signed.astype(np.int64)
        beside: Elements = np.maximum(wide, 0).view(np.uint64)
        apart: Elements = _either(beside > unsigned, beside - unsigned, unsigned - beside)
        # Below zero, the number's own magnitude comes on top; past 64 bits it stays at their end, which is within the bound of a float64.
        below: Elements = np.minimum(wide, 0).view(np.uint64) * np.uint64(2**64 - 1)
        grown: Elements = apart + below
        return _either(grown < apart, np.uint64(2**64 - 1), grown)
    if a.dtype == np.uint64:
        return _either(b > a, b - a, a - b)
    left, right = a.astype(np.int64), b.astype(np.int64)
    high, low = np.maximum(left, right), np.minimum(left, right)
    return high.view(np.uint64) - low.view(np.uint64)


def _either(condition: Elements, yes: Elements, no: Elements) -> Elements:
    """NumPy's ``where``, whose type for arrays of any type no checker knows."""
    return cast(Elements, np.where(condition, yes, no))


def _exactly_equal(a: Elements, b: Elements) -> NDArray[np.bool_] | None:
    """Where a float64 does not hold both sides exactly (a 64-bit whole number beside a float): whether each pair is one value."""
    if np.int64 not in (a.dtype, b.dtype) and np.uint64 not in (a.dtype, b.dtype):
        return None
    whole, other = (a, b) if a.dtype in (np.int64, np.uint64) else (b, a)
    if other.dtype.kind in "iu":
        return None
    real = other.real.astype(np.float64) if np.iscomplexobj(other) else other.astype(np.float64)
    info = np.iinfo(whole.dtype)
    inside = np.isfinite(real) & (real >= float(info.min)) & (real < float(info.max)) & (real == np.floor(real))
    if np.iscomplexobj(other):
        inside &= other.imag == 0
    # What is whole and in range turns into the other type exactly.
    turned = np.where(inside, real, 0.0).astype(whole.dtype)
    return inside & (turned == whole)
