"""Every operation by which a piece of our code changes a disk: counted, and stopped at any of them.

Rules kept here:

1. The boundary is the system's own calls and not a seam of ours: a new write in the code is counted, failed at and killed at by itself.
2. Nothing is listed twice: ``counted`` says how many there are, and whoever goes through them all ends there.
3. What fails can fail before the call, or after half of what it was to do; a process that dies can die before the call or after it.
"""

import builtins
import ctypes
import errno
import fcntl
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

#: The calls of ``os`` that change a disk.
CALLS: Final = (
    "mkdir", "write", "pwrite", "writev", "fsync", "fdatasync", "rename", "replace", "link", "symlink", "unlink", "remove", "rmdir",
    "truncate", "ftruncate", "chmod", "fchmod", "utime", "posix_fallocate", "sendfile", "copy_file_range", "mknod", "setxattr",
)  # fmt: skip
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

#: What happens at a boundary in the call's place: it is handed the call itself, its name and its arguments.
Fate = Callable[[Callable[..., Any], str, tuple[Any, ...]], Any]


@dataclass
class Boundaries:
    """The boundaries that were crossed, by name; ``fate`` is met at the ``at``-th (counted from 1), and at all after it if it ``stays``."""

    at: int = 0
    fate: Fate | None = None
    stays: bool = False
    crossed: list[str] = field(default_factory=list)

    def cross(self, name: str, call: Callable[..., Any], given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """One call, or the fate in its place."""
        self.crossed.append(name)
        here = len(self.crossed)
        if self.fate is not None and (here == self.at or (self.stays and here > self.at)):
            return self.fate(lambda *other: call(*(other or given), **more), name, given)
        return call(*given, **more)


@contextmanager
def crossing(at: int = 0, fate: Fate | None = None, *, stays: bool = False) -> Iterator[Boundaries]:
    """Within, every change of a disk is counted, and the ``at``-th meets its fate."""
    found = Boundaries(at, fate, stays)

    def counted(name: str, call: Callable[..., Any], changes: Callable[..., bool]) -> Callable[..., Any]:
        return lambda *given, **more: found.cross(name, call, given, more) if changes(*given, **more) else call(*given, **more)

    def always(*given: Any, **more: Any) -> bool:
        return True

    with ExitStack() as stack:
        for name in CALLS:
            stack.enter_context(patch.object(os, name, counted(name, getattr(os, name), always)))
        stack.enter_context(patch.object(os, "open", counted("open", os.open, lambda path, flags, *_, **__: bool(flags & _WRITES))))
        opens = counted("open", io.open, lambda file, mode="r", *_, **__: not set(mode).isdisjoint("wax+"))
        stack.enter_context(patch.object(io, "open", opens))
        stack.enter_context(patch.object(builtins, "open", opens))
        stack.enter_context(patch.object(fcntl, "ioctl", counted("ioctl", fcntl.ioctl, always)))
        stack.enter_context(patch.object(ctypes, "CDLL", lambda *given, **more: _Library(found, _CDLL(*given, **more))))
        yield found


_CDLL: Final = ctypes.CDLL


class _Library:
    """The C library, of which each call is a boundary. It fails as C does: by its answer."""

    def __init__(self, found: Boundaries, library: ctypes.CDLL) -> None:
        self._found, self._library = found, library

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            try:
                return int(self._found.cross(name, getattr(self._library, name), given, {}))
            except OSError as error:
                ctypes.set_errno(error.errno or errno.EIO)
                return -1

        return call


def fails(code: int, *, half: bool = False) -> Fate:
    """The disk answers with an error; ``half``: after it took half of what was to be written."""

    def fate(call: Callable[..., Any], name: str, given: tuple[Any, ...]) -> Any:
        if half and name == "write":
            call(given[0], bytes(given[1])[: len(given[1]) // 2])
        raise OSError(code, os.strerror(code))

    return fate


def short(call: Callable[..., Any], name: str, given: tuple[Any, ...]) -> Any:
    """A write takes one byte and says so, which is no failure."""
    return call(given[0], bytes(given[1])[:1]) if name == "write" else call()


def dies(*, after: bool) -> Fate:
    """The process is killed, before the call or after it (of a write: after half of it)."""

    def fate(call: Callable[..., Any], name: str, given: tuple[Any, ...]) -> Any:
        try:
            if after:
                call(given[0], bytes(given[1])[: (len(given[1]) + 1) // 2]) if name == "write" else call()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    return fate


def count(work: Callable[[], object]) -> int:
    """How many boundaries the work crosses where nothing fails."""
    with crossing() as found:
        work()
    return len(found.crossed)
