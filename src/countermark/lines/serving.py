"""Defects of the server: of how it is started, of its tokens, and of requests before anything of them is read."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class AddressUnguarded:
    """The server is to be reached from other hosts, and no token was made that they would need."""

    address: str


@final
@dataclass(frozen=True, slots=True)
class TokenNameUnfit:
    """A token cannot have this name."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class TokenNameTaken:
    """Another token has this name."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class TokenNameUnknown:
    """No token has this name; ``names`` are those that there are."""

    name: str
    names: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class TokenScopeUnknown:
    """No token may do what is called so; ``scopes`` are the things that tokens may do."""

    scope: str
    scopes: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class TokenWanted:
    """A request brings no token, and one is needed."""


@final
@dataclass(frozen=True, slots=True)
class TokenUnknown:
    """A request brings a token that this server did not make, or that was revoked."""


@final
@dataclass(frozen=True, slots=True)
class TokenScopeMissing:
    """A token is not allowed what the request asks for."""

    scope: str


@final
@dataclass(frozen=True, slots=True)
class HostForeign:
    """A request was meant for another host than the one that this server is."""

    host: str


@final
@dataclass(frozen=True, slots=True)
class OriginForeign:
    """A request was made by a page of another origin."""

    origin: str


@final
@dataclass(frozen=True, slots=True)
class RouteUnknown:
    """Nothing has this address."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class MethodUnfit:
    """What has this address is asked for in another way."""

    method: str
    allowed: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class ParameterUnfit:
    """A parameter of a request holds what it cannot."""

    parameter: str
    found: str
    wanted: str


@final
@dataclass(frozen=True, slots=True)
class MediaTypeUnfit:
    """A body is of a kind that is not read at this address; ``wanted`` are those that are."""

    found: str
    wanted: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class BodyEncodingUnfit:
    """A body is packed in a way that is not read, or not what it says; ``why`` is a clause about it."""

    found: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class BodyTooLarge:
    """A body has more bytes than are read, before or after unpacking."""

    bytes_max: int


@final
@dataclass(frozen=True, slots=True)
class BodySlow:
    """A body did not come in the time that it may take."""

    seconds_max: int


@final
@dataclass(frozen=True, slots=True)
class ServerBusy:
    """More is waiting to be stored than is held at once."""

    retry_s: int


@final
@dataclass(frozen=True, slots=True)
class ServerFault:
    """Something failed in this program; ``what`` is its name."""

    what: str


@final
@dataclass(frozen=True, slots=True)
class PathOutside:
    """A client named a path outside of the folders in which it may name any, or one in which a link leads out of them."""

    path: str
    roots: tuple[str, ...]


#: What is wrong with a request apart from what it holds.
RequestDefect = (
    TokenWanted | TokenUnknown | TokenScopeMissing | HostForeign | OriginForeign | RouteUnknown | MethodUnfit | ParameterUnfit
    | MediaTypeUnfit | BodyEncodingUnfit | BodyTooLarge | BodySlow | ServerBusy | ServerFault | PathOutside
)  # fmt: skip
#: What is wrong with how a server is started, and with what is asked of its tokens.
TokenDefect = TokenNameUnfit | TokenNameTaken | TokenNameUnknown | TokenScopeUnknown
ServingDefect = AddressUnguarded | TokenDefect | RequestDefect
