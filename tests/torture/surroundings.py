"""What a machine does to a run: disks that are full or read-only, and pids that come back. Real ones, by rights that not every user has.

Rules kept here:

1. Without the right a test is skipped, and says which right it is.
2. Whatever is mounted or started here is gone when the block ends.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

_LAST_PID: Final = Path("/proc/sys/kernel/ns_last_pid")
_TRIES_MAX: Final = 400


def _mounted(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this user may not mount a disk, so no real one can be full or read-only here: {done.stderr.strip()}")


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of 2 MiB at the place, which is made."""
    place.mkdir(parents=True)
    _mounted("-t", "tmpfs", "-o", "size=2m", "none", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """The file whose end makes room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Whoever reaches the folder by its path finds it read-only; what was opened before goes on being written."""
    _mounted("--bind", str(folder), str(folder))
    try:
        _mounted("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def stranger(pid: int) -> Iterator[int]:
    """A process of somebody else's that got exactly this pid, which must be free."""
    found = 0
    try:
        for _ in range(_TRIES_MAX):
            try:
                _LAST_PID.write_text(str(pid - 1), encoding="ascii")
            except OSError as error:
                pytest.skip(f"this user may not choose the next pid ({_LAST_PID}): {error.strerror}")
            found = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
            if found == pid:
                break
            _ended(found)
            # Somebody else took it: wait until that one has ended, too.
            time.sleep(0.02)
        else:
            pytest.fail(f"pid {pid} was not to be had in {_TRIES_MAX} tries")
        yield pid
    finally:
        if found == pid:
            _ended(found)


def _ended(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
