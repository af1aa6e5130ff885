"""A check of an SQLite store: what SQLite itself and its log say, the objects in its files, and tables that no statement changes."""

import sqlite3
from collections import Counter
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from countermark.run.records import StoredVerdict
from countermark.store import StoreError, checks, sqlite_errors
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.failures import StoreDamaged
from countermark.store.schema import DERIVED, LEDGER, OBSERVATIONS
from countermark.store.sqlite import SqliteStore
from tests.faults import planted, proven_by
from tests.run.examples import claim, demand_id, desired, nonce
from tests.store.examples import RUN, fill, recorded

TABLES = [
    *((LEDGER_FILE, table.name) for table in LEDGER.sorted_tables if table not in DERIVED),
    *((OBSERVATIONS_FILE, table.name) for table in OBSERVATIONS.sorted_tables),
]
ONE = nonce(1).hex


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole store with a row in every table."""
    folder = tmp_path / "store"
    with SqliteStore.open(folder, create=True) as store:
        fill(store)
    return folder


def codes(folder: Path) -> Counter[str]:
    with SqliteStore.open(folder, create=False) as store:
        findings = store.check()
    assert all(each.where and each.what and each.remedy for each in findings)
    return Counter(each.code for each in findings)


# ------------------------------------------------------------------------------------------------------------ append-only


@pytest.mark.parametrize(("name", "table"), TABLES)
@pytest.mark.parametrize("how", ["UPDATE {t} SET rowid = rowid", "DELETE FROM {t}", "INSERT OR REPLACE INTO {t} SELECT * FROM {t}"])
def test_no_row_of_any_table_is_changed_taken_out_or_replaced(folder: Path, name: str, table: str, how: str) -> None:
    statement = how.format(t=table)
    if table == "facts" and statement.startswith("UPDATE"):
        statement = "UPDATE facts SET recorded_ms = 0"
    with closing(sqlite3.connect(folder / name)) as raw:
        before = raw.execute(f"SELECT * FROM {table}").fetchall()
        assert before
        with pytest.raises(sqlite3.IntegrityError, match=f"countermark: {table} is append-only"):
            raw.execute(statement)
        raw.rollback()
        assert raw.execute(f"SELECT * FROM {table}").fetchall() == before


def insert_claim(**changed: object) -> tuple[str, tuple[object, ...]]:
    row = {"run_id": RUN, "version": 1, "slot": "9" * 64, "nonce": "9" * 32, "cause": "[]", "predecessor": None} | changed
    return f"INSERT OR REPLACE INTO claims ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())


@pytest.mark.parametrize(
    "same", [{"slot": claim(1).transition.slot().hex}, {"nonce": ONE}, {"predecessor": ONE}], ids=lambda same: next(iter(same))
)
def test_a_slot_an_identity_and_a_predecessor_are_used_once_whatever_the_program(folder: Path, same: dict[str, object]) -> None:
    with closing(sqlite3.connect(folder / LEDGER_FILE)) as raw, pytest.raises(sqlite3.IntegrityError):
        raw.execute(*insert_claim(**{"version": 77} | same))


def test_a_reference_that_leads_nowhere_is_found(folder: Path) -> None:
    with closing(sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)) as raw:
        triggers = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for trigger, _ in triggers:
            raw.execute(f"DROP TRIGGER {trigger}")
        raw.execute("DELETE FROM facts WHERE version = 3")
        for _, made in triggers:
            raw.execute(made)
    assert codes(folder) == Counter(["ReferenceBroken", "LedgerOutOfOrder"])


# ----------------------------------------------------------------------------------------------------------- the schema


def test_objects_that_are_missing_changed_or_foreign_are_found(folder: Path) -> None:
    with closing(sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER claims_never_deleted")
        raw.execute("DROP TRIGGER claims_never_updated")
        raw.execute("CREATE TRIGGER claims_never_updated BEFORE UPDATE ON claims BEGIN SELECT 1; END")
        raw.execute("CREATE TRIGGER sly AFTER INSERT ON claims BEGIN DELETE FROM outcomes; END")
        raw.execute("DROP INDEX one_successor")
    assert codes(folder) == Counter({"SchemaObjectMissing": 2, "SchemaObjectChanged": 1, "SchemaObjectForeign": 1})


def test_pages_that_were_overwritten_are_found_or_refused(folder: Path) -> None:
    size = (folder / LEDGER_FILE).stat().st_size
    with (folder / LEDGER_FILE).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (size - 4096))
    with pytest.raises(StoreError) as caught:
        codes(folder)
    assert isinstance(caught.value.failure, StoreDamaged)


# ------------------------------------------------------------------------------------------------------------- the log


def copied_open(folder: Path, target: Path) -> Path:
    """A copy of the store's files while a connection still holds commits in the log: what a power cut leaves."""
    target.mkdir()
    with SqliteStore.open(folder, create=False) as store:
        recorded(store, desired("weekly"))
        for path in folder.iterdir():
            if path.is_file():
                (target / path.name).write_bytes(path.read_bytes())
    return target


