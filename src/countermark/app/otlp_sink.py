"""Sending to a receiver of OpenTelemetry: one request of OTLP over HTTP, and what its answer means for what was sent.

Rules kept here:

1. An answer that blames the request (``UNFIT``) blames what is in it; any other that is no success leaves it as good as it was.
2. A request ends: each step of it within ``STEP_S``, all of it within ``REQUEST_S``, and at once when ``abort`` is called.
3. Nothing that the receiver says is passed on but its status: it may say what it likes. No redirection is followed.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Protocol, TypeAlias, final
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

TRACES_PATH: Final = "/v1/traces"
STEP_S: Final = 5.0
REQUEST_S: Final = 10.0
#: Statuses that say that the request itself cannot be taken, however often it comes.
UNFIT: Final = frozenset({400, 413, 422})
#: Longer than this no receiver is left alone at its own wish, in seconds.
RETRY_AFTER_MAX_S: Final = 3600.0
_ANSWER_BYTES_MAX: Final = 64 * 1024


@final
@dataclass(frozen=True, slots=True)
class Delivered:
    """It was taken, but for so many spans that the receiver did not want."""

    rejected: int


@final
@dataclass(frozen=True, slots=True)
class Unfit:
    """It is never taken as it is; ``why`` is a clause."""

    why: str


@final
@dataclass(frozen=True, slots=True)
class Away:
    """It was not taken now; ``why`` is a clause, ``retry_s`` the time for which the receiver wants to be left alone, 0 where it says
    none."""

    why: str
    retry_s: float = 0.0


Outcome: TypeAlias = Delivered | Unfit | Away


class Sink(Protocol):
    """A receiver."""

    def send(self, body: bytes) -> Outcome: ...

    def abort(self) -> None:
        """End what is being sent, from another thread."""
        ...


@final
class OtlpSink:
    """A receiver at an address: ``endpoint`` is that of its traces, or of all signals; ``headers`` are sent with every request."""

    def __init__(self, endpoint: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        parts = urlsplit(endpoint)
        assert parts.hostname is not None
        path = parts.path.rstrip("/")
        self._path: Final = path if path.endswith(TRACES_PATH) else path + TRACES_PATH
        self._host: Final = parts.hostname
        self._port: Final = parts.port
        self._tls: Final = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers: Final = {"content-type": "application/x-protobuf", "user-agent": "countermark", **dict(headers)}
        self._connection: http.client.HTTPConnection | None = None

    def send(self, body: bytes) -> Outcome:
        connection = self._connection = self._opened()
        limit = threading.Timer(REQUEST_S, self.abort)
        limit.daemon = True
        limit.start()
        try:
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            return outcome_of(response.status, response.getheader("retry-after", ""), response.read(_ANSWER_BYTES_MAX))
        except TimeoutError:
            return Away("it does not answer in time")
        except (OSError, http.client.HTTPException) as error:
            return Away(f"it cannot be reached: {_named(error)}")
        finally:
            limit.cancel()
            connection.close()

    def _opened(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=STEP_S, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=STEP_S)

    def abort(self) -> None:
        connection = self._connection
        if connection is not None and isinstance(connection.sock, socket.socket):
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def _named(error: Exception) -> str:
    """A failure in the system's words, which hold nothing of what the receiver says."""
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def outcome_of(status: int, retry_after: str, body: bytes) -> Outcome:
    """What an answer means."""
    if 200 <= status < 300:
        return Delivered(_rejected(body))
    if status in UNFIT:
        return Unfit(f"it answers {status}")
    return Away(f"it answers {status}", _retry_s(retry_after, time.time()))


def _rejected(body: bytes) -> int:
    """How many spans of a taken request were not wanted; none where the answer is no protobuf."""
    try:
        return max(0, ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except DecodeError:
        return 0


def _retry_s(said: str, now_s: float) -> float:
    """What Retry-After says, as seconds from now on."""
    try:
        wanted = float(said) if said.strip().isascii() and said.strip().isdigit() else parsedate_to_datetime(said).timestamp() - now_s
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wanted, 0.0), RETRY_AFTER_MAX_S)
