"""Pairs of weights to measure on, made on the spot: ``python bench/pairs.py FOLDER DTYPE KIND BYTES [SHARDS]``.

``A.safetensors`` and ``B.safetensors`` of a model's layers, matrices of 2,048 columns. ``sparse``: in B a hundredth of the numbers of two
matrices is another one. ``dense``: every number of every matrix moved by about a hundredth of what it is. With SHARDS, ``shards`` holds A
in so many files. It is a process of its own, so that whoever measures stays small.
"""

import hashlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

COLUMNS: Final = 2_048
_NAMES: Final = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
_ROWS: Final = 2_048


def coded(dtype: str, values: Any) -> bytes:
    if dtype == "F32":
        return bytes(values.astype("<f4").tobytes())
    codes = values.astype("<f4").view(np.uint32)
    return bytes(((codes + 0x7FFF + ((codes >> 16) & 1)) >> 16).astype("<u2").tobytes())


def names(dtype: str, size: int) -> list[str]:
    each = _ROWS * COLUMNS * (4 if dtype == "F32" else 2)
    return [f"model.layers.{at // len(_NAMES)}.{_NAMES[at % len(_NAMES)]}.weight" for at in range(max(size // each, 2))]


def matrices(name: str, kind: str, edited: bool) -> tuple[Any, Any]:
    """A matrix and what became of it."""
    chance = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
    before = chance.standard_normal((_ROWS, COLUMNS), dtype=np.float32) * np.float32(0.02)
    if kind == "dense":
        return before, before * (1 + np.float32(0.01) * chance.standard_normal((_ROWS, COLUMNS), dtype=np.float32))
    if not edited:
        return before, before
    moved = chance.random((_ROWS, COLUMNS), dtype=np.float32) < 0.01
    return before, np.where(moved, before * np.float32(1.5), before)


def begun(path: Path, dtype: str, held: list[str]) -> BinaryIO:
    """A file with its header, at the place of its data."""
    size = _ROWS * COLUMNS * (4 if dtype == "F32" else 2)
    header = {
        name: {"dtype": dtype, "shape": [_ROWS, COLUMNS], "data_offsets": [at * size, (at + 1) * size]} for at, name in enumerate(held)
    }
    text = json.dumps(header).encode()
    file = path.open("wb")
    file.write(struct.pack("<Q", len(text)) + text)
    return file


def write_shards(folder: Path, dtype: str, kind: str, held: list[str], count: int) -> None:
    folder.mkdir()
    each = -(-len(held) // count)
    parts = [held[at : at + each] for at in range(0, len(held), each)]
    files = [f"model-{at + 1:05}-of-{len(parts):05}.safetensors" for at in range(len(parts))]
    for name, part in zip(files, parts, strict=True):
        with begun(folder / name, dtype, part) as file:
            for one in part:
                file.write(coded(dtype, matrices(one, kind, False)[0]))
    weight_map = {one: name for name, part in zip(files, parts, strict=True) for one in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def places(held: list[str]) -> Iterator[tuple[str, bool]]:
    """Each name, and whether a sparse edit touches it: one in the middle and one at the end."""
    for at, name in enumerate(held):
        yield name, at in (len(held) // 2, len(held) - 1)


def main() -> None:
    folder, dtype, kind, size = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    held = names(dtype, size)
    with begun(folder / "A.safetensors", dtype, held) as a, begun(folder / "B.safetensors", dtype, held) as b:
        for name, edited in places(held):
            before, after = matrices(name, kind, edited)
            a.write(coded(dtype, before))
            b.write(coded(dtype, after))
    if len(sys.argv) > 5:
        write_shards(folder / "shards", dtype, kind, held, int(sys.argv[5]))


if __name__ == "__main__":
    main()
