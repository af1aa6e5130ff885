"""The header of a safetensors file, read strictly: from its bytes to the place of every tensor, or every defect.

Rules kept here:

1. All defects of one header are found at once, as far as it can be parsed. Where one entry cannot be placed, holes and overlaps are not
   concluded: they would only be its shadow.
2. A key that stands twice is refused, at every level: readers differ in which of the two they take.
3. The data region is covered exactly: no hole, no overlap, no byte after the last tensor, and each tensor as long as dtype × shape says.
4. Sizes are counted in whole numbers without a limit, and a product is given up as soon as it leaves 64 bits: no shape overflows or stalls.
5. What no tensor asks for is bounded: levels of nesting by what the format's own reader takes, and brackets, each of which costs a
   hundred bytes of memory once it is parsed, by the header's length.
6. What the format's own reader lets pass and no digest sees is let pass: white space around the header, further fields of an entry,
   metadata of null, data at odd offsets. What no writer of the format means to leave is noted.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias, final

from countermark.values import NonEmpty, Refused, is_unicode, shown
from countermark.weights.dtypes import DTYPE_BITS

#: The format's own bound for the header, in bytes.
HEADER_BYTES_MAX: Final = 100_000_000
#: As many bytes of a file as ``header_length`` wants to see: the length, and enough to know a pointer file by.
PROLOGUE_BYTES: Final = 64
_SIZE_LIMIT: Final = 2**64
#: Levels within an entry's further field. The format's own reader takes 127 in all, of which the header and the entry are two.
_NESTING_MAX: Final = 125
#: A tensor's entry has three brackets in fifty bytes; short documents may have as many as they like.
_BRACKETS_FREE: Final = 100_000
_BYTES_PER_BRACKET: Final = 8
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_POINTER: Final = b"version https://git-lfs"


@final
@dataclass(frozen=True, slots=True)
class TensorSpan:
    """Where one tensor's data lies: ``begin`` and ``end`` count bytes from the start of the data region."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@final
@dataclass(frozen=True, slots=True)
class TensorTable:
    """A file's tensors in the order of their data, which covers ``data_begin`` (bytes from the start of the file) to its end, and what is
    odd about its header."""

    file: str
    tensors: tuple[TensorSpan, ...]
    metadata: Mapping[str, str]
    data_begin: int
    data_bytes: int
    notes: "tuple[HeaderOdd, ...]"


@final
@dataclass(frozen=True, slots=True)
class HeaderOdd:
    """The header is one, and holds what the format has no place for; it changes no tensor."""

    file: str
    what: str


@final
@dataclass(frozen=True, slots=True)
class FileTooShort:
    """A safetensors file has at least 8 bytes."""

    file: str
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class GitLfsPointer:
    """The file is a git-lfs pointer: a few lines of text in the place of the weights."""

    file: str


@final
@dataclass(frozen=True, slots=True)
class HeaderLengthInvalid:
    """The header is said to have ``length`` bytes; the file has room for ``room``, the format allows ``HEADER_BYTES_MAX``."""

    file: str
    length: int
    room: int


@final
@dataclass(frozen=True, slots=True)
class HeaderUnparseable:
    """The header is not the one JSON object that it must be."""

    file: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class HeaderKeyRepeated:
    """A key stands several times in one object; ``where`` is empty for the header itself, else the entry's name."""

    file: str
    where: str
    key: str


@final
@dataclass(frozen=True, slots=True)
class HeaderMetadataInvalid:
    """``__metadata__`` is something else than text under each key."""

    file: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class TensorEntryInvalid:
    """An entry does not say dtype, shape and place of its tensor."""

    file: str
    tensor: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class TensorSizeDisagrees:
    """The entry's range has ``found`` bytes; its dtype and shape ask for ``expected`` (None: over 64 bits, or no whole bytes)."""

    file: str
    tensor: str
    expected: int | None
    found: int


@final
@dataclass(frozen=True, slots=True)
class TensorOutOfBounds:
    """The tensor ends behind the end of the data: the file was cut, or the header lies."""

    file: str
    tensor: str
    end: int
    available: int


@final
@dataclass(frozen=True, slots=True)
class TensorsOverlap:
    """Two tensors share bytes, or an empty one lies inside another."""

    file: str
    first: str
    second: str


@final
@dataclass(frozen=True, slots=True)
class DataHole:
    """Bytes from ``begin`` to ``end`` of the data region belong to no tensor."""

    file: str
    begin: int
    end: int


@final
@dataclass(frozen=True, slots=True)
class TrailingBytes:
    """Bytes after the last tensor."""

    file: str
    bytes: int


