"""Weights read side by side: rows, digests and numbers, whatever the blocks, and never a number from a file that changed."""

import hashlib
import json
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from countermark.files import comparing, opened_weights
from countermark.files.comparing import compare
from countermark.files.opened_weights import OpenedWeights, open_weights
from countermark.files.reading import OpenFile
from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights.difference import TensorDifference
from countermark.weights.pairing import pair
from countermark.weights.refusals import FileChanged, ShardDisagrees, ShardMissing, TensorsInTwoShards, WeightsEmpty
from tests.faults import planted, proven_by
from tests.files.tensors import Tensor, encoded, f32, write


def opened(path: Path, *, partial: bool = False) -> OpenedWeights:
    found = open_weights(path, partial=partial)
    assert isinstance(found, OpenedWeights), found
    return found


@contextmanager
def sides(folder: Path, a: dict[str, Tensor], b: dict[str, Tensor]) -> Iterator[tuple[OpenedWeights, OpenedWeights]]:
    paths = (write(folder / "a.safetensors", encoded(a)), write(folder / "b.safetensors", encoded(b)))
    with opened(paths[0]) as left, opened(paths[1]) as right:
        yield left, right


def rows_of(left: OpenedWeights, right: OpenedWeights, **more: object) -> dict[str, TensorDifference]:
    pairing = pair(*(tuple(one.span for one in side.tensors.values()) for side in (left, right)))
    found = compare(left, right, pairing, **more)  # type: ignore[arg-type]
    assert not isinstance(found, Refused), found
    return {row.name: row for row in found}


def digest(tensor: Tensor) -> Sha256:
    return Sha256(hashlib.sha256(tensor[2]).hexdigest())


def many(count: int, seed: int = 1) -> Tensor:
    chance = random.Random(seed)
    return f32(*(chance.gauss(0, 1) for _ in range(count)))


def edited(tensor: Tensor, *places: int) -> Tensor:
    dtype, shape, data = tensor
    changed = bytearray(data)
    for place in places:
        changed[4 * place : 4 * place + 4] = struct.pack("<f", 7.5)
    return dtype, shape, bytes(changed)


def hash_of_b_from_the_difference_on() -> AbstractContextManager[object]:
    """B's hash leaves out what was equal before the first difference."""
    return planted(comparing, "_hash_of", lambda one, size, job: hashlib.sha256())()


def equal_part_left_out_of_the_norms() -> AbstractContextManager[object]:
    """The blocks before the first difference never reach the norms: the reading of them gives nothing."""
    real = comparing._Buffers.filled

    def filled(self: comparing._Buffers, a: object, b: object, *rest: object) -> object:
        left, right = real(self, a, b, *rest)  # type: ignore[arg-type]
        return (left[:0], right[:0]) if a is b else (left, right)

    return planted(comparing._Buffers, "filled", filled)()


@proven_by(equal_part_left_out_of_the_norms)
@pytest.mark.parametrize("block", [3, 64, 500])
def test_digests_and_numbers_do_not_depend_on_the_blocks(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "BLOCK_ELEMENTS", block)
    before = many(1000)
    after = edited(before, 700, 701, 999)
    with sides(tmp_path, {"w": before, "same": before}, {"w": after, "same": before}) as (left, right):
        rows = rows_of(left, right)
    row = rows["w"]
    assert (row.status, row.a and row.a.sha256, row.b and row.b.sha256) == ("changed", digest(before), digest(after))
    assert rows["same"] == TensorDifference("equal", rows["same"].a, rows["same"].b)
    assert rows["same"].a is not None
    assert rows["same"].a.sha256 == digest(before)
    numbers = row.numbers
    assert numbers is not None
    old, new = (struct.unpack("<1000f", each[2]) for each in (before, after))
    expected = sum((float(new[at]) - float(old[at])) ** 2 for at in (700, 701, 999)) ** 0.5
    whole = sum(float(value) ** 2 for value in old) ** 0.5
    assert (numbers.changed, numbers.value_changed) == (3, 3)
    assert numbers.l2 == pytest.approx(expected, rel=1e-12)
    assert numbers.norm_a == pytest.approx(whole, rel=1e-12)


@proven_by(hash_of_b_from_the_difference_on)
def test_known_digests_of_a_stand_in_for_hashing_and_equal_tensors_inherit_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "BLOCK_ELEMENTS", 16)
    before, known = many(100), Sha256("ab" * 32)
    with sides(tmp_path, {"same": before, "w": before}, {"same": before, "w": edited(before, 50)}) as (left, right):
        rows = rows_of(left, right, known={"same": known, "w": known})
    assert [side and side.sha256 for side in (rows["same"].a, rows["same"].b)] == [known, known]
    assert [side and side.sha256 for side in (rows["w"].a, rows["w"].b)] == [known, digest(edited(before, 50))]


