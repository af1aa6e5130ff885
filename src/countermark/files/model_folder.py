"""The weights of a model or adapter folder, and the base artifact that a recipe names.

Rules kept here:

1. Which files hold the weights follows from their names alone: one file, or exactly the shards of the index. Nothing is ever globbed in
   their place, and a folder with two answers is refused.
2. An index is held against every shard's header, both ways; a tensor that lies in two files is refused, also where the index knows one.
3. All defects of all files are found by the headers, before a byte of data is read; the data is then read once.
4. Links must stay in the folder. A snapshot of a hub's cache is the one exception: its links lead to the blobs beside it.
5. Pickled weights have no root here; they are said to be there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, final

from countermark.files.digest_cache import DigestCache
from countermark.files.documents import as_object, read_object, told
from countermark.files.reading import OpenFile, Stamp, find, find_folder, is_folder, is_plain_name, list_folder, open_file
from countermark.files.safetensors import hash_tensors, read_table
from countermark.values import NonEmpty, Refused, Sha256, WeightsRoot, shown
from countermark.weights import HeaderOdd, NameDefect, TensorLine, TensorTable, name_defects, weights_root
from countermark.weights.refusals import (
    DocumentDefect,
    DocumentUnreadable,
    FileChanged,
    FileDefect,
    ShardDisagrees,
    ShardMissing,
    TensorsInTwoShards,
    WeightsAbsent,
    WeightsAmbiguous,
    WeightsDefect,
    WeightsEmpty,
    WeightsKind,
    WeightsOfOtherKind,
)

#: Told the bytes read so far and the bytes to read; it may raise to stop the reading.
TotalProgress: TypeAlias = Callable[[int, int], None]

#: The file or index that holds the weights, and of what kind they are.
SINGLE_FILES: Final[Mapping[str, WeightsKind]] = {"model.safetensors": "model", "adapter_model.safetensors": "adapter"}
INDEX_FILES: Final[Mapping[str, WeightsKind]] = {
    "model.safetensors.index.json": "model",
    "adapter_model.safetensors.index.json": "adapter",
}
PICKLED: Final = (".bin", ".pt", ".pth", ".ckpt")
#: What the libraries call a model's or an adapter's one pickled file.
PICKLED_FILES: Final = ("pytorch_model.bin", "adapter_model.bin")
PICKLED_INDEX: Final = "pytorch_model.bin.index.json"
INDEX_BYTES_MAX: Final = 256 << 20


@final
@dataclass(frozen=True, slots=True)
class MeasuredWeights:
    """Weights as they were read: every tensor, the bytes of all data, the files that hold it (names in the folder), and the kind; and what
    is odd about a header."""

    root: WeightsRoot
    tensors: tuple[TensorLine, ...]
    bytes: int
    files: tuple[str, ...]
    kind: WeightsKind | None
    notes: tuple[HeaderOdd, ...]


@final
@dataclass(frozen=True, slots=True)
class MeasuredBase:
    """A base model: the coordinate ``base_artifact``, and the weights in it."""

    base_artifact: Sha256
    weights: MeasuredWeights


@final
@dataclass(slots=True)
class Headers:
    """What the headers of the files said, before any data is read."""

    tables: dict[str, TensorTable] = field(default_factory=dict[str, TensorTable])
    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    defects: list[WeightsDefect] = field(default_factory=list[WeightsDefect])

    @property
    def notes(self) -> tuple[HeaderOdd, ...]:
        """What is odd about any of the headers."""
        return tuple(note for name in sorted(self.tables) for note in self.tables[name].notes)

    def read(self, folder: Path, name: str, links_to: tuple[Path, ...]) -> None:
        opened = open_file(folder, name, links_to=links_to)
        if not isinstance(opened, OpenFile):
            self.defects.append(opened)
            return
        with opened:
            table = read_table(opened)
        if isinstance(table, Refused):
            self.defects.extend(table.defects)
        else:
            self.tables[name] = table
            self.stamps[name] = opened.stamp


def hub_blobs(folder: Path) -> tuple[Path, ...]:
    """Where the links of a hub's cache snapshot may lead: the blobs of the same repository. Empty for any other folder."""
    real = find(folder)
    if not isinstance(real, Path) or real.parent.name != "snapshots":
        return ()
    blobs = real.parent.parent / "blobs"
    return (blobs,) if is_folder(blobs) else ()


