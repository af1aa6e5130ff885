"""Publishing what a trainer wrote: checkpoints while it trains, the adapter when it is done.

Rules kept here:

1. What is published is copied from the trainer's own folder, durably and by one rename. The trainer's copy is taken away afterwards where
   it lies in the attempt's scratch folder, and left alone elsewhere.
2. A published checkpoint is read back and admitted before an older one is taken away, and one that is not admitted counts for nothing. The
   newest admitted checkpoint always stays.
3. An older checkpoint is renamed out of sight before it is deleted: a half-deleted folder never bears a checkpoint's name.
4. The attempt writes under its own folder only, and the output place is taken once.
"""

import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint
from countermark.files.durable import sync_folder
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint, publish_output
from countermark.run.checkpoint import AdmittedCheckpoint, CheckpointNotThere, admit_checkpoint, component_defects
from countermark.train.assignment import Assignment
from countermark.train.failures import CannotTrain, refusal
from countermark.values import Refused


def publish_step(assignment: Assignment, source: Path, step: int, micro_batches: int | None) -> PublishedCheckpoint:
    """Publish the trainer's checkpoint of this step and keep as many as the settings say. Raises ``CannotTrain``, and ``OSError`` of the
    disk. ``micro_batches`` is what the trainer counted since step 0 (None: nobody did)."""
    published = publish_checkpoint(
        source,
        assignment.checkpoints,
        step=step,
        attempt=assignment.nonce,
        work_key=assignment.work_key,
        manifest=assignment.desired,
        micro_batches=micro_batches,
    )
    if isinstance(published, Refused):
        raise refusal(f"the checkpoint of step {step}", published.defects)
    if source.resolve().is_relative_to(assignment.work.resolve()):
        if source.is_file():
            source.unlink()
        else:
            shutil.rmtree(source)
    retain(assignment)
    return published


def retain(assignment: Assignment) -> tuple[str, ...]:
    """Take away the oldest published checkpoints beyond ``keep_checkpoints`` admitted ones; returns the names that went."""
    listed = list_checkpoints(assignment.checkpoints)
    if not isinstance(listed, CheckpointListing):
        return ()
    kept = 0
    gone: list[str] = []
    for _, name in reversed(listed.checkpoints):
        if kept < assignment.settings.keep_checkpoints:
            kept += _is_admitted(assignment, assignment.checkpoints / name)
            continue
        _take_away(assignment.checkpoints / name)
        gone.append(name)
    return tuple(gone)


def _is_admitted(assignment: Assignment, path: Path) -> bool:
    answer = admit_checkpoint(read_checkpoint(path), assignment.manifest, frozenset({assignment.nonce}))
    return isinstance(answer, AdmittedCheckpoint)


def _take_away(path: Path) -> None:
    hidden = path.with_name(f".gone-{path.name}-{secrets.token_hex(8)}")
    path.rename(hidden)
    sync_folder(path.parent)
    shutil.rmtree(hidden)


def publish_adapter(assignment: Assignment, model: Any) -> Path:
    """Publish the adapter at the attempt's output place. Raises ``CannotTrain`` where the place is taken, and ``OSError`` of the disk."""
    assignment.work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="output-", dir=assignment.work) as scratch:
        model.save_pretrained(scratch)
        published = publish_output(Path(scratch), assignment.output)
    if isinstance(published, Refused):
        raise refusal("the output", published.defects)
    return published


def check_resumable(path: Path) -> None:
    """A last look before a trainer loads a checkpoint, because it goes on without what is missing and says nothing. Raises
    ``CannotTrain`` naming every component that is not whole."""
    found = read_checkpoint(path)
    if isinstance(found, CheckpointNotThere):
        raise CannotTrain(f"{path}: {found.why}. A training goes on from a checkpoint that is there.")
    if defects := component_defects(found):
        raise refusal(f"{path}: the trainer would go on without and end with other weights", defects)
