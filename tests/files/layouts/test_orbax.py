"""Orbax's folders: recorded ones, each break alone, breaks together, how they were published, and indexes that Orbax never wrote."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import list_checkpoints
from countermark.files.layouts import arrays, ocdbt, orbax
from countermark.files.layouts.ocdbt import Database, Place, crc32c, read_database
from countermark.files.layouts.reading import Whys
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    Atomic,
    CheckpointDefect,
    Component,
    ComponentForeign,
    ComponentMissing,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnread,
    Incomplete,
    PublicationIncomplete,
    Unobserved,
    admit_checkpoint,
)
from countermark.values import Sha256
from tests.faults import planted, proven_by
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, WEIGHTS, defects, read
from tests.files.layouts.orbaxes import KINDS, block, checkpoint, leaf, manifest, number, put
from tests.recipe.examples import clean_manifest


def beside_publication(path: Path) -> Counter[CheckpointDefect]:
    """Everything that admission says against a folder, apart from its publication where that follows from the rest."""
    found = defects(path)
    assert found
    assert sum(found.pop(one) for one in list(found) if isinstance(one, PublicationIncomplete)) <= 1
    return found


def digests(path: Path) -> dict[Component, str]:
    return {component: part.digest.hex for component, part in read(path).components.items() if isinstance(part, ComponentRead)}


# ---------------------------------------------------------------------------------------------------------------- clean


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_folder_is_admitted_for_its_commit_was_recorded(tmp_path: Path, kind: str) -> None:
    readback = read(checkpoint(tmp_path, kind))
    assert isinstance(readback.publication, Atomic) and readback.step == 4
    assert (readback.model_shapes, readback.optimizer_shapes, readback.optimizer_parameters) == (((3,), (40, 16)), ((3,), (40, 16)), 2)
    admitted = admit_checkpoint(readback, clean_manifest(), frozenset())
    assert isinstance(admitted, AdmittedCheckpoint) and admitted.layout == "orbax" and not admitted.vouched


@pytest.mark.parametrize("kind", KINDS)
def test_each_component_has_its_arrays_and_the_steps_that_they_tell(tmp_path: Path, kind: str) -> None:
    found = {}
    for component, part in read(checkpoint(tmp_path, kind)).components.items():
        assert isinstance(part, ComponentRead)
        found[component] = (tuple(file.name for file in part.files), {w.source for w in part.steps})
        assert {w.step for w in part.steps} == {4}
    of_state, moments = "state/commit_success.txt", [f"state/opt_state.0.{m}.body.{n}" for m in ("mu", "nu") for n in ("bias", "kernel")]
    # What zarr 3 puts into shards is hashed, and its numbers are not read.
    counts = () if kind == "zarr3" else ("state/opt_state.0.count", "state/opt_state.1.count", "state/step")
    assert found == {
        WEIGHTS: (("state/params.body.bias", "state/params.body.kernel"), {of_state}),
        OPTIMIZER: (("state/opt_state.0.count", *moments), {of_state, *counts[:1]}),
        SCHEDULER: (("state/opt_state.1.count",), {of_state, *counts[1:2]}),
        GENERATORS: (("rng/jax_random_key/checkpoint", "rng/jax_random_key_metadata/metadata"), {"rng/commit_success.txt"}),
        POSITION: (("data/metadata", "state/step"), {of_state, "data/commit_success.txt", "data/metadata: step", *counts[2:]}),
    }


@proven_by(planted(arrays, "hash_parts", lambda opened, parts: tuple(Sha256("0" * 64) for _ in parts)))
def test_a_change_in_the_data_of_one_component_moves_its_digest_alone_also_in_a_database(tmp_path: Path) -> None:
    clean = digests(checkpoint(tmp_path, "ocdbt"))
    database = read_database(tmp_path / "4", "state/")
    assert isinstance(database, Database)
    moved = {}
    for key in ("params.body.kernel/0.0", "opt_state.0.mu.body.kernel/0.0"):
        place = database.places[key]
        content = bytearray((tmp_path / "4" / place.file).read_bytes())
        content[place.begin + 100] ^= 1
        put(tmp_path / "4", place.file, bytes(content))
        changed = digests(tmp_path / "4")
        moved[key] = {one for one in Component if changed[one] != clean[one]}
        content[place.begin + 100] ^= 1
        put(tmp_path / "4", place.file, bytes(content))
    assert moved == {"params.body.kernel/0.0": {WEIGHTS}, "opt_state.0.mu.body.kernel/0.0": {OPTIMIZER}}


def test_the_same_arrays_have_the_same_digests_in_a_database_and_in_folders(tmp_path: Path) -> None:
    one, other = digests(checkpoint(tmp_path / "a", "ocdbt")), digests(checkpoint(tmp_path / "b", "zarr"))
    assert one == other


# --------------------------------------------------------------------------------------------------------------- broken


def gone(*names: str) -> Callable[[Path], None]:
    return lambda folder: [put(folder, name, None) for name in names] and None


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: put(folder, name, content)


def without_item(name: str) -> Callable[[Path], None]:
    return lambda folder: shutil.rmtree(folder / name)


def without_leaves(words: tuple[str, ...]) -> Callable[[Path], None]:
    """Leaves whose names hold one of these words are no longer listed."""

    def change(folder: Path) -> None:
        tree = json.loads((folder / "state/_METADATA").read_text())
        tree["tree_metadata"] = {key: leaf for key, leaf in tree["tree_metadata"].items() if not any(f"'{word}'" in key for word in words)}
        put(folder, "state/_METADATA", json.dumps(tree).encode())

    return change


TWO = "it is not JSON: Extra data at line 1, column 4"
BROKEN: list[tuple[list[Callable[[Path], None]], list[CheckpointDefect]]] = [
    ([gone("state/params.body.kernel/0.0")], [ComponentMissing(WEIGHTS)]),
    ([gone("state/params.body.kernel/.zarray")], [ComponentUnread(WEIGHTS, "state/params.body.kernel: it is not there")]),
    ([gone("state/opt_state.0.mu.body.bias/0")], [ComponentMissing(OPTIMIZER)]),
    ([without_item("rng")], [ComponentMissing(GENERATORS)]),
    ([without_item("data"), without_leaves(("step",))], [ComponentMissing(POSITION)]),
    ([written("data/metadata", b"{} {}")], [ComponentUnread(POSITION, f"data/metadata: {TWO}")]),
    ([written("state/step/0", number(8, 8))], [ComponentStepMismatch(POSITION, 8)]),
    ([written("state/opt_state.0.count/0", number(8, 4))], [ComponentStepMismatch(OPTIMIZER, 8)]),
    ([written("state/opt_state.1.count/0", number(8, 4))], [ComponentStepMismatch(SCHEDULER, 8)]),
    (
        [written("state/step/0", number(8, 8)), gone("state/params.body.bias/0")],
        [ComponentStepMismatch(POSITION, 8), ComponentMissing(WEIGHTS)],
    ),
    (
        [written("state/opt_state.0.count/0", number(8, 4)), without_item("rng")],
        [ComponentStepMismatch(OPTIMIZER, 8), ComponentMissing(GENERATORS)],
    ),
    ([without_leaves(("params",))], [ComponentMissing(WEIGHTS)]),
    ([without_leaves(("opt_state",))], [ComponentMissing(OPTIMIZER), ComponentMissing(SCHEDULER)]),
    (
        [lambda folder: without_leaves(("bias",))(folder), lambda folder: rename_leaf(folder, "params", "other")],
        [ComponentForeign(OPTIMIZER, "it steps 1 tensors and the weights hold 0")],
    ),
]


def rename_leaf(folder: Path, of: str, name: str) -> None:
    """The kernel of the weights is called by another name than the optimizer's."""
    tree = (folder / "state/_METADATA").read_text()
    parsed = json.loads(tree)
    for one in parsed["tree_metadata"].values():
        keys = one["key_metadata"]
        if keys[0]["key"] == of:
            keys[1]["key"] = name
    put(folder, "state/_METADATA", json.dumps(parsed).encode())
    (folder / "state/params.body.kernel").rename(folder / f"state/params.{name}.kernel")


