"""The Model Context Protocol over HTTP: one address behind the same guards, tokens and bounds as everything else that is served.

Rules kept here:

1. What other hosts can reach asks for a token with the scope ``read``, and so does every address once a token was made.
2. A request is read whole, and within bounds, before the protocol sees it.
3. What a client keeps open is bounded: so many sessions, each ended when nothing was asked in it for a while.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from mcp.server import Server as Protocol
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from countermark.app.errors import EnvironmentFailed, fault_of
from countermark.lines.serving import AddressUnguarded, MethodUnfit, RouteUnknown
from countermark.server.answers import Answer, refused
from countermark.server.asgi import brought_by, turned_away
from countermark.server.bodies import Room
from countermark.server.guards import Guard, is_loopback
from countermark.server.limits import Limits
from countermark.server.serving import Server, quiet, taken_address
from countermark.server.tokens import Keyring, read_tokens
from countermark.values import NonEmpty, Refused

PATH: Final = "/mcp"
DEFAULT_PORT: Final = 4319
_METHODS: Final = ("GET", "POST", "DELETE")
_LOG: Final = logging.getLogger("countermark.server")
#: Sessions of the protocol that are open at once, and for how long one is kept in which nothing is asked.
_SESSIONS_MAX: Final = 256
_SESSION_IDLE_S: Final = 600


def _limits() -> Limits:
    # A message asks, and brings nothing that is stored.
    return Limits(body_bytes_max=1024 * 1024)


@final
@dataclass(frozen=True, slots=True)
class McpSettings:
    """How the protocol is served: as ``ServerSettings`` has it."""

    tokens: Path
    host: str
    port: int
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=_limits)


def serve_mcp(protocol: "Protocol[Any]", settings: McpSettings, told: Callable[[str], None] = quiet) -> None | Refused[AddressUnguarded]:
    """Serve until a signal; ``told`` hears the address once it answers. Raises ``EnvironmentFailed``."""
    if not is_loopback(settings.host) and not read_tokens(settings.tokens):
        return Refused(NonEmpty(AddressUnguarded(settings.host)))
    with taken_address(settings.host, settings.port) as bound:
        server = Server(application(protocol, settings), settings.limits, bound, lifespan="on")
        server.told = lambda line: told(line + PATH)
        server.run()
    return None


def application(protocol: "Protocol[Any]", settings: McpSettings) -> Starlette:
    """The protocol as an application; its lifespan is that of what clients keep open."""
    manager = StreamableHTTPSessionManager(
        protocol,
        session_idle_timeout=_SESSION_IDLE_S,
        max_sessions=_SESSIONS_MAX,
        # What is read here is bounded before.
        max_request_body_size=settings.limits.body_bytes_max + 1,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        async with manager.run():
            yield

    return Starlette(
        routes=[Route(PATH, _Asked(manager, settings))],
        middleware=[Middleware(Guard, host=settings.host, hosts=settings.hosts, origins=settings.origins)],
        exception_handlers={404: lambda request, error: refused((RouteUnknown(request.url.path),)).response()},
        lifespan=lifespan,
    )


@final
class _Asked:
    """One request: who brings it, its body, and what the protocol says."""

    def __init__(self, manager: StreamableHTTPSessionManager, settings: McpSettings) -> None:
        self._manager: Final = manager
        self._settings: Final = settings
        self._keyring: Final = Keyring(settings.tokens)
        self._room: Final = Room(settings.limits.waiting_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if (answer := self._refusal(request)) is not None:
            await answer.response()(scope, receive, send)
            return
        try:
            async with self._room.body_of(request, self._settings.limits) as body:
                if not isinstance(body, bytes):
                    await refused((body,)).response()(scope, receive, send)
                    return
                # The body is there, unpacked, and counted until the answer was given.
                headers = [(name, value) for name, value in scope["headers"] if name not in (b"content-encoding", b"content-length")]
                await self._manager.handle_request({**scope, "headers": headers}, _said(body, receive), send)
        except ClientDisconnect:
            return

    def _refusal(self, request: Request) -> Answer | None:
        if request.method not in _METHODS:
            return refused((MethodUnfit(request.method, _METHODS),))
        try:
            defect = turned_away(self._keyring, self._settings.host, "read", brought_by(request.headers))
        except EnvironmentFailed as error:
            _LOG.error("%s: %s", PATH, error.what)
            return refused((fault_of(error),))
        return None if defect is None else refused((defect,))


def _said(body: bytes, receive: Receive) -> Receive:
    """The body once, and then whatever comes: a client that goes away."""
    given = False

    async def said() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return said
