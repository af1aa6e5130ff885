"""What follows from a run's row: derived from its material, and kept for as long as the very same row is read again.

Rules kept here:

1. Nothing in a row is believed. Whatever is read is held against what was derived from exactly these cells, letter by letter; a row that
   differs in any of them is derived anew, and refused where it does not follow. A work follows from four of the cells alone, so rows that
   agree in these share its derivation, whoever demands it.
2. What is kept belongs to one opened store, is bounded, and is forgotten with it. A check of a store keeps nothing and derives every row.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias, final

from countermark.run.demand import TrainingRunDesired, WorkNotDerived, WorkRecalled
from countermark.run.records import RowDefect, RowUnreadable, RunContext
from countermark.store import rows
from countermark.store.rows import Row
from countermark.values import Refused

#: The desired run and the context of a row, or what is wrong with either.
Followed: TypeAlias = "tuple[TrainingRunDesired | Refused[RowDefect], RunContext | RowUnreadable]"

#: How many rows' answers are kept; each takes some thousand bytes.
KEPT_MAX: Final = 4096
#: How many works are kept: many runs are demands for the same one, and none of them derives it again.
WORKS_MAX: Final = 1024

#: The cells of a row, or some of them. Their types belong to them: 1 and True are equal otherwise.
Cells: TypeAlias = tuple[tuple[str, ...], tuple[type, ...], tuple[object, ...]]


def derive(row: Row) -> Followed:
    """What follows from a row, from its cells alone."""
    return rows.desired_of(row), rows.context_of(row)


def _cells(row: Row, names: Iterable[str]) -> Cells:
    named = tuple(names)
    cells = tuple([row[name] for name in named])
    return named, tuple([type(cell) for cell in cells]), cells


def _row(cells: Cells) -> Row:
    names, _, given = cells
    return dict(zip(names, given, strict=True))


@final
class Material:
    """Derives what follows from rows, the same row once, and the same work once. Safe to use from several threads."""

    def __init__(self, kept_max: int = KEPT_MAX, works_max: int = WORKS_MAX) -> None:
        self._of: Final = lru_cache(kept_max)(self._derived)
        self._work_of: Final = lru_cache(works_max)(_recalled)

    def derive(self, row: Row) -> Followed:
        """What follows from a row."""
        return self._of((tuple(row), tuple(map(type, row.values())), tuple(row.values())))

    def _derived(self, cells: Cells) -> Followed:
        row = _row(cells)
        return rows.desired_of(row, self._work), rows.context_of(row)

    def _work(self, row: Row) -> WorkRecalled | Refused[WorkNotDerived]:
        return self._work_of(_cells(row, rows.WORK_COLUMNS))


def _recalled(cells: Cells) -> WorkRecalled | Refused[WorkNotDerived]:
    return rows.work_of(_row(cells))
