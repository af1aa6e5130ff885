"""OTLP over HTTP: what exporters send is stored before it is acknowledged, and one edit is one payload whichever way it comes in."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from countermark.server import handlers
from countermark.server.limits import Limits
from countermark.sessions.edits import FIELDS
from countermark.wire import otlp_records
from tests.faults import planted, proven_by
from tests.server.running import JSON, PROTOBUF, Running, served
from tests.wire.otlp_requests import EDIT, edit_span, json_of, log, protobuf_of, request, span

#: The edit without its id, so that each way of sending it is an event of its own.
ANONYMOUS: Final[Mapping[str, Any]] = {name: value for name, value in EDIT.items() if name != "countermark.event.id"}


def test_one_edit_is_one_payload_whichever_way_it_comes_in(server: Running) -> None:
    payload = {"kind": "weights.edit", **{field.key: EDIT["countermark.weights." + field.attribute] for field in FIELDS}}
    server.ingest({"type": "notification", "session": "conv-7", "payload": payload})
    spans, logs = request("traces", [edit_span(ANONYMOUS)]), request("logs", [log(ANONYMOUS, eventName="weights.edit")])
    for path, body, headers in (
        ("/v1/traces", protobuf_of("traces", spans), PROTOBUF),
        ("/v1/logs", protobuf_of("logs", logs), PROTOBUF),
        ("/v1/traces", json_of(spans).replace(b'"b7ad', b'"c7ad'), JSON),
        ("/v1/logs", json_of(logs).replace(b'000000", "att', b'000001", "att'), JSON),
    ):
        assert server.ask("POST", path, body, headers).status == 200
    _through_the_exporters(server)
    stored = server.stored()
    assert len({event.id for event in stored}) == 7
    assert len({event.payload.text for event in stored}) == 1
    assert {event.session for event in stored} == {"conv-7"}
    (listed,) = server.get("/v1/sessions?where=weights.tensors%20%3D%201").document["sessions"]
    assert (listed["id"], listed["stats"]["weightEdits"]) == ("conv-7", {"edits": 7, "tensors": 1, "weightsChanged": 21})


def _through_the_exporters(server: Running) -> None:
    """The edit as a span and as a log record, by OpenTelemetry's own SDK."""
    url, resource = f"http://127.0.0.1:{server.port}", Resource.create({"service.name": "trainer"})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces", compression=Compression.Gzip)))
    with tracers.get_tracer("lib").start_as_current_span("countermark.weights.edit", attributes=dict(ANONYMOUS)):
        pass
    loggers = LoggerProvider(resource=resource)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{url}/v1/logs")))
    loggers.get_logger("lib").emit(severity_number=SeverityNumber.INFO, event_name="countermark.weights.edit", attributes=dict(ANONYMOUS))
    tracers.shutdown()
    loggers.shutdown()  # type: ignore[no-untyped-call]


@proven_by(planted(otlp_records, "EVENT_ID", "countermark.event"))
def test_a_span_and_a_log_record_of_one_edit_are_one_event(server: Running) -> None:
    server.ask("POST", "/v1/traces", protobuf_of("traces", request("traces", [edit_span()])), PROTOBUF)
    server.ask("POST", "/v1/logs", json_of(request("logs", [log(EDIT, eventName="weights.edit")])), JSON)
    assert [event.id for event in server.stored()] == [EDIT["countermark.event.id"]]


@proven_by(planted(handlers, "_TOLD_MAX", 0))
def test_what_is_refused_is_counted_in_the_partial_success(server: Running) -> None:
    wrong = edit_span({**EDIT, "countermark.weights.changed": -1, "countermark.weights.l2": -1.0})
    document = request("traces", [span(), wrong, span(traceId=""), *[wrong] * 5])
    by_json = server.ask("POST", "/v1/traces", json_of(document), JSON)
    assert (by_json.status, by_json.headers["content-type"]) == (200, "application/json")
    said = by_json.document["partialSuccess"]
    assert said["rejectedSpans"] == "7"
    assert said["errorMessage"].startswith("item 1: payload.changed is -1; wanted: a whole number from 0 to 2^63 − 1; payload.l2 is -1.0; ")
    assert said["errorMessage"].endswith(". 2 more were refused")
    by_protobuf = server.ask("POST", "/v1/traces", protobuf_of("traces", document), PROTOBUF)
    assert by_protobuf.headers["content-type"] == "application/x-protobuf"
    partial = ExportTraceServiceResponse.FromString(by_protobuf.body).partial_success
    assert (partial.rejected_spans, partial.error_message) == (7, said["errorMessage"])
    logs = request("logs", [log(), log(timeUnixNano=str(2**63))])
    answered = server.ask("POST", "/v1/logs", protobuf_of("logs", logs), PROTOBUF)
    assert ExportLogsServiceResponse.FromString(answered.body).partial_success.rejected_log_records == 1
    assert len(server.stored()) == 2


