"""Events on their way out, to files that other programs read: JSON lines, CSV, Parquet.

Rules kept here:

1. What is exported is read page by page: memory is one page, whatever the store holds.
2. JSON lines are the events as they came in; importing them into another store gives the same events.
3. A file is written under a name of its own and gets its name when it is whole: an export that is broken off leaves nothing.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO, Final, Literal, TypeAlias, get_args

from countermark.app.errors import EnvironmentFailed
from countermark.app.sessions import PAGE_MAX, list_sessions
from countermark.lines.serving import ParameterUnfit
from countermark.sessions.filters.binding import FilterDefect
from countermark.sessions.records import Page, SessionCursor, SessionListed, StoredEvent
from countermark.store.sessions.interface import SessionStore
from countermark.values import Refused
from countermark.wire.events import event_line
from countermark.wire.tables import COLUMNS, ColumnType, cells, csv_lines

Format: TypeAlias = Literal["jsonl", "csv", "parquet"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
#: Rows of a row group of Parquet.
_ROWS: Final = 10_000


def sessions_for(store: SessionStore, where: str | None) -> Iterator[str] | Refused[FilterDefect | ParameterUnfit]:
    """The ids of the sessions for which a filter holds, or everything that is wrong with the filter. Raises ``StoreError``."""
    first = list_sessions(store, where, PAGE_MAX)
    return first if isinstance(first, Refused) else _ids(store, where, first)


def _ids(store: SessionStore, where: str | None, page: Page[SessionListed, SessionCursor]) -> Iterator[str]:
    yield from (listed.id for listed in page.items)
    while page.next is not None:
        more = list_sessions(store, where, PAGE_MAX, page.next.spell())
        assert not isinstance(more, Refused), "the filter was read before"
        page = more
        yield from (listed.id for listed in page.items)


def export(events: Iterable[StoredEvent], form: Format, into: BinaryIO, progress: Callable[[int], None]) -> int:
    """Write events in a format; how many there were. ``progress`` is told after each. Raises ``EnvironmentFailed`` where Parquet is asked
    for and pyarrow is not installed."""
    count = 0

    def counted() -> Iterator[StoredEvent]:
        nonlocal count
        for stored in events:
            count += 1
            yield stored
            progress(count)

    match form:
        case "jsonl":
            into.writelines(event_line(stored.event) for stored in counted())
        case "csv":
            into.writelines(csv_lines(map(cells, counted())))
        case "parquet":
            _parquet(counted(), into)
    return count


def _parquet(events: Iterator[StoredEvent], into: BinaryIO) -> None:
    if find_spec("pyarrow") is None:
        raise EnvironmentFailed("Parquet needs pyarrow, which is not installed", sys.executable, "pip install 'countermark[parquet]'")
    pyarrow, parquet = _pyarrow(), import_module("pyarrow.parquet")

    types: dict[ColumnType, Any] = {"text": pyarrow.string(), "whole": pyarrow.int64(), "double": pyarrow.float64()}
    schema = pyarrow.schema([(column.name, types[column.type]) for column in COLUMNS])
    with parquet.ParquetWriter(into, schema, compression="zstd") as writer:
        rows: list[tuple[object, ...]] = []
        for stored in events:
            rows.append(cells(stored))
            if len(rows) == _ROWS:
                writer.write_table(_table(rows, schema))
                rows = []
        if rows:
            writer.write_table(_table(rows, schema))


def _pyarrow() -> Any:
    # Its own types are incomplete; what it makes of our columns, a test reads back.
    return import_module("pyarrow")


def _table(rows: list[tuple[object, ...]], schema: Any) -> Any:
    pyarrow = _pyarrow()
    columns = zip(*rows, strict=True)
    return pyarrow.table([pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
