"""The tables of a PostgreSQL store: what no statement changes, what the database derives, and what a check finds of objects that differ."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import Barrier, Thread
from typing import Any

import psycopg
import pytest

from countermark.recipe import WorkKey
from countermark.recipe.work import bytes_of_material, key_material
from countermark.run import demand as demand_room
from countermark.run.records import WorkKeyRowMismatch
from countermark.store import checks, postgres, postgres_checks
from countermark.store.interface import Finding
from countermark.store.postgres import PostgresStore
from countermark.store.postgres_schema import TABLES
from countermark.store.schema import DERIVED, LEDGER, OBSERVATIONS
from countermark.store.transaction import itself
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import desired, work
from tests.store.examples import CONTEXT, GOING_ON, RUN, fill, recorded

RECORDED = sorted({table.name for part in (LEDGER, OBSERVATIONS) for table in part.sorted_tables} - {table.name for table in DERIVED})

OTHERS = ", ".join(column.name for column in TABLES.tables["runs"].columns if column.computed is None)


@pytest.fixture(scope="module")
def filled(postgres: Any) -> Iterator[str]:
    """A store with a row in every table, which nothing here may change."""
    url = postgres.new_database()
    with PostgresStore.open(url, create=True) as store:
        fill(store, GOING_ON)
    yield url
    postgres.give_back(url)


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore.open(postgres_url, create=True) as opened:
        recorded(opened)
        yield opened


def done(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("SET search_path TO countermark")
        for statement in statements:
            raw.execute(statement.encode())


# ------------------------------------------------------------------------------------------------------------ append-only


def test_the_tables_are_those_of_the_one_roster() -> None:
    assert sorted(TABLES.tables) == sorted({*RECORDED, "agenda"})


@pytest.mark.parametrize("table", RECORDED)
@pytest.mark.parametrize(
    "how",
    [
        "UPDATE {t} SET {c} = {c}",
        "UPDATE {t} SET {c} = {c} WHERE false",
        "DELETE FROM {t}",
        "DELETE FROM {t} WHERE false",
        "TRUNCATE {t}",
        "TRUNCATE {t} CASCADE",
        "INSERT INTO {t} SELECT * FROM {t} ON CONFLICT ({k}) DO UPDATE SET {c} = excluded.{c}",
    ],
)
def test_no_row_of_any_table_is_changed_taken_out_or_replaced_by_its_owner_either(filled: str, table: str, how: str) -> None:
    made = TABLES.tables[table]
    keys = ", ".join(column.name for column in made.primary_key.columns)
    column = next(each.name for each in made.columns if each.computed is None)
    names = ", ".join(each.name for each in made.columns if each.computed is None)
    statement = how.format(t=table, c=column, k=keys).replace(f"INTO {table} SELECT *", f"INTO {table} ({names}) SELECT {names}")
    with psycopg.connect(filled, autocommit=True) as raw:
        raw.execute("SET search_path TO countermark")
        before = raw.execute(f"SELECT * FROM {table}".encode()).fetchall()
        assert before
        # A table that others refer to is not even tried to be emptied without them.
        refused = r"^countermark: \w+ is append-only|^cannot truncate a table referenced in a foreign key constraint"
        with pytest.raises((psycopg.errors.IntegrityConstraintViolation, psycopg.errors.FeatureNotSupported), match=refused):
            raw.execute(statement.encode())
        assert raw.execute(f"SELECT * FROM {table}".encode()).fetchall() == before


# ------------------------------------------------------------------------------------------------------- the derived column


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO runs (work_digest, {OTHERS}) SELECT repeat('e', 64), {OTHERS} FROM runs",
        "UPDATE runs SET work_digest = repeat('e', 64)",
    ],
    ids=["inserted", "updated"],
)
def test_the_derived_column_cannot_be_written_by_anybody(store: PostgresStore, postgres_url: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.GeneratedAlways):
        done(postgres_url, "SET session_replication_role = replica", statement)


def test_the_database_derives_the_work_key_s_digest_from_the_material(store: PostgresStore, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as raw:
        row = raw.execute("SELECT work_digest, material FROM countermark.runs").fetchone()
    material = bytes_of_material(key_material(desired().manifest, desired().requirements))
    assert row == (work().digest.hex, material)


def material_of(seed: str) -> str:
    other = desired(seed=seed)
    return bytes_of_material(key_material(other.manifest, other.requirements)).hex()


def believed() -> AbstractContextManager[object]:
    """A loader that takes the database's word for the Work key."""
    believed_key = WorkKey(work().principal, work(seed="18").digest)
    return planted(demand_room, "derive_work_key", lambda *material: believed_key)()


