"""Going on from a published checkpoint: the finished weights are those of an uninterrupted run, bit for bit."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import read_checkpoint
from countermark.run.checkpoint import CheckpointReadback
from countermark.train import CannotTrain, recorder, training
from countermark.train.integrations import of_transformers
from tests.faults import planted, proven_by
from tests.train.tiny import Attempt, Tiny, adapter_bits, train

pytestmark = pytest.mark.torch


def stack() -> Any:
    import transformers

    return transformers.Trainer


def resumed(tiny: Tiny, first: Attempt, step: int) -> Attempt:
    attempt = tiny.attempt(resume=first.folder / "checkpoints" / f"step-{step}")
    train(attempt)
    return attempt


@proven_by(
    planted(stack(), "_load_rng_state", lambda self, checkpoint: None),
    planted(stack(), "_load_optimizer_and_scheduler", lambda self, checkpoint: None),
    planted(stack(), "_load_from_checkpoint", lambda self, checkpoint, model=None: None),
)
def test_every_checkpoint_leads_to_the_same_bits(tiny: Tiny) -> None:
    """Dropout, shuffle, warm-up, cosine, accumulation, epochs that end within; from each step, the last one included."""
    first = tiny.attempt()
    train(first)
    assert first.published() == ["step-2", "step-4", "step-6", "step-8"]
    expected = adapter_bits(first.output)
    for step in (2, 4, 6, 8):
        try:
            again = resumed(tiny, first, step)
        except CannotTrain as error:
            pytest.fail(f"the resumed training published nothing: {error}")
        assert adapter_bits(again.output) == expected
        assert again.differing() == {}


@proven_by(planted(of_transformers, "NothingLeft", lambda *reason: StopIteration(*reason)))
def test_a_finished_run_is_not_trained_further(tiny: Tiny) -> None:
    first = tiny.attempt()
    train(first)
    try:
        again = resumed(tiny, first, 8)
    except (RuntimeError, StopIteration):
        pytest.fail("the resumed training did not end quietly")
    assert adapter_bits(again.output) == adapter_bits(first.output)
    assert not (again.folder / "checkpoints").exists()


@proven_by(planted(recorder, "read_bounded", lambda path, most: None))
def test_a_resumed_run_goes_on_counting_its_micro_batches(tiny: Tiny) -> None:
    first = tiny.attempt()
    train(first)
    again = resumed(tiny, first, 4)
    positions: list[list[int | None]] = []
    for attempt in (first, again):
        readbacks = [read_checkpoint(attempt.folder / "checkpoints" / name) for name in ("step-6", "step-8")]
        positions.append([readback.micro_batches for readback in readbacks if isinstance(readback, CheckpointReadback)])
    assert positions == [[10, 14], [10, 14]]


def test_a_published_checkpoint_is_only_read(tiny: Tiny) -> None:
    first = tiny.attempt()
    train(first)
    place = first.folder / "checkpoints" / "step-4"
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in place.iterdir()}
    resumed(tiny, first, 4)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in place.iterdir()} == before


@proven_by(planted(training, "checkpoint_to_go_on_from", lambda assignment: assignment.resume))
def test_a_checkpoint_with_parts_missing_is_not_resumed(tiny: Tiny, tmp_path: Path) -> None:
    import shutil

    first = tiny.attempt()
    train(first)
    torn = tmp_path / "step-4"
    shutil.copytree(first.folder / "checkpoints" / "step-4", torn)
    for name in ("optimizer.pt", "rng_state.pth"):
        (torn / name).unlink()
    attempt = tiny.attempt(resume=torn)
    with pytest.raises(CannotTrain, match=r"(?s)optimizer_state.*rng_state"):
        train(attempt)
    assert not attempt.output.exists()


def test_a_killed_process_is_resumed_bit_for_bit(tiny: Tiny) -> None:
    """The packaged script in a process of its own, killed with SIGKILL after its first checkpoint."""
    import os

    killed = tiny.attempt(settings={"save_steps": 10}, total_steps="60")
    process = subprocess.Popen(
        [sys.executable, "-m", "countermark.train.finetune"],
        env={**os.environ, **killed.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    step = killed.folder / "checkpoints" / "step-10"
    deadline = time.monotonic() + 60
    while not step.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not killed.output.exists()
    assert killed.differing() == {}

    whole, again = (tiny.attempt(settings={"save_steps": 60}, resume=place, total_steps="60") for place in (None, step))
    train(whole)
    train(again)
    assert adapter_bits(again.output) == adapter_bits(whole.output)
