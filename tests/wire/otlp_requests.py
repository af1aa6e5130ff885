"""OTLP requests as an emitter makes them, in both encodings from one description."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from countermark.sessions.events import Batch, Event
from countermark.wire.otlp import Encoding, Signal, batch_of

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
PARENT: Final = "00f067aa0ba902b7"
NOW_NS: Final = 1_764_748_800_000_000_000
SERVICE: Final[Mapping[str, object]] = {"service.name": "trainer"}

#: One edit, as attributes say it and as its payload is spelled.
EDIT: Final[Mapping[str, object]] = {
    "countermark.event.id": "01890000-0000-7000-8000-000000000001",
    "gen_ai.conversation.id": "conv-7",
    "countermark.weights.tensor": "layers.0.w",
    "countermark.weights.shape": [2048, 2048],
    "countermark.weights.dtype": "F32",
    "countermark.weights.changed": 3,
    "countermark.weights.value_changed": 2,
    "countermark.weights.non_finite_created": 1,
    "countermark.weights.non_finite_cleared": 0,
    "countermark.weights.l2": 0.5,
    "countermark.weights.max_abs": 4.0,
    "countermark.weights.before.sha256": "AB" * 32,
    "countermark.weights.after.sha256": "cd" * 32,
    "countermark.weights.checkpoint.before": "wr1:" + "1" * 64,
    "countermark.weights.checkpoint.after": "wr1:" + "2" * 64,
    "countermark.weights.aliases": ["lm_head.w", "tied.w"],
    "countermark.weights.note": "by hand",
}


def span(name: str = "work", attributes: Mapping[str, object] | None = None, **fields: Any) -> dict[str, Any]:
    """A span as OTLP's JSON has it, of a trace and with times; a field that is None is left out."""
    said = {
        "traceId": TRACE, "spanId": SPAN, "name": name, "kind": 1, "startTimeUnixNano": str(NOW_NS),
        "endTimeUnixNano": str(NOW_NS + 1_000), "attributes": pairs(attributes or {}), **fields,
    }  # fmt: skip
    return {key: value for key, value in said.items() if value is not None}


def log(attributes: Mapping[str, object] | None = None, **fields: Any) -> dict[str, Any]:
    """A log record as OTLP's JSON has it."""
    said = {"timeUnixNano": str(NOW_NS), "attributes": pairs(attributes or {}), **fields}
    return {key: value for key, value in said.items() if value is not None}


def edit_span(attributes: Mapping[str, object] = EDIT, name: str = "countermark.weights.edit") -> dict[str, Any]:
    return span(name, attributes, endTimeUnixNano=str(NOW_NS))


def pairs(attributes: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"key": key, "value": value_of(value)} for key, value in attributes.items()]


def value_of(value: object) -> dict[str, object]:
    match value:
        case bool():
            return {"boolValue": value}
        case str():
            return {"stringValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [value_of(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": pairs(value)}}
        case None:
            return {}
        case _:
            raise TypeError(type(value))


def request(signal: Signal, items: Iterable[object], resource: Mapping[str, object] = SERVICE, **scope: object) -> dict[str, Any]:
    """A request of one resource and one scope."""
    keys = {"traces": ("resourceSpans", "scopeSpans", "spans"), "logs": ("resourceLogs", "scopeLogs", "logRecords")}
    groups, scopes, records = keys[signal]
    return {groups: [{"resource": {"attributes": pairs(resource)}, scopes: [{"scope": scope, records: list(items)}]}]}


def json_of(document: object) -> bytes:
    return json.dumps(document).encode()


def protobuf_of(signal: Signal, document: Mapping[str, Any]) -> bytes:
    """The same request in protobuf."""
    message: Any = ExportTraceServiceRequest() if signal == "traces" else ExportLogsServiceRequest()
    _fill(message, document)
    found: bytes = message.SerializeToString()
    return found


def _fill(message: Any, document: Mapping[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.json_name in document:
            _set(message, field, document[field.json_name])


def _set(message: Any, field: Any, value: Any) -> None:
    if field.is_repeated:
        for item in value:
            _fill(getattr(message, field.name).add(), item)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(inner, value)
    elif field.type == field.TYPE_BYTES:
        setattr(message, field.name, bytes.fromhex(value))
    elif field.cpp_type == field.CPPTYPE_STRING:
        setattr(message, field.name, value)
    elif field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_BOOL):
        setattr(message, field.name, value)
    else:
        setattr(message, field.name, int(value))


def read(signal: Signal, document: Mapping[str, Any], encoding: Encoding = "json") -> Batch:
    """The batch of a request that is one."""
    body = json_of(document) if encoding == "json" else protobuf_of(signal, document)
    batch = batch_of(signal, encoding, body, NOW_NS)
    assert isinstance(batch, Batch), batch
    return batch


def only(batch: Batch) -> Event:
    """The one event of a batch that refuses nothing."""
    assert batch.refused == ()
    ((index, event),) = batch.events
    assert index == 0
    return event


def of_span(item: object, encoding: Encoding = "json", resource: Mapping[str, object] = SERVICE) -> Event:
    return only(read("traces", request("traces", [item], resource), encoding))


def of_log(item: object, encoding: Encoding = "json", resource: Mapping[str, object] = SERVICE) -> Event:
    return only(read("logs", request("logs", [item], resource), encoding))


def nested(levels: int) -> AnyValue:
    """Lists within one another."""
    value = AnyValue()
    inner = value
    for _ in range(levels):
        inner = inner.array_value.values.add()
    return value
