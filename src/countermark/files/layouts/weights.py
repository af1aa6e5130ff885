"""Weights as the Hugging Face libraries write them into a checkpoint: an adapter with its configuration, one file, or an index's shards.

Rules kept here:

1. Which files hold the weights follows from their names alone, and a folder with two answers is refused. Nothing is globbed in place of a
   shard that the index names and that is not there.
2. An adapter is its weights *and* its configuration: scaling and targets are in the one, the numbers in the other. A model beside it is not
   what was trained. What the one holds and the other cannot explain is refused.
3. Pickled weights are read without executing them: their tensors by name and shape, every storage of them there and whole.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from countermark.files.adapter import ADAPTER_CONFIG, AdapterConfig, parse_adapter
from countermark.files.documents import CONFIG_BYTES_MAX, told
from countermark.files.layouts.reading import LayoutReading, Parts, Whole, Whys, document, take, torch_state
from countermark.files.layouts.states import fact, table_of
from countermark.files.layouts.targets import disagreements, trained, unused
from countermark.files.model_folder import (
    INDEX_BYTES_MAX,
    INDEX_FILES,
    PICKLED_FILES,
    PICKLED_INDEX,
    SINGLE_FILES,
    shard_defects,
    weight_headers,
    weight_map_of,
)
from countermark.files.pickles import TensorStub, TorchFile
from countermark.files.reading import OpenFile, read_whole
from countermark.files.safetensors import read_table
from countermark.lines.defects import sentence
from countermark.run.checkpoint import ArtifactFact
from countermark.values import PerMille, Refused, Unreadable
from countermark.weights import name_defects
from countermark.weights.refusals import DocumentUnreadable, FileDefect, ShardMissing, WeightsAmbiguous

ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
MODEL_WEIGHTS: Final = "model.safetensors"
#: PEFT's word for an initialisation → the manifest's. Everything else stands as PEFT writes it.
_INITIALISATIONS: Final = {"True": "kaiming"}
_PICKLED_MODEL, _PICKLED_ADAPTER = PICKLED_FILES
#: Weights that FSDP gathered from its workers, a model's or an adapter's.
_GATHERED: Final = "pytorch_model_fsdp.bin"
#: Every file by which a folder has weights, and whether they are an adapter's.
CARRIERS: Final[Mapping[str, bool]] = {
    **{name: kind == "adapter" for name, kind in (*SINGLE_FILES.items(), *INDEX_FILES.items())},
    _PICKLED_MODEL: False,
    PICKLED_INDEX: False,
    _PICKLED_ADAPTER: True,
}
#: What is said of names that select nothing: nobody but the base could tell whether they should.
_UNUSED: Final = f"{ADAPTER_CONFIG} has {{}}, and the weights hold nothing of that"

#: Tensors by name, each with its shape.
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


def is_adapter(names: frozenset[str]) -> bool:
    """Whether the files of these names are those of an adapter."""
    return ADAPTER_CONFIG in names or any(CARRIERS[name] for name in names & CARRIERS.keys())


def take_weights(folder: Path, names: frozenset[str], reading: LayoutReading) -> Parts:
    """The weights in a folder that holds files of these names."""
    parts = Parts()
    shapes: Shapes | None = None
    adapter = is_adapter(names)
    carriers = sorted(name for name in names & CARRIERS.keys() if CARRIERS[name] == adapter)
    if _GATHERED in names:
        take(parts, folder, _GATHERED, pickled)
    if len(carriers) > 1:
        parts.whys.append(sentence(WeightsAmbiguous(tuple(carriers))).message)
    elif carriers:
        shapes = _carried(folder, carriers[0], names, parts)
    elif adapter or _GATHERED not in names:
        parts.absent.append(ADAPTER_WEIGHTS if adapter else MODEL_WEIGHTS)
    reading.model_shapes = tuple(sorted(shapes.values())) if adapter and shapes else None
    if adapter:
        config = take(parts, folder, ADAPTER_CONFIG, _adapter)
        reading.facts.extend(adapter_facts(config) if config is not None else ())
        if config is not None and shapes is not None:
            reading.model_shapes = tuple(sorted(shapes[name] for name in trained(config, shapes)))
            parts.refuse(ADAPTER_CONFIG, Whys(tuple(disagreements(config, shapes))))
            reading.notes = (*reading.notes, *map(_UNUSED.format, unused(config, shapes)))
    return parts


def _carried(folder: Path, carrier: str, names: frozenset[str], parts: Parts) -> Shapes | None:
    """The tensors that one file or index carries; None where it does not hold them all."""
    if carrier in SINGLE_FILES:
        return take(parts, folder, carrier, safetensors)
    if carrier in PICKLED_FILES:
        return take(parts, folder, carrier, pickled)
    if carrier == PICKLED_INDEX:
        return _pickled_shards(folder, carrier, names, parts)
    _, headers = weight_headers(folder, tuple(sorted(names - CARRIERS.keys() | {carrier})), ())
    parts.whys.extend(sentence(defect).message for defect in headers.defects)
    take(parts, folder, carrier, lambda opened: Whole())
    shards = [take(parts, folder, name, safetensors) for name in sorted(headers.tables)]
    return {tensor: shape for shard in shards if shard is not None for tensor, shape in shard.items()}


def _pickled_shards(folder: Path, index: str, names: frozenset[str], parts: Parts) -> Shapes | None:
    listed = take(parts, folder, index, lambda opened: _weight_map(index, opened))
    if listed is None:
        return None
    held: dict[str, Shapes] = {}
    for shard in sorted(set(listed.values())):
        if shard not in names:
            parts.whys.append(sentence(ShardMissing(shard)).message)
        elif (found := take(parts, folder, shard, pickled)) is not None:
            held[shard] = found
    parts.whys.extend(sentence(defect).message for defect in shard_defects(listed, {name: set(found) for name, found in held.items()}, {}))
    return {tensor: shape for found in held.values() for tensor, shape in found.items()}


def _weight_map(index: str, opened: OpenFile) -> Mapping[str, str] | Whys | FileDefect:
    listed = document(opened, INDEX_BYTES_MAX)
    found = weight_map_of(index, listed) if isinstance(listed, dict) else listed
    return Whys((found.why,)) if isinstance(found, DocumentUnreadable) else found


def safetensors(opened: OpenFile) -> Shapes | Whys | FileDefect:
    """A parser for ``take``: what a safetensors file holds, at least one tensor."""
    table = read_table(opened)
    if isinstance(table, Refused):
        return Whys(tuple(sentence(defect).message for defect in table.defects))
    if unprintable := name_defects(span.name for span in table.tensors):
        return Whys(tuple(sentence(defect).message for defect in unprintable))
    return {span.name: span.shape for span in table.tensors} or Whys(("it holds no tensor",))


def _pickled(file: TorchFile, _: OpenFile) -> Shapes | Whys:
    return {name: value.shape for name, value in table_of(file.value).items() if isinstance(value, TensorStub)} or Whys(
        ("it holds no tensor",)
    )


#: A parser for ``take``: what a file of ``torch.save`` holds of a model's state, at least one tensor.
pickled: Final[Callable[[OpenFile], Shapes | Whys | FileDefect]] = torch_state(_pickled)


def _adapter(opened: OpenFile) -> AdapterConfig | Whys | FileDefect:
    content = read_whole(opened, CONFIG_BYTES_MAX)
    if not isinstance(content, bytes):
        return content
    config = parse_adapter(content)
    return Whys((config.why,)) if isinstance(config, Unreadable) else config


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
