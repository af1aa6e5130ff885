"""OTLP requests in protobuf: bytes → the records of ``otlp_records``.

Rules kept here:

1. The messages are walked, never turned into dictionaries by name: that takes several times as long as all the rest.
2. Fields that the protocol does not have yet are passed over, as protobuf has it.
3. A traces request and a logs request share so many field numbers that one may be read as the other: ``traces_alike`` and ``logs_alike``
   say what each never lacks.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from countermark.sessions.canonical import DEPTH_MAX
from countermark.sessions.events import EventUnreadable
from countermark.wire.otlp_records import Attributes, Document, LogRecord, SpanRecord, emitter_of, said

_SCALARS: Final = frozenset({"string_value", "int_value", "double_value", "bool_value"})


def spans_of(body: bytes) -> Iterator[SpanRecord] | EventUnreadable:
    """The spans of a traces request, in its order."""
    request = ExportTraceServiceRequest()
    read = _parsed(request, body)
    if (read and _traces_alike(request, first=True)) or not (_parsed(other := ExportLogsServiceRequest(), body) and _logs_alike(other)):
        return _spans(request) if read else EventUnreadable("it is no protobuf message of spans")
    return EventUnreadable("it is a logs request, which goes to /v1/logs")


def logs_of(body: bytes) -> Iterator[LogRecord] | EventUnreadable:
    """The log records of a logs request, in its order."""
    request = ExportLogsServiceRequest()
    read = _parsed(request, body)
    if (read and _logs_alike(request, first=True)) or not (_parsed(other := ExportTraceServiceRequest(), body) and _traces_alike(other)):
        return _logs(request) if read else EventUnreadable("it is no protobuf message of log records")
    return EventUnreadable("it is a traces request, which goes to /v1/traces")


def _parsed(request: Message, body: bytes) -> bool:
    try:
        request.ParseFromString(body)
    except DecodeError:
        return False
    return True


def _traces_alike(request: ExportTraceServiceRequest, first: bool = False) -> bool:
    """Whether all spans, or the first, have their ids; True for a request without any."""
    spans = (span for group in request.resource_spans for scoped in group.scope_spans for span in scoped.spans)
    return all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in islice(spans, 1 if first else None))


def _logs_alike(request: ExportLogsServiceRequest, first: bool = False) -> bool:
    """Whether all log records, or the first, have a time and no ids of other lengths; True for a request without any."""
    logs = (log for group in request.resource_logs for scoped in group.scope_logs for log in scoped.log_records)
    return all(
        (log.time_unix_nano or log.observed_time_unix_nano) and len(log.trace_id) in (0, 16) and len(log.span_id) in (0, 8)
        for log in islice(logs, 1 if first else None)
    )


def accepted(signal: str, refused: int, why: str) -> bytes:
    """The answer to a request that was taken, with the count of its items that were not."""
    if not refused:
        return b""
    if signal == "traces":
        spans = ExportTracePartialSuccess(rejected_spans=refused, error_message=why)
        return ExportTraceServiceResponse(partial_success=spans).SerializeToString()
    logs = ExportLogsPartialSuccess(rejected_log_records=refused, error_message=why)
    return ExportLogsServiceResponse(partial_success=logs).SerializeToString()


def status(code: int, message: str) -> bytes:
    """google.rpc.Status: the code in field 1 as a varint, the message in field 2. Its package is not installed for two fields."""
    text = message.encode("utf-8", "replace")
    length, size = bytearray(), len(text)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((0x08, code, 0x12, *length, size)) + text


def _spans(request: ExportTraceServiceRequest) -> Iterator[SpanRecord]:
    for group in request.resource_spans:
        resource = _resource(group.resource, group.schema_url)
        for scoped in group.scope_spans:
            emitter = emitter_of(resource, _scope(scoped.scope, scoped.schema_url))
            for span in scoped.spans:
                yield SpanRecord(
                    emitter,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    [_span_event(event) for event in span.events],
                    [_link(link) for link in span.links],
                    span.status.code,
                    span.status.message,
                    said(
                        traceState=span.trace_state,
                        flags=span.flags,
                        droppedAttributesCount=span.dropped_attributes_count,
                        droppedEventsCount=span.dropped_events_count,
                        droppedLinksCount=span.dropped_links_count,
                    ),
                )


def _logs(request: ExportLogsServiceRequest) -> Iterator[LogRecord]:
    for group in request.resource_logs:
        resource = _resource(group.resource, group.schema_url)
        for scoped in group.scope_logs:
            emitter = emitter_of(resource, _scope(scoped.scope, scoped.schema_url))
            for log in scoped.log_records:
                yield LogRecord(
                    emitter,
                    log.trace_id.hex(),
                    log.span_id.hex(),
                    log.event_name,
                    log.time_unix_nano,
                    log.observed_time_unix_nano,
                    log.severity_number,
                    log.severity_text,
                    _any(log.body, 0),
                    _attributes(log.attributes),
                    said(flags=log.flags, droppedAttributesCount=log.dropped_attributes_count),
                )


def _resource(resource: Resource, schema_url: str) -> Document:
    dropped = resource.dropped_attributes_count
    return said(attributes=_attributes(resource.attributes), droppedAttributesCount=dropped, schemaUrl=schema_url)


def _scope(scope: InstrumentationScope, schema_url: str) -> Document:
    return said(
        name=scope.name,
        version=scope.version,
        attributes=_attributes(scope.attributes),
        droppedAttributesCount=scope.dropped_attributes_count,
        schemaUrl=schema_url,
    )


def _span_event(event: Span.Event) -> Document:
    return said(
        name=event.name,
        timeUnixNano=event.time_unix_nano,
        attributes=_attributes(event.attributes),
        droppedAttributesCount=event.dropped_attributes_count,
    )


def _link(link: Span.Link) -> Document:
    return said(
        trace=link.trace_id.hex(),
        span=link.span_id.hex(),
        traceState=link.trace_state,
        flags=link.flags,
        attributes=_attributes(link.attributes),
        droppedAttributesCount=link.dropped_attributes_count,
    )


def _attributes(pairs: Iterable[KeyValue], depth: int = 0) -> Attributes:
    return {pair.key: _any(pair.value, depth) for pair in pairs}


def _any(value: AnyValue, depth: int) -> object:
    """A value as JSON has it: bytes in base64, nothing as null. What is nested too deep is cut below the depth that is refused."""
    which = value.WhichOneof("value")
    if which in _SCALARS:
        return getattr(value, which)
    if which is None:
        return None
    if which == "bytes_value":
        return b64encode(value.bytes_value).decode()
    if depth > DEPTH_MAX:
        return []
    if which == "array_value":
        return [_any(item, depth + 1) for item in value.array_value.values]
    return _attributes(value.kvlist_value.values, depth + 1)
