"""What the computation has that no coordinate holds: fields of arguments and adapter configuration, and the trainer's own code.

Rules kept here:

1. The recipe room's reader of live objects decides about fields: what it refuses in a recipe, it refuses here too.
2. Code that replaces what a trainer does in a step (a subclass's methods, replaced methods, a loss of its own) is named; a trainer that
   nobody saw is one whose code nobody saw.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from countermark.lines.defects import sentence
from countermark.recipe.formats.live import Measured, read_live
from countermark.recipe.resolve import UnknownField, UnsupportedSemanticField
from countermark.train.effective.seen import Live
from countermark.train.fields_of import fields_of, is_sft, tools
from countermark.train.libraries import loaded

#: Methods that a subclass may have of its own: they say and save, and compute nothing.
_HARMLESS: Final = frozenset({"log", "save_model", "create_model_card"})
#: Details of a field that a reader of its own judges, off the object that they made.
_READ_ELSEWHERE: Final = "lr_scheduler_kwargs."
_TRAINERS: Final = (("transformers.trainer", "Trainer"), ("trl.trainer.sft_trainer", "SFTTrainer"))


def foreign(live: Live, config: Any) -> Iterator[str]:
    """Everything that changes the computation and has no coordinate; ``config`` is the adapter's configuration."""
    trl = is_sft(live.args)
    resume = None if live.assignment.resume is None else str(live.assignment.resume)
    read = read_live(fields_of(live.args), fields_of(config), Measured(resume=resume), trl=trl, tool=tools(trl=trl))
    for defect in read.defects:
        if isinstance(defect, UnknownField | UnsupportedSemanticField) and not defect.field.startswith(_READ_ELSEWHERE):
            yield sentence(defect).message
    yield from _foreign_code(live.trainer)


def _foreign_code(trainer: Any) -> Iterator[str]:
    if trainer is None:
        yield "the trainer itself was not seen, and so not its code either"
        return
    known = {kind for module, name in _TRAINERS if (kind := getattr(loaded(module), name, None)) is not None}
    line = type(trainer).__mro__
    base = next((kind for kind in line if kind in known), None)
    if base is None:
        yield f"{type(trainer).__name__} is no trainer that this integration knows"
        return
    own = {name for kind in line if issubclass(kind, base) and kind is not base for name in vars(kind)}
    mixed = {name for kind in line[: line.index(base)] for name in vars(kind)}
    if changed := sorted(name for name in own | mixed if name not in _HARMLESS and not name.startswith("__") and hasattr(base, name)):
        yield f"{type(trainer).__name__} has its own {', '.join(changed)}"
    own_attributes = cast("dict[str, object]", trainer.__dict__)
    if put := sorted(name for name in own_attributes if callable(getattr(base, name, None))):
        yield f"the trainer's {', '.join(put)} was replaced"
    if getattr(trainer, "compute_loss_func", None) is not None:
        yield "the trainer was handed a loss of its own"
