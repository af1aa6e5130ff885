"""Folders of torch distributed checkpoints: a clean one of each kind, each break alone, breaks together, and hostile metadata."""

import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import list_checkpoints, read_checkpoint
from countermark.files.digest_cache import DigestCache
from countermark.files.layouts import dcp, distributed
from countermark.files.layouts.dcp_metadata import CHUNKS_WITHOUT_GRID_MAX, DEPTH_MAX, Metadata, metadata_of, read_metadata
from countermark.files.layouts.reading import Whys
from countermark.files.pickles import Call, Name
from countermark.files.reading import OpenFile, open_file
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    CheckpointAbsent,
    CheckpointDefect,
    CheckpointReadback,
    Component,
    ComponentForeign,
    ComponentMissing,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnread,
    ComponentUnreadable,
    Incomplete,
    PublicationIncomplete,
    PublicationUnobserved,
    WeightsOnlyCheckpoint,
    admit_checkpoint,
    admit_weights_only,
)
from countermark.weights.refusals import FileDefect
from tests.faults import planted, proven_by
from tests.files.layouts import breaking
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, WEIGHTS, defects, read, whys
from tests.files.layouts.dcps import OF, TOGETHER, Piece, Saved, folder, made, names, place, saved, size, titans
from tests.files.torchfiles import Global, Object
from tests.recipe.examples import clean_manifest

incomplete = partial(breaking.incomplete, 4)
State = dict[str, Any]


# ---------------------------------------------------------------------------------------------------------- clean


def test_a_clean_folder_is_admitted_and_nobody_has_to_vouch(tmp_path: Path) -> None:
    path = folder(tmp_path, "checkpoint-4", saved())
    admitted = admit_checkpoint(read_checkpoint(path), clean_manifest(), frozenset())
    assert isinstance(admitted, AdmittedCheckpoint), admitted
    assert (admitted.layout, admitted.step, admitted.vouched) == ("torch-dcp", 4, False)
    told = {
        component: tuple((w.source, w.step) for w in part.steps)
        for component, part in read(path).components.items()
        if isinstance(part, ComponentRead)
    }
    assert told == {
        WEIGHTS: (),
        OPTIMIZER: (("optimizer: step", 4),),
        SCHEDULER: (("scheduler: last_epoch", 4),),
        GENERATORS: (),
        POSITION: (("train_state.step", 4),),
    }


OF_TWO = ComponentForeign(POSITION, "it is the state of 2 workers, and one alone cannot go on from it")


def test_what_torchtitan_writes_lacks_the_generators_and_nothing_else(tmp_path: Path) -> None:
    path = folder(tmp_path, "step-4", titans())
    assert defects(path) == incomplete(ComponentMissing(GENERATORS)) + Counter([OF_TWO])
    assert read(path).layout == "torchtitan"
    assert isinstance(admit_weights_only(read_checkpoint(path)), WeightsOnlyCheckpoint)


def test_each_component_has_a_digest_of_its_own_in_files_that_they_share(tmp_path: Path) -> None:
    changed = saved() | {("scheduler", "last_epoch"): 5}
    first, second = read(folder(tmp_path / "a", "checkpoint-4", saved())), read(folder(tmp_path / "b", "checkpoint-4", changed))
    differing = {
        one
        for one in Component
        if isinstance(a := first.components[one], ComponentRead)
        and isinstance(b := second.components[one], ComponentRead)
        and a.digest != b.digest
    }
    assert differing == {SCHEDULER}


# --------------------------------------------------------------------------------------------------------- breaks

ALL = tuple(ComponentMissing(component) for component in Component)
IN_BOTH = (WEIGHTS, OPTIMIZER, SCHEDULER, GENERATORS)
OLDER = ".metadata is older than __0_1.distcp: it is of an earlier save that was written over, or a copy did not keep the times"
FEW = tuple(name for name in names() if "q_proj" in name)


