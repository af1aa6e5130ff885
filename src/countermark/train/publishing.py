"""Publishing what a trainer wrote: checkpoints while it trains, the adapter when it is done.

Rules kept here:

1. What is published is copied from the trainer's own folder, durably and by one rename. The trainer's copy is taken away afterwards where
   it lies in the attempt's scratch folder, and left alone elsewhere.
2. What is kept is decided where ``countermark checkpoint prune`` decides it: a published checkpoint is read back and admitted before an
   older one is taken away, and one that is not admitted counts for nothing. What was measured of one before is not read again: the digests
   are kept where ``checkpoint inspect`` keeps them.
3. An attempt that somebody gave up takes nothing away any more: its successor may be reading there.
4. The attempt writes under its own folder only, and the output place is taken once.
5. What was to go and stays ends no training: the disk's answer is in the log, and the next save tries again.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from countermark.files.attempt_folder import FENCED, STOP, present
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint
from countermark.files.digest_cache import DigestCache
from countermark.files.leftovers import alone_in
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint, publish_output
from countermark.files.retention import carry_out, held
from countermark.files.user_folders import digests_folder
from countermark.run.checkpoint import CheckpointNotThere, admit_checkpoint, component_defects
from countermark.run.retention import Held, plan_retention
from countermark.train.assignment import Assignment
from countermark.train.failures import CannotTrain, refusal
from countermark.values import Refused


def publish_step(assignment: Assignment, source: Path, step: int, micro_batches: int | None) -> PublishedCheckpoint:
    """Publish the trainer's checkpoint of this step and keep as many as the settings say. Raises ``CannotTrain``, and ``PublishFailed``.
    ``micro_batches`` is what the trainer counted since step 0 (None: nobody did)."""
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
    _let_go(lambda: _take_copy_away(assignment, source))
    _let_go(lambda: retain(assignment))
    return published


def _take_copy_away(assignment: Assignment, source: Path) -> None:
    if not source.resolve().is_relative_to(assignment.work.resolve()):
        return
    if source.is_file():
        source.unlink()
    else:
        shutil.rmtree(source)


def _let_go(take_away: Callable[[], object]) -> None:
    """Take away what nobody needs any more; where the disk does not let it go, that is said."""
    try:
        take_away()
    except OSError as error:
        with suppress(OSError):
            print(f"countermark: training goes on although something stays that was to go: {error}", file=sys.stderr)


def retain(assignment: Assignment) -> tuple[str, ...]:
    """Take away what ``plan_retention`` lets go of the attempt's own checkpoints where ``keep_checkpoints`` admitted ones stay; returns the
    names that went. Raises ``OSError`` of the disk."""
    place, keep = assignment.checkpoints, assignment.settings.keep_checkpoints
    listed = list_checkpoints(place)
    if not isinstance(listed, CheckpointListing) or len(listed.checkpoints) <= keep or _given_up(assignment.folder):
        return ()
    with alone_in(place) as alone:
        if not alone:
            return ()
        cache = DigestCache(digests_folder(os.environ))
        found = [_held(assignment, place, name, cache) for _, name in listed.checkpoints]
        plan = plan_retention(found, keep, {})
        gone = () if isinstance(plan, Refused) else carry_out(place, plan, _unheard)
        return () if isinstance(gone, Refused) else gone


def _held(assignment: Assignment, place: Path, name: str, cache: DigestCache) -> Held:
    readback = read_checkpoint(place / name, cache)
    return held(place, name, readback, admit_checkpoint(readback, assignment.manifest, frozenset({assignment.nonce})))


def _given_up(folder: Path) -> bool:
    """Whether somebody has given the attempt up: then another one may be about to go on from any of its checkpoints."""
    return present(folder, FENCED) or present(folder, STOP)


def _unheard(name: str) -> None:
    """Nobody watches."""


def publish_adapter(assignment: Assignment, model: Any) -> Path:
    """Publish the adapter at the attempt's output place. Raises ``CannotTrain`` where the place is taken, and ``OSError`` of the disk."""
    assignment.work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="output-", dir=assignment.work, ignore_cleanup_errors=True) as scratch:
        model.save_pretrained(scratch)
        published = publish_output(Path(scratch), assignment.output)
    if isinstance(published, Refused):
        raise refusal("the output", published.defects)
    return published


def checkpoint_to_go_on_from(assignment: Assignment) -> Path | None:
    """The admitted checkpoint, None where training begins at step 0. It is looked at once more, because a trainer goes on without what is
    missing and says nothing. Raises ``CannotTrain`` naming every component that is not whole."""
    path = assignment.resume
    if path is None:
        return None
    found = read_checkpoint(path)
    if isinstance(found, CheckpointNotThere):
        raise CannotTrain(f"{path}: {found.why}. A training goes on from a checkpoint that is there.")
    if defects := component_defects(found):
        raise refusal(f"{path}: the trainer would go on without and end with other weights", defects)
    return path