def measure_weights(
    path: Path, *, progress: TotalProgress | None = None, cache: DigestCache | None = None
) -> MeasuredWeights | Refused[WeightsDefect]:
    """The weights of a folder, or of one safetensors file, with their root; or every defect of all its files."""
    real = find(path)
    if not isinstance(real, Path):
        return Refused(NonEmpty(real))
    links_to = hub_blobs(real)
    if is_folder(real):
        listed = list_folder(real)
        if not isinstance(listed, tuple):
            return Refused(NonEmpty(listed))
        kind, headers = weight_headers(real, tuple(entry.name for entry in listed), links_to)
    else:
        headers, kind = Headers(), SINGLE_FILES.get(real.name)
        headers.read(real.parent, real.name, links_to)
        real = real.parent
    names = {span.name for table in headers.tables.values() for span in table.tensors}
    headers.defects.extend(name_defects(sorted(names)))
    if not names and not headers.defects:
        headers.defects.append(WeightsEmpty())
    if defects := NonEmpty.of(headers.defects):
        return Refused(defects)
    return _measured(real, headers, kind, links_to, _Watched(progress, cache))


def measure_base(folder: Path, *, progress: TotalProgress | None = None) -> MeasuredBase | Refused[WeightsDefect]:
    """The base artifact of a model folder: its weights and its ``config.json`` together."""
    real = find_folder(folder)
    if not isinstance(real, Path):
        return Refused(NonEmpty(real))
    config = read_object(real, "config.json", links_to=hub_blobs(real))
    defects: list[WeightsDefect] = [] if isinstance(config, Mapping) else [config]
    weights = measure_weights(real, progress=progress)
    if isinstance(weights, Refused):
        defects.extend(weights.defects)
    elif weights.kind == "adapter":
        defects.append(WeightsOfOtherKind("model", "adapter"))
    elif isinstance(config, Mapping):
        try:
            # What a recipe is takes longer to import than a small comparison of weights, which never asks for it.
            from countermark.recipe.canonical import base_artifact_of

            return MeasuredBase(base_artifact_of(weights.root, config), weights)
        except ValueError as error:
            defects.append(DocumentUnreadable("config.json", str(error)))
    found = NonEmpty.of(defects)
    assert found is not None
    return Refused(found)


def weight_headers(folder: Path, names: tuple[str, ...], links_to: tuple[Path, ...]) -> tuple[WeightsKind | None, Headers]:
    headers = Headers()
    candidates = [name for name in (*SINGLE_FILES, *INDEX_FILES) if name in names]
    if not candidates:
        headers.defects.append(WeightsAbsent(tuple(name for name in names if name.endswith(PICKLED))))
        return None, headers
    if len(candidates) > 1:
        headers.defects.append(WeightsAmbiguous(tuple(candidates)))
        return None, headers
    if kind := SINGLE_FILES.get(candidates[0]):
        headers.read(folder, candidates[0], links_to)
        return kind, headers
    _sharded(folder, candidates[0], names, links_to, headers)
    return INDEX_FILES[candidates[0]], headers


def _sharded(folder: Path, index: str, names: tuple[str, ...], links_to: tuple[Path, ...], headers: Headers) -> None:
    """Reads the headers of the shards that the index names, and holds both against each other."""
    listed = weight_map(folder, index, links_to)
    if not isinstance(listed, Mapping):
        headers.defects.append(listed)
        return
    by_shard, there = set(listed.values()), frozenset(names)
    for shard in sorted(by_shard):
        if shard in there:
            headers.read(folder, shard, links_to)
        else:
            headers.defects.append(ShardMissing(shard))
    strangers = Headers()
    for name in names:
        if name.endswith(".safetensors") and name not in by_shard:
            strangers.read(folder, name, links_to)
    held, beside = (
        {name: {span.name for span in table.tensors} for name, table in tables.items()} for tables in (headers.tables, strangers.tables)
    )
    headers.defects.extend(shard_defects(listed, held, beside))


