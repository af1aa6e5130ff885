"""Times as filters spell them: an ISO date or date-time, exact to the nanosecond.

Rules kept here:

1. A bare date is its midnight in UTC, and a time without a zone is in UTC: what a filter means does not depend on where it is asked.
2. No clock is read, and no zone beyond an offset is known.
"""

import re
from datetime import date
from typing import Final

from countermark.values import Unreadable

_TIME: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?(?P<zone>[Zz]|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_EPOCH: Final = date(1970, 1, 1)


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
