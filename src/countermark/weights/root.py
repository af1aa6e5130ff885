"""The weights root ``wr1``: what a set of tensors is, whatever files, shards and metadata carry it.

Rules kept here:

1. The text of a root is ``wr1`` and one line per tensor, sorted by the UTF-8 bytes of the name:
   ``<sha256 of the raw data bytes, hex> <DTYPE> [d0,d1,…] <name>``. The root is the SHA-256 of that text.
2. The name stands last and holds no control character, so a line has one reading and the text has one set of tensors.
3. Names that have no place in such a text (repeated, with a control character, not Unicode) are refused, all at once.
4. On purpose not invariant: a cast, a rename, −0.0 for 0.0, a tied tensor that is stored or dropped.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from countermark.values import NonEmpty, Refused, Sha256, WeightsRoot
from countermark.weights.dtypes import DTYPE_BITS


@final
@dataclass(frozen=True, slots=True)
class TensorLine:
    """One tensor as the root sees it: dtype as safetensors spells it, shape row-major, SHA-256 of the little-endian data bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: Sha256

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BITS:
            raise ValueError("the dtype is not one that safetensors spells")
        if any(isinstance(size, bool) or size < 0 for size in self.shape):
            raise ValueError("a shape holds whole numbers from 0 on")

    def text(self) -> str:
        """The tensor's line in the text of a root, with its end."""
        return f"{self.sha256.hex} {self.dtype} [{','.join(map(str, self.shape))}] {self.name}\n"


@final
@dataclass(frozen=True, slots=True)
class TensorRepeated:
    """One name stands for several tensors; ``times`` says how many."""

    name: str
    times: int


@final
@dataclass(frozen=True, slots=True)
class TensorNameUnprintable:
    """The name holds a control character or half of a surrogate pair: no line of a root can carry it."""

    name: str


NameDefect = TensorRepeated | TensorNameUnprintable


def name_defects(names: Iterable[str]) -> tuple[NameDefect, ...]:
    """What keeps these names out of one root: every repeated name once, every unprintable name once, each in order of appearance."""
    times = Counter(names)
    repeated = tuple(TensorRepeated(name, count) for name, count in times.items() if count > 1)
    return repeated + tuple(TensorNameUnprintable(name) for name in times if _unprintable(name))


def root_text(lines: Iterable[TensorLine]) -> str:
    """The text whose SHA-256 is the root. The lines' names must have no ``name_defects``; ``weights_root`` checks that."""
    return "wr1\n" + "".join(line.text() for line in sorted(lines, key=lambda line: line.name.encode("utf-8", "surrogatepass")))


def weights_root(lines: Iterable[TensorLine]) -> WeightsRoot | Refused[NameDefect]:
    """The root of a set of tensors, or every reason why its names have none. No tensors at all have a root too: that of the bare head."""
    tensors = tuple(lines)
    if defects := NonEmpty.of(name_defects(line.name for line in tensors)):
        return Refused(defects)
    return WeightsRoot(hashlib.sha256(root_text(tensors).encode("utf-8")).hexdigest())


def _unprintable(name: str) -> bool:
    return not name.isprintable() and any(unicodedata.category(character) in {"Cc", "Cs"} for character in name)
