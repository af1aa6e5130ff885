"""What is fuzzed: every reader of what somebody else wrote or sent, with what must hold for any bytes at all.

Rules kept here:

1. A judge takes any bytes, says whether they were taken, and fails where the reader raises, where two readings differ, where a taken file
   has tensors that share bytes or lie outside, or where the format's own reader reads something else.
2. ``examine`` adds what holds for every target: an end within ``SECONDS_MAX`` of processor time, and memory within ``MEMORY_BASE`` and
   ``MEMORY_PER_BYTE`` of the input.
3. Where a checksum would keep every change from the code behind it, the input is put into a proper file first.
"""

import re
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn, final

from tests.files import ggufs, tensors, torchfiles
from tests.files.folders import adapter_bytes, adapter_config, generators, optimizer, scheduler
from tests.fuzz import documents, events, layouts, others, stored, words

SECONDS_MAX: Final = 5
MEMORY_BASE: Final = 16 << 20
MEMORY_PER_BYTE: Final = 200


class Finding(AssertionError):
    """What a reader must not do, and did."""


class _Late(Exception):
    """The reader did not come to an end."""


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A reader: inputs to start from, the judge of any input (whether it was taken), and words that its format knows."""

    name: str
    seeds: Callable[[], tuple[bytes, ...]]
    judge: Callable[[bytes], bool]
    words: tuple[bytes, ...] = ()


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> NoReturn:
        raise _Late

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def watched() -> Iterator[None]:
    """While it lasts, allocations are counted, as ``examine`` asks for."""
    own = not tracemalloc.is_tracing()
    if own:
        tracemalloc.start(1)
    try:
        yield
    finally:
        if own:
            tracemalloc.stop()


def examine(target: Target, data: bytes) -> bool:
    """Whether the input is taken. Raises ``Finding`` where the reader does what no input may make it do. Within ``watched``."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        with _in_time(SECONDS_MAX):
            taken = target.judge(data)
    except AssertionError as error:
        raise Finding(f"{target.name}: {error}") from error
    except _Late as error:
        raise Finding(f"{target.name}: no end after {SECONDS_MAX} s of processor time") from error
    except Exception as error:
        raise Finding(f"{target.name}: {type(error).__name__}: {error}") from error
    _, peak = tracemalloc.get_traced_memory()
    if peak - before > MEMORY_BASE + MEMORY_PER_BYTE * len(data):
        raise Finding(f"{target.name}: {peak - before} bytes of memory for {len(data)} of input")
    return taken


_TWO: Final = {"a.weight": tensors.f32(0.0, 1.5), "b": ("BF16", [2, 1], b"\x00\x80\x80\x3f"), "c": ("I64", [], bytes(8))}


def _files() -> tuple[bytes, ...]:
    return (
        tensors.encoded(_TWO, {"format": "pt"}),
        tensors.encoded({}),
        adapter_bytes(),
        tensors.encoded({"f4": ("F4", [2, 4], bytes(4)), "f8": ("F8_E4M3", [3], b"\x7f\x80\x01"), "u8": ("U8", [0, 5], b"")}),
    )


def _headers() -> tuple[bytes, ...]:
    odd = b' {"a":{"dtype":"U8","shape":[1099511627776,0],"data_offsets":[0,0],"more":[1.5,{"x":null}]},"__metadata__":null}\n\t'
    return (*(content[8 : 8 + int.from_bytes(content[:8], "little")] for content in _files()), odd)


def completed(header: bytes) -> bytes:
    """A safetensors file around a header, with as much data as its entries ask for."""
    ends = [int(end) for end in re.findall(rb"\[\s*\d+\s*,\s*(\d{1,5})\s*\]", header)]
    return tensors.raw(header, bytes(max(ends, default=0)))


def _programs() -> tuple[bytes, ...]:
    values = (
        {"w": torchfiles.zeros(4), "n": {"x": [torchfiles.zeros(2, 2), None, True, 1.5]}},
        scheduler(),
        generators(python=(3, (1, 2), None)),
        optimizer(),
    )
    return (*(torchfiles.pickled(value)[0] for value in values), others.viewed((2, 3), (1, 2)))


def _models() -> tuple[bytes, ...]:
    overlapping = ggufs.gguf_file([ggufs.GOOD[0], ggufs.info(b"b", (16,), 0, 0)], ggufs.DATA[:64])
    return ggufs.gguf_file(ggufs.GOOD, ggufs.DATA), stored.described(), overlapping


def _saved() -> tuple[bytes, ...]:
    return torchfiles.torch_file({"w": torchfiles.zeros(4)}), torchfiles.torch_file(scheduler()), torchfiles.archive({})


TARGETS: Final = {
    target.name: target
    for target in (
        Target("header", _headers, lambda data: stored.safetensors(completed(data)), words.HEADER),
        Target("pickle", _programs, lambda data: others.torch_weights(others.around(data)), words.PICKLE),
        Target("gguf", _models, stored.gguf, words.GGUF),
        Target("archive", _saved, others.archived, words.ZIP),
        Target("safetensors", _files, stored.safetensors, words.HEADER),
        Target("npy", others.arrays, lambda data: others.npz(torchfiles.archive({"w.npy": data})), words.NPY),
        Target("npz", lambda: tuple(others.archives()), others.npz, words.ZIP),
        Target("adapter", lambda: documents.adapters(adapter_config()), documents.adapter, words.JSON),
        Target("index", documents.indexes, documents.index, words.INDEX),
        Target("dcp-metadata", layouts.metadatas, layouts.dcp_metadata, words.DCP),
        Target("ocdbt", layouts.blocks, layouts.ocdbt, words.OCDBT),
        Target("orbax", layouts.trees, layouts.orbax, words.ORBAX),
        Target("zstd", layouts.frames, layouts.zstandard, words.ZSTD),
        Target("ingest", events.bodies, events.ingest, words.EVENTS),
        Target("transcript", events.transcripts, events.transcript, words.EVENTS),
        Target("otlp-json", lambda: events.requests("json"), lambda data: events.otlp("json", data), words.OTLP),
        Target("otlp-protobuf", lambda: events.requests("protobuf"), lambda data: events.otlp("protobuf", data), words.PROTOBUF),
    )
}
