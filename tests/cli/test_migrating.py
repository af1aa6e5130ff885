"""``store migrate``, ``store init`` and ``store check`` from the command line, on both kinds of store: texts, documents and exit codes."""

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from sqlalchemy import text

from countermark.store import opening
from countermark.store.failures import StoreOfAnotherVersion
from countermark.store.schema import SCHEMA_VERSION
from tests.cli.called import Caller
from tests.faults import planted, proven_by
from tests.store.migrating import Old, OldDatabase, OldFolder
from tests.store.sessions.examples import event
from tests.store.sessions.test_keeping import store_connection

STEP = {"version": 2, "what": "A person's rulings, who asked for a claim, and the agenda of the runs that may be open."}
NEVER_DAMAGED = {"sqlite": "DROP TRIGGER facts_never_updated", "postgresql": "DROP TRIGGER facts_append_only ON facts"}


@pytest.fixture(params=["postgresql", "sqlite"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    """A store of the first version."""
    if request.param == "sqlite":
        return OldFolder(tmp_path / "store")
    return OldDatabase(request.getfixturevalue("postgres_url"))


def url_of(old: Old) -> str:
    """The address, for a database with a password that nobody may see."""
    if isinstance(old, OldFolder):
        return f"sqlite:///{old.folder}"
    assert isinstance(old, OldDatabase)
    return old.url.replace("postgres@", "postgres:geheim@")


def nothing_is_migrated() -> AbstractContextManager[object]:
    return planted(opening, "migrate_store", lambda url, dry_run: real(url, True))()


real = opening.migrate_store


@proven_by(nothing_is_migrated)
def test_a_dry_run_a_migration_and_a_second_one(old: Old, call: Caller) -> None:
    store = ("--store", url_of(old))
    would, done, again = (call("store", "migrate", *store, *more, "--json") for more in (("--dry-run",), (), ()))
    documents = [each.document() for each in (would, done, again)]
    assert [each.code for each in (would, done, again)] == [0, 0, 0]
    told = [(each["dryRun"], each["migrated"], each["found"], each["version"], each["steps"]) for each in documents]
    assert told == [(True, False, 1, 1, [STEP]), (False, True, 1, 2, [STEP]), (False, False, 2, 2, [])]
    backups = [each["backup"] for each in documents]
    if isinstance(old, OldFolder):
        copies = str(old.folder / "before-migration" / "version-1")
        assert backups == [copies, copies, None] and Path(copies, "ledger.sqlite").is_file()
    else:
        assert backups == [None, None, None]
    assert "geheim" not in "".join(each.out + each.err for each in (would, done, again))
    assert call("store", "check", *store).code == 0
    assert len(call("runs", *store, "--json").document()["runs"]) == 3


def test_what_a_person_is_told(old: Old, call: Caller) -> None:
    store = ("--store", url_of(old))
    would, done, again = (call("store", "migrate", *store, *more) for more in (("--dry-run",), (), ()))
    kept = f"copies of what it was lie in {old.folder}/before-migration/version-1" if isinstance(old, OldFolder) else None
    place = str(old.folder) if isinstance(old, OldFolder) else url_of(old).replace("geheim", "…")
    lines = would.out.splitlines()
    assert lines[:2] == [f"the store has schema 1 and would get schema 2: {place}", f"  schema 2: {STEP['what']}"]
    assert lines[-1] == "nothing was written; every other countermark process has to end first"
    assert ("back the database up" in lines[2]) == (kept is None)
    assert done.out.splitlines() == [
        f"the store had schema 1 and has schema 2 now: {place}",
        f"  schema 2: {STEP['what']}",
        *([kept] if kept else []),
    ]
    assert again.out == f"nothing to do: the store has schema 2, which this countermark reads: {place}\n"
    assert would.err == done.err == again.err == ""


def remedy_names_nothing() -> AbstractContextManager[object]:
    return planted(StoreOfAnotherVersion, "remedy", lambda self: "do something")()


@proven_by(remedy_names_nothing)
@pytest.mark.parametrize("args", [("runs",), ("status",), ("store", "check"), ("store", "init"), ("reconcile", "--all")])
def test_whoever_meets_an_old_store_is_told_to_migrate_it(old: Old, call: Caller, args: tuple[str, ...]) -> None:
    before = old.rows()
    called = call(*args, "--store", url_of(old), "--json")
    assert called.code == 3
    (defect,) = called.document()["defects"]
    assert (defect["fault"], defect["remedy"].endswith(": countermark store migrate")) == ("StoreOfAnotherVersion", True)
    assert old.rows() == before


def test_sessions_without_a_ledger_are_migrated_and_checked(call: Caller, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/store"
    with opening.open_sessions(address, create=True) as store:
        store.ingest([event("e-1"), event("e-2", session="s-2")])
        with store_connection(store) as connection:
            connection.execute(text("UPDATE sessions SET fold_version = 0 WHERE session_id = 's-2'"))
    place = f"there are sessions here, and no ledger yet: {tmp_path}/store"
    reads = "sessions have schema 1, which this countermark reads"
    would, done, again = (call("store", "migrate", "--store", address, *more) for more in (("--dry-run",), (), ()))
    assert [each.out.splitlines() for each in (would, done, again)] == [
        [place, reads, "1 session to be folded again"],
        [place, reads, "1 session folded again"],
        [place, reads],
    ]
    document = call("store", "migrate", "--store", address, "--json").document()
    assert (document["sessions"], document["migrated"]) == ({"found": 1, "version": 1, "refolded": 0}, False)
    assert [document[name] for name in ("found", "version", "steps", "backup")] == [None, None, [], None]
    assert call("store", "check", "--store", address).code == 0
    with opening.open_sessions(address, create=True) as store, store_connection(store) as connection:
        connection.execute(text("DELETE FROM schema_versions WHERE step = 8"))
    would, done = (call("store", "migrate", "--store", address, *more) for more in (("--dry-run",), ()))
    assert [each.out.splitlines()[1] for each in (would, done)] == [
        "sessions have schema 0 and would get schema 1",
        "sessions had schema 0 and have schema 1 now",
    ]


def test_a_damaged_store_is_refused_with_the_findings_of_a_check(old: Old, call: Caller) -> None:
    old.execute(NEVER_DAMAGED[old.kind])
    before = old.rows()
    for more in ((), ("--dry-run",)):
        called = call("store", "migrate", "--store", url_of(old), *more, "--json")
        assert (called.code, called.codes()) == (1, ["StoreFinding"])
        document = called.document()
        assert (document["migrated"], document["found"], document["version"], document["backup"]) == (False, 1, 1, None)
        assert document["defects"][0]["finding"] == "SchemaObjectMissing" and "facts" in document["defects"][0]["what"]
    said = call("store", "migrate", "--store", url_of(old))
    assert said.code == 1 and "not whole; it was left as it is, with schema 1" in said.out and "StoreFinding" in said.err
    assert old.rows() == before


def test_a_newer_store_and_one_that_is_not_there_are_refused(old: Old, call: Caller, tmp_path: Path) -> None:
    old.execute(f"INSERT INTO schema_versions VALUES ({SCHEMA_VERSION + 1}, 0)")
    for address, fault, remedy in (
        (url_of(old), "StoreOfAnotherVersion", "use the countermark release that wrote it"),
        (f"sqlite:///{tmp_path}/none", "StoreMissing", "countermark store init"),
    ):
        called = call("store", "migrate", "--store", address, "--json")
        assert called.code == 3
        (defect,) = called.document()["defects"]
        assert defect["fault"] == fault and remedy in defect["remedy"]
    assert not (tmp_path / "none").exists()


def test_a_driver_that_is_not_installed_is_named(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    called = call("store", "migrate", "--store", "postgresql://ada:geheim@host/runs", "--json")
    assert called.code == 3 and called.document()["defects"][0]["fault"] == "DriverMissing"
    assert "geheim" not in called.out + called.err


def test_only_a_migration_imports_alembic(tmp_path: Path) -> None:
    program = "import sys; from countermark.cli.main import main; main(sys.argv[1:]); print('modules:', 'alembic' in sys.modules)"
    OldFolder(tmp_path / "old")

    def imports(*args: str) -> bool:
        done = subprocess.run([sys.executable, "-c", program, *args], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.rstrip().endswith("modules: True")

    assert [imports(*args) for args in (("store", "init"), ("runs",), ("store", "check"), ("store", "migrate"))] == [False] * 4
    assert imports("store", "migrate", "--store", f"sqlite:///{tmp_path}/old")
