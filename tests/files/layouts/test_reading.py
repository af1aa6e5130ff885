"""What is asked of many files at once: the same answers as looking at each of them, however many there are."""

from hypothesis import given
from hypothesis import strategies as st

from countermark.files.layouts import reading
from countermark.files.layouts.reading import NAMED_MAX, gaps, lying_in
from countermark.files.reading import Entry, Stamp
from tests.faults import planted, proven_by

NAMES = st.text("a/0.-\U0010ffff", min_size=1, max_size=4)


@proven_by(planted(reading, "bisect_left", lambda entries, name, *rest, key: 0))
@given(st.sets(NAMES), st.text("a0.\U0010ffff", min_size=1, max_size=2))
def test_what_lies_in_a_folder_is_what_begins_with_its_name(names: set[str], folder: str) -> None:
    entries = tuple(Entry(name, "a regular file", Stamp(0, 0, 0, 0, 0)) for name in sorted({*names, f"{folder}/x", f"{folder}0"}))
    assert lying_in(entries, f"{folder}/") == tuple(entry for entry in entries if entry.name.startswith(f"{folder}/"))
    assert lying_in(entries, "") == entries


@proven_by(planted(reading, "islice", lambda numbers, most: ()))
@given(st.sets(st.integers(-3, 40)), st.integers(0, 3), st.integers(0, 40))
def test_the_first_that_are_missing_are_named_and_the_others_counted(there: set[int], first: int, end: int) -> None:
    absent = [number for number in range(first, end) if number not in there]
    assert gaps(there, range(first, end)) == (tuple(absent[:NAMED_MAX]), len(absent[NAMED_MAX:]))


def test_nothing_is_counted_up_to_a_number_that_somebody_wrote() -> None:
    assert gaps((0, 2, 10**15), range(10**15 + 1)) == ((1, *range(3, 10)), 10**15 - 10)
