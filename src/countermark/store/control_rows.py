"""Every control fact of a run by one statement: the tables of the kinds, one below the other in columns that all of them share.

Rules kept here:

1. Nothing is joined: a row that lies in a table of facts without its line in ``facts``, or the other way round, is seen all the same.
2. The columns are those of ``schema``; a table that is added there is read here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    Label,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    literal_column,
    null,
    select,
    union_all,
)

from countermark.store.rows import Row, text_of
from countermark.store.schema import FACT_TABLES, facts
from countermark.store.statements import Statement

#: The rows of each table that has any, by its name and in the order of their versions.
ControlRows: TypeAlias = Mapping[str, list[Row]]

_TABLES: Final = (facts, *FACT_TABLES.values())


def _columns(table: Table, kind: type[Text] | type[Integer]) -> tuple[Column[Any], ...]:
    return tuple(column for column in table.columns if column.name != "run_id" and isinstance(column.type, kind))


_TEXTS: Final = range(max(len(_columns(table, Text)) for table in _TABLES))
_NUMBERS: Final = range(max(len(_columns(table, Integer)) for table in _TABLES))
#: Of each table: which shared column holds which of its own.
_SHARED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    table.name: (
        *((f"text_{at}", column.name) for at, column in enumerate(_columns(table, Text))),
        *((f"number_{at}", column.name) for at, column in enumerate(_columns(table, Integer))),
    )
    for table in _TABLES
}


def _shared(table: Table) -> Select[Any]:
    texts, numbers = _columns(table, Text), _columns(table, Integer)
    columns: list[Label[Any]] = [cast(literal_column(f"'{table.name}'"), Text).label("told_by")]
    columns += [(texts[at] if at < len(texts) else cast(null(), Text)).label(f"text_{at}") for at in _TEXTS]
    columns += [(numbers[at] if at < len(numbers) else cast(null(), BigInteger)).label(f"number_{at}") for at in _NUMBERS]
    return select(*columns).where(table.c.run_id == bindparam("run_id"))


#: What ``control_rows`` is made of.
ALL: Final = Statement(union_all(*(_shared(table) for table in _TABLES)))


def _version(row: Row) -> int:
    version = row["version"]
    return version if isinstance(version, int) else 0


def control_rows(rows: Iterable[Row]) -> ControlRows:
    """Everything that the tables of facts hold under a run's id, from the rows that ``ALL`` gives."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        table = text_of(row, "told_by")
        found.setdefault(table, []).append({own: row[shared] for shared, own in _SHARED[table]})
    for each in found.values():
        if len(each) > 1:
            each.sort(key=_version)
    return found
