"""GGUF files, read by a reader of our own: the usual one believes every offset, also of two tensors on one range.

Rules kept here:

1. Only the header is parsed, through a window of bounded size; counts, texts and arrays are bounded before they are walked, and nothing of
   the metadata is kept but the alignment.
2. Every tensor has a known type, whole blocks, a place of its own within the file at a multiple of the alignment, and a name that no other
   has. All that is wrong is named at once.
3. Between tensors and behind the last one there is padding to the alignment, and nothing more.
4. Sizes are told outermost first, as everywhere else; the file has them innermost first.
"""

import math
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

from countermark.files.located import Located
from countermark.files.reading import OpenFile, ShortRead
from countermark.values import NonEmpty, Refused, shown
from countermark.weights.header import TensorSpan
from countermark.weights.refusals import GgufUnreadable, WeightsDefect

HEADER_BYTES_MAX: Final = 256 << 20
TENSORS_MAX: Final = 1_000_000
ENTRIES_MAX: Final = 1_000_000
NAME_BYTES_MAX: Final = 64 << 10
DIMENSIONS_MAX: Final = 8
_NESTING_MAX: Final = 4
_WHYS_MAX: Final = 20
_WINDOW: Final = 1 << 20
_ALIGNMENT: Final = 32
_ALIGNMENT_MAX: Final = 1 << 20
_STRING: Final = 8
_ARRAY: Final = 9
_UINT32: Final = 4
#: Bytes of a metadata value by its type, for the types of one size.
_SIZES: Final = MappingProxyType({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8})

#: Tensor types by their number: name, elements of a block, bytes of a block (ggml.h). Names of plain types are those of safetensors.
TYPES: Final = MappingProxyType(
    {
        0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
        23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
        29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    }
)  # fmt: skip


class _Damaged(Exception):
    """The header cannot be walked any further."""


@final
class _Cursor:
    """Walks a file's front, reading it in windows."""

    __slots__ = ("_at", "_begin", "_file", "_window")

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._at = 0
        self._begin = 0
        self._window = b""

    @property
    def at(self) -> int:
        return self._at

    def skip(self, size: int) -> None:
        """Go on ``size`` bytes."""
        if size > min(self._file.size, HEADER_BYTES_MAX) - self._at:
            raise _Damaged(
                "its header goes on behind its end" if size > self._file.size - self._at else "its header is larger than any model needs"
            )
        self._at += size

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        begin = self._at
        self.skip(size)
        if not self._begin <= begin <= begin + size <= self._begin + len(self._window):
            self._begin = begin
            self._window = self._file.read(begin, min(max(size, _WINDOW), self._file.size - begin))
        return self._window[begin - self._begin : begin - self._begin + size]

    def number(self, form: str) -> int:
        """The next whole number, in the form that ``struct`` knows."""
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(found)

    def text(self) -> bytes:
        """The next name."""
        size = self.number("<Q")
        if size > NAME_BYTES_MAX:
            raise _Damaged(f"a name in its header has {size} bytes, more than any needs")
        return self.take(size)

    def pass_text(self) -> None:
        """Go on behind a text of any length."""
        self.skip(self.number("<Q"))

    def pass_value(self, kind: int, nesting: int = 0) -> None:
        """Go on behind a metadata value."""
        if kind in _SIZES:
            self.skip(_SIZES[kind])
        elif kind == _STRING:
            self.pass_text()
        elif kind == _ARRAY and nesting < _NESTING_MAX:
            inner, count = self.number("<I"), self.number("<Q")
            if inner in _SIZES:
                self.skip(count * _SIZES[inner])
                return
            # Each text or array takes eight bytes at least, so that a count that lies ends at the end of the file.
            if count > (self._file.size - self._at) // 8:
                raise _Damaged("an array in its header is longer than the file")
            for _ in range(count):
                self.pass_value(inner, nesting + 1)
        else:
            raise _Damaged(f"a value in its header is of the unknown type {kind}" if kind != _ARRAY else "its header nests arrays too deep")


