"""Zstandard frames (RFC 8878): small ones, like the index of a database.

Rules kept here:

1. What comes out is never more than the caller allows, whatever the frame says: no more than a byte beyond it is ever made.
2. Whatever the bytes are, the answer is the content or ``DamagedFrame``. Dictionaries are not known, nor windows beyond its library's.
3. A frame begins where its bytes begin, and ends where they end: a frame to skip before it, or anything after it, is damage.
"""

import sys
from typing import Final, cast

MAGIC: Final = b"\x28\xb5\x2f\xfd"


class DamagedFrame(Exception):
    """The bytes are no frame of Zstandard, or one of more than is allowed."""


def decompress(frame: bytes, size_max: int) -> bytes:
    """The content of one frame. Raises ``DamagedFrame``."""
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor, ZstdError, get_frame_info
    else:
        from backports.zstd import ZstdDecompressor, ZstdError, get_frame_info

    if not frame.startswith(MAGIC):
        raise DamagedFrame("it is no frame of Zstandard")
    reader = ZstdDecompressor()
    try:
        # Its own types leave out that a frame need not say it.
        said = cast("int | None", get_frame_info(frame).decompressed_size)
        content = reader.decompress(frame, size_max + 1)
    except ZstdError as error:
        raise DamagedFrame(str(error)) from None
    if len(content) > size_max:
        raise DamagedFrame("it holds more than is read")
    if not reader.eof:
        raise DamagedFrame("it ends too early")
    if reader.unused_data:
        raise DamagedFrame("bytes follow it")
    # The library looks for itself only where it is given room for all that the frame says it holds.
    if said is not None and said != len(content):
        raise DamagedFrame("it holds less than it says")
    return content
