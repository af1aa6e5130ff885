"""What an answer shows to a person, block by block: sentences, tables, and lines in colours.

Rules kept here:

1. In a pipe, and wherever no terminal draws, a table is a line of column names and tab-separated rows, whose columns stay.
2. Nothing that a terminal would obey, or that would break a line or a column, stands in a line.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

from countermark.lines.texts import Document, plain

if TYPE_CHECKING:
    from countermark.lines.heat_text import Styled

#: A line, or a cell of a table, is cut after so many characters.
LENGTH_MAX: Final = 4000


@final
@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences, one a line."""

    lines: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; every row has as many cells as there are columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@final
@dataclass(frozen=True, slots=True)
class Painted:
    """Lines of parts, each part with the style that a terminal may give it."""

    lines: "tuple[Styled, ...]"


Block: TypeAlias = Lines | Table | Painted


@final
@dataclass(frozen=True, slots=True)
class Shown:
    """An answer before it has its frame: ``document`` for programs, ``blocks`` for people."""

    document: Document
    blocks: tuple[Block, ...]


def table_of(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], nothing: str) -> Lines | Table:
    """Rows as a table; without any, the line that says so."""
    return Table(columns, rows) if rows else Lines((nothing,))


def block_lines(block: Block) -> tuple[str, ...]:
    """A block as it is written where no terminal draws it."""
    match block:
        case Lines(lines):
            return tuple(plain(line, LENGTH_MAX) for line in lines)
        case Painted(lines):
            return tuple(plain("".join(text for text, _ in line), LENGTH_MAX).rstrip() for line in lines)
        case Table(columns, rows):
            return tuple("\t".join(plain(cell, LENGTH_MAX) for cell in row) for row in (columns, *rows))
