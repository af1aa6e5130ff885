"""Judges of archives: files of ``torch.save`` and NumPy's, whose every tensor is read to its end."""

import io
import math
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

from countermark.files.archive import read_members
from countermark.files.layouts.states import generators_say, optimizer_says, scheduler_says
from countermark.files.located import Located
from countermark.files.npz import HEADER_BYTES_MAX, read_npz
from countermark.files.pickles import TensorStub, TorchFile, read_torch_file, scalar
from countermark.files.reading import OpenFile
from countermark.files.torch_weights import read_torch_weights
from countermark.values import Refused
from countermark.weights import DTYPE_BITS
from tests.files.torchfiles import archive
from tests.fuzz.stored import in_memory

#: How a program names a storage: its type, its key, and how many elements it has.
_STORAGE: Final = re.compile(
    rb"ctorch\n(Float|Double|Long|Byte)Storage\nX\x01\x00\x00\x00(.)X\x03\x00\x00\x00cpu\x8a\x01([\x00-\x20])", re.DOTALL
)
_WIDTHS: Final = {b"Float": 4, b"Double": 8, b"Long": 8, b"Byte": 1}
#: What readers may lay out for one small input, in bytes.
_LAID_OUT_MAX: Final = 64 << 20


def around(program: bytes) -> bytes:
    """A file of ``torch.save`` around a program, with every checksum right and each storage as long as the program says. Numbers that
    stand alone are 0: a step that was counted."""
    found = {key: bytes(range(256))[: count[0] * width] if count[0] > 1 else bytes(width) for key, count, width in _asked(program)}
    storages = {f"archive/data/{key.decode()}": data for key, data in found.items() if key.isdigit()}
    return archive({"archive/data.pkl": program, "archive/byteorder": b"little", **storages})


