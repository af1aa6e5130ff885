"""What follows from a run's row: derived from its material, and kept for as long as the very same row is read again.

Rules kept here:

1. Nothing in a row is believed. Whatever is read is held against what was derived from exactly these cells, letter by letter; a row that
   differs in any of them is derived anew, and refused where it does not follow.
2. What is kept belongs to one opened store, is bounded, and is forgotten with it. A check of a store keeps nothing and derives every row.
"""

from functools import lru_cache
from typing import Final, TypeAlias, final

from countermark.run.demand import TrainingRunDesired
from countermark.run.records import RowDefect, RowUnreadable, RunContext
from countermark.store import rows
from countermark.store.rows import Row
from countermark.values import Refused

#: The desired run and the context of a row, or what is wrong with either.
Followed: TypeAlias = "tuple[TrainingRunDesired | Refused[RowDefect], RunContext | RowUnreadable]"

#: How many rows' answers are kept; each takes some thousand bytes.
KEPT_MAX: Final = 4096


def derive(row: Row) -> Followed:
    """What follows from a row, from its cells alone."""
    return rows.desired_of(row), rows.context_of(row)


@final
class Material:
    """Derives what follows from rows, the same row once. Safe to use from several threads."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._of: Final = lru_cache(kept_max)(_derived)

    def derive(self, row: Row) -> Followed:
        """What follows from a row."""
        return self._of(tuple((name, type(cell), cell) for name, cell in row.items()))


def _derived(cells: tuple[tuple[str, type, object], ...]) -> Followed:
    return derive({name: cell for name, _, cell in cells})
