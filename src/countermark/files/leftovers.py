"""Folders on their way in or out: what is being published, what is being deleted, and what is left of either when its process died.

Rules kept here:

1. A folder that is being filled is held by a lock on the folder itself, which goes with the process. Who clears away takes that lock first:
   what somebody still fills is never touched.
2. Where nobody can tell (a file system without such locks, or one that other machines share), it is left, and said to be so.
3. A folder that goes is renamed out of sight before anything in it is deleted, and the rename is durable first: whatever stops the rest,
   no half of it bears a checkpoint's name. The rest may be taken away by anybody, any time.
4. Only names that are formed here are cleared. A link under such a name is not followed.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, final

from countermark.files.attempt_folder import NETWORK_FILE_SYSTEMS, file_system_of
from countermark.files.durable import sync_folder
from countermark.files.reading import is_folder, list_folder

_FILLED: Final = "tmp"
_GOING: Final = "gone"
_NAME: Final = re.compile(r"\.(tmp|gone)-(.+)-[0-9a-f]{16}", re.ASCII | re.DOTALL)
#: What a lock answers where another holds it, and where there are none.
_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_TRIES: Final = 16


class State(StrEnum):
    """What is known of a leftover: whether somebody may still be at work in it."""

    DEAD = "dead"
    LIVE = "live"
    UNKNOWN = "unknown"


@final
@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder on its way in or out, of which nobody has seen the end. ``of`` is the name that it was to get, or had."""

    name: str
    of: str
    state: State


@contextmanager
def filled(parent: Path, name: str) -> Generator[Path, None, None]:
    """An empty folder beside the place ``parent/name``, ours alone while it is filled; it is renamed or removed by the caller. Raises
    ``OSError``."""
    for _ in range(_TRIES):
        folder = _named(parent, _FILLED, name)
        folder.mkdir(mode=0o755)
        descriptor = _held(folder)
        if descriptor is None:
            # Somebody who clears away was faster: to him, the empty folder looked like one whose process died.
            continue
        try:
            yield folder
        finally:
            os.close(descriptor)
        return
    raise OSError(errno.EAGAIN, "somebody takes every temporary folder away", str(parent))


def take_away(folder: Path) -> None:
    """Delete a folder, or a file, so that no half of it is ever seen under its name. Raises ``OSError``; what remains then is a
    leftover."""
    hidden = _named(folder.parent, _GOING, folder.name)
    folder.rename(hidden)
    sync_folder(folder.parent)
    _delete(hidden)


def leftovers(parent: Path, of: Callable[[str], bool]) -> tuple[Leftover, ...]:
    """The leftovers in a folder whose final name ``of`` accepts; none where it cannot be listed."""
    listed = list_folder(parent)
    found: list[Leftover] = []
    for entry in listed if isinstance(listed, tuple) else ():
        named = _NAME.fullmatch(entry.name)
        if named is None or not of(named[2]):
            continue
        if named[1] == _GOING and entry.kind in {"a folder", "a regular file"}:
            found.append(Leftover(entry.name, named[2], State.DEAD))
        elif entry.kind == "a folder":
            found.append(Leftover(entry.name, named[2], _state(parent / entry.name)))
    return tuple(found)


def clear(parent: Path, of: Callable[[str], bool]) -> tuple[Leftover, ...]:
    """Take away what the dead left in a folder; returns what went. What the disk does not let go of stays, for the next who comes."""
    return tuple(left for left in leftovers(parent, of) if left.state is State.DEAD and _cleared(parent, left))


def _cleared(parent: Path, left: Leftover) -> bool:
    """Whether a leftover was taken away, by us or by somebody who was faster."""
    path = parent / left.name
    descriptor = _held(path) if is_folder(path) else None
    try:
        if descriptor is not None or not is_folder(path):
            _delete(path)
    except OSError:
        return not os.path.lexists(path)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return not os.path.lexists(path)


def _delete(path: Path) -> None:
    """Delete it, alone or together with others who are at it at this moment: what they deleted is no failure."""
    if is_folder(path):
        shutil.rmtree(path, onerror=_unless_gone)
    else:
        path.unlink(missing_ok=True)


def _unless_gone(call: object, path: object, error: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


@contextmanager
def alone_in(folder: Path) -> Generator[bool, None, None]:
    """Whether we are the only ones who decide at this moment what goes from a folder; others ask here as well. Where there are no locks, we
    are. Raises ``OSError``."""
    descriptor = _held(folder)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _named(parent: Path, kind: str, name: str) -> Path:
    return parent / f".{kind}-{name}-{secrets.token_hex(8)}"


def _held(folder: Path) -> int | None:
    """A descriptor that holds the folder, also where there are no locks to hold it by; None where it is another's, or no longer there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(descriptor)
            if error.errno in _HELD:
                return None
            raise
    if not _is(folder, descriptor):
        os.close(descriptor)
        return None
    return descriptor


def _is(folder: Path, descriptor: int) -> bool:
    """Whether the folder of that name is the one that was opened."""
    try:
        return os.path.samestat(os.stat(folder, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _state(folder: Path) -> State:
    try:
        if file_system_of(folder) in NETWORK_FILE_SYSTEMS:
            return State.UNKNOWN
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return State.UNKNOWN
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return State.LIVE if error.errno in _HELD else State.UNKNOWN
    finally:
        os.close(descriptor)
    return State.DEAD
