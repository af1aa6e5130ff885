"""The map of layers by modules as lines of characters, for a terminal of some width.

Rules kept here:

1. One character is one cell; what it means stands in the legend, and only what occurs does. Without block characters, digits stand in.
2. No line is wider than the terminal, and no name moves its cursor. Where nothing can be coloured everything can still be told.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias, final

from countermark.lines.texts import counted, plain
from countermark.weights.heat import Cell, HeatMap, Look, Row, Section

#: Parts of a line, each with the style that a terminal may give it.
Styled: TypeAlias = tuple[tuple[str, str], ...]

_LABEL_MAX: Final = 36
_COLUMNS_MIN: Final = 16
#: From little to much: readable on dark and on light ground.
_STYLES: Final = ("color(178)", "color(178)", "color(172)", "color(172)", "color(166)", "color(166)", "color(160)", "bold color(160)")
_SAID: Final[dict[Look, str]] = {
    "unchanged": "unchanged", "missed": "expected to change, unchanged", "unmeasured": "changed, without a norm", "removed": "only in A",
    "added": "only in B",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Alphabet:
    """The characters of a map: ``levels`` from little to much, one for each other look, and the mark for values that became non-finite."""

    levels: str
    looks: dict[Look, str]
    non_finite: str
    dots: str


BLOCKS: Final = Alphabet("▁▂▃▄▅▆▇█", {"unchanged": "·", "missed": "╱", "unmeasured": "◆", "removed": "−", "added": "+"}, "!", "…")
ASCII: Final = Alphabet("12345678", {"unchanged": ".", "missed": "/", "unmeasured": "#", "removed": "-", "added": "+"}, "!", "...")


def columns_for(width: int) -> int:
    """How many columns of layers a map of a terminal of this width has at most."""
    return max(width - _LABEL_MAX - 4, _COLUMNS_MIN)


def heat_lines(heat: HeatMap, width: int, alphabet: Alphabet = BLOCKS) -> tuple[Styled, ...]:
    """The map, its axis and its legend."""
    longest = max((_wide(_label(row)) for section in heat.sections for row in section.rows), default=0)
    label = min(longest, _LABEL_MAX, max(width - len(heat.columns) - 4, 8)) + 2
    lines: list[Styled] = []
    for section in heat.sections:
        lines.append(_heading(heat, section, label, alphabet))
        lines.extend((("  " + _fitted(_label(row), label, alphabet), ""), *_cells(heat, row, alphabet)) for row in section.rows)
        if section.folded:
            lines.append(((f"  {alphabet.dots} {counted(section.folded, 'more row')}, of no greater change", "dim"),))
    return (*lines, *_legend(heat, width, alphabet))


def _label(row: Row) -> str:
    return plain(row.label, 200)


def _heading(heat: HeatMap, section: Section, label: int, alphabet: Alphabet) -> Styled:
    if section.stack is None:
        return (("in no layer", "bold"),)
    axis = ""
    for at in range(0, len(heat.columns), 10):
        number = str(heat.columns[at][0])
        # A number stands over its column, where there is room for it.
        if (len(axis) < at or not at) and at + len(number) <= max(len(heat.columns), 1):
            axis = axis.ljust(at) + number
    return ((_fitted(plain(section.stack, 200) or "layers", label + 2, alphabet), "bold"), (axis, "dim"))


def _cells(heat: HeatMap, row: Row, alphabet: Alphabet) -> Styled:
    drawn = (_drawn(heat, cell, alphabet) for cell in row.cells)
    return tuple(("".join(text for text, _ in each), style) for style, each in groupby(drawn, key=itemgetter(1)))


def _drawn(heat: HeatMap, cell: Cell | None, alphabet: Alphabet) -> tuple[str, str]:
    if cell is None:
        return " ", ""
    if cell.non_finite:
        return alphabet.non_finite, "bold magenta"
    if cell.relative is not None:
        place = 0.0 if heat.scale is None else heat.scale.place(cell.relative)
        level = min(int(place * len(alphabet.levels)), len(alphabet.levels) - 1)
        return alphabet.levels[level], _STYLES[level]
    return alphabet.looks[cell.look], "dim" if cell.look == "unchanged" else "cyan"


def _legend(heat: HeatMap, width: int, alphabet: Alphabet) -> tuple[Styled, ...]:
    cells = tuple(heat.cells())
    said: list[str] = []
    if heat.scale is not None:
        said.append(f"{alphabet.levels} relative change from {heat.scale.low:g} to {heat.scale.high:g}")
    if heat.columns and (layers := heat.columns[0][1] - heat.columns[0][0] + 1) > 1:
        said.append(f"{layers:,} layers a column")
    if any(cell.non_finite for cell in cells):
        said.append(f"{alphabet.non_finite} became NaN or infinite")
    looks = {cell.look for cell in cells if not cell.non_finite}
    said.extend(f"{alphabet.looks[look]} {words}" for look, words in _SAID.items() if look in looks)
    return tuple(((line, "dim"),) for line in _wrapped(said, width))


def _wrapped(parts: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part[:width])
    return lines


def _fitted(text: str, width: int, alphabet: Alphabet) -> str:
    """Text that fills exactly so many columns: cut in its middle, where names differ least."""
    if alphabet is ASCII and not text.isascii():
        text = text.encode("ascii", "replace").decode()
    if _wide(text) > width - 1:
        room = max(width - 1 - len(alphabet.dots), 0)
        text = _cut(text, room - room // 2) + alphabet.dots + _cut(text[::-1], room // 2)[::-1]
    return text + " " * (width - _wide(text))


def _cut(text: str, width: int) -> str:
    """As much of the front as so many columns hold."""
    kept = len(text)
    while _wide(text[:kept]) > width:
        kept -= 1
    return text[:kept]


def _wide(text: str) -> int:
    """The columns that a terminal gives a text."""
    return sum(0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)
