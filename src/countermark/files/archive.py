"""Zip archives as torch writes them: stored members only, read where they lie.

Rules kept here:

1. Nothing is decompressed: a compressed, encrypted or overlapping member is refused, so what is read is never more than the file.
2. The directory at the end, each member's own header, and the member's bytes must agree; every checksum is verified before a member counts.
3. The directory is bounded in bytes and in entries before it is parsed.
4. Everything that is wrong is said, as far as the directory can be read.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from countermark.files.digest_cache import verified
from countermark.files.reading import Bytes
from countermark.values import shown

DIRECTORY_BYTES_MAX: Final = 64 << 20
MEMBERS_MAX: Final = 500_000
_NAME_BYTES_MAX: Final = 4096

_END: Final = struct.Struct("<4s4H2LH")
_END64_LOCATOR: Final = struct.Struct("<4sLQL")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF


@final
@dataclass(frozen=True, slots=True)
class Member:
    """A stored member: its bytes lie from ``begin`` to ``begin + size`` of the file."""

    name: str
    begin: int
    size: int
    crc32: int


@final
@dataclass(frozen=True, slots=True)
class Directory:
    """Where an archive's directory lies, how many bytes it has, and how many entries."""

    begin: int
    size: int
    count: int


@final
@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    header: int
    size: int
    crc32: int


def read_members(opened: Bytes) -> Mapping[str, Member] | tuple[str, ...]:
    """The members of an archive by name, each verified, or every reason why it has none. Raises as ``OpenFile.read`` does."""
    directory = find_directory(opened, "torch")
    if isinstance(directory, str):
        return (directory,)
    entries, whys = _entries(opened.read(directory.begin, directory.size), directory.count)
    members: dict[str, Member] = {}
    end_before = 0
    for entry in sorted(entries, key=lambda entry: entry.header):
        member = _located(opened, entry, directory.begin)
        if isinstance(member, str):
            whys.append(f"{shown(entry.name)}: {member}")
        elif entry.header < end_before:
            whys.append(f"{shown(entry.name)}: it overlaps the member before it")
        elif entry.name in members:
            whys.append(f"{shown(entry.name)}: there are two of this name")
        else:
            members[entry.name] = member
            end_before = member.begin + member.size
    wrong: list[str] = []

    def check() -> bool:
        wrong.extend(f"{shown(member.name)}: its checksum is wrong" for member in members.values() if not _verified(opened, member))
        return not wrong

    # The checksums stand in the directory: one that is known of this very file was held against all members before.
    verified(opened, (directory.begin, directory.begin + directory.size), check)
    return (*whys, *wrong) or members


def find_directory(opened: Bytes, writer: str) -> Directory | str:
    """Where the directory of an archive lies that ``writer`` should have written, by the record at the end of the file."""
    if opened.size < _END.size:
        return "it is too short for an archive" if opened.size else "it is empty"
    start = opened.read(0, 4)
    tail_begin = max(0, opened.size - _END.size - _FULL16)
    tail = opened.read(tail_begin, opened.size - tail_begin)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        if start[:1] == b"\x80":
            return "it is a bare pickle, not the archive that torch writes since version 1.6"
        return "it is cut: the directory at its end is missing" if start == b"PK\x03\x04" else f"it is no archive that {writer} writes"
    _, disk, first_disk, here, count, size, begin, comment = _END.unpack_from(tail, at)
    end_at = tail_begin + at
    if end_at + _END.size + comment != opened.size:
        return "bytes follow its end"
    if disk or first_disk or here != count:
        return "it is part of a set of archives"
    found = _find_directory64(opened, end_at)
    if isinstance(found, str):
        return found
    if found is not None:
        begin, size, count, end_at = found
    elif count == _FULL16 or _FULL32 in (size, begin):
        return "the end of its directory is missing"
    if size > DIRECTORY_BYTES_MAX or count > MEMBERS_MAX:
        return f"its directory has {count} entries in {size} bytes, more than any checkpoint needs"
    if begin + size != end_at:
        return "its directory does not lie where its end says"
    return Directory(begin, size, count)


