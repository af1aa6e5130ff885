"""Checkpoints that Orbax 0.12.8 wrote, as they were recorded: in one database (``ocdbt``), and in folders (``zarr``, ``zarr3``)."""

import os
import tarfile
from functools import cache
from pathlib import Path

from countermark.files.layouts.ocdbt import crc32c

RECORDED = Path(__file__).parents[2] / "recorded" / "checkpoints" / "orbax-0.12.8.tar.gz"
KINDS = ("ocdbt", "zarr", "zarr3")


@cache
def _recorded(kind: str) -> dict[str, tuple[bytes, int]]:
    """The files of a recorded checkpoint, each with the time at which it was written."""
    found = {}
    with tarfile.open(RECORDED) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member) if member.name.startswith(f"{kind}/4/") else None
            if content is not None:
                found[member.name.removeprefix(f"{kind}/4/")] = (content.read(), int(member.mtime * 1_000_000_000))
    return found


def checkpoint(parent: Path, kind: str = "zarr", name: str = "4") -> Path:
    """A clean checkpoint of step 4, as old as it was."""
    for file, (content, mtime_ns) in _recorded(kind).items():
        path = parent / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(mtime_ns, mtime_ns))
    return parent / name


def put(folder: Path, name: str, content: bytes | None) -> None:
    """Write a file, or take it away where there is to be none, as old as it was."""
    path = folder / name
    status = path.stat()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def number(value: int, size: int) -> bytes:
    """A chunk of one whole number, in a frame of one raw block as Orbax stores it."""
    return b"\x28\xb5\x2f\xfd\x20" + bytes([size]) + (size << 3 | 1).to_bytes(3, "little") + value.to_bytes(size, "little")


def block(magic: int, body: bytes) -> bytes:
    """A block of an index that is whole, whatever it says."""
    head = magic.to_bytes(4, "big") + (len(body) + 18).to_bytes(8, "little") + b"\0\0"
    return head + body + crc32c(head + body).to_bytes(4, "little")


def manifest(name: bytes, offset: int, size: int, height: int = 0) -> bytes:
    """A manifest that names one block."""
    config = bytes(16) + b"\0\x01\x01\x04\0"
    files = b"\x01" + bytes([len(name)]) + b"\0" + name
    place = varint(offset) + varint(size)
    return block(0x0CDB3A2A, config + files + b"\x01\x01" + bytes([height]) + b"\0" + place + b"\x01\x01\x01" + bytes(9))


def leaf(entries: dict[bytes, bytes]) -> bytes:
    keys = list(entries)
    columns = [bytes(max(0, len(keys) - 1)), bytes(map(len, keys)), b"".join(keys), bytes(map(len, entries.values())), bytes(len(keys))]
    return block(0x0CDB20DE, b"\0" + b"\0" + bytes([len(keys)]) + b"".join(columns) + b"".join(entries.values()))


def inner(child: bytes, times: int, height: int = 1) -> bytes:
    """A block that names one child again and again, which lies at the end of the file ``x``."""
    keys = [at.to_bytes(3, "big") for at in range(times)]
    columns = [bytes(times - 1), b"\x03" * times, bytes(times), b"".join(keys), bytes(times), bytes(times), varint(len(child)) * times]
    return block(0x0CDB20DE, bytes([height]) + b"\x01\x01\0x" + varint(times) + b"".join(columns))


def varint(number: int) -> bytes:
    """A number as an index spells it."""
    more = number >> 7
    return bytes([number & 127 | 128]) + varint(more) if more else bytes([number])
