"""Folders that the Transformers trainer itself wrote: a whole model in one file and in shards, and by two workers."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from countermark.files.checkpoints import list_checkpoints
from countermark.files.layouts.reading import IN_PLACE
from countermark.run.checkpoint import ComponentMissing, ComponentRead, ComponentUnreadable, PublicationUnobserved, component_defects
from tests.files.layouts.breaking import GENERATORS, WEIGHTS, defects, of_workers, read, whys
from tests.files.layouts.training import train

ROOT = Path(__file__).parents[3]
#: What the trainer was told, beside the clean manifest.
DESIRED = {
    "learning_rate": "0.01",
    "total_steps": "4",
    "warmup_steps": "0",
    "optimizer": "adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)",
    "gradient_accumulation": "1",
}


@pytest.mark.torch
def test_a_real_model_is_read_from_one_file_and_from_shards(tmp_path: Path) -> None:
    for name, shard in (("whole", None), ("shards", "8KB")):
        folder = train(tmp_path / name, shard)
        readback = read(folder)
        assert (readback.layout, readback.step) == ("transformers", 4)
        assert defects(folder, **DESIRED) == Counter([PublicationUnobserved(IN_PLACE.whys)])
        weights = readback.components[WEIGHTS]
        assert isinstance(weights, ComponentRead)
        assert (len(weights.files) > 2) is (shard is not None), weights.files
    lost = next(folder.glob("model-00002-of-*"))
    lost.unlink()
    found = read(folder).components[WEIGHTS]
    assert isinstance(found, ComponentUnreadable) and found.whys == (f"the index names the shard '{lost.name}', which is not there",)


@pytest.mark.slow
@pytest.mark.torch
def test_two_real_workers_each_leave_their_generators(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tests.files.layouts.training"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    listed = list_checkpoints(tmp_path)
    assert getattr(listed, "checkpoints", None) == ((4, "checkpoint-4"),)
    folder = tmp_path / "checkpoint-4"
    assert component_defects(read(folder)) == (of_workers(GENERATORS, 2),)
    for lost in ("rng_state_0.pth", "rng_state_1.pth"):
        (folder / lost).rename(tmp_path / lost)
        assert whys(folder, GENERATORS) == (f"{lost} is missing, the state of one of 2 workers",)
        (tmp_path / lost).rename(folder / lost)
    for lost in ("rng_state_0.pth", "rng_state_1.pth"):
        (folder / lost).unlink()
    assert component_defects(read(folder)) == (ComponentMissing(GENERATORS),)