def flip(path: Path) -> None:
    """One bit of the first weight's numbers."""
    content = bytearray((path / "__0_0.distcp").read_bytes())
    at = content.index(b"archive/data/0") + len(b"archive/data/0")
    content[at + 3] ^= 1
    (path / "__0_0.distcp").write_bytes(content)
    made(path / ".metadata", 1)


def longer(path: Path) -> None:
    with (path / "__0_0.distcp").open("ab") as file:
        file.write(b"123")
    made(path / ".metadata", 1)


def cut(path: Path) -> None:
    os.truncate(path / "__0_0.distcp", (path / "__0_0.distcp").stat().st_size - 1)
    made(path / ".metadata", 1)


def written_over(path: Path) -> None:
    os.utime(path / "__0_1.distcp", ns=(at := (path / ".metadata").stat().st_mtime_ns + 1, at))


def unlisted(path: Path, component: Component, why: str) -> ComponentUnread:
    return ComponentUnread(component, f"__0_0.distcp: {why}")


def test_a_save_that_was_killed_before_its_metadata_holds_nothing_that_can_be_found(tmp_path: Path) -> None:
    path = folder(tmp_path, "checkpoint-4", saved())
    (path / ".metadata").unlink()
    assert defects(path) == incomplete(*ALL, whys=(".metadata, which is written last, is not there",))


@proven_by(planted(dcp, "_publication", lambda here, metadata: dcp.Atomic("it looks whole")))
@pytest.mark.parametrize(
    ("touch", "expected"),
    [
        (written_over, PublicationIncomplete((OLDER,))),
        (
            lambda path: (path / ".metadata.tmp").touch(),
            PublicationIncomplete((".metadata.tmp is there: whoever wrote it had not finished",)),
        ),
        (
            lambda path: (path / "__2_0.distcp").touch(),
            PublicationUnobserved(("'__2_0.distcp' is of another save: the folder was not a fresh one",)),
        ),
        (
            lambda path: made(path / ".metadata", 0) or os.utime(path / "__0_1.distcp", ns=(1, 1)),
            PublicationUnobserved((".metadata and data have the very same time, so which was written last cannot be told",)),
        ),
    ],
)
def test_what_speaks_against_the_publication_alone(tmp_path: Path, touch: Callable[[Path], object], expected: CheckpointDefect) -> None:
    path = folder(tmp_path, "checkpoint-4", saved())
    touch(path)
    assert defects(path) == Counter([expected])


CHECKSUM = "'app.model.base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight': 'archive/data/0': its checksum is wrong"


@pytest.mark.parametrize(
    ("touch", "broken", "why"),
    [
        (flip, (WEIGHTS,), CHECKSUM),
        (longer, tuple(Component), "its last 3 bytes belong to nothing"),
    ],
)
def test_bytes_that_are_not_what_they_were(tmp_path: Path, touch: Callable[[Path], None], broken: tuple[Component, ...], why: str) -> None:
    path = folder(tmp_path, "checkpoint-4", saved())
    touch(path)
    assert defects(path) == incomplete(*(unlisted(path, one, why) for one in broken))


def test_a_file_that_was_cut_or_lost_concerns_every_component_in_it(tmp_path: Path) -> None:
    path = folder(tmp_path, "checkpoint-4", saved())
    cut(path)
    size = (path / "__0_0.distcp").stat().st_size
    why = f"it has {size} bytes and its pieces have {size + 1}"
    assert defects(path) == incomplete(*(unlisted(path, one, why) for one in Component))
    other = folder(tmp_path, "checkpoint-5", saved(step=5))
    (other / "__0_1.distcp").unlink()
    made(other / ".metadata", 1)
    assert defects(other) == incomplete(*(ComponentMissing(one) for one in IN_BOTH))


def in_one_place(state: State, written: list[Piece]) -> None:
    """Every piece is where the first of its file is, and as long."""
    for piece in written:
        piece.begin, piece.length = 0, len(written[0].content)
    state["storage_data"] = dict(place(piece) for piece in written)


