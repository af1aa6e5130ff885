"""``adapter_config.json``: which of its keys change what the adapter computes.

Rules kept here:

1. Every key that PEFT's ``LoraConfig`` has stands in one closed table (a test holds it against the installed library): it changes
   inference, only the training that is over, or only says where things lay.
2. A key that the table does not know counts as changing inference: a false difference is seen, a false equality is not.
3. A key that is absent has its default: files of older releases, which lack it, mean the same.
4. What PEFT keeps as a set is sorted: it writes sets in another order in every process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, final

from countermark.files.documents import CONFIG_BYTES_MAX, as_list, parse_object
from countermark.files.reading import read_small
from countermark.recipe.canonical import canonical_json
from countermark.values import Unreadable
from countermark.weights.refusals import DocumentDefect, DocumentUnreadable

ADAPTER_CONFIG: Final = "adapter_config.json"
Effect: TypeAlias = Literal["inference", "training", "location"]


@final
@dataclass(frozen=True, slots=True)
class AdapterKey:
    """What a key changes, the value that its absence means, and whether a list under it is a set."""

    effect: Effect
    default: object = None
    is_set: bool = False


#: Initialisations that fill the adapter's own matrices and nothing else.
_BASE_LEFT_ALONE: Final = frozenset({"gaussian", "orthogonal", "eva"})
_EMPTY: Final[Mapping[str, object]] = MappingProxyType(dict[str, object]())
_INFERENCE: Final = AdapterKey("inference")
_LOCATION: Final = AdapterKey("location")

#: PEFT 0.21. Initialisations stay on the inference side: pissa, olora, corda, loftq, lora_ga and kasa change the *base* weights on loading.
ADAPTER_KEYS: Final[Mapping[str, AdapterKey]] = MappingProxyType(
    {
        "peft_type": _INFERENCE,
        "task_type": _INFERENCE,
        "r": AdapterKey("inference", 8),
        "lora_alpha": AdapterKey("inference", 8),
        "use_rslora": AdapterKey("inference", False),
        "use_dora": AdapterKey("inference", False),
        "target_modules": AdapterKey("inference", is_set=True),
        "exclude_modules": AdapterKey("inference", is_set=True),
        "target_parameters": AdapterKey("inference", is_set=True),
        "layers_to_transform": AdapterKey("inference", is_set=True),
        "layers_pattern": AdapterKey("inference", is_set=True),
        "layer_replication": _INFERENCE,
        "rank_pattern": AdapterKey("inference", _EMPTY),
        "alpha_pattern": AdapterKey("inference", _EMPTY),
        "fan_in_fan_out": AdapterKey("inference", False),
        "bias": AdapterKey("inference", "none"),
        "lora_bias": AdapterKey("inference", False),
        "modules_to_save": AdapterKey("inference", is_set=True),
        "trainable_token_indices": AdapterKey("inference", is_set=True),
        "ensure_weight_tying": AdapterKey("inference", False),
        "init_lora_weights": AdapterKey("inference", True),
        "loftq_config": AdapterKey("inference", _EMPTY),
        "corda_config": _INFERENCE,
        "lora_ga_config": _INFERENCE,
        "kasa_config": _INFERENCE,
        "monteclora_config": _INFERENCE,
        "alora_invocation_tokens": _INFERENCE,
        "use_qalora": AdapterKey("inference", False),
        "qalora_group_size": AdapterKey("inference", 16),
        "use_bdlora": _INFERENCE,
        "arrow_config": _INFERENCE,
        "megatron_config": _INFERENCE,
        # eva chooses ranks and directions before training and leaves the base alone; velora compresses what the backward pass keeps.
        "eva_config": AdapterKey("training"),
        "velora_config": AdapterKey("training"),
        "lora_dropout": AdapterKey("training", 0.0),
        "inference_mode": AdapterKey("training", False),
        # Whether weights stay on the processor until they are used: never written to the file.
        "runtime_config": AdapterKey("training"),
        "base_model_name_or_path": _LOCATION,
        "revision": _LOCATION,
        "auto_mapping": _LOCATION,
        "peft_version": _LOCATION,
        "megatron_core": AdapterKey("location", "megatron.core"),
    }
)


@final
@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """An adapter's configuration with its defaults filled in and its sets sorted."""

    values: Mapping[str, object]

    def inference(self) -> Mapping[str, object]:
        """The keys that change what the adapter computes, unknown ones included."""
        return {key: value for key, value in self.values.items() if ADAPTER_KEYS.get(key, _INFERENCE).effect == "inference"}

    def ran(self) -> Mapping[str, object]:
        """As ``inference``, with every initialisation that leaves the base's weights alone as one: loading writes over what it made."""
        kept = dict(self.inference())
        how = kept["init_lora_weights"]
        if isinstance(how, bool) or (isinstance(how, str) and how.lower() in _BASE_LEFT_ALONE):
            kept["init_lora_weights"] = True
        return kept

    def unknown(self) -> tuple[str, ...]:
        """The keys that the table does not know."""
        return tuple(sorted(self.values.keys() - ADAPTER_KEYS.keys()))


def adapter_config(document: Mapping[str, object]) -> AdapterConfig:
    """A configuration as its keys stand in the file."""
    defaults: dict[str, object] = {
        key: dict[str, object]() if known.default is _EMPTY else known.default for key, known in ADAPTER_KEYS.items()
    }
    return AdapterConfig(defaults | {key: _sorted_set(key, value) for key, value in document.items()})


def parse_adapter(content: bytes) -> AdapterConfig | Unreadable:
    """A configuration from the bytes of its file."""
    document = parse_object(content)
    if isinstance(document, Unreadable):
        return document
    try:
        canonical_json(document)
    except ValueError as error:
        return Unreadable(str(error))
    return adapter_config(document)


def read_adapter(folder: Path, *, links_to: tuple[Path, ...] = ()) -> AdapterConfig | DocumentDefect:
    """The configuration beside an adapter's weights."""
    content = read_small(folder, ADAPTER_CONFIG, CONFIG_BYTES_MAX, links_to=links_to)
    if not isinstance(content, bytes):
        return content
    config = parse_adapter(content)
    return DocumentUnreadable(ADAPTER_CONFIG, config.why) if isinstance(config, Unreadable) else config


def _sorted_set(key: str, value: object) -> object:
    items = as_list(value)
    if items is None or not ADAPTER_KEYS.get(key, _INFERENCE).is_set:
        return value
    return sorted(items, key=lambda item: (isinstance(item, str), item if isinstance(item, str) else "", str(item).zfill(20)))
