"""Checkpoints that Orbax 0.12.8 wrote, as they were recorded: in one database (``ocdbt``), and in folders (``zarr``, ``zarr3``)."""

import os
import tarfile
from functools import cache
from pathlib import Path

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
