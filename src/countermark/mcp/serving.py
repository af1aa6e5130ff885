"""The server of the protocol over a desk: what the SDK asks, and what it is given.

Rules kept here:

1. Tools work in threads of their own, few at once; a call that is cancelled, or whose client went away, is ended where it is.
2. What reads the disk tells how far it is, to those who ask for it.
3. A resource has no place for defects: what is wrong with one is an error of the protocol that has the sentence and the defects.
"""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Final, TypeAlias, TypeVar, cast, final
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from countermark.lines.defects import AnyDefect, defect_documents, known, sentence
from countermark.lines.serving import ParameterUnfit, ServerFault
from countermark.lines.surface import EnvironmentFault
from countermark.lines.texts import sized
from countermark.mcp.answering import Answer, answered, failure_of
from countermark.mcp.arguments import input_schema
from countermark.mcp.bounds import PIECE_LENGTH_MAX, clean, spelled
from countermark.mcp.desk import Desk, Stopped, Watch
from countermark.mcp.roster import BY_NAME, EVENT_TEMPLATE, ROSTER, SESSION_TEMPLATE, Tool, output_schema
from countermark.mcp.sessions import event_uri, payload_of, session_uri, some_sessions
from countermark.values import Refused, shown

T = TypeVar("T")
Context: TypeAlias = ServerRequestContext[Any, Any]

#: Calls that work at once: those that read the disk, and all others.
_READING_MAX: Final = 2
_ASKING_MAX: Final = 8
_RESOURCES_MAX: Final = 50
_ORDINAL: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_INSTRUCTIONS: Final = (
    "Reads what countermark recorded: sessions of weight edits, training runs and their verdicts; and checkpoints and weights on this "
    "disk. Nothing is changed. An answer has ok, defects (each with a remedy) and warnings; pass next as cursor for the page that follows."
)


def tool_of(tool: Tool) -> types.Tool:
    """A tool as it is listed."""
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.doc,
        input_schema=input_schema(tool.arguments),
        output_schema=output_schema(tool),
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def templates() -> list[types.ResourceTemplate]:
    return [
        types.ResourceTemplate(
            name="session", uri_template=SESSION_TEMPLATE, mime_type="application/json", description="A session, as session_get answers."
        ),
        types.ResourceTemplate(
            name="event", uri_template=EVENT_TEMPLATE, mime_type="application/json", description="An event's payload, in pieces."
        ),
    ]


def server_of(desk: Desk) -> "Server[Any]":
    """A server for any number of clients."""
    handlers = _Handlers(desk)
    server: Server[Any] = Server(
        "countermark",
        version=version("countermark"),
        title="Countermark",
        instructions=_INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )
    # Nobody collects spans of ours, and arguments have no place in them.
    server.middleware.clear()
    return server


def quiet_logs() -> None:
    """The SDK's log tells tracebacks and what requests hold: only that something was wrong is told, by its first line."""
    for name in ("mcp", "mcp_types", "httpx2", "asyncio"):
        log = logging.getLogger(name)
        log.propagate = False
        log.handlers[:] = [logging.NullHandler()]


