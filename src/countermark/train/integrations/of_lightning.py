"""Lightning's trainer: its callback, and what its objects show.

Rules kept here:

1. ``lightning.pytorch`` and ``pytorch_lightning`` are followed alike: the callback is of the package that the trainer is of.
2. Lightning keeps neither the generators nor, of a loader that cannot tell, the place in an epoch. The callback puts the generators into
   every checkpoint and back, at the moment that they were taken at; a loader that cannot tell its place is refused before the first step.
3. Evaluation moves no weights: what it draws is given back to the training.
4. A module is the script's own, so its step is watched: the loss must be the one that the model computes. Hooks that change what happens
   in a step, and callbacks of Lightning that change weights, are named.
5. Checkpoints are saved by the recipe's settings; those of the script's own callbacks are left alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from countermark.evidence.members import Unread
from countermark.train import generators
from countermark.train.effective.seen import Said, said
from countermark.train.failures import CannotTrain
from countermark.train.integrations.code import foreign_methods
from countermark.train.integrations.watching import StepWatch
from countermark.train.libraries import library, loaded
from countermark.train.recorder import Recorder
from countermark.train.sequences import Preparation

PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")
GENERATORS: Final = "rng_state"
_AUTOCAST: Final = {"32-true": "no", "bf16-mixed": "bf16", "16-mixed": "fp16", "bf16-true": "no"}
#: What a module may have of its own: its step is watched, its optimizer is read as it is, and the rest computes nothing of a step.
_HARMLESS: Final = frozenset(
    {
        "training_step", "configure_optimizers", "forward", "train_dataloader", "val_dataloader", "setup", "prepare_data", "teardown",
        "validation_step", "test_step", "predict_step", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_end",
        "on_fit_end", "on_validation_epoch_end", "on_train_epoch_end", "configure_callbacks",
    }
)  # fmt: skip
#: Lightning's own callbacks that change what is trained or computed.
_CHANGING: Final = frozenset(
    {"StochasticWeightAveraging", "WeightAveraging", "EMAWeightAveraging", "BaseFinetuning", "BackboneFinetuning", "ModelPruning"}
)


def package_of(trainer: Any) -> str:
    """The package that a trainer is of. Raises ``CannotTrain`` for one that is of neither."""
    for name in PACKAGES:
        module = loaded(name)
        if module is not None and isinstance(trainer, module.Trainer):
            return name
    raise CannotTrain(f"{type(trainer).__name__} is no Trainer of {' or of '.join(PACKAGES)}.")


@final
@dataclass(frozen=True, slots=True)
class LightningObjects:
    """The trainer and its module."""

    trainer: Any
    tokenizer: Any
    watch: StepWatch

    @property
    def model(self) -> Any:
        return adapted_in(self.whole)

    @property
    def whole(self) -> Any:
        return self.trainer.lightning_module

    @property
    def optimizer(self) -> Any:
        (optimizer,) = self.trainer.optimizers
        return optimizer

    @property
    def scheduler(self) -> Any:
        (config,) = self.trainer.lr_scheduler_configs
        return config.scheduler

    @property
    def loader(self) -> Any:
        return self.trainer.train_dataloader

    @property
    def processing_class(self) -> Any:
        return self.tokenizer

    @property
    def step(self) -> int:
        return int(self.trainer.global_step)

    @property
    def total(self) -> int | None:
        set_to = self.trainer.max_steps if self.trainer.max_steps != -1 else self.trainer.estimated_stepping_batches
        return None if set_to == float("inf") else int(set_to)

    @property
    def seed(self) -> int | None:
        return None

    @property
    def accumulation(self) -> int:
        return int(self.trainer.accumulate_grad_batches)

    @property
    def clipping(self) -> Said:
        clip, how = self.trainer.gradient_clip_val, self.trainer.gradient_clip_algorithm
        if clip and how is not None and str(getattr(how, "value", how)) != "norm":
            return Unread(f"gradients are clipped by {getattr(how, 'value', how)}, which no coordinate holds")
        return said("max_grad_norm", clip or "off")

    @property
    def workers(self) -> int:
        return int(self.trainer.world_size)

    @property
    def autocast(self) -> str:
        precision = str(self.trainer.precision)
        return _AUTOCAST.get(precision, f"{precision!r}, which this integration does not read")

    @property
    def averaging(self) -> str:
        return self.watch.averaging

    def unseen(self) -> bool:
        return not self.watch.micro_batches

    def foreign(self, config: Any, resume: str | None) -> Iterator[str]:
        module = self.whole
        base = library(package_of(self.trainer)).LightningModule
        yield from foreign_methods(module, "module", base, _HARMLESS, put_by_library={"trainer"})
        if not module.automatic_optimization:
            yield f"{type(module).__name__} optimizes by itself"
        names = [name for one in self.trainer.callbacks for kind in type(one).__mro__ if (name := kind.__name__) in _CHANGING]
        if names:
            yield f"callbacks change what is trained: {', '.join(dict.fromkeys(names))}"
        if (part := self.trainer.limit_train_batches) not in (1.0, None):
            yield f"an epoch is cut to {part} of its batches"
        yield from self.watch.problems.values()

    def claimed(self, desired: Preparation) -> Preparation | str:
        return desired


def adapted_in(module: Any) -> Any:
    """The one adapted model in a module. Raises ``ValueError`` where there is none, or several."""
    found = [one for one in module.modules() if isinstance(one, library("peft").PeftModel)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} adapted models are in {type(module).__name__}, and this roster is of one")
    return found[0]


def file_in(checkpoint: Path) -> Path:
    """The one file of a published checkpoint. Raises ``CannotTrain`` where it is none of Lightning's."""
    found = sorted(checkpoint.glob("*.ckpt"))
    if len(found) != 1:
        raise CannotTrain(f"{checkpoint} has {len(found)} files of Lightning's, and a training goes on from one.")
    return found[0]


