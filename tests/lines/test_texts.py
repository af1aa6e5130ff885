"""What a terminal would obey never leaves the formatters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.lines import texts
from countermark.lines.texts import camel, counted, either, listed, number, plain, sized
from tests.faults import planted, proven_by


@given(st.text(max_size=600))
def test_nothing_unprintable_leaves_plain(text: str) -> None:
    assert plain(text).isprintable()


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S")), max_size=400))
def test_what_can_be_printed_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\tb\nc\rd", "a\\tb\\nc\\rd"),
        ("\u202eexe.txt", "\\u202eexe.txt"),
        ("\udcff", "\\udcff"),
        ("\x9b2J", "\\x9b2J"),
        ("schön 重み", "schön 重み"),
        ("x" * 401, "x" * 399 + "…"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


@proven_by(planted(texts, "_SAFE_INTEGER_MAX", 2**64))
def test_whole_numbers_that_javascript_cannot_hold_are_strings() -> None:
    edge = 2**53
    shown = [texts.number(value) for value in (edge, edge + 1, -edge, -edge - 1)]
    assert shown == [edge, str(edge + 1), -edge, str(-edge - 1)]


def test_lists_and_counts_read_as_sentences() -> None:
    assert [listed(items) for items in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["nothing", "a", "a and b", "a, b and c"]
    assert [either(items) for items in (("a",), ("a", "b"), ("a", "b", "c"))] == ["a", "a or b", "a, b or c"]
    assert [counted(0, "file"), counted(1, "file"), counted(1200, "retry", "retries")] == ["0 files", "1 file", "1,200 retries"]
    assert [camel(name) for name in ("axis", "micro_batches", "sha256_before_now")] == ["axis", "microBatches", "sha256BeforeNow"]
    assert number(7) == 7


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
        (538_090_408, "538.1 MB"), (10**15, "1.0 PB"),
    ],
)  # fmt: skip
def test_sizes_for_people(size: int, shown: str) -> None:
    assert sized(size) == shown