def looked_at_item_by_item() -> AbstractContextManager[object]:
    """Two equal blocks are taken for different ones, and looked into."""
    return planted(comparing._Buffers, "equal", lambda self, size: False)()


@proven_by(looked_at_item_by_item)
def test_equal_bytes_are_read_once_a_side_hashed_once_for_both_and_not_at_all_where_one_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "BLOCK_ELEMENTS", 16)
    one, other = many(100), many(60, seed=2)
    after = edited(other, 40)
    read, hashed = list[int](), list[int]()
    real = comparing._fill

    class Counting:
        def __init__(self, real: "hashlib._Hash | None" = None) -> None:
            self._real = real or hashlib.sha256()

        def update(self, data: memoryview) -> None:
            hashed.append(len(data))
            self._real.update(data)

        def copy(self) -> "Counting":
            return Counting(self._real.copy())

        def hexdigest(self) -> str:
            return self._real.hexdigest()

    class Hashes:
        sha256 = Counting

    def counted(file: OpenFile, buffer: memoryview, begin: int) -> None:
        read.append(len(buffer))
        real(file, buffer, begin)

    monkeypatch.setattr(comparing, "_fill", counted)
    monkeypatch.setattr(comparing, "hashlib", Hashes)
    costs: list[tuple[int, int]] = []
    with sides(tmp_path, {"same": one, "w": other}, {"same": one, "w": after}) as (left, right):
        for known in ({}, {"same": digest(one), "w": digest(other)}):
            read.clear()
            hashed.clear()
            assert {name: row.status for name, row in rows_of(left, right, known=known).items()} == {"same": "equal", "w": "changed"}
            costs.append((sum(read), sum(hashed)))
    # What is equal before the first difference (32 numbers) is read again for the norms, and for B's hash where no hash of A was made.
    equal, once = 4 * 32, 2 * 400 + 2 * 240
    assert costs == [(once + equal, 400 + equal + 2 * (240 - equal)), (once + 2 * equal, 240)]


def test_casts_common_rows_and_lonely_tensors_have_rows_of_their_own(tmp_path: Path) -> None:
    half: Tensor = ("F16", [3], struct.pack("<3e", 1, 2, 3))
    grown: Tensor = ("F32", [3, 1], f32(1, 9, 3)[2])
    a = {"cast": half, "grown": ("F32", [2, 1], f32(1, 2)[2]), "only a": f32(1), "other": ("F32", [2, 2], f32(1, 2, 3, 4)[2])}
    b = {"cast": f32(1, 2, 4), "grown": grown, "only b": f32(2), "other": ("F32", [4], f32(1, 2, 3, 4)[2])}
    with sides(tmp_path, a, b) as (left, right):
        rows = rows_of(left, right)
    assert {name: row.status for name, row in rows.items()} == {
        "cast": "cast", "grown": "reshaped", "only a": "only_a", "only b": "only_b", "other": "reshaped",
    }  # fmt: skip
    cast, grown_row = rows["cast"], rows["grown"]
    assert cast.numbers is not None
    assert (cast.numbers.changed, cast.numbers.value_changed, cast.numbers.l2) == (None, 1, 1.0)
    assert grown_row.common is not None
    assert (grown_row.common.rows, grown_row.common.changed) == (2, 1)
    assert rows["other"].common is None
    assert [side and side.sha256 for side in (grown_row.a, grown_row.b)] == [digest(a["grown"]), digest(b["grown"])]


@contextmanager
def short_reads_taken_for_whole() -> Iterator[None]:
    """A read that gives nothing is taken for zeros, and nobody looks again."""
    with planted(comparing, "_fill", lambda file, buffer, begin: None)(), never_looked_again():
        yield


@proven_by(short_reads_taken_for_whole)
def test_a_file_cut_while_it_is_read_gives_a_defect_and_no_number(tmp_path: Path) -> None:
    before = many(500)
    with sides(tmp_path, {"w": before, "v": before}, {"w": before, "v": before}) as (left, right):
        os.truncate(tmp_path / "b.safetensors", 200)
        found = compare(left, right, pair(*(tuple(one.span for one in side.tensors.values()) for side in (left, right))))
    assert found == Refused(NonEmpty(FileChanged("b.safetensors")))


def never_looked_again() -> AbstractContextManager[object]:
    """Files are not looked at once more when all is read."""
    return planted(opened_weights.OpenedWeights, "changed", lambda self: ())()


