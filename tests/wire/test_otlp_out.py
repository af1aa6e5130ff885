"""What leaves of an edit and of a session: by a list of what may, under ids that never change, marked as forwarded."""

from typing import Any, Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from countermark.sessions.canonical import Spelling, spelled_json
from countermark.sessions.edits import FIELDS, WeightEdit
from countermark.sessions.events import Batch, Event
from countermark.sessions.fold import folded
from countermark.sessions.records import SessionListed, StoredEvent
from countermark.wire import otlp, otlp_out
from countermark.wire.otlp_out import METADATA, agent_span, edit_span, event_out, request_of
from countermark.wire.otlp_records import MODES, Mode
from tests.faults import planted, proven_by

NOW: Final = 1_796_000_000 * 10**9
EDIT: Final = WeightEdit(
    "layers.0.secret", 3, (123457, 9), "BF16", 2, 1, 0, 0.5, 2.0,
    "a" * 64, "b" * 64, "wr1:" + "c" * 64, "d" * 64, ("secret.alias",), "a secret",
)  # fmt: skip
SECRETS: Final = (b"secret", b"123457", b"BF16", b"a" * 64, b"b" * 64, b"c" * 64, b"d" * 64, b"my-session", b"my-event", b"my-source")


def spelled(payload: object) -> Spelling:
    found = spelled_json(payload, "payload")
    assert isinstance(found, Spelling)
    return found


def stored(payload: object = None, **envelope: Any) -> StoredEvent:
    said = spelled(EDIT.payload() if payload is None else payload)
    event = Event("my-event", "notification", said, NOW, "my-session", source="my-source", start_ns=NOW - 5, **envelope)
    return StoredEvent(1, "my-session", NOW - 5, event)


def listed(*events: Event) -> SessionListed:
    return SessionListed(folded("my-session", events), "my-source", NOW, 0)


def decoded(*spans: otlp_out.SpanOut) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(request_of(spans, "1.2.3"))
    return [span for group in request.resource_spans for scoped in group.scope_spans for span in scoped.spans]


def attributes(span: Span) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in span.attributes}


def test_an_edit_leaves_as_a_span_without_length_below_its_session() -> None:
    edit, agent = decoded(edit_span(stored(), "my-session", "metadata"), agent_span(listed(stored().event), "my-session", "metadata"))
    assert (edit.name, edit.start_time_unix_nano, edit.end_time_unix_nano) == ("countermark.weights.edit", NOW - 5, NOW - 5)
    assert (agent.name, agent.parent_span_id, agent.start_time_unix_nano) == ("invoke_agent", b"", NOW - 5)
    assert (edit.trace_id, edit.parent_span_id) == (agent.trace_id, agent.span_id)
    assert attributes(edit) == {
        "countermark.forwarded": True,
        "countermark.event.id": event_out("my-event"),
        "countermark.weights.changed": 3,
        "countermark.weights.value_changed": 2,
        "countermark.weights.l2": 0.5,
        "countermark.weights.max_abs": 2.0,
    }
    assert attributes(agent) == {
        "gen_ai.operation.name": "invoke_agent",
        "countermark.forwarded": True,
        "countermark.event.id": event_out("session:my-session"),
        "countermark.stats.weight_edits": 1,
        "countermark.stats.weights_changed": 3,
    }


@proven_by(planted(otlp_out, "METADATA", frozenset(field.key for field in FIELDS)))
def test_in_metadata_mode_none_of_the_bytes_that_leave_is_of_a_text(mode: Mode = "metadata") -> None:
    raw = request_of([edit_span(stored(), "my-session", mode), agent_span(listed(stored().event), "my-session", mode)], "1.2.3")
    assert [secret for secret in SECRETS if secret in raw] == []


def test_what_leaves_in_metadata_mode_is_counts_and_norms() -> None:
    assert {field.kind for field in FIELDS if field.key in METADATA} == {"count", "norm"}


def test_a_store_that_receives_a_full_edit_has_the_same_event_and_does_not_send_it_on() -> None:
    batch = otlp.batch_of("traces", "protobuf", request_of([edit_span(stored(), "my-session", "full")], "1.2.3"), NOW)
    assert isinstance(batch, Batch)
    ((_, event),) = batch.events
    sent = stored().event
    assert (event.id, event.payload, event.session, event.forwarded) == (sent.id, sent.payload, sent.session, True)


@pytest.mark.parametrize("mode", MODES)
def test_no_attribute_names_a_model(mode: Mode) -> None:
    spans = decoded(edit_span(stored(), "my-session", mode), agent_span(listed(stored().event), "my-session", mode))
    assert [pair.key for span in spans for pair in span.attributes if "model" in pair.key] == []


def test_an_edit_is_the_same_span_whenever_it_is_sent() -> None:
    first, again = (decoded(edit_span(stored(), "my-session", "metadata")) for _ in range(2))
    (other,) = decoded(edit_span(stored(), "other-session", "metadata"))
    assert first == again
    assert (other.span_id == first[0].span_id, other.trace_id == first[0].trace_id) == (True, False)


@pytest.mark.parametrize("mode", MODES)
def test_what_no_edit_can_say_does_not_leave(mode: Mode) -> None:
    odd = {"kind": "weights.edit", "changed": "many", "l2": -1, "shape": ["x"], "maxAbs": 2, "more": "secret"}
    (span,) = decoded(edit_span(stored(odd), "my-session", mode))
    assert {key for key in attributes(span) if key.startswith("countermark.weights.")} == {"countermark.weights.max_abs"}


def test_a_sum_beyond_64_bits_leaves_in_its_digits() -> None:
    large = WeightEdit("w", 2**63 - 1).payload()
    events = [Event(f"e-{n}", "notification", spelled(large), NOW, "my-session") for n in range(2)]
    (agent,) = decoded(agent_span(listed(*events), "my-session", "metadata"))
    assert attributes(agent)["countermark.stats.weights_changed"] == str(2**64 - 2)