@proven_by(planted(dcp._FileOfPieces, "uncovered", lambda self, size: None))
def test_pieces_that_lie_in_one_place_are_refused_and_none_of_them_is_hashed(tmp_path: Path) -> None:
    path = folder(tmp_path, "checkpoint-4", saved(), in_one_place)
    cache = DigestCache(None)
    readback = read_checkpoint(path, cache)
    assert isinstance(readback, CheckpointReadback)
    assert cache.hashed == (path / ".metadata").stat().st_size
    assert {one for one, part in readback.components.items() if "overlaps what lies before it" in str(part)} == set(Component)


def without(content: Saved, *trails: tuple[str | int, ...]) -> Saved:
    return {trail: value for trail, value in content.items() if not any(trail[: len(gone)] == gone for gone in trails)}


@proven_by(planted(distributed, "judge_optimizer", lambda found, reading: None))
def test_states_of_other_steps_and_of_other_tensors_are_told_together(tmp_path: Path) -> None:
    path = folder(tmp_path, "checkpoint-4", saved(step=8) | {trail: value for trail, value in saved().items() if trail[0] == "scheduler"})
    assert defects(path) == incomplete(ComponentStepMismatch(OPTIMIZER, 8), ComponentStepMismatch(POSITION, 8))
    foreign = folder(tmp_path / "foreign", "checkpoint-4", without(saved(targets=("q_proj", "k_proj")), ("rng",)))
    assert defects(foreign) == incomplete(
        ComponentMissing(GENERATORS), ComponentForeign(OPTIMIZER, "it steps 8 tensors and the weights hold 4")
    )


def test_every_worker_has_its_generators_and_its_place_in_the_data(tmp_path: Path) -> None:
    two = folder(tmp_path / "two", "checkpoint-4", saved(workers=2), files=TOGETHER)
    alone = ComponentForeign(GENERATORS, "it is the state of 2 workers, and one alone cannot go on from it")
    assert defects(two) == Counter([alone])
    one = folder(tmp_path, "checkpoint-4", without(saved(workers=2), ("rng", "rank_1")), files=TOGETHER)
    lost = ComponentUnread(GENERATORS, "the states of the generators of worker 1 of 2 are not in it")
    assert defects(one) == incomplete(lost)
    half = folder(
        tmp_path / "half", "checkpoint-4", without(saved(workers=2), ("rng", "rank_0", "numpy"), ("rng", "rank_1")), files=TOGETHER
    )
    assert whys(half, GENERATORS) == ("worker 0: the state of NumPy's generator is not in it", lost.why)
    loader = folder(tmp_path, "step-4", without(titans(), ("dataloader", "dp_rank_1")))
    nowhere = ComponentUnread(POSITION, "the data position of worker 1 of 2 is not in it")
    assert defects(loader) == incomplete(ComponentMissing(GENERATORS), nowhere)


@proven_by(planted(dcp, "writers", lambda names: len({name.partition("_0.")[0] for name in names})))
def test_a_worker_that_had_nothing_to_write_is_one_all_the_same(tmp_path: Path) -> None:
    """Whoever wrote the second of two files is the third of three: the generators of all three must be there."""
    path = folder(tmp_path, "checkpoint-4", without(saved(workers=3), ("rng", "rank_1")), files=("__0_0.distcp", "__2_0.distcp"))
    lost = ComponentUnread(GENERATORS, "the states of the generators of worker 1 of 3 are not in it")
    assert defects(path) == incomplete(lost)


def test_no_number_of_workers_is_counted_up_to(tmp_path: Path) -> None:
    content = without(titans(), ("dataloader", "world_size")) | {("dataloader", "world_size"): 2**52}
    content |= {("rng", "rank_0", "numpy"): 1}
    path = folder(tmp_path, "step-4", content, files=("__0_0.distcp", "__9999999_0.distcp"))
    found = [whys(path, one) for one in (GENERATORS, POSITION)]
    assert [len(texts) for texts in found] == [3 + 9, 9]
    assert found[0][-1] == "the states of the generators of 9999991 more of 10000000 workers are not in it"
    assert found[1][-1] == f"the data positions of {2**52 - 10} more of {2**52} workers are not in it"


