"""The spectra of what changed: each changed matrix read once more, twice, row by row.

Rules kept here:

1. Memory does not grow with the rows: two threads, each with a block of each side and what ``countermark.weights.sketch`` holds for one
   matrix. Of matrices wider than ``WIDE`` one at a time is read.
2. Unasked, spectra are made only where all changed matrices together are small enough not to be felt (``UNASKED_ELEMENTS``); else of none.
3. As in a comparison: a short read, or a file that is another one afterwards, refuses everything.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from threading import Event, Lock
from typing import Final, final

from countermark.files.located import Located
from countermark.files.opened_weights import OpenedWeights
from countermark.files.reading import OpenFile, ShortRead
from countermark.values import NonEmpty, Refused
from countermark.weights.difference import TensorDifference
from countermark.weights.dtypes import DTYPE_BITS
from countermark.weights.refusals import FileDefect
from countermark.weights.spectrum import Gap, Spectra, Spectrum, changed_rows, cut, gap_of

#: Elements of all changed matrices that are measured unasked: a third of a second on one core.
UNASKED_ELEMENTS: Final = 1 << 25
BLOCK_ELEMENTS: Final = 1 << 16
WIDE: Final = 16_384
THREADS: Final = 2

#: Told the bytes read so far and the bytes to read; it may raise to stop the reading.
Progress = Callable[[int, int], None]


class _Stopped(Exception):
    """Another thread failed, or a person interrupted: this one gives up."""


@final
class _Reading:
    """What the threads share."""

    def __init__(self) -> None:
        self.done = 0
        self.defects: list[FileDefect] = []
        self.stop = Event()
        self.wide = Lock()
        self._lock = Lock()

    def part(self, one: Located, begin: int, size: int) -> memoryview:
        """Bytes of a tensor; raises ``_Stopped``, also where they are not there."""
        if self.stop.is_set():
            raise _Stopped
        try:
            found = _read(one.file, one.begin + begin, size)
        except (OSError, ShortRead) as error:
            with self._lock:
                self.defects.append(one.file.judged(error))
            self.stop.set()
            raise _Stopped from error
        with self._lock:
            self.done += size
        return found


def _read(file: OpenFile, begin: int, size: int) -> memoryview:
    """Exactly these bytes, in memory of their own; raises ``OSError`` and ``ShortRead``."""
    found = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = os.preadv(file.fileno(), [found[at:]], begin + at)
        if count == 0:
            raise ShortRead(file.name)
        at += count
    return found


def spectra_of(
    a: OpenedWeights, b: OpenedWeights, rows: Sequence[TensorDifference], asked: bool | None, progress: Progress | None = None
) -> Spectra | Refused[FileDefect]:
    """The spectrum of each changed row, or why it has none. ``asked``: of all that can have one, of none, or (None) where it is cheap."""
    changed = changed_rows(rows)
    gaps: dict[str, Gap] = {row.name: gap for row in changed if (gap := gap_of(row)) is not None}
    wanted = [row for row in changed if row.name not in gaps]
    elements = sum(math.prod(row.a.shape) for row in wanted if row.a is not None)
    if not (elements <= UNASKED_ELEMENTS if asked is None else asked):
        return Spectra((*gaps.items(), *((row.name, "not_asked") for row in wanted)), elements)
    reading, found = _Reading(), dict[str, Spectrum]()

    def measured(row: TensorDifference) -> None:
        assert row.a is not None
        assert row.b is not None
        try:
            found[row.name] = _spectrum(row, a.tensors[row.a.name], b.tensors[row.b.name], reading)
        except _Stopped:
            pass
        except BaseException:
            reading.stop.set()
            raise

    _all_of(measured, wanted, reading, progress)
    defects = NonEmpty.of(dict.fromkeys((*reading.defects, *a.changed(), *b.changed())))
    return Refused(defects) if defects is not None else Spectra((*gaps.items(), *found.items()), elements)


def _all_of(
    measured: Callable[[TensorDifference], None], wanted: Sequence[TensorDifference], reading: _Reading, progress: Progress | None
) -> None:
    """Every row, on the threads; an interruption stops them all and goes on upwards."""
    total = sum(2 * math.prod(side.shape) * DTYPE_BITS[side.dtype] // 8 for row in wanted for side in (row.a, row.b) if side is not None)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="spectrum") as pool:
        waiting: set[Future[None]] = {pool.submit(measured, row) for row in wanted}
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=0.1, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                if progress is not None:
                    progress(reading.done, total)
        except BaseException:
            reading.stop.set()
            raise


def _spectrum(row: TensorDifference, a: Located, b: Located, reading: _Reading) -> Spectrum:
    from countermark.weights.sketch import Sketch

    matrix = cut(a.span.shape)
    assert matrix is not None
    assert row.numbers is not None
    assert row.numbers.l2 is not None
    assert row.numbers.max_abs is not None
    with reading.wide if matrix[1] > WIDE else nullcontext():
        sketch = Sketch(matrix[1], row.numbers.max_abs, a.span.dtype, b.span.dtype)
        for parts in _blocks(a, b, matrix, reading):
            sketch.first(*parts)
        sketch.turn()
        for parts in _blocks(a, b, matrix, reading):
            sketch.second(*parts)
        return sketch.result(row.numbers.l2)


def _blocks(a: Located, b: Located, matrix: tuple[int, int], reading: _Reading) -> Iterator[tuple[memoryview, memoryview]]:
    """Whole rows of both sides. A packed type's row may end within a byte: then as many rows as fill whole ones."""
    rows, columns = matrix
    step = max(BLOCK_ELEMENTS // columns // 8 * 8, 8)
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        yield (_rows_of(a, columns, begin, end, reading), _rows_of(b, columns, begin, end, reading))


def _rows_of(one: Located, columns: int, begin: int, end: int, reading: _Reading) -> memoryview:
    bits = columns * DTYPE_BITS[one.span.dtype]
    return reading.part(one, begin * bits // 8, (end - begin) * bits // 8)
