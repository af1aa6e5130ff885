"""Reading files that somebody else wrote: regular files only, bounded, and never a number of a file that changed meanwhile.

Rules kept here:

1. Only a regular file is opened. A pipe would block, a device would answer: both are refused by kind before they are opened, and once more
   after, on the descriptor.
2. A link is followed only where its target stays in a folder that the caller allows; a name is never a path.
3. A file is the same before and after it was read (device, inode, size, both times), and every byte was there; else the answer is
   ``FileChanged``, never a digest.
4. Memory is one buffer of ``BUFFER_BYTES``, whatever the file's size; what is read as a whole has a bound that its caller names.
5. What a disk answers is a value: an ``OSError`` leaves this module as ``FileUnreadable``.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias, final

from countermark.values import Sha256, is_unicode
from countermark.weights.refusals import FileAbsent, FileChanged, FileDefect, FileNotRegular, FileTooLarge, FileUnreadable, LinkLeavesFolder

BUFFER_BYTES: Final = 1 << 20
#: How many levels of folders below a checkpoint are looked into.
_DEPTH_MAX: Final = 8
#: More entries than any checkpoint has: somebody named a disk.
_ENTRIES_MAX: Final = 1_000_000

#: Told how many bytes were read since the last call; it may raise to stop the reading.
Progress: TypeAlias = Callable[[int], None]


@final
@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells that a file is still the one that was looked at."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
    stat.S_IFLNK: "a link",
}


class ShortRead(Exception):
    """Fewer bytes than the file had when it was opened: it is being changed."""


@final
class OpenFile:
    """A regular file under its name, open for reading. Use it as a context manager."""

    __slots__ = ("_buffer", "_descriptor", "name", "stamp")

    def __init__(self, name: str, descriptor: int, stamp: Stamp) -> None:
        self.name = name
        self.stamp = stamp
        self._descriptor = descriptor
        self._buffer: memoryview | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._descriptor)

    @property
    def size(self) -> int:
        return self.stamp.bytes

    def read(self, begin: int, size: int) -> bytes:
        """Exactly ``size`` bytes from ``begin``; raises ``ShortRead`` where the file has not so many, and ``OSError``."""
        return b"".join(bytes(part) for part in self.parts(begin, begin + size))

    def parts(self, begin: int, end: int) -> Iterator[memoryview]:
        """The bytes from ``begin`` up to ``end``, in pieces of the one buffer: each is gone when the next is asked for."""
        if self._buffer is None:
            self._buffer = memoryview(bytearray(min(BUFFER_BYTES, max(self.stamp.bytes, 1))))
        while begin < end:
            part = self._buffer[: min(len(self._buffer), end - begin)]
            count = os.preadv(self._descriptor, [part], begin)
            if count == 0:
                raise ShortRead(self.name)
            begin += count
            yield part[:count]

    def parts_judged(self, begin: int, end: int) -> "Iterator[memoryview | FileDefect]":
        """As ``parts``, with a failure to read as the last piece instead of an exception."""
        try:
            yield from self.parts(begin, end)
        except (OSError, ShortRead) as error:
            yield self.judged(error)

    def fileno(self) -> int:
        """The descriptor, for calls that take one; it stays this object's."""
        return self._descriptor

    def sha256(self, begin: int, end: int, progress: Progress | None = None) -> Sha256:
        """The digest of the bytes from ``begin`` up to ``end``; raises as ``read`` does."""
        hasher = hashlib.sha256()
        for part in self.parts(begin, end):
            hasher.update(part)
            if progress:
                progress(len(part))
        return Sha256(hasher.hexdigest())

    def changed(self) -> bool:
        """Whether the file is another one now than when it was opened."""
        return Stamp.of(os.fstat(self._descriptor)) != self.stamp

    def judged(self, error: "OSError | ShortRead") -> FileDefect:
        """The defect that an exception of ``read``, ``parts`` or ``sha256`` means."""
        return FileChanged(self.name) if isinstance(error, ShortRead) else FileUnreadable(self.name, reason(error))


class Bytes(Protocol):
    """Bytes with a name and a size, read by their place: an ``OpenFile``, or a ``Window`` in one."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read(self, begin: int, size: int) -> bytes: ...
    def parts(self, begin: int, end: int) -> Iterator[memoryview]: ...
    def judged(self, error: "OSError | ShortRead") -> FileDefect: ...


@final
@dataclass(frozen=True, slots=True)
class Window:
    """The bytes of an open file from ``begin`` on, ``size`` of them, as if they were a file: an archive within a larger file."""

    opened: OpenFile
    begin: int
    size: int

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.begin + self.size <= self.opened.size:
            raise ValueError("a window lies within its file")

    @property
    def name(self) -> str:
        return self.opened.name

    def read(self, begin: int, size: int) -> bytes:
        return b"".join(bytes(part) for part in self.parts(begin, begin + size))

    def parts(self, begin: int, end: int) -> Iterator[memoryview]:
        """As ``OpenFile.parts``; what lies beyond the window is not there."""
        if begin < 0 or end > self.size:
            raise ShortRead(self.name)
        return self.opened.parts(self.begin + begin, self.begin + end)

    def judged(self, error: "OSError | ShortRead") -> FileDefect:
        return self.opened.judged(error)


def reason(error: OSError) -> str:
    """The system's text for an error, without paths."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def is_plain_name(name: str) -> bool:
    """Whether a name from outside names an entry of a folder and nothing else."""
    return bool(name) and name not in {".", ".."} and not set(name) & {"/", "\0", "\n"} and is_unicode(name)


