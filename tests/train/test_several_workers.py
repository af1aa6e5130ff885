"""Several workers that train one model together: refused before the first step, by each of them, and with nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from countermark.train import CannotTrain, recorder
from countermark.train.integrations import of_lightning, of_transformers
from tests.faults import planted, proven_by
from tests.train.loops import ALONE, run
from tests.train.tiny import Attempt, Tiny, train

pytestmark = pytest.mark.torch


def left(attempt: Attempt) -> list[str]:
    """What lies in the attempt's folder, but for its scratch."""
    return sorted(path.name for path in attempt.folder.iterdir() if path.name != "work")


@proven_by(planted(recorder, "one_worker", lambda workers: None))
def test_several_workers_are_refused_before_anything_is_said(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_transformers.TrainerObjects, "workers", 2)
    attempt = tiny.attempt(**ALONE)
    with pytest.raises(CannotTrain, match="2 workers train together"):
        train(attempt)
    assert left(attempt) == ["manifest.json"]
    monkeypatch.setattr(of_lightning.LightningObjects, "workers", 3)
    other = tiny.attempt(**ALONE)
    with pytest.raises(CannotTrain, match="3 workers train together"):
        run("lightning", other)
    assert left(other) == ["manifest.json"]


@pytest.mark.slow
def test_two_real_workers_are_both_told_and_neither_waits_for_the_other(tiny: Tiny, tmp_path: Path) -> None:
    """Without a refusal they would train to their first checkpoint, which is of two and cannot be gone on from."""
    attempt = tiny.attempt()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--log-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, "--redirects", "3", "-m", "countermark.train.finetune"],
        env={**os.environ, **attempt.environment, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    said = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.rglob("stderr.log"))]
    assert done.returncode == 1 and len(said) == 2
    assert any("2 workers train together, and this roster is of one" in text for text in said)
    assert left(attempt) == ["manifest.json"] and list((attempt.folder / "work").glob("*")) == []
