"""Checkpoints and weights that lie anywhere, and publishing a trainer's own folder by hand."""

from pathlib import Path

import pytest

from countermark.app import inspect
from countermark.app.inspect import inspect_checkpoints, publish_checkpoint
from countermark.app.rooting import weights_root
from countermark.files.checkpoints import read_checkpoint
from countermark.files.desired import Desired, encode_desired
from countermark.files.digest_cache import DigestCache
from countermark.files.measuring import MeasuredForm
from countermark.files.publishing import PublishedCheckpoint
from countermark.lines.checkpoint import Inspected, Inspection
from countermark.lines.defects import known, sentence
from countermark.lines.surface import AttemptUnnamed
from countermark.run.checkpoint import AdmittedCheckpoint, CheckpointAbsent, CheckpointReadback, SoundCheckpoint, WeightsOnlyCheckpoint
from countermark.values import Refused
from countermark.weights.refusals import DocumentUnreadable
from tests.faults import planted, proven_by
from tests.files.folders import NONCE, WORK_KEY, checkpoint, files
from tests.files.tensors import encoded, f32, write
from tests.recipe.examples import clean_manifest, clean_recipe_text


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """An attempt's folder with what the launcher wrote there, and a trainer's checkpoints in its scratch folder."""
    folder = tmp_path / "attempts" / NONCE
    write(folder / "claim.json", b"{}")
    write(folder / "manifest.json", encode_desired(Desired(NONCE, WORK_KEY, clean_manifest(), {}, {})))
    for step in (4, 8, 12):
        checkpoint(folder / "work", step)
    (folder / "work" / "checkpoint-12" / "optimizer.pt").unlink()
    return folder


def looked_at(*paths: str, target: str | None = None, vouched: bool = False) -> tuple[Inspected, ...]:
    """What was seen at each path."""
    return inspected(inspect_checkpoints(paths, target, vouched, None))


def inspected(found: object) -> tuple[Inspected, ...]:
    assert isinstance(found, Inspection)
    return found.checkpoints


def names(answer: object) -> list[str]:
    assert isinstance(answer, Refused), answer
    assert all(sentence(defect).message for defect in known(answer.defects))
    return [type(defect).__name__ for defect in answer.defects]


def test_a_trainers_checkpoint_is_published_as_its_attempts_and_a_torn_one_is_not(attempt: Path) -> None:
    done = publish_checkpoint(str(attempt / "work" / "checkpoint-4"), None)
    assert isinstance(done, PublishedCheckpoint) and done.path == str(attempt / "checkpoints" / "step-4")
    readback = read_checkpoint(Path(done.path))
    assert isinstance(readback, CheckpointReadback) and (readback.attempt, readback.work_key) == (NONCE, WORK_KEY)
    assert names(publish_checkpoint(str(attempt / "work" / "checkpoint-4"), None)) == ["FolderTaken"]
    assert names(publish_checkpoint(str(attempt / "work" / "checkpoint-12"), None)) == ["ComponentMissing"]
    elsewhere = publish_checkpoint(str(attempt / "work" / "checkpoint-8"), str(attempt.parent / "kept"))
    assert isinstance(elsewhere, PublishedCheckpoint) and elsewhere.path == str(attempt.parent / "kept" / "step-8")
    assert sorted(path.name for path in (attempt / "checkpoints").iterdir()) == ["step-4"]


def test_a_checkpoint_whose_name_says_no_step_is_published_as_what_its_files_tell(attempt: Path) -> None:
    for name, step, *changed in (("newest", 8), ("older", 4, 8)):
        folder = checkpoint(attempt / "other", step).rename(attempt / "other" / name)
        for other in changed:
            (folder / "scheduler.pt").write_bytes(files(other)["scheduler.pt"])
    done = publish_checkpoint(str(attempt / "other" / "newest"), None)
    assert isinstance(done, PublishedCheckpoint) and done.path == str(attempt / "checkpoints" / "step-8")
    refused = publish_checkpoint(str(attempt / "other" / "older"), None)
    assert isinstance(refused, Refused)
    (why,) = [defect.why for defect in refused.defects if isinstance(defect, CheckpointAbsent)]
    assert why == "its name says no step, as checkpoint-N and step-N do, and its files tell several: 4, 8"


