"""GGUF files made by hand, so that tests can make what no writer makes."""

import struct
from typing import Final


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def info(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1]) + struct.pack("<IQ", kind, offset)


def gguf_file(infos: list[bytes], data: bytes, entries: bytes = b"", count: int = 0, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), count) + entries + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


GOOD: Final = [info(b"a", (2, 3), 0, 0), info(b"q", (32,), 8, 32)]
DATA: Final = struct.pack("<6f", *range(6)) + bytes(8) + b"q" * 34 + bytes(30)
