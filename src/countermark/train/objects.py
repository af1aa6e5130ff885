"""Values of the training stack, read: tokenizers, base models.

Rules kept here:

1. A live tokenizer is a folder's if the two work alike: same pipeline, same special ids, same template. Settings that calls leave behind
   (truncation, padding) do not count; a padding token that the folder lacks and that somebody set to an existing token does not either.
2. A live base model's artifact is what ``save_pretrained`` would store: tied duplicates dropped, adapters left out, names without the
   adapter's wrapping, the configuration as it would be written.
"""

import copy
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from countermark.files.tokenizer_folder import MeasuredTokenizer, measure_tokenizer
from countermark.recipe.canonical import base_artifact_of
from countermark.train.failures import CannotTrain
from countermark.train.libraries import library
from countermark.train.sequences import Tokenize
from countermark.values import Refused, Sha256
from countermark.weights import TensorLine, weights_root
from countermark.weights.refusals import TokenizerDefect

#: torch's name of a dtype → the name that safetensors spells.
DTYPES: Final[Mapping[str, str]] = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64",
    "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip
#: Keys of a configuration that change nothing of what training computes, and that trainers set by themselves.
CONFIG_KEYS_INERT: Final = frozenset(
    {
        "_name_or_path",
        "transformers_version",
        "dtype",
        "torch_dtype",
        "use_cache",
        "architectures",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
    }
)
_ADAPTER_PARTS: Final = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector")


# --------------------------------------------------------------------------------------------------------- tokenizers


def tokenize_with(tokenizer: Any) -> Tokenize:
    """The tokenizer as this room uses it. Raises ``CannotTrain`` where it ends no sequence."""
    end = tokenizer.eos_token
    if not isinstance(end, str):
        raise CannotTrain("The tokenizer has no end-of-sequence token, so no sequence would ever end. Set one in its folder.")
    return Tokenize(lambda text: tokenizer(text=text)["input_ids"], end)


def padding_of(tokenizer: Any) -> int:
    """The id that pads a batch: the padding token's, or the end's where there is none; masks keep it from being read."""
    found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    if not isinstance(found, int):
        raise CannotTrain("The tokenizer has no padding token and no end-of-sequence token to pad with. Set one in its folder.")
    return found


def works_alike(live: Any, reference: Any) -> bool:
    """Whether a live tokenizer makes the ids that a freshly loaded one makes."""
    return _workings(live, reference) == _workings(reference, reference)


def tokenization_of(tokenizer: Any, folder: Path | None) -> tuple[Sha256, bool] | Refused[TokenizerDefect]:
    """The coordinate ``tokenization`` of a live tokenizer: the folder's where it works as the folder's does (True), else that of what it
    would be saved as (False); or why that cannot be measured."""
    if folder is not None and folder.is_dir():
        measured = measure_tokenizer(folder)
        reference = library("transformers").AutoTokenizer
        if isinstance(measured, MeasuredTokenizer) and works_alike(tokenizer, reference.from_pretrained(folder)):
            return measured.tokenization, True
    with tempfile.TemporaryDirectory(prefix="countermark-tokenizer-") as place:
        tokenizer.save_pretrained(place)
        saved = measure_tokenizer(Path(place))
    return saved if isinstance(saved, Refused) else (saved.tokenization, False)


def _workings(tokenizer: Any, reference: Any) -> str:
    special = dict(tokenizer.special_tokens_map)
    if reference.pad_token is None:
        special.pop("pad_token", None)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    pipeline: Any = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    if backend is not None:
        pipeline = {name: part for name, part in pipeline.items() if name not in {"truncation", "padding"}}
    roles = {str(role): str(token) for role, token in special.items()}
    return json.dumps([type(tokenizer).__name__, pipeline, roles, tokenizer.chat_template], sort_keys=True)


# -------------------------------------------------------------------------------------------------------- base models


def base_of(model: Any) -> Any:
    """The base under an adapter, or the model itself where it has none."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def base_state(model: Any) -> dict[str, Any]:
    """The base's own tensors by the names that they have without an adapter, tied ones under each of their names."""
    found: dict[str, Any] = {}
    for name, tensor in base_of(model).state_dict().items():
        parts = name.split(".")
        if not any(part in _ADAPTER_PARTS for part in parts):
            found[".".join(part for part in parts if part != "base_layer")] = tensor
    return found


def stored_state(model: Any) -> dict[str, Any]:
    """The base's tensors as ``save_pretrained`` would store them."""
    modeling, loading = library("transformers.modeling_utils"), library("transformers.core_model_loading")
    base = base_of(model)
    kept = modeling.remove_tied_weights_from_state_dict(base_state(model), base)
    return dict(loading.revert_weight_conversion(base, kept))


def stored_config(model: Any) -> dict[str, object]:
    """The base's configuration as ``save_pretrained`` would write it."""
    base = base_of(model)
    config = copy.deepcopy(base.config)
    config.dtype = str(base.dtype).removeprefix("torch.")
    config.architectures = [type(base).__name__]
    found: dict[str, object] = json.loads(config.to_json_string(use_diff=True))
    return found


def effective_config(config: Any) -> str:
    """What of a configuration changes what training computes, as one text."""
    written = json.loads(config.to_json_string(use_diff=False))
    return json.dumps({name: value for name, value in written.items() if name not in CONFIG_KEYS_INERT}, sort_keys=True)


def raw(tensor: Any) -> Any:
    """A tensor's data as safetensors stores it, row-major and little-endian: a flat tensor of bytes. Copies where the tensor lies
    elsewhere or otherwise."""
    return tensor.detach().to("cpu").contiguous().reshape(-1).view(library("torch").uint8)


def live_base_artifact(model: Any) -> Sha256:
    """The coordinate ``base_artifact`` of a live base model. Raises ``ValueError`` for one without a canonical configuration or dtype."""
    root = weights_root(_lines(stored_state(model)))
    if isinstance(root, Refused):
        raise ValueError("its tensors have names that no root can carry")
    return base_artifact_of(root, stored_config(model))


def _lines(state: Mapping[str, Any]) -> Iterator[TensorLine]:
    for name, tensor in state.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise ValueError(f"{name} is of dtype {dtype}, which safetensors does not spell")
        digest = Sha256(hashlib.sha256(raw(tensor).numpy()).hexdigest())
        yield TensorLine(name, DTYPES[dtype], tuple(int(size) for size in tensor.shape), digest)
