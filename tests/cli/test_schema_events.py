"""The schema of events takes what is taken and refuses what is refused: one truth for the SDKs in other languages."""

import json
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from countermark.cli.schema import schema
from countermark.sessions.edits import FIELDS, KIND
from countermark.sessions.events import KEYS, Event
from countermark.wire.events import event_document, read_event
from tests.sessions.test_edits import WRONG as WRONG_FIELDS
from tests.sessions.test_events import NOW
from tests.wire.test_events import WHOLE
from tests.wire.test_events import WRONG as WRONG_KEYS

CHECKS: Final = jsonschema.Draft202012Validator({"$ref": "#/$defs/event", "$defs": schema()["$defs"]})
#: What no schema says: that a time is one, that not all digits of an id are 0, that a text of digits is cut.
UNSAID: Final = frozenset({"time", "endTime"})


def takes(document: object) -> bool:
    return CHECKS.is_valid(document)


def test_what_is_taken_is_taken_by_the_schema() -> None:
    found = read_event(WHOLE, NOW)
    assert isinstance(found, Event)
    assert takes(WHOLE)
    assert takes(event_document(found))
    assert takes({"type": "message", "source": "job", "payload": {}})
    assert not takes({"type": "message", "payload": {}})
    assert not takes({"source": "job"})
    assert not takes({**WHOLE, "colour": 1})
    assert not takes({**WHOLE, "payload": {**WHOLE["payload"], "colour": 1}})
    assert not takes({**WHOLE, "payload": {"kind": KIND}})
    assert takes({**WHOLE, "payload": {"kind": "other", "colour": 1}})


@pytest.mark.parametrize("key", [field.key for field in FIELDS])
def test_what_no_edit_holds_is_refused_by_the_schema(key: str) -> None:
    for value in WRONG_FIELDS[key][0]:
        if not isinstance(value, float) or (value == value and abs(value) != float("inf")):
            document: dict[str, Any] = {**WHOLE, "payload": {**WHOLE["payload"], key: value}}
            # A double that is whole is a whole number to JSON Schema, and a digest with a line's end matches $.
            if value not in (2.0**54, 10**400) and not (isinstance(value, str) and value.endswith("\n")):
                assert not takes(document), (key, value)


@pytest.mark.parametrize("key", [key for key in KEYS if key not in UNSAID])
def test_what_no_event_holds_is_refused_by_the_schema(key: str) -> None:
    for value in WRONG_KEYS[key][0]:
        if not (isinstance(value, str) and value and (not value.strip("0") or value.endswith("\n"))):
            assert not takes({**WHOLE, key: value}), (key, value)


def test_the_schema_that_is_shipped_is_this_one() -> None:
    shipped = json.loads((Path(__file__).parents[2] / "contract/schema.json").read_text(encoding="utf-8"))
    assert {name: shipped["$defs"][name] for name in ("event", "weightEdit")} == {
        name: schema()["$defs"][name] for name in ("event", "weightEdit")
    }