@final
class Following:
    """What the callback does, apart from the library's class."""

    def __init__(self, recorder: Recorder, tokenizer: Any) -> None:
        self.recorder = recorder
        self.tokenizer = tokenizer
        self.watch = StepWatch()
        self._step = 0
        self._drawn: dict[str, Any] = {}
        self._pending: dict[str, Any] | None = None

    def objects(self, trainer: Any) -> LightningObjects:
        """What the trainer shows now."""
        return LightningObjects(trainer, self.tokenizer, self.watch)

    def begins(self, trainer: Any) -> None:
        """Before the first step of this process. Raises ``CannotTrain`` for a loader that cannot tell its place."""
        if not all(callable(getattr(trainer.train_dataloader, name, None)) for name in ("state_dict", "load_state_dict")):
            raise CannotTrain(
                "The trainer's loader cannot tell where in an epoch it is, so that no checkpoint within one could be gone on from. "
                "Hand the trainer Training.loader(), or another one with state_dict and load_state_dict."
            )
        objects = self.objects(trainer)
        self._step = trainer.global_step
        self.watch.attach(objects.model)
        self.recorder.begins(objects)

    def give_back(self) -> None:
        """Put the generators where a checkpoint that was loaded had them."""
        if self._pending is not None:
            generators.restore(self._pending)
            self._pending = None

    def batch_ended(self, trainer: Any) -> None:
        """A micro batch was taken, and a step where the trainer counted one; a checkpoint is saved where one is due."""
        self.recorder.micro_batch()
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self.watch.step(self._step)
            self.recorder.step()
            if self.recorder.is_due(self._step, self.objects(trainer).total):
                self._save(trainer)
        self._drawn = generators.states()

    def evaluated(self, trainer: Any) -> None:
        """What evaluation drew is given back."""
        if self._drawn and not trainer.sanity_checking:
            generators.restore(self._drawn)

    def ends(self, trainer: Any) -> None:
        """After the last step."""
        self.recorder.ends(self.objects(trainer))

    def wrote(self, checkpoint: dict[str, Any]) -> None:
        """Something is saving: the generators go with it."""
        checkpoint[GENERATORS] = self._pending if self._pending is not None else generators.states()

    def read(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint was loaded. The generators are put back when training goes on: until then, loaders are made that draw."""
        self._pending = checkpoint.get(GENERATORS)

    def _save(self, trainer: Any) -> None:
        assignment = self.recorder.assignment
        place = Path(assignment.work) / f"step={self._step}.ckpt"
        trainer.save_checkpoint(place)
        self.recorder.saved(place, self._step)


def callback_of(recorder: Recorder, package: str, tokenizer: Any) -> Any:
    """The callback for a trainer of this package."""
    base: Any = library(package).Callback
    following = Following(recorder, tokenizer)

    class Countermark(base):
        """Says what is trained and publishes its checkpoints."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            following.begins(trainer)

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            following.give_back()

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            following.give_back()
            following.watch.batch(batch)

        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
            following.watch.backward(loss, trainer.accumulate_grad_batches)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            following.batch_ended(trainer)

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                following.give_back()

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            following.evaluated(trainer)

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            following.ends(trainer)

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
            following.wrote(checkpoint)

        def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
            following.read(checkpoint)

    return Countermark()
