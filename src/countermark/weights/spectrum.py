"""How much of a change lies in few directions: the energy in rank r of B − A, and what may be said of it.

Rules kept here:

1. Energy in rank r is the share of the sum of squares of B − A that the best matrix of rank r holds: σ₁² + … + σᵣ² over all σ². It is
   measured from below: what is told is never more than there is. A rank that is counted from the values that are not zero is told nowhere:
   rounding to bfloat16 makes every matrix one of full rank.
2. A change *looks like a rank-r adapter* where all of this holds for r, and for no smaller one: the first r values hold ``ENERGY_MIN`` of
   the energy; the r-th singular value is at least twice the next; what is left is flat (the next, squared, is no larger than 16 times what
   noise of the size of the rest shows as its largest, or below a thousandth of the whole, squared); and the change is spread over at
   least four times as many rows, and columns, as r, so that a few rows or a few numbers, whose rank is small whatever they are, are not
   taken for one.
3. Nothing is left out in silence: a changed tensor has a spectrum or the reason why it has none.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, final

from countermark.weights.difference import TensorDifference

#: The ranks that documents tell the energy of; the last is the largest that is recognised.
RANKS: Final = (1, 2, 4, 8, 16, 32)
#: Directions that are followed: the largest rank and some more, without which its values would come out too small.
DIRECTIONS: Final = 40
#: The rank of which a table tells the energy where none stands out.
RANK_SHOWN: Final = 8
ENERGY_MIN: Final = 0.9
_FLAT: Final = 16.0
_GAP: Final = 4.0
_FLOOR: Final = 1e-6
_SPREAD: Final = 4
#: Wider matrices would need more memory than a comparison may have: some arrays of so many rows of ``DIRECTIONS`` numbers.
COLUMNS_MAX: Final = 65_536

#: Why a changed tensor has no spectrum: too much to measure unasked; no matrix; no float numbers on both sides; wider than ``COLUMNS_MAX``;
#: no l2, or one of zero.
Gap = Literal["not_asked", "vector", "not_float", "wide", "no_l2"]


@final
@dataclass(frozen=True, slots=True)
class Spectrum:
    """The largest squared singular values of B − A as shares of the sum of all, greatest first. ``rows`` × ``columns``: the matrix that it
    is of. ``spread_rows``: over how many rows the change is spread, (Σ e)² / Σ e² of their energies e; ``spread_columns`` likewise."""

    rows: int
    columns: int
    l2: float
    shares: tuple[float, ...]
    spread_rows: float
    spread_columns: float

    def energy(self, rank: int) -> float:
        """The share of the change that lies in ``rank`` directions; for a rank beyond those that were followed, of these."""
        return min(math.fsum(self.shares[:rank]), 1.0)

    def adapter_rank(self) -> int | None:
        """The rank of the adapter that the change looks like, by the rule above. The largest value of a matrix of noise is near
        (√m + √n)² / mn of its energy: that is what a flat rest shows."""
        edge = (math.sqrt(self.rows) + math.sqrt(self.columns)) ** 2 / (self.rows * self.columns)
        for rank in range(1, min(RANKS[-1], len(self.shares) - 1) + 1):
            following = self.shares[rank]
            flat = following <= max(_FLAT * edge * (1.0 - self.energy(rank)), _FLOOR)
            if flat and self.energy(rank) >= ENERGY_MIN and self.shares[rank - 1] >= max(_GAP * following, _FLOOR):
                return rank if _SPREAD * rank <= min(self.spread_rows, self.spread_columns) else None
        return None


@final
@dataclass(frozen=True, slots=True)
class Spectra:
    """The spectrum of each changed tensor by its name in A, or why it has none. ``elements``: of those that could have one."""

    found: tuple[tuple[str, Spectrum | Gap], ...]
    elements: int = 0

    @property
    def measured(self) -> tuple[Spectrum, ...]:
        return tuple(one for _, one in self.found if isinstance(one, Spectrum))

    def left_out(self, *gaps: Gap) -> int:
        """How many tensors have no spectrum for one of these reasons."""
        return sum(one in gaps for _, one in self.found if not isinstance(one, Spectrum))

    def adapters(self) -> tuple[int, ...]:
        """The ranks of those that look like an adapter."""
        return tuple(rank for one in self.measured if (rank := one.adapter_rank()) is not None)

    def energy(self, rank: int) -> float | None:
        """The energy in ``rank`` directions of each, over all that were measured; None where nothing was."""
        largest = max((one.l2 for one in self.measured), default=0.0)
        if largest == 0.0:
            return None
        weights = [(one.l2 / largest) ** 2 for one in self.measured]
        whole = math.fsum(weight * one.energy(rank) for weight, one in zip(weights, self.measured, strict=True))
        return min(whole / math.fsum(weights), 1.0)


NO_SPECTRA: Final = Spectra(())


def cut(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """A shape as rows and columns: cut where the shorter side is longest, so that a convolution is its outputs by all the rest, and a stack
    of matrices keeps their columns. None where it is a vector."""
    sizes = [(math.prod(shape[:at]), math.prod(shape[at:])) for at in range(1, len(shape))]
    best = max(sizes, key=min, default=(1, 1))
    return best if min(best) > 1 else None


def changed_rows(rows: Iterable[TensorDifference]) -> tuple[TensorDifference, ...]:
    """The rows that a spectrum can be asked of: the same tensor on both sides, with other values."""
    return tuple(row for row in rows if row.status in ("changed", "cast"))


def gap_of(row: TensorDifference) -> Gap | None:
    """Why a changed tensor has no spectrum, whatever is asked for; None where it can have one."""
    assert row.a is not None
    matrix = cut(row.a.shape)
    if row.numbers is None or row.numbers.domain != "float":
        return "not_float"
    if not row.numbers.l2 or row.numbers.max_abs is None:
        return "no_l2"
    if matrix is None:
        return "vector"
    return "wide" if matrix[1] > COLUMNS_MAX else None
