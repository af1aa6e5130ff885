"""Weight edits and their sessions as spans of OpenTelemetry: what leaves this store for another place, and as which bytes.

Rules kept here:

1. ``metadata`` is a list of what leaves, never of what stays: counts, norms, times and derived ids. Neither a name, a shape, a digest, a
   note, the session's id nor the event's own id is among them.
2. Every id is derived: the same edit is the same span however often it is sent, and what was sent before its session names it as parent.
3. Everything is marked as forwarded, so that a store of ours that receives it does not send it on. No attribute names a model: receivers
   would count a call of one.
4. A field that no edit can have, in a row of other origin, does not leave.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast, final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from countermark.recipe.canonical import length_prefixed
from countermark.sessions.edits import EDIT_PREFIX, FIELDS, EditField, read_field
from countermark.sessions.events import Event
from countermark.sessions.records import SessionListed, StoredEvent
from countermark.wire.otlp_records import EVENT_ID, FORWARDED, Mode

#: The fields of an edit that leave in ``metadata`` mode.
METADATA: Final = frozenset({"changed", "valueChanged", "l2", "maxAbs"})
EDIT_NAME: Final = f"{EDIT_PREFIX}edit"
AGENT_NAME: Final = "invoke_agent"
OPERATION: Final = "gen_ai.operation.name"
CONVERSATION: Final = "gen_ai.conversation.id"
WEIGHT_EDITS: Final = "countermark.stats.weight_edits"
WEIGHTS_CHANGED: Final = "countermark.stats.weights_changed"

_SERVICE: Final = "countermark"
_INT64_MAX: Final = 2**63 - 1
_Value: TypeAlias = str | bool | int | float | tuple[str, ...] | tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class SpanOut:
    """A span as it leaves: ids as bytes (16 of the trace, 8 of a span), times in ns UTC."""

    name: str
    trace: bytes
    span: bytes
    parent: bytes
    start_ns: int
    end_ns: int
    attributes: Mapping[str, _Value]


def trace_out(session: str) -> bytes:
    """The id of the trace under which everything of a session leaves: 16 bytes."""
    return _derived(b"trace", session, 16)


def agent_out(session: str) -> bytes:
    """The id of the span that a session is: 8 bytes."""
    return _derived(b"agent", session, 8)


def event_out(event: str) -> str:
    """The id under which an event leaves where its own stays: 32 hexadecimal digits."""
    return _derived(b"event", event, 16).hex()


def _derived(kind: bytes, of: str, size: int) -> bytes:
    return hashlib.sha256(length_prefixed(b"forward", kind, of.encode())).digest()[:size]


def edit_span(stored: StoredEvent, under: str, mode: Mode) -> SpanOut:
    """A weight edit as a span without length, below the span of the session ``under``."""
    event = stored.event
    attributes = {**_envelope(event.id, mode), **_fields(event, mode)}
    if mode == "full":
        attributes[CONVERSATION] = under
    span = _derived(b"edit", event.id, 8)
    return SpanOut(EDIT_NAME, trace_out(under), span, agent_out(under), stored.when_ns, stored.when_ns, attributes)


def agent_span(listed: SessionListed, sent_as: str, mode: Mode) -> SpanOut:
    """A session as the span of an agent; ``sent_as`` is the id that it had when its edits were sent."""
    sums = listed.session.sums
    start = sums.first_ns or listed.updated_ns
    attributes: dict[str, _Value] = {
        OPERATION: AGENT_NAME,
        **_envelope(f"session:{sent_as}", "metadata"),
        WEIGHT_EDITS: sums.edits,
        WEIGHTS_CHANGED: sums.weights_changed,
    }
    if mode == "full":
        attributes[CONVERSATION] = sent_as
    return SpanOut(AGENT_NAME, trace_out(sent_as), agent_out(sent_as), b"", start, max(start, sums.last_ns or 0), attributes)


def _envelope(event: str, mode: Mode) -> dict[str, _Value]:
    return {FORWARDED: True, EVENT_ID: event if mode == "full" else event_out(event)}


def _fields(event: Event, mode: Mode) -> Mapping[str, _Value]:
    """The attributes of what an edit says and may leave."""
    payload = event.payload.value
    said: Mapping[str, object] = payload if isinstance(payload, Mapping) else {}
    found: dict[str, _Value] = {}
    for field in FIELDS:
        if (mode == "full" or field.key in METADATA) and (value := _said(said, field)) is not None:
            found[EDIT_PREFIX + field.attribute] = value
    return found


def _said(said: Mapping[str, object], field: EditField) -> _Value | None:
    read = read_field(field.key, said[field.key]) if field.key in said else None
    return cast(_Value, read) if isinstance(read, str | int | float | tuple) else None


def request_of(spans: Iterable[SpanOut], version: str) -> bytes:
    """An OTLP request for traces with these spans, in their order, as protobuf; ``version`` is this program's."""
    scope = ScopeSpans(scope=InstrumentationScope(name=_SERVICE, version=version), spans=map(_span, spans))
    resource = Resource(attributes=_pairs({"service.name": _SERVICE}))
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])]).SerializeToString()


def _span(span: SpanOut) -> Span:
    return Span(
        trace_id=span.trace,
        span_id=span.span,
        parent_span_id=span.parent,
        name=span.name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_pairs(span.attributes),
    )


def _pairs(attributes: Mapping[str, _Value]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in attributes.items()]


def _any(value: _Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        # A sum may pass what OTLP has for whole numbers; its digits are exact.
        return AnyValue(int_value=value) if value <= _INT64_MAX else AnyValue(string_value=str(value))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(array_value=ArrayValue(values=map(_any, value)))
