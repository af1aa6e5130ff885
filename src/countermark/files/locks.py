"""Locks of open file descriptions: held by whoever inherited the descriptor, gone with the last of them.

Rules kept here:

1. Probing never takes the lock: a probe that did would race the process that is about to take it.
2. A probe opens the file read-only, follows no symbolic link, and never creates it.
3. A lock file is created once and never removed or replaced: a lock on a removed file is seen by nobody.
4. A fence shuts a trainer out without looking like one: it holds the first byte, a trainer holds them all, and a probe asks about the rest.
"""

import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

# struct flock on 64-bit Linux: type, whence, start, length, pid. The kernel wants pid = 0 for open-file-description locks.
_FLOCK: Final = "hhqqi4x"


@final
@dataclass(frozen=True, slots=True)
class LockHeld:
    """Somebody holds the lock at this moment."""


@final
@dataclass(frozen=True, slots=True)
class LockFree:
    """Nobody holds the lock at this moment."""


@final
@dataclass(frozen=True, slots=True)
class LockAbsent:
    """There is no lock file, and the folder's listing agrees."""


@final
@dataclass(frozen=True, slots=True)
class LockUnreadable:
    """The lock could not be asked about; ``why`` says what stood in the way."""

    why: str


LockReading = LockHeld | LockFree | LockAbsent | LockUnreadable

#: Ranges of the lock file as first byte and length; a length of 0 reaches to its end, however long it grows.
_ALL: Final = (0, 0)
_FENCE: Final = (0, 1)
_BEHIND_FENCE: Final = (1, 0)


def _exclusive(place: tuple[int, int]) -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, *place, 0)


def open_lock(path: Path) -> int:
    """A descriptor of the lock file for ``take_lock``, close-on-exec; the file is created if need be. Raises ``OSError``."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


def take_lock(descriptor: int) -> bool:
    """Take the exclusive lock on the descriptor's open file description at once; False when another one holds it, or a fence."""
    return _take(descriptor, _ALL)


def take_fence(descriptor: int) -> bool:
    """Shut out whoever would take the lock, as long as the descriptor is open; False when somebody holds it. No probe sees this."""
    return _take(descriptor, _FENCE)


def _take(descriptor: int, place: tuple[int, int]) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _exclusive(place))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def probe_lock(path: Path) -> LockReading:
    """Whether somebody holds the lock, a fence aside, asked on an open file description of our own without taking it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return _absent(path)
    except OSError as error:
        return LockUnreadable(f"{path.name}: {error.strerror}")
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return LockUnreadable(f"{path.name} is no regular file")
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _exclusive(_BEHIND_FENCE))
    except OSError as error:
        return LockUnreadable(f"{path.name}: {error.strerror}")
    finally:
        os.close(descriptor)
    kind: int = struct.unpack(_FLOCK, answer)[0]
    return LockFree() if kind == fcntl.F_UNLCK else LockHeld()


def _absent(path: Path) -> LockAbsent | LockUnreadable:
    try:
        listed = path.name in os.listdir(path.parent)
    except FileNotFoundError:
        return LockAbsent()
    except OSError as error:
        return LockUnreadable(f"{path.parent.name}: {error.strerror}")
    return LockUnreadable(f"{path.name} is listed and cannot be opened: the reads disagree") if listed else LockAbsent()


def holds_lock(pid: int, path: Path) -> bool:
    """Whether this process has a descriptor of the lock file under which the lock is held, as the process table shows it."""
    try:
        lock = os.stat(path, follow_symlinks=False)
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                seen = os.stat(f"/proc/{pid}/fd/{name}")
                if (seen.st_dev, seen.st_ino) == (lock.st_dev, lock.st_ino):
                    with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii", errors="replace") as info:
                        if "OFDLCK" in info.read():
                            return True
            except OSError:
                continue
    except OSError:
        return False
    return False
