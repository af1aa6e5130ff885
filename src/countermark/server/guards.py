"""Who may speak to the server at all: the host that a request means, and the page that it comes from.

Rules kept here:

1. A request that means another host is turned away: a page elsewhere may have its name resolve to this machine. Addresses in digits cannot
   be resolved to something else; names count that the server was given, and this machine's own.
2. A request from a page of another origin is turned away, whatever it asks; an origin that was named may ask, and is told so.
3. A path is split before it is decoded, so that an id with a slash in it is one part of it.
"""

import ipaddress
import socket
from typing import Final, final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from countermark.lines.serving import HostForeign, OriginForeign
from countermark.server.answers import Answer, refused
from countermark.server.tokens import Keyring

_LOOPBACK: Final = "localhost"
_PREFLIGHT: Final = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type, content-encoding",
    "access-control-max-age": "600",
}


def asks_for_tokens(keyring: Keyring, host: str) -> bool:
    """Whether a server at ``host`` asks whoever comes for a token. Raises ``EnvironmentFailed``."""
    return keyring.wanted() or not is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether an address to serve at is this host's alone."""
    address = _address(host)
    return host == _LOOPBACK if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def name_of(host: str) -> str:
    """The name in a ``Host`` header, without its port and brackets, in lower case; empty where there is none."""
    try:
        return urlsplit(f"//{host.strip()}").hostname or ""
    except ValueError:
        return ""


@final
class Guard:
    """Lets requests through that are meant for this server (serving at ``host``) and come from no foreign page."""

    def __init__(self, app: ASGIApp, host: str, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
        self._app = app
        self._local = is_loopback(host)
        own = () if self._local else (socket.gethostname().lower(), host.lower())
        self._names: Final = frozenset({_LOOPBACK, *own, *(name.lower() for name in hosts)})
        self._origins: Final = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        named = origin is not None and origin.lower() in self._origins
        foreign = origin is not None and not named and origin.lower() != f"{scope['scheme']}://{host.lower()}"
        defects: list[HostForeign | OriginForeign] = [] if self._ours(host) else [HostForeign(host)]
        if foreign:
            defects.append(OriginForeign(origin or ""))
        if defects:
            await refused(defects).response()(scope, receive, send)
            return
        allowed = {"access-control-allow-origin": origin or "", "vary": "origin"} if named else {}
        if named and scope["method"] == "OPTIONS":
            await Answer(204, b"", headers={**allowed, **_PREFLIGHT}).response()(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(allowed)
            await send(message)

        await self._app({**scope, "path": scope["raw_path"].decode("ascii", "replace")}, receive, told if allowed else send)

    def _ours(self, host: str) -> bool:
        name = name_of(host)
        if name in self._names:
            return True
        address = _address(name)
        return address is not None and (address.is_loopback or not self._local)
