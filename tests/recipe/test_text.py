"""Fields that cannot change the weights: a line of text, or a number of their own kind."""

import pytest

from countermark.recipe.text import InertField, read_inert
from countermark.values import PositiveInt, Unreadable

TEXT = InertField(None, "a place")
LINE = Unreadable("it must be a line of text")


@pytest.mark.parametrize("raw", ["", " ", "a\nb", 3, None, "x" * 4097])
def test_what_is_no_line_of_text_is_no_place(raw: object) -> None:
    assert read_inert(TEXT, raw) == LINE


def test_a_line_is_kept_as_it_stands_and_a_number_is_read() -> None:
    for line in (" a b ", "x" * 4096):
        assert read_inert(TEXT, line) == line
    number = InertField(PositiveInt, "how often")
    assert read_inert(number, "5") == 5
    assert isinstance(read_inert(number, "0"), Unreadable)
