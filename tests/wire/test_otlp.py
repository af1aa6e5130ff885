"""OTLP requests: a span says the same in either encoding, and a weight edit says the same whichever way it came in."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from countermark.sessions.edits import FIELDS
from countermark.sessions.events import Batch, BatchTooLong, Event, EventUnreadable, span_event_id
from countermark.values import NonEmpty, Refused
from countermark.wire import otlp_json, otlp_protobuf, otlp_records
from countermark.wire.events import batch_of_json, spelled_payload
from countermark.wire.otlp import Encoding, Signal, accepted, batch_of
from tests.faults import planted, proven_by
from tests.wire.otlp_requests import (
    EDIT,
    NOW_NS,
    PARENT,
    SPAN,
    TRACE,
    edit_span,
    json_of,
    log,
    nested,
    of_log,
    of_span,
    only,
    pairs,
    protobuf_of,
    read,
    request,
    span,
)

ENCODINGS: Final[tuple[Encoding, ...]] = ("protobuf", "json")

#: What the edit's attributes say, as the JSON that ``/v1/ingest`` takes.
DOCUMENT: Final[Mapping[str, Any]] = {
    "id": EDIT["countermark.event.id"],
    "type": "notification",
    "session": "conv-7",
    "payload": {
        "kind": "weights.edit",
        **{field.key: EDIT["countermark.weights." + field.attribute] for field in FIELDS},
    },
}


def ingested(document: object) -> Event:
    batch = batch_of_json(json_of(document), NOW_NS)
    assert isinstance(batch, Batch)
    return only(batch)


def without(attributes: Mapping[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in attributes.items() if name not in names}


# ------------------------------------------------------------------------------------------------------------ the edit


@proven_by(planted(otlp_records, "EDIT_NAMES", frozenset({"weights.edit"})), planted(otlp_records, "_KEYS", {}))
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_one_edit_is_one_payload_whichever_way_it_comes_in(encoding: Encoding) -> None:
    ways = (
        of_span(edit_span(), encoding),
        of_log(log(EDIT, eventName="countermark.weights.edit"), encoding),
        of_log(log({**EDIT, "event.name": "countermark.weights.edit"}), encoding),
        of_log(log(EDIT, body={"stringValue": "countermark.weights.edit"}), encoding),
    )
    wanted = ingested(DOCUMENT)
    assert len(wanted.payload.text) > 500
    assert {(way.id, way.type, way.session, way.name, way.payload.text) for way in ways} == {
        (wanted.id, "notification", "conv-7", "", wanted.payload.text)
    }


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_other_name_and_the_other_prefix_are_the_same_edit(encoding: Encoding) -> None:
    renamed = {name.replace("countermark.weights.", "coding_sh.weights."): value for name, value in EDIT.items()}
    assert of_span(edit_span(renamed, "weights.edit"), encoding).payload == ingested(DOCUMENT).payload


def test_an_edit_span_without_an_id_is_its_span_and_belongs_to_the_emitter() -> None:
    event = of_span(edit_span(without(EDIT, "countermark.event.id", "gen_ai.conversation.id")))
    assert (event.id, event.session, event.trace, event.span, event.source) == (span_event_id(TRACE, SPAN), None, TRACE, SPAN, "trainer")
    assert (event.start_ns, event.end_ns) == (NOW_NS, NOW_NS)


def first_wins(payload: Mapping[str, object]) -> object:
    read = spelled_payload(payload)
    return Refused(NonEmpty(read.defects.first)) if isinstance(read, Refused) else read


@proven_by(planted(otlp_records, "spelled_payload", first_wins), planted(otlp_records, "EDIT_PREFIXES", ("countermark.weights.shape",)))
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_wrong_edit_is_refused_with_the_defects_that_it_has_as_json(encoding: Encoding) -> None:
    wrong: dict[str, object] = {"countermark.weights.changed": -1, "countermark.weights.shape": "3,4", "countermark.weights.tensor": "w"}
    payload = {"kind": "weights.edit", "changed": -1, "shape": "3,4", "tensor": "w"}
    of_json = batch_of_json(json_of({"type": "notification", "session": "s", "payload": payload}), NOW_NS)
    assert isinstance(of_json, Batch)
    (by_json,) = of_json.refused
    assert {defect.field for defect in by_json.defects} == {"payload.changed", "payload.shape"}  # type: ignore[union-attr]
    for signal, item in (("traces", edit_span(wrong)), ("logs", log(wrong, eventName="weights.edit"))):
        batch = read(signal, request(signal, [item, item]), encoding)  # type: ignore[arg-type]
        assert batch.events == ()
        assert [set(refused.defects) for refused in batch.refused] == [set(by_json.defects)] * 2


@pytest.mark.parametrize("name", ["countermark.weights.valueChanged", "countermark.weights.chagned", "coding_sh.weights.kind"])
def test_an_attribute_with_the_prefix_that_is_no_field_refuses_the_edit(name: str) -> None:
    batch = read("traces", request("traces", [edit_span({**EDIT, name: 3})]))
    (refused,) = batch.refused
    assert [(type(defect).__name__, defect.field) for defect in refused.defects] == [("EventFieldUnknown", f"payload.'{name}'")]  # type: ignore[union-attr]
    assert refused.id == EDIT["countermark.event.id"]


def test_two_prefixes_may_agree_on_a_field_and_may_not_differ() -> None:
    assert of_span(edit_span({**EDIT, "coding_sh.weights.changed": 3})).payload == ingested(DOCUMENT).payload
    (refused,) = read("traces", request("traces", [edit_span({**EDIT, "coding_sh.weights.changed": 4})])).refused
    assert [defect.field for defect in refused.defects] == ["payload.'coding_sh.weights.changed'"]  # type: ignore[union-attr]


def test_what_was_forwarded_is_marked() -> None:
    assert of_span(edit_span({**EDIT, "countermark.forwarded": True})).forwarded is True
    assert of_span(edit_span()).forwarded is False


# ----------------------------------------------------------------------------------------------------- the encodings


def everything() -> dict[str, Any]:
    """A span that says everything that a span can."""
    values: dict[str, object] = {
        "text": "a", "whole": 2**53 + 1, "double": 0.1, "flag": False, "none": None, "list": [1, "b", [2.5]], "table": {"k": {"l": -1}},
    }  # fmt: skip
    inner = {"attributes": pairs({"reason": "x"}), "droppedAttributesCount": 2}
    return span(
        "odd", values, kind=3, traceState="a=b", flags=257, droppedAttributesCount=1, droppedEventsCount=2, droppedLinksCount=3,
        status={"code": 2, "message": "it broke"}, events=[{"name": "exception", "timeUnixNano": str(NOW_NS + 1), **inner}],
        links=[{"traceId": TRACE, "spanId": PARENT, "traceState": "c=d", "flags": 1, **inner}],
    )  # fmt: skip


@proven_by(planted(otlp_json._Node, "dropped", lambda *_: {}), planted(otlp_protobuf, "_link", lambda _: {}))
def test_a_span_is_kept_whole_and_the_same_in_either_encoding() -> None:
    whole = request("traces", [everything()], name="lib", version="1", attributes=pairs({"s": 1}), droppedAttributesCount=4)
    (group,) = whole["resourceSpans"]
    group["schemaUrl"] = "https://x/1"
    group["scopeSpans"][0]["schemaUrl"] = "https://x/2"
    group["resource"]["droppedAttributesCount"] = 5
    by_json, by_protobuf = (only(read("traces", whole, encoding)) for encoding in ("json", "protobuf"))
    assert by_json == by_protobuf
    assert by_json.payload.value == {
        "name": "odd",
        "kind": "client",
        "attributes": {
            "text": "a", "whole": 2**53 + 1, "double": 0.1, "flag": False, "none": None, "list": [1, "b", [2.5]], "table": {"k": {"l": -1}},
        },
        "status": {"code": "error", "message": "it broke"},
        "traceState": "a=b",
        "flags": 257,
        "droppedAttributesCount": 1,
        "droppedEventsCount": 2,
        "droppedLinksCount": 3,
        "events": [{"name": "exception", "timeUnixNano": NOW_NS + 1, "attributes": {"reason": "x"}, "droppedAttributesCount": 2}],
        "links": [
            {"trace": TRACE, "span": PARENT, "traceState": "c=d", "flags": 1, "attributes": {"reason": "x"}, "droppedAttributesCount": 2}
        ],
        "scope": {"name": "lib", "version": "1", "attributes": {"s": 1}, "droppedAttributesCount": 4, "schemaUrl": "https://x/2"},
        "resource": {"attributes": {"service.name": "trainer"}, "droppedAttributesCount": 5, "schemaUrl": "https://x/1"},
    }  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_only_a_root_span_keeps_its_resource(encoding: Encoding) -> None:
    root, child = of_span(span(), encoding), of_span(span(parentSpanId=PARENT), encoding)
    assert isinstance(root.payload.value, Mapping) and isinstance(child.payload.value, Mapping)
    assert root.payload.value["resource"] == {"attributes": {"service.name": "trainer"}}
    assert (root.parent, child.parent, "resource" in child.payload.value) == (None, PARENT, False)


@proven_by(planted(otlp_protobuf, "said", lambda **_: {}))
def test_a_log_record_is_kept_the_same_in_either_encoding() -> None:
    item = log(
        {"k": "v"}, eventName="step", severityNumber=9, severityText="INFO", traceId=TRACE, spanId=SPAN, flags=1, droppedAttributesCount=2,
        body={"kvlistValue": {"values": pairs({"loss": 0.5})}},
    )  # fmt: skip
    by_json, by_protobuf = of_log(item), of_log(item, "protobuf")
    assert by_json == by_protobuf
    assert (by_json.type, by_json.name, by_json.trace, by_json.span, by_json.source) == ("notification", "step", TRACE, SPAN, "trainer")
    assert by_json.payload.value == {
        "kind": "log",
        "body": {"loss": 0.5},
        "severity": {"number": 9, "text": "INFO"},
        "attributes": {"k": "v"},
        "flags": 1,
        "droppedAttributesCount": 2,
    }


def test_bytes_are_base64_in_either_encoding() -> None:
    document = request("traces", [span()])
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"] = [{"key": "b", "value": {"bytesValue": "-_8="}}]
    by_json = only(read("traces", document))
    hexadecimal = json.loads(json.dumps(document).replace("-_8=", "fbff"))
    assert by_json.payload == only(read("traces", hexadecimal, "protobuf")).payload
    assert '"b":"+/8="' in by_json.payload.text


# ------------------------------------------------------------------------------------------------------------ the ids


@proven_by(planted(otlp_records, "_HEX", {32: re.compile(".*"), 16: re.compile(".*")}))
@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_ids_are_hexadecimal_in_either_case_and_base64_is_refused(signal: Signal) -> None:
    make = span if signal == "traces" else log

    def ids(trace: str, own: str) -> Batch:
        return read(signal, request(signal, [make(traceId=trace, spanId=own)]))

    by_protobuf = only(read(signal, request(signal, [make(traceId=TRACE, spanId=SPAN)]), "protobuf"))
    assert only(ids(TRACE.upper(), SPAN.upper())) == only(ids(TRACE, SPAN)) == by_protobuf
    refused = ids("CvdlGRbNQ92ESOshHIAxnA==", "t61rcWkgMzE=").refused
    assert [(defect.field, defect.wanted) for one in refused for defect in one.defects] == [  # type: ignore[union-attr]
        ("traceId", "32 hexadecimal digits (OTLP's JSON has them too, where other JSON has base64)"),
        ("spanId", "16 hexadecimal digits (OTLP's JSON has them too, where other JSON has base64)"),
    ]


@pytest.mark.parametrize("key", ["traceId", "spanId", "parentSpanId"])
@pytest.mark.parametrize("found", ["0af76519\ud800dd8448eb", "\0" * 16, "é" * 16])
def test_an_id_of_other_letters_is_refused_and_keeps_none_of_its_neighbours(key: str, found: str) -> None:
    batch = read("traces", request("traces", [span(**{key: found}), span(spanId=PARENT)]))
    assert [index for index, _ in batch.events] == [1]
    assert [(one.index, [defect.field for defect in one.defects]) for one in batch.refused] == [(0, [key])]  # type: ignore[union-attr]
    if key != "parentSpanId":
        batch = read("logs", request("logs", [log(**{key: found}), log()]))
        assert ([index for index, _ in batch.events], [one.index for one in batch.refused]) == ([1], [0])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_span_without_its_ids_is_refused_and_a_log_record_is_not(encoding: Encoding) -> None:
    for none in ("", "0" * 32):
        batch = read("traces", request("traces", [span(spanId=SPAN, traceId=none, parentSpanId=PARENT), span()]), encoding)
        assert [(index, event.id) for index, event in batch.events] == [(1, span_event_id(TRACE, SPAN))]
        (refused,) = batch.refused
        assert (refused.index, [(type(one).__name__, one.field) for one in refused.defects]) == (0, [("EventFieldMissing", "traceId")])  # type: ignore[union-attr]
    event = of_log(log(traceId="0" * 32, spanId=""), encoding)
    assert (event.trace, event.span) == (None, None)


# -------------------------------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"intValue": "25"}, 25),
        ({"intValue": 25}, 25),
        ({"intValue": 25.0}, 25),
        ({"intValue": "9007199254740993"}, 9007199254740993),
        ({"intValue": 9007199254740993}, 9007199254740993),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"arrayValue": {"values": [{"intValue": "9007199254740993"}, {"intValue": "1"}]}}, [9007199254740993, 1]),
        ({"doubleValue": 5}, 5),
        ({"doubleValue": "0.25"}, 0.25),
        ({"boolValue": True}, True),
        ({"stringValue": None}, None),
        ({"unheardOf": 1}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_value_of_json_is_exact(said: object, wanted: object) -> None:
    event = of_span({**span(), "attributes": [{"key": "k", "value": said}]})
    assert isinstance(event.payload.value, Mapping)
    found = event.payload.value["attributes"]
    assert (found, json.loads(event.payload.text)["attributes"]) == ({"k": wanted}, {"k": wanted})
    assert type(found["k"]) is type(wanted)  # type: ignore[index, call-overload]


@pytest.mark.parametrize("when", [str(NOW_NS), NOW_NS])
def test_a_time_is_a_number_or_its_digits(when: object) -> None:
    assert of_span(span(startTimeUnixNano=when, endTimeUnixNano=when)).start_ns == NOW_NS


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_log_record_without_a_time_has_the_one_at_which_it_was_observed(encoding: Encoding) -> None:
    assert of_log(log(timeUnixNano="0", observedTimeUnixNano=str(NOW_NS + 5)), encoding).start_ns == NOW_NS + 5
    assert of_log(log(timeUnixNano="7", observedTimeUnixNano=str(NOW_NS + 5)), encoding).start_ns == 7


@pytest.mark.parametrize(
    ("start", "end", "odd"),
    [(NOW_NS, NOW_NS - 1, "end before start"), (NOW_NS, 0, None), (NOW_NS + 86_400 * 10**9 + 1, 0, "ahead of receipt"), (0, 0, "unsaid")],
)
def test_an_odd_time_is_kept_as_it_was_said(start: int, end: int, odd: str | None) -> None:
    event = of_span(span(startTimeUnixNano=str(start), endTimeUnixNano=str(end)))
    assert (event.start_ns, event.end_ns, event.times.lasted, event.times.odd) == (start, end, None, odd)


def test_enumerations_are_numbers_or_names() -> None:
    for kind, code in ((3, 2), ("SPAN_KIND_CLIENT", "STATUS_CODE_ERROR"), ("3", "2")):
        payload = of_span(span(kind=kind, status={"code": code})).payload.value
        assert isinstance(payload, Mapping)
        assert (payload["kind"], payload["status"]) == ("client", {"code": "error"})
    by_name = of_log(log(severityNumber="SEVERITY_NUMBER_INFO2")).payload
    assert by_name == of_log(log(severityNumber=10)).payload


# -------------------------------------------------------------------------------------------------------- the defects


@proven_by(planted(otlp_json._Node, "_default", lambda self, key, wanted, default: default))
def test_everything_that_is_wrong_with_a_span_is_told_and_its_neighbours_are_kept() -> None:
    broken = {
        **span(startTimeUnixNano="soon", endTimeUnixNano=str(2**63), kind="SPAN_KIND_OTHER", events={}, links=[1], spanId="xyz"),
        "name": 3,
        "attributes": [
            {"key": "a", "value": {"intValue": "x"}},
            {"key": "b", "value": {"doubleValue": "NaN"}},
            {"key": "c", "value": {"stringValue": "s", "intValue": 1}},
            {"key": "countermark.event.id", "value": {"intValue": 1}},
            {"key": "d", "value": {"bytesValue": "*"}},
        ],
    }
    batch = read("traces", request("traces", [span(), broken, "no span", span(spanId=PARENT)]))
    assert [index for index, _ in batch.events] == [0, 3]
    assert [(one.index, {getattr(defect, "field", getattr(defect, "place", "")) for defect in one.defects}) for one in batch.refused] == [
        (
            1,
            {
                "name", "startTimeUnixNano", "endTime", "kind", "events", "links[0]", "spanId", "attributes[0].value.intValue",
                "payload.attributes.b", "attributes[2].value", "id", "attributes[4].value.bytesValue",
            },
        ),
        (2, {"resourceSpans[0].scopeSpans[0].spans[2]"}),
    ]  # fmt: skip


def test_a_resource_that_cannot_be_read_refuses_its_own_records_alone() -> None:
    good, bad = request("traces", [span()]), request("traces", [span(spanId=PARENT), span(spanId=PARENT)])
    bad["resourceSpans"][0]["resource"]["attributes"] = [{"key": 1}]
    merged = {"resourceSpans": [*bad["resourceSpans"], *good["resourceSpans"], "none", {"scopeSpans": 3}]}
    batch = read("traces", merged)
    assert [index for index, _ in batch.events] == [2]
    assert [(one.index, [defect.field for defect in one.defects]) for one in batch.refused] == [  # type: ignore[union-attr]
        (0, ["resourceSpans[0].resource.attributes[0].key"]),
        (1, ["resourceSpans[0].resource.attributes[0].key"]),
        (3, ["resourceSpans[2]"]),
        (4, ["resourceSpans[3].scopeSpans"]),
    ]


@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_unknown_keys_and_fields_are_passed_over(signal: Signal) -> None:
    item = span(brandNew={"x": 1}) if signal == "traces" else log(brandNew=[1])
    document = {**request(signal, [item]), "later": True}
    wanted = only(read(signal, request(signal, [span() if signal == "traces" else log()])))
    assert only(read(signal, document)) == wanted
    later = batch_of(signal, "protobuf", protobuf_of(signal, document) + b"\xfa\x7f\x01x", NOW_NS)
    assert isinstance(later, Batch)
    assert only(later) == wanted


def test_a_record_that_names_nothing_is_nowhere() -> None:
    (refused,) = read("logs", request("logs", [log()], {})).refused
    assert [type(defect).__name__ for defect in refused.defects] == ["EventNowhere"]
    assert of_log(log({"gen_ai.conversation.id": "s"}), resource={}).session == "s"


def test_the_instance_names_the_emitter_before_the_service() -> None:
    both = {"service.name": "trainer", "service.instance.id": "trainer-7"}
    assert of_log(log(), resource=both).source == "trainer-7"
    (refused,) = read("logs", request("logs", [log()], {"service.name": "x" * 513})).refused
    assert [defect.field for defect in refused.defects] == ["source"]  # type: ignore[union-attr]


# ----------------------------------------------------------------------------------------------------- hostile texts


def test_half_a_surrogate_pair_and_nul_are_replaced_and_told() -> None:
    halves = {**EDIT, "countermark.weights.tensor": "a\ud83e", "countermark.weights.note": "a\x00b \\u0000"}
    event = of_span(edit_span(halves))
    assert json.loads(event.payload.text)["tensor"] == "a�"
    assert json.loads(event.payload.text)["note"] == "a�b \\u0000"
    assert event.replaced == ("payload.note", "payload.tensor")
    assert of_span(span("n\x00", {"k\x00": 1}), "protobuf").replaced == ("name", "payload.attributes.k�", "payload.name")


@pytest.mark.parametrize("levels", [60, 90])
def test_what_is_nested_deep_is_kept_and_what_is_nested_too_deep_is_refused(levels: int) -> None:
    document = request("traces", [span()])
    body = protobuf_of("traces", document)
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest.FromString(body)
    message.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="k").value.CopyFrom(nested(levels // 2))
    value: dict[str, object] = {}
    for _ in range(levels // 2 + (20 if levels > 64 else 0)):
        value = {"arrayValue": {"values": [value]}}
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"] = [{"key": "k", "value": value}]
    by_json = batch_of("traces", "json", json_of(document), NOW_NS)
    assert isinstance(by_json, Batch)
    assert (len(by_json.events), len(by_json.refused)) == ((1, 0) if levels < 64 else (0, 1))
    by_protobuf = batch_of("traces", "protobuf", message.SerializeToString(), NOW_NS)
    assert isinstance(by_protobuf, Batch)


@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_json_without_end_is_unreadable(signal: Signal) -> None:
    found = batch_of(signal, "json", b'{"resourceSpans":' + b"[" * 100_000, NOW_NS)
    assert found == EventUnreadable("it is nested too deep")


# ------------------------------------------------------------------------------------------------ the wrong request


SPANS: Final = request("traces", [span("chat", {"k": "v"}), span(spanId=PARENT)])
LOGS: Final = request("logs", [log({"k": "v"}, body={"stringValue": "hello"}), log(traceId=TRACE, spanId=SPAN)])


@proven_by(planted(otlp_protobuf, "_logs_alike", lambda *_, **__: False), planted(otlp_protobuf, "_traces_alike", lambda *_, **__: False))
def test_a_request_at_the_others_address_is_unreadable_and_the_cause_is_named() -> None:
    to_logs, to_traces = "it is a logs request, which goes to /v1/logs", "it is a traces request, which goes to /v1/traces"
    assert batch_of("traces", "protobuf", protobuf_of("logs", LOGS), NOW_NS) == EventUnreadable(to_logs)
    assert batch_of("logs", "protobuf", protobuf_of("traces", SPANS), NOW_NS) == EventUnreadable(to_traces)
    assert batch_of("traces", "json", json_of(LOGS), NOW_NS) == EventUnreadable(f"it has no resourceSpans: {to_logs}")
    assert batch_of("logs", "json", json_of(SPANS), NOW_NS) == EventUnreadable(f"it has no resourceLogs: {to_traces}")


@pytest.mark.parametrize("body", [b'{"body": {"stringValue": "hello"}}', b"{}", b"\n {}"])
def test_json_sent_as_protobuf_says_so(body: bytes) -> None:
    wanted = EventUnreadable("it is JSON, and its Content-Type says protobuf: send it as application/json")
    assert batch_of("traces", "protobuf", body, NOW_NS) == batch_of("logs", "protobuf", body, NOW_NS) == wanted


def test_a_body_that_is_no_request_is_unreadable() -> None:
    bad_text = protobuf_of("traces", request("traces", [span("name")])).replace(b"name", b"\xff\xfeme")
    assert batch_of("traces", "protobuf", bad_text, NOW_NS) == EventUnreadable("it is no protobuf message of spans")
    assert batch_of("logs", "protobuf", b"\xff", NOW_NS) == EventUnreadable("it is no protobuf message of log records")
    assert batch_of("traces", "json", b"[1]", NOW_NS) == EventUnreadable("it is no JSON object")
    snake = batch_of("traces", "json", b'{"resource_spans": []}', NOW_NS)
    assert snake == EventUnreadable("it has no resourceSpans: its keys are in camelCase, and others are passed over")


@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_an_empty_request_holds_nothing(signal: Signal) -> None:
    for encoding, body in (("protobuf", b""), ("json", b"{}")):
        assert batch_of(signal, encoding, body, NOW_NS) == Batch((), ())  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_request_with_more_items_than_are_taken_is_not_read(encoding: Encoding) -> None:
    document = request("traces", [span(spanId=f"{number:016x}") for number in range(1, 4)])
    body = json_of(document) if encoding == "json" else protobuf_of("traces", document)
    assert batch_of("traces", encoding, body, NOW_NS, items_max=2) == BatchTooLong(2)
    assert batch_of("traces", encoding, body, NOW_NS, items_max=3) == read("traces", document)


# ---------------------------------------------------------------------------------------------------------- the answer


def test_what_was_refused_is_counted_in_the_encoding_of_the_request() -> None:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    spans = ExportTraceServiceResponse.FromString(accepted("traces", "protobuf", 2, "why"))
    assert (spans.partial_success.rejected_spans, spans.partial_success.error_message) == (2, "why")
    logs = ExportLogsServiceResponse.FromString(accepted("logs", "protobuf", 1, "why"))
    assert (logs.partial_success.rejected_log_records, logs.partial_success.error_message) == (1, "why")
    assert json.loads(accepted("traces", "json", 2, "why")) == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "why"}}
    assert json.loads(accepted("logs", "json", 1, "w")) == {"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "w"}}
    assert (accepted("logs", "protobuf", 0, ""), accepted("traces", "json", 0, "")) == (b"", b"{}")
