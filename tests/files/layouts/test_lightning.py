"""Lightning's single file: a clean one, each break alone, breaks together, and files that Lightning never wrote."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from countermark.files.archive import read_members
from countermark.files.checkpoints import list_checkpoints, read_checkpoint
from countermark.files.layouts import distributed, lightning, portions
from countermark.files.layouts.portions import Portions
from countermark.files.layouts.reading import LayoutReading, Parts, Whys
from countermark.files.reading import OpenFile, open_file
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    Atomic,
    CheckpointDefect,
    CheckpointReadback,
    Component,
    ComponentMissing,
    ComponentRead,
    ComponentStepMismatch,
    ComponentUnread,
    DataPositionMismatch,
    FileReading,
    PublicationIncomplete,
    StepWitness,
    WeightsOnlyCheckpoint,
    admit_checkpoint,
    admit_weights_only,
)
from countermark.values import Sha256
from tests.faults import planted, proven_by
from tests.files.layouts import dcps
from tests.files.layouts.breaking import GENERATORS, OPTIMIZER, POSITION, SCHEDULER, WEIGHTS, defects
from tests.files.layouts.lightnings import checkpoint, loops, optimizer, scheduler, values
from tests.files.torchfiles import Global, Tensor, archive, pickled, scalar, torch_file, zeros
from tests.recipe.examples import clean_manifest


def incomplete(*found: CheckpointDefect, marked: str = "") -> Counter[CheckpointDefect]:
    """These defects, and the publication that they speak against; ``marked`` is what the file itself says against it."""
    told: list[str] = []
    for component in Component:
        for defect in found:
            match defect:
                case ComponentMissing(one) if one is component:
                    told.append(f"{one} is missing")
                case ComponentUnread(one) if one is component and f"{one} is unreadable" not in told:
                    told.append(f"{one} is unreadable")
                case ComponentStepMismatch(one, step) if one is component:
                    told.append(f"{one} is of step {step}, not 4")
                case _:
                    pass
    return Counter([*found, PublicationIncomplete(((marked,) if marked else ()) + tuple(told))])


def digests(path: Path) -> dict[Component, str]:
    readback = read_checkpoint(path)
    assert isinstance(readback, CheckpointReadback)
    return {component: part.digest.hex for component, part in readback.components.items() if isinstance(part, ComponentRead)}


# ---------------------------------------------------------------------------------------------------------------- clean


def test_a_clean_file_is_admitted_for_its_directory_is_written_last(tmp_path: Path) -> None:
    readback = read_checkpoint(checkpoint(tmp_path))
    assert isinstance(readback, CheckpointReadback) and isinstance(readback.publication, Atomic) and readback.notes == ()
    admitted = admit_checkpoint(readback, clean_manifest(), frozenset())
    assert isinstance(admitted, AdmittedCheckpoint) and admitted.step == 4 and admitted.layout == "lightning" and not admitted.vouched


def test_each_component_is_a_portion_with_witnesses_of_its_own(tmp_path: Path) -> None:
    readback = read_checkpoint(checkpoint(tmp_path))
    assert isinstance(readback, CheckpointReadback)
    found = {}
    for component, part in readback.components.items():
        assert isinstance(part, ComponentRead)
        found[component] = (tuple(file.name for file in part.files), tuple((w.source, w.step) for w in part.steps), part.bytes)
    assert found == {
        WEIGHTS: (("hparams_name", "hyper_parameters", "pytorch-lightning_version", "state_dict"), (), 60),
        OPTIMIZER: (("optimizer_states",), (("optimizer_states[0]: step", 4),), 128),
        SCHEDULER: (("lr_schedulers",), (("lr_schedulers[0]: last_epoch", 4),), 0),
        GENERATORS: (("rng_state",), (), 8),
        POSITION: (("callbacks", "epoch", "global_step", "loops"), (("global_step", 4), ("loops: optimizer steps", 4)), 0),
    }
    assert (readback.step, readback.micro_batches, readback.epoch) == (4, 8, None)


CHANGED: list[tuple[dict[str, Any], Component]] = [
    ({"state_dict": {"body.weight": zeros(3, 4), "body.bias": Tensor("F32", (3,), (0.0, 0.0, 1.0))}}, WEIGHTS),
    ({"hyper_parameters": {"rate": 0.0003}}, WEIGHTS),
    ({"optimizer_states": [optimizer() | {"more": 1}]}, OPTIMIZER),
    ({"optimizer_states": [optimizer(lr=0.00011)]}, OPTIMIZER),
    ({"lr_schedulers": [scheduler() | {"_last_lr": [0.00012]}]}, SCHEDULER),
    ({"rng_state": values()["rng_state"] | {"torch": Tensor("U8", (8,), (2,) * 8)}}, GENERATORS),
    ({"loops": loops() | {"validate_loop": {}}}, POSITION),
    ({"epoch": 1}, POSITION),
    ({"callbacks": {}}, POSITION),
]


def of_the_name_alone(self: Portions, value: object, depth: int) -> bytes:
    return b"\0" * 32


@proven_by(planted(portions.Portions, "_digest", of_the_name_alone))
@pytest.mark.parametrize(("changes", "component"), CHANGED)
def test_a_change_moves_the_digest_of_its_component_and_of_no_other(tmp_path: Path, changes: dict[str, Any], component: Component) -> None:
    clean, changed = digests(checkpoint(tmp_path / "a")), digests(checkpoint(tmp_path / "b", **changes))
    assert {one for one in Component if clean[one] != changed[one]} == {component}


def test_what_has_no_component_of_its_own_belongs_to_the_data_position(tmp_path: Path) -> None:
    readback = read_checkpoint(checkpoint(tmp_path, MyDataModule={"order": [3, 1, 2]}))
    assert isinstance(readback, CheckpointReadback) and isinstance(found := readback.components[POSITION], ComponentRead)
    assert [file.name for file in found.files] == ["MyDataModule", "callbacks", "epoch", "global_step", "loops"]


def test_another_order_in_the_file_is_another_file_with_the_same_components(tmp_path: Path) -> None:
    clean = checkpoint(tmp_path)
    (tmp_path / "turned.ckpt").write_bytes(torch_file(dict(reversed(values().items()))))
    assert (tmp_path / "turned.ckpt").read_bytes() != clean.read_bytes() and digests(tmp_path / "turned.ckpt") == digests(clean)


def test_every_byte_of_every_storage_is_in_exactly_one_component(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    clean = digests(path)
    program, storages = pickled(values())
    owners = Counter()
    for key, data in storages.items():
        turned = {**storages, key: data[:-1] + bytes([data[-1] ^ 1])}
        members = {"data.pkl": program, "byteorder": b"little", **{f"data/{one}": content for one, content in turned.items()}}
        path.write_bytes(archive({f"archive/{name}": content for name, content in members.items()}))
        changed = digests(path)
        # A flipped step is no step: its component is unread, and no other one moves.
        moved = [one for one in Component if changed.get(one) != clean[one]]
        assert len(moved) == 1, key
        owners[moved[0]] += 1
    assert owners == {WEIGHTS: 2, OPTIMIZER: 6, GENERATORS: 1}


# -------------------------------------------------------------------------------------------------------------- missing

MISSING: list[tuple[dict[str, Any], Component]] = [
    ({"state_dict": None}, WEIGHTS),
    ({"optimizer_states": None}, OPTIMIZER),
    ({"optimizer_states": []}, OPTIMIZER),
    ({"lr_schedulers": None}, SCHEDULER),
    ({"rng_state": None}, GENERATORS),
    ({"loops": None}, POSITION),
]


@proven_by(planted(Parts, "done", lambda self: ComponentRead((), ())))
@pytest.mark.parametrize(("changes", "component"), MISSING)
def test_a_part_that_is_not_there_is_a_missing_component(tmp_path: Path, changes: dict[str, Any], component: Component) -> None:
    assert defects(checkpoint(tmp_path, **changes)) == incomplete(ComponentMissing(component))


def test_lightning_by_itself_keeps_no_generators_and_a_note_says_so(tmp_path: Path) -> None:
    readback = read_checkpoint(checkpoint(tmp_path, rng_state=None))
    assert isinstance(readback, CheckpointReadback) and len(readback.notes) == 1 and "under 'rng_state'" in readback.notes[0]


def test_what_was_saved_for_its_weights_alone_is_good_for_them(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, optimizer_states=None, lr_schedulers=None, rng_state=None)
    assert defects(path) == incomplete(ComponentMissing(OPTIMIZER), ComponentMissing(SCHEDULER), ComponentMissing(GENERATORS))
    assert isinstance(admit_weights_only(read_checkpoint(path)), WeightsOnlyCheckpoint)


def test_a_run_without_a_scheduler_has_its_empty_state(tmp_path: Path) -> None:
    assert defects(checkpoint(tmp_path, lr_schedulers=[], loops=loops(scheduled=0))) == Counter()


# ---------------------------------------------------------------------------------------------------------------- broken


def unread(component: Component, *whys: str) -> list[CheckpointDefect]:
    return [ComponentUnread(component, why) for why in whys]


BROKEN: list[tuple[dict[str, Any], list[CheckpointDefect]]] = [
    ({"state_dict": {}}, unread(WEIGHTS, "state_dict: it holds no tensor")),
    ({"optimizer_states": {"a": 1}}, unread(OPTIMIZER, "optimizer_states: it is no list of states")),
    ({"optimizer_states": [optimizer(), {}]}, unread(OPTIMIZER, "optimizer_states[1]: it is no state of an optimizer")),
    ({"lr_schedulers": [{}]}, unread(SCHEDULER, "lr_schedulers[0]: it is no state of a scheduler: it has no last_epoch")),
    ({"lr_schedulers": []}, unread(SCHEDULER, "lr_schedulers: they were stepped 0 times, and the trainer counted 4")),
    (
        {"lr_schedulers": [scheduler(3)]},
        unread(SCHEDULER, "lr_schedulers: they were stepped 3 times, and the trainer counted 4"),
    ),
    (
        {"rng_state": {"torch": 1, "numpy": 2}},
        unread(GENERATORS, *(f"rng_state: the state of {whose}'s generator is not in it" for whose in ("Python", "NumPy", "torch"))),
    ),
    (
        {"loops": {"fit_loop": {}}},
        unread(
            POSITION, "loops: they do not tell how many steps the optimizers took", "loops: they do not tell how many batches were taken"
        ),
    ),
    ({"global_step": "4"}, unread(POSITION, "global_step: it is no number of steps")),
]


@proven_by(planted(Parts, "refuse", lambda self, name, whys: None), planted(lightning, "whole_number", lambda value: 4))
def test_what_is_not_what_it_must_be_says_why(tmp_path: Path) -> None:
    found = {at: defects(checkpoint(tmp_path / str(at), **changes)) for at, (changes, _) in enumerate(BROKEN)}
    assert found == {at: incomplete(*expected) for at, (_, expected) in enumerate(BROKEN)}


LAGGING: dict[str, Any] = {"lr_schedulers": [scheduler(3)], "loops": loops(scheduled=3)}
STEPS: list[tuple[dict[str, Any], list[CheckpointDefect]]] = [
    ({"optimizer_states": [optimizer(8)]}, [ComponentStepMismatch(OPTIMIZER, 8)]),
    ({"lr_schedulers": [scheduler(8)], "loops": loops(scheduled=8)}, []),
    ({"global_step": 8, "optimizer_states": [optimizer(8)]}, [ComponentStepMismatch(OPTIMIZER, 8), ComponentStepMismatch(POSITION, 8)]),
    ({"loops": loops(step=8, scheduled=4)}, [ComponentStepMismatch(POSITION, 8)]),
    ({"optimizer_states": [optimizer(3), optimizer(1)]}, []),
    ({"optimizer_states": [optimizer(4), optimizer(1)]}, [ComponentStepMismatch(OPTIMIZER, 5)]),
    ({"optimizer_states": [optimizer(3)], **LAGGING}, [ComponentStepMismatch(OPTIMIZER, 3)]),
    (
        {"optimizer_states": [optimizer(8)], "loops": loops(step=8, scheduled=4)},
        [ComponentStepMismatch(OPTIMIZER, 8), ComponentStepMismatch(POSITION, 8)],
    ),
]


@proven_by(planted(lightning, "StepWitness", lambda source, step: StepWitness(source, 4)))
def test_a_component_of_another_step_is_named(tmp_path: Path) -> None:
    found = {at: defects(checkpoint(tmp_path / str(at), **changes)) for at, (changes, _) in enumerate(STEPS)}
    assert found == {at: incomplete(*expected) if expected else Counter() for at, (_, expected) in enumerate(STEPS)}


def test_a_scheduler_that_is_stepped_each_epoch_tells_no_step(tmp_path: Path) -> None:
    readback = read_checkpoint(checkpoint(tmp_path, lr_schedulers=[scheduler(2)], loops=loops(epochs=2, here=0, scheduled=2)))
    assert isinstance(readback, CheckpointReadback) and isinstance(found := readback.components[SCHEDULER], ComponentRead)
    # Four steps are two epochs of two each, and four batches of each were taken.
    assert found.steps == () and defects(tmp_path / "epoch=0-step=4.ckpt") == Counter()


def mixed(*steps: float) -> dict[str, Any]:
    """An optimizer whose tensors took these numbers of steps."""
    state = optimizer()
    for kept, step in zip(state["state"].values(), steps, strict=True):
        kept["step"] = scalar(step)
    return state


def test_of_several_optimizers_each_took_one_number_of_steps(tmp_path: Path) -> None:
    """Their steps add up only then: two at once are both named."""
    path = checkpoint(tmp_path, optimizer_states=[mixed(3, 2), optimizer(1), mixed(0, 1)])
    took = "its tensors took different numbers of steps"
    whys = tuple(f"optimizer_states[{at}]: {took}: {steps}" for at, steps in ((0, "2, 3"), (2, "0, 1")))
    assert defects(path) == incomplete(*unread(OPTIMIZER, *whys))


@pytest.mark.parametrize("plugin", lightning.SCALERS)
@proven_by(planted(lightning, "SCALERS", ("another",)))
def test_a_gradient_scaler_lets_the_optimizer_lag_behind_the_scheduler_and_is_a_part_of_it(tmp_path: Path, plugin: str) -> None:
    scaled = checkpoint(tmp_path, optimizer_states=[optimizer(3)], **{plugin: {"scale": 65536.0}})
    readback = read_checkpoint(scaled)
    assert isinstance(readback, CheckpointReadback) and readback.scaled
    assert isinstance(found := readback.components[OPTIMIZER], ComponentRead)
    assert [file.name for file in found.files] == [plugin, "optimizer_states"] and defects(scaled) == Counter()
    ahead = checkpoint(tmp_path / "ahead", optimizer_states=[optimizer(5)], **{plugin: {"scale": 65536.0}})
    assert defects(ahead) == incomplete(ComponentStepMismatch(OPTIMIZER, 5))


#: Batches that were taken, those of the epoch that runs, epochs that ended, whether this was the last batch of one; what is said of it.
TAKEN: list[tuple[int, int, int, bool, tuple[CheckpointDefect, ...]]] = [
    (8, 8, 0, False, ()),
    (7, 7, 0, True, ()),
    (7, 7, 0, False, (DataPositionMismatch(8, 7),)),
    (6, 0, 2, False, ()),
    (7, 0, 2, False, (DataPositionMismatch(8, 7),)),
    (9, 9, 0, False, (DataPositionMismatch(8, 9),)),
]


@proven_by(planted(lightning, "_epoch", lambda loop, taken: None))
def test_the_batches_that_were_taken_are_held_against_the_steps(tmp_path: Path) -> None:
    found = []
    for at, (taken, here, epochs, last, _) in enumerate(TAKEN):
        kept = loops(taken=taken, here=here, epochs=epochs)
        kept["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"] = last
        found.append(defects(checkpoint(tmp_path / str(at), loops=kept)))
    assert found == [Counter(expected) for *_, expected in TAKEN]


# ------------------------------------------------------------------------------------------------- cut, changing, hostile


def all_unread(path: Path, why: str) -> None:
    assert defects(path) == incomplete(*(ComponentUnread(one, why) for one in Component), marked="the file cannot be read")


def boundaries(path: Path) -> list[int]:
    """Where a writer can stop: in and around every part of the archive."""
    opened = open_file(path.parent, path.name)
    assert isinstance(opened, OpenFile)
    with opened:
        members = read_members(opened)
        assert not isinstance(members, tuple)
        edges = {edge for member in members.values() for edge in (member.begin, member.begin + member.size)}
        return sorted({at for edge in edges for at in (edge - 1, edge, edge + 1)} | set(range(opened.size - 100, opened.size)))


def whole(why: object) -> LayoutReading:
    portion = FileReading("x", Sha256("0" * 64), 0)
    return LayoutReading(publication=Atomic("x")).settle({component: Parts([portion]) for component in Component})


@proven_by(planted(lightning, "_refused", whole))
def test_no_proper_beginning_of_a_file_is_a_checkpoint(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    content = path.read_bytes()
    at_fault = []
    for size in boundaries(path):
        path.write_bytes(content[:size])
        readback = read_checkpoint(path)
        assert isinstance(readback, CheckpointReadback)
        if isinstance(readback.publication, Atomic) or any(isinstance(part, ComponentRead) for part in readback.components.values()):
            at_fault.append(size)
    assert at_fault == []


def test_a_file_that_was_cut_says_so_for_each_component(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    path.write_bytes(path.read_bytes()[:1500])
    all_unread(path, "it is cut: the directory at its end is missing")


def test_a_flipped_byte_is_seen_by_its_checksum(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    content = bytearray(path.read_bytes())
    content[content.index(b"\0" * 48) + 20] ^= 1
    path.write_bytes(content)
    assert {type(defect) for defect in defects(path)} == {ComponentUnread, PublicationIncomplete}
    assert len(defects(path)) == 6


def test_a_file_that_is_none_of_lightnings_is_no_checkpoint(tmp_path: Path) -> None:
    all_unread(checkpoint(tmp_path, version=None), "it is no checkpoint of Lightning: it has no pytorch-lightning_version")


def test_what_would_be_executed_is_named_and_nothing_is_read(tmp_path: Path) -> None:
    path = checkpoint(
        tmp_path, hyper_parameters={"a": Global("os", "system", ("touch /tmp/pwned",)), "b": Global("pathlib", "Path", ("x",))}
    )
    whys = {defect.why for defect in defects(path) if isinstance(defect, ComponentUnread)}
    assert whys == {f"its pickle names '{name}', which is not executed and not known" for name in ("os system", "pathlib Path")}


def test_a_value_that_holds_itself_or_is_too_deep_refuses_its_own_component(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert defects(checkpoint(tmp_path, hyper_parameters=deep)) == incomplete(
        ComponentUnread(WEIGHTS, "hyper_parameters: it is nested too deep")
    )
    file = Portions({})
    itself: list[object] = []
    itself.append(itself)
    assert file.portion("x", itself) == Whys(("it holds a value that holds itself",))


def test_what_is_named_again_and_again_is_refused_before_it_is_walked(tmp_path: Path) -> None:
    program, storages = pickled(values(hyper_parameters={"a": 77777}))
    # Forty lists, each of which names the one before it twice: written out, the last holds 2**41 numbers.
    named = (bytes([at]) for at in range(41))
    lists = b"](]K\x01aq\x00" + b"".join(b"]h" + at + b"ah" + at + b"aq" + bytes([at[0] + 1]) for at in named) + b"e"
    one = b"\x8a\x03" + (77777).to_bytes(3, "little")
    assert program.count(one) == 1
    members = {"data.pkl": program.replace(one, lists), "byteorder": b"little", **{f"data/{key}": data for key, data in storages.items()}}
    path = tmp_path / "step=4.ckpt"
    path.write_bytes(archive({f"archive/{name}": content for name, content in members.items()}))
    told = {defect.why for defect in defects(path) if isinstance(defect, ComponentUnread)}
    assert told == {"its values hold one another again and again, or too deep"}


@contextmanager
def written_over(path: Path) -> Iterator[None]:
    """Somebody writes to the file after it was read and before it is looked at again."""
    original = Portions.of

    def writing(opened: OpenFile, file: Any) -> Any:
        found = original(opened, file)
        os.utime(path, ns=(1, 1))
        return found

    with patch.object(portions.Portions, "of", writing):
        yield


def test_a_file_that_changes_while_it_is_read_is_of_no_digest(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    with written_over(path):
        found = defects(path)
    assert {defect.why for defect in found if isinstance(defect, ComponentUnread)} == {f"{path.name} changed while it was read"}
    assert not any(isinstance(defect, PublicationIncomplete) for defect in found)


# ---------------------------------------------------------------------------------------------------------------- names


def test_files_are_listed_by_their_steps(tmp_path: Path) -> None:
    for name in (
        "epoch=0-step=900.ckpt",
        "epoch=1-step=1000.ckpt",
        "step=20.ckpt",
        "last.ckpt",
        "epoch=1-step=1000-v1.ckpt",
        "tmpab12.ckpt",
    ):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "epoch=9-step=9000.ckpt").mkdir()
    listed = list_checkpoints(tmp_path)
    assert getattr(listed, "checkpoints", None) == ((20, "step=20.ckpt"), (900, "epoch=0-step=900.ckpt"), (1000, "epoch=1-step=1000.ckpt"))


def test_the_name_is_a_witness_and_another_name_takes_the_step_from_the_file(tmp_path: Path) -> None:
    assert defects(checkpoint(tmp_path, name="epoch=0-step=8.ckpt"))[ComponentStepMismatch(OPTIMIZER, 4)] == 1
    assert defects(checkpoint(tmp_path, name="last.ckpt")) == Counter()


@proven_by(planted(distributed, "LIGHTNINGS", "another.pt"))
def test_shards_are_read_and_what_lies_beside_them_is_said_not_to_be(tmp_path: Path) -> None:
    kept = {word: {trail: value for trail, value in dcps.saved().items() if word in trail} for word in ("model", "optimizer")}
    shards: dcps.Saved = {("model", *trail[2:]): value for trail, value in kept["model"].items()}
    shards |= {("optimizer_0", *trail[2:]): value for trail, value in kept["optimizer"].items()}
    folder = dcps.folder(tmp_path, "epoch=0-step=4.ckpt", shards)
    (folder / "meta.pt").write_bytes(torch_file(values(state_dict=None, optimizer_states=None)))
    readback = read_checkpoint(folder)
    assert isinstance(readback, CheckpointReadback) and readback.layout == "torch-dcp"
    assert [component for component, part in readback.components.items() if isinstance(part, ComponentRead)] == [WEIGHTS, OPTIMIZER]
    assert len(readback.notes) == 1 and readback.notes[0].startswith("meta.pt holds what Lightning keeps beside its shards")
