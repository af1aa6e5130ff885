"""Folders of very many files and numbers: each is looked up, and none is searched for among all the others."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from countermark.files.layouts import fsdp, orbax, torchtune
from countermark.files.layouts.reading import NAMED_MAX, LayoutReading, Parts, Whole
from countermark.files.layouts.torch_files import take_ranks
from countermark.files.model_folder import shard_defects
from countermark.files.reading import Entry, Stamp
from countermark.weights.refusals import TensorsInTwoShards

STAMP = Stamp(0, 0, 0, 0, 0)
SECONDS_MAX = 2.0


def entries(*names: str) -> tuple[Entry, ...]:
    """Entries of files by these names, and of folders where a slash is at the end; nothing of them is on the disk."""
    found = ((name.removesuffix("/"), "a folder" if name.endswith("/") else "a regular file") for name in names)
    return tuple(Entry(name, kind, STAMP) for name, kind in sorted(found))


def items(folder: Path) -> None:
    names = [f"item{at}{end}" for at in range(5000) for end in ("/", "/x")]
    assert orbax.FOLDER.read(folder, entries(*names)).components.keys()


def trees(folder: Path) -> None:
    names = [f"params/tree{at}/{name}" for at in range(6000) for name in ("_METADATA", "x")]
    assert orbax.FOLDER.read(folder, entries("params/", *names)).components.keys()


def processes(folder: Path) -> None:
    names = [f"data/process_{at}-of-9999.json" for at in range(4000)]
    assert orbax.FOLDER.read(folder, entries("data/", *names)).components.keys()


def pieces(folder: Path) -> None:
    found = fsdp.take_pieces(folder, entries(*(f"optimizer_{at}/" for at in range(9000))), LayoutReading())
    assert all(len(parts.absent) == 9000 for parts in found.values())


def ranks(folder: Path) -> None:
    parts = Parts()
    take_ranks(parts, folder, "rng_state_{}.pth", tuple(range(40_000)), 1, lambda opened: Whole())
    assert len(parts.absent) == 40_000 and not parts.whys


def shards(folder: Path) -> None:
    names = [f"model-{at:05}-of-99999.bin" for at in range(1, 200)]
    assert len(list(torchtune._missing_of(names))) == NAMED_MAX


def strangers(folder: Path) -> None:
    beside = {f"{at:05}.safetensors": {"a" if at < 3 else f"t{at}"} for at in range(8000)}
    found = list(shard_defects(dict.fromkeys([f"t{at}" for at in range(8000)], "x") | {"a": "x"}, {}, beside))
    pairs = [("00000.safetensors", "00001.safetensors"), ("00001.safetensors", "00002.safetensors")]
    assert found == [TensorsInTwoShards(first, second, ("a",)) for first, second in pairs]


@pytest.mark.parametrize("crowd", [items, trees, processes, pieces, ranks, shards, strangers], ids=lambda crowd: crowd.__name__)
def test_a_crowd_costs_what_its_members_do(tmp_path: Path, crowd: Callable[[Path], None]) -> None:
    start = time.process_time()
    crowd(tmp_path)
    assert time.process_time() - start < SECONDS_MAX
