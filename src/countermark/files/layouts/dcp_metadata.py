"""What the ``.metadata`` of a torch distributed checkpoint says: which tensors and values there are, and where their bytes lie.

Rules kept here:

1. The file is a pickle. It is run on inert values, never unpickled, and names the classes of ``NAMES`` and nothing else.
2. Bytes lie in a file of the folder: a name that leads anywhere else, or to anything but a ``.distcp``, is refused.
3. The chunks of a tensor cover it once: no element twice, none left out. Each chunk, and each value that is no tensor, has bytes once.
4. A pickle names one value again and again at two bytes a time: what is walked for each name of it is bounded.
5. Every reason why it is not what it must be is named, as many as fit a page.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod
from types import MappingProxyType
from typing import Final, cast, final

from countermark.files.layouts.reading import Whys
from countermark.files.pickles import DIMENSIONS_MAX, Call, Name, PlainPickle, read_pickle
from countermark.files.reading import OpenFile, is_plain_name
from countermark.values import shown
from countermark.weights.refusals import FileDefect, PickleUnreadable

METADATA: Final = ".metadata"
DATA_SUFFIX: Final = ".distcp"
WHYS_MAX: Final = 20
#: A tensor of more chunks that lie in no grid is refused: holding each against each would take too long.
CHUNKS_WITHOUT_GRID_MAX: Final = 128
#: States are nested less deep than this.
DEPTH_MAX: Final = 64
_NUMBER_MAX: Final = 2**63

_DTYPES: Final = MappingProxyType(
    {
        "torch float64": "F64",
        "torch float32": "F32",
        "torch float16": "F16",
        "torch bfloat16": "BF16",
        "torch int64": "I64",
        "torch int32": "I32",
        "torch int16": "I16",
        "torch int8": "I8",
        "torch uint8": "U8",
        "torch bool": "BOOL",
        "torch complex64": "C64",
    }
)
_OF: Final = "torch.distributed.checkpoint.metadata "
_PLACE: Final = "torch.distributed.checkpoint.filesystem _StorageInfo"
_SIZE: Final = "torch Size"
#: Every class and function that a metadata file may name.
NAMES: Final = frozenset(_DTYPES) | {
    f"{_OF}Metadata",
    f"{_OF}TensorStorageMetadata",
    f"{_OF}TensorProperties",
    f"{_OF}ChunkStorageMetadata",
    f"{_OF}BytesStorageMetadata",
    f"{_OF}MetadataIndex",
    f"{_OF}StorageMeta",
    f"{_OF}_MEM_FORMAT_ENCODING",
    _PLACE,
    _SIZE,
    "torch.serialization _get_layout",
    "pathlib PosixPath",
    "pathlib WindowsPath",
    "pathlib._local PosixPath",
    "pathlib._local WindowsPath",
}

Extents = tuple[int, ...]
#: Where a value stood in what was saved: ``("app", "optimizer", "state", 0, "step")``.
Trail = tuple[str | int, ...]


@final
@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor as a whole, whatever the chunks that it was saved in."""

    dtype: str
    shape: Extents


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes from ``begin`` on in a file: the chunk of a tensor at these offsets, or a value that is none (``offsets``, ``shape`` None)."""

    key: str
    offsets: Extents | None
    shape: Extents | None
    file: str
    begin: int
    size: int


@final
@dataclass(frozen=True, slots=True)
class Metadata:
    """``tensors`` and ``paths`` by key; every piece once, in the order of files and places in them."""

    tensors: Mapping[str, SavedTensor]
    paths: Mapping[str, Trail]
    pieces: tuple[Piece, ...]

    @property
    def files(self) -> frozenset[str]:
        return frozenset(piece.file for piece in self.pieces)


def read_metadata(opened: OpenFile) -> Metadata | Whys | FileDefect:
    """What an open ``.metadata`` says."""
    found = read_pickle(opened, NAMES)
    if isinstance(found, PickleUnreadable):
        return Whys(found.whys)
    return metadata_of(found.value) if isinstance(found, PlainPickle) else found


def metadata_of(value: object) -> Metadata | Whys:
    """What the inert value of a ``.metadata`` says."""
    state = _state(value, f"{_OF}Metadata")
    saved, places = (state.get(name) for name in ("state_dict_metadata", "storage_data"))
    if not isinstance(saved, dict) or not isinstance(places, dict):
        return Whys(("it is no metadata of a distributed checkpoint",))
    whys: list[str] = []
    tensors: dict[str, SavedTensor] = {}
    expected: dict[tuple[str, Extents | None], Extents | None] = {}
    chunks_left = len(cast(dict[object, object], places))
    for key, entry in cast(dict[object, object], saved).items():
        if not isinstance(key, str) or not isinstance(entry, Call):
            whys.append("it lists something else than tensors and values by their names")
        elif entry.function.text == f"{_OF}BytesStorageMetadata":
            expected[key, None] = None
        elif (tensor := _tensor(entry, chunks_left)) is None:
            whys.append(f"{shown(key)} is neither a tensor nor a value")
        else:
            tensors[key], chunks = tensor
            chunks_left -= len(chunks)
            expected.update({(key, offsets): sizes for offsets, sizes in chunks})
            whys.extend(f"{shown(key)}: {why}" for why in _covers(tensors[key].shape, chunks))
    pieces = list(_pieces(cast(dict[object, object], places), expected, whys))
    if not expected:
        whys.append("it lists nothing at all")
    if whys:
        return Whys(tuple(dict.fromkeys(whys))[:WHYS_MAX])
    paths = {key: path for key, _ in expected if (path := _path(state.get("planner_data"), key))}
    return Metadata(tensors, paths, tuple(sorted(pieces, key=lambda piece: (piece.file, piece.begin, piece.size))))


def _tensor(entry: Call, chunks_max: int) -> tuple[SavedTensor, list[tuple[Extents, Extents]]] | None:
    """A tensor and its chunks as offsets and sizes, None where it is something else, or has more of them than there are places."""
    state = _state(entry, f"{_OF}TensorStorageMetadata")
    shape, chunks = _size(state.get("size")), state.get("chunks")
    properties = state.get("properties")
    given = properties.state if isinstance(properties, Call) and properties.function.text == f"{_OF}TensorProperties" else None
    first = cast(tuple[object, ...], given)[0] if isinstance(given, tuple) and given else None
    dtype = _DTYPES.get(first.text) if isinstance(first, Name) else None
    if shape is None or dtype is None or not isinstance(chunks, list) or len(cast(list[object], chunks)) > chunks_max:
        return None
    found: list[tuple[Extents, Extents]] = []
    for chunk in cast(list[object], chunks):
        inner = _state(chunk, f"{_OF}ChunkStorageMetadata")
        offsets, sizes = _size(inner.get("offsets")), _size(inner.get("sizes"))
        if offsets is None or sizes is None or not len(offsets) == len(sizes) == len(shape):
            return None
        found.append((offsets, sizes))
    return SavedTensor(dtype, shape), found


def _covers(shape: Extents, chunks: list[tuple[Extents, Extents]]) -> Iterator[str]:
    """Why chunks do not cover a tensor once."""
    if any(offset + size > whole for offsets, sizes in chunks for offset, size, whole in zip(offsets, sizes, shape, strict=True)):
        yield "a chunk reaches beyond it"
        return
    if len({offsets for offsets, _ in chunks}) != len(chunks):
        yield "two chunks lie at one place"
        return
    if sum(prod(sizes) for _, sizes in chunks) != prod(shape):
        yield "its chunks do not cover it once"
    elif not _in_a_grid(shape, chunks):
        if len(chunks) > CHUNKS_WITHOUT_GRID_MAX:
            yield f"its {len(chunks)} chunks lie in no grid"
        elif any(_overlap(one, other) for one, other in combinations(chunks, 2)):
            yield "its chunks do not cover it once"


def _in_a_grid(shape: Extents, chunks: list[tuple[Extents, Extents]]) -> bool:
    """Whether every chunk is a cell of the grid that their offsets draw: then none overlaps another."""
    ends: list[dict[int, int]] = []
    for axis, whole in enumerate(shape):
        at = sorted({offsets[axis] for offsets, _ in chunks})
        ends.append(dict(pairwise([*at, whole])))
    return all(
        offset + size == end.get(offset)
        for offsets, sizes in chunks
        for offset, size, end in zip(offsets, sizes, ends, strict=True)
        if 0 not in sizes
    )


def _overlap(one: tuple[Extents, Extents], other: tuple[Extents, Extents]) -> bool:
    return all(a < b + width and b < a + length for a, length, b, width in zip(*one, *other, strict=True))


def _pieces(
    places: Mapping[object, object], expected: Mapping[tuple[str, Extents | None], Extents | None], whys: list[str]
) -> Iterator[Piece]:
    """The pieces of what is expected; what is there twice, not, or unasked, and what lies elsewhere, goes into ``whys``."""
    seen: Counter[tuple[str, Extents | None]] = Counter()
    for index, place in places.items():
        at, info = _state(index, f"{_OF}MetadataIndex"), _state(place, _PLACE)
        key, file, begin, size = at.get("fqn"), info.get("relative_path"), info.get("offset"), info.get("length")
        offsets = _size(at.get("offset"))
        if not isinstance(key, str) or not isinstance(file, str) or not _is_number(begin) or not _is_number(size):
            whys.append("it places something without a name, a file, or a place in it")
            continue
        if not is_plain_name(file) or not file.endswith(DATA_SUFFIX):
            whys.append(f"{shown(key)} lies in {shown(file)}, which is no data file of this folder")
        if info.get("transform_descriptors"):
            whys.append(f"{shown(key)} was transformed by an extension when it was saved")
        seen[key, offsets] += 1
        if (key, offsets) in expected:
            yield Piece(key, offsets, expected[key, offsets], file, cast(int, begin), cast(int, size))
    whys.extend(f"{shown(key)} has bytes that it does not list" for key, _ in dict.fromkeys(at for at in seen if at not in expected))
    whys.extend(f"{shown(key)} has bytes at two places" for (key, _), count in seen.items() if count > 1)
    whys.extend(f"{shown(key)} has no bytes" for key, _ in dict.fromkeys(at for at in expected if at not in seen))


def _path(planner: object, key: str) -> Trail | None:
    """Where a key stood in what was saved; a key that nothing is said of stands for its dots."""
    found: object = cast(dict[object, object], planner).get(key) if isinstance(planner, dict) else None
    steps = cast(tuple[object, ...], found) if isinstance(found, tuple) else ()
    path = tuple(step for step in steps[:DEPTH_MAX] if isinstance(step, str | int))
    return path if path and len(path) == len(steps) else tuple(key.split(".", DEPTH_MAX - 1))


def _state(value: object, of: str) -> Mapping[str, object]:
    """The state of an object of this class, or an empty one where something else stands there."""
    inner = value.state if isinstance(value, Call) and value.function.text == of else None
    return cast(Mapping[str, object], inner) if isinstance(inner, dict) else {}


def _size(value: object) -> Extents | None:
    """The numbers of a ``torch.Size``."""
    if not isinstance(value, Call) or value.function.text != _SIZE or len(value.arguments) != 1:
        return None
    given = value.arguments[0]
    numbers = cast(tuple[object, ...], given) if isinstance(given, tuple) else (None,)
    if len(numbers) > DIMENSIONS_MAX:
        return None
    found = tuple(number for number in numbers if isinstance(number, int) and _is_number(number))
    return found if len(found) == len(numbers) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NUMBER_MAX
