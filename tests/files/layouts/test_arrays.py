"""Indexes that name one range again and again, ranges that overlap, and names that are longer than what tells them: each is bounded."""

import json
import sys
import tracemalloc
from pathlib import Path

import pytest

from countermark.files.digest_cache import DigestCache, measured_with
from countermark.files.layouts import arrays, ocdbt
from countermark.files.layouts.arrays import Arrays, Leaf
from countermark.files.layouts.ocdbt import Database, Place, read_database
from countermark.files.layouts.reading import Parts, Whys
from countermark.run.checkpoint import ComponentUnread, PublicationIncomplete
from tests.faults import planted, proven_by
from tests.files.layouts.breaking import OPTIMIZER, WEIGHTS, defects, whys
from tests.files.layouts.orbaxes import block, checkpoint, inner, leaf, manifest, varint

SIZE = 4096


def hashed(folder: Path, places: dict[str, Place]) -> tuple[Arrays, int]:
    """The arrays of these places once they are hashed, and how many bytes were."""
    (folder / "data").write_bytes(b"".join(at.to_bytes(4, "big") for at in range(SIZE // 4)))
    found = Arrays(folder, "", places, True)
    with measured_with(cache := DigestCache(None), None):
        found.hash()
    return found, cache.hashed


def refused(found: Arrays) -> dict[str, str]:
    """Why values have no digest, by key."""
    return {key: digest for key, place in found.places.items() if isinstance(digest := found.digests[place], str)}


def at(begin: int, end: int) -> Place:
    return Place("data", begin, end - begin)


OVERLAP = "data: values of its index overlap there"
CLEAN = {"a": at(0, 1024), "b": at(1024, 2048), "nothing": at(512, 512), "c": at(2048, SIZE), "tied to a": at(0, 1024)}


def nothing_crosses(places: list[Place]) -> set[Place]:
    return set()


@proven_by(planted(arrays, "_crossing", nothing_crosses))
def test_each_byte_is_hashed_once_and_what_overlaps_is_refused(tmp_path: Path) -> None:
    clean, count = hashed(tmp_path, CLEAN)
    assert (refused(clean), count) == ({}, SIZE)
    assert clean.digests[CLEAN["a"]] == clean.digests[CLEAN["tied to a"]] != clean.digests[CLEAN["b"]]
    one, count = hashed(tmp_path, CLEAN | {"over": at(1000, 1100)})
    assert (refused(one), count) == (dict.fromkeys(("a", "b", "tied to a", "over"), OVERLAP), SIZE - 2048)
    two, count = hashed(tmp_path, CLEAN | {"over": at(1000, 1024), "more": at(4000, 5000)})
    beyond = "data ends before what its index says lies there"
    assert refused(two) == {**dict.fromkeys(("a", "tied to a", "over", "c"), OVERLAP), "more": beyond}
    assert count == 1024


@proven_by(planted(arrays, "_crossing", nothing_crosses))
def test_an_index_of_overlapping_ranges_costs_no_more_than_its_file(tmp_path: Path) -> None:
    """Of one long value others lie within, each from another byte on; what lies behind them all is read."""
    places = {f"{begin}": at(begin, SIZE - 2) for begin in range(2000)}
    within = {f"within {begin}": at(begin, begin + 1) for begin in range(2500, 3000)}
    found, count = hashed(tmp_path, places | within | {"behind": at(SIZE - 2, SIZE)})
    assert refused(found).keys() == {*places, *within} and count == 2


def test_two_components_in_one_range_are_refused_both_and_tied_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path, "ocdbt")
    read = read_database(folder, "state/")
    assert isinstance(read, Database)
    weights, moment = "params.body.kernel/0.0", "opt_state.0.mu.body.kernel/0.0"
    place = read.places[weights]
    monkeypatch.setattr(arrays, "read_database", lambda *given: read)
    read.places[moment] = place
    assert whys(folder, WEIGHTS) == whys(folder, OPTIMIZER) == ()
    read.places[moment] = Place(place.file, place.begin + 1, place.size - 1)
    assert whys(folder, WEIGHTS) == whys(folder, OPTIMIZER) == (f"{place.file}: values of its index overlap there",)
    assert {type(one) for one in defects(folder)} == {ComponentUnread, PublicationIncomplete}


# ------------------------------------------------------------------------------------------------- what an index may cost

LARGER = "its index is larger than any checkpoint needs"


def indexed(folder: Path, tree: bytes, height: int, child: bytes = b"") -> Database | tuple[str, ...]:
    """What is read of an index with this root, and a child before it."""
    (folder / "manifest.ocdbt").write_bytes(manifest(b"x", len(child), len(tree), height))
    (folder / "x").write_bytes(child + tree)
    found = read_database(folder, "")
    assert isinstance(found, Database | Whys)
    return found.texts if isinstance(found, Whys) else found


def long_names(count: int) -> bytes:
    """A leaf that names so many files, which share their first 4000 bytes with the first and have one byte of their own."""
    sizes, bases, text = varint(4000) + b"\x01" * (count - 1), bytes(count), b"n" * 4000 + b"m" * (count - 1)
    return block(0x0CDB20DE, b"\0" + varint(count) + varint(4000) * (count - 1) + sizes + bases + text + b"\0")


@proven_by(planted(ocdbt._Spent, "add", lambda self, count: None))
def test_an_index_costs_a_bounded_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocdbt, "INDEX_BYTES_MAX", 1 << 20)
    empty = leaf({})
    assert isinstance(indexed(tmp_path, inner(empty, 100), 1, empty), Database)
    assert indexed(tmp_path, inner(empty, 20_000), 1, empty) == (LARGER,)
    assert isinstance(indexed(tmp_path, long_names(100), 0), Database)
    assert indexed(tmp_path, long_names(400), 0) == (LARGER,)


@proven_by(planted(ocdbt._Spent, "add", lambda self, count: None))
def test_names_that_share_their_beginning_are_refused_before_they_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of 50 kB would name 40 MB."""
    monkeypatch.setattr(ocdbt, "INDEX_BYTES_MAX", 4 << 20)
    tracemalloc.start()
    try:
        indexed(tmp_path, long_names(10_000), 0)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------- what a tree asks


def asked(folder: Path, *shapes: int) -> list[tuple[str, ...]]:
    """Why each of the leaves of one array cannot be taken, which are told to be of so many chunks."""
    places = {f"{at}/.zarray": _described(chunks) for at, chunks in enumerate(shapes)} | {f"more {at}": at_once() for at in range(64)}
    found = Arrays(folder, "", places, False)
    found.hash()
    answers = []
    for at in range(len(shapes)):
        found.take(Leaf((str(at),), "jax.Array", None), parts := Parts())
        answers.append(tuple(parts.whys))
    return answers


def at_once() -> Place:
    return Place("", 0, 1, b"v")


def _described(chunks: int) -> Place:
    content = json.dumps({"shape": [chunks], "chunks": [1], "dtype": "<f4"}).encode()
    return Place("", 0, len(content), content)


#: As many chunks as the arrays of a tree may have here.
CHUNKS = 100


@proven_by(planted(sys.modules[__name__], "CHUNKS", 1 << 60))
def test_arrays_together_ask_for_a_bounded_number_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_CHUNKS_MAX", CHUNKS)
    assert asked(tmp_path, 60, 40) == [(), ()]
    assert asked(tmp_path, 60, 41) == [(), ("1: its tree asks for more chunks than any checkpoint has",)]
    alone, together = "1: it is of 80 chunks, and fewer values are there", "2: its tree asks for more chunks than any checkpoint has"
    assert asked(tmp_path, 60, 80, 41) == [(), (alone,), (together,)]
