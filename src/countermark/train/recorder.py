"""What every integration does alike: one attempt's receipts and checkpoints.

Rules kept here:

1. ``effective.json`` and ``environment.json`` are durable before the first step. They are read off the live objects; the desired manifest
   is nothing but what they are held against.
2. Every checkpoint that the trainer saves is published, atomically; one that cannot be published ends the training.
3. Several workers that train together are refused before the first step, and not at the first checkpoint.
4. What an attempt that is broken off had said stays as it was said: nothing is written on the way out.
"""

import sys
from pathlib import Path
from types import FrameType
from typing import Any, final

from countermark.files import durable
from countermark.files.attempt_folder import read_bounded
from countermark.files.desired import EFFECTIVE, ENVIRONMENT
from countermark.files.layouts.published import MANIFEST, MANIFEST_BYTES_MAX, PublishedManifest, decode_manifest
from countermark.train.assignment import Assignment
from countermark.train.effective.seen import Live, Objects, Readings
from countermark.train.effective.whole import read_again, read_all
from countermark.train.execution import execution_environment
from countermark.train.failures import one_worker
from countermark.train.publishing import publish_step
from countermark.wire.effective import encode_effective


@final
class Recorder:
    """One attempt's receipts and checkpoints. ``rows_handed_out``: the script took the rows that the recipe pins."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.rows_handed_out = False
        self.said: Readings = {}
        self._in_step = 0
        self._most = 0
        self._taken: int | None = None

    @property
    def micro_batches(self) -> int | None:
        """The micro batches since step 0, None where a checkpoint that was resumed from did not count them."""
        return self._taken

    def begins(self, objects: Objects) -> None:
        """Before the first step: the environment, then the effective manifest. Raises ``CannotTrain`` where several workers train."""
        one_worker(objects.workers)
        durable.replace(self.assignment.folder / ENVIRONMENT, execution_environment(self.assignment.nonce, objects.whole))
        self._taken = 0 if objects.step == 0 else self._taken_before(objects.step)
        self._say(read_all(self._live(objects, ended=False)))

    def micro_batch(self) -> None:
        """A micro batch was taken."""
        self._in_step += 1

    def step(self) -> None:
        """An optimizer step followed the micro batches taken since the last one."""
        self._most = max(self._most, self._in_step)
        if self._taken is not None:
            self._taken += self._in_step
        self._in_step = 0

    def is_due(self, step: int, total: int | None) -> bool:
        """Whether a checkpoint is to be saved after this step, for loops that leave it to the recipe's settings. None is at the last step,
        because such loops are seen by their steps alone: whoever went on from there would show nothing."""
        return step % self.assignment.settings.save_steps == 0 and step != total

    def saved(self, source: Path, step: int) -> None:
        """The trainer has written its checkpoint of this step, whole, into a folder."""
        publish_step(self.assignment, source, step, self._taken)

    def ends(self, objects: Objects) -> None:
        """After the last step: what of it still holds."""
        later = read_again(self._live(objects, ended=True), self.said)
        if later != self.said:
            self._say(later)

    def _taken_before(self, step: int) -> int | None:
        """The micro batches that the checkpoint of this step counted; None where it is another one's, or counted none."""
        resume = self.assignment.resume
        content = None if resume is None else read_bounded(resume / MANIFEST, MANIFEST_BYTES_MAX)
        manifest = decode_manifest(content) if isinstance(content, bytes) else None
        return manifest.micro_batches if isinstance(manifest, PublishedManifest) and manifest.step == step else None

    def _say(self, said: Readings) -> None:
        self.said = said
        durable.replace(self.assignment.folder / EFFECTIVE, encode_effective(self.assignment.nonce, said))

    def _live(self, objects: Objects, *, ended: bool) -> Live:
        return Live(
            objects=objects,
            assignment=self.assignment,
            fresh=not ended and objects.step == 0,
            rows_handed_out=self.rows_handed_out,
            ended=ended,
            micro_batches=self._most or None,
        )


def calling(kind: type) -> Any:
    """The object of this class up the stack that is calling, or None: libraries do not hand themselves to what they call."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, kind):
            return found
        frame = frame.f_back
    return None
