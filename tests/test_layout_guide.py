"""The guide's table of layouts is the roster's: each layout has its row, in no other words than the roster's where it names things."""

import re
from pathlib import Path

from countermark.files import layouts
from countermark.files.layouts.published import PUBLISHED_NAMING
from tests.faults import planted, proven_by

PAGE = Path(__file__).parents[1] / "docs/guide/checkpoint-layouts.md"
#: The project's own form, which lies around any of the layouts.
PUBLISHED = "countermark"


def rows() -> list[list[str]]:
    """The cells of the table, row by row, without its head."""
    found = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[2:]]


@proven_by(planted(layouts, "LAYOUTS", layouts.LAYOUTS[:-1]))
def test_every_layout_has_its_row_with_the_names_that_it_is_called_by() -> None:
    shown = {re.sub("`", "", row[0]): re.findall("`([^`]+)`", row[1]) for row in rows()}
    expected = {layout.name: [naming.text for naming in layout.names] for layout in layouts.LAYOUTS}
    assert shown == expected | {PUBLISHED: [PUBLISHED_NAMING.text]}


def test_every_row_says_something_of_each_component_and_of_publication() -> None:
    assert all(len(row) == 8 and all(row) for row in rows())
