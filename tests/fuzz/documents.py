"""Judges of documents in JSON that stand beside weights: an adapter's configuration, and the index of shards."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from countermark.files.adapter import ADAPTER_KEYS, parse_adapter
from countermark.files.layouts.weights import adapter_facts
from countermark.files.opened_weights import open_weights
from countermark.recipe.canonical import canonical_json
from countermark.values import Refused, Unreadable
from tests.files.tensors import encoded, f32

_INDEX: Final = "model.safetensors.index.json"
_SHARDS: Final = {"x.safetensors": ("a", "b"), "y.safetensors": ("c",)}


def adapter(data: bytes) -> bool:
    """A configuration: its digest does not hang on the order of its keys and sets, and whatever stands in it, its facts are read."""
    config = parse_adapter(data)
    if isinstance(config, Unreadable):
        return False
    document = json.loads(data)
    turned = parse_adapter(json.dumps({key: _turned(key, value) for key, value in reversed(document.items())}).encode())
    assert not isinstance(turned, Unreadable), turned
    assert canonical_json(turned.ran()) == canonical_json(config.ran())
    assert config.unknown() == turned.unknown()
    assert adapter_facts(config) == adapter_facts(turned)
    return True


def _turned(key: str, value: Any) -> Any:
    return value[::-1] if isinstance(value, list) and key in ADAPTER_KEYS and ADAPTER_KEYS[key].is_set else value


def adapters(proper: dict[str, Any]) -> tuple[bytes, ...]:
    """Configurations as PEFT writes them, and one with what it never writes."""
    odd = proper | {"target_modules": ["b", "a", "a", 1, None, ["x"]], "rank_pattern": {"q": 8}, "r": 1e400, "new": {"deep": [[[1]]]}}
    return json.dumps(proper).encode(), json.dumps(odd).replace("Infinity", "1e99").encode(), b"{}"


@cache
def _folder() -> Path:
    """A folder with two shards, whose index each input becomes."""
    shelf = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="countermark-fuzz-", dir=shelf if shelf.is_dir() else None))
    for name, held in _SHARDS.items():
        (folder / name).write_bytes(encoded({tensor: f32(1.0) for tensor in held}))
    return folder


def index(data: bytes) -> bool:
    """An index: taken, it names exactly what the shards hold; in part, never a tensor that no shard holds."""
    folder = _folder()
    (folder / _INDEX).write_bytes(data)
    held = {tensor for names in _SHARDS.values() for tensor in names}
    part = open_weights(folder, partial=True)
    if not isinstance(part, Refused):
        with part:
            assert set(part.tensors) <= held, part.tensors
    whole = open_weights(folder)
    if isinstance(whole, Refused):
        return False
    with whole:
        listed = json.loads(data)["weight_map"]
        assert {name: one.file.name for name, one in whole.tensors.items()} == listed
        assert listed.keys() <= held
    return True


def indexes() -> tuple[bytes, ...]:
    """Indexes of the two shards: right, stale and with a total."""
    right = {tensor: shard for shard, names in _SHARDS.items() for tensor in names}
    return (
        json.dumps({"metadata": {"total_size": 12}, "weight_map": right}).encode(),
        json.dumps({"weight_map": right | {"c": "x.safetensors"}}).encode(),
        json.dumps({"weight_map": right | {"d": "z.safetensors", "c": "x.safetensors"}}).encode(),
    )
