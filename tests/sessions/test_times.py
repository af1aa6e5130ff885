"""A time is read in each of its forms, and one that cannot be used measures nothing."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions import times
from countermark.sessions.times import AHEAD_MAX_NS, Times, read_time, spell_time, times_of
from tests.faults import planted, proven_by
from tests.sessions.test_events import NOW, event

FORMS: Final[tuple[tuple[object, int], ...]] = (
    ("1970-01-01T00:00:00.000000001Z", 1),
    ("2026-12-03T08:00:00Z", 1796284800000000000),
    ("2026-12-03 09:30:00.5+01:30", 1796284800500000000),
    ("2026-12-03t08:00:00.123456789z", 1796284800123456789),
    ("1796284800123456789", 1796284800123456789),
    (1796284800123456789, 1796284800123456789),
    (0, 0),
    (2**63 - 1, 2**63 - 1),
)


def test_a_time_is_read_in_each_of_its_forms() -> None:
    assert [read_time(said) for said, _ in FORMS] == [time for _, time in FORMS]


@given(st.integers(1, 2**63 - 1))
def test_a_time_that_is_spelled_is_read_again(time: int) -> None:
    assert read_time(spell_time(time)) == time


TIMES: Final[tuple[tuple[int, int, Times], ...]] = (
    (NOW, NOW, Times(NOW, 0, None)),
    (NOW - 5, NOW, Times(NOW - 5, 5, None)),
    (NOW, 0, Times(NOW, None, None)),
    (NOW, NOW - 1, Times(NOW, None, "end before start")),
    (0, NOW, Times(None, None, "unsaid")),
    (0, 0, Times(None, None, "unsaid")),
    (NOW + AHEAD_MAX_NS, NOW + AHEAD_MAX_NS, Times(NOW + AHEAD_MAX_NS, 0, None)),
    (NOW + AHEAD_MAX_NS + 1, 0, Times(None, None, "ahead of receipt")),
    (NOW, NOW + AHEAD_MAX_NS + 1, Times(NOW, None, "ahead of receipt")),
    (1, 2**63 - 1, Times(1, None, "ahead of receipt")),
)


@proven_by(planted(times, "AHEAD_MAX_NS", 2**70), planted(times, "AHEAD_MAX_NS", 0))
def test_a_time_that_cannot_be_used_measures_nothing_and_says_why() -> None:
    for start, end, expected in TIMES:
        assert times_of(start, end, NOW) == expected
        assert event(start_ns=start, end_ns=end).times == expected
