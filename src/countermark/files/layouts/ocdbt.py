"""The database in which Orbax keeps arrays (OCDBT): where each value lies, and what its index says of itself.

Rules kept here:

1. The index is a tree of blocks, each with its length and its checksum: both must hold; what is compressed is bounded before it is made.
2. A tree of more blocks, keys or bytes than any checkpoint has is refused, and each block lies one level below the one that names it: no
   index leads in a circle, and none costs more than its bounds. A name counts by its length, because it shares its beginning with the one
   before and so can be longer than what tells it.
3. A data file is named by a path below the database's folder, and is opened as every file of a checkpoint is: no link is followed.
4. The newest version counts, as it does for whoever reads the arrays.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from countermark.files.layouts.reading import Whys
from countermark.files.reading import OpenFile, ShortRead, open_below, read_whole
from countermark.files.zstd import DamagedFrame, decompress
from countermark.lines.defects import sentence
from countermark.values import shown
from countermark.weights.refusals import FileDefect

MANIFEST: Final = "manifest.ocdbt"
BLOCK_BYTES_MAX: Final = 16 << 20
BLOCKS_MAX: Final = 20_000
KEYS_MAX: Final = 1_000_000
#: Blocks as they are stored and as they are when they are unpacked, and all names in them.
INDEX_BYTES_MAX: Final = 512 << 20
_MANIFEST_MAGIC: Final = 0x0CDB3A2A
_NODE_MAGIC: Final = 0x0CDB20DE
_NAME_BYTES_MAX: Final = 4096
#: What holding a name costs besides its bytes.
_NAME_COST: Final = 128


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a file below the checkpoint, or the bytes themselves where they stand in the index."""

    file: str
    begin: int
    size: int
    inline: bytes | None = None


@final
@dataclass(slots=True)
class Database:
    """Where each key's value lies, and the files that the index itself is read from."""

    places: dict[str, Place] = field(default_factory=dict[str, Place])
    index: set[str] = field(default_factory=set[str])


class _Damaged(Exception):
    """The index is damaged; the text says where."""


def read_database(folder: Path, below: str) -> Database | Whys | FileDefect:
    """The database in a checkpoint, ``below`` this path in it (empty, or with a slash at its end)."""
    opened = open_below(folder, f"{below}{MANIFEST}")
    if not isinstance(opened, OpenFile):
        return opened
    with opened:
        content = read_whole(opened, BLOCK_BYTES_MAX)
    if not isinstance(content, bytes):
        return content
    reader = _Reader(folder, below)
    try:
        reader.manifest(content)
    except _Damaged as damaged:
        return Whys((str(damaged),))
    return reader.database


@final
@dataclass(slots=True)
class _Spent:
    """The bytes that reading an index came to until now."""

    bytes: int = 0

    def add(self, count: int) -> None:
        self.bytes += count
        if self.bytes > INDEX_BYTES_MAX:
            raise _Damaged("its index is larger than any checkpoint needs")


@final
@dataclass(slots=True)
class _Bytes:
    """The columns of a block, read one after another."""

    content: bytes
    spent: _Spent
    at: int = 0

    def __post_init__(self) -> None:
        self.spent.add(len(self.content))

    def take(self, size: int) -> bytes:
        if size > len(self.content) - self.at:
            raise _Damaged("its index ends too early")
        self.at += size
        return self.content[self.at - size : self.at]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise _Damaged("a number of its index is too long")

    def varints(self, count: int) -> list[int]:
        """A column of numbers, each at least a byte long."""
        if count > len(self.content) - self.at:
            raise _Damaged("its index ends too early")
        return [self.varint() for _ in range(count)]

    def strings(self, count: int, between: "Callable[[_Bytes], object]", before_all: int = 0) -> Iterator[tuple[bytes, int]]:
        """Texts that share their beginnings with the one before, and how much each shares; ``between`` reads what stands in the middle, and
        so many bytes will be put before each."""
        shared = [0, *self.varints(count - 1)] if count else []
        sizes = self.varints(count)
        between(self)
        before = b""
        for begin, size in zip(shared, sizes, strict=True):
            if begin > len(before) or before_all + begin + size > _NAME_BYTES_MAX:
                raise _Damaged("a name of its index is none")
            self.spent.add(before_all + begin + size + _NAME_COST)
            before = before[:begin] + self.take(size)
            yield before, begin


