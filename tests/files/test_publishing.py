"""Publishing: whole or not at all, wherever it is stopped; and what a reader says of what was published."""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from countermark.files import publishing
from countermark.files.checkpoints import read_checkpoint
from countermark.files.layouts import published
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint, publish_output
from countermark.run import checkpoint as admission
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    AttemptNotMember,
    CheckpointDefect,
    Component,
    ComponentDigestMismatch,
    ComponentForeign,
    ComponentMissing,
    ComponentStepMismatch,
    ComponentUnread,
    DataPositionMismatch,
    Divergence,
    ManifestDiverges,
    PublicationIncomplete,
    PublicationUnobserved,
    admit_checkpoint,
)
from countermark.run.publication import FolderTaken, PublishedBefore
from countermark.values import NonEmpty, Refused
from countermark.weights.refusals import FileAbsent, FileNotRegular, LinkLeavesFolder
from tests.faults import planted, proven_by
from tests.files.folders import NONCE, WORK_KEY, adapter_bytes, checkpoint, optimizer
from tests.files.torchfiles import torch_file
from tests.recipe.examples import clean_manifest, clean_spellings

WEIGHTS, OPTIMIZER, SCHEDULER, GENERATORS, POSITION = Component


def publish(source: Path, parent: Path, **given: Any) -> PublishedCheckpoint | Refused[Any]:
    """Publish a folder as step 4 of the clean work, with changes."""
    arguments = {"step": 4, "attempt": NONCE, "work_key": WORK_KEY, "manifest": clean_spellings()} | given
    return publish_checkpoint(source, parent, **arguments)


@pytest.fixture
def step_4(tmp_path: Path) -> Path:
    """A clean published checkpoint."""
    answer = publish(checkpoint(tmp_path / "trainer"), tmp_path / "published")
    assert isinstance(answer, PublishedCheckpoint)
    return Path(answer.path)


