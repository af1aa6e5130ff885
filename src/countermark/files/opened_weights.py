"""Weights opened for reading: which file holds which tensor, with every file open and known to be unchanged.

Rules kept here:

1. The files are those that ``countermark.files.model_folder`` finds, judged by their headers; a refusal names every defect of all of them.
2. ``partial``: what is missing or disagrees is left out and listed, never guessed. A tensor that lies in several files is taken from the
   one that the index names.
3. Names are not judged here: a comparison opens files whose names no root can carry.
4. A file says itself what it is (``torch.save``, NumPy's archive, GGUF, else safetensors). A folder of pickled weights alone is opened by
   its one file, or by the shards of its index.
5. Two names of one place are one tensor: ``ties`` tells them apart from two tensors that are equal.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias, final

from countermark.files.gguf import read_gguf
from countermark.files.located import Located
from countermark.files.model_folder import (
    PICKLED,
    PICKLED_FILES,
    PICKLED_INDEX,
    SINGLE_FILES,
    Headers,
    hub_blobs,
    shard_defects,
    weight_headers,
    weight_map,
)
from countermark.files.npz import read_npz
from countermark.files.reading import OpenFile, ShortRead, find, is_folder, list_folder, open_file
from countermark.files.torch_weights import read_torch_weights
from countermark.values import NonEmpty, Refused
from countermark.weights import DTYPE_BITS, HeaderOdd, TensorTable
from countermark.weights.difference import Rootless
from countermark.weights.refusals import (
    FileChanged,
    ShardDisagrees,
    ShardMissing,
    TensorsInTwoShards,
    WeightsAmbiguous,
    WeightsDefect,
    WeightsEmpty,
    WeightsKind,
)

_GGUF: Final = b"GGUF"
_ZIP: Final = b"PK\x03\x04"
#: What ``partial`` lets pass: the rest of the folder can still be compared.
_LEFT_OUT: Final = (ShardMissing, ShardDisagrees, TensorsInTwoShards)


@final
class OpenedWeights:
    """Every tensor of some weights by name. Use it as a context manager; ``left_out`` says what ``partial`` passed over, ``notes`` what
    is odd about a header, ``rootless`` why these weights have no root whatever their names are."""

    def __init__(
        self,
        kind: WeightsKind | None,
        tensors: Iterable[Located],
        files: Iterable[OpenFile],
        stack: ExitStack,
        *,
        left_out: tuple[WeightsDefect, ...] = (),
        notes: tuple[HeaderOdd, ...] = (),
        rootless: Rootless | None = None,
    ) -> None:
        self.kind = kind
        self.left_out = left_out
        self.notes = notes
        self.rootless: Rootless | None = rootless
        self._files = tuple(files)
        self._stack = stack
        self.tensors: dict[str, Located] = {}
        for found in tensors:
            self.tensors.setdefault(found.span.name, found)

    @property
    def ties(self) -> tuple[tuple[str, ...], ...]:
        """Sets of names that stand for one place each."""
        named: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
        for name, one in self.tensors.items():
            if one.bytes:
                named[one.file.fileno(), one.begin, one.end, one.span.dtype, one.span.shape].append(name)
        return tuple(tuple(sorted(names)) for names in named.values() if len(names) > 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    @property
    def files(self) -> tuple[OpenFile, ...]:
        """The files that were opened: without those in which something was laid out anew."""
        return self._files

    def holds(self, file: OpenFile) -> bool:
        """Whether this is one of the files that were opened."""
        return any(file is each for each in self._files)

    def changed(self) -> tuple[FileChanged, ...]:
        """The files that are others now than when they were opened."""
        return tuple(FileChanged(opened.name) for opened in self._files if opened.changed())


def open_weights(path: Path, *, partial: bool = False) -> OpenedWeights | Refused[WeightsDefect]:
    """The weights of a folder or of one file, or every defect of all its files."""
    real = find(path)
    if not isinstance(real, Path):
        return Refused(NonEmpty(real))
    links_to = hub_blobs(real)
    form = form_of(real, links_to)
    if isinstance(form, OtherFile):
        return _open_other(form, links_to)
    if isinstance(form, PickledShards):
        return _open_shards(real, form, links_to, partial)
    if is_folder(real):
        listed = list_folder(real)
        if not isinstance(listed, tuple):
            return Refused(NonEmpty(listed))
        folder = real
        kind, headers = weight_headers(real, tuple(entry.name for entry in listed), links_to)
    else:
        folder, headers, kind = real.parent, Headers(), SINGLE_FILES.get(real.name)
        headers.read(folder, real.name, links_to)
    left_out = tuple(defect for defect in headers.defects if partial and isinstance(defect, _LEFT_OUT))
    defects = [defect for defect in headers.defects if not (partial and isinstance(defect, _LEFT_OUT))]
    if not any(table.tensors for table in headers.tables.values()) and not defects:
        defects.append(WeightsEmpty())
    with ExitStack() as stack:
        files: list[OpenFile] = []
        tensors: list[Located] = []
        for name, table in sorted(headers.tables.items()):
            opened = open_file(folder, name, links_to=links_to)
            if not isinstance(opened, OpenFile):
                defects.append(opened)
                continue
            stack.enter_context(opened)
            if opened.stamp != headers.stamps[name]:
                defects.append(FileChanged(name))
            files.append(opened)
            tensors.extend(_of_table(table, opened))
        if (refused := NonEmpty.of(defects)) is not None:
            return Refused(refused)
        return OpenedWeights(kind, tensors, files, stack.pop_all(), left_out=left_out, notes=headers.notes)
    raise AssertionError("an exit stack hides no exception")


def _of_table(table: TensorTable, opened: OpenFile) -> Iterator[Located]:
    for span in table.tensors:
        yield Located(span, opened, table.data_begin + span.begin, table.data_begin + span.end)


#: Reads every tensor of an open file; what had to be laid out is closed with the stack.
_Reader: TypeAlias = "Callable[[OpenFile, ExitStack], tuple[Located, ...] | Refused[WeightsDefect]]"


@final
@dataclass(frozen=True, slots=True)
class OtherFile:
    """One file that is no safetensors, and what reads it."""

    path: Path
    read: _Reader

    @property
    def pickled(self) -> bool:
        return self.read is read_torch_weights


@final
@dataclass(frozen=True, slots=True)
class PickledShards:
    """A folder whose weights are the pickled shards of an index; ``names`` are all its entries."""

    index: str
    names: tuple[str, ...]


def form_of(path: Path, links_to: tuple[Path, ...]) -> OtherFile | PickledShards | None:
    """What these weights are; None: safetensors, or nothing that is known."""
    if is_folder(path):
        listed = list_folder(path)
        names = tuple(entry.name for entry in listed) if isinstance(listed, tuple) else ()
        if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
            return None
        if PICKLED_INDEX in names:
            return PickledShards(PICKLED_INDEX, names)
        alone = [name for name in names if name in PICKLED_FILES]
        return OtherFile(path / alone[0], read_torch_weights) if len(alone) == 1 else None
    start = _start(path, links_to)
    if path.suffix == ".gguf" or start == _GGUF:
        return OtherFile(path, read_gguf)
    if path.suffix == ".npz":
        return OtherFile(path, read_npz)
    return OtherFile(path, read_torch_weights) if path.suffix in PICKLED or start == _ZIP else None


def _start(path: Path, links_to: tuple[Path, ...]) -> bytes:
    """A file's first bytes; none where it cannot be read, which whoever opens it says."""
    opened = open_file(path.parent, path.name, links_to=links_to)
    if not isinstance(opened, OpenFile):
        return b""
    with opened:
        try:
            return opened.read(0, min(4, opened.size))
        except (OSError, ShortRead):
            return b""