def log_of(folder: Path) -> Path:
    return folder / f"{LEDGER_FILE}-wal"


def test_commits_in_the_log_survive_a_power_cut_and_a_torn_tail_loses_only_the_unfinished(folder: Path, tmp_path: Path) -> None:
    cut = copied_open(folder, tmp_path / "cut")
    with log_of(cut).open("ab") as log:
        log.write(b"\x00\x01half a frame")
    with SqliteStore.open(cut, create=False) as store:
        assert store.check() == ()
        assert {each.demand for each in store.list_runs()} == {demand_id(), demand_id("weekly")}


def blind() -> AbstractContextManager[object]:
    """A check that leaves the log's header to SQLite, which skips such a log without a word."""
    return planted(checks, "log_findings", lambda path: iter(()))()


@proven_by(blind)
def test_a_log_whose_header_was_torn_is_found_because_its_commits_are_not_seen(folder: Path, tmp_path: Path) -> None:
    cut = copied_open(folder, tmp_path / "cut")
    with log_of(cut).open("r+b") as log:
        log.seek(20)
        log.write(b"\xff\xff\xff")
    assert codes(cut)["LogUnreadable"] == 1


@pytest.mark.parametrize("content", [b"", bytes(32), bytes(4096)], ids=["empty", "zeros", "a page of zeros"])
def test_a_log_that_never_held_a_commit_is_no_finding(folder: Path, content: bytes) -> None:
    log_of(folder).write_bytes(content)
    assert codes(folder) == Counter()


# ---------------------------------------------------------------------------------------------- numbers that nobody gave


@pytest.mark.parametrize("table", ["sweeps", "verdicts"])
@pytest.mark.parametrize("ordinal", [-1, 2**63 - 1])
@proven_by(planted(sqlite_errors, "_no_next", lambda path: None))
def test_who_cannot_write_behind_a_forged_number_is_told_so(folder: Path, table: str, ordinal: int) -> None:
    """SQLite says of the last number that the disk is full, and beneath a negative one our own trigger refuses every row."""
    with closing(sqlite3.connect(folder / OBSERVATIONS_FILE)) as raw:
        (kept,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = ?", [f"{table}_never_updated"]).fetchone()
        raw.execute(f"DROP TRIGGER {table}_never_updated")
        raw.execute(f"UPDATE {table} SET ordinal = {ordinal}")
        raw.execute(kept)
        raw.commit()
    with SqliteStore.open(folder, create=False) as store, pytest.raises(Exception) as caught:
        store.record_sweep(RUN, "s2", b"{}", 1, 2)
        store.record_verdict("s2", StoredVerdict("InProgress", False, 0, b"on its way"))
    assert isinstance(caught.value, StoreError), caught.value
    what = f"a row of {table} is numbered {ordinal}, which is no count of rows: those to come are refused"
    assert caught.value.failure == StoreDamaged(str(folder / OBSERVATIONS_FILE), what)


@pytest.mark.parametrize("table", ["sweeps", "verdicts"])
@proven_by(planted(checks, "_counter_findings", lambda connection, where, database: ()))
def test_a_counter_at_its_end_is_found_although_no_row_shows_it(folder: Path, table: str) -> None:
    with closing(sqlite3.connect(folder / OBSERVATIONS_FILE)) as raw:
        raw.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", [2**63 - 1, table])
        raw.commit()
    assert codes(folder) == Counter(["RowUncounted"])
    with SqliteStore.open(folder, create=False) as store, pytest.raises(StoreError) as caught:
        store.record_sweep(RUN, "s2", b"{}", 1, 2)
        store.record_verdict("s2", StoredVerdict("InProgress", False, 0, b"on its way"))
    assert isinstance(caught.value.failure, StoreDamaged)
