"""Sentences for what keeps the server from starting, and for requests that it turns away."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.serving import (
    AddressUnguarded,
    BodyEncodingUnfit,
    BodySlow,
    BodyTooLarge,
    HostForeign,
    MediaTypeUnfit,
    MethodUnfit,
    OriginForeign,
    ParameterUnfit,
    PathOutside,
    RequestDefect,
    RouteUnknown,
    ServerBusy,
    ServerFault,
    ServingDefect,
    TokenNameTaken,
    TokenNameUnfit,
    TokenNameUnknown,
    TokenScopeMissing,
    TokenScopeUnknown,
    TokenUnknown,
    TokenWanted,
)
from countermark.lines.texts import counted, either, listed, plain

_MAKE_ONE = "countermark token add NAME --scope ingest"
_SEND_IT = "send it as Authorization: Bearer TOKEN"


def serving_sentence(defect: ServingDefect) -> Sentence:
    match defect:
        case AddressUnguarded(address):
            return Sentence(
                f"{quoted(address)} can be reached from other hosts, and no token is asked of them",
                f"make one ({_MAKE_ONE}), or serve this host alone (--host 127.0.0.1)",
            )
        case TokenNameUnfit(name):
            return Sentence(f"{quoted(name)} is no name for a token", "write 1 to 64 letters, digits, dots, hyphens and underscores")
        case TokenNameTaken(name):
            return Sentence(f"a token has the name {quoted(name)} already", "take another name, or revoke that one first")
        case TokenNameUnknown(name, names):
            return Sentence(f"no token has the name {quoted(name)}", f"there are: {listed(map(plain, names))}")
        case TokenScopeUnknown(scope, scopes):
            return Sentence(f"{quoted(scope)} is nothing that a token may do", f"write {either(scopes)}")
        case (
            TokenWanted() | TokenUnknown() | TokenScopeMissing() | HostForeign() | OriginForeign() | RouteUnknown() | MethodUnfit()
            | ParameterUnfit() | MediaTypeUnfit() | BodyEncodingUnfit() | BodyTooLarge() | BodySlow() | ServerBusy() | ServerFault()
            | PathOutside()
        ):  # fmt: skip
            return _of_request(defect)


def _of_request(defect: RequestDefect) -> Sentence:
    match defect:
        case TokenWanted():
            return Sentence("the request brings no token", f"{_SEND_IT}; whoever runs the server makes one: {_MAKE_ONE}")
        case TokenUnknown():
            return Sentence("the token of the request is none of this server's", f"ask whoever runs the server for one: {_MAKE_ONE}")
        case TokenScopeMissing(scope):
            return Sentence(
                f"the token of the request is not allowed to {plain(scope)}",
                f"bring one that is: countermark token add NAME --scope {plain(scope)}",
            )
        case HostForeign(host):
            return Sentence(
                f"the request is meant for {quoted(host)}, which is not this server",
                "to be asked by that name too: countermark serve --allow-host NAME",
            )
        case OriginForeign(origin):
            return Sentence(
                f"the request comes from a page of {quoted(origin)}, which is not this server's",
                "to let that page ask: countermark serve --allow-origin ORIGIN",
            )
        case RouteUnknown(path):
            return Sentence(f"nothing has the address {quoted(path)}", "GET /openapi.json lists the addresses that there are")
        case MethodUnfit(method, allowed):
            return Sentence(f"nothing is done there by {plain(method)}", f"ask by {either(allowed)}")
        case ParameterUnfit(parameter, found, wanted):
            return Sentence(f"the parameter {plain(parameter)} is {plain(found)}", f"it is {plain(wanted)}")
        case MediaTypeUnfit(found, wanted):
            return Sentence(f"a body of {quoted(found)} is not read here", f"send one of {either(wanted)}, and say so in Content-Type")
        case BodyEncodingUnfit(found, why):
            return Sentence(f"the body cannot be unpacked as {quoted(found)}: {plain(why)}", "send it as it is, or packed by gzip")
        case BodyTooLarge(bytes_max):
            return Sentence(f"the body has more than {counted(bytes_max, 'byte')}, unpacked", "send it in several requests")
        case BodySlow(seconds_max):
            return Sentence(f"the body did not come within {counted(seconds_max, 'second')}", "send less at once")
        case ServerBusy(retry_s):
            return Sentence("more is waiting to be stored than is held at once", f"send it again in {counted(retry_s, 'second')}")
        case ServerFault(what):
            return Sentence(
                f"the server failed at this request ({plain(what)}); nothing of it was stored",
                "send it again; if it fails again, report it",
            )
        case PathOutside(path, roots):
            return Sentence(
                f"{quoted(path)} leads out of the folders in which paths may be named",
                f"name a path in {either(map(plain, roots))}; to have more of them: countermark mcp --root DIR",
            )
