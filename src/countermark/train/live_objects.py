"""Live objects of a script to observations: what ``resolve`` makes a manifest of, before anything is trained.

Rules kept here:

1. Configurations are handed over field by field; the recipe room's closed tables judge each.
2. Content is measured: the base as ``save_pretrained`` would store it, the tokenizer by its folder where it works as that folder's does and
   as it would be saved otherwise, the rows as they come. What nobody handed over stays open, and ``resolve`` names it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from countermark.recipe import Observations
from countermark.recipe.formats.live import Measured, read_live
from countermark.train.effective.of_adapter import PREFIX, adapted_modules
from countermark.train.failures import CannotTrain, refusal
from countermark.train.fields_of import fields_of, is_sft, tools
from countermark.train.handed_out import Sequences, hash_rows
from countermark.train.objects import base_of, live_base_artifact, tokenization_of
from countermark.values import Refused, Sha256


def observe_live(
    arguments: Any,
    lora: Any,
    *,
    model: Any = None,
    tokenizer: Any = None,
    rows: Iterable[Mapping[str, object]] | None = None,
    dataset: Any = None,
) -> Observations:
    """The observations of live objects.

    ``arguments``: a TrainingArguments or SFTConfig; ``lora``: a LoraConfig; ``model``: the base, or the base with its adapter;
    ``rows``: the dataset before template and tokenization (a ``datasets.Dataset`` will do); ``dataset``: what the trainer is fed, whose
    length decides how many steps an epoch takes. Raises ``CannotTrain`` for what cannot be measured.
    """
    trl = is_sft(arguments)
    adapted = adapted_modules(model) if model is not None else {}
    measured = Measured(
        base_artifact=None if model is None else _base(model),
        tokenization=None if tokenizer is None else _tokenization(tokenizer),
        dataset=None if rows is None else hash_rows(rows),
        rows=None if dataset is None else len(dataset),
        adapted=tuple(adapted) or None,
        modules=() if model is None else tuple(name.removeprefix(PREFIX) for name, _ in model.named_modules() if name),
        storage=None if model is None else str(base_of(model).dtype),
        adapter_storage=" and ".join(sorted({str(part.weight.dtype) for layer in adapted.values() for part in layer.lora_A.values()}))
        or None,
        packing=dataset.how.packing if isinstance(dataset, Sequences) else None,
        loss_mask=dataset.how.loss_mask if isinstance(dataset, Sequences) else None,
        sequence_length=dataset.how.sequence_length if isinstance(dataset, Sequences) else None,
        workers=arguments.world_size * max(1, arguments.n_gpu),
    )
    return read_live(fields_of(arguments), fields_of(lora), measured, trl=trl, tool=tools(trl=trl))


def _tokenization(tokenizer: Any) -> Sha256:
    found = tokenization_of(tokenizer, Path(str(tokenizer.name_or_path)))
    if isinstance(found, Refused):
        raise refusal("the live tokenizer", found.defects)
    return found[0]


def _base(model: Any) -> Sha256:
    if getattr(base_of(model), "is_quantized", False):
        raise CannotTrain("The base is quantized, and its tensors are none that a model folder holds. Pin base_artifact by its folder.")
    try:
        return live_base_artifact(model)
    except ValueError as error:
        raise CannotTrain(f"The live base cannot be measured: {error}.") from error
