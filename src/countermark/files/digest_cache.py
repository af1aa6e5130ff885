"""Digests that were measured before, by the stamp of the file: device, inode, size and both times.

Rules kept here:

1. An entry is believed where its own checksum holds and its whole stamp is the file's; anything else in its place is told, and the file is
   measured as if nothing were there.
2. A file that was written to so shortly before it was measured that a later write could leave the same times is not kept: its stamp would
   tell two contents as one. What writes through a map can still do that, so that ``fresh`` measures whatever is kept, and says where the
   two disagree.
3. Entries are files of their own, replaced as a whole: a reader sees the old one or the new one, and of two writers one wins. There is one
   for each inode, so a file that changes leaves no old entries behind, and there is a bound to their number.
4. Only entries of the same user count; the folder is made for that user alone. Nothing fails because a cache cannot be kept.
5. Whoever reads the files of one thing with many readers (a checkpoint, whose layouts know nothing of digests) says once for all of them
   what is kept and who watches: ``measured_with``.
6. What a second thread measures is kept when both are done (``beside``, ``settle``): which of the two was first shows nowhere.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias, final

from countermark.files import durable
from countermark.files.documents import as_list, parse_object
from countermark.files.reading import Bytes, OpenFile, Progress, ShortRead, Stamp, list_folder, open_file, reason
from countermark.values import Sha256, Unreadable
from countermark.weights.refusals import (
    CachedDigestsDamaged,
    CachedDigestsDisagree,
    CacheUnwritable,
    FileAbsent,
    FileChanged,
    FileDefect,
)

#: The coarsest clock of a file system that is still in use (FAT), and much more than the tick of any other.
RACY_NS: Final = 2_000_000_000
ENTRIES_MAX: Final = 4096
ENTRY_BYTES_MAX: Final = 64 << 20
_FORM: Final = "countermark digests 1"

#: Bytes ``begin`` to ``end`` of a file.
Range: TypeAlias = tuple[int, int]
#: A file's name, its stamp, and what was measured of it.
_Measured: TypeAlias = tuple[str, Stamp, Mapping[Range, Sha256]]
CacheWarning: TypeAlias = "CachedDigestsDamaged | CacheUnwritable"


@final
@dataclass(slots=True)
class DigestCache:
    """The cache in a folder (None: there is none). Made before the files that are to be measured are opened. ``warnings``,
    ``disagreed`` and ``hashed`` fill while it is used: what was passed over, files of which a kept entry told something wrong, and the
    bytes that were measured."""

    folder: Path | None
    fresh: bool = False
    now_ns: Callable[[], int] = time.time_ns
    warnings: list[CacheWarning] = field(default_factory=list[CacheWarning])
    disagreed: list[CachedDigestsDisagree] = field(default_factory=list[CachedDigestsDisagree])
    hashed: int = 0
    _later: list[_Measured] | None = None
    _began_ns: int = field(init=False)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._began_ns = self.now_ns()

    def known(self, stamp: Stamp) -> Mapping[Range, Sha256]:
        """The digests of a file with this stamp; none where everything is to be measured anew."""
        return {} if self.fresh else self._read(stamp)

    def keep(self, file: str, stamp: Stamp, measured: Mapping[Range, Sha256]) -> None:
        """Keep digests that were just measured of ``file``, which had this stamp before and after."""
        if self.folder is None or not measured:
            return
        if self._later is not None:
            self._later.append((file, stamp, measured))
            return
        with self._lock:
            kept = self._read(stamp)
            wrong = sum(kept[part] != digest for part, digest in measured.items() if part in kept)
            if wrong:
                self.disagreed.append(CachedDigestsDisagree(file, wrong))
            if max(stamp.mtime_ns, stamp.ctime_ns) + RACY_NS > self._began_ns:
                self._forget(stamp, wrong)
                return
            # Nothing of an entry that was wrong once is kept.
            found = {**({} if wrong else kept), **measured}
            if wrong or found != kept:
                self._write(stamp, found)

    def count(self, measured: int) -> None:
        """So many bytes were measured."""
        with self._lock:
            self.hashed += measured

    def beside(self) -> "DigestCache":
        """This cache for a thread beside ours, which keeps nothing by itself."""
        return replace(self, hashed=0, _later=[])

    def settle(self, other: "DigestCache") -> None:
        """Keep and count what was measured with a cache that ``beside`` gave."""
        for each in other._later or ():
            self.keep(*each)
        self.count(other.hashed)

    def _place(self, stamp: Stamp) -> str:
        return f"{stamp.device:x}-{stamp.inode:x}.json"

    def _read(self, stamp: Stamp) -> Mapping[Range, Sha256]:
        if self.folder is None:
            return {}
        name = self._place(stamp)
        opened = open_file(self.folder, name)
        if not isinstance(opened, OpenFile):
            if not isinstance(opened, FileAbsent):
                self._tell(CachedDigestsDamaged(str(self.folder / name), "it cannot be read"))
            return {}
        with opened:
            found = _opened_entry(opened)
        if isinstance(found, _Entry):
            return found.ranges if found.stamp == stamp else {}
        self._tell(CachedDigestsDamaged(str(self.folder / name), found.why))
        return {}

    def _write(self, stamp: Stamp, ranges: Mapping[Range, Sha256]) -> None:
        assert self.folder is not None
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.replace(self.folder / self._place(stamp), _text(stamp, ranges))
            self._bound()
        except OSError as error:
            self._tell(CacheUnwritable(str(self.folder), reason(error)))

    def _forget(self, stamp: Stamp, wrong: int) -> None:
        """Take an entry away that told a file wrongly and that cannot be written anew."""
        if not wrong:
            return
        assert self.folder is not None
        try:
            (self.folder / self._place(stamp)).unlink(missing_ok=True)
        except OSError as error:
            self._tell(CacheUnwritable(str(self.folder), reason(error)))

    def _bound(self) -> None:
        """Take the oldest entries away where there are too many. Another process may be doing the same."""
        assert self.folder is not None
        entries = list_folder(self.folder)
        if not isinstance(entries, tuple) or len(entries) <= ENTRIES_MAX:
            return
        oldest = sorted(entries, key=lambda entry: entry.stamp.mtime_ns)[: len(entries) - ENTRIES_MAX * 3 // 4]
        for entry in oldest:
            (self.folder / entry.name).unlink(missing_ok=True)

    def _tell(self, warning: CacheWarning) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)


def hash_ranges(
    opened: OpenFile, ranges: Sequence[Range], progress: Progress | None = None, cache: DigestCache | None = None
) -> tuple[Sha256, ...] | FileDefect:
    """The digest of each part of an open file, or why it could not be read as it stood when it was opened. What the cache knows is not
    read, and what was read is kept there; ``progress`` is told of both."""
    known: Mapping[Range, Sha256] = {} if cache is None else cache.known(opened.stamp)
    measured: dict[Range, Sha256] = {}
    try:
        for part in ranges:
            if part not in known and part not in measured:
                measured[part] = opened.sha256(*part, progress)
            elif progress is not None:
                progress(part[1] - part[0])
        if opened.changed():
            return FileChanged(opened.name)
    except (OSError, ShortRead) as error:
        return opened.judged(error)
    if cache is not None:
        cache.keep(opened.name, opened.stamp, measured)
        cache.count(sum(end - begin for begin, end in measured))
    return tuple(measured[part] if part in measured else known[part] for part in ranges)


def hash_file(
    folder: Path, name: str, *, links_to: tuple[Path, ...] = (), cache: DigestCache | None = None
) -> tuple[Sha256, int] | FileDefect:
    """The digest of a whole file, and its size in bytes."""
    opened = open_file(folder, name, links_to=links_to)
    if not isinstance(opened, OpenFile):
        return opened
    with opened:
        digest = hash_whole(opened, cache)
    return (digest, opened.size) if isinstance(digest, Sha256) else digest


@final
@dataclass(frozen=True, slots=True)
class _Measuring:
    cache: DigestCache | None = None
    progress: Progress | None = None


_UNTOLD: Final = _Measuring()
_MEASURING: Final[ContextVar[_Measuring]] = ContextVar("measuring")


@contextmanager
def measured_with(cache: DigestCache | None, progress: Progress | None) -> Generator[None, None, None]:
    """Within, ``hash_file``, ``hash_whole``, ``hash_parts`` and ``verified`` keep what they measure in this cache and tell this progress;
    per thread."""
    token = _MEASURING.set(_Measuring(cache, progress))
    try:
        yield
    finally:
        _MEASURING.reset(token)


def hash_whole(opened: OpenFile, cache: DigestCache | None = None) -> Sha256 | FileDefect:
    """The digest of all of an open file, or why it could not be read as it stood when it was opened."""
    digests = hash_parts(opened, ((0, opened.size),), cache)
    return digests[0] if isinstance(digests, tuple) else digests


def hash_parts(opened: OpenFile, parts: Sequence[Range], cache: DigestCache | None = None) -> tuple[Sha256, ...] | FileDefect:
    """As ``hash_ranges``, with the cache and the progress that hold for everything that is read here."""
    current = _MEASURING.get(_UNTOLD)
    return hash_ranges(opened, parts, current.progress, cache or current.cache)


def verified(opened: Bytes, part: Range, check: Callable[[], bool]) -> bool:
    """Whether the file's own checksums, which stand in this part of it, hold: by ``check``, or because they held before.

    The digest of the part is kept where they hold, and never else: where it is known of this stamp, nothing is read again. Raises as
    ``OpenFile.read`` does.
    """
    cache = _MEASURING.get(_UNTOLD).cache
    if cache is None or not isinstance(opened, OpenFile):
        return check()
    digest = opened.sha256(*part)
    if cache.known(opened.stamp).get(part) == digest:
        return True
    held = check()
    if held and not opened.changed():
        cache.keep(opened.name, opened.stamp, {part: digest})
    return held


@final
@dataclass(frozen=True, slots=True)
class _Entry:
    stamp: Stamp
    ranges: Mapping[Range, Sha256]


def _text(stamp: Stamp, ranges: Mapping[Range, Sha256]) -> bytes:
    """An entry and, on a line of its own, the checksum of all that stands before."""
    listed = [[begin, end, digest.hex] for (begin, end), digest in sorted(ranges.items())]
    body = json.dumps({"form": _FORM, "stamp": _numbers(stamp), "digests": listed}, separators=(",", ":")).encode() + b"\n"
    return body + hashlib.sha256(body).hexdigest().encode() + b"\n"


def _numbers(stamp: Stamp) -> list[int]:
    return [stamp.device, stamp.inode, stamp.bytes, stamp.mtime_ns, stamp.ctime_ns]


def _opened_entry(opened: OpenFile) -> _Entry | Unreadable:
    """An entry as it lies in an open file. Whoever replaces it meanwhile changes the times of this one, and not a byte."""
    if os.fstat(opened.fileno()).st_uid != os.geteuid():
        return Unreadable("it belongs to another user")
    if opened.size > ENTRY_BYTES_MAX:
        return Unreadable("it is larger than any of ours")
    try:
        return _entry(opened.read(0, opened.size))
    except (OSError, ShortRead):
        return Unreadable("it cannot be read")


def _entry(content: bytes) -> _Entry | Unreadable:
    """An entry, or why the bytes are none."""
    body, checksum = content[:-65], content[-65:]
    if not body.endswith(b"\n") or checksum != hashlib.sha256(body).hexdigest().encode() + b"\n":
        return Unreadable("its checksum does not hold")
    document = parse_object(body)
    if isinstance(document, Unreadable):
        return document
    numbers, listed = _whole(as_list(document.get("stamp"))), as_list(document.get("digests"))
    if document.get("form") != _FORM or len(numbers) != 5 or listed is None:
        return Unreadable("it is of another form")
    ranges: dict[Range, Sha256] = {}
    for item in listed:
        begin, end, digest = (*(as_list(item) or ()), None, None, None)[:3]
        read = Sha256.read(f"sha256:{digest}")
        if not isinstance(begin, int) or not isinstance(end, int) or not 0 <= begin <= end <= numbers[2] or not isinstance(read, Sha256):
            return Unreadable("it is of another form")
        ranges[begin, end] = read
    return _Entry(Stamp(*numbers), ranges)


def _whole(items: Iterable[object] | None) -> list[int]:
    return [item for item in items or () if isinstance(item, int)]
