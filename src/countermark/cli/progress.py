"""Progress on standard error, where that is a terminal; elsewhere nothing, so that no log fills with it."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from countermark.lines.texts import plain, sized

if TYPE_CHECKING:
    from countermark.store.sessions.interface import Forgotten

_INTERVAL_S: Final = 0.1
#: A sweep's stages; a test holds the number to the evidence's own list, which is too heavy to be imported here.
STAGE_COUNT: Final = 6


def hashing(what: str) -> Callable[[int, int], None]:
    """Told the bytes read so far and the bytes to read; draws one line and clears it at the end."""
    return _bytes_done(f"hashing {plain(what, 60)}")


def reading(what: str) -> Callable[[int, int], None]:
    """As ``hashing``, of something that is read and not hashed."""
    return _bytes_done(f"reading {plain(what, 60)}")


def _bytes_done(label: str) -> Callable[[int, int], None]:
    if not sys.stderr.isatty():
        return _silent
    drawn = 0.0

    def draw(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if done >= total:
            sys.stderr.write("\r\x1b[K")
        elif now - drawn >= _INTERVAL_S:
            drawn = now
            sys.stderr.write(f"\r\x1b[K{label}: {done * 100 // total} % of {sized(total)}")
        sys.stderr.flush()

    return draw


def exporting() -> Callable[[int], None]:
    """Told how many events were written; draws one line in its place, which the answer's first line follows."""
    return _counting("events written")


def _counting(what: str) -> Callable[[int], None]:
    if not sys.stderr.isatty():
        return lambda done: None
    drawn = 0.0

    def draw(done: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn >= _INTERVAL_S:
            drawn = now
            sys.stderr.write(f"\r\x1b[K{done:,} {what}\r")
            sys.stderr.flush()

    return draw


def removing() -> "Callable[[Forgotten], object]":
    """Told what went so far; draws one line in its place, as ``exporting`` does."""
    draw = _counting("events taken out")
    return lambda gone: draw(gone.events)


def watched_hashing(what: str) -> Callable[[int, int], None] | None:
    """As ``hashing``; None where nobody watches, so that nobody adds up what is to be read either."""
    return hashing(what) if sys.stderr.isatty() else None


def sweeping() -> Callable[[str], None]:
    """Told the stage that a sweep reads, and an empty text at its end; draws one line in its place and clears it. A long sweep reads and
    hashes what attempts left: the line says at which of its stages it is."""
    return _Sweeping().tell if sys.stderr.isatty() else _unheard


@final
@dataclass(slots=True)
class _Sweeping:
    stages: int = 0

    def tell(self, stage: str) -> None:
        if not stage:
            sys.stderr.write("\r\x1b[K")
            self.stages = 0
        else:
            self.stages += 1
            sys.stderr.write(f"\r\x1b[Klooking: {plain(stage, 60)} ({self.stages} of {STAGE_COUNT})")
        sys.stderr.flush()


def _unheard(stage: str) -> None:
    """Nobody watches."""


def _silent(done: int, total: int) -> None:
    """Nobody watches."""


def say(line: str) -> None:
    """One line about what is being done, on standard error: standard output is for the answer."""
    sys.stderr.write(plain(line, 2000) + "\n")
    sys.stderr.flush()
