"""The map of a difference by layer and module: for the terminal that is there, and as a picture."""

import shutil
import sys
from typing import TYPE_CHECKING, Final

from countermark.cli.answers import Painted

if TYPE_CHECKING:
    from countermark.app.weights import Compared
    from countermark.weights.difference import Surprises

#: Rows of a map in a terminal at most.
_ROWS_MAX: Final = 60


def drawn(found: "Compared", surprises: "Surprises") -> Painted:
    """The map in characters that the output has, as wide as the terminal; where there is none, as COLUMNS says, or 80."""
    from countermark.lines.heat_text import ASCII, BLOCKS, columns_for, heat_lines
    from countermark.weights.heat import heat_map

    width = shutil.get_terminal_size().columns
    heat = heat_map(found.found.rows, surprises.unchanged, columns_for(width), _ROWS_MAX)
    try:
        "".join((BLOCKS.levels, BLOCKS.dots, *BLOCKS.looks.values())).encode(sys.stdout.encoding or "ascii")
        alphabet = BLOCKS
    except (UnicodeEncodeError, LookupError):
        alphabet = ASCII
    return Painted(heat_lines(heat, width, alphabet))


def picture(found: "Compared", surprises: "Surprises", a: str, b: str) -> bytes:
    """The map as SVG."""
    from countermark.lines.heat_svg import COLUMNS_MAX, ROWS_MAX, heat_svg
    from countermark.lines.weights import verdict_line
    from countermark.weights.heat import heat_map

    heat = heat_map(found.found.rows, surprises.unchanged, COLUMNS_MAX, ROWS_MAX)
    return heat_svg(heat, a, b, verdict_line(found.found, found.spectra)).encode()
