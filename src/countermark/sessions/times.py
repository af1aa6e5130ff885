"""Times of events: how they are read, spelled, and which of them can be used.

Rules kept here:

1. A time is ns UTC, from 1970 to 2262; 0 is none.
2. What an event says of time is kept as it was said. A time that cannot be used (none, an end before its start, a day or more ahead of its
   receipt) orders nothing and measures nothing, and is flagged.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, final

#: A time further ahead of its receipt than this is no time.
AHEAD_MAX_NS: Final = 86_400 * 10**9
TIME_MAX_NS: Final = 2**63 - 1

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)
_DIGITS: Final = re.compile(r"\d{1,19}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

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


def read_time(value: object) -> int | None:
    """A time in ns UTC, from ISO 8601 with an offset, from a whole number of nanoseconds or from its digits; None for anything else."""
    if isinstance(value, str):
        if _DIGITS.fullmatch(value):
            value = int(value)
        elif (found := _TIME.fullmatch(value)) is not None:
            return _of_text(found)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TIME_MAX_NS:
        return None
    return value


def _of_text(found: re.Match[str]) -> int | None:
    second, fraction, offset = found.groups()
    try:
        whole = datetime.fromisoformat(f"{second}{'+00:00' if offset in 'Zz' else offset}")
    except ValueError:
        return None
    seconds = (whole - _EPOCH) // timedelta(seconds=1)
    read = seconds * 10**9 + int((fraction or "").ljust(9, "0"))
    return read if 0 < read <= TIME_MAX_NS else None


def spell_time(time_ns: int) -> str:
    """A time (ns UTC, 0 to 2^63 − 1) as text, with as many digits of the second as it needs: none, 3, 6 or 9."""
    seconds, fraction = divmod(time_ns, 10**9)
    digits = f"{fraction:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    told = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{told}{'.' + digits if digits else ''}Z"
