"""Weights as the Hugging Face libraries write them into a checkpoint: an adapter with its configuration, one file, or an index's shards.

Rules kept here:

1. Which files hold the weights follows from their names alone, and a folder with two answers is refused. Nothing is globbed in place of a
   shard that the index names and that is not there.
2. An adapter is its weights *and* its configuration: scaling and targets are in the one, the numbers in the other.
"""

from pathlib import Path
from typing import Final

from countermark.files.adapter import ADAPTER_CONFIG, AdapterConfig, parse_adapter
from countermark.files.digest_cache import hash_file
from countermark.files.documents import CONFIG_BYTES_MAX, told
from countermark.files.layouts.reading import LayoutReading, Parts, Whys, take
from countermark.files.layouts.states import fact
from countermark.files.model_folder import INDEX_FILES, SINGLE_FILES, weight_headers
from countermark.files.reading import OpenFile, read_whole
from countermark.files.safetensors import read_table
from countermark.lines.defects import sentence
from countermark.run.checkpoint import ArtifactFact, FileReading
from countermark.values import PerMille, Refused, Unreadable
from countermark.weights import TensorTable, name_defects
from countermark.weights.refusals import FileDefect

ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
MODEL_WEIGHTS: Final = "model.safetensors"
#: PEFT's word for an initialisation → the manifest's. Everything else stands as PEFT writes it.
_INITIALISATIONS: Final = {"True": "kaiming"}


def is_adapter(names: frozenset[str]) -> bool:
    """Whether the files of these names are those of an adapter."""
    return not names.isdisjoint({ADAPTER_WEIGHTS, ADAPTER_CONFIG})


def take_weights(folder: Path, names: frozenset[str], reading: LayoutReading) -> Parts:
    """The weights in a folder that holds files of these names."""
    parts = Parts()
    if not is_adapter(names):
        return _model_weights(folder, names, parts)
    table = take(parts, folder, ADAPTER_WEIGHTS, tensors)
    config = take(parts, folder, ADAPTER_CONFIG, _adapter)
    if table is not None:
        reading.model_shapes = tuple(sorted(span.shape for span in table.tensors))
    if config is not None:
        reading.facts.extend(adapter_facts(config))
    return parts


def tensors(opened: OpenFile) -> TensorTable | Whys | FileDefect:
    """A parser for ``take``: what a safetensors file holds, at least one tensor."""
    table = read_table(opened)
    if isinstance(table, Refused):
        return Whys(tuple(sentence(defect).message for defect in table.defects))
    if unprintable := name_defects(span.name for span in table.tensors):
        return Whys(tuple(sentence(defect).message for defect in unprintable))
    return table if table.tensors else Whys(("it holds no tensor",))


def _adapter(opened: OpenFile) -> AdapterConfig | Whys | FileDefect:
    content = read_whole(opened, CONFIG_BYTES_MAX)
    if not isinstance(content, bytes):
        return content
    config = parse_adapter(content)
    return Whys((config.why,)) if isinstance(config, Unreadable) else config


def _model_weights(folder: Path, names: frozenset[str], parts: Parts) -> Parts:
    """The weights of a whole model, one file or shards."""
    held = sorted(name for name in (*SINGLE_FILES, *INDEX_FILES) if name in names)
    if not held:
        parts.absent.append(MODEL_WEIGHTS)
        return parts
    _, headers = weight_headers(folder, tuple(sorted(names)), ())
    parts.whys.extend(sentence(defect).message for defect in headers.defects)
    for name in sorted({*headers.tables, *(set(held) & set(INDEX_FILES))}):
        hashed = hash_file(folder, name)
        if isinstance(hashed, tuple):
            parts.files.append(FileReading(name, *hashed))
        else:
            parts.defect(hashed)
    return parts


def adapter_facts(config: AdapterConfig) -> tuple[ArtifactFact, ...]:
    """What the adapter's configuration shows: rank, scaling, dropout, targets, method."""
    values = config.values
    source = "adapter_config.json"
    rank, alpha = values.get("r"), values.get("lora_alpha")
    found = [fact("rank", rank, f"{source}: r")]
    scaling = _scaling(rank, alpha, values.get("use_rslora") is True)
    if scaling is not None:
        found.append(fact("scaling", scaling, f"{source}: lora_alpha, r, use_rslora"))
    dropout = PerMille.of_rate(values.get("lora_dropout"))
    spelled = told(values.get("lora_dropout")) if isinstance(dropout, Unreadable) else dropout.spell()
    found.append(ArtifactFact("dropout", spelled, f"{source}: lora_dropout"))
    if isinstance(values.get("target_modules"), list):
        found.append(fact("target_modules", values["target_modules"], f"{source}: target_modules"))
    init = str(values.get("init_lora_weights"))
    arm = "dora" if values.get("use_dora") is True else "lora"
    found.append(fact("method", f"{arm}(init={_INITIALISATIONS.get(init, init)})", f"{source}: init_lora_weights, use_dora"))
    return tuple(found)


def _scaling(rank: object, alpha: object, rank_stabilized: bool) -> float | None:
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1 or isinstance(alpha, bool) or not isinstance(alpha, int | float):
        return None
    try:
        return float(alpha / rank**0.5 if rank_stabilized else alpha / rank)
    except OverflowError:
        return None