def find(path: Path) -> Path | FileDefect:
    """A path that a person named, with every link in it followed. What stands there is not looked at."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        return FileUnreadable(str(path), _why(error))


def placed(path: Path) -> Path:
    """A path that a person named, from the root and without ``.`` and ``..``. Links in it are kept, unless a ``..`` has to be followed."""
    place = path.absolute()
    return Path(os.path.realpath(place)) if ".." in place.parts else place


def find_folder(path: Path) -> Path | FileDefect:
    """The folder that a person named, with every link in the path followed."""
    real = find(path)
    if not isinstance(real, Path):
        return real
    try:
        status = real.stat()
    except FileNotFoundError:
        return FileAbsent(str(path))
    except (OSError, ValueError) as error:
        return FileUnreadable(str(path), _why(error))
    return real if stat.S_ISDIR(status.st_mode) else FileNotRegular(str(path), "no folder")


def is_folder(path: Path) -> bool:
    """Whether a folder stands there, links followed; False where the system does not even let us look."""
    return not isinstance(find_folder(path), FileDefect)


def is_link(path: Path) -> bool:
    """Whether a link stands there itself; False where the system does not even let us look."""
    try:
        return stat.S_ISLNK(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _why(error: OSError | ValueError) -> str:
    return reason(error) if isinstance(error, OSError) else "the path is not one of a file"


def open_below(folder: Path, name: str) -> OpenFile | FileDefect:
    """The regular file ``name`` of a folder; the name may have folders in it (``a/b``), none of which is a link."""
    outer, _, inner = name.rpartition("/")
    below = folder
    for part in outer.split("/") if outer else ():
        below /= part
        try:
            status = below.lstat()
        except FileNotFoundError:
            return FileAbsent(name)
        except (OSError, ValueError) as error:
            return FileUnreadable(name, _why(error))
        if not is_plain_name(part) or not stat.S_ISDIR(status.st_mode):
            return FileNotRegular(name, f"in {kind_of(status)}")
    return open_file(below, inner, called=name)


def open_file(folder: Path, name: str, *, links_to: tuple[Path, ...] = (), called: str | None = None) -> OpenFile | FileDefect:
    """The regular file ``name`` of a folder. A link must lead into the folder itself or into one of ``links_to``. The file is told of by
    the name that it is ``called``."""
    path = folder / name
    name = name if called is None else called
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            path = Path(os.path.realpath(path))
            if not any(path.is_relative_to(os.path.realpath(allowed)) for allowed in (folder, *links_to)):
                return LinkLeavesFolder(name)
            found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return FileNotRegular(name, kind_of(found))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return FileAbsent(name)
    except (OSError, ValueError) as error:
        return FileUnreadable(name, _why(error))
    opened = os.fstat(descriptor)
    if not stat.S_ISREG(opened.st_mode):
        os.close(descriptor)
        return FileNotRegular(name, kind_of(opened))
    return OpenFile(name, descriptor, Stamp.of(opened))


def kind_of(found: os.stat_result) -> str:
    """What stands there, as a phrase."""
    return _KINDS.get(stat.S_IFMT(found.st_mode), "a regular file" if stat.S_ISREG(found.st_mode) else "something that is no file")


def read_small(folder: Path, name: str, bytes_max: int, *, links_to: tuple[Path, ...] = ()) -> bytes | FileDefect:
    """A whole file of at most ``bytes_max`` bytes."""
    opened = open_file(folder, name, links_to=links_to)
    if not isinstance(opened, OpenFile):
        return opened
    with opened:
        return read_whole(opened, bytes_max)


def read_whole(opened: OpenFile, bytes_max: int) -> bytes | FileDefect:
    """All bytes of an open file, if they are at most ``bytes_max`` and none changed."""
    if opened.size > bytes_max:
        return FileTooLarge(opened.name, opened.size, bytes_max)
    try:
        content = opened.read(0, opened.size)
        return FileChanged(opened.name) if opened.changed() else content
    except (OSError, ShortRead) as error:
        return opened.judged(error)


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder: the kind of what stands there (links as links) and, for a regular file, its stamp."""

    name: str
    kind: str
    stamp: Stamp


def list_folder(folder: Path) -> tuple[Entry, ...] | FileDefect:
    """A folder's entries in name order, or why it has none. A name that vanishes while the folder is listed is left out."""
    entries: list[Entry] = []
    try:
        with os.scandir(folder) as found:
            for one in found:
                try:
                    status = one.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                entries.append(Entry(one.name, kind_of(status), Stamp.of(status)))
    except FileNotFoundError:
        return FileAbsent(str(folder))
    except NotADirectoryError:
        return FileNotRegular(str(folder), "no folder")
    except (OSError, ValueError) as error:
        return FileUnreadable(str(folder), _why(error))
    return tuple(sorted(entries, key=lambda entry: entry.name))


def list_tree(folder: Path, depth: int = _DEPTH_MAX, most: int = _ENTRIES_MAX) -> tuple[Entry, ...] | FileDefect:
    """Everything below a folder in name order, each under its name relative to it; links are listed and not followed. A folder that cannot
    be listed, or lies too deep, is of the kind ``a closed folder``. Of more than ``most`` entries there is no list."""
    found: dict[str, Entry] = {}
    waiting = [("", depth)]
    while waiting:
        below, left = waiting.pop()
        entries = list_folder(folder / below) if left >= 0 else ()
        if left < 0 or not isinstance(entries, tuple):
            if not below:
                return entries
            name = below.removesuffix("/")
            found[name] = replace(found[name], kind="a closed folder")
            continue
        for entry in entries:
            found[below + entry.name] = replace(entry, name=below + entry.name)
            if entry.kind == "a folder":
                waiting.append((f"{below}{entry.name}/", left - 1))
        if len(found) > most:
            return FileUnreadable(str(folder), f"over {most} files and folders lie in it")
    return tuple(found[name] for name in sorted(found))
