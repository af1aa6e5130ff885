"""Live configurations as plain fields, the way the recipe room's reader of live objects takes them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from countermark.train.libraries import loaded


def fields_of(configuration: Any) -> dict[str, object]:
    """The fields that somebody can set of a live configuration (a dataclass), with their values."""
    return {field.name: getattr(configuration, field.name) for field in fields(configuration) if field.init}


def is_sft(args: Any) -> bool:
    """Whether arguments are TRL's for supervised fine-tuning."""
    sft = loaded("trl.trainer.sft_config")
    return sft is not None and isinstance(args, sft.SFTConfig)


def is_sft_trainer(trainer: Any) -> bool:
    """Whether a trainer is TRL's for supervised fine-tuning."""
    sft = loaded("trl.trainer.sft_trainer")
    return sft is not None and isinstance(trainer, sft.SFTTrainer)


def tools(*, trl: bool) -> str:
    """The libraries that live objects belong to, with their versions, for receipts."""
    versions: Mapping[str, Any] = {name: loaded(name) for name in ("transformers", "peft", *(("trl",) if trl else ()))}
    return ", ".join(f"{name} {module.__version__}" for name, module in versions.items() if module is not None)