@final
class _Handlers:
    def __init__(self, desk: Desk) -> None:
        self._desk: Final = desk
        self._tools: Final = types.ListToolsResult(tools=[tool_of(tool) for tool in ROSTER])
        self._limits: dict[bool, anyio.CapacityLimiter] = {}

    async def list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        _first_page(params)
        return self._tools

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {shown(params.name)}; there are {', '.join(BY_NAME)}")
        answer = await self._watched(ctx, tool.reads_disk, partial(answered, tool, self._desk, params.arguments or {}))
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)], structured_content=answer.document, is_error=answer.is_error
        )

    async def list_resources(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        cursor = None if params is None else params.cursor
        found = await self._watched(ctx, False, lambda watch: _told(partial(some_sessions, self._desk, cursor, _RESOURCES_MAX)))
        listed, following = found
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=clean(session_uri(each.id)), name=clean(each.id), mime_type="application/json") for each in listed
            ],
            next_cursor=following,
        )

    async def list_templates(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        _first_page(params)
        return types.ListResourceTemplatesResult(resource_templates=templates())

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await self._watched(ctx, False, lambda watch: read(self._desk, params.uri, watch))

    async def _watched(self, ctx: Context, reads_disk: bool, work: Callable[[Watch], T]) -> T:
        """What a function says that works in a thread, and hears when nobody waits for it any more."""
        if reads_disk not in self._limits:
            self._limits[reads_disk] = anyio.CapacityLimiter(_READING_MAX if reads_disk else _ASKING_MAX)
        watch = Watch(_telling(ctx) if reads_disk and "progress_token" in (ctx.meta or {}) else None)
        try:
            return await anyio.to_thread.run_sync(partial(work, watch), abandon_on_cancel=True, limiter=self._limits[reads_disk])
        finally:
            watch.stop()


def _telling(ctx: Context) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        try:
            anyio.from_thread.run(ctx.session.report_progress, done, total, f"{sized(done)} of {sized(total)} read")
        except Exception as error:
            # The client is gone, and with it whoever waits.
            raise Stopped from error

    return tell


def _first_page(params: types.PaginatedRequestParams | None) -> None:
    if params is not None and params.cursor is not None:
        raise _error((ParameterUnfit("cursor", shown(params.cursor), "absent: this list has one page"),))


def _error(defects: tuple[AnyDefect, ...]) -> MCPError:
    said = [sentence(defect) for defect in defects]
    message = "; ".join(f"{each.message}: {each.remedy}" for each in said)[:2_000]
    ours = any(isinstance(each, EnvironmentFault | ServerFault) for each in defects)
    code = types.INTERNAL_ERROR if ours else types.INVALID_PARAMS
    return MCPError(code=code, message=clean(message), data={"defects": defect_documents(defects[:10])})


def _told(ask: "Callable[[], T | Refused[object]]") -> T:
    """What is asked for. Raises ``MCPError`` with what is wrong instead."""
    try:
        found = ask()
    except Exception as error:
        raise _error((failure_of(error),)) from None
    if isinstance(found, Refused):
        raise _error(known(cast("Refused[object]", found).defects))
    return found


def read(desk: Desk, uri: str, watch: Watch) -> types.ReadResourceResult:
    """A session's page, or a piece of an event's payload. Raises ``MCPError``."""
    try:
        parts = urlsplit(uri)
        asked = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    except ValueError:
        raise _unknown(uri) from None
    named = parts.path.removeprefix("/")
    if parts.scheme != "countermark" or not named or parts.fragment:
        raise _unknown(uri)
    if parts.netloc == "sessions" and set(asked) <= {"cursor"} and "/" not in named:
        return _session(desk, uri, unquote(named), asked, watch)
    if parts.netloc == "events" and set(asked) <= {"from"} and _ORDINAL.fullmatch(named) and int(named) < 2**63:
        return _payload(desk, uri, int(named), asked.get("from", "0"))
    raise _unknown(uri)


def _unknown(uri: str) -> MCPError:
    return _error((ParameterUnfit("uri", shown(uri), f"an address as {SESSION_TEMPLATE} or {EVENT_TEMPLATE}"),))


def _session(desk: Desk, uri: str, session: str, asked: Mapping[str, str], watch: Watch) -> types.ReadResourceResult:
    answer: Answer = answered(BY_NAME["session_get"], desk, {"session": session, **asked}, watch)
    if answer.is_error:
        raise MCPError(code=types.INVALID_PARAMS, message=answer.text[:2_000], data={"defects": answer.document["defects"]})
    following = answer.document["next"]
    more = None if following is None else f"{session_uri(session)}?cursor={following}"
    return _contents(uri, spelled(answer.document), more)


def _payload(desk: Desk, uri: str, ordinal: int, beginning: str) -> types.ReadResourceResult:
    text = _told(partial(payload_of, desk, ordinal))
    if text is None or not (beginning == "0" or _ORDINAL.fullmatch(beginning)) or (int(beginning) >= len(text)):
        raise _unknown(uri)
    first = int(beginning)
    ends = first + PIECE_LENGTH_MAX
    return _contents(uri, clean(text)[first:ends], f"{event_uri(ordinal)}?from={ends}" if ends < len(text) else None)


def _contents(uri: str, text: str, following: str | None) -> types.ReadResourceResult:
    """A piece of what has an address; ``next`` is that of the piece that follows."""
    meta = {"countermark/next": following}
    contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text, _meta=meta)
    return types.ReadResourceResult(contents=[contents])
