"""A server on a spare port, in a thread of the test, over a store in a folder."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from countermark.server.service import ServerSettings
from countermark.server.serving import Server, listening
from countermark.store.opening import open_sessions
from countermark.values import Refused

JSON: Final = {"content-type": "application/json"}
PROTOBUF: Final = {"content-type": "application/x-protobuf"}
LINES: Final = {"content-type": "application/x-ndjson"}


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def codes(self) -> list[str]:
        """The codes of the defects, in their order."""
        return [defect["code"] for defect in self.document["defects"]]


@final
class Running:
    """A server that runs; every question is a connection of its own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.port: Final = server.port
        self.folder: Final = folder

    def ask(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """Ask; a body of several pieces is sent in chunks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, dict(headers or {}), encode_chunked=not isinstance(body, bytes | None))
            response = connection.getresponse()
            return Answered(response.status, {key.lower(): value for key, value in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answered:
        return self.ask("GET", path, None, headers)

    def ingest(self, events: object, **headers: str) -> Answered:
        return self.ask("POST", "/v1/ingest", json.dumps(events).encode(), {**JSON, **headers})

    def stored(self) -> list[Any]:
        """Every event that is stored, in the order of receipt, as ``search`` cannot give them: read beside the server."""
        with open_sessions(f"sqlite:///{self.folder}", create=False) as store:
            return [each.event for each in store.tail(0, 100_000)]

    def raw(self, text: bytes) -> socket.socket:
        """A connection on which these bytes were sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(text)
        return connection


def settings_of(folder: Path) -> ServerSettings:
    return ServerSettings(lambda: open_sessions(f"sqlite:///{folder}", create=True), folder / "tokens.json", port=0)


@contextmanager
def running(settings: ServerSettings, folder: Path) -> Generator[Running, None, None]:
    with listening(settings) as server:
        assert not isinstance(server, Refused), server
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            deadline = time.monotonic() + 20
            while not server.started:
                assert thread.is_alive() and time.monotonic() < deadline
                time.sleep(0.005)
            yield Running(server, folder)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def served(folder: Path, **changes: Any) -> Generator[Running, None, None]:
    """A server with some settings changed."""
    with running(replace(settings_of(folder), **changes), folder) as server:
        yield server


def edit(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A weight edit as ``/v1/ingest`` takes it."""
    payload = {"kind": "weights.edit", "tensor": f"layers.{number}.w", "changed": number}
    return {"id": f"edit-{number}", "type": "notification", "session": "s-1", "payload": payload, **fields}
