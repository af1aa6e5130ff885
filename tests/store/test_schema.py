"""The schema of a version stays as it was released: a change of it is a new version with a migration."""

import hashlib
import sqlite3
from contextlib import closing

from sqlalchemy import MetaData
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from countermark.run.records import FactKind
from countermark.store.schema import DERIVED, FACT_TABLES, LEDGER, OBSERVATIONS, SCHEMA_VERSION, facts, sqlite_script

#: Version → digest of its statements with single spaces.
RELEASED = {
    1: "185558c98c5a3186b2887ca305242807f237d3232f6b199a35ee6c2c09e26d3a",
    2: "425d118e6821507a8284468fad84b2ee11852ac19382be5cacbda2852ee24a28",
}


def digest(*parts: MetaData) -> str:
    statements = [" ".join(statement.split()) for part in parts for statement in sqlite_script(part)]
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()


def test_the_schema_is_the_released_one_of_its_version() -> None:
    assert digest(LEDGER, OBSERVATIONS) == RELEASED[SCHEMA_VERSION], "raise SCHEMA_VERSION, migrate, and record the new digest here"


def test_every_kind_of_fact_has_its_table_and_the_database_knows_the_kinds() -> None:
    assert tuple(FACT_TABLES) == FactKind.__args__
    for kind, table in FACT_TABLES.items():
        assert {"run_id", "version"} <= set(table.c.keys()), kind
    checks = {str(each.name): str(each.sqltext) for each in facts.constraints if hasattr(each, "sqltext")}
    assert checks["kind_is_known"] == "kind IN ({})".format(", ".join(f"'{kind}'" for kind in FactKind.__args__))


def test_every_table_is_strict_and_every_recorded_one_guarded_by_three_triggers() -> None:
    for part in (LEDGER, OBSERVATIONS):
        with closing(sqlite3.connect(":memory:")) as connection:
            for statement in sqlite_script(part):
                connection.execute(statement)
            strict = {
                name: bool(is_strict) for _, name, _, _, _, is_strict in connection.execute("PRAGMA table_list") if name[:7] != "sqlite_"
            }
            triggers = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
        tables = {table.name for table in part.sorted_tables}
        assert strict == dict.fromkeys(tables, True)
        recorded = {table.name for table in part.sorted_tables if table not in DERIVED}
        assert triggers == {f"{table}_never_{what}" for table in recorded for what in ("updated", "deleted", "replaced")}


def test_the_same_tables_can_be_made_in_postgresql() -> None:
    for part in (LEDGER, OBSERVATIONS):
        for table in part.sorted_tables:
            assert f"CREATE TABLE {table.name}" in str(CreateTable(table).compile(dialect=postgresql.dialect()))
