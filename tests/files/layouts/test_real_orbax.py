"""Folders that Orbax itself writes now, where it is installed (``pip install orbax-checkpoint``: 700 megabytes, which no group of ours
brings). What the gate reads was recorded this way."""

from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import read_checkpoint
from countermark.run.checkpoint import AdmittedCheckpoint, CheckpointReadback, Component, ComponentRead, admit_checkpoint
from tests.recipe.examples import clean_manifest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("orbax")]
ocp = pytest.importorskip("orbax.checkpoint")


def saved(at: Path, step: int, **how: bool) -> Path:
    """A checkpoint of one step: weights, an Adam with a schedule, the key of the generators, and a place in the data."""
    jax = pytest.importorskip("jax")
    params = {"body": {"kernel": jax.numpy.arange(640.0).reshape(40, 16), "bias": jax.numpy.zeros(3)}}
    adam = {"count": jax.numpy.int32(step), "mu": params, "nu": params}
    state = {"params": params, "opt_state": (adam, {"count": jax.numpy.int32(step)}), "step": step}
    handlers: dict[str, Any] = {
        "state": ocp.PyTreeCheckpointHandler(**how),
        "rng": ocp.JaxRandomKeyCheckpointHandler(),
        "data": ocp.JsonCheckpointHandler(),
    }
    with ocp.CheckpointManager(at, item_names=tuple(handlers), item_handlers=handlers) as manager:
        items = {"state": ocp.args.PyTreeSave(state), "rng": ocp.args.JaxRandomKeySave(jax.random.key(0))}
        manager.save(step, args=ocp.args.Composite(**items, data=ocp.args.JsonSave({"step": step})))
        manager.wait_until_finished()
    return at / str(step)


@pytest.mark.parametrize("how", [{}, {"use_ocdbt": False}, {"use_ocdbt": False, "use_zarr3": True}], ids=["ocdbt", "zarr", "zarr3"])
def test_what_orbax_writes_is_admitted_with_every_component(tmp_path: Path, how: dict[str, bool]) -> None:
    readback = read_checkpoint(saved(tmp_path, 12, **how))
    assert isinstance(readback, CheckpointReadback) and readback.step == 12
    assert isinstance(admit_checkpoint(readback, clean_manifest(), frozenset()), AdmittedCheckpoint)
    for component, part in readback.components.items():
        assert isinstance(part, ComponentRead), component
        assert {witness.step for witness in part.steps} == {12}, component
    assert set(readback.components) == set(Component)
