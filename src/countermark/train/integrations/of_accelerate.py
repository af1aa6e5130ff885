"""A loop that a script wrote itself over Accelerate: its tracker, and what the prepared objects show.

Rules kept here:

1. The tracker begins where trackers begin (``init_trackers``, after ``prepare``) and ends where they end (``end_training``). A script that
   never says that it ended has shown nothing of what only steps show.
2. Nobody else knows the loop, so its steps are watched: the loss handed to ``backward``, the gradients between the last of it and the
   optimizer's step, and the clipping that goes through the accelerator. Gradients that changed otherwise leave the clipping unread.
3. The loop takes its micro batches from ``batches()``, which knows where in the data it is. A checkpoint is saved between two of them, so
   that the place, the step and every state are of one moment; the place goes with Accelerate's own files.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from countermark.evidence.members import Unread
from countermark.train import generators
from countermark.train.effective.seen import NOT_YET, Said, said
from countermark.train.failures import CannotTrain, one_worker
from countermark.train.integrations.of_transformers import out_of_accelerate
from countermark.train.integrations.watching import StepWatch
from countermark.train.libraries import library
from countermark.train.publishing import checkpoint_to_go_on_from
from countermark.train.recorder import Recorder, calling
from countermark.train.sequences import Preparation

_PLACE: Final = ("global_step", "micro_batches", "epoch", "batch", "batches_per_epoch")


@final
class Place:
    """Where in the data a loop is: what Accelerate saves and loads with its own states. ``batch`` micro batches of ``epoch`` were taken."""

    def __init__(self) -> None:
        self.global_step = 0
        self.micro_batches = 0
        self.epoch = 0
        self.batch = 0
        self.batches_per_epoch = 0

    def state_dict(self) -> dict[str, int]:
        """As it is saved."""
        return {"countermark": 1, **{name: int(getattr(self, name)) for name in _PLACE}}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As it was saved."""
        for name in _PLACE:
            setattr(self, name, int(state[name]))


