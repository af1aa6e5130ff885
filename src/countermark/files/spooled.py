"""Data that cannot be read where it lies (packed, turned, or out of order), laid out in a file without a name.

Rules kept here:

1. Memory does not grow with the data, and the file is gone with its descriptor.
2. A file from outside is never mapped: whoever cuts it meanwhile would kill the process. What is mapped is a copy that nobody else has.
"""

import itertools
import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

from countermark.files.reading import OpenFile, Stamp

#: Elements that are put in order at once.
_GATHER: Final = 1 << 18


def spooled(name: str, parts: Iterable[bytes | memoryview], stack: ExitStack) -> OpenFile:
    """The parts one after another, as an open file that goes by ``name`` in defects and is closed with ``stack``. Raises ``OSError``, and
    what the parts raise."""
    with tempfile.TemporaryFile(prefix="countermark-") as file:
        for part in parts:
            file.write(part)
        file.flush()
        descriptor = os.dup(file.fileno())
    return stack.enter_context(OpenFile(name, descriptor, Stamp.of(os.fstat(descriptor))))


def laid_out(opened: OpenFile, begin: int, width: int, shape: tuple[int, ...], stride: tuple[int, ...], stack: ExitStack) -> OpenFile:
    """The elements of a strided view in order, the last size innermost: elements of ``width`` bytes, ``stride`` in elements from the byte
    ``begin`` of a file. No size is 0. Raises as ``OpenFile.read`` does."""
    reach = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    with ExitStack() as copied:
        copy = spooled(opened.name, opened.parts(begin, begin + reach * width), copied)
        with mmap.mmap(copy.fileno(), reach * width, access=mmap.ACCESS_READ) as mapped:
            return spooled(opened.name, _in_order(mapped, width, shape, stride), stack)
    raise AssertionError("an exit stack hides no exception")


def _in_order(mapped: mmap.mmap, width: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Iterator[bytes]:
    import numpy as np

    elements: Any = np.frombuffer(mapped, dtype=f"V{width}")
    view: Any = np.lib.stride_tricks.as_strided(elements, shape, tuple(step * width for step in stride), writeable=False)
    # The outer sizes are walked one by one, until what is within one step is little enough to be held.
    outer = next(at for at in range(len(shape)) if math.prod(shape[at + 1 :]) <= _GATHER)
    rows = max(1, _GATHER // math.prod(shape[outer + 1 :]))
    for place in itertools.product(*map(range, shape[:outer])):
        block = view[place]
        for at in range(0, shape[outer], rows):
            yield np.ascontiguousarray(block[at : at + rows]).tobytes()
    del elements, view
