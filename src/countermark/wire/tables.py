"""Events as rows of tables, for programs that read CSV or Parquet.

Rules kept here:

1. ``COLUMNS`` is the one roster: who an event is, the fields of a weight edit, its line, and its payload as it is stored.
2. Whole numbers stay exact: a count has 64 bits and a type of its own, never a double. A list is its JSON.
3. In CSV a text that a spreadsheet would take for a formula is led by an apostrophe; nothing else of a text is changed.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, final

from countermark.lines.sessions import event_line
from countermark.sessions.canonical import Spelling, spelled_json
from countermark.sessions.edits import FIELDS, FieldKind, is_edit
from countermark.sessions.records import StoredEvent
from countermark.sessions.times import spell_time

ColumnType: TypeAlias = Literal["text", "whole", "double"]
Cell: TypeAlias = str | int | float | None


@final
@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its name, and what stands in it where anything does."""

    name: str
    type: ColumnType


_TYPES: Final[Mapping[FieldKind, ColumnType]] = {
    "name": "text", "names": "text", "sizes": "text", "dtype": "text", "count": "whole", "norm": "double", "sha256": "text",
    "checkpoint": "text", "note": "text",
}  # fmt: skip
_OWN: Final = ("session", "id", "type", "name", "trace", "span", "parent", "source", "time", "endTime", "received")
COLUMNS: Final = (
    *(TableColumn(name, "text") for name in _OWN),
    *(TableColumn(field.key, _TYPES[field.kind]) for field in FIELDS),
    TableColumn("line", "text"),
    TableColumn("payload", "text"),
)
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def cells(stored: StoredEvent) -> tuple[Cell, ...]:
    """An event as the cells of ``COLUMNS``; None where it does not say one."""
    event = stored.event
    edit: Mapping[str, object] = cast("Mapping[str, object]", event.payload.value) if is_edit(event.payload.value) else {}
    return (
        stored.session,
        event.id,
        event.type,
        event.name or None,
        event.trace,
        event.span,
        event.parent,
        event.source,
        spell_time(event.start_ns) if event.start_ns else None,
        spell_time(event.end_ns) if event.end_ns else None,
        spell_time(event.received_ns),
        *(_cell(edit.get(field.key), _TYPES[field.kind]) for field in FIELDS),
        event_line(event),
        event.payload.text,
    )


def _cell(value: object, kind: ColumnType) -> Cell:
    if value is None or isinstance(value, str):
        return value
    if kind == "double":
        return float(cast(float, value))
    if kind == "whole":
        return cast(int, value)
    spelled = spelled_json(value, "cell")
    assert isinstance(spelled, Spelling), "what was stored has a spelling"
    return spelled.text


def csv_lines(rows: Iterable[tuple[Cell, ...]]) -> Iterable[bytes]:
    """The rows as CSV (RFC 4180, UTF-8), each behind the other, after a line with the names of the columns."""
    yield _csv_line([column.name for column in COLUMNS])
    for row in rows:
        yield _csv_line([_guarded(cell) if isinstance(cell, str) else cell for cell in row])


def _guarded(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _csv_line(row: list[Cell] | list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(row)
    return line.getvalue().encode()
