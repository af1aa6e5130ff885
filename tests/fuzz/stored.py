"""Judges of the formats whose header says where each tensor lies: safetensors and GGUF, each against the format's own reader."""

import math
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256

from countermark.files.gguf import TYPES, read_gguf
from countermark.files.reading import OpenFile, Stamp
from countermark.files.safetensors import hash_tensors, read_table
from countermark.values import Refused
from countermark.weights import TensorLine, weights_root
from countermark.weights.header import HeaderKeyRepeated
from tests.files import ggufs

Placed = tuple[str, tuple[int, ...], bytes]


@contextmanager
def in_memory(data: bytes) -> Iterator[OpenFile]:
    """An open file with these bytes that stands on no disk."""
    descriptor = os.memfd_create("fuzz")
    os.write(descriptor, data)
    with OpenFile("fuzz", descriptor, Stamp.of(os.fstat(descriptor))) as opened:
        yield opened


def lie_apart(ranges: Iterable[tuple[int, int]], begin: int, end: int) -> bool:
    """Whether ranges lie within ``begin`` and ``end`` and share no byte."""
    for first, last in sorted(ranges):
        if not begin <= first <= last <= end:
            return False
        begin = last
    return True


def _theirs(data: bytes) -> dict[str, Placed] | None:
    """What the format's own reader takes from a file, None where it takes none."""
    from safetensors import SafetensorError, deserialize

    try:
        found = deserialize(data)
    except SafetensorError:
        return None
    return {name: (told["dtype"], tuple(told["shape"]), bytes(told["data"])) for name, told in found}


def safetensors(data: bytes) -> bool:
    """A file of safetensors: taken by both readers as the same, and by the official one alone only where a key stands twice."""
    theirs = _theirs(data)
    with in_memory(data) as opened:
        table = read_table(opened)
        if isinstance(table, Refused):
            stricter = any(isinstance(defect, HeaderKeyRepeated) for defect in table.defects)
            assert theirs is None or stricter, f"the official reader takes what is refused here: {table.defects}"
            return False
        spans = {span.name: (span.begin + table.data_begin, span.end + table.data_begin) for span in table.tensors}
        assert lie_apart(spans.values(), table.data_begin, len(data)), f"tensors share bytes: {spans}"
        ours = {span.name: (span.dtype, span.shape, data[slice(*spans[span.name])]) for span in table.tensors}
        if theirs is None and any(_overflows(span.shape) for span in table.tensors):
            return True
        assert theirs is not None, "the official reader refuses what is taken here"
        assert theirs == ours, f"the official reader reads {theirs}, and here it is {ours}"
        lines, again = hash_tensors(opened, table), hash_tensors(opened, table)
        assert isinstance(lines, tuple), lines
        assert lines == again
        assert [line.sha256.hex for line in lines] == [sha256(ours[line.name][2]).hexdigest() for line in lines]
        assert _root(lines) == _root(lines[::-1])
    return True


def _overflows(shape: tuple[int, ...]) -> bool:
    """Whether the official reader gives a shape up before it comes to its zero: an empty tensor is taken here in any order of its sizes."""
    before = shape[: shape.index(0)] if 0 in shape else ()
    return math.prod(before) >= 1 << 59


def _root(lines: tuple[TensorLine, ...]) -> object:
    """The root, or what keeps the names out of one in any order."""
    root = weights_root(lines)
    return frozenset(root.defects) if isinstance(root, Refused) else root


def gguf(data: bytes) -> bool:
    """A GGUF file: its tensors lie apart, and where the usual reader reads the file it reads the same."""
    with in_memory(data) as opened, ExitStack() as stack:
        found = read_gguf(opened, stack)
        if isinstance(found, Refused):
            return False
        assert lie_apart(((one.begin, one.end) for one in found), 24, len(data)), f"tensors share bytes: {found}"
        ours = sorted((one.span.name, one.span.dtype, one.span.shape, one.begin, one.end) for one in found)
        with in_memory(data) as again:
            assert read_gguf(again, stack) == tuple(type(one)(one.span, again, one.begin, one.end) for one in found)
        theirs = _usual(f"/proc/self/fd/{opened.fileno()}")
        assert theirs is None or theirs == ours, f"the usual reader reads {theirs}, and here it is {ours}"
    return True


def described() -> bytes:
    """A GGUF file with metadata of every kind, and an alignment of its own."""
    values = {
        "general.alignment": struct.pack("<II", 4, 64),
        "general.name": struct.pack("<I", 8) + ggufs.text(b"small"),
        "list": struct.pack("<IIQ", 9, 8, 2) + ggufs.text(b"x") + ggufs.text(b"yz"),
        "nested": struct.pack("<IIQIQ", 9, 9, 1, 4, 1) + bytes(4),
        "flag": struct.pack("<IB", 7, 1),
        "number": struct.pack("<Id", 12, 0.5),
    }
    entries = b"".join(ggufs.text(key.encode()) + value for key, value in values.items())
    infos = ggufs.info(b"a", (2, 3), 0, 0) + ggufs.info(b"b", (4,), 24, 64)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(values)) + entries + infos
    return head + bytes(-len(head) % 64) + bytes(68)


def _usual(path: str) -> list[tuple[str, str, tuple[int, ...], int, int]] | None:
    """What the published package reads, None where it does not come to an end: it raises whatever happens to go wrong."""
    from gguf import GGUFReader

    try:
        found = GGUFReader(path).tensors
    except Exception:
        return None
    return sorted(
        (
            one.name,
            TYPES[one.tensor_type.value][0],
            tuple(int(size) for size in reversed(one.shape)),
            int(one.data_offset),
            int(one.data_offset + one.n_bytes),
        )
        for one in found
    )
