"""Safetensors files, read by a reader of our own: the official one takes the last of two tensors of one name, and says nothing.

Rules kept here: the header is judged by ``countermark.weights.read_header``; the data is read once, in the order of the file, each tensor
into a hash of its own; a file that was cut or written to meanwhile gives a defect, never a line.
"""

from pathlib import Path

from countermark.files.digest_cache import DigestCache, hash_ranges
from countermark.files.reading import OpenFile, Progress, ShortRead, open_file
from countermark.values import NonEmpty, Refused
from countermark.weights import PROLOGUE_BYTES, HeaderDefect, TensorLine, TensorTable, header_length, read_header
from countermark.weights.refusals import FileDefect


def read_table(opened: OpenFile) -> TensorTable | Refused[HeaderDefect | FileDefect]:
    """The tensors that an open file says it holds, or every defect of its header."""
    try:
        prologue = opened.read(0, min(PROLOGUE_BYTES, opened.size))
        length = header_length(opened.name, prologue, opened.size)
        if isinstance(length, Refused):
            return length
        return read_header(opened.name, opened.read(8, length), opened.size)
    except (OSError, ShortRead) as error:
        return Refused(NonEmpty(opened.judged(error)))


def table_of(folder: Path, name: str, *, links_to: tuple[Path, ...] = ()) -> TensorTable | Refused[HeaderDefect | FileDefect]:
    """The tensors of a file of a folder by its header alone: milliseconds, whatever its size."""
    opened = open_file(folder, name, links_to=links_to)
    if not isinstance(opened, OpenFile):
        return Refused(NonEmpty(opened))
    with opened:
        return read_table(opened)


def hash_tensors(
    opened: OpenFile, table: TensorTable, progress: Progress | None = None, cache: DigestCache | None = None
) -> tuple[TensorLine, ...] | FileDefect:
    """Every tensor of an open file with the digest of its data, or why the data could not be read as it stood when it was opened. What the
    cache knows is not read."""
    ranges = tuple((table.data_begin + span.begin, table.data_begin + span.end) for span in table.tensors)
    digests = hash_ranges(opened, ranges, progress, cache)
    if not isinstance(digests, tuple):
        return digests
    return tuple(TensorLine(span.name, span.dtype, span.shape, digest) for span, digest in zip(table.tensors, digests, strict=True))
