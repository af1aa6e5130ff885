"""A receiver of OTLP over HTTP, in threads of the test: it keeps the raw bytes, and answers as it is told to."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

#: The status, the headers and the body of an answer.
Reply = tuple[int, dict[str, str], bytes]
TAKEN: Final[Reply] = (200, {}, b"")


def attributes(span: Span) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in span.attributes}


@final
@dataclass(slots=True)
class Receiver:
    """What was received: the paths, the headers and the bodies of all requests, and those that were taken. ``reply`` says how a request is
    answered."""

    port: int = 0
    reply: Callable[[Sequence[Span]], Reply] = lambda spans: TAKEN
    paths: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    asked: list[list[Span]] = field(default_factory=list[list[Span]])
    raw: list[bytes] = field(default_factory=list[bytes])
    taken: list[Span] = field(default_factory=list[Span])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Span]:
        """The spans of this name that were taken."""
        return [span for span in self.taken if span.name == name]

    @property
    def edits(self) -> list[Any]:
        """The ids of the edits that were taken, in their order."""
        return [attributes(span)["countermark.event.id"] for span in self.named("countermark.weights.edit")]

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        request = ExportTraceServiceRequest.FromString(body)
        spans = [span for group in request.resource_spans for scoped in group.scope_spans for span in scoped.spans]
        self.paths.append(path)
        self.headers.append(headers)
        self.raw.append(body)
        self.asked.append(spans)
        reply = self.reply(spans)
        if reply[0] == 200:
            self.taken += spans
        return reply


@contextmanager
def receiving(port: int = 0) -> Generator[Receiver, None, None]:
    """A receiver at a port, or at a spare one."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, headers, said = receiver.receive(self.path, {key.lower(): value for key, value in self.headers.items()}, body)
            self.send_response(status)
            for key, value in {**headers, "content-length": str(len(said))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def eventually(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.02)


def statuses(*codes: int, headers: dict[str, str] | None = None) -> Callable[[Sequence[Span]], Reply]:
    """Answers with these statuses, one after the other, then takes everything."""
    left: Iterator[int] = iter(codes)
    return lambda spans: (next(left, 200), headers or {}, b"")
