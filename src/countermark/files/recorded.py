"""Digests of tensors that need not be measured again: from the cache, or from the lines of a root that a person names.

Rules kept here:

1. What the cache knows is of the very files that are open, by their whole stamps.
2. A person's lines are taken for the weights that are open only where they name exactly these tensors, with their types and shapes; all
   that differs is named at once. Nothing that follows from them is kept in the cache: they were not measured.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.digest_cache import DigestCache, Range
from countermark.files.opened_weights import OpenedWeights
from countermark.files.reading import OpenFile, ShortRead, find, open_file, read_small
from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights import TensorLine, read_root_text
from countermark.weights.difference import TensorDifference
from countermark.weights.refusals import DigestsContradict, FileDefect, RecordedDefect, RootLineOfOther

#: The longest text of a root that is read, in bytes.
LINES_BYTES_MAX: Final = 256 << 20


@final
@dataclass(frozen=True, slots=True)
class Recorded:
    """Digests of both sides' tensors that were measured before, or (``claimed``) that a person's lines say of A."""

    a: Mapping[str, Sha256]
    b: Mapping[str, Sha256]
    claimed: bool

    def keep(self, left: OpenedWeights, right: OpenedWeights, cache: DigestCache, rows: Iterable[TensorDifference]) -> None:
        """Keep what was measured beside these. Of weights that were held against a person's lines, nothing is; nor is a digest that one
        side has because its bytes are those of the other, whose digest was known: what a cache tells wrongly must not spread in it."""
        if self.claimed:
            return
        sides: tuple[list[tuple[str, Sha256]], list[tuple[str, Sha256]]] = ([], [])
        for row in rows:
            inherited = row.status in ("equal", "renamed")
            known = tuple(one is not None and one.name in of for one, of in ((row.a, self.a), (row.b, self.b)))
            for at, one in enumerate((row.a, row.b)):
                if one is not None and not known[at] and not (inherited and known[1 - at]):
                    sides[at].append((one.name, one.sha256))
        keep_digests(left, cache, sides[0])
        keep_digests(right, cache, sides[1])


def recorded_of(
    left: OpenedWeights, right: OpenedWeights, cache: DigestCache, lines: Iterable[TensorLine] | None
) -> Recorded | Refused[RecordedDefect | DigestsContradict]:
    """What is known of both sides; refused where a person's lines are of other weights, or say otherwise than what was measured of them."""
    known = cached_digests(left, cache)
    said: Mapping[str, Sha256] | Refused[RecordedDefect] = {} if lines is None else lines_of(left, lines)
    if isinstance(said, Refused):
        return Refused(said.defects)
    wrong = (DigestsContradict(name) for name, digest in said.items() if known.get(name, digest) != digest)
    if (refused := NonEmpty.of(wrong)) is not None:
        return Refused(refused)
    return Recorded({**known, **said}, cached_digests(right, cache), lines is not None)


def cached_digests(side: OpenedWeights, cache: DigestCache) -> Mapping[str, Sha256]:
    """The digests that the cache knows, by the tensor's name."""
    known = {file.fileno(): cache.known(file.stamp) for file in side.files}
    none: Mapping[Range, Sha256] = {}
    found = ((name, known.get(one.file.fileno(), none).get((one.begin, one.end))) for name, one in side.tensors.items())
    return {name: digest for name, digest in found if digest is not None}


def keep_digests(side: OpenedWeights, cache: DigestCache, measured: Iterable[tuple[str, Sha256]]) -> None:
    """Keep digests that were measured of the open files, by the tensor's name."""
    by_file: defaultdict[int, dict[Range, Sha256]] = defaultdict(dict)
    for name, digest in measured:
        one = side.tensors[name]
        by_file[one.file.fileno()][one.begin, one.end] = digest
    for file in side.files:
        cache.keep(file.name, file.stamp, by_file[file.fileno()])


def is_lines(path: str) -> bool:
    """Whether a file begins as the lines of a root do; no file of weights does."""
    real = find(Path(path))
    opened = open_file(real.parent, real.name) if isinstance(real, Path) else None
    if not isinstance(opened, OpenFile):
        return False
    with opened:
        try:
            return opened.size >= 4 and opened.read(0, 4) == b"wr1\n"
        except (OSError, ShortRead):
            return False


def read_lines(path: str) -> tuple[TensorLine, ...] | Refused[FileDefect | RecordedDefect]:
    """The lines of a root in a file that a person named."""
    real = find(Path(path))
    content = read_small(real.parent, real.name, LINES_BYTES_MAX) if isinstance(real, Path) else real
    if not isinstance(content, bytes):
        return Refused(NonEmpty(content))
    lines = read_root_text(path, content)
    return Refused(lines.defects) if isinstance(lines, Refused) else lines


def lines_of(side: OpenedWeights, lines: Iterable[TensorLine]) -> Mapping[str, Sha256] | Refused[RecordedDefect]:
    """The digests in the lines, if they are of these weights; else every tensor that is not the same in both."""
    recorded = {line.name: line for line in lines}
    defects: list[RecordedDefect] = []
    for name in sorted(recorded.keys() | side.tensors.keys()):
        line, one = recorded.get(name), side.tensors.get(name)
        said = "" if line is None else _told(line.dtype, line.shape)
        found = "" if one is None else _told(one.span.dtype, one.span.shape)
        if said != found:
            defects.append(RootLineOfOther(name, said, found))
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    return {name: line.sha256 for name, line in recorded.items()}


def _told(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} [{','.join(map(str, shape))}]"
