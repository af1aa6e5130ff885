"""A store of the first version becomes one of this version: the same schema, the same rows, the same verdicts, or it stays what it was."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from countermark.lines.conclusion import conclusion_text
from countermark.run.records import StoredSweep
from countermark.store import checks, migrations, postgres_checks
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.failures import NotAStore, StoreError, StoreFull, StoreInUse, StoreMissing, StoreOfAnotherVersion
from countermark.store.interface import Finding
from countermark.store.migrations import postgres, scripts, sqlite
from countermark.store.migrations.outcome import Migrated, Migration, NothingToDo, NotWhole, Plan, Step, WouldMigrate
from countermark.store.migrations.place import Place
from countermark.store.migrations.scripts import FILES, ONE_SCHEMA, upgrade
from countermark.store.postgres import PostgresStore
from countermark.store.schema import DERIVED, LEDGER, OBSERVATIONS, SCHEMA_VERSION
from countermark.store.sqlite import SqliteStore
from countermark.verdict import Conclusion, Sweep, conclude
from countermark.wire.sweep import decode_sweep
from tests.faults import planted, proven_by
from tests.postgres import Cluster
from tests.store.migrating import RECORDED, TABLES, Old, OldDatabase, OldFolder, Rows, unpacked

CLOSED, STOPPED, YOUNG = "4bb3db178e5f999c0d05524769f130dc", "dcd1c971d1daa7f3336035ad343d870d", "3d8a7a9c11eefb47f0c5a3cd5541b055"
STEP = Step(2, "A person's rulings, who asked for a claim, and the agenda of the runs that may be open.")


@pytest.fixture(params=["postgresql", "sqlite"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    """A store of the first version, with the rows that were recorded."""
    if request.param == "sqlite":
        return OldFolder(tmp_path / "store")
    return OldDatabase(request.getfixturevalue("postgres_url"))


@pytest.fixture
def folder(tmp_path: Path) -> OldFolder:
    return OldFolder(tmp_path / "store")


def failure(act: Callable[[], object]) -> object:
    with pytest.raises(StoreError) as raised:
        act()
    return raised.value.failure


def forgotten(word: str) -> Callable[[], AbstractContextManager[object]]:
    return planted(Place, word, lambda *_, **__: None)


# ------------------------------------------------------------------------------------------------------------ the schema


def test_the_scripts_are_one_line_that_ends_in_this_version() -> None:
    assert [script.step.version for script in scripts.scripts()] == list(range(1, SCHEMA_VERSION + 1))
    directory = ScriptDirectory(Path(scripts.__file__).parent)
    assert (directory.get_heads(), directory.get_bases()) == ([f"{SCHEMA_VERSION:04}"], ["0001"])
    assert migrations.__doc__ is not None


@proven_by(forgotten("guard"), forgotten("index"))
def test_all_scripts_together_make_in_sqlite_what_is_made_afresh() -> None:
    made = sqlite._made_by_scripts(SCHEMA_VERSION)
    assert made == dict(zip(FILES, map(checks.made_afresh, (LEDGER, OBSERVATIONS)), strict=True))


@proven_by(forgotten("guard"), forgotten("index"))
def test_all_scripts_together_make_in_postgresql_what_is_made_afresh(postgres_url: str) -> None:
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with closing(engine.connect()) as connection:
        for schema in ("countermark", "afresh"):
            connection.execute(text(f"CREATE SCHEMA {schema}"))
            connection.execute(text(f"SET search_path TO {schema}"))
            postgres_checks.made_afresh(connection) if schema == "afresh" else upgrade(
                connection, dict.fromkeys(ONE_SCHEMA, 0), SCHEMA_VERSION, 1
            )
        made, afresh = (postgres_checks.catalogue(connection, schema) for schema in ("countermark", "afresh"))
    engine.dispose()
    assert len(afresh) > 100 and made == afresh


@proven_by(forgotten("guard"))
def test_the_first_script_makes_what_the_first_release_made(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    made = sqlite._made_by_scripts(1)
    for database, name in zip(FILES, TABLES, strict=True):
        engine = create_engine(f"sqlite+pysqlite:///{folder / name}")
        with closing(engine.connect()) as connection:
            assert checks.objects_in(connection) == made[database]
        engine.dispose()


# -------------------------------------------------------------------------------------------------------------- the rows


def columns_are_mixed_up() -> AbstractContextManager[object]:
    """A table that is made again gets what stood in another column."""
    real = Place.execute

    def execute(self: Place, statement: str, **values: object) -> None:
        real(self, statement.replace("SELECT run_id, version, kind, recorded_ms", "SELECT run_id, version, kind, 0"), **values)

    return planted(Place, "execute", execute)()


@proven_by(columns_are_mixed_up)
def test_in_sqlite_every_row_is_what_it_was(folder: OldFolder) -> None:
    every_row_is_what_it_was(folder)


def test_every_row_is_what_it_was(old: Old) -> None:
    every_row_is_what_it_was(old)


def every_row_is_what_it_was(old: Old) -> None:
    before = old.rows()
    assert old.versions() in ([[1], [1]], [[1]])
    migrated = old.migrate()
    assert isinstance(migrated, Migrated) and (migrated.plan.found, migrated.plan.wanted, migrated.plan.steps) == (
        1,
        SCHEMA_VERSION,
        (STEP,),
    )
    assert old.versions() in ([[1, 2], [1, 2]], [[1, 2]])
    claims = [{**row, "said_by": None} for row in before["claims"]]
    assert old.rows() == {**before, "claims": claims}
    with old.open() as store:
        assert store.check() == ()


def test_a_store_of_the_first_release_gives_its_verdicts_again_byte_for_byte(old: Old) -> None:
    stored = {row["sweep_id"]: bytes(row["text"]) for row in old.rows()["verdicts"]}
    assert stored["s-1"] == (RECORDED / "sweep-1.verdict.json").read_bytes()
    old.migrate()
    with old.open() as store:
        assert {sweep: store.verdicts(sweep)[-1].text for sweep in stored} == stored
        found = store.load_sweep("s-1")
        assert isinstance(found, StoredSweep) and found.document == (RECORDED / "sweep-1.json").read_bytes()
        sweep = decode_sweep(found.document)
        assert isinstance(sweep, Sweep)
        conclusion = conclude(sweep)
        assert isinstance(conclusion, Conclusion)
        assert conclusion_text(conclusion) == (RECORDED / "sweep-1.verdict.txt").read_bytes()


def agenda_is_left_empty() -> AbstractContextManager[object]:
    real = Place.execute

    def execute(self: Place, statement: str, **values: object) -> None:
        if "INTO agenda" not in statement:
            real(self, statement, **values)

    return planted(Place, "execute", execute)()


#: More verdicts of the recorded runs, and which runs are open then. A sweep's ordinal orders nothing here; a verdict's does.
VERDICTS = {
    "as recorded": ((), {STOPPED, YOUNG}),
    "closed before its newest fact": (((STOPPED, 1, 5),), {STOPPED, YOUNG}),
    "closed at its version": (((STOPPED, 1, 6),), {YOUNG}),
    "closed, and opened again by a later look": (((STOPPED, 1, 6), (STOPPED, 0, 6)), {STOPPED, YOUNG}),
    "a look that closed nothing, then one that did": (((CLOSED, 0, 0), (YOUNG, 1, 0), (CLOSED, 1, 0)), {STOPPED}),
}


@proven_by(agenda_is_left_empty)
@pytest.mark.parametrize("case", VERDICTS)
def test_the_agenda_begins_with_the_runs_that_nothing_closed(old: Old, case: str) -> None:
    verdicts, wanted = VERDICTS[case]
    sweeps = {STOPPED: "s-1", CLOSED: "s-2", YOUNG: "s-3"}
    document, digest = ("'{}'::bytea", "encode(sha256('{}'), 'hex')") if old.kind == "postgresql" else ("CAST('{}' AS BLOB)", "")
    digest = digest or f"(SELECT digest FROM sweeps WHERE sweep_id = '{sweeps[CLOSED]}')"
    old.execute(f"INSERT INTO sweeps VALUES (3, 's-3', '{YOUNG}', 1, 2, {digest}, {document})")
    for number, (run, closed, version) in enumerate(verdicts, start=3):
        old.execute(f"INSERT INTO verdicts VALUES ({number}, '{sweeps[run]}', '{run}', 'Converged', {closed}, {version}, {document})")
    migrated = old.migrate()
    assert isinstance(migrated, Migrated), migrated
    with old.open() as store:
        assert {run.run_id for run in store.list_runs(open_only=True)} == wanted
        assert store.check() == ()


@proven_by(forgotten("guard"))
def test_what_is_recorded_is_append_only_afterwards(old: Old) -> None:
    assert isinstance(old.migrate(), Migrated), "the migration itself sees that the schema is another one"
    filled = {"schema_versions", *(name for name, rows in old.rows().items() if rows)}
    assert filled == {"schema_versions", *TABLES[LEDGER_FILE], *TABLES[OBSERVATIONS_FILE]}
    recorded = {table.name for part in (LEDGER, OBSERVATIONS) for table in part.sorted_tables if table not in DERIVED}
    # The guards of SQLite stand before rows, those of PostgreSQL before statements.
    for table in filled if old.kind == "sqlite" else recorded:
        column = "version" if table == "schema_versions" else "run_id"
        for statement in (f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"):
            with pytest.raises((DBAPIError, sqlite3.IntegrityError), match=f"countermark: {table} is append-only"):
                old.execute(statement)


# ---------------------------------------------------------------------------------------------- nothing to do, or refused


def test_a_dry_run_says_what_would_happen_and_writes_nothing(old: Old) -> None:
    before = old.rows()
    found = old.migrate(dry_run=True)
    assert isinstance(found, WouldMigrate) and found.plan.steps == (STEP,)
    assert (found.backup is None) == (old.kind == "postgresql")
    assert (old.rows(), old.copies()) == (before, [])
    assert failure(old.open) == StoreOfAnotherVersion(_place_of(failure(old.open)), 1, SCHEMA_VERSION)


def _place_of(found: object) -> str:
    assert isinstance(found, StoreOfAnotherVersion)
    assert found.remedy().endswith(": countermark store migrate")
    return found.where


def test_a_current_store_says_that_there_is_nothing_to_do(old: Old) -> None:
    assert isinstance(old.migrate(), Migrated)
    before, copies = old.rows(), old.copies()
    for dry_run in (False, True):
        found = old.migrate(dry_run)
        assert isinstance(found, NothingToDo) and found.version == SCHEMA_VERSION
    assert (old.rows(), old.copies()) == (before, copies)


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 10**9])
def test_a_newer_store_is_refused_and_left_alone(old: Old, version: int) -> None:
    before = old.rows()
    old.execute(f"INSERT INTO schema_versions VALUES ({version}, 0)")
    found = failure(old.migrate)
    assert isinstance(found, StoreOfAnotherVersion) and (found.found, found.supported) == (version, SCHEMA_VERSION)
    assert "store migrate" not in found.remedy()
    assert (old.rows(), old.copies()) == (before, [])


def test_where_there_is_no_store_none_is_made(tmp_path: Path, postgres_url: str) -> None:
    assert failure(lambda: sqlite.migrate(tmp_path)) == StoreMissing(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert isinstance(failure(lambda: postgres.migrate(postgres_url)), StoreMissing)


def test_another_program_s_database_is_left_alone(folder: OldFolder) -> None:
    folder.execute("PRAGMA observations.application_id = 7")
    where = str(folder.folder / OBSERVATIONS_FILE)
    assert failure(folder.migrate) == NotAStore(where, "it is another program's database")


TRIGGERS = {"sqlite": "DROP TRIGGER facts_never_updated", "postgresql": "DROP TRIGGER facts_append_only ON facts"}
INDICES = {"sqlite": "DROP INDEX one_successor", "postgresql": "DROP INDEX one_successor"}
#: What somebody did to a store, and the findings for which it is refused, on each kind.
DAMAGES: dict[str, tuple[tuple[dict[str, str], ...], set[tuple[str, str]]]] = {
    "a guard is gone": ((TRIGGERS,), {("SchemaObjectMissing", "facts")}),
    "an index is gone": ((INDICES,), {("SchemaObjectMissing", "one_successor")}),
    "a table that is not ours": ((dict.fromkeys(TRIGGERS, "CREATE TABLE mine (a INTEGER)"),), {("SchemaObjectForeign", "mine")}),
    "both": ((TRIGGERS, INDICES), {("SchemaObjectMissing", "facts"), ("SchemaObjectMissing", "one_successor")}),
}


#: Damages that the migration itself would cover up, because it makes those objects again.
COVERED_UP = {
    "sqlite": ("DROP TRIGGER facts_never_updated",),
    "postgresql": ("ALTER TABLE facts DROP CONSTRAINT kind_is_known", "ALTER TABLE facts ADD CONSTRAINT kind_is_known CHECK (kind <> '')"),
}


@proven_by(planted(sqlite, "_file_findings", lambda *_: ()))
def test_what_a_migration_would_cover_up_is_seen_in_a_folder(folder: OldFolder) -> None:
    folder.execute(*COVERED_UP["sqlite"])
    assert isinstance(folder.migrate(), NotWhole)


@proven_by(planted(postgres, "_findings_before", lambda *_: ()))
def test_what_a_migration_would_cover_up_is_seen_in_a_database(postgres_url: str) -> None:
    old = OldDatabase(postgres_url)
    old.execute(*COVERED_UP["postgresql"])
    assert isinstance(old.migrate(), NotWhole)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_refused_with_every_finding_and_left_as_it_is(old: Old, damage: str) -> None:
    done, wanted = DAMAGES[damage]
    old.execute(*(each[old.kind] for each in done))
    before = old.rows()
    for dry_run in (True, False):
        found = old.migrate(dry_run)
        assert isinstance(found, NotWhole)
        objects = {(each.code, name) for each in found.findings for _, name in wanted if name in each.what}
        assert objects == wanted
        assert {each.code for each in found.findings} == {code for code, _ in wanted}
    assert (old.rows(), old.copies()) == (before, [])
    assert old.versions() in ([[1], [1]], [[1]])


FORGED: dict[str, str] = {
    "ServerSide": "UPDATE sweeps SET digest = replace(digest, 'c', 'd') WHERE sweep_id = 's-1'",
    "WorkKey": "UPDATE runs SET request = 'x' || request WHERE request = 'weekly'",
}
OFF = {
    "sqlite": ("DROP TRIGGER sweeps_never_updated", "DROP TRIGGER runs_never_updated"),
    "postgresql": ("ALTER TABLE sweeps DISABLE TRIGGER USER", "ALTER TABLE runs DISABLE TRIGGER USER"),
}
ON = {
    "sqlite": tuple(
        f"CREATE TRIGGER {name}_never_updated BEFORE UPDATE ON {name} BEGIN SELECT RAISE(ABORT, 'countermark: {name} is append-only'); END"
        for name in ("sweeps", "runs")
    ),
    "postgresql": ("ALTER TABLE sweeps ENABLE TRIGGER USER", "ALTER TABLE runs ENABLE TRIGGER USER"),
}


def forged(old: Old, *whats: str) -> None:
    """Rows changed by somebody who put the guards back."""
    on = ON[old.kind] if old.kind == "postgresql" else (ON["sqlite"][0].replace("TRIGGER ", "TRIGGER observations.", 1), ON["sqlite"][1])
    old.execute(*OFF[old.kind], *(FORGED[each] for each in whats), *on)


@pytest.mark.parametrize(
    ("whats", "codes"),
    [
        ((), set()),
        (("ServerSide",), {"SweepDamaged"}),
        (("WorkKey",), {"RunIdRowMismatch"}),
        (("ServerSide", "WorkKey"), {"SweepDamaged", "RunIdRowMismatch"}),
    ],
)
def test_rows_that_do_not_follow_from_their_material_roll_everything_back(old: Old, whats: tuple[str, ...], codes: set[str]) -> None:
    forged(old, *whats)
    before = old.rows()
    found = old.migrate()
    if not codes:
        assert isinstance(found, Migrated)
        return
    assert isinstance(found, NotWhole) and {each.code for each in found.findings} == codes
    assert (old.rows(), old.copies()) == (before, [])
    assert old.versions() in ([[1], [1]], [[1]])


def test_a_finding_after_the_migration_is_what_a_check_finds(folder: OldFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("Planted", "here", "what", "mend")
    monkeypatch.setattr(sqlite, "_findings_now", lambda *_: iter((finding,)))
    before = folder.rows()
    found = folder.migrate()
    assert found == NotWhole(Plan(f"sqlite:///{folder.folder}", 1, SCHEMA_VERSION, (STEP,)), (finding,))
    assert (folder.rows(), folder.copies()) == (before, [])


# ------------------------------------------------------------------------------------------------------- others, meanwhile


@contextmanager
def used_elsewhere(old: Old) -> Iterator[None]:
    """A controller of the first version, which looked at the store and is waiting."""
    if isinstance(old, OldFolder):
        with old.raw() as connection:
            connection.execute("SELECT max(version) FROM schema_versions").fetchall()
            yield
    else:
        assert isinstance(old, OldDatabase)
        name = "?application_name=countermark%20mine&"
        engine = create_engine(old.url.replace("postgresql:", "postgresql+psycopg:").replace("?", name))
        with engine.connect() as connection:
            connection.execute(text("SELECT max(version) FROM countermark.schema_versions"))
            connection.commit()
            yield
        engine.dispose()


@proven_by(planted(postgres, "_others", lambda connection: ()))
def test_a_database_that_others_use_is_left_alone(postgres_url: str) -> None:
    left_alone(OldDatabase(postgres_url))


@proven_by(planted(sqlite._Files, "_left_the_log", lambda self: True))
def test_a_folder_that_others_use_is_left_alone(folder: OldFolder) -> None:
    left_alone(folder)


def left_alone(old: Old) -> None:
    before = old.rows()
    with used_elsewhere(old):
        found: Any = None
        try:
            old.migrate(wait_s=0.3)
        except StoreError as error:
            found = error.failure
        assert isinstance(found, StoreInUse), found
        assert found.waited_ms == 300 and "older release" in found.remedy()
        assert (old.rows(), old.copies()) == (before, [])
        assert failure(old.open) == StoreOfAnotherVersion(_place_of(failure(old.open)), 1, SCHEMA_VERSION)
    assert isinstance(old.migrate(), Migrated)


@proven_by(planted(PostgresStore, "_still_of_this_version", lambda *_: None))
def test_a_program_that_lost_its_connections_before_a_migration_goes_on_with_none(postgres: Cluster, postgres_url: str) -> None:
    """A session that is gone when others are looked for comes back to a store that it does not know."""
    with PostgresStore.open(f"{postgres_url}&application_name=mine", create=True) as store:
        assert store.list_runs() == ()
        database = postgres_url.rpartition("/")[2].partition("?")[0]
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'countermark mine'"
        assert postgres.sql(ended, f"{ended} AND false", database=database) == []
        postgres.sql(f"INSERT INTO countermark.schema_versions VALUES ({SCHEMA_VERSION + 1}, 0)", database=database)
        found: object = None
        try:
            store.list_runs()
        except StoreError as error:
            found = error.failure
        assert found == StoreOfAnotherVersion(store.location, SCHEMA_VERSION + 1, SCHEMA_VERSION)


def test_of_several_migrations_at_once_one_migrates_and_all_succeed(old: Old) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: old.migrate(), range(4)))
    assert sorted(type(each).__name__ for each in found) == ["Migrated", *["NothingToDo"] * 3]
    assert old.versions() in ([[1, 2], [1, 2]], [[1, 2]])
    with old.open() as store:
        assert store.check() == ()


# -------------------------------------------------------------------------------------------------------------- the copies


def test_the_copies_are_a_whole_store_of_the_old_version(folder: OldFolder) -> None:
    before = folder.rows()
    migrated = folder.migrate()
    assert isinstance(migrated, Migrated) and migrated.backup == str(folder.folder / "before-migration" / "version-1")
    assert folder.copies() == [Path(migrated.backup)]
    kept = OldFolder.__new__(OldFolder)
    kept.folder = Path(migrated.backup)
    assert sorted(path.name for path in kept.folder.iterdir()) == sorted(TABLES)
    assert (kept.rows(), kept.versions()) == (before, [[1], [1]])
    assert isinstance(kept.migrate(), Migrated)


def test_copies_of_before_are_kept_and_broken_off_ones_are_not(folder: OldFolder) -> None:
    home = folder.folder / sqlite.BACKUPS
    (home / "version-1").mkdir(parents=True)
    (home / ".0123.new").mkdir()
    (home / ".0123.new" / LEDGER_FILE).write_bytes(b"half")
    would = folder.migrate(dry_run=True)
    assert isinstance(would, WouldMigrate) and would.backup == str(home / "version-1-2")
    migrated = folder.migrate()
    assert isinstance(migrated, Migrated) and migrated.backup == would.backup
    assert [path.name for path in folder.copies()] == ["version-1", "version-1-2"]
    assert sorted(path.name for path in home.iterdir()) == ["version-1", "version-1-2"]


def test_a_full_disk_leaves_the_store_as_it_is(folder: OldFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = folder.rows()
    with monkeypatch.context() as patched:
        patched.setattr(sqlite.os, "fsync", full)
        assert isinstance(failure(folder.migrate), StoreFull)
    assert (folder.rows(), folder.versions()) == (before, [[1], [1]])
    assert isinstance(folder.migrate(), Migrated)
    assert len(folder.copies()) == 1


@pytest.mark.parametrize("ahead", [LEDGER_FILE, OBSERVATIONS_FILE])
def test_a_file_that_was_put_back_from_a_copy_is_brought_up_to_the_other(folder: OldFolder, ahead: str, tmp_path: Path) -> None:
    other = OldFolder(tmp_path / "other")
    folder.migrate()
    behind = next(name for name in TABLES if name != ahead)
    for suffix in ("-wal", "-shm"):
        (folder.folder / f"{behind}{suffix}").unlink(missing_ok=True)
    (folder.folder / behind).write_bytes((other.folder / behind).read_bytes())
    found: Migration = folder.migrate()
    assert isinstance(found, Migrated), found
    assert folder.versions() == [[1, 2], [1, 2]]
    with SqliteStore.open(folder.folder, create=False) as store:
        assert store.check() == ()


def test_the_rows_of_a_store_are_what_the_comparison_sees(folder: OldFolder) -> None:
    """The comparison of rows discriminates: it is not the same for every store."""
    before: Rows = folder.rows()
    forged(folder, "WorkKey")
    assert folder.rows() != before
