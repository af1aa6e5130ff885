"""The Transformers trainer, TRL's among it: its callback, and what its objects show.

Rules kept here:

1. A run that is complete is not trained further: the Transformers trainer takes one step more when it resumes from the last one.
2. The trainer itself is not handed to callbacks; it is the one that ``Training.run`` was given, or the one that is calling.
3. The recipe room's reader of live objects decides about fields of arguments: what it refuses in a recipe, it refuses here too.
4. Code that replaces what a trainer does in a step (a subclass's methods, replaced methods, a loss of its own) is named; a trainer that
   nobody saw is one whose code nobody saw.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from countermark.lines.defects import sentence
from countermark.recipe.formats.live import Measured, read_live
from countermark.recipe.resolve import UnknownField, UnsupportedSemanticField
from countermark.train.effective.seen import Said, said
from countermark.train.fields_of import fields_of, is_sft, is_sft_trainer, tools
from countermark.train.integrations.code import foreign_methods
from countermark.train.libraries import library, loaded
from countermark.train.recorder import Recorder, calling
from countermark.train.sequences import Preparation

#: Methods that a subclass may have of its own: they say and save, and compute nothing.
_HARMLESS: Final = frozenset({"log", "save_model", "create_model_card"})
#: Details of a field that a reader of its own judges, off the object that they made.
_READ_ELSEWHERE: Final = "lr_scheduler_kwargs."
_TRAINERS: Final = (("transformers.trainer", "Trainer"), ("trl.trainer.sft_trainer", "SFTTrainer"))
_PACKINGS: Final = {"wrapped": "concat_split", "bfd": "bfd", "bfd_split": "bfd_split"}


@final
class NothingLeft(Exception):
    """The checkpoint that a training resumed from is the run's last step."""


@final
@dataclass(frozen=True, slots=True)
class TrainerObjects:
    """What the callback was handed, and the trainer where somebody saw it."""

    args: Any
    state: Any
    seen: dict[str, Any]
    trainer: Any

    @property
    def model(self) -> Any:
        return self.seen["model"]

    @property
    def whole(self) -> Any:
        return self.seen["model"]

    @property
    def optimizer(self) -> Any:
        return out_of_accelerate(self.seen["optimizer"])

    @property
    def scheduler(self) -> Any:
        return self.seen["lr_scheduler"]

    @property
    def loader(self) -> Any:
        return self.seen["train_dataloader"]

    @property
    def processing_class(self) -> Any:
        return self.seen.get("processing_class")

    @property
    def step(self) -> int:
        return int(self.state.global_step)

    @property
    def total(self) -> int | None:
        return int(self.state.max_steps)

    @property
    def seed(self) -> int | None:
        return int(self.args.seed)

    @property
    def accumulation(self) -> int:
        return int(self.args.gradient_accumulation_steps)

    @property
    def clipping(self) -> Said:
        clip = self.args.max_grad_norm
        return said("max_grad_norm", "off" if clip == 0 else clip)

    @property
    def workers(self) -> int:
        return int(self.args.world_size * max(1, self.args.n_gpu))

    @property
    def autocast(self) -> str:
        return str(library("accelerate").state.AcceleratorState().mixed_precision)

    @property
    def averaging(self) -> str:
        return ""

    def unseen(self) -> bool:
        return False

    def foreign(self, config: Any, resume: str | None) -> Iterator[str]:
        trl = is_sft(self.args)
        read = read_live(fields_of(self.args), fields_of(config), Measured(resume=resume), trl=trl, tool=tools(trl=trl))
        for defect in read.defects:
            if isinstance(defect, UnknownField | UnsupportedSemanticField) and not defect.field.startswith(_READ_ELSEWHERE):
                yield sentence(defect).message
        yield from _foreign_code(self.trainer)

    def claimed(self, desired: Preparation) -> Preparation | str:
        args, trainer = self.args, self.trainer
        if not (is_sft(args) and (trainer is None or is_sft_trainer(trainer))):
            return desired
        if args.assistant_only_loss:
            return "masks of what the assistant says come out of a chat template, which is not rendered again here"
        if args.max_length is None:
            return "the arguments set no sequence length"
        packing = _PACKINGS.get(args.packing_strategy, "unknown") if args.packing else "none"
        completion = args.completion_only_loss if trainer is None else trainer.completion_only_loss
        return Preparation(args.max_length, packing, "completion_only" if completion else "all_tokens")


def out_of_accelerate(prepared: Any) -> Any:
    """An optimizer or a scheduler itself, out of Accelerate's wrapping."""
    for kind, held in (("AcceleratedOptimizer", "optimizer"), ("AcceleratedScheduler", "scheduler")):
        if type(prepared).__name__ == kind:
            return getattr(prepared, held)
    return prepared


def _foreign_code(trainer: Any) -> Iterator[str]:
    if trainer is None:
        yield "the trainer itself was not seen, and so not its code either"
        return
    known = {kind for module, name in _TRAINERS if (kind := getattr(loaded(module), name, None)) is not None}
    base = next((kind for kind in type(trainer).__mro__ if kind in known), None)
    if base is None:
        yield f"{type(trainer).__name__} is no trainer that this integration knows"
        return
    yield from foreign_methods(trainer, "trainer", base, _HARMLESS)
    if getattr(trainer, "compute_loss_func", None) is not None:
        yield "the trainer was handed a loss of its own"


@final
class Followed:
    """The trainer that is followed, where somebody named it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.trainer: Any = None

    def objects(self, args: Any, state: Any, seen: dict[str, Any]) -> TrainerObjects:
        """What the trainer shows now."""
        transformers = loaded("transformers.trainer")
        trainer = self.trainer or (None if transformers is None else calling(transformers.Trainer))
        return TrainerObjects(args, state, seen, trainer)


def callback_of(followed: Followed) -> Any:
    """The callback for a trainer."""
    base: Any = library("transformers").TrainerCallback
    recorder = followed.recorder

    class Countermark(base):
        """Says what is trained and publishes its checkpoints."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.begins(followed.objects(args, state, seen))

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            if state.global_step >= state.max_steps:
                recorder.ends(followed.objects(args, state, seen))
                raise NothingLeft(f"all {state.max_steps} steps were taken before")

        def on_substep_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.micro_batch()

        def on_step_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.micro_batch()
            recorder.step()

        def on_save(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.saved(Path(args.output_dir) / f"checkpoint-{state.global_step}", state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            recorder.ends(followed.objects(args, state, seen))

    return Countermark()