@proven_by(
    planted(orbax.Arrays, "number", lambda self, leaf: 4),
    planted(orbax, "_judge_shapes", lambda reading, components: None),
    planted(orbax.Arrays, "take", lambda self, leaf, parts: None),
)
def test_what_is_broken_is_named_and_nothing_else(tmp_path: Path) -> None:
    found = []
    for at, (changes, _) in enumerate(BROKEN):
        folder = checkpoint(tmp_path / str(at))
        for change in changes:
            change(folder)
        found.append(beside_publication(folder))
    assert found == [Counter(expected) for _, expected in BROKEN]


def test_an_item_of_another_checkpoint_tells_by_its_own_record(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    record = "Checkpoint commit was successful to /runs/a/zarr/8.orbax-checkpoint-tmp/state"
    put(folder, "state/commit_success.txt", record.encode())
    assert beside_publication(folder) == Counter(ComponentStepMismatch(one, 8) for one in (WEIGHTS, OPTIMIZER, SCHEDULER, POSITION))


def test_counts_of_an_optimizer_that_gathers_steps_tell_nothing(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    put(folder, "state/opt_state.0.count/0", number(2, 4))
    tree = json.loads((folder / "state/_METADATA").read_text())
    tree["tree_metadata"]["('opt_state', '1', 'count')"]["key_metadata"][2]["key"] = "mini_step"
    put(folder, "state/_METADATA", json.dumps(tree).encode())
    (folder / "state/opt_state.1.count").rename(folder / "state/opt_state.1.mini_step")
    assert beside_publication(folder) == Counter([ComponentMissing(SCHEDULER)])


def test_a_worker_whose_position_is_not_there_is_missed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    (folder / "data/metadata").rename(folder / "data/process_1-of-2.json")
    assert beside_publication(folder) == Counter([ComponentMissing(POSITION)])


# ---------------------------------------------------------------------------------------------------------- publication


def younger(folder: Path) -> None:
    last = (folder / "commit_success.txt").stat().st_mtime_ns
    os.utime(folder / "state/step/0", ns=(last + 1, last + 1))


def uncommitted(folder: Path) -> None:
    metadata = json.loads((folder / "_CHECKPOINT_METADATA").read_text())
    put(folder, "_CHECKPOINT_METADATA", json.dumps(metadata | {"commit_timestamp_nsecs": None}).encode())
    put(folder, "commit_success.txt", None)


def as_a_file(folder: Path) -> None:
    put(folder, "commit_success.txt", None)
    for path in folder.rglob("*"):
        os.utime(path, ns=(1, 1))


def listing(folder: Path) -> None:
    metadata = json.loads((folder / "_CHECKPOINT_METADATA").read_text())
    metadata["item_handlers"]["more"] = "x"
    put(folder, "_CHECKPOINT_METADATA", json.dumps(metadata).encode())


PUBLISHED: list[tuple[str, Callable[[Path], None], type, str]] = [
    ("4", lambda folder: None, Atomic, "its commit is recorded in commit_success.txt"),
    ("4", as_a_file, Atomic, "its commit is recorded in _CHECKPOINT_METADATA"),
    ("4", uncommitted, Incomplete, "nothing records that its writer had finished"),
    ("4", younger, Unobserved, "'state/step/0' is younger than the record of its commit, commit_success.txt"),
    ("4", lambda folder: (folder / "more.orbax-checkpoint-tmp").mkdir(), Incomplete, "'more.orbax-checkpoint-tmp' is still being written"),
    ("4", listing, Incomplete, "item 'more' is listed and not there"),
    ("4.orbax-checkpoint-tmp", lambda folder: None, Incomplete, "its name '4.orbax-checkpoint-tmp' says that it is still being written"),
    ("4.orbax-checkpoint-tmp-17", uncommitted, Incomplete, "its name '4.orbax-checkpoint-tmp-17' says that it is still being written"),
    ("kept-by-hand", lambda folder: None, Unobserved, "it was committed as '4' and is called 'kept-by-hand' now"),
]


@proven_by(planted(orbax, "_publication", lambda folder, metadata: Atomic("its commit is recorded in commit_success.txt")))
def test_what_proves_or_disproves_that_the_writer_had_finished(tmp_path: Path) -> None:
    found = []
    for at, (name, change, _, _) in enumerate(PUBLISHED):
        folder = checkpoint(tmp_path / str(at), name=name)
        change(folder)
        publication = read(folder).publication
        told = publication.receipt.partition(",")[0] if isinstance(publication, Atomic) else publication.whys[0]
        found.append((type(publication), told))
    assert found == [(kind, told) for _, _, kind, told in PUBLISHED]


def test_folders_are_listed_by_their_numbers_and_unfinished_ones_are_none(tmp_path: Path) -> None:
    for name in ("900", "1000", "1000.orbax-checkpoint-tmp", "007", "step_20"):
        (tmp_path / name).mkdir()
    assert getattr(list_checkpoints(tmp_path), "checkpoints", None) == ((20, "step_20"), (900, "900"), (1000, "1000"))


# -------------------------------------------------------------------------------------------------------------- database


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@proven_by(planted(ocdbt, "crc32c", lambda content: 0))
def test_any_change_to_the_index_leaves_nothing_of_it_readable(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "ocdbt")
    assert isinstance(read_database(folder, "state/"), Database)
    names = ["state/manifest.ocdbt", f"state/d/{next((folder / 'state/d').iterdir()).name}"]
    for name in names:
        content = (folder / name).read_bytes()
        for at in range(0, len(content), 7):
            put(folder, name, content[:at] + bytes([content[at] ^ 64]) + content[at + 1 :])
            assert isinstance(read_database(folder, "state/"), Whys), (name, at)
            put(folder, name, content[:at])
            assert isinstance(read_database(folder, "state/"), Whys), (name, at)
        put(folder, name, content)


def test_data_that_is_gone_or_cut_is_named_for_each_component_that_it_is_of(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "ocdbt")
    database = read_database(folder, "state/")
    assert isinstance(database, Database)
    of = {key: database.places[key].file for key in ("params.body.kernel/0.0", "opt_state.0.mu.body.kernel/0.0")}
    content = {name: (folder / name).read_bytes() for name in of.values()}
    put(folder, of["params.body.kernel/0.0"], None)
    assert beside_publication(folder) == Counter([ComponentMissing(WEIGHTS), ComponentMissing(OPTIMIZER)])
    (folder / of["params.body.kernel/0.0"]).write_bytes(content[of["params.body.kernel/0.0"]][:200])
    why = f"{of['params.body.kernel/0.0']} ends before what its index says lies there"
    assert beside_publication(folder) == Counter([ComponentUnread(WEIGHTS, why), ComponentUnread(OPTIMIZER, why)])


HOSTILE: list[tuple[bytes, bytes, str]] = [
    (manifest(b"../x", 0, 30), b"", "'../x' is in a folder and cannot be read as what is asked for"),
    (manifest(b"x", 200, 30), b"", "x ends before a block of its index"),
    (manifest(b"x", 0, 21, 1), leaf({}), "a block of its index stands where another one belongs"),
    (manifest(b"x", 0, 24), leaf({b"k": b"v"}), "a block of its index has 24 bytes, not 26"),
    (block(0x0CDB3A2A, bytes(16) + b"\x01"), b"", "its manifest is kept in several files"),
    (block(0x0CDB3A2A, bytes(16) + b"\0\x01\x01\x04\0" + b"\xff" * 11), b"", "a number of its index is too long"),
    (block(0x0CDB3A2A, bytes(16) + b"\0\x01\x01\x04\0" + b"\xff\xff\xff\xff\x0f"), b"", "its index ends too early"),
    (b"", b"", "a block of its index is none"),
]


def test_an_index_that_nobody_wrote_is_an_answer(tmp_path: Path) -> None:
    for content, data, told in HOSTILE:
        (tmp_path / "manifest.ocdbt").write_bytes(content)
        (tmp_path / "x").write_bytes(data)
        found = read_database(tmp_path, "")
        assert found == Whys((told,))
    entries = {b"k": b"v", b"l": b""}
    data = leaf(entries)
    (tmp_path / "manifest.ocdbt").write_bytes(manifest(b"x", 0, len(data)))
    (tmp_path / "x").write_bytes(data)
    found = read_database(tmp_path, "")
    assert isinstance(found, Database) and found.places == {"k": Place("", 0, 1, b"v"), "l": Place("", 0, 0, b"")}


def leaves_of_any_kind(tree: Mapping[str, object]) -> Iterator[arrays.Leaf]:
    """What does not say what it is is taken for something that is no array."""
    return (replace(leaf, kind=leaf.kind or "other") for leaf in arrays.leaves(tree))


LEAVES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no names": lambda leaf: {**leaf, "key_metadata": None},
    "a part without a name": lambda leaf: {**leaf, "key_metadata": [*leaf["key_metadata"], {"key_type": 2}]},
    "a part that is none": lambda leaf: {**leaf, "key_metadata": [*leaf["key_metadata"], "count"]},
    "no value": lambda leaf: {"key_metadata": leaf["key_metadata"]},
    "no kind of value": lambda leaf: {**leaf, "value_metadata": {"write_shape": []}},
    "a number for a kind": lambda leaf: {**leaf, "value_metadata": {"value_type": 4}},
    "no leaf": lambda leaf: "leaf",
}


@proven_by(planted(orbax, "leaves", leaves_of_any_kind))
def test_a_leaf_that_does_not_say_what_it_is_speaks_against_the_whole(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    document = json.loads((folder / "state/_METADATA").read_text())
    first = next(iter(document["tree_metadata"]))
    told = {}
    for what, change in LEAVES.items():
        leaves = {**document["tree_metadata"], first: change(document["tree_metadata"][first])}
        put(folder, "state/_METADATA", json.dumps({**document, "tree_metadata": leaves}).encode())
        told[what] = read(folder).publication
    why = "state/_METADATA lists something of which it does not say what it is"
    assert told == dict.fromkeys(LEAVES, Incomplete((why,)))
    put(folder, "state/_METADATA", json.dumps(document).encode())
    assert isinstance(read(folder).publication, Atomic)
