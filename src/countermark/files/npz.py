"""NumPy's archives of arrays (``.npz``), read without NumPy's own loader: nothing is unpickled, and nothing grows beyond what was said.

Rules kept here:

1. The directory is bounded before it is parsed, and stands in an archive that NumPy takes for one.
2. Each array is inflated into a file without a name, never beyond the size that the archive's directory says, and all of them never beyond
   what an honest archive of that length holds. Checksums are verified on the way.
3. An array has a type that weights have, in little-endian order; one in Fortran order is laid out in order. Objects are pickles and are
   refused by name.
4. Every array that is wrong is named, as far as the directory can be read.
"""

import ast
import math
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, cast

from countermark.files.archive import Directory, find_directory
from countermark.files.located import Located
from countermark.files.reading import OpenFile, ShortRead
from countermark.files.spooled import laid_out, spooled
from countermark.values import NonEmpty, Refused, shown
from countermark.weights import DTYPE_BITS
from countermark.weights.header import TensorSpan
from countermark.weights.refusals import ArraysUnreadable, WeightsDefect

ARRAYS_MAX: Final = 100_000
HEADER_BYTES_MAX: Final = 64 << 10
DIMENSIONS_MAX: Final = 64
#: Weights hardly shrink; what is a hundred times larger than its archive is there to fill a disk.
RATIO_MAX: Final = 100
_SMALL: Final = 64 << 20
_PIECE: Final = 1 << 20
_ENCRYPTED: Final = 0x1
#: An array, or the end of an archive without any: NumPy takes nothing else for one.
_STARTS: Final = (b"PK\x03\x04", b"PK\x05\x06")
#: What NumPy writes. The other ways ask for memory of their own (LZMA for as much as its header says).
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DTYPES: Final = {
    "|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<u2": "U16", "<i2": "I16", "<f2": "F16", "<u4": "U32", "<i4": "I32", "<f4": "F32",
    "<u8": "U64", "<i8": "I64", "<f8": "F64", "<c8": "C64",
}  # fmt: skip


class _Damaged(Exception):
    """An array cannot be read; the text says why."""


def read_npz(opened: OpenFile, stack: ExitStack) -> tuple[Located, ...] | Refused[WeightsDefect]:
    """Every array of an open archive, by the name that NumPy gives it. What was laid out is closed with ``stack``."""
    try:
        directory = find_directory(opened, "NumPy")
        if isinstance(directory, Directory) and opened.read(0, 4) not in _STARTS:
            directory = "something stands before its first array"
        if not isinstance(directory, Directory):
            return Refused(NonEmpty(ArraysUnreadable(opened.name, (directory,))))
        with os.fdopen(os.dup(opened.fileno()), "rb") as file, zipfile.ZipFile(file) as archive:
            return _arrays(opened, archive, stack)
    except (zipfile.BadZipFile, RuntimeError, ValueError) as error:
        return Refused(NonEmpty(ArraysUnreadable(opened.name, (f"it is no archive ({shown(str(error), 200)})",))))
    except (OSError, ShortRead) as error:
        return Refused(NonEmpty(opened.judged(error)))


def _arrays(opened: OpenFile, archive: zipfile.ZipFile, stack: ExitStack) -> tuple[Located, ...] | Refused[WeightsDefect]:
    entries = archive.infolist()
    total = sum(entry.file_size for entry in entries)
    whys: list[str] = []
    if len(entries) > ARRAYS_MAX:
        whys.append(f"it has {len(entries)} entries, more than any model has")
    if total > max(_SMALL, RATIO_MAX * opened.size):
        whys.append(f"it would grow to {total} bytes, {RATIO_MAX} times its own {opened.size} and more")
    times = Counter(entry.filename for entry in entries)
    whys.extend(f"{count} arrays are called {shown(name)}" for name, count in times.items() if count > 1)
    if whys:
        return Refused(NonEmpty(ArraysUnreadable(opened.name, tuple(whys))))
    found: list[Located] = []
    for entry in entries:
        try:
            found.append(_array(opened, archive, entry, stack))
        except _Damaged as error:
            whys.append(f"{shown(entry.filename)}: {error}")
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            whys.append(f"{shown(entry.filename)}: it is damaged ({shown(str(error), 200)})")
    return Refused(NonEmpty(ArraysUnreadable(opened.name, tuple(whys)))) if whys else tuple(found)


def _array(opened: OpenFile, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, stack: ExitStack) -> Located:
    if not entry.filename.endswith(".npy"):
        raise _Damaged("it is no array")
    if entry.flag_bits & _ENCRYPTED:
        raise _Damaged("it is encrypted")
    if entry.compress_type not in _PACKED:
        raise _Damaged("it is packed in a way that NumPy never uses")
    file = spooled(opened.name, _inflated(archive, entry), stack)
    dtype, fortran, shape, begin = _header(file.read(0, min(file.size, HEADER_BYTES_MAX + 16)))
    size = math.prod(shape) * DTYPE_BITS[dtype] // 8
    if begin + size != file.size:
        raise _Damaged(f"it holds {file.size - begin} bytes, and its type and shape ask for {size}")
    if fortran and size:
        stride = tuple(math.prod(shape[:at]) for at in range(len(shape)))
        file, begin = laid_out(file, begin, DTYPE_BITS[dtype] // 8, shape, stride, stack), 0
    return Located(TensorSpan(entry.filename.removesuffix(".npy"), dtype, shape, begin, begin + size), file, begin, begin + size)


def _inflated(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """The entry's bytes, as many as the directory says and not one more."""
    left = entry.file_size
    with archive.open(entry) as member:
        while part := member.read(_PIECE):
            left -= len(part)
            if left < 0:
                raise _Damaged("it holds more than its directory says")
            yield part
    if left:
        raise _Damaged("it is cut")


def _header(front: bytes) -> tuple[str, bool, tuple[int, ...], int]:
    """Type, whether the order is Fortran's, shape, and where the data begins."""
    width = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}.get(front[6:8])
    if front[:6] != b"\x93NUMPY" or width is None:
        raise _Damaged("it does not begin as an array does")
    length = int.from_bytes(front[8 : 8 + width], "little")
    begin = 8 + width + length
    if length > HEADER_BYTES_MAX or begin > len(front):
        raise _Damaged(f"its header of {length} bytes is none")
    try:
        told: object = ast.literal_eval(front[8 + width : begin].decode("latin-1"))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise _Damaged(f"its header cannot be read ({type(error).__name__})") from error
    return *_told(told), begin


def _told(header: object) -> tuple[str, bool, tuple[int, ...]]:
    """What an array's header says: type, whether the order is Fortran's, and shape."""
    said = cast("dict[object, object]", header) if isinstance(header, dict) else {}
    descr, fortran, shape = said.get("descr"), said.get("fortran_order"), said.get("shape")
    if isinstance(descr, list):
        raise _Damaged("its elements are records, which no weights are")
    if len(said) != 3 or not isinstance(descr, str) or not isinstance(fortran, bool) or not isinstance(shape, tuple):
        raise _Damaged("its header does not say type, order and shape")
    if "O" in descr:
        raise _Damaged("its elements are pickled objects, and nothing is executed")
    if descr not in _DTYPES:
        raise _Damaged(f"its type {shown(descr)} is none that weights have")
    given = cast("tuple[object, ...]", shape)
    sizes = tuple(size for size in given if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**63)
    if len(sizes) != len(given) or len(given) > DIMENSIONS_MAX:
        raise _Damaged("its shape is none")
    return _DTYPES[descr], fortran, sizes
