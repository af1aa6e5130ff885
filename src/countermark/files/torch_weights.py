"""Weights in files of ``torch.save``: every tensor at its place, with those that share one place told apart from those that are equal.

Rules kept here:

1. The file is read as ``countermark.files.pickles`` reads it: nothing is executed, every checksum is verified.
2. A tensor's name is the path to it through dictionaries and lists, joined by dots. Two paths to one place are one tensor with two names.
3. A tensor whose elements lie in order is read where it lies; any other (a transposed view) is laid out in order first. Its elements are
   never more than its storage has, and all tensors together (each place once) ask for little more than the file holds: views that repeat
   or overlap could stand for more than any disk holds. So could names, which repeat the keys above them.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final, cast

from countermark.files.located import Located
from countermark.files.pickles import TensorStub, TorchFile, read_torch_file
from countermark.files.reading import OpenFile, ShortRead
from countermark.files.spooled import laid_out
from countermark.values import NonEmpty, Refused, shown
from countermark.weights import DTYPE_BITS
from countermark.weights.header import TensorSpan
from countermark.weights.refusals import PickleUnreadable, WeightsDefect

_NESTING_MAX: Final = 16
_TENSORS_MAX: Final = 1_000_000
#: Characters of all names together.
_NAMES_FREE: Final = 1 << 20
_NAMES_PER_BYTE: Final = 16
#: How often the bytes of a file may be asked for, by tensors at different places in one storage.
_RATIO_MAX: Final = 16
_SMALL: Final = 64 << 20


def read_torch_weights(opened: OpenFile, stack: ExitStack) -> tuple[Located, ...] | Refused[WeightsDefect]:
    """Every tensor of an open file under each of its names. What had to be laid out anew is closed with ``stack``."""
    found = read_torch_file(opened)
    if not isinstance(found, TorchFile):
        return Refused(NonEmpty(found))
    named: list[tuple[str, TensorStub]] = []
    characters = 0
    for name, stub in _tensors(found.value, (), 0):
        named.append((name, stub))
        characters += len(name)
        if len(named) > _TENSORS_MAX or characters > _NAMES_FREE + _NAMES_PER_BYTE * opened.size:
            return Refused(
                NonEmpty(PickleUnreadable(opened.name, (f"it holds {len(named)} tensors or more: more names than any model has",)))
            )
    repeating = {stub for _, stub in named if math.prod(stub.shape) > stub.storage.elements}
    whys = [f"tensor {shown(name)} repeats elements of its storage" for name, stub in named if stub in repeating]
    whys.extend(f"{times} tensors are called {shown(name)}" for name, times in Counter(name for name, _ in named).items() if times > 1)
    asked = sum(map(_reach_bytes, {stub for _, stub in named} - repeating))
    if asked > max(_SMALL, _RATIO_MAX * opened.size):
        whys.append(f"its tensors overlap: they ask for {asked} bytes, more than {_RATIO_MAX} times what it holds")
    if whys:
        return Refused(NonEmpty(PickleUnreadable(opened.name, tuple(whys))))
    laid: dict[TensorStub, OpenFile] = {}
    lying: list[Located] = []
    for name, stub in named:
        size = math.prod(stub.shape) * DTYPE_BITS[stub.storage.dtype] // 8
        begin = found.members[f"data/{stub.storage.key}"].begin + stub.offset * DTYPE_BITS[stub.storage.dtype] // 8
        file = opened
        if not _in_order(stub):
            if stub not in laid:
                try:
                    laid[stub] = laid_out(opened, begin, DTYPE_BITS[stub.storage.dtype] // 8, stub.shape, stub.stride, stack)
                except (OSError, ShortRead) as error:
                    return Refused(NonEmpty(opened.judged(error)))
            file, begin = laid[stub], 0
        lying.append(Located(TensorSpan(name, stub.storage.dtype, stub.shape, begin, begin + size), file, begin, begin + size))
    return tuple(lying)


def _tensors(value: object, path: tuple[str, ...], depth: int) -> Iterator[tuple[str, TensorStub]]:
    """Every tensor in nested dictionaries and lists, with its name."""
    if isinstance(value, TensorStub):
        yield ".".join(path), value
    elif isinstance(value, dict | list | tuple) and depth < _NESTING_MAX:
        items = cast("Mapping[object, object]", value).items() if isinstance(value, dict) else enumerate(cast("list[object]", value))
        for key, inner in items:
            yield from _tensors(inner, (*path, str(key)), depth + 1)


def _reach_bytes(stub: TensorStub) -> int:
    """The bytes that are read to have a tensor in order, or that it then has, whichever are more."""
    if 0 in stub.shape:
        return 0
    reach = 1 + sum((size - 1) * step for size, step in zip(stub.shape, stub.stride, strict=True))
    return max(reach, math.prod(stub.shape)) * DTYPE_BITS[stub.storage.dtype] // 8


def _in_order(stub: TensorStub) -> bool:
    """Whether the elements lie one after another, the last size innermost. The step of a size of 1 has no meaning."""
    step = 1
    for size, stride in zip(reversed(stub.shape), reversed(stub.stride), strict=True):
        if size == 0:
            return True
        if size != 1 and stride != step:
            return False
        step *= size
    return True