def test_what_is_no_state_says_so(tmp_path: Path) -> None:
    content = without(saved(), ("scheduler", "last_epoch"), ("app", "optimizer", "param_groups"))
    path = folder(tmp_path, "checkpoint-4", content)
    assert defects(path) == incomplete(
        ComponentUnread(OPTIMIZER, "it is no state of an optimizer"),
        ComponentUnread(SCHEDULER, "it is no state of a scheduler: it has no last_epoch"),
    )


def test_the_highest_number_without_metadata_is_no_checkpoint_and_an_absent_one_no_fresh_start(tmp_path: Path) -> None:
    """Case O20."""
    folder(tmp_path, "step-10", titans(step=10))
    (folder(tmp_path, "step-20", titans(step=20)) / ".metadata").unlink()
    assert list_checkpoints(tmp_path) == type(list_checkpoints(tmp_path))(((10, "step-10"), (20, "step-20")), ())  # type: ignore[call-arg]
    assert defects(tmp_path / "step-10") == incomplete(ComponentMissing(GENERATORS)) + Counter([OF_TWO])
    assert defects(tmp_path / "step-20") == incomplete(*ALL, whys=(".metadata, which is written last, is not there",))
    assert defects(tmp_path / "step-30") == Counter([CheckpointAbsent(str(tmp_path / "step-30"), "nothing is there")])


# -------------------------------------------------------------------------------------------------------- hostile

FIRST = "app.model." + next(iter(names()))
STEP = "train_state.step"


def moved(**changes: object) -> Callable[[State, list[Piece]], object]:
    """Tell another place of the first piece."""

    def change(state: State, written: list[Piece]) -> None:
        index, info = place(written[0])
        assert isinstance(info, Object) and isinstance(info.state, dict)
        info.state.update(changes)
        at = next(iter(state["storage_data"]))
        state["storage_data"] = {index: info} | {key: value for key, value in state["storage_data"].items() if key is not at}

    return change


