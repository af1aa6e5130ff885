"""The coordinate ``dataset``, measured from a file of JSON lines.

Rules kept here:

1. A row is a JSON object on a line of its own; blank lines are no rows. The digest is over the rows, so their white space, key order and
   number spelling move nothing, and their order does.
2. Every bad row is named by its line: not UTF-8, not JSON, no object, a key twice, NaN, a number that is not exact. The first
   ``BAD_ROWS_MAX`` are named one by one, the others are counted.
3. A line has a bound, and memory holds one line at a time unless the caller wants the rows.
4. A limit takes the first rows, as trainers do; what stands behind them is not read and not judged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from countermark.files.documents import parse_object
from countermark.files.model_folder import TotalProgress
from countermark.files.reading import OpenFile, ShortRead, find, open_file
from countermark.recipe.canonical import DatasetHasher
from countermark.values import NonEmpty, Refused, Sha256, Unreadable
from countermark.weights.refusals import DatasetDefect, DatasetEmpty, DatasetRowUnreadable, FileChanged, MoreRowsUnreadable

LINE_BYTES_MAX: Final = 64 << 20
BAD_ROWS_MAX: Final = 100


@final
@dataclass(frozen=True, slots=True)
class MeasuredDataset:
    """A dataset as it was read: the coordinate, its rows, and the bytes that they took."""

    dataset: Sha256
    rows: int
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class LoadedDataset:
    """The very rows that were measured."""

    measured: MeasuredDataset
    rows: tuple[Mapping[str, object], ...]


@final
@dataclass(slots=True)
class _Reading:
    """The rows of one pass over the file."""

    limit: int | None
    keep: bool
    hasher: DatasetHasher = field(default_factory=DatasetHasher)
    rows: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    defects: list[DatasetDefect] = field(default_factory=list[DatasetDefect])
    more: int = 0
    read: int = 0

    def take(self, line: int, content: bytes | None) -> None:
        """One line; None stands for one that is too long."""
        if content is None:
            self.refuse(line, f"it has over {LINE_BYTES_MAX} bytes")
            return
        if not content.strip():
            return
        row = parse_object(content)
        if isinstance(row, Unreadable):
            self.refuse(line, row.why)
            return
        try:
            self.hasher.row(row)
        except ValueError as error:
            self.refuse(line, str(error))
            return
        if self.keep:
            self.rows.append(row)

    def refuse(self, line: int, why: str) -> None:
        if len(self.defects) < BAD_ROWS_MAX:
            self.defects.append(DatasetRowUnreadable(line, why))
        else:
            self.more += 1

    def full(self) -> bool:
        return self.limit is not None and self.hasher.rows + len(self.defects) + self.more >= self.limit


def measure_dataset(
    path: Path, *, limit: int | None = None, progress: TotalProgress | None = None
) -> MeasuredDataset | Refused[DatasetDefect]:
    """The first ``limit`` rows of a file of JSON lines (None: all of them), or every line of those that is no row."""
    loaded = _load(path, _Reading(limit, False), progress)
    return loaded.measured if isinstance(loaded, LoadedDataset) else loaded


def load_dataset(path: Path, *, limit: int | None = None, progress: TotalProgress | None = None) -> LoadedDataset | Refused[DatasetDefect]:
    """The rows themselves beside their digest, from one reading."""
    return _load(path, _Reading(limit, True), progress)


def _load(path: Path, reading: _Reading, progress: TotalProgress | None) -> LoadedDataset | Refused[DatasetDefect]:
    real = find(path)
    if not isinstance(real, Path):
        return Refused(NonEmpty(real))
    opened = open_file(real.parent, real.name)
    if not isinstance(opened, OpenFile):
        return Refused(NonEmpty(opened))
    with opened:
        try:
            for number, content in _lines(opened, reading, progress):
                if reading.full():
                    break
                reading.take(number, content)
            if opened.changed():
                reading.defects.append(FileChanged(opened.name))
        except (OSError, ShortRead) as error:
            reading.defects.append(opened.judged(error))
    if reading.more:
        reading.defects.append(MoreRowsUnreadable(reading.more))
    if not reading.hasher.rows and not reading.defects:
        reading.defects.append(DatasetEmpty())
    if refusal := NonEmpty.of(reading.defects):
        return Refused(refusal)
    measured = MeasuredDataset(reading.hasher.digest(), reading.hasher.rows, reading.read)
    return LoadedDataset(measured, tuple(reading.rows))


def _lines(opened: OpenFile, reading: _Reading, progress: TotalProgress | None) -> Iterator[tuple[int, bytes | None]]:
    """Each line with its number (from 1) and without its end; None for one beyond the bound. ``reading.read`` counts their bytes."""
    pieces: list[bytes] = []
    held, number, done = 0, 1, 0
    for part in opened.parts(0, opened.size):
        done += len(part)
        if progress:
            progress(done, opened.size)
        *ended, rest = bytes(part).split(b"\n")
        for piece in ended:
            reading.read += held + len(piece) + 1
            yield number, b"".join((*pieces, piece)) if held + len(piece) <= LINE_BYTES_MAX else None
            pieces, held, number = [], 0, number + 1
        held += len(rest)
        pieces = [*pieces, rest] if held <= LINE_BYTES_MAX else []
    if held:
        reading.read += held
        yield number, b"".join(pieces) if held <= LINE_BYTES_MAX else None
