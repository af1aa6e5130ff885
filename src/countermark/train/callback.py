"""The Transformers callback: it says what is trained, publishes checkpoints, and says at the end what held.

Rules kept here:

1. ``effective.json`` and ``environment.json`` are durable before the first step. They are read off the live objects; the desired manifest
   is nothing but what they are held against.
2. Every checkpoint that the trainer saves is published, atomically; one that cannot be published ends the training.
3. A run that is complete is not trained further: the Transformers trainer takes one step more when it resumes from the last one.
4. The trainer itself is not handed to callbacks; it is the one that ``Training.run`` was given, or the one that is calling.
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
from countermark.train.effective.seen import Live, Readings
from countermark.train.effective.whole import read_again, read_all
from countermark.train.execution import execution_environment
from countermark.train.libraries import library, loaded
from countermark.train.publishing import publish_step
from countermark.wire.effective import encode_effective


@final
class NothingLeft(Exception):
    """The checkpoint that a training resumed from is the run's last step."""


@final
class Recorder:
    """What the callback does, apart from the library's class: one attempt's receipts and checkpoints."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.trainer: Any = None
        self.rows_handed_out = False
        self.said: Readings = {}
        self._in_step = 0
        self._most = 0
        self._taken: int | None = None

    def begins(self, args: Any, state: Any, seen: dict[str, Any]) -> None:
        """Before the first step: the environment, then the effective manifest."""
        folder = self.assignment.folder
        durable.replace(folder / ENVIRONMENT, execution_environment(self.assignment.nonce, seen["model"]))
        self._taken = 0 if state.global_step == 0 else self._taken_before(state.global_step)
        self._say(read_all(self._live(args, state, seen, ended=False)))

    def sub_step(self) -> None:
        """A micro batch that no optimizer step followed."""
        self._in_step += 1

    def step(self) -> None:
        """A micro batch that an optimizer step followed."""
        took = self._in_step + 1
        self._most = max(self._most, took)
        self._in_step = 0
        if self._taken is not None:
            self._taken += took

    def saved(self, args: Any, step: int) -> None:
        """The trainer has written its checkpoint of this step."""
        publish_step(self.assignment, Path(args.output_dir) / f"checkpoint-{step}", step, self._taken)

    def ends(self, args: Any, state: Any, seen: dict[str, Any]) -> None:
        """After the last step: what of it still holds."""
        later = read_again(self._live(args, state, seen, ended=True), self.said)
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

    def _live(self, args: Any, state: Any, seen: dict[str, Any], *, ended: bool) -> Live:
        return Live(
            args=args,
            state=state,
            model=seen["model"],
            optimizer=seen["optimizer"],
            scheduler=seen["lr_scheduler"],
            loader=seen["train_dataloader"],
            processing_class=seen.get("processing_class"),
            trainer=self.trainer or calling_trainer(),
            assignment=self.assignment,
            fresh=not ended and state.global_step == 0,
            rows_handed_out=self.rows_handed_out,
            ended=ended,
            micro_batches=self._most or None,
        )


def calling_trainer() -> Any:
    """The Transformers trainer up the stack that is calling, or None."""
    transformers = loaded("transformers.trainer")
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while transformers is not None and frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, transformers.Trainer):
            return found
        frame = frame.f_back
    return None


def callback_of(recorder: Recorder) -> Any:
    """The callback for a trainer."""
    base: Any = library("transformers").TrainerCallback

    class Countermark(base):
        """Says what is trained and publishes its checkpoints."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.begins(args, state, seen)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            if state.global_step >= state.max_steps:
                recorder.ends(args, state, seen)
                raise NothingLeft(f"all {state.max_steps} steps were taken before")

        def on_substep_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.sub_step()

        def on_step_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.step()

        def on_save(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.saved(args, state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.ends(args, state, seen)

    return Countermark()