def chunked(shape: tuple[int, ...], *chunks: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[[State, list[Piece]], object]:
    """Tell other chunks of the first tensor, and bytes for each that is told."""

    def change(state: State, written: list[Piece]) -> None:
        listed = [Object(OF, "ChunkStorageMetadata", {"offsets": size(at), "sizes": size(sizes)}) for at, sizes in chunks]
        tensor = state["state_dict_metadata"][FIRST]
        tensor.state.update(size=size(shape), chunks=listed)
        rest = [place(piece) for piece in written if piece.key != FIRST]
        state["storage_data"] = dict([*(place(Piece(FIRST, at, None, "__0_0.distcp", b"")) for at, _ in chunks), *rest])

    return change


def lists(entry: object) -> Callable[[State, list[Piece]], object]:
    """Tell something else of the step."""
    return lambda state, written: state["state_dict_metadata"].update({STEP: entry})


GRIDLESS = [((row, row % 2 * 2), (1, 1 + row % 3)) for row in range(CHUNKS_WITHOUT_GRID_MAX + 1)]


NOWHERE = "it places something without a name, a file, or a place in it"
UNLISTED = f"'{STEP}' has bytes that it does not list"


@pytest.mark.parametrize(
    "told",
    [
        (
            moved(relative_path="../step-3/__0_0.distcp"),
            f"'{FIRST}' lies in '../step-3/__0_0.distcp', which is no data file of this folder",
        ),
        (moved(relative_path="/etc/passwd"), f"'{FIRST}' lies in '/etc/passwd', which is no data file of this folder"),
        (moved(relative_path=".metadata"), f"'{FIRST}' lies in '.metadata', which is no data file of this folder"),
        (moved(transform_descriptors=("zstd",)), f"'{FIRST}' was transformed by an extension when it was saved"),
        (moved(offset=-1), NOWHERE, f"'{FIRST}' has no bytes"),
        (moved(length=2**63), NOWHERE, f"'{FIRST}' has no bytes"),
        (moved(length=None), NOWHERE, f"'{FIRST}' has no bytes"),
        (lambda state, written: state["storage_data"].update([place(written[0])]), f"'{FIRST}' has bytes at two places"),
        (lambda state, written: state["state_dict_metadata"].pop(STEP), f"'{STEP}' has bytes that it does not list"),
        (lambda state, written: state["storage_data"].popitem(), f"'{STEP}' has no bytes"),
        (
            lambda state, written: state["state_dict_metadata"].update({STEP: 4}),
            "it lists something else than tensors and values by their names",
            UNLISTED,
        ),
        (
            lambda state, written: state["state_dict_metadata"].update({STEP: Object(OF, "StorageMeta", {})}),
            f"'{STEP}' is neither a tensor nor a value",
            UNLISTED,
        ),
        (lambda state, written: state.update(storage_data=None), "it is no metadata of a distributed checkpoint"),
        (lambda state, written: state.update(state_dict_metadata={}, storage_data={}), "it lists nothing at all"),
        (
            lambda state, written: state.update(version=Global("os", "system", ("true",))),
            "its pickle names 'os system', which is not executed and not known",
        ),
        (chunked((4, 6), ((0, 0), (4, 3))), f"'{FIRST}': its chunks do not cover it once"),
        (chunked((4, 6), ((0, 0), (4, 3)), ((0, 2), (4, 3))), f"'{FIRST}': its chunks do not cover it once"),
        (
            chunked((4, 6), ((0, 0), (4, 3)), ((0, 0), (4, 3))),
            f"'{FIRST}': two chunks lie at one place",
            f"'{FIRST}' has bytes at two places",
        ),
        (chunked((4, 6), ((0, 0), (4, 7))), f"'{FIRST}': a chunk reaches beyond it"),
        (chunked((2**60, 2**60), ((0, 0), (2**60, 2**59))), f"'{FIRST}': its chunks do not cover it once"),
        (chunked((CHUNKS_WITHOUT_GRID_MAX + 1, 6), *GRIDLESS), f"'{FIRST}': its chunks do not cover it once"),
        (chunked((4, 6), ((0,), (4,))), f"'{FIRST}' is neither a tensor nor a value", f"'{FIRST}' has bytes that it does not list"),
        (
            chunked((1,) * 65, ((0,) * 65, (1,) * 65)),
            f"'{FIRST}' is neither a tensor nor a value",
            f"'{FIRST}' has bytes that it does not list",
        ),
    ],
)
def test_metadata_that_is_not_true_is_refused_before_any_data_is_read(
    tmp_path: Path, told: tuple[Callable[[State, list[Piece]], object], *tuple[str, ...]]
) -> None:
    change, *whys = told
    path = folder(tmp_path, "checkpoint-4", saved(), change)
    readback = read(path)
    expected = ComponentUnreadable(tuple(why if ".metadata" in why else f".metadata: {why}" for why in whys))
    assert set(readback.components.values()) == {expected}
    assert isinstance(readback.publication, Incomplete)


def read_metadata_of(path: Path) -> Metadata | Whys | FileDefect:
    opened = open_file(path, ".metadata")
    assert isinstance(opened, OpenFile)
    with opened:
        return read_metadata(opened)


def test_chunks_in_no_grid_are_held_against_each_other(tmp_path: Path) -> None:
    """A tiling like bricks is none of a grid, and covers all the same; one more brick than is held against each other is refused."""
    bricks = [((0, 0), (1, 4)), ((0, 4), (1, 2)), ((1, 0), (1, 2)), ((1, 2), (1, 4)), ((2, 0), (2, 6))]
    covered = folder(tmp_path, "checkpoint-4", saved(), chunked((4, 6), *bricks))
    assert isinstance(whole := read_metadata_of(covered), Metadata) and whole.tensors[FIRST].shape == (4, 6)
    rows = 2 * CHUNKS_WITHOUT_GRID_MAX
    many = [((row, 0), (1, 1 + row % 2)) for row in range(rows)] + [((row, 1 + row % 2), (1, 2 - row % 2)) for row in range(rows)]
    found = read_metadata_of(folder(tmp_path, "checkpoint-5", saved(), chunked((rows, 3), *many)))
    assert found == Whys((f"'{FIRST}': its {2 * rows} chunks lie in no grid",))


def stub(of: str, **state: object) -> Call:
    return Call(Name(of if " " in of else f"{OF} {of}"), (), state)


def sizes(*numbers: int) -> Call:
    return Call(Name("torch Size"), (numbers,))


SHARED = 200_000
MANY = 3_000


@pytest.mark.parametrize("shared", ["chunks", "trail", "size", "name"])
def test_what_is_named_again_and_again_is_not_walked_each_time(shared: str) -> None:
    """A pickle takes two bytes to name a value once more: a list of many, named by many tensors."""
    properties = Call(Name(f"{OF} TensorProperties"), (), (Name("torch float32"),))
    chunk = stub("ChunkStorageMetadata", offsets=sizes(0), sizes=sizes(1))
    chunks: list[object] = [chunk] * (SHARED if shared == "chunks" else 1)
    whole = sizes(*[1] * SHARED) if shared == "size" else sizes(1)
    tensor = stub("TensorStorageMetadata", properties=properties, size=whole, chunks=chunks)
    names = [f"t{at}" + (".x" * SHARED if shared == "name" and not at else "") for at in range(MANY)]
    trail = ("x",) * (SHARED if shared == "trail" else 1)
    info = stub("torch.distributed.checkpoint.filesystem _StorageInfo", relative_path="__0_0.distcp", offset=0, length=1)
    value = stub(
        "Metadata",
        state_dict_metadata=dict.fromkeys(names, tensor),
        planner_data={} if shared == "name" else dict.fromkeys(names, trail),
        storage_data={stub("MetadataIndex", fqn=name, offset=sizes(0)): info for name in names},
    )
    start = time.process_time()
    found = metadata_of(value)
    assert time.process_time() - start < 2
    assert isinstance(found, Metadata) is (shared in {"trail", "name"})
    assert not isinstance(found, Metadata) or all(len(path) <= DEPTH_MAX for path in found.paths.values())


def test_every_reason_is_named_at_once(tmp_path: Path) -> None:
    def change(state: State, written: list[Piece]) -> None:
        moved(relative_path="../x.distcp")(state, written)
        state["state_dict_metadata"][STEP] = 4

    path = folder(tmp_path, "checkpoint-4", saved(), change)
    assert len(whys(path, WEIGHTS)) == 3


@proven_by(planted(dcp, "_kept", lambda table, trail, value: True))
def test_a_piece_must_be_what_is_listed(tmp_path: Path) -> None:
    """Another tensor's bytes, and two values at one place: the first is told by the weights, the second by the scheduler."""

    def change(state: State, written: list[Piece]) -> None:
        state["planner_data"]["scheduler.last_epoch"] = ("scheduler", "base_lrs")

    content = saved()
    path = folder(tmp_path, "checkpoint-4", content, change)
    found = whys(path, SCHEDULER)
    assert [why.partition(": ")[2] for why in found] == ["'scheduler.last_epoch': it stands where something else stands"]

    def swapped(state: State, written: list[Piece]) -> None:
        tensor = state["state_dict_metadata"][FIRST]
        tensor.state["properties"] = state["state_dict_metadata"][STEP].state["properties"]

    other = folder(tmp_path / "other", "checkpoint-4", content, swapped)
    assert whys(other, WEIGHTS) == tuple(
        f"{file}: '{FIRST}': it is not the tensor that is listed" for file in ("__0_0.distcp", "__0_1.distcp")
    )
