"""The description of the server, and requests of every shape held against it."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final
from urllib.parse import quote, urlencode

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from countermark.server.handlers import HANDLERS
from countermark.server.openapi import description
from countermark.server.routes import ROSTER, Route
from tests.server.running import Running, edit

WHOLE: Final[Mapping[str, Any]] = json.loads(description())


def schema_of(reference: str) -> dict[str, Any]:
    """A schema of the description, with what it refers to."""
    return {"$ref": f"#/components/schemas/{reference}", "components": WHOLE["components"]}


def answers_of(route: Route) -> Mapping[str, Any]:
    answers: Mapping[str, Any] = WHOLE["paths"][route.path][route.method.lower()]["responses"]
    return answers


def test_every_route_is_described_and_handled(server: Running) -> None:
    whole = server.get("/openapi.json").document
    # Nobody made a token here, so none is asked for.
    security = [operation.pop("security") for methods in whole["paths"].values() for operation in methods.values()]
    scoped = [operation.pop("security") for methods in deepcopy(WHOLE)["paths"].values() for operation in methods.values()]
    assert security == [[]] * len(ROSTER) and scoped == [[{"token": [route.scope]}] if route.scope else [] for route in ROSTER]
    without = deepcopy(WHOLE)
    for methods in without["paths"].values():
        for operation in methods.values():
            del operation["security"]
    assert whole == without
    described = {(method.upper(), path) for path, methods in WHOLE["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROSTER}
    assert set(HANDLERS) == {route.name for route in ROSTER}
    for schema in WHOLE["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_answer_is_as_it_is_described(server: Running) -> None:
    server.ingest([edit(1), edit(2), edit(1, payload={"other": 1}), {"type": "x"}])
    for path, name in (
        ("/v1/sessions?limit=1", "Sessions"),
        ("/v1/sessions/s-1", "Session"),
        ("/v1/sessions/s-1/events?limit=1", "Events"),
        ("/v1/search?q=layers", "Found"),
        ("/healthz", "Health"),
        ("/readyz", "Health"),
        ("/v1/search", "Refused"),
    ):
        jsonschema.validate(server.get(path).document, schema_of(name))
    jsonschema.validate(server.ingest([edit(1), {"type": "x"}]).document, schema_of("Ingested"))
    jsonschema.validate(edit(1), schema_of("Event"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**edit(1), "more": 1}, schema_of("Event"))


_TEXTS: Final = st.text(max_size=30) | st.sampled_from(["0", "1", "-1", "500", "501", "x", "weights.edits > 0", "s-1", "1.s-1", "\0", "'"])
_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
)


def _with(required: Mapping[str, st.SearchStrategy[object]], *optional: str) -> st.SearchStrategy[object]:
    """Documents with these keys, and perhaps with those that are named, which hold anything."""
    return st.fixed_dictionaries(dict(required), optional=dict.fromkeys(optional, _VALUES))


_TYPES: Final = st.sampled_from(["message", "span", "notification", "end", "x"])
_EVENTS: Final = _with(
    {"type": _TYPES, "payload": st.dictionaries(_TEXTS, _VALUES, max_size=4) | _VALUES},
    "id", "session", "trace", "span", "parent", "source", "name", "time", "endTime", "forwarded",
)  # fmt: skip
_ANY_VALUES: Final = _with({}, "stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue")
_ATTRIBUTES: Final = st.lists(st.fixed_dictionaries({"key": _TEXTS, "value": _ANY_VALUES}), max_size=3)
_RECORDS: Final = _with(
    {"attributes": _ATTRIBUTES, "body": _ANY_VALUES},
    "traceId", "spanId", "name", "kind", "timeUnixNano", "startTimeUnixNano", "events", "links", "status",
)  # fmt: skip


def _otlp(groups: str, scopes: str, records: str) -> st.SearchStrategy[object]:
    scoped = st.fixed_dictionaries({}, optional={records: st.lists(_RECORDS | _VALUES, max_size=3), "scope": _VALUES})
    group = st.fixed_dictionaries({}, optional={scopes: st.lists(scoped | _VALUES, max_size=2), "resource": _VALUES})
    return st.fixed_dictionaries({groups: st.lists(group | _VALUES, max_size=2) | _VALUES})


_BODIES: Final[Mapping[str, st.SearchStrategy[object]]] = {
    "/v1/ingest": st.lists(_EVENTS | _VALUES, max_size=4) | _VALUES,
    "/v1/traces": _otlp("resourceSpans", "scopeSpans", "spans"),
    "/v1/logs": _otlp("resourceLogs", "scopeLogs", "logRecords"),
}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("route", ROSTER, ids=lambda route: route.name)
def test_whatever_is_asked_is_answered_as_it_is_described(server: Running, route: Route, data: st.DataObject) -> None:
    names = [parameter.name for parameter in route.parameters]
    query = data.draw(st.dictionaries(st.sampled_from([*names, "other"]), _TEXTS, max_size=3))
    # Half a surrogate pair has no bytes to be sent in an address.
    said = {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}
    session = data.draw(_TEXTS.filter(bool)).encode("utf-8", "replace")
    path = route.path.replace("{session}", quote(session, safe="")) + (f"?{urlencode(said)}" if said else "")
    body, headers = None, {}
    if route.bodies:
        media = data.draw(st.sampled_from(route.bodies))
        document = json.dumps(data.draw(_BODIES[route.path])).encode()
        body = data.draw(st.just(document) | st.binary(max_size=200))
        headers = {"content-type": media}
    answered = server.ask(route.method, path, body, headers)
    answers = answers_of(route)
    assert str(answered.status) in answers, (answered.status, answered.body[:500])
    assert answered.status < 500
    if answered.headers["content-type"] == "application/json" and route.answers != "OpenApi":
        schema = answers[str(answered.status)]["content"]["application/json"].get("schema", {})
        jsonschema.validate(answered.document, {**schema, "components": WHOLE["components"]})
