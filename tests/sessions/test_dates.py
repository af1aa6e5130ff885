"""Times of filters: to the nanosecond, in UTC unless they say another zone, and refused with the reason."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions import times
from countermark.sessions.times import nanoseconds
from countermark.values import Unreadable
from tests.faults import planted, proven_by

NOVEMBER: Final = 1_793_491_200 * 10**9
HOUR: Final = 3600 * 10**9

READ: Final = {
    "1970-01-01": 0,
    "1969-12-31T23:59:59.999999999Z": -1,
    "2026-11-01": NOVEMBER,
    "2026-11-01T00:00": NOVEMBER,
    "2026-11-01 00:00:00Z": NOVEMBER,
    "2026-11-01t01:00:00z": NOVEMBER + HOUR,
    "2026-11-01T01:00:00+01:00": NOVEMBER,
    "2026-11-01T01:30+0130": NOVEMBER,
    "2026-10-31T23:30-00:30": NOVEMBER,
    "2026-11-01T00:00:00.5": NOVEMBER + 500_000_000,
    "2026-11-01T00:00:00,000000001Z": NOVEMBER + 1,
    "2026-11-01T00:00:00.123456789-01:00": NOVEMBER + HOUR + 123_456_789,
    "0001-01-01": -62_135_596_800 * 10**9,
    "9999-12-31T23:59:59.999999999Z": 253_402_300_800 * 10**9 - 1,
    "2024-02-29": 1_709_164_800 * 10**9,
}

_NONE: Final = "it is no ISO date or date-time, such as 2026-11-01 or 2026-11-01T09:30:00.5Z"
_HOURS: Final = "a day has 24 hours of 60 minutes of 60 seconds"
REFUSED: Final = {
    "": _NONE,
    "today": _NONE,
    "2026-11": _NONE,
    "2026-1-1": _NONE,
    "20261101": _NONE,
    "2026-11-01Z": _NONE,
    "2026-11-01T09": _NONE,
    "2026-11-01T09:30:00.1234567890": _NONE,
    "2026-11-01\n": _NONE,
    " 2026-11-01": _NONE,
    "٢٠٢٦-11-01": _NONE,
    "1793491200": _NONE,
    "2026-02-29": "there is no day 2026-02-29",
    "0000-01-01": "there is no day 0000-01-01",
    "2026-13-01": "there is no day 2026-13-01",
    "2026-11-01T24:00": _HOURS,
    "2026-11-01T09:60": _HOURS,
    "2026-11-01T23:59:60Z": _HOURS,
    "2026-11-01T09:30+24:00": "there is no zone +24:00",
    "2026-11-01T09:30-01:60": "there is no zone -01:60",
}


@proven_by(planted(times, "_TIME", re.compile(times._TIME.pattern.replace(r"(?P<zone>[Zz]|", "(?P<zone>[Zz])?(?:"))))
def test_a_time_is_read_to_the_nanosecond() -> None:
    assert {text: nanoseconds(text) for text in READ} == READ


def test_what_is_no_time_is_refused_with_the_reason() -> None:
    assert {text: nanoseconds(text) for text in REFUSED} == {text: Unreadable(why) for text, why in REFUSED.items()}


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-24 * 60 + 1, 24 * 60 - 1))
def test_every_time_in_every_zone_is_what_the_calendar_says(at: datetime, ahead_minutes: int) -> None:
    zoned = at.replace(tzinfo=timezone(timedelta(minutes=ahead_minutes)))
    assert nanoseconds(zoned.isoformat()) == (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


@given(st.text(max_size=40) | st.from_regex(times._TIME, fullmatch=True))
def test_no_text_raises(text: str) -> None:
    assert isinstance(nanoseconds(text), int | Unreadable)


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-01T09:30"])
def test_the_same_instant_without_a_zone_is_in_utc(text: str) -> None:
    full = text if "T" in text else f"{text}T00:00"
    assert nanoseconds(text) == nanoseconds(f"{full}Z") == nanoseconds(f"{full}+00:00")