def _find_directory64(opened: Bytes, end_at: int) -> tuple[int, int, int, int] | str | None:
    """Begin, size and entries of the directory by the record for large archives, and where that record lies; None where there is none."""
    at = end_at - _END64_LOCATOR.size
    if at < 0:
        return None
    signature, _, record_at, _ = _END64_LOCATOR.unpack(opened.read(at, _END64_LOCATOR.size))
    if signature != b"PK\x06\x07":
        return None
    if record_at + _END64.size > at:
        return "the end of its directory is missing"
    record = _END64.unpack(opened.read(record_at, _END64.size))
    if record[0] != b"PK\x06\x06":
        return "the end of its directory is missing"
    return record[9], record[8], record[7], record_at


def _entries(directory: bytes, count: int) -> tuple[list[_Entry], list[str]]:
    """The directory's entries, and what is wrong with it."""
    entries: list[_Entry] = []
    whys: list[str] = []
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(directory):
            return entries, [*whys, f"its directory holds {len(entries)} of {count} entries"]
        fields = _ENTRY.unpack_from(directory, at)
        signature, flags, method, crc32, packed, size, header = (fields[0], fields[3], fields[4], *fields[7:10], fields[16])
        name_size, extra_size, comment_size = fields[10:13]
        name_at = at + _ENTRY.size
        raw = directory[name_at : name_at + name_size]
        extra = directory[name_at + name_size : name_at + name_size + extra_size]
        at = name_at + name_size + extra_size + comment_size
        if signature != b"PK\x01\x02" or at > len(directory) or not 0 < name_size <= _NAME_BYTES_MAX:
            return entries, [*whys, f"entry {len(entries) + 1} of its directory is damaged"]
        name = raw.decode("utf-8", "backslashreplace")
        widened = _widened(extra, size, packed, header)
        if widened is None:
            whys.append(f"{shown(name)}: its sizes are missing")
            continue
        size, packed, header = widened
        if method or packed != size:
            whys.append(f"{shown(name)}: it is compressed, which torch never does")
        elif flags & _ENCRYPTED:
            whys.append(f"{shown(name)}: it is encrypted")
        else:
            entries.append(_Entry(name, header, size, crc32))
    if at != len(directory):
        whys.append("bytes follow the last entry of its directory")
    return entries, whys


def _widened(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int] | None:
    """Sizes and offset with those that did not fit 32 bits taken from the extra field, or None where they are missing."""
    wanted = [value == _FULL32 for value in (size, packed, header)]
    if not any(wanted):
        return size, packed, header
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field = extra[at + 4 : at + 4 + length]
            if len(field) < 8 * sum(wanted):
                return None
            wide = iter(struct.unpack_from(f"<{sum(wanted)}Q", field))
            found = [next(wide) if full else value for full, value in zip(wanted, (size, packed, header), strict=True)]
            return found[0], found[1], found[2]
        at += 4 + length
    return None


def _located(opened: Bytes, entry: _Entry, data_end: int) -> Member | str:
    """The member's bytes, found through the header before them."""
    if entry.header + _LOCAL.size > data_end:
        return "it lies behind the end"
    signature, _, _, method, _, _, _, _, _, name_size, extra_size = _LOCAL.unpack(opened.read(entry.header, _LOCAL.size))
    begin = entry.header + _LOCAL.size + name_size + extra_size
    if signature != b"PK\x03\x04" or method or begin + entry.size > data_end:
        return "its own header disagrees with the directory"
    if opened.read(entry.header + _LOCAL.size, name_size) != entry.name.encode("utf-8"):
        return "its own header gives it another name"
    return Member(entry.name, begin, entry.size, entry.crc32)


def _verified(opened: Bytes, member: Member) -> bool:
    crc32 = 0
    for part in opened.parts(member.begin, member.begin + member.size):
        crc32 = zlib.crc32(part, crc32)
    return crc32 == member.crc32
