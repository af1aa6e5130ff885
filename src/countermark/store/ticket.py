"""A ticket for writing: processes queue for it instead of hammering the database's own lock, whose busy handler starves waiters.

Rules kept here:

1. Two bytes of one file are locked: the door (whose turn is next) and the counter (whose turn is now). Who leaves the counter has to queue
   at the door again, so a process that writes in a loop cannot overtake the one that waits at the counter.
2. The locks belong to an open file description: threads of one process exclude each other too, and a killed process leaves nothing locked.
3. Waiting is bounded, and who waited in vain is told which process holds the counter.
"""

import errno
import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final

_DOOR: Final = 0
_COUNTER: Final = 1
#: ``struct flock``: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi4x"
#: At the door, who has waited longer looks more often, so that newcomers do not overtake it.
_PAUSE_S: Final = 0.002
_PAUSE_MIN_S: Final = 0.0005
#: At the counter stands one alone, who is next: a turn takes less than half a millisecond, and nobody writes while it sleeps.
_PAUSE_NEXT_S: Final = 0.0001


class TicketTimeout(Exception):
    """The wait was over before the turn came."""

    def __init__(self, waited_ms: int, holder: str) -> None:
        super().__init__(f"waited {waited_ms} ms")
        self.waited_ms = waited_ms
        self.holder = holder


def open_ticket(path: Path) -> int:
    """A descriptor of the ticket's file, which is made when it is not there; a link in its place is not followed. Raises ``OSError``."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def _set(descriptor: int, kind: int, byte: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _take(descriptor: int, byte: int, began_s: float, wait_s: float) -> None:
    pause_s = _PAUSE_NEXT_S if byte == _COUNTER else _PAUSE_S
    while not _set(descriptor, fcntl.F_WRLCK, byte):
        waited_s = time.monotonic() - began_s
        if waited_s >= wait_s:
            raise TicketTimeout(round(waited_s * 1000), _holder(descriptor))
        time.sleep(min(pause_s, wait_s - waited_s))
        pause_s = min(pause_s * 1.2, _PAUSE_MIN_S) if byte == _COUNTER else max(pause_s * 0.8, _PAUSE_MIN_S)


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return text if text.isascii() and text.isdigit() else ""


class Ticket:
    """Holds the counter of the file at ``path`` (made when it is not there) for a block, which is given the seconds that the wait took.

    Raises ``TicketTimeout`` after ``wait_s`` seconds and ``OSError`` when the file cannot be opened for writing.
    """

    __slots__ = ("_descriptor", "_path", "_wait_s")

    def __init__(self, path: Path, wait_s: float) -> None:
        self._path = path
        self._wait_s = wait_s

    def __enter__(self) -> float:
        descriptor = self._descriptor = open_ticket(self._path)
        began_s = time.monotonic()
        try:
            _take(descriptor, _DOOR, began_s, self._wait_s)
            try:
                _take(descriptor, _COUNTER, began_s, self._wait_s)
            finally:
                _set(descriptor, fcntl.F_UNLCK, _DOOR)
            _note_holder(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return time.monotonic() - began_s

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _note_holder(descriptor: int) -> None:
    """Who holds the counter, for the message of those who wait in vain; on a full disk the message goes without it."""
    try:
        os.pwrite(descriptor, f"{os.getpid():<20}".encode(), 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
