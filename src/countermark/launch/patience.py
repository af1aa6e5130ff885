"""Receipts on a disk that is full for a while.

Rules kept here:

1. What may pass (no space, no descriptors, read-only for now) is tried again, ever more slowly, up to a limit; what will not pass is not.
2. A receipt is written whole or not at all: ``countermark.files.durable`` leaves nothing half-written, so trying again is safe.
3. A try that fails may have given the receipt its name, and only not have confirmed it. What is there with our very bytes is ours, because
   every receipt names its process; what is there with others is somebody else's, and stays.
"""

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from countermark.files import durable
from countermark.files.attempt_folder import read_bounded

#: Failures of a write that end by themselves or by a person's help.
PASSING: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.EAGAIN,
        errno.EINTR,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ESTALE,
    }
)
_PAUSE_S_FIRST: Final = 0.1
_PAUSE_S_MAX: Final = 30.0


def sleep(seconds: float) -> bool:
    """Wait, and go on afterwards."""
    time.sleep(seconds)
    return True


def write_patiently(
    path: Path, data: bytes, say: Callable[[str], None], give_up_s: float, pause: Callable[[float], bool] = sleep
) -> OSError | None:
    """Create the receipt; try until that succeeds (None), fails for good, ``give_up_s`` have passed, or ``pause`` answers False (its last
    error).

    ``say`` is told of the first failure and of the success after one.
    """
    began = time.monotonic()
    pause_s = _PAUSE_S_FIRST
    failed = False
    while True:
        try:
            _write(path, data)
        except OSError as error:
            waited_s = time.monotonic() - began
            if error.errno not in PASSING or waited_s >= give_up_s:
                return error
            if not failed:
                say(f"a receipt cannot be written ({error.strerror}): trying again for up to {give_up_s:.0f} s")
            failed = True
            if not pause(pause_s):
                return error
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)
        else:
            if failed:
                say(f"the receipt was written after {time.monotonic() - began:.1f} s")
            return None


def _write(path: Path, data: bytes) -> None:
    try:
        durable.write_new(path, data)
    except FileExistsError:
        if read_bounded(path, len(data)) != data:
            raise
        durable.sync_folder(path.parent)
