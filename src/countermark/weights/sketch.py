"""The largest singular values of a matrix that is seen row by row, twice, and never held: a randomized singular value decomposition.

With D the matrix and Ω a fixed matrix of signs, the first pass over the rows sums DᵀDΩ, which is one power step; its orthonormal basis Q
spans the directions in which D is large. The second pass sums (DQ)ᵀ(DQ), whose eigenvalues are the squares of D's singular values along Q:
never larger than they are, and the first of them nearly so wherever they stand out.

Rules kept here:

1. Memory is columns × directions, whatever the number of rows.
2. Ω is drawn from a hash of a constant: the same matrix has the same spectrum on every machine, to the digits that documents tell.
3. The numbers are float32, which halves time and memory: a difference is scaled by a power of two so that its largest number is near 1,
   and an energy is exact to 1e-6: below that, a thousandth of the l2 squared, ``countermark.weights.spectrum`` counts nothing.
   Differences of float64 numbers are taken in float64.
4. Pairs that are not finite on both sides count as unchanged, as they do for l2.
"""

import hashlib
import math
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from countermark.weights.elements import Elements, numbers_of
from countermark.weights.spectrum import DIRECTIONS, Spectrum

_Matrix: TypeAlias = NDArray[np.float32]
#: Where a difference of two float32 numbers, and its scaling, are exact enough in float32.
_PLAIN_MIN: Final = 2.0**-60
_PLAIN_MAX: Final = 2.0**100


def signs(rows: int) -> _Matrix:
    """Ω: ``rows`` × ``DIRECTIONS`` numbers that are 1 or −1, always the same."""
    count = rows * DIRECTIONS
    drawn = np.frombuffer(hashlib.shake_128(b"countermark spectrum").digest(-(-count // 8)), dtype=np.uint8)
    found: _Matrix = np.unpackbits(drawn)[:count].astype(np.float32)
    found *= 2
    found -= 1
    return found.reshape(rows, DIRECTIONS)


@final
class Sketch:
    """What two passes over the rows of B − A gather. Hand in all rows in order to ``first``, then again to ``second``."""

    __slots__ = ("_basis", "_by_column", "_columns", "_exponent", "_gram", "_largest", "_rows", "_summed", "_two", "_wide")

    def __init__(self, columns: int, largest: float, dtype_a: str, dtype_b: str) -> None:
        """``largest``: the greatest magnitude in the difference."""
        self._columns = columns
        self._largest = largest
        self._exponent = math.frexp(largest)[1]
        self._two = (dtype_a, dtype_b)
        self._wide = "F64" in (dtype_a, dtype_b) or not _PLAIN_MIN < largest < _PLAIN_MAX
        self._basis = signs(columns)
        self._summed: _Matrix = np.zeros((columns, DIRECTIONS), dtype=np.float32)
        self._gram: NDArray[np.float64] = np.zeros((0, 0))
        self._by_column: NDArray[np.float64] = np.zeros(columns)
        self._rows: list[NDArray[np.float64]] = []

    def first(self, a: memoryview, b: memoryview) -> None:
        """Some rows, the first time."""
        apart, energies = self._apart(a, b)
        self._rows.append(energies)
        kept = _moved(apart, energies)
        if kept.size:
            self._by_column += np.einsum("ij,ij->j", kept, kept)
            self._summed += kept.T @ (kept @ self._basis)

    def turn(self) -> None:
        """All rows were seen once."""
        self._basis = np.linalg.qr(self._summed)[0]
        self._summed = self._summed[:0]
        directions = self._basis.shape[1]
        self._gram = np.zeros((directions, directions))

    def second(self, a: memoryview, b: memoryview) -> None:
        """The same rows, the second time."""
        apart, energies = self._apart(a, b)
        kept = _moved(apart, energies)
        if kept.size:
            along = (kept @ self._basis).astype(np.float64)
            self._gram += along.T @ along

    def result(self, l2: float) -> Spectrum:
        """The spectrum, for a difference of this l2."""
        by_row = np.concatenate(self._rows)
        whole = float(by_row.sum())
        found = np.linalg.eigvalsh(self._gram)[::-1]
        count = min(DIRECTIONS, by_row.size, self._columns)
        shares = tuple(min(max(float(value) / whole, 0.0), 1.0) for value in found[:count]) if whole else (0.0,) * count
        return Spectrum(by_row.size, self._columns, l2, shares, _spread(by_row), _spread(self._by_column))

    def _apart(self, a: memoryview, b: memoryview) -> tuple[_Matrix, NDArray[np.float64]]:
        """Rows of the scaled difference, and the sum of squares of each."""
        left, right = numbers_of(self._two[0], a), numbers_of(self._two[1], b)
        apart = self._scaled(left, right).reshape(-1, self._columns)
        energies: NDArray[np.float64] = np.einsum("ij,ij->i", apart, apart).astype(np.float64)
        if not float(energies.sum()) <= 1.01 * apart.size:
            # Pairs that are not finite; or numbers larger than the largest, which only a file has that is another one by now.
            np.clip(np.nan_to_num(apart, copy=False, posinf=0, neginf=0), -1, 1, out=apart)
            energies = np.einsum("ij,ij->i", apart, apart).astype(np.float64)
        return apart, energies

    def _scaled(self, left: Elements, right: Elements) -> _Matrix:
        with np.errstate(over="ignore", invalid="ignore"):
            if self._wide or left.dtype != np.float32 or right.dtype != np.float32:
                return np.ldexp(right.astype(np.float64) - left.astype(np.float64), -self._exponent).astype(np.float32)
            apart: _Matrix = right - left
            apart *= np.float32(2.0**-self._exponent)
            return apart


def _moved(apart: _Matrix, energies: NDArray[np.float64]) -> _Matrix:
    """The rows that are not zero: an edit of some rows costs what these cost."""
    moved = energies > 0
    return apart if bool(moved.all()) else apart[moved]


def _spread(energies: NDArray[np.float64]) -> float:
    """Over how many of them they are spread: their number where all are equal, 1 where one has everything."""
    whole, squares = float(energies.sum()), float(np.square(energies).sum())
    return whole * whole / squares if squares else 0.0
