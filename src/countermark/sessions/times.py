"""Times of events: how they are read, spelled, and which of them can be used.

Rules kept here:

1. A time is ns UTC; that of an event lies between 1970 and 2262, and 0 is none. A bare date is its midnight in UTC, a time without a zone
   is in UTC (an event's has its zone), and no zone beyond an offset is known: what a text means does not depend on where it is read.
2. What an event says of time is kept as it was said. A time that cannot be used (none, an end before its start, a day or more ahead of its
   receipt) orders nothing and measures nothing, and is flagged.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Literal, TypeAlias, final

from countermark.values import Unreadable

#: A time further ahead of its receipt than this is no time.
AHEAD_MAX_NS: Final = 86_400 * 10**9
TIME_MAX_NS: Final = 2**63 - 1

_TIME: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?(?P<zone>[Zz]|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_DIGITS: Final = re.compile(r"\d{1,19}", re.ASCII)
_EPOCH: Final = date(1970, 1, 1)

OddTime: TypeAlias = Literal["unsaid", "end before start", "ahead of receipt"]


@final
@dataclass(frozen=True, slots=True)
class Times:
    """When something was (ns UTC) and for how long (ns), each None where that is not known, and why a time that was said is not used."""

    when: int | None
    lasted: int | None
    odd: OddTime | None


def times_of(start_ns: int, end_ns: int, received_ns: int) -> Times:
    """What can be used of the times that an event says; 0 is none."""
    if start_ns <= 0:
        return Times(None, None, "unsaid")
    if start_ns > received_ns + AHEAD_MAX_NS:
        return Times(None, None, "ahead of receipt")
    if end_ns <= 0:
        return Times(start_ns, None, None)
    if end_ns < start_ns:
        return Times(start_ns, None, "end before start")
    if end_ns > received_ns + AHEAD_MAX_NS:
        return Times(start_ns, None, "ahead of receipt")
    return Times(start_ns, end_ns - start_ns, None)


def nanoseconds(text: str) -> int | Unreadable:
    """Nanoseconds since 1970 in UTC, of whatever size: years 1 to 9999."""
    read = _TIME.fullmatch(text)
    if read is None:
        return Unreadable("it is no ISO date or date-time, such as 2026-11-01 or 2026-11-01T09:30:00.5Z")
    try:
        days = (date.fromisoformat(read["date"]) - _EPOCH).days
    except ValueError:
        return Unreadable(f"there is no day {read['date']}")
    hour, minute, second = (int(read[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return Unreadable("a day has 24 hours of 60 minutes of 60 seconds")
    zone = (read["zone"] or "Z").replace(":", "")
    ahead_minutes = 0 if zone in "Zz" else int(zone[:3]) * 60 + int(zone[0] + zone[3:])
    if abs(ahead_minutes) >= 24 * 60 or (zone not in "Zz" and int(zone[3:]) > 59):
        return Unreadable(f"there is no zone {read['zone']}")
    seconds = ((days * 24 + hour) * 60 + minute - ahead_minutes) * 60 + second
    return seconds * 1_000_000_000 + int((read["fraction"] or "").ljust(9, "0"))


def read_time(value: object) -> int | None:
    """The time of an event in ns UTC, from a date and time with its zone, from a whole number of nanoseconds or from its digits; None for
    anything else."""
    if isinstance(value, str):
        if _DIGITS.fullmatch(value):
            value = int(value)
        elif (found := _TIME.fullmatch(value)) is not None and found["zone"] is not None:
            read = nanoseconds(value)
            return read if isinstance(read, int) and 0 < read <= TIME_MAX_NS else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TIME_MAX_NS:
        return None
    return value


def spell_time(time_ns: int) -> str:
    """A time (ns UTC, 0 to 2^63 − 1) as text, with as many digits of the second as it needs: none, 3, 6 or 9."""
    seconds, fraction = divmod(time_ns, 10**9)
    digits = f"{fraction:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    told = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat(timespec="seconds")
    return f"{told}{'.' + digits if digits else ''}Z"
