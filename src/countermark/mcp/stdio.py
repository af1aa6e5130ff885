"""The protocol over standard input and output: a message is a line.

Rules kept here:

1. Nothing but the protocol is written to standard output: what else would be printed there goes to standard error.
2. A line has at most ``LINE_BYTES_MAX`` bytes. One that is longer, or is no message, is answered with an error, and the next is read.
3. The end of the input is the end of the server; nothing that still works keeps it.
"""

import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from countermark.mcp.desk import Desk
from countermark.mcp.serving import quiet_logs, server_of

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

LINE_BYTES_MAX: Final = 1024 * 1024

_Messages: TypeAlias = "MemoryObjectSendStream[SessionMessage]"


def serve_stdio(desk: Desk) -> None:
    """Serve the client behind standard input and output until it closes its end."""
    quiet_logs()
    reading, writing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Whoever reads or prints in this process has no part in the protocol.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    anyio.run(served, desk, reading, writing)


async def served(desk: Desk, reading: BinaryIO, writing: BinaryIO) -> None:
    """Serve the client behind two files until the first ends."""
    server = server_of(desk)
    async with _streams(reading, writing) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def _streams(
    reading: BinaryIO, writing: BinaryIO
) -> "AsyncGenerator[tuple[MemoryObjectReceiveStream[SessionMessage | Exception], _Messages], None]":
    """What comes in and what goes out, as the SDK has both."""
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.from_thread.BlockingPortal() as portal, anyio.create_task_group() as tasks:
        tasks.start_soon(_write, writing, out)
        # A daemon: what waits for a line keeps nobody from ending.
        threading.Thread(target=_read, args=(portal, reading, into, outgoing.clone()), name="stdin", daemon=True).start()
        yield incoming, outgoing
        tasks.cancel_scope.cancel()


async def _write(writing: BinaryIO, out: MemoryObjectReceiveStream[SessionMessage]) -> None:
    def write(line: bytes) -> None:
        writing.write(line)
        writing.flush()

    async with out:
        async for message in out:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await anyio.to_thread.run_sync(write, text.encode() + b"\n")
            except (BrokenPipeError, ValueError):
                # Nobody reads any more. The end of the input is about to come.
                return


def _read(
    portal: "BlockingPortal", reading: BinaryIO, into: MemoryObjectSendStream[SessionMessage | Exception], answers: _Messages
) -> None:
    try:
        for line in _lines(reading):
            if line is not None and not line.strip():
                continue
            read = _message(line)
            if isinstance(read, types.JSONRPCError):
                portal.call(answers.send, SessionMessage(read))
            else:
                portal.call(into.send, SessionMessage(read))
        portal.call(into.aclose)
    except (RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The server ended before its input did.
        return


def _lines(reading: BinaryIO) -> Iterator[bytes | None]:
    """Each line; None for one that is too long, which is passed over."""
    while line := reading.readline(LINE_BYTES_MAX + 1):
        if len(line) <= LINE_BYTES_MAX:
            yield line
            continue
        while not line.endswith(b"\n") and (line := reading.readline(LINE_BYTES_MAX)):
            pass
        yield None


def _message(line: bytes | None) -> types.JSONRPCMessage | types.JSONRPCError:
    if line is None:
        return _refused(types.INVALID_REQUEST, f"the message has more than {LINE_BYTES_MAX:,} bytes; nothing of it was read")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return _refused(types.PARSE_ERROR, "the line is no JSON")
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _refused(types.INVALID_REQUEST, "the line is no message of JSON-RPC 2.0")
    if isinstance(message, types.JSONRPCNotification) and "id" in document:
        # The SDK takes a request whose id is none for one that nobody waits for.
        return _refused(types.INVALID_REQUEST, "the id of the request is no text and no whole number")
    return message


def _refused(code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=message))