def test_what_is_taken_whole_is_answered_with_nothing(server: Running) -> None:
    document = request("traces", [span()])
    assert server.ask("POST", "/v1/traces", protobuf_of("traces", document), PROTOBUF).body == b""
    assert server.ask("POST", "/v1/traces", json_of(document), JSON).document == {}


def test_packed_bodies_in_chunks_are_taken_in_both_encodings(server: Running) -> None:
    document = request("logs", [log()])
    for body, headers in ((protobuf_of("logs", document), PROTOBUF), (json_of(document), JSON)):
        packed = gzip.compress(body)
        answered = server.ask("POST", "/v1/logs", [packed[:9], packed[9:]], {**headers, "content-encoding": "gzip"})
        assert answered.status == 200
    assert len(server.stored()) == 1


@pytest.mark.parametrize(
    ("path", "signal", "cause"),
    [
        ("/v1/traces", "logs", "it is a logs request, which goes to /v1/logs"),
        ("/v1/logs", "traces", "it is a traces request, which goes to /v1/traces"),
    ],
)
def test_a_request_at_the_others_address_is_refused_with_the_cause(server: Running, path: str, signal: Any, cause: str) -> None:
    document = request(signal, [span({}) if signal == "traces" else log()]) if signal == "logs" else request("traces", [span()])
    by_json = server.ask("POST", path, json_of(document), JSON)
    assert (by_json.status, by_json.document["code"]) == (400, 3)
    assert cause in by_json.document["message"]
    by_protobuf = server.ask("POST", path, protobuf_of(signal, document), PROTOBUF)
    assert (by_protobuf.status, by_protobuf.headers["content-type"]) == (400, "application/x-protobuf")
    assert cause.encode() in by_protobuf.body
    assert by_protobuf.body[:2] == b"\x08\x03"
    assert server.stored() == []


def test_an_undecodable_request_stores_nothing(server: Running) -> None:
    body = protobuf_of("traces", request("traces", [span(), span("name", spanId="c7ad6b7169203331")])).replace(b"name", b"\xff\xfeme")
    answered = server.ask("POST", "/v1/traces", body, PROTOBUF)
    assert answered.status == 400
    assert b"it is no protobuf message of spans" in answered.body
    assert server.stored() == []


def test_a_request_with_too_many_items_or_bytes_is_refused_with_the_bound(tmp_path: Path) -> None:
    with served(tmp_path / "store", limits=Limits(items_max=1, body_bytes_max=2_000)) as server:
        for document, said in ((request("logs", [log(), log()]), "1 event"), (request("logs", [log({"k": "v" * 2_000})]), "2,000 bytes")):
            by_json = server.ask("POST", "/v1/logs", json_of(document), JSON)
            assert (by_json.status, by_json.document["code"]) == (413, 8)
            assert said in by_json.document["message"]
            by_protobuf = server.ask("POST", "/v1/logs", protobuf_of("logs", document), PROTOBUF)
            assert (by_protobuf.status, by_protobuf.body[:2]) == (413, b"\x08\x08")
        assert server.stored() == []


def test_a_body_of_another_kind_is_refused(server: Running) -> None:
    answered = server.ask("POST", "/v1/traces", b"", {"content-type": "text/plain"})
    assert (answered.status, answered.codes) == (415, ["MediaTypeUnfit"])


def test_numbers_beyond_2_53_are_texts_in_what_is_read(server: Running) -> None:
    server.ask(
        "POST", "/v1/traces", json_of(request("traces", [span(attributes={"n": 9007199254740993, "list": [9007199254740993]})])), JSON
    )
    (event,) = server.get("/v1/search?q=work").document["events"]
    assert event["payload"]["attributes"] == {"n": "9007199254740993", "list": ["9007199254740993"]}
    assert json.loads(server.stored()[0].payload.text)["attributes"] == {"n": 9007199254740993, "list": [9007199254740993]}


def test_half_a_surrogate_pair_and_nul_are_replaced_and_lists_with_them_work(server: Running) -> None:
    halves = {**EDIT, "countermark.weights.tensor": "a\ud83e", "countermark.weights.note": "a\x00b"}
    server.ask("POST", "/v1/traces", json_of(request("traces", [edit_span(halves)])), JSON)
    (event,) = server.get("/v1/sessions/conv-7/events").document["events"]
    assert (event["payload"]["tensor"], event["payload"]["note"]) == ("a\ufffd", "a\ufffdb")
    assert event["sanitized"] == ["payload.note", "payload.tensor"]
    (listed,) = server.get("/v1/sessions").document["sessions"]
    assert listed["tags"] == ["weights:edited", "text:sanitized"]
