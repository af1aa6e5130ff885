"""The base under the adapter: its artifact, and how numbers are stored and computed with.

Rules kept here:

1. The folder that the recipe names is hashed, and the live tensors are compared with its tensors, each cast as it was loaded, bit for bit.
   Only if all agree, and the configurations do, is the folder's hash the live model's; else the live model is hashed as it is.
2. The format is read off the dtypes of the live tensors and the library's autocast; a mixture that has no word is unread.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from countermark.evidence.members import Unread
from countermark.files.model_folder import MeasuredBase, measure_base
from countermark.train.effective.seen import Live, Readings, Said, said
from countermark.train.libraries import library
from countermark.train.objects import base_of, base_state, effective_config, live_base_artifact, raw, stored_state

NAMES: Final = ("base_artifact", "numeric_format")


def read_base(live: Live) -> Readings:
    """The coordinates of ``NAMES``."""
    return {"base_artifact": _artifact(live), "numeric_format": _format(live)}


def read_format(live: Live) -> Readings:
    """The format alone, which is cheap to look at again."""
    return {"numeric_format": _format(live)}


def _artifact(live: Live) -> Said:
    base = base_of(live.objects.model)
    if getattr(base, "is_quantized", False):
        return Unread("the base is quantized, and its tensors are none that a model folder holds")
    folder = live.assignment.sources.get("model")
    measured = measure_base(Path(folder)) if folder is not None else None
    if isinstance(measured, MeasuredBase) and folder is not None and _is_loaded_from(live.objects.model, Path(folder), measured):
        return said("base_artifact", measured.base_artifact.spell(), "file_hash")
    return said("base_artifact", live_base_artifact(live.objects.model).spell())


def _is_loaded_from(model: Any, folder: Path, measured: MeasuredBase) -> bool:
    """Whether the live base is the folder's, cast as it is: every tensor of each is in the other, and the configurations work alike."""
    config = library("transformers").AutoConfig.from_pretrained(folder)
    if effective_config(config) != effective_config(base_of(model).config):
        return False
    stored, every = stored_state(model), base_state(model)
    names = {line.name for line in measured.weights.tensors}
    if not stored.keys() <= names or not names <= stored.keys() | every.keys():
        return False
    safetensors, torch = library("safetensors"), library("torch")
    for file in measured.weights.files:
        with safetensors.safe_open(folder / file, framework="pt") as opened:
            for name in opened.keys():
                ours = stored.get(name, every.get(name))
                theirs = opened.get_tensor(name)
                if ours is None or ours.shape != theirs.shape or not torch.equal(raw(ours), raw(theirs.to(ours.dtype))):
                    return False
    return True


def _format(live: Live) -> Said:
    base = base_of(live.objects.model)
    if getattr(base, "is_quantized", False):
        return Unread("the base is quantized in a way that this integration does not read")
    frozen = {str(tensor.dtype).removeprefix("torch.") for tensor in base_state(live.objects.model).values() if tensor.is_floating_point()}
    trained = {str(tensor.dtype).removeprefix("torch.") for tensor in live.objects.model.parameters() if tensor.requires_grad}
    autocast = live.objects.autocast
    words: Mapping[tuple[str, ...], str] = {
        ("float32", "float32", "no"): "fp32",
        ("float32", "float32", "bf16"): "fp32_bf16amp",
        ("bfloat16", "float32", "bf16"): "bf16_bf16amp",
        ("bfloat16", "bfloat16", "no"): "bf16_pure",
        ("float32", "float32", "fp16"): "fp32_fp16amp",
    }
    if len(frozen) == len(trained) == 1 and (word := words.get((*frozen, *trained, autocast))) is not None:
        return said("numeric_format", word)
    return Unread(f"the base is stored in {_listed(frozen)}, the adapter in {_listed(trained)}, autocast is {autocast}: no word says that")


def _listed(dtypes: set[str]) -> str:
    return " and ".join(sorted(dtypes)) or "nothing"