@final
@dataclass(slots=True)
class _Reader:
    folder: Path
    below: str
    database: Database = field(default_factory=Database)
    spent: _Spent = field(default_factory=_Spent)
    blocks: int = 0

    def manifest(self, content: bytes) -> None:
        body = _Bytes(_body(content, _MANIFEST_MAGIC), self.spent)
        self.database.index.add(f"{self.below}{MANIFEST}")
        body.take(16)
        kind = body.varint()
        if kind:
            raise _Damaged("its manifest is kept in several files")
        body.varints(2)
        body.take(1)
        if body.varint():
            body.take(4)
        files = _files(body, b"")
        versions = body.varint()
        body.varints(versions)
        heights = body.take(versions)
        ids, offsets, sizes = (body.varints(versions) for _ in range(3))
        keys = body.varints(versions)
        if not versions:
            raise _Damaged("it holds no version")
        if not keys[-1]:
            return
        self.node(_chosen(files, ids[-1]), offsets[-1], sizes[-1], heights[-1], b"")

    def node(self, file: tuple[bytes, bytes], offset: int, size: int, height: int, prefix: bytes) -> None:
        """A block of the tree and all below it."""
        self.blocks += 1
        if self.blocks > BLOCKS_MAX:
            raise _Damaged("its index has more blocks than any checkpoint needs")
        base, path = file
        body = _Bytes(_body(self.read(self.named(path), offset, size), _NODE_MAGIC), self.spent)
        if body.take(1)[0] != height:
            raise _Damaged("a block of its index stands where another one belongs")
        files = _files(body, base)
        count = body.varint()
        if len(self.database.places) + count > KEYS_MAX:
            raise _Damaged("it has more keys than any checkpoint needs")
        if height:
            self.inner(body, files, count, height, prefix)
        else:
            self.leaf(body, files, count, prefix)

    def inner(self, body: _Bytes, files: list[tuple[bytes, bytes]], count: int, height: int, prefix: bytes) -> None:
        common: list[int] = []
        keys = [key for key, _ in body.strings(count, lambda columns: common.extend(columns.varints(count)), len(prefix))]
        ids, offsets, sizes = (body.varints(count) for _ in range(3))
        for key, shared, at, offset, size in zip(keys, common, ids, offsets, sizes, strict=True):
            self.node(_chosen(files, at), offset, size, height - 1, prefix + key[:shared])

    def leaf(self, body: _Bytes, files: list[tuple[bytes, bytes]], count: int, prefix: bytes) -> None:
        keys = [key for key, _ in body.strings(count, lambda columns: None, len(prefix))]
        sizes, kinds = body.varints(count), body.varints(count)
        apart = sum(1 for kind in kinds if kind)
        ids, offsets = body.varints(apart), body.varints(apart)
        lying = iter(zip(ids, offsets, strict=True))
        for key, size, kind in zip(keys, sizes, kinds, strict=True):
            name = (prefix + key).decode("utf-8", "backslashreplace")
            if kind:
                at, offset = next(lying)
                place = Place(self.named(_chosen(files, at)[1]), offset, size)
            else:
                place = Place("", 0, size, body.take(size))
            if name in self.database.places:
                raise _Damaged(f"key {shown(name)} stands twice in its index")
            self.database.places[name] = place

    def named(self, path: bytes) -> str:
        return self.below + path.decode("utf-8", "backslashreplace")

    def read(self, name: str, offset: int, size: int) -> bytes:
        """A block of a data file. What keeps it from being read is said as damage to the index."""
        if size > BLOCK_BYTES_MAX:
            raise _Damaged("a block of its index is larger than any needs to be")
        self.spent.add(size)
        opened = open_below(self.folder, name)
        if not isinstance(opened, OpenFile):
            raise _Damaged(sentence(opened).message)
        with opened:
            if offset + size > opened.size:
                raise _Damaged(f"{name} ends before a block of its index")
            try:
                content = opened.read(offset, size)
            except (OSError, ShortRead) as error:
                raise _Damaged(sentence(opened.judged(error)).message) from None
        self.database.index.add(name)
        return content


def _body(block: bytes, magic: int) -> bytes:
    """What a block holds, after its length and its checksum were verified."""
    if len(block) < 18 or struct.unpack_from(">I", block)[0] != magic:
        raise _Damaged("a block of its index is none")
    size, version, compressed = struct.unpack_from("<Q2B", block, 4)
    if size != len(block):
        raise _Damaged(f"a block of its index has {len(block)} bytes, not {size}")
    if struct.unpack("<I", block[-4:])[0] != crc32c(block[:-4]):
        raise _Damaged("the checksum of a block of its index is wrong")
    if version or compressed > 1:
        raise _Damaged("its index is of no known version")
    try:
        return decompress(block[14:-4], BLOCK_BYTES_MAX) if compressed else block[14:-4]
    except DamagedFrame as damaged:
        raise _Damaged(f"a block of its index is damaged: {damaged}") from None


def _files(body: _Bytes, base: bytes) -> list[tuple[bytes, bytes]]:
    """The data files that a block names: for each its base, which holds for the blocks in it too, and its path."""
    count = body.varint()
    bases: list[int] = []
    paths = [path for path, _ in body.strings(count, lambda columns: bases.extend(columns.varints(count)), len(base))]
    return [(base + path[:size], base + path) for path, size in zip(paths, bases, strict=True)]


def _chosen(files: list[tuple[bytes, bytes]], at: int) -> tuple[bytes, bytes]:
    if at >= len(files):
        raise _Damaged("its index names a file that it does not list")
    return files[at]


def crc32c(content: bytes) -> int:
    """The Castagnoli checksum of some bytes."""
    from google_crc32c import Checksum

    return int.from_bytes(Checksum(content).digest(), "big")