def _open_other(form: OtherFile, links_to: tuple[Path, ...]) -> OpenedWeights | Refused[WeightsDefect]:
    """A file of ``torch.save``, of NumPy's arrays, or GGUF."""
    opened = open_file(form.path.parent, form.path.name, links_to=links_to)
    if not isinstance(opened, OpenFile):
        return Refused(NonEmpty(opened))
    with ExitStack() as stack:
        stack.enter_context(opened)
        found = form.read(opened, stack)
        if isinstance(found, Refused):
            return found
        if not found:
            return Refused(NonEmpty(WeightsEmpty()))
        rootless: Rootless | None = "pickled" if form.pickled else None
        if any(one.span.dtype not in DTYPE_BITS for one in found):
            rootless = "types"
        return OpenedWeights(SINGLE_FILES.get(form.path.name), found, (opened,), stack.pop_all(), rootless=rootless)
    raise AssertionError("an exit stack hides no exception")


def _open_shards(folder: Path, form: PickledShards, links_to: tuple[Path, ...], partial: bool) -> OpenedWeights | Refused[WeightsDefect]:
    """The pickled shards that an index names, held against it as those of safetensors are. Nothing in them is executed."""
    listed = weight_map(folder, form.index, links_to)
    if not isinstance(listed, Mapping):
        return Refused(NonEmpty(listed))
    if alone := [name for name in form.names if name in PICKLED_FILES]:
        return Refused(NonEmpty(WeightsAmbiguous((*alone, form.index))))
    with ExitStack() as stack:
        shards = _Shards(folder, links_to, stack)
        for name in sorted(set(listed.values())):
            shards.read(name, form.names)
        beside = _Shards(folder, links_to, stack)
        for name in form.names:
            if name.startswith("pytorch_model-") and name.endswith(".bin") and name not in set(listed.values()):
                beside.read(name, form.names)
        held, strangers = ({name: set(found) for name, found in each.tensors.items()} for each in (shards, beside))
        found: list[WeightsDefect] = [*shards.defects, *shard_defects(listed, held, strangers)]
        left_out = tuple(defect for defect in found if partial and isinstance(defect, _LEFT_OUT))
        defects = [defect for defect in found if defect not in left_out]
        # Of a tensor that lies in several shards, the one is taken where the index puts it.
        tensors = [one for name, each in shards.tensors.items() for tensor, one in each.items() if listed.get(tensor) == name]
        tensors += [one for each in shards.tensors.values() for one in each.values()]
        if not tensors and not defects:
            defects.append(WeightsEmpty())
        if (refused := NonEmpty.of(defects)) is not None:
            return Refused(refused)
        return OpenedWeights("model", tensors, shards.files, stack.pop_all(), left_out=left_out, rootless="pickled")
    raise AssertionError("an exit stack hides no exception")


@final
@dataclass(slots=True)
class _Shards:
    """Pickled files of a folder as far as they were read."""

    folder: Path
    links_to: tuple[Path, ...]
    stack: ExitStack
    tensors: dict[str, dict[str, Located]] = field(default_factory=dict[str, dict[str, Located]])
    files: list[OpenFile] = field(default_factory=list[OpenFile])
    defects: list[WeightsDefect] = field(default_factory=list[WeightsDefect])

    def read(self, name: str, there: tuple[str, ...]) -> None:
        if name not in there:
            self.defects.append(ShardMissing(name))
            return
        opened = open_file(self.folder, name, links_to=self.links_to)
        if not isinstance(opened, OpenFile):
            self.defects.append(opened)
            return
        self.stack.enter_context(opened)
        found = read_torch_weights(opened, self.stack)
        if isinstance(found, Refused):
            self.defects.extend(found.defects)
            return
        self.files.append(opened)
        self.tensors[name] = {one.span.name: one for one in found}
