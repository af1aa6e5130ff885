"""A file line by line, whatever its size: memory is one buffer and one line, and a line has a longest length."""

from collections.abc import Iterator

from countermark.files.reading import OpenFile
from countermark.weights.refusals import FileDefect


def lines_of(opened: OpenFile, bytes_max: int) -> Iterator[bytes | FileDefect]:
    """The lines of a file without their ends, as far as it went when it was opened; a failure to read comes in the place of a line. Of a
    line of more than ``bytes_max`` bytes, that many and one more are given: its reader sees that it is too long."""
    kept = bytearray()
    for part in opened.parts_judged(0, opened.size):
        if not isinstance(part, memoryview):
            yield part
            return
        first, *more = bytes(part).split(b"\n")
        kept += first[: bytes_max + 1 - len(kept)]
        for line in more:
            yield bytes(kept)
            kept = bytearray(line[: bytes_max + 1])
    if kept:
        yield bytes(kept)