def _asked(program: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    for kind, key, count in _STORAGE.findall(program):
        yield key, count, _WIDTHS[kind]


def viewed(shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A program whose one value is a dictionary with a view of 24 floats."""

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"K" + bytes([value]) for value in values) + b"t"

    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu\x8a\x01\x18tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + numbers(shape) + numbers(stride) + b"\x89}tR"
    return b"\x80\x02}X\x01\x00\x00\x00w" + tensor + b"s."


def _contents(found: tuple[Located, ...], opened: OpenFile) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor with its bytes, after what must hold of each."""
    laid = {id(one.file): one.file.size for one in found if one.file is not opened}
    assert sum(laid.values()) <= _LAID_OUT_MAX, f"{sum(laid.values())} bytes are laid out for {opened.size}"
    for one in found:
        assert one.bytes == math.prod(one.span.shape) * DTYPE_BITS[one.span.dtype] // 8, one
        assert one.bytes == 0 or 0 <= one.begin <= one.end <= one.file.size, one
    assert sum(one.bytes for one in found) <= _LAID_OUT_MAX, f"{len(found)} tensors for {opened.size} bytes"
    assert sum(len(one.span.name) for one in found) <= _LAID_OUT_MAX, f"the names of {len(found)} tensors for {opened.size} bytes"
    return {one.span.name: (one.span.dtype, one.span.shape, one.file.read(one.begin, one.bytes)) for one in found}


def archived(data: bytes) -> bool:
    """An archive of ``torch.save``, held against the reader of archives that Python has: the same members with the same bytes."""
    with in_memory(data) as opened:
        members = read_members(opened)
        if isinstance(members, tuple):
            return False
        ours = {name: opened.read(member.begin, member.size) for name, member in members.items()}
        theirs = _usual(data)
        assert theirs is None or theirs == {name.encode(): content for name, content in ours.items()}, "Python's reader reads other members"
    return torch_weights(data)


def _usual(data: bytes) -> dict[bytes, bytes] | None:
    """The members that Python's reader finds, None where it knows of no such archive (a later version, say)."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as usual:
            return {entry.orig_filename.encode(_coding(entry)): usual.read(entry) for entry in usual.infolist()}
    except NotImplementedError:
        return None


def _coding(entry: zipfile.ZipInfo) -> str:
    return "utf-8" if entry.flag_bits & 0x800 else "cp437"


def torch_weights(data: bytes) -> bool:
    """A file of ``torch.save``: every tensor is what its storage holds element by element, and whatever else is in it, the readers of a
    trainer's files answer."""
    with in_memory(data) as opened, ExitStack() as stack:
        plain = read_torch_file(opened)
        if isinstance(plain, TorchFile):
            _as_a_trainers(opened, plain)
        found = read_torch_weights(opened, stack)
        if isinstance(found, Refused):
            return False
        assert isinstance(plain, TorchFile)
        expected = dict(_gathered(opened, plain, plain.value, ()))
        assert {name: content for name, (_, _, content) in _contents(found, opened).items()} == expected
    return True


def _gathered(opened: OpenFile, file: TorchFile, value: object, path: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Every tensor of a value by its name, put together element by element."""
    if isinstance(value, TensorStub):
        width = DTYPE_BITS[value.storage.dtype] // 8
        member = file.members[f"data/{value.storage.key}"]
        held = opened.read(member.begin, member.size)
        starts = [0]
        for size, step in zip(value.shape, value.stride, strict=True):
            starts = [start + at * step for start in starts for at in range(size)]
        yield ".".join(path), b"".join(held[(value.offset + at) * width :][:width] for at in starts)
    elif isinstance(value, dict | list | tuple) and len(path) < 16:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _gathered(opened, file, inner, (*path, str(key)))


def _as_a_trainers(opened: OpenFile, file: TorchFile) -> None:
    def element(tensor: TensorStub) -> int | float | None:
        return scalar(opened, file, tensor)

    assert optimizer_says(file.value, element, "o") == optimizer_says(file.value, element, "o")
    assert scheduler_says(file.value, "s") == scheduler_says(file.value, "s")
    assert generators_say(file.value) == generators_say(file.value)


def npz(data: bytes) -> bool:
    """NumPy's archive: NumPy reads the same from it."""
    with warnings.catch_warnings(), in_memory(data) as opened, ExitStack() as stack:
        # Names that stand twice, and headers with odd escapes: both are told by the answer.
        warnings.simplefilter("ignore")
        found = read_npz(opened, stack)
        if isinstance(found, Refused):
            return False
        ours = _contents(found, opened)
        theirs: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
        with np.load(io.BytesIO(data), allow_pickle=False, max_header_size=HEADER_BYTES_MAX) as arrays:
            for name in arrays.files:
                array: Any = arrays[name]
                kind = "BOOL" if array.dtype == bool else f"{array.dtype.kind.upper()}{array.dtype.itemsize * 8}"
                theirs[name] = kind, array.shape, array.tobytes()
        assert theirs == ours, f"NumPy reads {theirs}, and here it is {ours}"
    return True


def arrays() -> tuple[bytes, ...]:
    """Proper arrays as they stand in an archive."""
    made: tuple[Any, ...] = (
        np.arange(6, dtype="<f4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype="<f2").reshape(2, 3)),
        np.int64(7),
        np.zeros((0, 4), dtype="?"),
    )
    found: list[bytes] = []
    for array in made:
        buffer = io.BytesIO()
        np.save(buffer, array)
        found.append(buffer.getvalue())
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
    return (*found, b"\x93NUMPY\x02\x00" + struct.pack("<I", len(head)) + head + bytes(4))


def archives() -> Iterator[bytes]:
    """Proper archives of arrays, stored and deflated."""
    members = {f"{name}.npy": array for name, array in zip("abcde", arrays(), strict=True)}
    yield archive(members)
    yield archive(members, zipfile.ZIP_DEFLATED)
    yield archive({"a.npy": arrays()[0]}, zipfile.ZIP_BZIP2)
    yield archive({"a.npy": arrays()[0]}, zipfile.ZIP_LZMA)
