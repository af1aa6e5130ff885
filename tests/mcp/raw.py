"""A client written by hand, of the revision 2025-06-18: lines of JSON-RPC to a process, or requests of HTTP to a server."""

import http.client
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, final

import anyio

from countermark.mcp.desk import Desk
from countermark.mcp.stdio import served

PROGRAM: Final = (sys.executable, "-m", "countermark.cli.entry", "mcp")
REVISION: Final = "2025-06-18"
HELLO: Final = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}},
}
READY: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(number: int | str, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params else {})}


def call(number: int | str, tool: str, **given: Any) -> dict[str, Any]:
    return request(number, "tools/call", name=tool, arguments=given)


class Talk:
    """A conversation by lines: what is sent goes into ``into``, what is answered comes out of ``out``."""

    def __init__(self, into: BinaryIO, out: BinaryIO) -> None:
        self._into: Final = into
        self._out: Final = out
        self._lines: Final[queue.Queue[bytes]] = queue.Queue()
        self._hearing: Final = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def _hear(self) -> None:
        for line in self._out:
            self._lines.put(line)
        self._lines.put(b"")

    def send(self, *messages: Any) -> None:
        """Messages, or bytes as they are."""
        for message in messages:
            self._into.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self._into.flush()

    def next(self, timeout_s: float = 30) -> Any:
        """The next message; None at the end. A server that says nothing fails the test that waits for it."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"nothing came in {timeout_s:g} s") from None
        return json.loads(line) if line else None

    def answer(self, number: int | str | None, timeout_s: float = 30) -> Any:
        """The answer to a request, whatever notifications come before it."""
        while True:
            message = self.next(timeout_s)
            assert message is not None, "the server ended"
            if "method" not in message and message["id"] == number:
                return message

    def ask(self, message: dict[str, Any]) -> Any:
        self.send(message)
        return self.answer(message["id"])

    def hello(self) -> Any:
        found = self.ask(dict(HELLO))
        self.send(READY)
        return found


@contextmanager
def spoken(desk: Desk) -> Generator[Talk, None, None]:
    """A conversation with a server in a thread; it ends when its input does."""
    (reading, into), (out, writing) = os.pipe(), os.pipe()
    files = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
    server = threading.Thread(target=lambda: anyio.run(served, desk, *files), daemon=True)
    server.start()
    with os.fdopen(into, "wb") as first, os.fdopen(out, "rb") as last:
        try:
            yield Talk(first, last)
        finally:
            first.close()
            server.join(20)
            files[1].close()
            assert not server.is_alive()


@final
class Process(Talk):
    """A conversation with ``countermark mcp`` as a process; ``told`` is what it said beside the protocol."""

    def __init__(self, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process: Final = subprocess.Popen(PROGRAM, cwd=cwd, env={**os.environ, **(env or {})}, **streams)  # type: ignore[call-overload]
        super().__init__(self.process.stdin, self.process.stdout)
        self.told: Final[list[bytes]] = []
        self._listening: Final = threading.Thread(target=lambda: self.told.extend(self.process.stderr))
        self._listening.start()

    def close(self, timeout_s: float = 20) -> int:
        """Close its input; the exit code."""
        if not self._into.closed:
            try:
                self._into.close()
            except BrokenPipeError:
                pass
        try:
            return int(self.process.wait(timeout_s))
        finally:
            self.process.kill()
            self.process.wait()
            self._hearing.join()
            self._listening.join()
            self._out.close()
            self.process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@final
class Http:
    """Requests to a server; the session that it hands out is said again."""

    def __init__(self, port: int, **headers: str) -> None:
        self._port: Final = port
        self._headers: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        self.session: str | None = None

    def raw(self, body: bytes | None, method: str = "POST", path: str = "/mcp", **headers: str) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        said = {**self._headers, **({"mcp-session-id": self.session, "mcp-protocol-version": REVISION} if self.session else {})}
        try:
            connection.request(method, path, body, {**said, **{key.replace("_", "-"): value for key, value in headers.items()}})
            response = connection.getresponse()
            return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def ask(self, message: dict[str, Any]) -> Any:
        """The answer, out of a document or a stream of events."""
        status, headers, body = self.raw(json.dumps(message).encode())
        assert status in (200, 202, 400, 404), body
        self.session = headers.get("mcp-session-id", self.session)
        messages = messages_of(headers, body)
        return messages[-1] if messages else None

    def hello(self) -> Any:
        found = self.ask(dict(HELLO))
        self.ask(dict(READY))
        return found


def messages_of(headers: Mapping[str, str], body: bytes) -> list[Any]:
    if headers.get("content-type", "").startswith("text/event-stream"):
        return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(body)] if body.strip() else []
