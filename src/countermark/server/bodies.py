"""The body of a request, read within bounds.

Rules kept here:

1. A body is counted after unpacking, while it is unpacked: what unpacks to more than the bound is never held.
2. A body that does not come in time is not waited for.
3. What all requests hold together is bounded: whoever finds no room is asked to come again.
4. Whoever sends too much is read on for a while without keeping anything, so that the answer reaches a client that writes before it reads.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, final

from starlette.requests import ClientDisconnect, Request

from countermark.lines.serving import BodyEncodingUnfit, BodySlow, BodyTooLarge, ServerBusy
from countermark.server.limits import RETRY_S, Limits

BodyDefect = BodyTooLarge | BodySlow | BodyEncodingUnfit | ServerBusy

#: gzip's frame, with the largest window.
_GZIP: Final = 31
_DRAINED_BYTES_MAX: Final = 64 * 1024 * 1024
_DRAINED_SECONDS_MAX: Final = 3


@final
class Room:
    """How many bytes of bodies are held at once, of all requests together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max: Final = bytes_max
        self.held = 0

    @asynccontextmanager
    async def body_of(self, request: Request, limits: Limits) -> AsyncGenerator[bytes | BodyDefect, None]:
        """The body, unpacked, or why it is not read; its room is free again afterwards. Raises ``ClientDisconnect``."""
        encoding = request.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip"):
            yield BodyEncodingUnfit(encoding, "no such encoding is read")
            return
        unpacked = _Unpacked(self, limits.body_bytes_max, encoding == "gzip")
        try:
            yield await _read(request, limits, unpacked)
        finally:
            unpacked.let_go()


async def _read(request: Request, limits: Limits, unpacked: "_Unpacked") -> bytes | BodyDefect:
    stream = request.stream()
    told = request.headers.get("content-length", "")
    try:
        async with asyncio.timeout(limits.body_seconds_max):
            # A body whose length is told is refused before it is unpacked.
            too_long = told.isdecimal() and int(told) > limits.body_bytes_max
            found = BodyTooLarge(limits.body_bytes_max) if too_long else await _gathered(stream, unpacked)
    except TimeoutError:
        return BodySlow(limits.body_seconds_max)
    # Whoever asks before it sends hears the answer first.
    if isinstance(found, BodyTooLarge) and "expect" not in request.headers:
        unpacked.let_go()
        await _drain(stream)
    return found


async def _gathered(stream: AsyncIterator[bytes], unpacked: "_Unpacked") -> bytes | BodyDefect:
    async for chunk in stream:
        if (defect := unpacked.add(chunk)) is not None:
            return defect
    return unpacked.whole()


async def _drain(stream: AsyncIterator[bytes]) -> None:
    dropped = 0
    try:
        async with asyncio.timeout(_DRAINED_SECONDS_MAX):
            async for chunk in stream:
                dropped += len(chunk)
                if dropped > _DRAINED_BYTES_MAX:
                    return
    except (TimeoutError, ClientDisconnect):
        return


@final
class _Unpacked:
    """What there is of a body by now; packed bodies may have several members of gzip, one after the other."""

    def __init__(self, room: Room, bytes_max: int, packed: bool) -> None:
        self._room = room
        self._bytes_max = bytes_max
        self._member = zlib.decompressobj(_GZIP) if packed else None
        self._begun = False
        self._body = bytearray()

    def add(self, chunk: bytes) -> BodyDefect | None:
        while chunk:
            # One byte more than fits, so that it is seen that there are more.
            most = self._bytes_max + 1 - len(self._body)
            if self._member is None:
                found, chunk = chunk[:most], b""
            else:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP)
                try:
                    found = self._member.decompress(chunk, most)
                except zlib.error:
                    return BodyEncodingUnfit("gzip", "it is damaged, or packed in another way")
                chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            self._begun = True
            if len(found) == most:
                return BodyTooLarge(self._bytes_max)
            if self._room.held + len(found) > self._room.bytes_max:
                return ServerBusy(RETRY_S)
            self._room.held += len(found)
            self._body += found
        return None

    def whole(self) -> bytes | BodyDefect:
        if self._begun and self._member is not None and not self._member.eof:
            return BodyEncodingUnfit("gzip", "it ends in the middle")
        return bytes(self._body)

    def let_go(self) -> None:
        self._room.held -= len(self._body)
        self._body = bytearray()