def test_a_folder_that_is_nobodys_or_has_no_step_is_not_published(attempt: Path, tmp_path: Path) -> None:
    alone = checkpoint(tmp_path, 4)
    answer = publish_checkpoint(str(alone), None)
    assert isinstance(answer, Refused) and list(answer.defects) == [AttemptUnnamed(str(alone))]
    (attempt / "work" / "last").mkdir()
    assert names(publish_checkpoint(str(attempt / "work" / "last"), None)) == ["CheckpointAbsent"]
    (attempt / "manifest.json").write_bytes(b"{")
    answer = publish_checkpoint(str(attempt / "work" / "checkpoint-4"), None)
    assert isinstance(answer, Refused) and [type(defect) for defect in answer.defects] == [DocumentUnreadable]


@proven_by(planted(inspect, "placed", Path.absolute))
def test_what_lies_beside_the_attempt_in_which_somebody_stands_is_not_the_attempts(
    attempt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path / "other", 4)
    monkeypatch.chdir(attempt / "work")
    path = "../../../other/checkpoint-4"
    answer = publish_checkpoint(path, None)
    assert isinstance(answer, Refused) and list(answer.defects) == [AttemptUnnamed(path)]


@proven_by(planted(inspect, "placed", Path))
def test_where_somebody_stands_in_a_checkpoint_it_goes_by_its_own_name(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(attempt / "work" / "checkpoint-4")
    for path in (".", "../checkpoint-4/../checkpoint-4"):
        (here,) = inspected(inspect_checkpoints([path], None, True, None, step=4))
        assert isinstance(here.resume, SoundCheckpoint)
    done = publish_checkpoint(".", None)
    assert isinstance(done, PublishedCheckpoint) and done.path == str(attempt / "checkpoints" / "step-4")


def test_a_folder_of_checkpoints_is_no_checkpoint_and_one_above_them_neither(attempt: Path) -> None:
    whys: list[str] = []
    for path in (attempt / "work", attempt):
        answer = publish_checkpoint(str(path), None)
        assert isinstance(answer, Refused)
        whys += [defect.why for defect in answer.defects if isinstance(defect, CheckpointAbsent)]
    assert whys == [
        "it is a folder of checkpoints: 'checkpoint-4', 'checkpoint-8', 'checkpoint-12'",
        f"its name says no step, as checkpoint-N and step-N do, and none of its files does, and checkpoints lie in '{attempt}/work'",
    ]


def test_a_folder_of_checkpoints_stands_for_all_of_them_with_both_answers(attempt: Path, tmp_path: Path) -> None:
    found = looked_at(str(attempt / "work"))
    assert [getattr(one.readback, "step", None) for one in found] == [4, 8, 12]
    assert [names(one.resume) for one in found[:2]] == [["PublicationUnobserved"]] * 2
    assert set(names(found[2].resume)) == {"ComponentMissing", "PublicationIncomplete"}
    assert all(isinstance(one.weights_only, WeightsOnlyCheckpoint) for one in found)
    (vouched,) = looked_at(str(attempt / "work" / "checkpoint-4"), vouched=True)
    assert isinstance(vouched.resume, SoundCheckpoint) and vouched.resume.vouched


def test_a_published_checkpoint_is_held_against_what_is_to_go_on(attempt: Path, tmp_path: Path) -> None:
    done = publish_checkpoint(str(attempt / "work" / "checkpoint-4"), None)
    assert isinstance(done, PublishedCheckpoint)
    recipe = write(tmp_path / "recipe.toml", clean_recipe_text().encode())
    other = write(tmp_path / "other.toml", clean_recipe_text().replace("seed = 17", "seed = 18").encode())

    def against(target: Path | None) -> object:
        return looked_at(done.path, target=None if target is None else str(target))[0].resume

    assert isinstance(against(None), AdmittedCheckpoint) and isinstance(against(recipe), AdmittedCheckpoint)
    assert names(against(other)) == ["ManifestDiverges"]
    assert names(inspect_checkpoints([done.path], "no-such-target", False, None)) == ["NothingNamed"]
    assert names(looked_at(str(tmp_path / "gone"))[0].resume) == ["CheckpointAbsent"]


def test_weights_have_a_root_beside_the_digest_of_their_exact_files(tmp_path: Path) -> None:
    content = encoded({"weight": f32(1.0)})
    folder, alone = write(tmp_path / "model" / "model.safetensors", content).parent, write(tmp_path / "other.safetensors", content)
    whole, single = (weights_root(str(path), DigestCache(None), lambda done, total: None) for path in (folder, alone))
    assert isinstance(whole, MeasuredForm) and isinstance(single, MeasuredForm)
    assert whole.root == single.root and whole.files != single.files and (whole.tensors, whole.bytes) == (1, 4)
    (folder / "model.safetensors").write_bytes(b"short")
    assert names(weights_root(str(folder), DigestCache(None), lambda done, total: None))
