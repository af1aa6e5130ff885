"""Durable files: whole or not there, and still there after the power went.

Rules kept here:

1. Bytes go to a temporary name in the same folder and are synced before the name that counts points at them; then the folder is synced.
2. ``write_new`` creates exclusively by link(2), which unlike rename never replaces: of several writers exactly one succeeds.
3. A failure or an interrupt leaves the name that counts as it was, and takes the temporary file away where the disk still allows that.
"""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def write_new(path: Path, data: bytes) -> None:
    """Create the file with these bytes. Raises ``FileExistsError`` if the name is taken, and other ``OSError`` of the disk."""
    make_new(path, lambda descriptor: write_all(descriptor, memoryview(data)))


def make_new(path: Path, write: Callable[[int], T]) -> T:
    """Create the file with what ``write`` puts into a descriptor, which stays ours; what it returns. Raises as ``write_new`` does."""
    temporary, made = _written_beside(path, write)
    try:
        os.link(temporary, path, follow_symlinks=False)
    finally:
        _remove(temporary)
    sync_folder(path.parent)
    return made


def replace(path: Path, data: bytes) -> None:
    """Put these bytes in the file's place, whatever was there. Raises ``OSError`` of the disk."""
    temporary, _ = _written_beside(path, lambda descriptor: write_all(descriptor, memoryview(data)))
    try:
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise
    sync_folder(path.parent)


def write_all(descriptor: int, data: memoryview) -> None:
    """Write all of it, in as many pieces as the disk takes. Raises ``OSError``, also of a disk that takes nothing and does not say why."""
    while data:
        taken = os.write(descriptor, data)
        if not taken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data = data[taken:]


def make_folder(path: Path) -> None:
    """Make the folder and those above it, durably, as far as they are not there. Raises ``OSError``.

    The last one that is there is made durable as well: whoever made it may have died before that. Where we may not even list what is around
    it, none of us made it.
    """
    absent = list(takewhile(lambda one: not one.is_dir(), (path, *path.parents)))
    there = absent[-1].parent if absent else path
    with suppress(PermissionError):
        sync_folder(there.parent)
    for one in reversed(absent):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(path: Path) -> None:
    """Make the folder's entries durable. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _written_beside(path: Path, write: Callable[[int], T]) -> tuple[Path, T]:
    """A temporary file beside ``path`` that durably holds what ``write`` put there, and what it returned."""
    temporary = path.with_name(f".tmp-{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            made = write(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        _remove(temporary)
        raise
    return temporary, made


def _remove(temporary: Path) -> None:
    """Take a temporary file away; one that stays is never read by anybody, so a disk that refuses this has not failed the caller."""
    try:
        temporary.unlink()
    except OSError:
        return
