"""OTLP over HTTP: what a body of traces or logs holds, in protobuf or JSON, and what is answered.

Rules kept here:

1. Both encodings go one way: the readers make records, ``otlp_records`` makes events of them. An item that is none is refused with
   everything that is wrong with it, and loses none of its neighbours.
2. A body that is another request is unreadable as a whole, and the likely cause is named: protobuf would read one as the other, with fields
   in the wrong places.
3. What is refused is counted in OTLP's partial success, in the encoding of the request.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias, cast

from countermark.sessions.canonical import kept_text
from countermark.sessions.events import Batch, BatchTooLong, Event, EventDefect, EventRefused, EventUnreadable
from countermark.values import Refused
from countermark.wire import otlp_json, otlp_protobuf
from countermark.wire.events import ID_SHOWN_MAX, read_json
from countermark.wire.otlp_records import EVENT_ID, LogRecord, SpanRecord, event_of_log, event_of_span

Signal: TypeAlias = Literal["traces", "logs"]
Encoding: TypeAlias = Literal["protobuf", "json"]

_Record: TypeAlias = SpanRecord | LogRecord
_Found: TypeAlias = Iterator[_Record | Refused[EventDefect]]

CONTENT_TYPES: Final[Mapping[Encoding, str]] = {"protobuf": "application/x-protobuf", "json": "application/json"}
_KEYS: Final[Mapping[str, str]] = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceMetrics": "metrics"}


def batch_of(
    signal: Signal, encoding: Encoding, body: bytes, received_ns: int, items_max: int | None = None
) -> Batch | EventUnreadable | BatchTooLong:
    """The events of an OTLP request; unreadable as a whole where it is no such request, or has more than ``items_max`` items."""
    found = _of_json(signal, body) if encoding == "json" else _of_protobuf(signal, body)
    if isinstance(found, EventUnreadable):
        return found
    events: list[tuple[int, Event]] = []
    refused: list[EventRefused] = []
    for index, record in enumerate(found):
        if items_max is not None and index == items_max:
            return BatchTooLong(items_max)
        if isinstance(record, Refused):
            refused.append(EventRefused(index, "", record.defects))
            continue
        read = event_of_span(record, received_ns) if isinstance(record, SpanRecord) else event_of_log(record, received_ns)
        if isinstance(read, Refused):
            refused.append(EventRefused(index, _id_shown(record), read.defects))
        else:
            events.append((index, read))
    return Batch(tuple(events), tuple(refused))


def _id_shown(record: _Record) -> str:
    """The id of a refused record, as far as it says one."""
    told = record.attributes.get(EVENT_ID)
    return kept_text(told if isinstance(told, str) else record.span, ID_SHOWN_MAX)


def _of_protobuf(signal: Signal, body: bytes) -> _Found | EventUnreadable:
    found = otlp_protobuf.spans_of(body) if signal == "traces" else otlp_protobuf.logs_of(body)
    if isinstance(found, EventUnreadable) and body.lstrip()[:1] in (b"{", b"["):
        return EventUnreadable("it is JSON, and its Content-Type says protobuf: send it as application/json")
    return found


def _of_json(signal: Signal, body: bytes) -> _Found | EventUnreadable:
    document = read_json(body)
    if isinstance(document, EventUnreadable):
        return document
    if not isinstance(document, dict):
        return EventUnreadable("it is no JSON object")
    table = cast("dict[str, object]", document)
    wanted = next(key for key, kind in _KEYS.items() if kind == signal)
    if table and wanted not in table:
        other = next((kind for key, kind in _KEYS.items() if key in table), None)
        cause = f"it is a {other} request, which goes to /v1/{other}" if other else "its keys are in camelCase, and others are passed over"
        return EventUnreadable(f"it has no {wanted}: {cause}")
    return otlp_json.spans_of(table) if signal == "traces" else otlp_json.logs_of(table)


def accepted(signal: Signal, encoding: Encoding, refused: int, why: str) -> bytes:
    """The answer to a request that was taken: how many items of it were refused, and why; nothing where none was."""
    if encoding == "protobuf":
        return otlp_protobuf.accepted(signal, refused, why)
    count = {"traces": "rejectedSpans", "logs": "rejectedLogRecords"}[signal]
    return json.dumps({"partialSuccess": {count: str(refused), "errorMessage": why}} if refused else {}).encode()


def status(encoding: Encoding, code: int, message: str) -> bytes:
    """The answer to a request that was not taken: OTLP's Status, with a code of gRPC."""
    if encoding == "protobuf":
        return otlp_protobuf.status(code, message)
    return json.dumps({"code": code, "message": message}).encode()
