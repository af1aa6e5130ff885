"""Looking a PostgreSQL store over: its settings, its tables as they should be, and every row.

The tables are compared with ones made beside them by the very statements that make a store, and read out of the server's own catalogue:
whatever the server's version says of them, it says of both. The caller rolls back what was made.
"""

import secrets
from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection, and_, exists, not_, select, text
from sqlalchemy.exc import DBAPIError

from countermark.store import checks
from countermark.store.interface import Finding
from countermark.store.postgres_errors import state_of
from countermark.store.postgres_schema import SCHEMA, TABLES, postgres_script

_CATALOGUE: Final = """
SELECT 'column', c.relname::text || '.' || a.attname::text,
       format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull::text || ' ' || a.attgenerated::text || ' '
       || coalesce(l.collname::text, '') || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  LEFT JOIN pg_collation l ON l.oid = a.attcollation
 WHERE c.relnamespace = to_regnamespace(:schema) AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint', c.relname::text || '.' || n.conname::text, pg_get_constraintdef(n.oid) || ' ' || n.convalidated::text
  FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid WHERE n.connamespace = to_regnamespace(:schema)
UNION ALL
SELECT 'index', i.relname::text, pg_get_indexdef(x.indexrelid) || ' ' || x.indisvalid::text
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE i.relnamespace = to_regnamespace(:schema)
UNION ALL
SELECT 'trigger', c.relname::text || '.' || t.tgname::text, pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = to_regnamespace(:schema) AND NOT t.tgisinternal
UNION ALL
SELECT 'function', p.proname::text, p.prosrc || ' ' || p.prosecdef::text FROM pg_proc p WHERE p.pronamespace = to_regnamespace(:schema)
UNION ALL
SELECT CASE c.relkind WHEN 'S' THEN 'sequence' WHEN 'r' THEN 'table' ELSE 'relation' END, c.relname::text,
       c.relpersistence::text || ' ' || c.relrowsecurity::text || ' ' || c.relhasrules::text
  FROM pg_class c WHERE c.relnamespace = to_regnamespace(:schema) AND c.relkind NOT IN ('i', 'I')
"""


def catalogue(connection: Connection, schema: str) -> checks.Objects:
    """Everything that a schema holds, by kind and name, as the server describes it; the schema's own name is left out."""
    rows = connection.execute(text(_CATALOGUE), {"schema": schema}).all()
    return {(str(kind), str(name)): " ".join(str(what).replace(f"{schema}.", "").split()) for kind, name, what in rows}


def made_afresh(connection: Connection) -> None:
    """The tables of a store that is made now, in the schema that the search path names."""
    for statement in postgres_script():
        connection.exec_driver_sql(statement.replace("%", "%%"))


_FULL: Final = "53100"
_NO_ROOM: Final = ("the disk is full", "make room on the server's disk, then check again")
#: What may keep a check from making a schema for comparison, by the server's code: the reason, and what mends it.
_HINDRANCES: Final = {
    "42501": ("the user may make no schema for comparison", "let the owner check the store, or grant CREATE on the database"),
    _FULL: _NO_ROOM,
}


def schema_findings(
    connection: Connection, where: str, make: Callable[[Connection], None] = made_afresh, schema: str = SCHEMA
) -> Iterator[Finding]:
    """What differs in a schema from what ``make`` makes. The caller rolls back."""
    found = catalogue(connection, schema)
    beside = f"{schema}_{secrets.token_hex(8)}"
    try:
        connection.exec_driver_sql(f"CREATE SCHEMA {beside}")
        connection.exec_driver_sql(f"SET LOCAL search_path TO {beside}")
        make(connection)
    except DBAPIError as error:
        hindrance = _HINDRANCES.get("" if error.orig is None else state_of(error.orig))
        if hindrance is None:
            raise
        why, remedy = hindrance
        yield Finding("SchemaNotCompared", where, f"the tables were not compared with what they should be: {why}", remedy)
        return
    yield from checks.differences(found, catalogue(connection, beside), where)


def _settings(connection: Connection, where: str) -> Iterator[Finding]:
    for name, danger in (("fsync", "a lost power damages the database"), ("full_page_writes", "a lost power may damage the database")):
        if connection.scalar(text("SELECT current_setting(:name)"), {"name": name}) == "off":
            yield Finding(
                "ServerNotDurable", where, f"the server runs with {name}=off: {danger}", f"set {name} to on, and reload the server"
            )


def data_findings(connection: Connection, where: str) -> Iterator[Finding]:
    """The server's settings, and every row, in one snapshot. Without room on its disk a server may fail a reading too, which has it write
    out what it held in memory: then what was found until there is told, and that it is not all."""
    yield from _settings(connection, where)
    try:
        yield from row_findings(connection, where)
    except DBAPIError as error:
        if error.orig is None or state_of(error.orig) != _FULL:
            raise
        why, remedy = _NO_ROOM
        yield Finding("RowsNotRead", where, f"not every row was looked over: {why}", remedy)


def _reference_findings(connection: Connection, where: str) -> Iterator[Finding]:
    """Rows that name a row which is not there: the server looks at them when they are written, and whoever may says that it shall not."""
    for table in TABLES.sorted_tables:
        for constraint in sorted(table.foreign_key_constraints, key=lambda each: tuple(each.column_keys)):
            there = constraint.referred_table.alias("there")
            pairs = [(key.parent, there.c[key.column.name]) for key in constraint.elements]
            named = and_(*(own.is_not(None) for own, _ in pairs))
            leads = exists(select(1).select_from(there).where(*(own == other for own, other in pairs))).correlate(table)
            query = select(*table.primary_key.columns).where(named, not_(leads)).order_by(*table.primary_key.columns)
            for row in connection.execute(query):
                what = f"row {'/'.join(map(str, row))} of {table.name} names a row of {constraint.referred_table.name} that is not there"
                yield Finding("ReferenceBroken", where, what, checks.TAMPERED)


def row_findings(connection: Connection, where: str) -> Iterator[Finding]:
    """Every reference, every run derived again, every sweep's digest, and the agenda."""
    yield from _reference_findings(connection, where)
    refused = checks.refused_runs(connection)
    yield from checks.run_findings(refused, where)
    yield from checks.sweep_findings(connection, connection, where)
    yield from checks.agenda_findings(checks.missing_from_agenda(connection, connection) - refused.keys(), where)