HeaderDefect = (
    FileTooShort
    | GitLfsPointer
    | HeaderLengthInvalid
    | HeaderUnparseable
    | HeaderKeyRepeated
    | HeaderMetadataInvalid
    | TensorEntryInvalid
    | TensorSizeDisagrees
    | TensorOutOfBounds
    | TensorsOverlap
    | DataHole
    | TrailingBytes
)

_FIELDS: Final = ("dtype", "shape", "data_offsets")
_Json: TypeAlias = "str | int | float | bool | list[_Json] | _Table | _Odd | None"


@final
class _Table:
    """A JSON object with its keys as written, repeated ones included."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: "list[tuple[str, _Json]]") -> None:
        self.pairs = pairs

    def values(self) -> "list[_Json]":
        return [value for _, value in self.pairs]

    def repeated(self) -> tuple[str, ...]:
        return tuple(key for key, times in Counter(key for key, _ in self.pairs).items() if times > 1)


@final
class _Odd:
    """A whole number that no size is: too long, or minus zero."""

    __slots__ = ()


class _NotJson(ValueError):
    """A constant that JSON does not have."""


def header_length(file: str, prologue: bytes, file_bytes: int) -> int | Refused[HeaderDefect]:
    """The length of the header in bytes, from the first ``PROLOGUE_BYTES`` of a file of ``file_bytes`` (all of it where it is shorter)."""
    if prologue.startswith(_POINTER):
        return Refused(NonEmpty(GitLfsPointer(file)))
    if file_bytes < 8 or len(prologue) < 8:
        return Refused(NonEmpty(FileTooShort(file, file_bytes)))
    length = int.from_bytes(prologue[:8], "little")
    room = file_bytes - 8
    if not 0 < length <= min(room, HEADER_BYTES_MAX):
        return Refused(NonEmpty(HeaderLengthInvalid(file, length, room)))
    return length


def read_header(file: str, header: bytes, file_bytes: int) -> TensorTable | Refused[HeaderDefect]:
    """The tensors of a file of ``file_bytes`` whose header (without the 8 bytes of its length) is ``header``."""
    parsed = _parsed(header)
    if isinstance(parsed, str):
        return Refused(NonEmpty(HeaderUnparseable(file, parsed)))
    data_begin = 8 + len(header)
    data_bytes = file_bytes - data_begin
    defects: list[HeaderDefect] = [HeaderKeyRepeated(file, "", key) for key in parsed.repeated()]
    metadata: dict[str, str] = {}
    spans: list[TensorSpan] = []
    placed = True
    for name, value in parsed.pairs:
        if name == "__metadata__":
            defects.extend(_metadata_defects(file, value))
            metadata |= {key: text for key, text in value.pairs if isinstance(text, str)} if isinstance(value, _Table) else {}
            continue
        span, found = _span(file, name, value)
        defects.extend(found)
        placed = placed and span is not None
        spans.extend([span] if span else [])
    spans.sort(key=lambda span: (span.begin, span.end))
    if placed:
        defects.extend(_layout_defects(file, spans, data_bytes))
    if refusal := NonEmpty.of(defects):
        return Refused(refusal)
    return TensorTable(file, tuple(spans), metadata, data_begin, data_bytes, tuple(HeaderOdd(file, what) for what in _odd(header, parsed)))


def is_crowded(document: bytes) -> bool:
    """Whether a JSON document has more objects and lists than one of its length has any use for: parsed, it would fill the memory."""

    def brackets(text: bytes) -> int:
        return text.count(b"{") + text.count(b"[")

    allowed = max(_BRACKETS_FREE, len(document) // _BYTES_PER_BRACKET)
    return brackets(document) > allowed and brackets(_TEXT.sub(b"", document)) > allowed


def _parsed(header: bytes) -> _Table | str:
    """The header's object, or why it is none."""
    if is_crowded(header):
        return "it holds more brackets than any tensors need"
    try:
        text = header.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start} is not UTF-8"
    try:
        value: _Json = json.loads(text, object_pairs_hook=_Table, parse_constant=_refuse_constant, parse_int=_whole)
    except _NotJson as error:
        return str(error)
    except RecursionError:
        return "it is nested too deep"
    except ValueError as error:
        return f"it is not JSON ({error})"
    return value if isinstance(value, _Table) else "it is not a JSON object"


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJson(f"it holds {name}, which JSON has not")


def _whole(text: str) -> int | _Odd:
    return _Odd() if len(text) > 20 or text == "-0" else int(text)


def _metadata_defects(file: str, value: _Json) -> Iterable[HeaderDefect]:
    if value is None:
        return ()
    if not isinstance(value, _Table):
        return (HeaderMetadataInvalid(file, "it is not an object"),)
    repeated = tuple(HeaderKeyRepeated(file, "__metadata__", key) for key in value.repeated())
    other = tuple(HeaderMetadataInvalid(file, f"{shown(key)} is not text") for key, text in value.pairs if not isinstance(text, str))
    broken = tuple(
        HeaderMetadataInvalid(file, f"{shown(key)} is not Unicode")
        for key, text in value.pairs
        if not is_unicode(key) or (isinstance(text, str) and not is_unicode(text))
    )
    return repeated + other + broken


