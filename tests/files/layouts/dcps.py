"""Folders of a torch distributed checkpoint made without torch, in two data files: tests break them in one place."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.files.folders import HIDDEN, adapter_names, generators, group, scheduler
from tests.files.torchfiles import Global, Named, Object, Tensor, pickled, scalar, torch_file, zeros

OF = "torch.distributed.checkpoint.metadata"
DTYPES = {"F32": "float32", "F64": "float64", "I64": "int64", "U8": "uint8"}
#: The data files of one worker that has two threads, and of two workers.
ALONE, TOGETHER = ("__0_0.distcp", "__0_1.distcp"), ("__0_0.distcp", "__1_0.distcp")
Trail = tuple[str | int, ...]
Saved = dict[Trail, object]


def names(targets: tuple[str, ...] = ("q_proj", "v_proj")) -> dict[str, tuple[int, int]]:
    """The tensors that are trained, and their shapes."""
    return {name: ((4, HIDDEN) if is_a else (HIDDEN, 4)) for name, is_a in adapter_names(targets)}


def saved(*, step: int = 4, workers: int = 1, targets: tuple[str, ...] = ("q_proj", "v_proj"), **changes: Any) -> Saved:
    """All five components of a trainer, by the trails under which a script saves them."""
    found: Saved = {("app", "model", name): zeros(*shape) for name, shape in names().items()}
    for name, shape in names(targets).items():
        found |= {
            ("app", "optimizer", "state", name, "step"): scalar(step),
            ("app", "optimizer", "state", name, "exp_avg"): zeros(*shape),
            ("app", "optimizer", "state", name, "exp_avg_sq"): zeros(*shape),
        }
    settings = group([], **changes) | {"params": list(names(targets))}
    found |= {("app", "optimizer", "param_groups", 0, key): value for key, value in settings.items()}
    found |= {("scheduler", key): value for key, value in scheduler(step).items()}
    for rank in range(workers):
        whose = ("rng",) if workers == 1 else ("rng", f"rank_{rank}")
        found |= {(*whose, key): value for key, value in generators().items()}
    return found | {("train_state", "step"): Tensor("I64", (), (step,))}


def titans(*, step: int = 4, workers: int = 2) -> Saved:
    """What torchtitan saves: weights under their own names, an optimizer flattened by them, and no generators."""
    found: Saved = {(name,): zeros(*shape) for name, shape in names().items()}
    for name, shape in names().items():
        state = {"step": scalar(step), "exp_avg": zeros(*shape), "exp_avg_sq": zeros(*shape)}
        found |= {("optimizer", f"state.{name}.{key}"): value for key, value in state.items()}
        found |= {("optimizer", f"param_groups.{name}.{key}"): value for key, value in group([]).items() if key != "params"}
    found |= {("lr_scheduler", key): value for key, value in scheduler(step).items()}
    loader = {f"dp_rank_{rank}": Global("_codecs", "encode", ("a pickle", "latin1")) for rank in range(workers)}
    found |= {("dataloader", key): value for key, value in {**loader, "world_size": workers}.items()}
    return found | {("train_state", "step"): Tensor("I64", (), (step,)), ("train_state", "ntokens_seen"): Tensor("I64", (), (4096,))}


@dataclass
class Piece:
    """A chunk of a tensor, or a value, and where it lies."""

    key: str
    offsets: tuple[int, ...] | None
    part: object
    file: str
    content: bytes
    begin: int = 0
    length: int = 0


def pieces(content: Saved, files: tuple[str, str]) -> list[Piece]:
    """What is written into two files: each has half of what can be halved, and the rest by turns."""
    found: list[Piece] = []
    for at, (trail, value) in enumerate(content.items()):
        key = ".".join(map(str, trail))
        for offsets, part, half in _halves(value, at % 2):
            found.append(Piece(key, offsets, part, files[half], torch_file(part)))
    ends = dict.fromkeys(files, 0)
    for piece in found:
        piece.begin, piece.length = ends[piece.file], len(piece.content)
        ends[piece.file] += piece.length
    return found


def _halves(value: object, half: int) -> Iterator[tuple[tuple[int, ...] | None, object, int]]:
    if not isinstance(value, Tensor):
        yield None, value, half
    elif len(value.shape) < 2:
        yield (0,) * len(value.shape), value, half
    else:
        rows = value.shape[0] // 2
        size = len(value.numbers) // value.shape[0] * rows
        yield (0, 0), Tensor(value.dtype, (rows, *value.shape[1:]), value.numbers[:size]), 0
        yield (rows, 0), Tensor(value.dtype, (value.shape[0] - rows, *value.shape[1:]), value.numbers[size:]), 1


def size(numbers: tuple[int, ...] | None) -> object:
    return None if numbers is None else Global("torch", "Size", (numbers,))


def metadata(content: Saved, written: list[Piece]) -> dict[str, Any]:
    """The state of the object in ``.metadata``, for tests to change before it is pickled."""
    listed: dict[str, Any] = {}
    for trail, value in content.items():
        key = ".".join(map(str, trail))
        if not isinstance(value, Tensor):
            listed[key] = Object(OF, "BytesStorageMetadata", {})
            continue
        chunks = [
            Object(OF, "ChunkStorageMetadata", {"offsets": size(piece.offsets), "sizes": size(piece.part.shape)})
            for piece in written
            if piece.key == key and isinstance(piece.part, Tensor)
        ]
        layout = Global("torch.serialization", "_get_layout", ("torch.strided",))
        properties = (Named("torch", DTYPES[value.dtype]), layout, False, Global(OF, "_MEM_FORMAT_ENCODING", (0,)), False)
        state = {"properties": Object(OF, "TensorProperties", properties), "size": size(value.shape), "chunks": chunks}
        listed[key] = Object(OF, "TensorStorageMetadata", state)
    return {
        "state_dict_metadata": listed,
        "planner_data": {".".join(map(str, trail)): trail for trail in content},
        "storage_data": dict(place(piece) for piece in written),
        "storage_meta": Object(OF, "StorageMeta", {"checkpoint_id": Global("pathlib", "PosixPath", ("/", "out")), "modules": []}),
        "version": "1.0.0",
    }


def place(piece: Piece) -> tuple[object, object]:
    index = Object(OF, "MetadataIndex", {"fqn": piece.key, "offset": size(piece.offsets), "index": None if piece.offsets is None else 0})
    where = {"relative_path": piece.file, "offset": piece.begin, "length": piece.length}
    return index, Object("torch.distributed.checkpoint.filesystem", "_StorageInfo", where)


def encoded(state: dict[str, Any]) -> bytes:
    return pickled(Object(OF, "Metadata", state))[0]


def folder(
    parent: Path,
    name: str,
    content: Saved,
    change: Callable[[dict[str, Any], list[Piece]], object] = lambda state, written: None,
    files: tuple[str, str] = ALONE,
) -> Path:
    """A clean folder, whose metadata is a second younger than its data. ``change`` is given the metadata before it is written."""
    path = parent / name
    path.mkdir(parents=True)
    written = pieces(content, files)
    state = metadata(content, written)
    change(state, written)
    for file in files:
        (path / file).write_bytes(b"".join(piece.content for piece in written if piece.file == file))
    (path / ".metadata").write_bytes(encoded(state))
    made(path / ".metadata", 1)
    return path


def made(path: Path, after: float) -> None:
    """Let a file be written so many seconds after the data of the folder."""
    at = (path.parent / "__0_0.distcp").stat().st_mtime_ns
    os.utime(path, ns=(at, at + int(after * 1e9)))
