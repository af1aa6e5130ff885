"""Events as rows: whole numbers exact, nothing that a spreadsheet would run, and a column for each field of an edit."""

import csv
import io
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions.edits import FIELDS
from countermark.sessions.records import StoredEvent
from countermark.wire import tables
from countermark.wire.tables import COLUMNS, cells, csv_lines
from tests.faults import planted, proven_by
from tests.sessions.test_edits import WHOLE
from tests.sessions.test_events import NOW, TRACE, event, spelling

AT: Final = "2027-01-15T08:00:00Z"


def stored(**said: Any) -> StoredEvent:
    return StoredEvent(1, "s", NOW, event(**said))


def row(one: StoredEvent) -> dict[str, object]:
    return dict(zip((column.name for column in COLUMNS), cells(one), strict=True))


def read(one: StoredEvent) -> dict[str, str]:
    text = b"".join(csv_lines([cells(one)])).decode()
    (found,) = csv.DictReader(io.StringIO(text, newline=""))
    return found


def test_every_field_of_an_edit_has_its_column() -> None:
    found = row(stored(payload=spelling({**WHOLE, "changed": 2**63 - 1}), trace=TRACE, start_ns=NOW, end_ns=NOW, source="job", name="n"))
    assert [column.name for column in COLUMNS if column.name in WHOLE] == [field.key for field in FIELDS]
    assert found | {"payload": None, "line": None} == {
        **{key: value for key, value in WHOLE.items() if key != "kind"}, "changed": 2**63 - 1, "shape": "[2,3]",
        "aliases": '["head.w","layers.0.w"]', "session": "s", "id": "e", "type": "notification", "name": "n", "trace": TRACE, "span": None,
        "parent": None, "source": "job", "time": AT, "endTime": AT, "received": AT, "payload": None, "line": None,
    }  # fmt: skip
    assert str(found["line"]).startswith("layers.0.w: 9,223,372,036,854,775,807 weights changed")


def test_another_event_has_its_line_and_payload_and_no_field_of_an_edit() -> None:
    found = row(stored(type="message", payload=spelling({"text": "hi", "tensor": "w", "changed": 1})))
    assert {key: value for key, value in found.items() if value is not None} == {
        "session": "s", "id": "e", "type": "message", "received": AT, "line": "hi", "payload": '{"changed":1,"tensor":"w","text":"hi"}',
    }  # fmt: skip


@proven_by(planted(tables, "_FORMULA", ("=",)))
def test_nothing_is_a_formula_to_a_spreadsheet() -> None:
    for name in ("=cmd|'/c calc'!A1", "+1", "-1", "@x", "\tx", "\rx"):
        found = read(stored(payload=spelling({"kind": "weights.edit", "tensor": name, "changed": 1}), session=name))
        assert found["tensor"] == f"'{name}"
        assert not [cell for cell in found.values() if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert read(stored(payload=spelling({"kind": "weights.edit", "tensor": "a=b", "changed": 1})))["tensor"] == "a=b"


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=20))
def test_a_text_comes_back_from_csv(name: str) -> None:
    found = read(stored(payload=spelling({"kind": "weights.edit", "tensor": name, "changed": 9007199254740993})))
    assert found["tensor"].removeprefix("'") == name.removeprefix("'")
    assert found["changed"] == "9007199254740993"
