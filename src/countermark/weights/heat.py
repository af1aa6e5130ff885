"""Where the weights changed: a map of layers by modules, made from names and numbers alone.

Rules kept here:

1. The layer of a tensor is the first number in its name that tells several tensors apart (``model.layers.7.mlp.up_proj.weight``: 7). What
   stands before it is the stack, what stands after it the module; further numbers, as of experts, share a cell. A tensor without such a
   number has a row of its own.
2. A cell says everything that its tensors are: how far those that changed did, together, and how many became what no number tells.
   Nothing that changed is drawn as unchanged, nor the other way round.
3. A picture stays readable whatever the model: of more layers than columns several share one, and rows beyond a bound are folded, those
   that changed least first. How many were folded is said.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, final

from countermark.weights.difference import TensorDifference

#: Parts of a name that are looked at; names are from outside.
_PARTS_MAX: Final = 16
#: Digits that a layer's number has at most.
_DIGITS_MAX: Final = 6
#: Powers of ten that a scale spans at most; what is smaller is drawn as the smallest.
_DECADES_MAX: Final = 4


#: What a cell is drawn as. ``missed``: expected to change, and unchanged.
Look = Literal["changed", "unmeasured", "removed", "added", "missed", "unchanged"]


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """The tensors in one place. ``changed``: how many have other bytes, type or shape; ``relative``: ‖B − A‖ / ‖A‖ over those of them that
    have both; ``unmeasured``: how many have not. ``missed``: expected to change, and did not. ``non_finite``: values that became so."""

    name: str
    tensors: int = 0
    changed: int = 0
    relative: float | None = None
    unmeasured: int = 0
    added: int = 0
    removed: int = 0
    missed: int = 0
    non_finite: int = 0

    @property
    def look(self) -> Look:
        """What it is drawn as, beside the marks on it: what is most worth seeing."""
        if self.relative is not None:
            return "changed"
        if self.unmeasured:
            return "unmeasured"
        if self.removed or self.added:
            return "removed" if self.removed else "added"
        return "missed" if self.missed else "unchanged"

    @property
    def weight(self) -> tuple[bool, int, float]:
        """How much there is to see, for what is folded first."""
        odd = self.unmeasured + self.added + self.removed
        return self.non_finite > 0, odd + self.missed, self.relative or 0.0


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A module of a stack, one cell for each column; or a tensor outside of all layers, whose cell is the only one."""

    label: str
    cells: tuple[Cell | None, ...]


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A stack of layers with its modules; or, where ``stack`` is None, everything that is in no layer. ``folded``: rows not shown."""

    stack: str | None
    rows: tuple[Row, ...]
    folded: int = 0


@final
@dataclass(frozen=True, slots=True)
class Scale:
    """Relative changes from ``low`` to ``high``, on a logarithmic scale; both are 1, 2 or 5 times a power of ten."""

    low: float
    high: float

    def place(self, relative: float) -> float:
        """From 0 to 1; what is off the scale stands at its end."""
        if relative <= self.low:
            return 0.0
        return min(math.log(relative / self.low) / math.log(self.high / self.low), 1.0)

    def ticks(self) -> tuple[float, ...]:
        """The ends, and the powers of ten between them that stand apart from both."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        inside = (float(f"1e{power}") for power in powers)
        return (self.low, *(each for each in inside if 0.15 < self.place(each) < 0.85), self.high)


@final
@dataclass(frozen=True, slots=True)
class HeatMap:
    """``columns``: the layers of each column, first and last. ``scale``: None where nothing that changed can be measured."""

    columns: tuple[tuple[int, int], ...]
    sections: tuple[Section, ...]
    scale: Scale | None

    def cells(self) -> Iterator[Cell]:
        """Every cell that is shown."""
        return (cell for section in self.sections for row in section.rows for cell in row.cells if cell is not None)