def defects(folder: Path, members: frozenset[str] = frozenset({NONCE}), **changes: str) -> Counter[CheckpointDefect]:
    answer = admit_checkpoint(read_checkpoint(folder), clean_manifest(**changes), members)
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest inside a published checkpoint."""
    path = folder / "countermark.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document) + "\n")


def rewrite(folder: Path, content: bytes) -> None:
    (folder / "countermark.json").write_bytes(content)


# ------------------------------------------------------------------------------------------------------------ clean


def test_what_we_publish_is_admitted_without_vouching(step_4: Path, tmp_path: Path) -> None:
    admitted = admit_checkpoint(read_checkpoint(step_4), clean_manifest(), frozenset({NONCE}))
    assert isinstance(admitted, AdmittedCheckpoint)
    assert (admitted.step, admitted.attempt, admitted.vouched) == (4, NONCE, False)
    assert sorted(os.listdir(tmp_path / "published")) == ["step-4"]


def test_the_identity_that_publishing_gives_is_the_one_that_is_admitted(tmp_path: Path) -> None:
    answer = publish(checkpoint(tmp_path / "trainer"), tmp_path)
    assert isinstance(answer, PublishedCheckpoint)
    admitted = admit_checkpoint(read_checkpoint(Path(answer.path)), clean_manifest(), frozenset({NONCE}))
    assert isinstance(admitted, AdmittedCheckpoint) and admitted.identity == answer.identity


def test_every_file_is_copied_and_none_is_linked(step_4: Path, tmp_path: Path) -> None:
    source = tmp_path / "trainer" / "checkpoint-4"
    assert {entry.name for entry in step_4.iterdir()} == {entry.name for entry in source.iterdir()} | {"countermark.json"}
    for entry in source.iterdir():
        assert (step_4 / entry.name).read_bytes() == entry.read_bytes()
        assert entry.stat().st_nlink == (step_4 / entry.name).stat().st_nlink == 1


def test_the_manifest_says_what_the_format_says(step_4: Path) -> None:
    document = json.loads((step_4 / "countermark.json").read_text())
    assert list(document) == [
        "kind", "countermark", "attempt", "workKey", "step", "layout", "components", "position", "otherFiles", "manifest",
    ]  # fmt: skip
    assert list(document["components"]) == [component.value for component in Component]
    for part in document["components"].values():
        assert list(part) == ["digest", "bytes", "step", "attempt", "files"] and (part["step"], part["attempt"]) == (4, NONCE)
    assert sorted(document["otherFiles"]) == ["README.md", "training_args.bin"]
    assert document["manifest"] == clean_spellings() and list(document["manifest"]) == list(clean_spellings())
    assert document["position"] == {"is": "uncounted"}


# ------------------------------------------------------------------------------------------------- read back, broken


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@proven_by(planted(admission, "_component_defects", lambda readback, component: ()))
@pytest.mark.parametrize(
    ("file", "component"),
    [("adapter_model.safetensors", WEIGHTS), ("adapter_config.json", WEIGHTS), ("trainer_state.json", POSITION)],
)
def test_a_byte_that_flipped_is_a_digest_mismatch_alone(step_4: Path, file: str, component: Component) -> None:
    content = (step_4 / file).read_bytes()
    if file.endswith(".json"):
        (step_4 / file).write_bytes(content.replace(b": ", b" :", 1))
    else:
        flip(step_4 / file, len(content) - 1)
    assert defects(step_4) == Counter([ComponentDigestMismatch(component)])


def test_a_byte_that_flipped_in_a_torch_file_is_unread_by_its_checksum(step_4: Path) -> None:
    content = (step_4 / "optimizer.pt").read_bytes()
    flip(step_4 / "optimizer.pt", content.index(b"archive/data/1") + len(b"archive/data/1") + 3)
    assert defects(step_4) == Counter(
        [
            ComponentUnread(OPTIMIZER, "optimizer.pt: 'archive/data/1': its checksum is wrong"),
            PublicationIncomplete(("optimizer_state is unreadable",)),
        ]
    )


def test_another_attempts_weights_written_over_are_seen(step_4: Path) -> None:
    (step_4 / "adapter_model.safetensors").write_bytes(adapter_bytes(fill=7))
    (step_4 / "optimizer.pt").write_bytes(torch_file(optimizer(step=4, lr=0.5)))
    assert defects(step_4) == Counter([ComponentDigestMismatch(WEIGHTS), ComponentDigestMismatch(OPTIMIZER)])


def test_weights_of_another_step_are_seen_though_nothing_in_them_says_so(step_4: Path) -> None:
    """Step-8 weights beside step-4 state: only the digest can know."""
    (step_4 / "adapter_model.safetensors").write_bytes(adapter_bytes(fill=8))
    assert defects(step_4) == Counter([ComponentDigestMismatch(WEIGHTS)])


@proven_by(planted(admission, "_membership", lambda readback, members: ()))
def test_a_checkpoint_of_another_run_is_no_member(step_4: Path) -> None:
    assert defects(step_4, frozenset({"f" * 32})) == Counter([AttemptNotMember(NONCE)])


@proven_by(planted(admission, "_divergences", lambda readback, desired: ()))
@pytest.mark.parametrize(
    ("coordinate", "desired"),
    [("gradient_accumulation", "1"), ("seed", "18"), ("dataset", "sha256:" + "a" * 64), ("max_grad_norm", "2")],
)
def test_what_no_artifact_shows_is_still_declared(step_4: Path, coordinate: str, desired: str) -> None:
    found = Divergence(coordinate, desired, clean_spellings()[coordinate], "its manifest")
    assert defects(step_4, **{coordinate: desired}) == Counter([ManifestDiverges((found,))])


def test_several_declared_coordinates_are_named_at_once(step_4: Path) -> None:
    (found,) = defects(step_4, seed="18", gradient_accumulation="4", packing="bfd")
    assert isinstance(found, ManifestDiverges) and found.coordinates == ("seed", "packing", "gradient_accumulation")


def test_everything_at_once(step_4: Path) -> None:
    (step_4 / "adapter_model.safetensors").write_bytes(adapter_bytes(fill=7))
    (step_4 / "rng_state.pth").unlink()
    found = defects(step_4, frozenset(), seed="18")
    assert found == Counter(
        [
            ComponentDigestMismatch(WEIGHTS),
            ComponentMissing(GENERATORS),
            PublicationIncomplete(("rng_state is missing",)),
            AttemptNotMember(NONCE),
            ManifestDiverges((Divergence("seed", "18", "17", "its manifest"),)),
        ]
    )


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda f: (f / "scaler2.pt").touch(), "'scaler2.pt' is not in countermark.json"),
        (lambda f: (f / "README.md").unlink(), "'README.md' is listed in countermark.json and not there"),
        (lambda f: (f / "README.md").write_text("x"), "'README.md' is not the file that was published"),
        (lambda f: edit(f, lambda m: m.pop("step")), "countermark.json is unreadable: Object missing required field `step`"),
        (lambda f: edit(f, lambda m: m.update(more=1)), "countermark.json is unreadable: Object contains unknown field `more`"),
        (lambda f: edit(f, lambda m: m["components"].pop("rng_state")), "countermark.json is unreadable: it has no rng_state"),
        (
            lambda f: edit(f, lambda m: m.update(layout="no-such")),
            "countermark.json is of layout 'no-such', the files are those of transformers-peft",
        ),
        (
            lambda f: edit(f, lambda m: m["components"]["rng_state"].update(digest="sha256:" + "0" * 64, step=5)),
            "countermark.json is unreadable: the digest of rng_state is not that of its files; rng_state is of step 5, the checkpoint of 4",
        ),
        (
            lambda f: edit(f, lambda m: m["components"]["rng_state"].update(attempt="f" * 32)),
            f"countermark.json is unreadable: rng_state is of attempt {'f' * 32}, the checkpoint of {NONCE}",
        ),
        (
            lambda f: edit(f, lambda m: m["otherFiles"].update({"../x": m["otherFiles"]["README.md"]})),
            "countermark.json is unreadable: a file's name is no plain name",
        ),
        (
            lambda f: (f / "countermark.json").write_bytes(b'{"step":4,"step":8}'),
            "countermark.json is unreadable: 'step' stands twice in one object",
        ),
        (
            lambda f: (f / "countermark.json").write_bytes(b""),
            "countermark.json is unreadable: it is not JSON: Expecting value at line 1, column 1",
        ),
    ],
)
def test_a_folder_that_is_not_its_manifest_is_incomplete(step_4: Path, break_it: Callable[[Path], object], why: str) -> None:
    break_it(step_4)
    assert defects(step_4) == Counter([PublicationIncomplete((why,))])


def test_without_its_manifest_it_is_a_trainers_folder_like_any_other(step_4: Path) -> None:
    (step_4 / "countermark.json").unlink()
    assert defects(step_4) == Counter([PublicationUnobserved(("its trainer writes in place, file after file",))])


def test_a_step_folder_that_was_renamed_to_another_step_is_incomplete(step_4: Path) -> None:
    renamed = step_4.rename(step_4.with_name("step-8"))
    assert defects(renamed) == Counter([PublicationIncomplete(("countermark.json is of step 4, the folder is called 'step-8'",))])


def test_a_copy_under_another_name_is_unobserved(step_4: Path) -> None:
    renamed = step_4.rename(step_4.with_name("backup"))
    assert defects(renamed) == Counter([PublicationUnobserved(("it was published as step-4 and is called 'backup' now",))])


# --------------------------------------------------------------------------------------------------- data position


@proven_by(planted(admission, "_data_position", lambda readback, desired: ()))
def test_a_position_counted_in_steps_is_refused(tmp_path: Path) -> None:
    answer = publish(checkpoint(tmp_path / "t"), tmp_path, micro_batches=4)
    assert isinstance(answer, PublishedCheckpoint)
    assert defects(Path(answer.path)) == Counter([DataPositionMismatch(expected=8, found=4)])


def test_a_position_counted_in_micro_batches_is_admitted(tmp_path: Path) -> None:
    answer = publish(checkpoint(tmp_path / "t"), tmp_path, micro_batches=8)
    assert isinstance(answer, PublishedCheckpoint) and defects(Path(answer.path)) == Counter()


# -------------------------------------------------------------------------------------------------- refused, nothing left


def refused(answer: object) -> set[object]:
    assert isinstance(answer, Refused)
    return set(answer.defects)


@proven_by(planted(publishing, "component_defects", lambda readback: ()))
def test_a_torn_folder_is_not_published_and_every_reason_is_named(tmp_path: Path) -> None:
    torn = checkpoint(tmp_path / "t", optimizer_pt=None, rng_state_pth=b"x", scheduler_pt=None)
    assert refused(publish_or_crash(torn, tmp_path / "p")) == {
        ComponentMissing(OPTIMIZER),
        ComponentMissing(SCHEDULER),
        ComponentUnread(GENERATORS, "rng_state.pth: it is too short for an archive"),
    }
    assert list((tmp_path / "p").iterdir()) == []


def publish_or_crash(source: Path, parent: Path) -> object:
    """Publishing must refuse; whatever else happens in its place is not a refusal."""
    try:
        return publish(source, parent)
    except Exception as error:
        return error


def test_a_folder_of_another_step_is_not_published_as_this_one(tmp_path: Path) -> None:
    answer = publish(checkpoint(tmp_path / "t", 8), tmp_path / "p")
    assert refused(answer) == {ComponentStepMismatch(component, 8) for component in (OPTIMIZER, SCHEDULER, POSITION)}


def test_a_foreign_optimizer_is_not_published(tmp_path: Path) -> None:
    foreign = torch_file(optimizer(targets=("q_proj",)))
    answer = publish(checkpoint(tmp_path / "t", optimizer_pt=foreign), tmp_path / "p")
    assert refused(answer) == {ComponentForeign(OPTIMIZER, "it steps 4 tensors and the weights hold 8")}


@proven_by(planted(publishing, "rename_new", lambda source, target: bool(source.rename(target))))
def test_a_step_is_never_published_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish(checkpoint(tmp_path / "t"), tmp_path / "p")
    assert isinstance(first, PublishedCheckpoint)
    before = (Path(first.path) / "countermark.json").read_bytes()
    again = checkpoint(tmp_path / "t2", adapter_model_safetensors=adapter_bytes(fill=1))
    # The early look is taken away: what must hold is the rename.
    monkeypatch.setattr(publishing.os.path, "lexists", lambda path: False)
    try:
        answer: object = publish(again, tmp_path / "p")
    except OSError as error:
        answer = error
    monkeypatch.undo()
    assert answer == Refused(NonEmpty(FolderTaken(first.path)))
    assert (Path(first.path) / "countermark.json").read_bytes() == before and os.listdir(tmp_path / "p") == ["step-4"]


def test_what_is_published_already_is_not_published_again_under_another_attempt(step_4: Path, tmp_path: Path) -> None:
    assert publish(step_4, tmp_path / "q") == Refused(NonEmpty(PublishedBefore(str(step_4))))


def test_a_source_with_something_else_than_files_is_not_published(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "t")
    (source / "below").mkdir()
    os.mkfifo(source / "below" / "extra")
    (source / "out").symlink_to("/etc/hostname")
    assert refused(publish(source, tmp_path / "p")) == {FileNotRegular("below/extra", "a pipe"), LinkLeavesFolder("out")}


def test_folders_below_are_published_and_held_against_the_manifest(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "t")
    (source / "runs" / "one").mkdir(parents=True)
    (source / "runs" / "one" / "events").write_bytes(b"x")
    (source / "empty").mkdir()
    answer = publish(source, tmp_path / "p")
    assert isinstance(answer, PublishedCheckpoint)
    published = Path(answer.path)
    assert (published / "empty").is_dir() and defects(published) == Counter()
    (published / "runs" / "one" / "events").write_bytes(b"y")
    (published / "runs" / "two").write_bytes(b"")
    whys = ("'runs/two' is not in countermark.json", "'runs/one/events' is not the file that was published")
    assert defects(published) == Counter([PublicationIncomplete(whys)])


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    assert publish(tmp_path / "none", tmp_path / "p") == Refused(NonEmpty(FileAbsent(str(tmp_path / "none"))))
    assert list((tmp_path / "p").iterdir()) == []


def test_a_manifest_that_could_not_be_read_back_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(published.msgspec.ValidationError):
        publish(checkpoint(tmp_path / "t"), tmp_path / "p", attempt="not a nonce")
    assert list((tmp_path / "p").iterdir()) == []


# ------------------------------------------------------------------------------------------------------------ outputs


def test_an_output_is_published_with_its_folders(tmp_path: Path) -> None:
    source = tmp_path / "out"
    (source / "runs" / "one").mkdir(parents=True)
    (source / "model.safetensors").write_bytes(adapter_bytes())
    (source / "runs" / "one" / "events").write_bytes(b"x")
    assert publish_output(source, tmp_path / "place" / "output") == tmp_path / "place" / "output"
    assert (tmp_path / "place/output/runs/one/events").read_bytes() == b"x"
    assert os.listdir(tmp_path / "place") == ["output"]


def test_an_output_never_replaces_another(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "a")
    (tmp_path / "output").mkdir()
    assert publish_output(source, tmp_path / "output") == Refused(NonEmpty(FolderTaken(str(tmp_path / "output"))))
    assert list((tmp_path / "output").iterdir()) == []


@pytest.mark.parametrize("rename", [publishing.rename_new, publishing._rename_checked])
@pytest.mark.parametrize("taken", ["folder", "file", "dangling link"])
def test_a_rename_never_replaces(tmp_path: Path, rename: Callable[[Path, Path], bool], taken: str) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "file").touch()
    {"folder": target.mkdir, "file": target.touch, "dangling link": lambda: target.symlink_to("nowhere")}[taken]()
    assert rename(source, target) is False
    assert source.exists() and rename(source, tmp_path / "free") is True and (tmp_path / "free" / "file").exists()
