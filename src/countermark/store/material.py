"""What follows from a run's row: derived from its material, and kept for as long as the very same row is read again.

Rules kept here:

1. Nothing in a row is believed. Whatever is read is held against what was derived from exactly these cells, letter by letter; a row that
   differs in any of them is derived anew, and refused where it does not follow. A work follows from four of the cells alone, so rows that
   agree in these share its derivation, whoever demands it.
2. What is kept belongs to one opened store, is bounded, and is forgotten with it. A check of a store keeps nothing and derives every row.
3. Who claims holds the run, or the whole ledger, meanwhile. Texts that rows share are kept once: they need not be fetched from far away for
   each row that is compared with them.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias, final

from countermark.run.claims import RunLedger
from countermark.run.demand import TrainingRunDesired, WorkNotDerived, WorkRecalled
from countermark.run.records import RowDefect, RowUnreadable, RunContext, RunRecord
from countermark.store import rows
from countermark.store.rows import BadCell, Row
from countermark.values import Refused

#: The run of a row with no fact of it told yet; or its desired run and its context, or what is wrong with either.
Followed: TypeAlias = "RunRecord | tuple[TrainingRunDesired | Refused[RowDefect], RunContext | RowUnreadable]"

#: How many rows' answers are kept; each takes some thousand bytes. All are forgotten when there are more.
KEPT_MAX: Final = 4096
#: How many works are kept: many runs are demands for the same one, and none of them derives it again.
WORKS_MAX: Final = 1024

#: The cells of a row, or some of them. Their types belong to them: 1 and True are equal otherwise.
Cells: TypeAlias = tuple[tuple[str, ...], tuple[type, ...], tuple[object, ...]]


def derive(row: Row) -> Followed:
    """What follows from a row, from its cells alone."""
    return _followed(row, rows.desired_of(row))


def _followed(row: Row, desired: TrainingRunDesired | Refused[RowDefect]) -> Followed:
    context = rows.context_of(row)
    if isinstance(desired, Refused) or isinstance(context, RowUnreadable):
        return desired, context
    try:
        return RunRecord(desired.demand.id.run_id(), RunLedger(desired, 0), context, rows.int_of(row, "created_ms"))
    except BadCell as error:
        return desired, RowUnreadable("runs", str(row["run_id"]), str(error))


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
        self._kept_max: Final = kept_max
        self._kept: Final[dict[object, tuple[tuple[object, ...], tuple[type, ...], Followed]]] = {}
        self._work_of: Final = lru_cache(works_max)(_recalled)

    def derive(self, row: Row) -> Followed:
        """What follows from a row."""
        cells = tuple(row.values())
        kept = self._kept.get(row["run_id"])
        if kept is not None and kept[0] == cells and kept[1] == tuple(map(type, cells)):
            return kept[2]
        followed = _followed(row, rows.desired_of(row, self._work))
        shared = tuple([sys.intern(cell) if type(cell) is str else cell for cell in cells])
        if len(self._kept) >= self._kept_max:
            self._kept.clear()
        self._kept[row["run_id"]] = shared, tuple(map(type, cells)), followed
        return followed

    def _work(self, row: Row) -> WorkRecalled | Refused[WorkNotDerived]:
        return self._work_of(_cells(row, rows.WORK_COLUMNS))


def _recalled(cells: Cells) -> WorkRecalled | Refused[WorkNotDerived]:
    return rows.work_of(_row(cells))
