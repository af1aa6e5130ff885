"""What files, documents and folders of weights are refused for, whoever reads them.

They stand below the rooms that read disks, because every defect has its sentence in ``countermark.lines``, which stands below them too.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from countermark.weights.header import HeaderDefect
from countermark.weights.root import NameDefect, RootLineUnreadable


@final
@dataclass(frozen=True, slots=True)
class FileAbsent:
    """There is nothing under this name."""

    file: str


@final
@dataclass(frozen=True, slots=True)
class FileNotRegular:
    """Something else than a regular file stands there; ``kind`` is a phrase like "a pipe"."""

    file: str
    kind: str


@final
@dataclass(frozen=True, slots=True)
class LinkLeavesFolder:
    """A link whose target lies outside the folder."""

    file: str


@final
@dataclass(frozen=True, slots=True)
class FileUnreadable:
    """The system refused to read it; ``why`` is its own text."""

    file: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class FileTooLarge:
    """A file of this kind is read as a whole, and this one is larger than anything that it can be."""

    file: str
    bytes: int
    bytes_max: int


@final
@dataclass(frozen=True, slots=True)
class FileChanged:
    """The file changed while it was read: a writer is at work."""

    file: str


@final
@dataclass(frozen=True, slots=True)
class CachedDigestsDamaged:
    """A file of the cache of digests is none of ours as it stands: what it tells is not believed."""

    entry: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class CacheUnwritable:
    """Digests could not be kept for the next time; ``why`` is the system's own text."""

    folder: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class CachedDigestsDisagree:
    """As many kept digests of a file are not those of its bytes: it was changed under an unchanged size and unchanged times, or the cache
    was. What was taken from the cache before may be wrong."""

    file: str
    digests: int


@final
@dataclass(frozen=True, slots=True)
class DigestsContradict:
    """Two tensors were held against each other, and what is recorded of their digests says the opposite."""

    tensor: str


@final
@dataclass(frozen=True, slots=True)
class RootLineOfOther:
    """A recorded line says another tensor than the weights hold: another type or shape, one that they have not (``found`` is empty), or
    none where they have one (``said`` is empty)."""

    tensor: str
    said: str
    found: str


RecordedDefect = RootLineUnreadable | RootLineOfOther
CacheDefect = CachedDigestsDamaged | CacheUnwritable | CachedDigestsDisagree | DigestsContradict


FileDefect = FileAbsent | FileNotRegular | LinkLeavesFolder | FileUnreadable | FileTooLarge | FileChanged


@final
@dataclass(frozen=True, slots=True)
class DocumentUnreadable:
    """The file was read, and is not the document that its name promises."""

    file: str
    why: str


DocumentDefect = FileDefect | DocumentUnreadable


@final
@dataclass(frozen=True, slots=True)
class FileNameUnlistable:
    """A name with a newline, or one that is not Unicode: a list of files cannot carry it."""

    file: str


@final
@dataclass(frozen=True, slots=True)
class FolderTooDeep:
    """Folders within folders beyond any that a model has."""

    file: str


@final
@dataclass(frozen=True, slots=True)
class FolderEmpty:
    """There is no file in the folder."""


ExactDefect = FileDefect | FileNameUnlistable | FolderTooDeep | FolderEmpty


WeightsKind: TypeAlias = Literal["model", "adapter"]


@final
@dataclass(frozen=True, slots=True)
class WeightsAbsent:
    """No file of the folder holds weights under a name that is known; ``pickled`` lists files that may hold them as a pickle."""

    pickled: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class WeightsAmbiguous:
    """Several files of the folder each say that they hold its weights."""

    files: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class WeightsEmpty:
    """The files are there and hold no tensor."""


@final
@dataclass(frozen=True, slots=True)
class WeightsOfOtherKind:
    """A base model was asked for and an adapter was found, or the other way round."""

    wanted: WeightsKind
    found: WeightsKind


@final
@dataclass(frozen=True, slots=True)
class ShardMissing:
    """The index names a shard that is not there."""

    file: str


@final
@dataclass(frozen=True, slots=True)
class ShardDisagrees:
    """A shard lacks tensors that the index puts there (``absent``), or holds some that the index does not put there (``unlisted``)."""

    file: str
    absent: tuple[str, ...]
    unlisted: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class TensorsInTwoShards:
    """Two files of the folder hold tensors of the same names."""

    first: str
    second: str
    tensors: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class PickleUnreadable:
    """The file is no archive of ``torch.save`` that can be read without executing it; every reason."""

    file: str
    whys: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class GgufUnreadable:
    """The file is no GGUF file whose tensors can be told apart; every reason."""

    file: str
    whys: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class ArraysUnreadable:
    """The file is no archive of NumPy arrays that can be read without executing anything; every reason."""

    file: str
    whys: tuple[str, ...]


WeightsDefect = (
    DocumentDefect
    | HeaderDefect
    | NameDefect
    | WeightsAbsent
    | WeightsAmbiguous
    | WeightsEmpty
    | WeightsOfOtherKind
    | ShardMissing
    | ShardDisagrees
    | TensorsInTwoShards
    | PickleUnreadable
    | GgufUnreadable
    | ArraysUnreadable
)


@final
@dataclass(frozen=True, slots=True)
class TokenizerAbsent:
    """None of the files that a tokenizer consists of is in the folder."""


TokenizerDefect = DocumentDefect | TokenizerAbsent


@final
@dataclass(frozen=True, slots=True)
class DatasetRowUnreadable:
    """A line (counted from 1) of a dataset that is no row."""

    line: int
    why: str


@final
@dataclass(frozen=True, slots=True)
class MoreRowsUnreadable:
    """As many further lines are no rows."""

    count: int


@final
@dataclass(frozen=True, slots=True)
class DatasetEmpty:
    """There is no row."""


DatasetDefect = FileDefect | DatasetRowUnreadable | MoreRowsUnreadable | DatasetEmpty