def shard_defects(
    listed: Mapping[str, str], held: Mapping[str, set[str]], beside: Mapping[str, set[str]]
) -> Iterator[ShardDisagrees | TensorsInTwoShards]:
    """Where an index (tensor → shard) and the tensors that its shards hold disagree, and tensors of the index that two files hold, also
    files ``beside`` the shards. Of more than two, each is told with the next."""
    by_shard: defaultdict[str, set[str]] = defaultdict(set)
    for tensor, shard in listed.items():
        by_shard[shard].add(tensor)
    for shard, found in held.items():
        absent, unlisted = sorted(by_shard[shard] - found), sorted(found - by_shard[shard])
        if absent or unlisted:
            yield ShardDisagrees(shard, tuple(absent), tuple(unlisted))
    every = {**held, **{name: tensors & listed.keys() for name, tensors in beside.items()}}
    last: dict[str, str] = {}
    twice: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for shard in sorted(every):
        for tensor in every[shard]:
            if tensor in last:
                twice[last[tensor], shard].append(tensor)
            last[tensor] = shard
    for (first, second), tensors in sorted(twice.items()):
        yield TensorsInTwoShards(first, second, tuple(sorted(tensors)))


def weight_map(folder: Path, index: str, links_to: tuple[Path, ...]) -> Mapping[str, str] | DocumentDefect:
    """Tensor → shard as the index says. Its total size is not held against the files: conversions leave it behind in good folders."""
    document = read_object(folder, index, bytes_max=INDEX_BYTES_MAX, links_to=links_to)
    return weight_map_of(index, document) if isinstance(document, Mapping) else document


def weight_map_of(index: str, document: Mapping[str, object]) -> Mapping[str, str] | DocumentUnreadable:
    """Tensor → shard as a document of this name says."""
    listed = as_object(document.get("weight_map"))
    if not listed:
        return DocumentUnreadable(index, "it has no weight_map")
    found: dict[str, str] = {}
    for tensor, shard in listed.items():
        if not isinstance(shard, str) or not is_plain_name(shard):
            return DocumentUnreadable(index, f"it puts {shown(tensor)} in {told(shard)}, which is no file name")
        found[tensor] = shard
    return found


@final
@dataclass(frozen=True, slots=True)
class _Watched:
    """Who is told of the measuring, and what was measured before."""

    progress: TotalProgress | None
    cache: DigestCache | None


def _measured(
    folder: Path, headers: Headers, kind: WeightsKind | None, links_to: tuple[Path, ...], watched: _Watched
) -> MeasuredWeights | Refused[WeightsDefect]:
    total = sum(table.data_bytes for table in headers.tables.values())
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if watched.progress:
            watched.progress(done, total)

    lines: list[TensorLine] = []
    defects: list[FileDefect | NameDefect] = []
    for name, table in headers.tables.items():
        opened = open_file(folder, name, links_to=links_to)
        if not isinstance(opened, OpenFile):
            defects.append(opened)
            continue
        with opened:
            same = opened.stamp == headers.stamps[name]
            found = hash_tensors(opened, table, advance, watched.cache) if same else FileChanged(name)
        if isinstance(found, tuple):
            lines.extend(found)
        else:
            defects.append(found)
    root = weights_root(lines)
    if isinstance(root, Refused):
        defects.extend(root.defects)
    if isinstance(root, WeightsRoot) and not defects:
        return MeasuredWeights(root, tuple(lines), total, tuple(sorted(headers.tables)), kind, headers.notes)
    refusal = NonEmpty.of(defects)
    assert refusal is not None
    return Refused(refusal)