@proven_by(never_looked_again)
def test_files_that_are_others_afterwards_are_all_named(tmp_path: Path) -> None:
    before = many(10)
    with sides(tmp_path, {"w": before}, {"w": before}) as (left, right):
        for name in ("a.safetensors", "b.safetensors"):
            os.utime(tmp_path / name, ns=(1, 1))
        found = compare(left, right, pair(*(tuple(one.span for one in side.tensors.values()) for side in (left, right))))
    assert found == Refused(NonEmpty(FileChanged("a.safetensors"), (FileChanged("b.safetensors"),)))


class Enough(Exception):
    """What a person's interruption looks like to the reading."""


def nobody_looks_whether_to_stop() -> AbstractContextManager[object]:
    """The threads go on to the end of what they have."""
    return planted(comparing._Job, "advance", lambda self, count: None)()


@proven_by(nobody_looks_whether_to_stop)
def test_an_interruption_ends_the_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "BLOCK_ELEMENTS", 16)
    before = many(20_000)
    told: list[tuple[int, int]] = []
    read: list[int] = []
    real = comparing._fill

    def counted(file: OpenFile, buffer: memoryview, begin: int) -> None:
        read.append(len(buffer))
        time.sleep(0.001)
        real(file, buffer, begin)

    def interrupt(done: int, total: int) -> None:
        told.append((done, total))
        # Nothing more is read from here on, but for the block that each thread holds.
        read.clear()
        raise Enough

    monkeypatch.setattr(comparing, "_fill", counted)
    with sides(tmp_path, {"w": before, "v": before}, {"w": before, "v": before}) as (left, right), pytest.raises(Enough):
        rows_of(left, right, progress=interrupt)
    assert len(told) == 1
    assert told[0][1] == 4 * len(before[2])
    assert len(read) < 100 < 4 * len(before[2]) // 64


def test_progress_never_goes_past_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "BLOCK_ELEMENTS", 64)
    before = many(5000)
    told: list[tuple[int, int]] = []
    with sides(tmp_path, {"w": before}, {"w": edited(before, 4999)}) as (left, right):
        rows_of(left, right, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (2 * len(before[2]), 2 * len(before[2]))
    assert all(done <= total for done, total in told)


def test_memory_does_not_grow_with_the_tensors(tmp_path: Path) -> None:
    size = 48 << 20
    peaks: list[int] = []
    for count in (size, 2 * size):
        zeros: Tensor = ("U8", [count], bytes(count))
        other: Tensor = ("U8", [count], bytes(count - 1) + b"\1")
        with sides(tmp_path, {"w": zeros}, {"w": other}) as (left, right):
            del zeros, other
            tracemalloc.start()
            rows_of(left, right)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert max(peaks) < 64 << 20
    assert peaks[1] < 1.2 * peaks[0]


# --------------------------------------------------------------------------------------------------------------- opening


def shards(folder: Path) -> Path:
    """An index of three shards, one of them missing, one that lacks what the index says, and a stray file that holds a tensor again."""
    names = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
    write(folder / names[0], encoded({"a.weight": f32(1)}))
    write(folder / names[1], encoded({"other": f32(2)}))
    write(folder / "extra.safetensors", encoded({"a.weight": f32(3)}))
    weight_map = {"a.weight": names[0], "b.weight": names[1], "c.weight": names[2]}
    write(folder / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": weight_map}).encode())
    return folder


def first_defect_alone() -> AbstractContextManager[object]:
    """A refusal keeps only the first defect."""
    return planted(opened_weights, "Refused", lambda defects: Refused(NonEmpty(defects.first)))()


def kinds(found: object) -> set[type]:
    assert isinstance(found, Refused), found
    return {type(defect) for defect in found.defects}


@proven_by(first_defect_alone)
def test_every_defect_of_a_sharded_folder_is_named_at_once(tmp_path: Path) -> None:
    assert kinds(open_weights(shards(tmp_path))) == {ShardMissing, ShardDisagrees, TensorsInTwoShards}


def test_partial_opens_what_exists_and_lists_what_it_left_out(tmp_path: Path) -> None:
    with opened(shards(tmp_path), partial=True) as found:
        assert {type(defect) for defect in found.left_out} == {ShardMissing, ShardDisagrees, TensorsInTwoShards}
        assert sorted(found.tensors) == ["a.weight", "other"]
        assert found.tensors["a.weight"].file.name == "model-00001-of-00003.safetensors"


def test_partial_excuses_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", encoded({}))
    assert kinds(open_weights(tmp_path, partial=True)) == {WeightsEmpty}
