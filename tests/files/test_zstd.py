"""Frames of Zstandard's own library, and frames of nobody's: the content, or why there is none."""

import base64
import hashlib
import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from backports import zstd as library
from hypothesis import given
from hypothesis import strategies as st

from countermark.files import zstd
from countermark.files.zstd import DamagedFrame, decompress
from tests.faults import planted, proven_by

#: Made with ``zstandard`` at several levels: raw, repeated and compressed blocks, one stream of literals and four, each kind of table.
FRAMES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "recorded" / "zstd_frames.json").read_text())
CONTENTS = [base64.b64decode(frame["frame"]) for frame in FRAMES]
SIZE_MAX = 1 << 18
zstd_reader = library.ZstdDecompressor


class Passed:
    """The library's reader of a frame, to be changed in one place."""

    def __init__(self) -> None:
        self.reader = zstd_reader()

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self.reader.decompress(data, max_length)

    @property
    def eof(self) -> bool:
        return self.reader.eof

    @property
    def unused_data(self) -> bytes:
        return self.reader.unused_data


def raw(content: bytes, kind: int = 0, size: int | None = None) -> bytes:
    """A frame of one block that is stored as it is (or, of kind 1, one byte that is repeated)."""
    header = ((len(content) if size is None else size) << 3 | kind << 1 | 1).to_bytes(3, "little")
    return zstd.MAGIC + b"\x00\x50" + header + content


class Mistaken(Passed):
    """A library that takes each last byte for another one."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        content = super().decompress(data, max_length)
        return content[:-1] + bytes(one ^ 1 for one in content[-1:])


class Unbounded(Passed):
    """A library that makes whatever the frame holds."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return super().decompress(data)


class Careless(Passed):
    """A library that takes the end of the bytes for the end of a frame, and what follows a frame for none of its business."""

    eof = True
    unused_data = b""


@proven_by(planted(library, "ZstdDecompressor", Mistaken))
def test_frames_of_the_library_are_what_they_were_made_of() -> None:
    found = [(len(content), hashlib.sha256(content).hexdigest()) for content in (decompress(frame, SIZE_MAX) for frame in CONTENTS)]
    assert found == [(frame["bytes"], frame["sha256"]) for frame in FRAMES]


@proven_by(planted(library, "ZstdDecompressor", Careless))
@pytest.mark.parametrize("frame", CONTENTS, ids=range(len(CONTENTS)))
def test_no_beginning_of_a_frame_is_one_and_nothing_may_follow_it(frame: bytes) -> None:
    for cut in {0, 3, 5, 8, len(frame) // 2, len(frame) - 1}:
        with pytest.raises(DamagedFrame):
            decompress(frame[:cut], SIZE_MAX)
    with pytest.raises(DamagedFrame):
        decompress(frame + b"\0", SIZE_MAX)


@proven_by(planted(library, "ZstdDecompressor", Unbounded))
def test_more_than_is_allowed_is_never_made() -> None:
    assert decompress(raw(b"x", 1, 1000), 1000) == b"x" * 1000
    with pytest.raises(DamagedFrame, match="more than is read"):
        decompress(raw(b"x", 1, 1001), 1000)
    repeated = (zstd.MAGIC + b"\x00\x50") + ((1 << 17) << 3 | 2).to_bytes(3, "little").join([b""] + [b"x"] * 100)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFrame, match="more than is read"):
            decompress(repeated, 1000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "no frame"),
        (b"\x50\x2a\x4d\x18\0\0\0\0" + raw(b"x"), "no frame"),
        (raw(b"x") + raw(b"y"), "bytes follow it"),
        (raw(b"x")[:-1], "ends too early"),
        (zstd.MAGIC + b"\x01\x50\x07" + raw(b"x")[6:], "ictionary"),
    ],
)
def test_why_bytes_are_no_frame(frame: bytes, why: str) -> None:
    assert decompress(raw(b"x"), SIZE_MAX) == b"x"
    with pytest.raises(DamagedFrame, match=why):
        decompress(frame, SIZE_MAX)


@given(st.sampled_from(CONTENTS), st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4), st.integers(0, 8))
def test_any_change_is_an_answer(frame: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    changed = bytearray(frame)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    try:
        assert len(decompress(bytes(changed[: len(changed) - cut]), SIZE_MAX)) <= SIZE_MAX
    except DamagedFrame:
        pass


@given(st.binary(max_size=60))
def test_what_is_no_frame_is_an_answer(content: bytes) -> None:
    try:
        decompress(zstd.MAGIC + content, 1 << 12)
    except DamagedFrame:
        pass


def believed(frame: bytes) -> object:
    """What a frame says of its size is not known."""
    return SimpleNamespace(decompressed_size=None)


@proven_by(planted(library, "get_frame_info", believed))
def test_a_frame_that_holds_less_than_it_says_is_damaged_whatever_the_room_for_it() -> None:
    # It says that it holds 6,477 bytes, and is one empty block; with room for less, the library does not look.
    lying = zstd.MAGIC + bytes.fromhex("502a4d18010000")
    told = []
    for room in (100, 1 << 16):
        try:
            told.append(str(decompress(lying, room)))
        except DamagedFrame as damaged:
            told.append(type(damaged).__name__)
    assert told == ["DamagedFrame"] * 2