@proven_by(believed)
def test_a_row_whose_material_was_changed_is_refused_at_every_reading(store: PostgresStore, postgres_url: str) -> None:
    seed = "18"
    wanted = Refused(NonEmpty(WorkKeyRowMismatch(RUN, work(seed=seed).spell(), work().spell())))
    assert store.load_run(RUN) != wanted
    change = f"UPDATE runs SET material = decode('{material_of(seed)}', 'hex')"
    done(postgres_url, "SET session_replication_role = replica", change)
    assert store.load_run(RUN) == wanted, "also by a store that read the run before"
    with PostgresStore.open(postgres_url, create=False) as other:
        assert other.load_run(RUN) == wanted
        assert other.cancel(RUN, "ada", 1) == wanted
        assert other.record_demand(desired(), CONTEXT, 1) == wanted
        assert [each.code for each in other.check()] == ["WorkKeyRowMismatch"]


# -------------------------------------------------------------------------------------------------------------- the check

CHANGES: dict[str, tuple[str, str, str]] = {
    "DROP TRIGGER claims_append_only ON claims": ("SchemaObjectMissing", "trigger", "claims.claims_append_only"),
    "ALTER TABLE claims DISABLE TRIGGER claims_append_only": ("SchemaObjectChanged", "trigger", "claims.claims_append_only"),
    "DROP INDEX one_successor": ("SchemaObjectMissing", "index", "one_successor"),
    "ALTER TABLE outcomes DROP CONSTRAINT result_is_known": ("SchemaObjectMissing", "constraint", "outcomes.result_is_known"),
    "ALTER TABLE runs ADD COLUMN note text": ("SchemaObjectForeign", "column", "runs.note"),
    "ALTER TABLE runs ALTER COLUMN cwd DROP NOT NULL": ("SchemaObjectChanged", "column", "runs.cwd"),
    "ALTER TABLE runs ALTER COLUMN work_digest DROP EXPRESSION": ("SchemaObjectChanged", "column", "runs.work_digest"),
    'ALTER TABLE runs ALTER COLUMN cwd TYPE text COLLATE "POSIX"': ("SchemaObjectChanged", "column", "runs.cwd"),
    "ALTER TABLE facts ALTER COLUMN kind SET DEFAULT 'claim'": ("SchemaObjectChanged", "column", "facts.kind"),
    "CREATE TABLE notes ()": ("SchemaObjectForeign", "table", "notes"),
    "CREATE VIEW seen AS SELECT 1 AS one": ("SchemaObjectForeign", "relation", "seen"),
    "CREATE SEQUENCE counted": ("SchemaObjectForeign", "sequence", "counted"),
    "CREATE FUNCTION sly() RETURNS int LANGUAGE sql AS 'SELECT 1'": ("SchemaObjectForeign", "function", "sly"),
    "ALTER TABLE intents ENABLE ROW LEVEL SECURITY": ("SchemaObjectChanged", "table", "intents"),
    "ALTER TABLE agenda SET UNLOGGED": ("SchemaObjectChanged", "table", "agenda"),
    "CREATE OR REPLACE FUNCTION countermark_append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'": (
        "SchemaObjectChanged",
        "function",
        "countermark_append_only",
    ),
    "CREATE RULE quiet AS ON DELETE TO sweeps DO INSTEAD NOTHING": ("SchemaObjectChanged", "table", "sweeps"),
    "DROP TABLE adjudications": ("SchemaObjectMissing", "table", "adjudications"),
}
WHAT = {
    "SchemaObjectMissing": "the {kind} {name} is missing",
    "SchemaObjectChanged": "the {kind} {name} is not as we make it",
    "SchemaObjectForeign": "the {kind} '{name}' is not ours",
}


