"""Safetensors files made by hand, so that tests can make what no writer makes."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

Tensor = tuple[str, list[int], bytes]


def raw(header: bytes, data: bytes = b"") -> bytes:
    """A file from the bytes of its header."""
    return struct.pack("<Q", len(header)) + header + data


def encoded(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """A proper file that holds the tensors (dtype, shape, data) in the given order."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return raw(json.dumps(header).encode(), data)


def f32(*numbers: float) -> Tensor:
    """A vector of 32-bit floats."""
    return "F32", [len(numbers)], struct.pack(f"<{len(numbers)}f", *numbers)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
