"""Folders of weights: which files count, shards against their index, and the base artifact."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from countermark.files import model_folder, reading
from countermark.files.model_folder import MeasuredBase, MeasuredWeights, measure_base, measure_weights
from countermark.recipe.canonical import canonical_json, length_prefixed
from countermark.values import NonEmpty, Refused
from countermark.weights import TensorNameUnprintable, TensorOutOfBounds
from countermark.weights.refusals import (
    DocumentUnreadable,
    FileAbsent,
    FileChanged,
    FileNotRegular,
    LinkLeavesFolder,
    ShardDisagrees,
    ShardMissing,
    TensorsInTwoShards,
    WeightsAbsent,
    WeightsAmbiguous,
    WeightsDefect,
    WeightsEmpty,
    WeightsOfOtherKind,
)
from tests.faults import planted, proven_by
from tests.files.tensors import Tensor, encoded, f32, write

TENSORS = {"a.weight": f32(1, 2), "b.weight": f32(3), "c.weight": f32(4, 5, 6)}
INDEX = "model.safetensors.index.json"


def shard(number: int, count: int = 3) -> str:
    return f"model-{number:05}-of-{count:05}.safetensors"


def single(folder: Path, tensors: dict[str, Tensor] = TENSORS, name: str = "model.safetensors") -> Path:
    write(folder / name, encoded(tensors))
    return folder


def sharded(folder: Path) -> Path:
    """The same tensors, each in a shard of its own."""
    weight_map = {tensor: shard(number) for number, tensor in enumerate(TENSORS, start=1)}
    for tensor, name in weight_map.items():
        write(folder / name, encoded({tensor: TENSORS[tensor]}))
    write(folder / INDEX, json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}).encode())
    return folder


def measured(path: Path) -> MeasuredWeights:
    found = measure_weights(path)
    assert isinstance(found, MeasuredWeights), found
    return found


def defects(folder: Path) -> Counter[WeightsDefect]:
    found = measure_weights(folder)
    return Counter(found.defects) if isinstance(found, Refused) else Counter()


# ------------------------------------------------------------------------------------------------------------ clean


def test_sharding_moves_nothing(tmp_path: Path) -> None:
    one, three = measured(single(tmp_path / "one")), measured(sharded(tmp_path / "three"))
    assert one.root == three.root and one.bytes == three.bytes == 24
    assert one.files == ("model.safetensors",) and three.files == (shard(1), shard(2), shard(3))
    assert {line.name for line in three.tensors} == set(TENSORS) and one.kind == three.kind == "model"


def test_a_single_file_can_be_named_itself(tmp_path: Path) -> None:
    single(tmp_path, name="anything.safetensors")
    assert measured(tmp_path / "anything.safetensors").root == measured(single(tmp_path / "m")).root
    assert measured(tmp_path / "anything.safetensors").kind is None


def test_an_adapter_is_one(tmp_path: Path) -> None:
    assert measured(single(tmp_path, name="adapter_model.safetensors")).kind == "adapter"


def test_progress_runs_to_the_total(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    measure_weights(sharded(tmp_path), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (24, 24) and [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_a_hubs_snapshot_may_link_to_its_blobs(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--x" / "blobs", tmp_path / "models--x" / "snapshots" / "abc"
    write(blobs / "0123", encoded(TENSORS))
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    assert measured(snapshot).root == measured(single(tmp_path / "m")).root


# ----------------------------------------------------------------------------------------------------------- refused


def test_links_out_of_any_other_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(write(tmp_path / "blobs" / "0123", encoded(TENSORS)))
    assert defects(folder) == Counter([LinkLeavesFolder("model.safetensors")])


def test_a_snapshots_link_elsewhere_is_refused(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--x" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--x" / "blobs").mkdir()
    (snapshot / "model.safetensors").symlink_to(write(tmp_path / "secret", encoded(TENSORS)))
    assert defects(snapshot) == Counter([LinkLeavesFolder("model.safetensors")])


def test_three_defects_of_three_shards_are_named_at_once(tmp_path: Path) -> None:
    """A shard that is gone, a file that the index does not know and that holds a tensor again, and a shard without its tensor."""
    folder = sharded(tmp_path)
    (folder / shard(3)).unlink()
    write(folder / "extra.safetensors", encoded({"a.weight": f32(9, 9)}))
    write(folder / shard(2), encoded({"other": f32(1)}))
    assert defects(folder) == Counter(
        [
            ShardMissing(shard(3)),
            ShardDisagrees(shard(2), absent=("b.weight",), unlisted=("other",)),
            TensorsInTwoShards("extra.safetensors", shard(1), ("a.weight",)),
        ]
    )


@proven_by(planted(model_folder, "ShardMissing", lambda name: WeightsEmpty()))
def test_a_missing_shard_is_named_and_never_globbed_around(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    (folder / shard(3)).rename(folder / "model-of-another-name.safetensors")
    assert defects(folder) == Counter([ShardMissing(shard(3))])


def test_one_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    write(folder / shard(2), encoded({"b.weight": f32(3), "a.weight": f32(1, 2)}))
    assert defects(folder) == Counter(
        [ShardDisagrees(shard(2), absent=(), unlisted=("a.weight",)), TensorsInTwoShards(shard(1), shard(2), ("a.weight",))]
    )


def test_a_stranger_file_with_other_tensors_is_none_of_our_business(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    write(folder / "consolidated.safetensors", encoded({"layers.0.w": f32(1)}))
    assert defects(folder) == Counter()


def test_broken_headers_of_several_shards_are_all_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    for number in (1, 3):
        content = (folder / shard(number)).read_bytes()
        (folder / shard(number)).write_bytes(content[:-1])
    assert defects(folder) == Counter([TensorOutOfBounds(shard(1), "a.weight", 8, 7), TensorOutOfBounds(shard(3), "c.weight", 12, 11)])


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (b"", "it is not JSON: Expecting value at line 1, column 1"),
        (b"[]", "it is not a JSON object"),
        (b"{}", "it has no weight_map"),
        (b'{"weight_map":{}}', "it has no weight_map"),
        (b'{"weight_map":{"a":"m.safetensors","a":"n.safetensors"}}', "'a' stands twice in one object"),
        (b'{"weight_map":{"a":"../m.safetensors"}}', "it puts 'a' in '../m.safetensors', which is no file name"),
        (b'{"weight_map":{"a":"/etc/passwd"}}', "it puts 'a' in '/etc/passwd', which is no file name"),
        (b'{"weight_map":{"a":1}}', "it puts 'a' in 1, which is no file name"),
        (b"[" * 100_000, "it is nested too deep"),
    ],
)
def test_an_index_that_is_none_says_why(tmp_path: Path, index: bytes, why: str) -> None:
    folder = sharded(tmp_path)
    (folder / INDEX).write_bytes(index)
    assert defects(folder) == Counter([DocumentUnreadable(INDEX, why)])


def test_a_folder_with_two_answers_is_refused(tmp_path: Path) -> None:
    folder = single(sharded(tmp_path))
    write(folder / "adapter_model.safetensors", encoded({"x": f32(1)}))
    assert defects(folder) == Counter([WeightsAmbiguous(("model.safetensors", "adapter_model.safetensors", INDEX))])


def test_pickled_weights_are_said_to_be_there(tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "consolidated.00.pth", "config.json"):
        write(tmp_path / name, b"x")
    assert defects(tmp_path) == Counter([WeightsAbsent(("consolidated.00.pth", "pytorch_model.bin"))])


def test_nothing_at_all(tmp_path: Path) -> None:
    assert defects(tmp_path) == Counter([WeightsAbsent(())])
    assert defects(tmp_path / "none") == Counter([FileAbsent("none")])
    assert defects(single(tmp_path / "empty", {})) == Counter([WeightsEmpty()])


def test_names_that_no_root_carries_are_refused_together(tmp_path: Path) -> None:
    folder = single(tmp_path, {"a\n": f32(1), "b\x1b[31m": f32(2), "c": f32(3)})
    assert defects(folder) == Counter([TensorNameUnprintable("a\n"), TensorNameUnprintable("b\x1b[31m")])


@proven_by(planted(model_folder, "FileChanged", lambda name: FileAbsent(name)))
def test_a_shard_that_is_replaced_between_header_and_data_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sharded(tmp_path)
    original = model_folder._measured

    def replacing(*given: object) -> object:
        write(folder / "new", encoded({"b.weight": f32(8)}))
        os.replace(folder / "new", folder / shard(2))
        return original(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(model_folder, "_measured", replacing)
    assert defects(folder) == Counter([FileChanged(shard(2))])


def test_memory_is_one_buffer(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", encoded({"a": ("F32", [4_000_000], bytes(16_000_000))}))
    import tracemalloc

    tracemalloc.start()
    measured(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * reading.BUFFER_BYTES


# --------------------------------------------------------------------------------------------------------------- base


def base(folder: Path, config: bytes = b'{"hidden_size": 6, "eps": 1e-05}') -> Path:
    single(folder)
    write(folder / "config.json", config)
    return folder


def test_a_base_artifact_is_weights_and_configuration(tmp_path: Path) -> None:
    found = measure_base(base(tmp_path))
    assert isinstance(found, MeasuredBase)
    config = canonical_json({"eps": 1e-05, "hidden_size": 6})
    expected = hashlib.sha256(length_prefixed(found.weights.root.spell().encode(), config)).hexdigest()
    assert found.base_artifact.hex == expected and config == b'{"eps":0.00001,"hidden_size":6}'


def artifact(folder: Path) -> str:
    found = measure_base(folder)
    assert isinstance(found, MeasuredBase)
    return found.base_artifact.hex


def test_what_moves_a_base_artifact_and_what_does_not(tmp_path: Path) -> None:
    clean = artifact(base(tmp_path / "a"))
    moved = b'{"eps": 0.00001, "hidden_size":6, "_name_or_path": "/elsewhere", "transformers_version": "9"}'
    assert artifact(base(tmp_path / "b", moved)) == clean
    assert artifact(base(tmp_path / "c", b'{"hidden_size": 7, "eps": 1e-05}')) != clean
    other = base(tmp_path / "d")
    write(other / "model.safetensors", encoded(TENSORS | {"b.weight": f32(3.5)}))
    assert artifact(other) != clean


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b'{"a":1,"a":2}', "'a' stands twice in one object"),
        (b'{"a":Infinity}', "it holds Infinity, which JSON has not"),
        (b'{"a":"\xff"}', "byte 6 is not UTF-8"),
        (b"7", "it is not a JSON object"),
    ],
)
def test_a_configuration_that_is_none_says_why(tmp_path: Path, config: bytes, why: str) -> None:
    assert measure_base(base(tmp_path, config)) == Refused(NonEmpty(DocumentUnreadable("config.json", why)))


def test_weights_and_configuration_are_judged_together(tmp_path: Path) -> None:
    write(tmp_path / "pytorch_model.bin", b"x")
    os.mkfifo(tmp_path / "config.json")
    found = measure_base(tmp_path)
    assert isinstance(found, Refused)
    assert Counter(found.defects) == Counter([FileNotRegular("config.json", "a pipe"), WeightsAbsent(("pytorch_model.bin",))])


def test_an_adapter_is_no_base(tmp_path: Path) -> None:
    single(tmp_path, name="adapter_model.safetensors")
    write(tmp_path / "config.json", b"{}")
    assert measure_base(tmp_path) == Refused(NonEmpty(WeightsOfOtherKind("model", "adapter")))