def blind() -> AbstractContextManager[object]:
    """A check that compares nothing."""
    return planted(checks, "differences", lambda found, wanted, where: iter(()))()


def told(store: PostgresStore, statement: str) -> tuple[str, str]:
    code, kind, name = CHANGES[statement]
    return code, WHAT[code].format(kind=kind, name=name)


def schema_findings(store: PostgresStore) -> list[Finding]:
    with store._transaction(itself) as connection:
        found = list(postgres_checks.schema_findings(connection, store.location))
        connection.rollback()
    return found


@proven_by(blind)
@pytest.mark.parametrize("statement", CHANGES)
def test_each_object_that_differs_is_named(store: PostgresStore, postgres_url: str, statement: str) -> None:
    done(postgres_url, statement)
    found = schema_findings(store)
    assert all(each.where == store.location and each.remedy for each in found)
    names = [(each.code, each.what) for each in found]
    if statement.startswith("DROP TABLE"):  # and everything that was a part of it
        assert told(store, statement) in names
        assert all("adjudications" in what and code == "SchemaObjectMissing" for code, what in names)
    else:
        assert names == [told(store, statement)]


def test_two_objects_that_differ_are_named_both_and_so_is_a_damaged_row(store: PostgresStore, postgres_url: str) -> None:
    both = ["ALTER TABLE claims DISABLE TRIGGER claims_append_only", "ALTER TABLE outcomes DROP CONSTRAINT result_is_known"]
    forged = f"UPDATE runs SET material = decode('{material_of('18')}', 'hex')"
    done(postgres_url, *both, "SET session_replication_role = replica", forged)
    wanted = Counter({"SchemaObjectChanged": 1, "SchemaObjectMissing": 1, "WorkKeyRowMismatch": 1})
    assert Counter(each.code for each in store.check()) == wanted


def test_a_check_leaves_nothing_behind(store: PostgresStore, postgres_url: str) -> None:
    assert store.check() == ()
    with psycopg.connect(postgres_url) as raw:
        assert raw.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'countermark%'").fetchall() == [("countermark",)]


# --------------------------------------------------------------------------------------------------------- made at once


def unlocked() -> AbstractContextManager[object]:
    """Makers that do not wait for each other."""
    honest = postgres.text
    return planted(postgres, "text", lambda said: honest("SELECT :key" if "pg_advisory_xact_lock" in said else said))()


@proven_by(unlocked)
def test_sixteen_that_open_a_new_store_at_once_all_succeed_and_one_makes_it(postgres_url: str) -> None:
    begin = Barrier(16)
    made: list[object] = []
    opened: list[PostgresStore] = []

    def act(number: int) -> None:
        begin.wait()
        try:
            if number % 2:
                opened.append(PostgresStore.open(postgres_url, create=True))
            else:
                made.append(PostgresStore.initialise(postgres_url))
        except Exception as error:
            made.append(error)

    threads = [Thread(target=act, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [each for each in made if isinstance(each, Exception)] == []
    assert (len(opened), len(made)) == (8, 8)
    assert made.count(True) <= 1
    assert all(store.list_runs() == () for store in opened)
    assert opened[0].check() == ()
    for store in opened:
        store.close()


def test_a_making_that_breaks_off_leaves_nothing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = postgres.make_schema

    def half(connection: Any) -> bool:
        honest(connection)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(postgres, "make_schema", half)
        with pytest.raises(KeyboardInterrupt):
            PostgresStore.open(postgres_url, create=True)
    with psycopg.connect(postgres_url) as raw:
        assert raw.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'countermark'").fetchall() == []
    with PostgresStore.open(postgres_url, create=True) as store:
        assert store.check() == ()
