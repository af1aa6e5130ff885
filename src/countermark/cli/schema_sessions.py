"""The documents of sessions, and the events that they consist of: the latter is what SDKs in other languages send."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from countermark.app.exporting import FORMATS
from countermark.app.sessions import Outcome
from countermark.cli.forms import TEXT, WHOLE, YES_OR_NO, Schema, answer, listed, maybe, one_of, record, ref
from countermark.lines.sessions import State
from countermark.server.tokens import SCOPES
from countermark.sessions.edits import (
    ALIASES_MAX,
    COUNT_MAX,
    DTYPE_LENGTH_MAX,
    FIELDS,
    KIND,
    NAME_LENGTH_MAX,
    NOTE_LENGTH_MAX,
    SIZES_MAX,
    FieldKind,
)
from countermark.sessions.events import EVENT_TYPES, ID_LENGTH_MAX, KEYS
from countermark.sessions.fold import TAGS
from countermark.sessions.times import OddTime

_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": COUNT_MAX}
_ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": ID_LENGTH_MAX}
_TIME: Final[Schema] = {"anyOf": [TEXT, {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}]}
_SPELLED: Final[Schema] = {"type": "string", "format": "date-time"}


def _hexadecimal(digits: int) -> Schema:
    return {"type": "string", "pattern": f"^[0-9a-fA-F]{{{digits}}}$"}


_FIELD_FORMS: Final[Mapping[FieldKind, Schema]] = {
    "name": _NAME,
    "names": listed(_NAME, maxItems=ALIASES_MAX),
    "sizes": listed(_COUNT, maxItems=SIZES_MAX),
    "dtype": {"type": "string", "minLength": 1, "maxLength": DTYPE_LENGTH_MAX},
    "count": _COUNT,
    "norm": {"type": "number", "minimum": 0},
    "sha256": _hexadecimal(64),
    "checkpoint": {"type": "string", "pattern": "^((wr1|fd1|mc1):[0-9a-f]{64}|[0-9a-fA-F]{64})$"},
    "note": {"type": "string", "maxLength": NOTE_LENGTH_MAX},
}
_KEY_FORMS: Final[Mapping[str, Schema]] = {
    "id": _ID,
    "type": one_of(EVENT_TYPES),
    "session": _ID,
    "trace": _hexadecimal(32),
    "span": _hexadecimal(16),
    "parent": _hexadecimal(16),
    "source": _ID,
    "name": _ID,
    "time": _TIME,
    "endTime": _TIME,
    "forwarded": YES_OR_NO,
    "payload": {
        "type": "object",
        "if": {"properties": {"kind": {"const": KIND}}, "required": ["kind"]},
        "then": {"$ref": "#/$defs/weightEdit"},
    },
}


def event_definitions() -> dict[str, Schema]:
    """An event and a weight edit as they are sent, a session and an event as they are given back."""
    said = {field.key: {**_FIELD_FORMS[field.kind], "description": field.doc} for field in FIELDS}
    required = {"kind": {"const": KIND}, **{field.key: said[field.key] for field in FIELDS if field.required}}
    edit = record(required, {key: form for key, form in said.items() if key not in required})
    keys = {key: {**_KEY_FORMS[key], "description": doc} for key, doc in KEYS.items()}
    event: dict[str, Any] = record(
        {key: keys[key] for key in ("type", "payload")}, {key: form for key, form in keys.items() if key not in ("type", "payload")}
    )
    belongs = {"anyOf": [{"required": [key]} for key in ("session", "trace", "source")]}
    return {"event": {**event, **belongs}, "weightEdit": edit, "session": _session(), "storedEvent": _stored_event()}


def _session() -> Schema:
    """A session as lists and ``show`` have it."""
    edits = record({"edits": WHOLE, "tensors": WHOLE, "weightsChanged": WHOLE})
    stats = record(
        {
            "events": WHOLE,
            "messages": WHOLE,
            "tools": WHOLE,
            "errors": WHOLE,
            "tokens": record({"input": WHOLE, "output": WHOLE}),
            "cost": {"type": "number", "minimum": 0},
            "weightEdits": edits,
        }
    )
    return record(
        {
            "id": TEXT,
            "source": TEXT,
            "state": one_of(get_args(State)),
            "closed": YES_OR_NO,
            "started": maybe(_SPELLED),
            "ended": maybe(_SPELLED),
            "updated": _SPELLED,
            "stats": stats,
            "tags": listed(one_of(TAGS)),
            "conflicts": WHOLE,
        }
    )


def _stored_event() -> Schema:
    """An event as ``show``, ``search`` and ``tail`` have it."""
    return record(
        {
            "id": TEXT,
            "ordinal": WHOLE,
            "session": TEXT,
            "type": one_of(EVENT_TYPES),
            "name": TEXT,
            "trace": maybe(TEXT),
            "span": maybe(TEXT),
            "parent": maybe(TEXT),
            "source": maybe(TEXT),
            "time": maybe(_SPELLED),
            "endTime": maybe(_SPELLED),
            "lastedNs": maybe(WHOLE),
            "oddTime": maybe(one_of(get_args(OddTime))),
            "received": _SPELLED,
            "forwarded": YES_OR_NO,
            "payload": {"type": "object"},
            "sanitized": listed(TEXT),
            "line": TEXT,
        }
    )


def _list() -> list[Schema]:
    return [answer({"sessions": listed(ref("session")), "next": maybe(TEXT)})]


def _show() -> list[Schema]:
    conflict = record({"event": TEXT, "received": _SPELLED, "payload": {"type": "object"}})
    events = {"events": listed(ref("storedEvent")), "first": WHOLE, "total": WHOLE, "next": maybe(TEXT)}
    return [answer({"session": ref("session"), **events, "conflicting": listed(conflict)})]


def _search() -> list[Schema]:
    return [answer({"events": listed(ref("storedEvent")), "next": maybe(WHOLE)})]


def _tail() -> list[Schema]:
    return [answer({"events": listed(ref("storedEvent"))})]


def _record() -> list[Schema]:
    return [answer({"id": TEXT, "session": TEXT, "outcome": one_of(get_args(Outcome)), "line": TEXT})]


def _import() -> list[Schema]:
    counts = dict.fromkeys(("stored", "duplicates", "conflicts", "refused"), WHOLE)
    return [answer({**counts, "sessions": listed(TEXT)})]


def _export() -> list[Schema]:
    return [answer({"file": TEXT, "format": one_of(FORMATS), "events": WHOLE})]


def _token_add() -> list[Schema]:
    return [answer({"name": TEXT, "scopes": listed(one_of(SCOPES)), "token": TEXT})]


def _token_list() -> list[Schema]:
    return [answer({"tokens": listed(record({"name": TEXT, "scopes": listed(one_of(SCOPES)), "made": TEXT}))})]


def _token_revoke() -> list[Schema]:
    return [answer({"name": TEXT})]


SESSIONS: Final = {
    "weights record": _record,
    "list": _list,
    "show": _show,
    "search": _search,
    "tail": _tail,
    "import transcript": _import,
    "export": _export,
    "token add": _token_add,
    "token list": _token_list,
    "token revoke": _token_revoke,
}