@final
@dataclass(frozen=True, slots=True)
class _Info:
    """A tensor as the header tells of it: ``offset`` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def read_gguf(opened: OpenFile, stack: ExitStack) -> tuple[Located, ...] | Refused[WeightsDefect]:
    """The tensors of an open GGUF file, in the order of their data, or everything that is wrong with it. All lies in the file itself:
    nothing is left to the stack."""
    try:
        infos, alignment, data_begin = _header(opened)
    except _Damaged as error:
        return Refused(NonEmpty(GgufUnreadable(opened.name, (str(error),))))
    except (OSError, ShortRead) as error:
        return Refused(NonEmpty(opened.judged(error)))
    spans: list[TensorSpan] = []
    whys = [f"{times} tensors are called {shown(name)}" for name, times in Counter(info.name for info in infos).items() if times > 1]
    for info in infos:
        found = _placed(info, alignment, data_begin, opened.size)
        if isinstance(found, str):
            whys.append(f"tensor {shown(info.name)}: {found}")
        else:
            spans.append(found)
    spans.sort(key=lambda span: (span.begin, span.end))
    whys.extend(_gaps(spans, data_begin, opened.size, alignment) if len(spans) == len(infos) else ())
    if whys:
        more = (f"and {len(whys) - _WHYS_MAX} more",) if len(whys) > _WHYS_MAX else ()
        return Refused(NonEmpty(GgufUnreadable(opened.name, (*whys[:_WHYS_MAX], *more))))
    return tuple(Located(span, opened, span.begin, span.end) for span in spans)


def _header(opened: OpenFile) -> tuple[list[_Info], int, int]:
    """The tensors that the header names, the alignment, and where the data begins. Raises ``_Damaged``."""
    cursor = _Cursor(opened)
    if opened.size < 24 or cursor.take(4) != b"GGUF":
        raise _Damaged("it does not begin as a GGUF file does")
    version = cursor.number("<I")
    if version not in (2, 3):
        turned = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise _Damaged("its numbers are not little-endian" if turned in (2, 3) else f"it is of version {version}, and 2 and 3 are known")
    tensors, entries = cursor.number("<Q"), cursor.number("<Q")
    if tensors > TENSORS_MAX or entries > ENTRIES_MAX:
        raise _Damaged(f"it claims {tensors} tensors and {entries} entries, more than any model has")
    alignment = _ALIGNMENT
    for _ in range(entries):
        key, kind = cursor.text(), cursor.number("<I")
        if key == b"general.alignment" and kind == _UINT32:
            alignment = cursor.number("<I")
        else:
            cursor.pass_value(kind)
    if not 0 < alignment <= _ALIGNMENT_MAX or alignment % 8:
        raise _Damaged(f"its alignment of {alignment} bytes is none")
    infos = [_info(cursor) for _ in range(tensors)]
    return infos, alignment, -(-cursor.at // alignment) * alignment


def _info(cursor: _Cursor) -> _Info:
    name = cursor.text().decode("utf-8", "surrogateescape")
    dimensions = cursor.number("<I")
    if dimensions > DIMENSIONS_MAX:
        raise _Damaged(f"tensor {shown(name)} has {dimensions} dimensions, more than any has")
    shape = tuple(cursor.number("<Q") for _ in range(dimensions))
    return _Info(name, shape[::-1], cursor.number("<I"), cursor.number("<Q"))


def _placed(info: _Info, alignment: int, data_begin: int, size: int) -> TensorSpan | str:
    """The tensor at its place in the file, or what is wrong with it."""
    known = TYPES.get(info.kind)
    if known is None:
        return f"its type {info.kind} is not known"
    dtype, block, block_bytes = known
    row = info.shape[-1] if info.shape else 1
    if row % block:
        return f"its rows of {row} elements are no whole blocks of {block}"
    data = math.prod(info.shape) // block * block_bytes
    if info.offset % alignment:
        return f"its offset {info.offset} is no multiple of {alignment}"
    begin = data_begin + info.offset
    if begin + data > size:
        return f"it ends at byte {begin + data} of {size}"
    return TensorSpan(info.name, dtype, info.shape, begin, begin + data)


def _gaps(spans: list[TensorSpan], data_begin: int, size: int, alignment: int) -> Iterator[str]:
    """Where the data is not one tensor after another with padding between."""
    end, before = min(data_begin, size), ""
    for span in spans:
        if span.begin < end:
            yield f"tensors {shown(before)} and {shown(span.name)} share bytes"
        elif span.begin - end >= alignment:
            yield f"bytes {end} to {span.begin} belong to no tensor"
        if span.end >= end:
            end, before = span.end, span.name
    if size - end >= alignment:
        yield f"{size - end} bytes follow its last tensor"
