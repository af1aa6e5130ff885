"""The weights root ``wr1``: what a set of tensors is, whatever files, shards and metadata carry it.

Rules kept here:

1. The text of a root is ``wr1`` and one line per tensor, sorted by the UTF-8 bytes of the name:
   ``<sha256 of the raw data bytes, hex> <DTYPE> [d0,d1,…] <name>``. The root is the SHA-256 of that text.
2. The name stands last and holds no control character, so a line has one reading and the text has one set of tensors.
3. Names that have no place in such a text (repeated, with a control character, not Unicode) are refused, all at once.
4. Such a text can be read back: only one whose SHA-256 is a root is taken, and every line of another that is none is named.
5. On purpose not invariant: a cast, a rename, −0.0 for 0.0, a tied tensor that is stored or dropped.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

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


@final
@dataclass(frozen=True, slots=True)
class RootLineUnreadable:
    """A line of what should be the text of a root (``line``: its file and number) is none."""

    line: str
    why: str


_SIZE: Final = "(?:0|[1-9][0-9]{0,19})"
_LINE: Final = re.compile(rf"([0-9a-f]{{64}}) ([A-Z0-9_]+) \[((?:{_SIZE}(?:,{_SIZE})*)?)\] (.*)", re.ASCII | re.DOTALL)


def read_root_text(source: str, content: bytes) -> tuple[TensorLine, ...] | Refused[RootLineUnreadable]:
    """The lines of a root's text, from the bytes of the file ``source``, or every line that keeps it from being one."""
    try:
        head, *lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        return Refused(NonEmpty(RootLineUnreadable(f"{source}:1", f"byte {error.start} is not UTF-8")))
    defects = [] if head == "wr1" else [RootLineUnreadable(f"{source}:1", "the text of a root begins with the line wr1")]
    if not lines or lines.pop():
        defects.append(RootLineUnreadable(f"{source}:{len(lines) + 2}", "the text does not end with its last line"))
    found: list[TensorLine] = []
    for number, text in enumerate(lines, 2):
        line = _read_line(text)
        why = line if isinstance(line, str) else None
        if isinstance(line, TensorLine):
            if found and found[-1].name.encode() >= line.name.encode():
                why = "it does not stand in the order of the names"
            found.append(line)
        if why is not None:
            defects.append(RootLineUnreadable(f"{source}:{number}", why))
    return tuple(found) if (refused := NonEmpty.of(defects)) is None else Refused(refused)


def _read_line(text: str) -> TensorLine | str:
    """A tensor's line, or why the text is none."""
    parts = _LINE.fullmatch(text)
    if parts is None:
        return "it is not of the form: digest, dtype, [shape], name"
    digest, dtype, shape, name = parts.groups()
    if dtype not in DTYPE_BITS:
        return "its dtype is not one that safetensors spells"
    if _unprintable(name):
        return "its name holds a control character"
    return TensorLine(name, dtype, tuple(int(size) for size in shape.split(",")) if shape else (), Sha256(digest))


def _unprintable(name: str) -> bool:
    return not name.isprintable() and any(unicodedata.category(character) in {"Cc", "Cs"} for character in name)
