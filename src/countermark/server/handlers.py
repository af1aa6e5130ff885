"""What each address of the server does: read the request, call the operation, say what came of it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import unquote

from starlette.requests import Request

from countermark.app.sessions import Taken, list_sessions, search_events, show_events, show_session
from countermark.lines.defects import AnyDefect, defect_documents, known, sentence
from countermark.lines.serving import MediaTypeUnfit
from countermark.lines.sessions import conflict_document, event_row_document, session_document
from countermark.lines.texts import number
from countermark.server import metrics
from countermark.server.answers import JSON, Answer, document, refused, status_of
from countermark.server.guards import asks_for_tokens
from countermark.server.openapi import description
from countermark.server.routes import BODY_OF_EVENTS, BODY_OF_OTLP, Query
from countermark.server.service import Read, Service
from countermark.sessions.events import BatchTooLong, EventConflicts, EventRefused, EventUnreadable
from countermark.sessions.secrets import without_tokens
from countermark.values import Refused
from countermark.wire import otlp
from countermark.wire.events import batch_of_json, batch_of_lines

#: A handler is given the service, the request, its parameters, and the tokens that must not stand in its answer.
Handler: TypeAlias = Callable[[Service, Request, Query, Sequence[str]], Awaitable[Answer]]

#: How many refused items an answer of OTLP describes.
_TOLD_MAX: Final = 5
#: Codes of gRPC for the statuses of HTTP.
_CODES: Final[Mapping[int, int]] = {400: 3, 408: 4, 413: 8, 500: 13, 503: 14}


async def ingest(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    media = _media(request)
    if media not in BODY_OF_EVENTS:
        return refused((MediaTypeUnfit(media, BODY_OF_EVENTS),), named)
    most = service.settings.limits.items_max
    async with service.room.body_of(request, service.settings.limits) as body:
        if not isinstance(body, bytes):
            return refused((body,), named)
        read: Callable[[int], Read] = (
            (lambda received_ns: batch_of_json(body, received_ns, most))
            if media == JSON
            else (lambda received_ns: batch_of_lines(body, received_ns, most))
        )
        taken = await service.take(read, len(body), named)
    if isinstance(taken, EventUnreadable | BatchTooLong):
        return refused((taken,), named)
    return _ingested(taken, named)


def _ingested(taken: Taken, named: Sequence[str]) -> Answer:
    defects = [defect for item in taken.refused for defect in item.defects]
    said = {
        "stored": taken.count("stored"),
        "duplicates": taken.count("duplicate"),
        "conflicts": taken.count("conflict"),
        "events": [{"index": item.index, "id": item.id, "outcome": item.outcome} for item in taken.items],
        "refused": [{"index": item.index, "id": item.id, "defects": defect_documents(item.defects)} for item in taken.refused],
    }
    conflicts = [EventConflicts(item.id) for item in taken.items if item.outcome == "conflict"]
    return document(said, defects, named=named, warnings=conflicts)


async def otlp_request(signal: otlp.Signal, service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    media = _media(request)
    if media not in BODY_OF_OTLP:
        return refused((MediaTypeUnfit(media, BODY_OF_OTLP),), named)
    encoding: otlp.Encoding = "json" if media == JSON else "protobuf"
    async with service.room.body_of(request, service.settings.limits) as body:
        if not isinstance(body, bytes):
            return _otlp_refused(encoding, (body,), named)
        taken = await service.take(
            lambda received_ns: otlp.batch_of(signal, encoding, body, received_ns, service.settings.limits.items_max), len(body), named
        )
    if isinstance(taken, EventUnreadable | BatchTooLong):
        return _otlp_refused(encoding, (taken,), named)
    why = without_tokens(_told(taken.refused), named)
    return Answer(200, otlp.accepted(signal, encoding, len(taken.refused), why), media)


def _otlp_refused(encoding: otlp.Encoding, defects: Sequence[AnyDefect], named: Sequence[str]) -> Answer:
    """A refusal as OTLP has it, with the status and the headers that it has everywhere."""
    status = status_of(defects)
    message = "; ".join(f"{told.message}: {told.remedy}" for told in map(sentence, defects))
    body = otlp.status(encoding, _CODES.get(status, 3), without_tokens(message, named))
    return Answer(status, body, otlp.CONTENT_TYPES[encoding], refused(defects).headers)


def _told(items: Sequence[EventRefused]) -> str:
    """Why items were refused, the first of them; the others are counted."""
    lines = [f"item {item.index}: {'; '.join(sentence(defect).message for defect in item.defects)}" for item in items[:_TOLD_MAX]]
    more = len(items) - _TOLD_MAX
    return ". ".join([*lines, *([f"{more:,} more were refused"] if more > 0 else [])])


def _media(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def sessions(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    found = await service.reading(list_sessions, service.store, query.texts.get("where"), query.numbers["limit"], query.texts.get("cursor"))
    if isinstance(found, Refused):
        return refused(known(found.defects), named)
    now_ns, idle_s = service.settings.now_ns(), service.settings.idle_s
    listed = [session_document(each, now_ns, idle_s) for each in found.items]
    return document({"sessions": listed, "next": None if found.next is None else found.next.spell()}, named=named)


async def session(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    found = await service.reading(show_session, service.store, _asked(request))
    if isinstance(found, Refused):
        return refused(known(found.defects), named)
    listed, conflicts = found
    told = session_document(listed, service.settings.now_ns(), service.settings.idle_s)
    return document({"session": told, "conflicts": [conflict_document(each) for each in conflicts]}, named=named)


async def events(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    found = await service.reading(show_events, service.store, _asked(request), query.texts.get("cursor"), query.numbers["limit"])
    if isinstance(found, Refused):
        return refused(known(found.defects), named)
    listed, page = found
    said = {
        "session": listed.id,
        "first": number(page.first),
        "total": number(page.total),
        "events": [event_row_document(each) for each in page.events],
        "next": None if page.next is None else page.next.spell(),
    }
    return document(said, named=named)


async def search(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    before = query.numbers.get("before")
    found = await service.reading(search_events, service.store, query.texts["q"], query.numbers["limit"], before)
    if isinstance(found, Refused):
        return refused(known(found.defects), named)
    said = {"events": [event_row_document(each) for each in found.items], "next": None if found.next is None else str(found.next)}
    return document(said, named=named)


def _asked(request: Request) -> str:
    return unquote(str(request.path_params["session"]))


async def healthz(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    return document({"status": "alive"})


async def readyz(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    await service.reading(service.store.latest)
    return document({"status": "ready"})


async def counted(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    latest = await service.reading(service.store.latest)
    standing = {metrics.HELD_BYTES: service.room.held, metrics.LATEST: latest, **await _forwarded(service)}
    standing |= {metrics.RETIRED_SESSIONS: service.upkeep.sessions, metrics.RETIRED_EVENTS: service.upkeep.events}
    text = service.counts.text(standing)
    return Answer(200, text.encode(), metrics.MEDIA)


async def _forwarded(service: Service) -> Mapping[metrics.Metric, float]:
    """What is told of sending on."""
    forwarder = service.forwarder
    if forwarder is None:
        return {}
    found = {
        metrics.FORWARDED: forwarder.edits,
        metrics.FORWARDED_SESSIONS: forwarder.sessions,
        metrics.FORWARD_REJECTED: forwarder.rejected,
        metrics.FORWARD_FAILURES: forwarder.failures,
    }
    if (state := await service.reading(forwarder.state)) is not None:
        found |= {
            metrics.FORWARD_WAITING: state.waiting,
            metrics.FORWARD_SESSIONS: state.sessions,
            metrics.FORWARD_ASIDE: state.aside,
        }
    return found


async def openapi(service: Service, request: Request, query: Query, named: Sequence[str]) -> Answer:
    return Answer(200, description(asks_for_tokens(service.keyring, service.settings.host)).encode())


#: The handler of each route, by its name.
HANDLERS: Final[Mapping[str, Handler]] = {
    "ingest": ingest,
    "otlp_traces": partial(otlp_request, "traces"),
    "otlp_logs": partial(otlp_request, "logs"),
    "list_sessions": sessions,
    "show_session": session,
    "show_events": events,
    "search": search,
    "healthz": healthz,
    "readyz": readyz,
    "metrics": counted,
    "openapi": openapi,
}
