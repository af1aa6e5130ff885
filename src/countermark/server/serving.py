"""Starting and stopping the server: the address is taken, the store opened, the application served until a signal ends it.

Rules kept here:

1. A server that other hosts can reach does not start without a token.
2. It is told as listening when it answers, and with the port that it has.
3. SIGTERM and SIGINT end it after what is being stored was stored.
4. A connection that brings no whole head of a request in time is closed.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Literal, final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from countermark.app.errors import EnvironmentFailed
from countermark.app.forwarding import Forwarder
from countermark.app.otlp_sink import REQUEST_S
from countermark.lines.serving import AddressUnguarded
from countermark.server.asgi import application
from countermark.server.guards import is_loopback
from countermark.server.limits import Limits
from countermark.server.service import ServerSettings, Service
from countermark.server.tokens import read_tokens
from countermark.values import NonEmpty, Refused

_LOG: Final = logging.getLogger("countermark.server")
#: How long open requests are waited for when the server ends.
_GRACE_S: Final = 10
_IDLE_S: Final = 75


def quiet(line: str) -> None:
    """What nobody is told."""


def serve(settings: ServerSettings, told: Callable[[str], None] = quiet) -> None | Refused[AddressUnguarded]:
    """Serve until a signal; ``told`` hears the address once it answers. Raises ``StoreError`` and ``EnvironmentFailed``."""
    with listening(settings) as server:
        if isinstance(server, Refused):
            return server
        server.told = told
        server.run()
    return None


@contextmanager
def listening(settings: ServerSettings) -> "Generator[Server | Refused[AddressUnguarded], None, None]":
    """A server that has its address and its store, and does not run yet. Raises ``StoreError`` and ``EnvironmentFailed``."""
    tokens = read_tokens(settings.tokens)
    if not is_loopback(settings.host) and not tokens:
        yield Refused(NonEmpty(AddressUnguarded(settings.host)))
        return
    with taken_address(settings.host, settings.port) as bound, settings.open_store() as store:
        service = Service(settings, store)
        service.upkeep.begin()
        try:
            with _forwarding(service.forwarder):
                yield Server(application(service), settings.limits, bound)
        finally:
            service.close()
            service.upkeep.end()


@contextmanager
def _forwarding(forwarder: Forwarder | None) -> Generator[None, None, None]:
    """Edits are sent on beside everything else. What is taken from now on is queued, whoever sends at the moment."""
    if forwarder is None:
        yield
        return
    forwarder.hold()
    sending = threading.Thread(target=forwarder.run, name="forward", daemon=True)
    sending.start()
    try:
        yield
    finally:
        forwarder.end()
        sending.join(REQUEST_S)


@contextmanager
def taken_address(host: str, port: int) -> Generator[socket.socket, None, None]:
    """A socket that listens at an address. Raises ``EnvironmentFailed``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _not_bound(host, port, error) from error
    with bound:
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(128)
        except OSError as error:
            raise _not_bound(host, port, error) from error
        yield bound


def _not_bound(host: str, port: int, error: OSError) -> EnvironmentFailed:
    what = f"the address cannot be served at: {error.strerror or error}"
    return EnvironmentFailed(what, f"{host}:{port}", "end what serves there, or take another port: --port")


@final
class Server(uvicorn.Server):
    """uvicorn over an application and an address that was taken before."""

    def __init__(self, app: ASGIApp, limits: Limits, bound: socket.socket, lifespan: Literal["on", "off"] = "off") -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=_protocol(limits.head_seconds_max),
            ws="none",
            lifespan=lifespan,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections_max,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
        super().__init__(config)
        self._bound = bound
        host, self.port = bound.getsockname()[:2]
        self.url: Final = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self.told: Callable[[str], None] = quiet

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run([self._bound] if sockets is None else sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.told(f"serving at {self.url}")


def _protocol(head_seconds_max: int) -> type[H11Protocol]:
    """uvicorn's protocol with a bound for the head of a request, which it lets come as slowly as it likes."""

    class Bounded(H11Protocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            if self._head is None and not self._busy():
                self._await_head()
            super().data_received(data)
            if self._busy():
                self._forget_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # The beginning of a further request may have come with the one before.
            if not self._busy() and self.conn.trailing_data[0]:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_head()
            super().connection_lost(exc)

        def _busy(self) -> bool:
            # Annotated as always there, and None before the first request.
            cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
            return cycle is not None and not cycle.response_complete

        def _await_head(self) -> None:
            self._head = self.loop.call_later(head_seconds_max, self.transport.close)

        def _forget_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

    return Bounded