@final
class Loop:
    """One loop over the objects that an accelerator prepared; it is also what it shows."""

    def __init__(self, recorder: Recorder, accelerator: Any, tokenizer: Any) -> None:
        one_worker(accelerator.num_processes)
        prepared = {"models": accelerator._models, "optimizers": accelerator._optimizers, "schedulers": accelerator._schedulers}
        prepared["data loaders"] = accelerator._dataloaders
        if odd := [f"{len(found)} {name}" for name, found in prepared.items() if len(found) != 1]:
            raise CannotTrain(
                f"The accelerator has prepared {', '.join(odd)}, and a training is followed that has one of each. "
                "Call accelerator.prepare(model, optimizer, loader, scheduler) before accelerator.init_trackers()."
            )
        self.accelerator = accelerator
        self.place = Place()
        self.total: int | None = None
        self._recorder = recorder
        self._tokenizer = tokenizer
        self._watch = StepWatch()
        self._clips: set[Said] = set()
        self._clip: Said | None = None
        self._noted: list[tuple[int, int]] = []
        self._drawn: dict[str, Any] | None = None

    # ----------------------------------------------------------------------------------------------- what the loop shows

    @property
    def model(self) -> Any:
        return self.accelerator.unwrap_model(self.accelerator._models[0])

    @property
    def whole(self) -> Any:
        return self.model

    @property
    def optimizer(self) -> Any:
        return out_of_accelerate(self.accelerator._optimizers[0])

    @property
    def scheduler(self) -> Any:
        return out_of_accelerate(self.accelerator._schedulers[0])

    @property
    def loader(self) -> Any:
        return self.accelerator._dataloaders[0]

    @property
    def processing_class(self) -> Any:
        return self._tokenizer

    @property
    def step(self) -> int:
        return self.place.global_step

    @property
    def seed(self) -> int | None:
        return None

    @property
    def accumulation(self) -> int:
        return int(self.accelerator.gradient_accumulation_steps)

    @property
    def clipping(self) -> Said:
        if not self._clips:
            return NOT_YET
        if len(self._clips) > 1:
            return next((one for one in self._clips if isinstance(one, Unread)), Unread("steps were clipped in several ways"))
        return next(iter(self._clips))

    @property
    def workers(self) -> int:
        return int(self.accelerator.num_processes)

    @property
    def autocast(self) -> str:
        return str(self.accelerator.mixed_precision)

    @property
    def averaging(self) -> str:
        return self._watch.averaging

    def unseen(self) -> bool:
        return not self._watch.micro_batches

    def foreign(self, config: Any, resume: str | None) -> Iterator[str]:
        yield from self._watch.problems.values()

    def claimed(self, desired: Preparation) -> Preparation | str:
        return desired

    # --------------------------------------------------------------------------------------------------- the loop's events

    def begins(self) -> None:
        """Before the first step: go on from the admitted checkpoint where there is one, then say what is trained."""
        self.accelerator.register_for_checkpointing(self.place)
        resume = checkpoint_to_go_on_from(self._recorder.assignment)
        if resume is not None:
            self.accelerator.load_state(str(resume))
            self._drawn = generators.states()
        self._watch.attach(self.model)
        self._look_through("backward", self._backward)
        self._look_through("clip_grad_norm_", self._clip_norm)
        self._look_through("clip_grad_value_", self._clip_value)
        self.optimizer.register_step_pre_hook(self._before_step)
        self.optimizer.register_step_post_hook(self._after_step)
        self._recorder.begins(self)

    def batches(self) -> Iterator[Any]:
        """The micro batches from where training is to its last step, epoch after epoch; checkpoints are saved in between. Raises
        ``CannotTrain`` for a loader without any."""
        self.total = self._recorder.assignment.manifest.total_steps.number
        self.place.batches_per_epoch = len(self.loader)
        if not self.place.batches_per_epoch:
            raise CannotTrain("The loader that was prepared has no micro batch, so no step would ever be taken.")
        while self.place.global_step < self.total:
            yield from self._epoch(self.total)

    def _epoch(self, total: int) -> Iterator[Any]:
        begun = self.place.batch
        self.loader.set_epoch(self.place.epoch)
        for at, batch in enumerate(self.loader):
            if at < begun:
                continue
            if self._drawn is not None:
                generators.restore(self._drawn)
                self._drawn = None
            self._watch.batch(batch)
            before = self.place.global_step
            yield batch
            self.place.batch, self.place.micro_batches = at + 1, self.place.micro_batches + 1
            if self.place.batch == self.place.batches_per_epoch:
                self.place.epoch, self.place.batch = self.place.epoch + 1, 0
            if self.place.global_step > before and self._recorder.is_due(self.place.global_step, total):
                self._save()
            if self.place.global_step >= total:
                return

    def ends(self) -> None:
        """After the last step."""
        self._recorder.ends(self)

    def _save(self) -> None:
        place = Path(self._recorder.assignment.work) / f"checkpoint-{self.place.global_step}"
        self.accelerator.save_state(str(place))
        self._recorder.saved(place, self.place.global_step)

    # ------------------------------------------------------------------------------------------------- what is looked at

    def _look_through(self, name: str, look: Callable[..., Any]) -> None:
        """Have calls of an accelerator's method go through a look at them."""
        method = getattr(self.accelerator, name)
        setattr(self.accelerator, name, partial(look, method))

    def _backward(self, method: Any, loss: Any, **more: Any) -> Any:
        self._watch.backward(loss, None)
        self._recorder.micro_batch()
        done = method(loss, **more)
        self._noted = self._gradients()
        return done

    def _clip_norm(self, method: Any, parameters: Any, max_norm: Any, norm_type: Any = 2) -> Any:
        listed = list(parameters) if not hasattr(parameters, "grad") else [parameters]
        clipped = {id(tensor) for tensor in listed if tensor.requires_grad}
        if clipped != {id(tensor) for tensor in self._trained()}:
            self._clip = Unread(f"{len(clipped)} of {len(self._trained())} trained tensors were clipped together")
        else:
            self._clip = said("max_grad_norm", max_norm) if norm_type == 2 else Unread(f"gradients are clipped by their norm {norm_type}")
        done = method(listed, max_norm, norm_type)
        self._noted = self._gradients()
        return done

    def _clip_value(self, method: Any, *args: Any, **more: Any) -> Any:
        self._clip = Unread("gradients are clipped by value, which no coordinate holds")
        done = method(*args, **more)
        self._noted = self._gradients()
        return done

    def _before_step(self, *_: Any) -> None:
        if self._noted != self._gradients():
            self._clip = Unread("the gradients were changed before a step by something else than the accelerator's clipping")
        self._clips.add(self._clip or said("max_grad_norm", "off"))
        self._clip = None

    def _after_step(self, *_: Any) -> None:
        self.place.global_step += 1
        self._watch.step(self.place.global_step)
        self._recorder.step()

    def _trained(self) -> list[Any]:
        return [tensor for tensor in self.model.parameters() if tensor.requires_grad]

    def _gradients(self) -> list[tuple[int, int]]:
        """Which tensors the gradients are, and how often each was written to."""
        return [(id(tensor.grad), tensor.grad._version) for tensor in self._trained() if tensor.grad is not None]


def tracker_of(recorder: Recorder, tokenizer: Any) -> Any:
    """The tracker for an accelerator's ``log_with``."""
    accelerate = library("accelerate")
    base: Any = library("accelerate.tracking").GeneralTracker

    class Countermark(base):
        """Says what is trained, and publishes its checkpoints."""

        name = "countermark"
        requires_logging_directory = False

        def __init__(self) -> None:
            base.__init__(self)
            self._loop: Loop | None = None

        @property
        def tracker(self) -> Any:
            """The loop that is followed."""
            return self._loop

        def start(self) -> None:
            """Begin: called by ``accelerator.init_trackers``."""
            accelerator = calling(accelerate.Accelerator)
            if accelerator is None:
                raise CannotTrain("No accelerator starts this tracker. Hand it over: Accelerator(log_with=training.tracker(tokenizer)).")
            loop = Loop(recorder, accelerator, tokenizer)
            loop.begins()
            self._loop = loop

        def batches(self) -> Iterator[Any]:
            """The micro batches from where training is to its last step. Raises ``CannotTrain`` before the tracker was started."""
            if self._loop is None:
                raise CannotTrain("Nothing is followed yet. Call accelerator.init_trackers() after accelerator.prepare().")
            return self._loop.batches()

        def finish(self) -> None:
            """End: called by ``accelerator.end_training``."""
            if self._loop is not None:
                self._loop.ends()

    return Countermark()
