"""``weights diff`` where digests are known already, and over pickled shards, called as a person would."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countermark.cli import context
from countermark.files import comparing, opened_weights, reading
from countermark.files.digest_cache import DigestCache
from tests.cli.called import Caller
from tests.faults import planted, proven_by
from tests.files.tensors import encoded, f32, write
from tests.files.torchfiles import Global, Tensor, torch_file

A = {"w": f32(1, 2, 3), "v": f32(4)}
B = {"w": f32(1, 2, 9), "v": f32(4)}


@pytest.fixture
def scene(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base and what was made of it, both written long ago."""
    write(here / "a.safetensors", encoded(A))
    write(here / "b.safetensors", encoded(B))
    real = context.digest_cache
    monkeypatch.setattr(context, "digest_cache", lambda fresh: DigestCache(real(fresh).folder, fresh, lambda: 2**62))
    return here


PAIR = ("weights", "diff", "a.safetensors", "b.safetensors")


def without_known(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "known"}


def nothing_is_known() -> AbstractContextManager[object]:
    real = comparing.compare

    def measuring(*args: Any, known: object, known_b: object, **more: Any) -> object:
        return real(*args, **more)

    from countermark.app import weights

    return planted(weights, "compare", measuring)()


@proven_by(nothing_is_known)
def test_a_second_comparison_takes_the_digests_and_says_the_same(scene: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    first = call(*PAIR, "--json").document()
    assert first["known"] == {"a": 0, "b": 0, "baseRoot": None}
    monkeypatch.setattr(comparing, "hashlib", SimpleNamespace(sha256=lambda *args: pytest.fail("it was hashed again")))
    second = call(*PAIR, "--json").document()
    assert second["known"] == {"a": 2, "b": 2, "baseRoot": None}
    assert without_known(second) == without_known(first)
    assert "digests of 2 tensors of A and 2 tensors of B were measured before; --fresh measures all of them" in call(*PAIR).out


def test_a_root_that_was_measured_is_known_to_the_comparison(scene: Path, call: Caller) -> None:
    call("weights", "root", "a.safetensors")
    assert call(*PAIR, "--json").document()["known"] == {"a": 2, "b": 0, "baseRoot": None}
    assert call(*PAIR, "--fresh", "--json").document()["known"] == {"a": 0, "b": 0, "baseRoot": None}


def test_bytes_that_changed_under_one_stamp_go_red_where_a_comparison_is_fresh(
    scene: Path, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scene / "b.safetensors"
    true, real = path.stat(), reading.Stamp.of
    monkeypatch.setattr(reading.Stamp, "of", lambda found: real(true) if found.st_ino == true.st_ino else real(found))
    assert call(*PAIR).code == 0
    path.write_bytes(encoded({**B, "w": f32(1, 2, 8)}))
    assert call(*PAIR).code == 0
    red = call(*PAIR, "--fresh", "--json")
    assert (red.code, red.codes()) == (1, ["CachedDigestsDisagree"])
    # What the bytes show is believed over what was kept, also without asking: equal tensors cannot have two digests.
    path.write_bytes(encoded(A))
    assert call(*PAIR, "--json").codes() == ["DigestsContradict"]
    assert call(*PAIR, "--fresh", "--json").codes() == ["CachedDigestsDisagree"]
    assert call(*PAIR).code == 0


def test_lines_of_the_base_stand_in_for_hashing_it_and_are_said_to(scene: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "digest_cache", lambda fresh: DigestCache(None))
    plain = call(*PAIR, "--json").document()
    call("weights", "root", "a.safetensors", "--lines", "a.lines")
    recorded = call(*PAIR, "--base-root", "a.lines", "--json").document()
    assert recorded["known"] == {"a": 2, "b": 0, "baseRoot": "a.lines"}
    assert without_known(recorded) == without_known(plain)
    assert "A's digests are those of a.lines, and were not measured" in call(*PAIR, "--base-root", "a.lines").out
    write(scene / "torn.lines", (scene / "a.lines").read_bytes()[:-3])
    write(scene / "c.safetensors", encoded({"w": f32(1, 2), "u": f32(4)}))
    refusals = {
        ("a.safetensors", "torn.lines"): ["RootLineUnreadable"],
        ("c.safetensors", "a.lines"): ["RootLineOfOther"] * 3,
        ("a.safetensors", "gone.lines"): ["FileAbsent"],
    }
    for (base, lines), codes in refusals.items():
        called = call("weights", "diff", base, "b.safetensors", "--base-root", lines, "--json")
        assert (lines, called.code, called.codes()) == (lines, 1, codes)


def tensor(*numbers: float) -> Tensor:
    return Tensor("F32", (len(numbers),), numbers)


def pickled(folder: Path, weight_map: dict[str, str], **shards: dict[str, Tensor]) -> Path:
    for name, tensors in shards.items():
        write(folder / f"pytorch_model-{name}.bin", torch_file(tensors))
    named = {name: f"pytorch_model-{shard}.bin" for name, shard in weight_map.items()}
    write(folder / "pytorch_model.bin.index.json", json.dumps({"metadata": {}, "weight_map": named}).encode())
    return folder


def index_is_believed() -> AbstractContextManager[object]:
    return planted(opened_weights, "shard_defects", lambda listed, held, beside: ())()


@proven_by(index_is_believed)
def test_pickled_shards_are_compared_and_held_against_their_index(scene: Path, call: Caller) -> None:
    pickled(scene / "good", {"w": "1", "v": "2"}, **{"1": {"w": tensor(1, 2, 9)}, "2": {"v": tensor(4)}})
    document = call("weights", "diff", "a.safetensors", "good", "--json").document()
    assert {row["name"]: row["status"] for row in document["tensors"]} == {"w": "changed", "v": "equal"}
    assert document["rootless"] == {"a": None, "b": "pickled"}
    folder = pickled(
        scene / "bad",
        {"w": "1", "v": "2", "u": "3"},
        **{"1": {"other": tensor(1)}, "2": {"v": tensor(4)}, "extra": {"v": tensor(5)}},
    )
    found = call("weights", "diff", "a.safetensors", "bad", "--json")
    assert sorted(found.codes()) == ["ShardDisagrees", "ShardMissing", "TensorsInTwoShards"]
    told = {each["code"]: each for each in found.document()["defects"]}
    assert told["ShardMissing"]["file"] == "pytorch_model-3.bin"
    assert (told["ShardDisagrees"]["absent"], told["ShardDisagrees"]["unlisted"]) == (["w"], ["other"])
    partly = call("weights", "diff", "a.safetensors", "bad", "--partial", "--json").document()
    assert (partly["complete"], {row["name"]: row["status"] for row in partly["tensors"]}) == (
        False,
        {"w": "only_a", "v": "equal", "other": "only_b"},
    )
    write(folder / "pytorch_model.bin", torch_file({"w": tensor(1)}))
    assert call("weights", "diff", "a.safetensors", "bad", "--json").codes() == ["WeightsAmbiguous"]


def test_of_a_tensor_in_two_pickled_shards_the_index_says_which(scene: Path, call: Caller) -> None:
    pickled(scene / "twice", {"w": "2", "v": "1"}, **{"1": {"v": tensor(4), "w": tensor(7, 7, 7)}, "2": {"w": tensor(1, 2, 3)}})
    document = call("weights", "diff", "a.safetensors", "twice", "--partial", "--json").document()
    assert {row["name"]: row["status"] for row in document["tensors"]} == {"w": "equal", "v": "equal"}
    refused = call("weights", "diff", "a.safetensors", "twice", "--json")
    assert sorted(refused.codes()) == ["ShardDisagrees", "TensorsInTwoShards"]


def test_every_unreadable_shard_and_a_broken_index_are_named(scene: Path, call: Caller) -> None:
    folder = pickled(scene / "m", {"w": "1", "v": "2", "u": "3"}, **{"1": {"w": tensor(1)}})
    write(folder / "pytorch_model-2.bin", torch_file({"v": Global("os", "system", ("true",))}))
    write(folder / "pytorch_model-3.bin", b"no archive")
    codes = call("weights", "diff", "a.safetensors", "m", "--json").codes()
    assert codes == ["PickleUnreadable", "PickleUnreadable"]
    write(folder / "pytorch_model.bin.index.json", b"{}")
    assert call("weights", "diff", "a.safetensors", "m", "--json").codes() == ["DocumentUnreadable"]
    write(folder / "pytorch_model.bin.index.json", b'{"weight_map": {"w": "../x.bin"}}')
    assert call("weights", "diff", "a.safetensors", "m", "--json").codes() == ["DocumentUnreadable"]
