"""The description of the server in OpenAPI 3.1, written from the roster of routes."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final, TypeAlias

from countermark.app.sessions import OUTCOMES, PAGE_MAX
from countermark.server.answers import JSON
from countermark.server.metrics import MEDIA
from countermark.server.routes import BODY_OF_OTLP, ROSTER, Parameter, ParameterKind, Route
from countermark.sessions.events import EVENT_TYPES, KEYS

Schema: TypeAlias = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_MAYBE: Final[Schema] = {"type": ["string", "null"]}
#: A whole number beyond 2^53 is a text.
_WHOLE: Final[Schema] = {"type": ["integer", "string"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}

#: What a refusal may have as its status, whatever was asked.
_REFUSALS: Final[Mapping[str, str]] = {
    "400": "what was asked cannot be read",
    "401": "a token is needed, or is not known",
    "403": "the token may not do this, or the request means another host or comes from a foreign page",
    "500": "a fault of this program",
    "503": "the store cannot be used now, or too much waits for it",
}
_OF_BODIES: Final[Mapping[str, str]] = {
    "408": "the body did not come in time",
    "413": "the body or the batch is larger than what is taken",
    "415": "the body is of a kind that is not read here",
}
_OF_SESSIONS: Final[Mapping[str, str]] = {"404": "no session has this id", "409": "several sessions begin so"}


def _listed(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _of(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _record(fields: Mapping[str, Schema], *, more: bool = False) -> Schema:
    return {"type": "object", "properties": dict(fields), "required": list(fields), "additionalProperties": more}


def _answer(fields: Mapping[str, Schema]) -> Schema:
    return _record({"ok": {"type": "boolean"}, "defects": _listed(_of("Defect")), "warnings": _listed(_of("Defect")), **fields})


def _schemas() -> Mapping[str, Schema]:
    item = _record({"index": _COUNT, "id": _TEXT, "outcome": {"enum": list(OUTCOMES)}})
    refused = _record({"index": _COUNT, "id": _TEXT, "defects": _listed(_of("Defect"))})
    edits = _record({"edits": _WHOLE, "tensors": _WHOLE, "weightsChanged": _WHOLE})
    tokens = _record({"input": _WHOLE, "output": _WHOLE})
    stats = dict.fromkeys(("events", "messages", "tools", "errors"), _WHOLE)
    return {
        "Defect": _record({"code": _TEXT, "message": _TEXT, "remedy": _TEXT}, more=True),
        "Refused": _answer({}),
        "Event": {
            "type": "object",
            "properties": {**{key: {"description": doc} for key, doc in KEYS.items()}, "type": {"enum": list(EVENT_TYPES)}},
            "required": ["type", "payload"],
            "additionalProperties": False,
        },
        "Ingested": _answer(
            {"stored": _COUNT, "duplicates": _COUNT, "conflicts": _COUNT, "events": _listed(item), "refused": _listed(refused)}
        ),
        "ListedSession": _record(
            {
                "id": _TEXT,
                "source": _TEXT,
                "state": {"enum": ["open", "closed", "idle"]},
                "closed": {"type": "boolean"},
                "started": _MAYBE,
                "ended": _MAYBE,
                "updated": _MAYBE,
                "stats": _record({**stats, "tokens": tokens, "cost": {"type": "number"}, "weightEdits": edits}),
                "tags": _listed(_TEXT),
                "conflicts": _WHOLE,
            },
            more=True,
        ),
        "StoredEvent": _record({"id": _TEXT, "session": _TEXT, "type": _TEXT, "payload": {}, "line": _TEXT}, more=True),
        "Sessions": _answer({"sessions": _listed(_of("ListedSession")), "next": _MAYBE}),
        "Session": _answer({"session": _of("ListedSession"), "conflicts": _listed({"type": "object"})}),
        "Events": _answer({"session": _TEXT, "first": _WHOLE, "total": _WHOLE, "events": _listed(_of("StoredEvent")), "next": _MAYBE}),
        "Found": _answer({"events": _listed(_of("StoredEvent")), "next": _MAYBE}),
        "Health": _answer({"status": _TEXT}),
        "Otlp": {"type": "object", "description": "what OTLP answers, in the encoding of the request"},
        "OpenApi": {"type": "object", "description": "this description"},
    }


_KINDS: Final[Mapping[ParameterKind, Schema]] = {
    "text": _TEXT,
    "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
    "ordinal": {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
}


def _parameter(parameter: Parameter) -> Schema:
    more = {"default": parameter.default, "pattern": parameter.pattern, "format": parameter.format, "maxLength": parameter.length_max}
    schema = {**_KINDS[parameter.kind], **{key: value for key, value in more.items() if value}}
    return {"name": parameter.name, "in": "query", "required": parameter.required, "description": parameter.doc, "schema": schema}


#: What stands in an event's place and is none is refused by itself, in an answer of 200, and loses none of its neighbours.
_REFUSED_ALONE: Final[Schema] = {"description": "anything else: told of under refused, in an answer of 200"}
_ITEMS: Final = _listed({"anyOf": [_of("Event"), _REFUSED_ALONE]})
_OF_EVENTS: Final[Schema] = {"anyOf": [_of("Event"), _ITEMS, _record({"events": _ITEMS}, more=True), _REFUSED_ALONE]}


def _of_otlp(groups: str) -> Schema:
    """OTLP's own request, with ids in hexadecimal; what is refused of it is counted in the partial success. One with other keys alone was
    meant for another address, or is spelled otherwise."""
    return {"type": "object", "anyOf": [{"properties": {groups: {"description": "a list"}}, "required": [groups]}, {"maxProperties": 0}]}


def _operation(route: Route, guarded: bool) -> Schema:
    inside = [{"name": "session", "in": "path", "required": True, "schema": _TEXT}] if "{session}" in route.path else []
    answers = {MEDIA: {"schema": _TEXT}} if not route.answers else {JSON: {"schema": _of(route.answers)}}
    otlp = route.bodies == BODY_OF_OTLP
    statuses = {**_REFUSALS, **(_OF_BODIES if route.bodies else {}), **(_OF_SESSIONS if inside else {})}
    refusal: dict[str, Schema] = {media: {"schema": {} if otlp else _of("Refused")} for media in (BODY_OF_OTLP if otlp else (JSON,))}
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.doc,
        "parameters": [*inside, *map(_parameter, route.parameters)],
        "responses": {
            "200": {"description": "what came of it", "content": answers if not otlp else {media: {} for media in route.bodies}},
            **{status: {"description": why, "content": refusal} for status, why in statuses.items()},
        },
        "security": [{"token": [route.scope]}] if guarded and route.scope is not None else [],
    }
    if route.bodies:
        content = {media: {"schema": (_of_otlp(route.groups) if otlp else _OF_EVENTS) if media == JSON else {}} for media in route.bodies}
        found["requestBody"] = {"required": True, "content": content}
    return found


@cache
def description(guarded: bool = True) -> str:
    """The description as JSON, of a server that asks for tokens or of one that does not."""
    paths: dict[str, dict[str, Schema]] = {}
    for route in ROSTER:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, guarded)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Countermark",
                "version": version("countermark"),
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "paths": paths,
            "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        },
        ensure_ascii=False,
    )