def _odd(header: bytes, parsed: _Table) -> Iterable[str]:
    """What is taken and is not what the format asks for."""
    if not header.startswith(b"{"):
        yield "white space stands before its first brace"
    if any(name == "__metadata__" and value is None for name, value in parsed.pairs):
        yield "its __metadata__ is null"
    further = [
        (name, key) for name, value in parsed.pairs if isinstance(value, _Table) and name != "__metadata__" for key, _ in value.pairs
    ]
    if strange := [(name, key) for name, key in further if key not in _FIELDS]:
        name, key = strange[0]
        yield f"{len(strange)} fields stand in entries where nothing reads them, the first is {shown(key)} of {shown(name)}"


def _span(file: str, name: str, value: _Json) -> tuple[TensorSpan | None, tuple[HeaderDefect, ...]]:
    """One tensor's place, None where its entry names none, and everything that is wrong with the entry."""
    if not isinstance(value, _Table):
        return None, (TensorEntryInvalid(file, name, "it is not an object"),)
    repeated = tuple(HeaderKeyRepeated(file, name, key) for key in value.repeated())
    fields = dict(value.pairs)
    dtype, shape, offsets = (fields.get(field) for field in _FIELDS)
    whys: list[str] = [] if is_unicode(name) else ["its name is not Unicode"]
    if any(_is_deep(more, _NESTING_MAX) for key, more in value.pairs if key not in _FIELDS):
        whys.append("a field in it is nested too deep")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        whys.append("its dtype is missing" if dtype is None else f"its dtype {_shown(dtype)} is not one of the format's")
    sizes = _sizes(shape)
    if sizes is None:
        whys.append("its shape is missing" if shape is None else "its shape is not a list of whole numbers below 2^64")
    place = _sizes(offsets)
    if place is None or len(place) != 2:
        whys.append("its data_offsets are missing" if offsets is None else "its data_offsets are not two whole numbers below 2^64")
    elif place[0] > place[1]:
        whys.append(f"it begins at {place[0]}, behind its end at {place[1]}")
    if whys or not isinstance(dtype, str) or sizes is None or place is None:
        return None, repeated + tuple(TensorEntryInvalid(file, name, why) for why in whys)
    begin, end = place
    expected = size_bytes(dtype, sizes)
    disagrees = () if expected == end - begin else (TensorSizeDisagrees(file, name, expected, end - begin),)
    return TensorSpan(name, dtype, sizes, begin, end), repeated + disagrees


def _is_deep(value: _Json, levels: int) -> bool:
    """Whether lists and objects stand in one another more than ``levels`` deep."""
    layer: list[_Json] = [value]
    for _ in range(levels + 1):
        parts = [each.values() if isinstance(each, _Table) else each for each in layer if isinstance(each, list | _Table)]
        if not parts:
            return False
        layer = [inner for part in parts for inner in part]
    return True


def _sizes(value: _Json) -> tuple[int, ...] | None:
    """A list of sizes, or None where it is anything else."""
    if not isinstance(value, list):
        return None
    sizes = tuple(size for size in value if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < _SIZE_LIMIT)
    return sizes if len(sizes) == len(value) else None


def _shown(value: _Json) -> str:
    return shown(value) if isinstance(value, str) else "(not text)"


def size_bytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """The size in bytes that a known dtype and a shape ask for, or None where it passes 64 bits or ends within a byte."""
    if 0 in shape:
        return 0
    bits = DTYPE_BITS[dtype]
    for size in shape:
        bits *= size
        if bits >= 8 * _SIZE_LIMIT:
            return None
    return None if bits % 8 else bits // 8


def _layout_defects(file: str, spans: list[TensorSpan], data_bytes: int) -> Iterable[HeaderDefect]:
    """Holes, overlaps, tensors that end behind the data, and bytes behind the last one; the spans come in the order of their data."""
    covered = 0
    holder: TensorSpan | None = None
    for span in spans:
        if span.begin > covered:
            yield DataHole(file, covered, span.begin)
        elif holder and span.begin < covered and span.name != holder.name:
            yield TensorsOverlap(file, holder.name, span.name)
        if span.end > data_bytes:
            yield TensorOutOfBounds(file, span.name, span.end, data_bytes)
        if holder is None or span.end > covered:
            covered, holder = span.end, span
    if covered < data_bytes:
        yield TrailingBytes(file, data_bytes - covered)
