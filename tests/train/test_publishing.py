"""Checkpoints and outputs as they are published: atomic, admitted, kept while they are needed, never replaced."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import read_checkpoint
from countermark.files.digest_cache import DigestCache
from countermark.files.layouts import published
from countermark.files.leftovers import alone_in
from countermark.files.outputs import OutputReading, measure_output
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.run.checkpoint import AdmittedCheckpoint, Atomic, CheckpointReadback, admit_checkpoint
from countermark.run.retention import Held, OnlyAdmitted, RetentionPlan, Surplus
from countermark.train import CannotTrain, publishing
from tests.faults import planted, proven_by
from tests.files import folders
from tests.train.tiny import WORK_KEY, Attempt, Tiny, honest, train

pytestmark = pytest.mark.torch


def trained(tiny: Tiny, keep: int = 9) -> Attempt:
    attempt = tiny.attempt(settings={"keep_checkpoints": keep})
    train(attempt)
    return attempt


def test_every_checkpoint_is_published_atomically_and_admitted(tiny: Tiny) -> None:
    attempt = trained(tiny)
    assert attempt.published() == ["step-2", "step-4", "step-6", "step-8"]
    assignment = attempt.training().assignment
    for name, step, micro_batches in (("step-2", 2, 4), ("step-4", 4, 7), ("step-6", 6, 10), ("step-8", 8, 14)):
        readback = read_checkpoint(attempt.folder / "checkpoints" / name)
        assert isinstance(readback, CheckpointReadback)
        assert isinstance(readback.publication, Atomic)
        assert (readback.step, readback.attempt, readback.work_key) == (step, assignment.nonce, WORK_KEY)
        assert readback.declared == attempt.desired
        # Nine rows are five micro batches, so every third step of an epoch takes one.
        assert readback.micro_batches == micro_batches
        admitted = admit_checkpoint(readback, assignment.manifest, frozenset({assignment.nonce}))
        assert isinstance(admitted, AdmittedCheckpoint), admitted


def test_the_trainers_own_copies_are_taken_away(tiny: Tiny) -> None:
    attempt = trained(tiny)
    assert list((attempt.folder / "work").iterdir()) == []
    assert not [name for name in os.listdir(attempt.folder / "checkpoints") if name.startswith(".")]


def test_a_folder_that_is_not_the_attempts_is_left_alone(tiny: Tiny, tmp_path: Path) -> None:
    attempt = tiny.attempt()
    train(attempt, lambda parts: setattr(parts.args, "output_dir", str(tmp_path)))
    assert attempt.published() == ["step-2", "step-4", "step-6", "step-8"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-2", "checkpoint-4", "checkpoint-6", "checkpoint-8"]


def test_as_many_are_kept_as_the_settings_say(tiny: Tiny) -> None:
    assert trained(tiny, keep=1).published() == ["step-8"]
    assert trained(tiny, keep=3).published() == ["step-4", "step-6", "step-8"]


def counts_everything(found: Sequence[Held], keep: int, begun: object) -> RetentionPlan:
    """The fault: the last ``keep`` stay, whatever they are."""
    return RetentionPlan(tuple((held, Surplus("") if held in found[:-keep] else OnlyAdmitted()) for held in found))


@proven_by(planted(publishing, "plan_retention", counts_everything))
def test_a_torn_newer_checkpoint_takes_no_good_one_away(tiny: Tiny) -> None:
    attempt = trained(tiny)
    checkpoints = attempt.folder / "checkpoints"
    shutil.copytree(checkpoints / "step-8", checkpoints / "step-9")
    (checkpoints / "step-9" / "optimizer.pt").unlink()
    (checkpoints / "step-8" / "scheduler.pt").write_bytes(b"torn")
    one = tiny_retention(attempt, keep=1)
    assert publishing.retain(one) == ("step-2", "step-4")
    assert attempt.published() == ["step-6", "step-8", "step-9"]


def tiny_retention(attempt: Attempt, keep: int):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    assignment = attempt.training().assignment
    return replace(assignment, settings=replace(assignment.settings, keep_checkpoints=keep))


def test_a_checkpoint_of_another_attempt_is_not_counted(tiny: Tiny) -> None:
    first, second = trained(tiny), trained(tiny)
    shutil.copytree(first.folder / "checkpoints" / "step-8", second.folder / "checkpoints" / "step-99")
    assert publishing.retain(tiny_retention(second, keep=1)) == ("step-2", "step-4", "step-6")
    assert second.published() == ["step-8", "step-99"]


@proven_by(planted(publishing, "_given_up", lambda folder: False))
@pytest.mark.parametrize("receipt", ["fenced", "stop.json"])
def test_an_attempt_that_was_given_up_takes_nothing_away(tiny: Tiny, receipt: str) -> None:
    attempt = trained(tiny)
    (attempt.folder / receipt).touch()
    assert publishing.retain(tiny_retention(attempt, keep=1)) == ()


def bytes_read(act: Callable[[], object]) -> int:
    """How many bytes this process asked the system for meanwhile."""
    told = Path("/proc/self/io")
    before, _, after = told.read_bytes(), act(), told.read_bytes()
    first, last = (int(dict(line.split(b": ") for line in text.splitlines())[b"rchar"]) for text in (before, after))
    return last - first


@proven_by(
    planted(publishing, "DigestCache", lambda folder: DigestCache(None)),
    planted(published, "hash_whole", lambda opened: opened.sha256(0, opened.size)),
)
def test_what_was_measured_of_a_checkpoint_before_is_not_read_again(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is of 16 MiB, and the digests are where ``checkpoint inspect`` keeps them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("countermark.files.digest_cache.RACY_NS", 0)
    attempt = tiny.attempt()
    assignment = attempt.training().assignment
    for step in (2, 4, 6, 8):
        source = folders.checkpoint(tmp_path, step)
        (source / "events").write_bytes(bytes(16 << 20))
        given = {"attempt": assignment.nonce, "work_key": assignment.work_key, "manifest": attempt.desired}
        assert isinstance(publish_checkpoint(source, assignment.checkpoints, step=step, **given), PublishedCheckpoint)
    once = bytes_read(lambda: publishing.retain(tiny_retention(attempt, keep=2)))
    again = bytes_read(lambda: publishing.retain(tiny_retention(attempt, keep=2)))
    assert again < 1 << 20 < 64 << 20 <= once, (once, again)
    looked = DigestCache(tmp_path / "cache/countermark/digests")
    assert isinstance(read_checkpoint(assignment.checkpoints / "step-8", looked), CheckpointReadback) and looked.hashed == 0


def test_nothing_is_taken_away_while_another_decides(tiny: Tiny) -> None:
    attempt = trained(tiny)
    one = tiny_retention(attempt, keep=1)
    with alone_in(one.checkpoints) as alone:
        assert alone and publishing.retain(one) == ()
    assert publishing.retain(one) == ("step-2", "step-4", "step-6")


@proven_by(planted(publishing, "_let_go", lambda take_away: take_away()))
def test_a_disk_that_lets_nothing_go_ends_no_training_and_is_heard(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    attempt = tiny.attempt(settings={"keep_checkpoints": 1})
    rename, rmtree = Path.rename, shutil.rmtree

    def stays(path: Path, *asked: Any, **more: Any) -> Any:
        if Path(path).name.startswith(("step-", "checkpoint-")):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return (rename if asked else rmtree)(path, *asked, **more)

    monkeypatch.setattr(Path, "rename", stays)
    monkeypatch.setattr(publishing.shutil, "rmtree", stays)
    try:
        train(attempt)
    except OSError as error:
        pytest.fail(f"it ended: {error}")
    said = capfd.readouterr().err
    assert attempt.published() == ["step-2", "step-4", "step-6", "step-8"] and attempt.output.is_dir()
    for stayed in ("work/checkpoint-2", "checkpoints/step-2"):
        assert any("training goes on" in line and stayed in line for line in said.splitlines()), said


def test_the_output_is_an_adapter_that_reads_back(tiny: Tiny) -> None:
    attempt = trained(tiny)
    assert sorted(path.name for path in attempt.output.iterdir()) == ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    reading = measure_output(attempt.output)
    assert isinstance(reading, OutputReading)
    assert reading.kind == "adapter"


def test_an_output_place_is_taken_once(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    attempt.output.mkdir()
    (attempt.output / "mine").write_text("not to be touched")
    with pytest.raises(CannotTrain, match="the output: "):
        train(attempt)
    assert [path.name for path in attempt.output.iterdir()] == ["mine"]


def test_a_step_that_was_published_before_ends_the_training(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    (attempt.folder / "checkpoints" / "step-4").mkdir(parents=True)
    with pytest.raises(CannotTrain, match="the checkpoint of step 4: "):
        train(attempt)
    assert not attempt.output.exists()
    assert attempt.published() == ["step-2", "step-4"]


def test_a_full_disk_ends_the_training(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = tiny.attempt()
    training = attempt.training()
    trainer = honest(training).trainer()

    def full(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publishing, "publish_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        training.run(trainer)
    assert not attempt.output.exists()
