"""Progress on standard error, where that is a terminal; elsewhere nothing, so that no log fills with it."""

import sys
import time
from collections.abc import Callable
from typing import Final

from countermark.lines.texts import plain, sized

_INTERVAL_S: Final = 0.1


def hashing(what: str) -> Callable[[int, int], None]:
    """Told the bytes read so far and the bytes to read; draws one line and clears it at the end."""
    if not sys.stderr.isatty():
        return _silent
    label = plain(what, 60)
    drawn = 0.0

    def draw(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if done >= total:
            sys.stderr.write("\r\x1b[K")
        elif now - drawn >= _INTERVAL_S:
            drawn = now
            sys.stderr.write(f"\r\x1b[Khashing {label}: {done * 100 // total} % of {sized(total)}")
        sys.stderr.flush()

    return draw


def _silent(done: int, total: int) -> None:
    """Nobody watches."""


def say(line: str) -> None:
    """One line about what is being done, on standard error: standard output is for the answer."""
    sys.stderr.write(plain(line, 2000) + "\n")
    sys.stderr.flush()