def heat_map(rows: Iterable[TensorDifference], missed: frozenset[str], columns_max: int, rows_max: int) -> HeatMap:
    """The map of a difference; ``missed`` are the names that were expected to change and did not."""
    kept = [row for row in rows if row.status != "tied"]
    places = _places([row.name for row in kept])
    layers = max((layer for _, layer, _ in places if layer is not None), default=-1) + 1
    wide = max(-(-layers // columns_max), 1)
    columns = tuple((begin, min(begin + wide, layers) - 1) for begin in range(0, layers, wide))
    gathered: dict[tuple[str | None, str], dict[int, list[TensorDifference]]] = {}
    for row, (stack, layer, module) in zip(kept, places, strict=True):
        gathered.setdefault((stack, module), {}).setdefault(0 if layer is None else layer // wide, []).append(row)
    by_stack: dict[str | None, list[Row]] = {}
    for (stack, module), by_column in gathered.items():
        count = 1 if stack is None else len(columns)
        cells = tuple(_cell(by_column[at], missed) if at in by_column else None for at in range(count))
        by_stack.setdefault(stack, []).append(Row(module.removesuffix(".weight") or module, cells))
    # What is in no layer comes last; all else stands in the order of its names.
    ordered = sorted(by_stack, key=lambda stack: (stack is None, stack or ""))
    sections = [Section(stack, tuple(sorted(by_stack[stack], key=lambda row: row.label))) for stack in ordered]
    shown = _folded(sections, rows_max)
    return HeatMap(columns, shown, _scale([cell.relative for section in sections for row in section.rows for cell in row.cells if cell]))


def _places(names: Sequence[str]) -> list[tuple[str | None, int | None, str]]:
    """Stack, layer and module of each name; for one without a layer, None twice and the name."""
    numbers: dict[str, set[int]] = {}
    cut = [list(_numbers(name)) for name in names]
    for found in cut:
        for before, number, _ in found:
            numbers.setdefault(before, set()).add(number)
    places: list[tuple[str | None, int | None, str]] = []
    for name, found in zip(names, cut, strict=True):
        first = next((each for each in found if len(numbers[each[0]]) > 1), None)
        places.append((None, None, name) if first is None else (first[0], first[1], first[2]))
    return places


def _numbers(name: str) -> Iterator[tuple[str, int, str]]:
    """Each number that is a part of a name, with what stands before and after it; later numbers are told as ``*``."""
    parts = name.split(".")
    for at, part in enumerate(parts[:_PARTS_MAX]):
        if _is_number(part):
            after = ("*" if _is_number(each) else each for each in parts[at + 1 :])
            yield ".".join(parts[:at]), int(part), ".".join(after)


def _is_number(part: str) -> bool:
    return len(part) <= _DIGITS_MAX and part.isascii() and part.isdecimal()


def _cell(rows: Sequence[TensorDifference], missed: frozenset[str]) -> Cell:
    cell = Cell(rows[0].name, len(rows))
    moved: list[tuple[float, float]] = []
    for row in rows:
        numbers = row.numbers
        changed = row.status in ("changed", "cast", "reshaped")
        measured = numbers is not None and numbers.relative() is not None
        if changed and numbers is not None and numbers.l2 is not None and numbers.norm_a is not None and measured:
            moved.append((numbers.l2, numbers.norm_a))
        cell = replace(
            cell,
            changed=cell.changed + changed,
            unmeasured=cell.unmeasured + (changed and not measured),
            added=cell.added + (row.status == "only_b"),
            removed=cell.removed + (row.status == "only_a"),
            missed=cell.missed + (row.name in missed),
            non_finite=cell.non_finite + (0 if numbers is None else numbers.non_finite_created),
        )
    return replace(cell, relative=_relative(moved)) if moved else cell


def _relative(moved: Sequence[tuple[float, float]]) -> float:
    """‖B − A‖ / ‖A‖ of several tensors together."""
    apart, norm = (math.hypot(*each) for each in zip(*moved, strict=True))
    found = apart / norm if norm else 0.0
    return found if math.isfinite(found) else max(one / other for one, other in moved)


def _folded(sections: Sequence[Section], rows_max: int) -> tuple[Section, ...]:
    """The sections with at most so many rows in all; those that show most stay, in their order."""
    numbered = [(at, each, row) for at, section in enumerate(sections) for each, row in enumerate(section.rows)]
    ranked = sorted(numbered, key=lambda one: max(cell.weight for cell in one[2].cells if cell is not None), reverse=True)
    kept = {(at, each) for at, each, _ in ranked[:rows_max]}
    found: list[Section] = []
    for at, section in enumerate(sections):
        rows = tuple(row for each, row in enumerate(section.rows) if (at, each) in kept)
        found.append(Section(section.stack, rows, len(section.rows) - len(rows)))
    return tuple(found)


def _scale(relatives: Sequence[float | None]) -> Scale | None:
    """A scale that holds what changed, of one power of ten to ``_DECADES_MAX``."""
    positive = [each for each in relatives if each is not None and each > 0]
    if not positive:
        return None
    high = min((each for each in _steps(max(positive)) if each >= max(positive)), default=max(positive))
    low = max((each for each in _steps(min(positive)) if each <= min(positive)), default=min(positive))
    return Scale(min(max(low, high / 10**_DECADES_MAX), high / 10), high)


def _steps(near: float) -> Iterator[float]:
    """1, 2 and 5 times the powers of ten around a number."""
    power = math.floor(math.log10(near))
    for each in (power, power + 1):
        yield from (number for one in (1, 2, 5) if 0 < (number := float(f"{one}e{each}")) < math.inf)
