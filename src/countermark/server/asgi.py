"""The server as an ASGI application: every route of the roster behind the guard, and every end of a request as an answer.

Rules kept here:

1. A token is asked for where one was made, and everywhere but on this host's own address; what a route needs of it says the roster.
2. Nothing that a request holds is logged: a line has the route, the status and the time that it took.
3. No failure leaves without an answer, and none tells more of itself than its kind.
"""

import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from countermark.app.errors import EnvironmentFailed, fault_of
from countermark.lines.serving import MethodUnfit, RouteUnknown, ServerFault, TokenScopeMissing, TokenUnknown, TokenWanted
from countermark.server.answers import Answer, refused
from countermark.server.guards import Guard, asks_for_tokens
from countermark.server.handlers import HANDLERS
from countermark.server.metrics import REQUESTS, SECONDS
from countermark.server.routes import ROSTER, Route, read_query
from countermark.server.service import Service
from countermark.server.tokens import Keyring
from countermark.server.tokens import Scope as TokenScope
from countermark.store import StoreError
from countermark.values import Refused

_LOG: Final = logging.getLogger("countermark.server")
_BEARER: Final = "bearer "
#: A text that is shorter is no token, and would be replaced wherever it stands by chance.
_TOKEN_LENGTH_MIN: Final = 16
#: nginx's status for a client that went away; nobody reads the answer.
_GONE: Final = 499


def application(service: Service) -> Starlette:
    """The application over an open store."""
    settings = service.settings
    return Starlette(
        routes=[StarletteRoute(route.path, _endpoint(service, route), methods=[route.method]) for route in ROSTER],
        middleware=[Middleware(Guard, host=settings.host, hosts=settings.hosts, origins=settings.origins)],
        exception_handlers={404: _unknown, 405: _unfit},
    )


def _endpoint(service: Service, route: Route) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        begun = time.monotonic()
        answer = await _answered(service, route, request)
        seconds = time.monotonic() - begun
        service.counts.add(REQUESTS, 1, route.path, str(answer.status))
        service.counts.add(SECONDS, seconds, route.path)
        _LOG.info("%s %s %d %.0f ms", route.method, route.path, answer.status, seconds * 1000)
        return answer.response()

    return endpoint


async def _answered(service: Service, route: Route, request: Request) -> Answer:
    brought = brought_by(request.headers)
    named = (brought,) if len(brought) >= _TOKEN_LENGTH_MIN else ()
    try:
        if (defect := _turned_away(service, route, brought)) is not None:
            return refused((defect,), named)
        query = read_query(route, request.query_params)
        if isinstance(query, Refused):
            return refused(tuple(query.defects), named)
        return await HANDLERS[route.name](service, request, query, named)
    except ClientDisconnect:
        return Answer(_GONE, b"")
    except (StoreError, EnvironmentFailed) as error:
        _LOG.error("%s %s: %s", route.method, route.path, error.what)
        return refused((fault_of(error),), named)
    except Exception as error:
        _LOG.error("%s %s failed: %s", route.method, route.path, _where(error))
        return refused((ServerFault(type(error).__name__),), named)


def brought_by(headers: Headers) -> str:
    """The token that a request brings; empty where it brings none."""
    said = headers.get("authorization", "")
    return said[len(_BEARER) :].strip() if said[: len(_BEARER)].lower() == _BEARER else ""


def turned_away(keyring: Keyring, host: str, scope: TokenScope, brought: str) -> TokenWanted | TokenUnknown | TokenScopeMissing | None:
    """Why a server at ``host`` does nothing for whoever brings this; None where it does. Raises ``EnvironmentFailed``."""
    if not asks_for_tokens(keyring, host):
        return None
    if not brought:
        return TokenWanted()
    token = keyring.of(brought)
    if token is None:
        return TokenUnknown()
    return None if scope in token.scopes else TokenScopeMissing(scope)


def _turned_away(service: Service, route: Route, brought: str) -> TokenWanted | TokenUnknown | TokenScopeMissing | None:
    return None if route.scope is None else turned_away(service.keyring, service.settings.host, route.scope, brought)


def _where(error: Exception) -> str:
    """The kind of a failure and the lines of ours that it went through: its own text may hold what a request held."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)[-6:]
    return " < ".join([type(error).__name__, *(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))])


async def _unknown(request: Request, error: Exception) -> Response:
    return refused((RouteUnknown(request.url.path),)).response()


async def _unfit(request: Request, error: Exception) -> Response:
    allow = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
    return refused((MethodUnfit(request.method, tuple(sorted(allow.split(", ")))),)).response()
