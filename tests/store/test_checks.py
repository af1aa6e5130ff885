"""A check names everything that somebody changed past the store; and what it names, no read believes."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from countermark.recipe import WorkKey
from countermark.run import demand as demand_room
from countermark.run.claims import Adjudication, BelieveSource, Dispatched
from countermark.run.records import (
    LedgerOutOfOrder,
    RowDefect,
    RowUnreadable,
    RunIdRowMismatch,
    RunUnknown,
    SlotRowMismatch,
    StoredVerdict,
    SweepDamaged,
    WorkKeyRowMismatch,
)
from countermark.store import StoreError, checks
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.failures import StoreDamaged
from countermark.store.schema import DERIVED, LEDGER, OBSERVATIONS
from countermark.store.sqlite import SqliteStore
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import claim, demand_id, desired, key, nonce, work
from tests.run.test_claims import RETRY
from tests.store.examples import RUN, intended, recorded, won

TABLES = [
    *((LEDGER_FILE, table.name) for table in LEDGER.sorted_tables if table not in DERIVED),
    *((OBSERVATIONS_FILE, table.name) for table in OBSERVATIONS.sorted_tables),
]
ONE, TWO = nonce(1).hex, nonce(2).hex


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole store with a row in every table."""
    folder = tmp_path / "store"
    with SqliteStore.open(folder, create=True) as store:
        recorded(store)
        intent = intended(store, won(store, 1))
        store.record_dispatch_outcome(intent, Dispatched("pid 7"), 4_000)
        won(store, 2, RETRY)
        store.abandon(RUN, key(2), "ada", 5_000)
        store.adjudicate(RUN, Adjudication(key(2), BelieveSource("supervisor"), ("b",), "ada", "seen", 5_500))
        store.cancel(RUN, "ada", 6_000)
        store.record_sweep(RUN, "s1", b"{}", 1, 2)
        store.record_verdict("s1", StoredVerdict("Cancelled", True, 7, b"over"))
        assert store.check() == ()
    return folder


@pytest.fixture
def past(folder: Path) -> Callable[..., None]:
    """Runs statements past the store: triggers taken away first and put back after, references unchecked."""

    def change(*statements: str, name: str = LEDGER_FILE) -> None:
        with closing(sqlite3.connect(folder / name, isolation_level=None)) as raw:
            triggers = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for trigger, _ in triggers:
                raw.execute(f"DROP TRIGGER {trigger}")
            for statement in statements:
                raw.execute(statement)
            for _, sql in triggers:
                raw.execute(sql)

    return change


def codes(folder: Path) -> Counter[str]:
    with SqliteStore.open(folder, create=False) as store:
        findings = store.check()
    assert all(each.where and each.what and each.remedy for each in findings)
    return Counter(each.code for each in findings)


def refused(folder: Path) -> tuple[RowDefect | RunUnknown, ...]:
    with SqliteStore.open(folder, create=False) as store:
        answer = store.load_run(RUN)
        assert isinstance(answer, Refused), answer
        cancelled = store.cancel(RUN, "mallory", 9_000)
        assert cancelled == answer
    return tuple(answer.defects)


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


# ------------------------------------------------------------------------------------------------------- forged by a hand


def believing() -> AbstractContextManager[object]:
    """A loader that believes the row's Work key."""
    believed = WorkKey(work().principal, work(seed="18").digest)
    return planted(demand_room, "derive_work_key", lambda *material: believed)()


@proven_by(believing)
def test_a_work_key_that_the_material_does_not_give_is_refused(folder: Path, past: Callable[..., None]) -> None:
    other = work(seed="18")
    past(f"UPDATE runs SET work_digest = '{other.digest.hex}'")
    assert refused(folder) == (WorkKeyRowMismatch(RUN, other.spell(), work().spell()),)
    assert codes(folder) == Counter(["WorkKeyRowMismatch"])


def test_a_manifest_that_was_changed_gives_another_work_key(folder: Path, past: Callable[..., None]) -> None:
    past("""UPDATE runs SET manifest = replace(manifest, '"seed":"17"', '"seed":"18"')""")
    assert refused(folder) == (WorkKeyRowMismatch(RUN, work().spell(), work(seed="18").spell()),)


def test_another_account_is_seen_in_the_slots(folder: Path, past: Callable[..., None]) -> None:
    past("UPDATE runs SET principal = 'other'")
    found = refused(folder)
    assert [type(each) for each in found] == [SlotRowMismatch, SlotRowMismatch]
    assert codes(folder) == Counter({"SlotRowMismatch": 2})


def test_another_requester_is_seen_in_the_run_id(folder: Path, past: Callable[..., None]) -> None:
    past("UPDATE runs SET requester = 'mallory'")
    assert refused(folder) == (RunIdRowMismatch(RUN, demand_id(requester="mallory").run_id()),)


def test_a_slot_that_the_transition_does_not_give_is_refused(folder: Path, past: Callable[..., None]) -> None:
    past(f"UPDATE claims SET slot = '{'e' * 64}' WHERE version = 1")
    derived = claim(1).transition.slot().spell()
    assert refused(folder) == (SlotRowMismatch(RUN, ONE, "sha256:" + "e" * 64, derived),)


def first_wins() -> AbstractContextManager[object]:
    """A loader that stops at its first defect."""
    from countermark.store import ledger

    class First:
        @staticmethod
        def of(found: list[RowDefect]) -> object:
            return NonEmpty.of(found[:1])

    return planted(ledger, "NonEmpty", First)()


@proven_by(first_wins)
def test_every_row_that_is_wrong_is_named_at_once(folder: Path, past: Callable[..., None]) -> None:
    past(
        f"UPDATE claims SET slot = '{'e' * 64}' WHERE version = 1",
        "UPDATE intents SET launcher = 'cron'",
        "UPDATE outcomes SET detail = 'no json'",
        "UPDATE runs SET argv = '[1]'",
        "DELETE FROM cancellations",
    )
    wanted = [SlotRowMismatch, RowUnreadable, RowUnreadable, LedgerOutOfOrder, RowUnreadable]
    found = refused(folder)
    assert [type(each) for each in found] == wanted
    assert [each.table for each in found if isinstance(each, RowUnreadable)] == ["intents", "outcomes", "runs"]
    assert codes(folder) == Counter(each.__name__ for each in wanted)


BROKEN = {
    "UPDATE claims SET cause = '[\"Whim\"]' WHERE version = 1": "claims",
    "UPDATE claims SET cause = 'null' WHERE version = 1": "claims",
    f'UPDATE claims SET cause = \'["Resume","{ONE}","05","{"c" * 64}"]\' WHERE version = 4': "claims",
    f'UPDATE claims SET cause = \'["Resume","{ONE}","5","zz"]\' WHERE version = 4': "claims",
    "UPDATE claims SET predecessor = NULL WHERE version = 4": "claims",
    "UPDATE claims SET nonce = upper('abcdefabcdefabcdefabcdefabcdefab') WHERE version = 1": "claims",
    "UPDATE abandonments SET said_by = '7'": "abandonments",
    "UPDATE cancellations SET said_by = '{'": "cancellations",
    "UPDATE runs SET manifest = '{}'": "runs",
    "UPDATE runs SET manifest = replace(manifest, '0.0002', '2e-4')": "runs",
    "UPDATE runs SET requirements = 'produces=merged'": "runs",
    "UPDATE runs SET requester = 'a b'": "runs",
    "UPDATE runs SET launcher = 'cron'": "runs",
    "UPDATE runs SET env = '{\"A\":1}'": "runs",
    "UPDATE runs SET receipts = '[[]]'": "runs",
    "UPDATE adjudications SET ruling = 'perhaps'": "adjudications",
    "UPDATE adjudications SET ruling = 'set_aside'": "adjudications",
    "UPDATE adjudications SET source = NULL": "adjudications",
    "UPDATE adjudications SET blockers = '7'": "adjudications",
    "UPDATE claims SET said_by = '7' WHERE version = 1": "claims",
    "UPDATE runs SET trainer = '" + "[" * 50_000 + "'": "runs",
}


@pytest.mark.parametrize("statement", BROKEN, ids=range(len(BROKEN)))
def test_a_cell_that_the_ledger_never_writes_is_refused_by_table(folder: Path, past: Callable[..., None], statement: str) -> None:
    past("PRAGMA ignore_check_constraints=ON", statement)
    found = refused(folder)
    assert [type(each) for each in found] == [RowUnreadable]
    assert isinstance(found[0], RowUnreadable)
    assert found[0].table == BROKEN[statement]


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM facts WHERE version = 6", "DELETE FROM facts WHERE version = 3", "UPDATE facts SET version = 9 WHERE version = 6"],
)
def test_a_fact_that_was_taken_out_or_moved_is_seen(folder: Path, past: Callable[..., None], statement: str) -> None:
    past(statement)
    assert refused(folder) == (LedgerOutOfOrder(RUN, (1, 2, 3, 4, 5, 6, 7)),)
    assert codes(folder) == Counter(["ReferenceBroken", "LedgerOutOfOrder"])


def test_facts_without_their_run_are_found(folder: Path, past: Callable[..., None]) -> None:
    past("DELETE FROM runs")
    found = codes(folder)
    assert found["RunUnknown"] == 1
    assert found["SweepOfUnknownRun"] == 1


def test_a_list_with_a_row_that_cannot_be_read_names_the_store(folder: Path, past: Callable[..., None]) -> None:
    past("UPDATE runs SET recipe_name = 'no json'")
    with SqliteStore.open(folder, create=False) as store, pytest.raises(StoreError) as caught:
        store.list_runs()
    assert isinstance(caught.value.failure, StoreDamaged)


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
    return planted(checks, "_log_findings", lambda path: iter(()))()


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


# ------------------------------------------------------------------------------------------------------- observations


def test_a_sweep_that_was_changed_is_refused_and_found(folder: Path, past: Callable[..., None]) -> None:
    past("UPDATE sweeps SET document = x'7b207d'", name=OBSERVATIONS_FILE)
    with SqliteStore.open(folder, create=False) as store:
        answer = store.load_sweep("s1")
        assert isinstance(answer, Refused)
        assert [type(each) for each in answer.defects] == [SweepDamaged]
        assert store.latest_sweep(RUN) == answer
    assert codes(folder) == Counter(["SweepDamaged"])


def test_a_verdict_under_another_run_and_a_sweep_of_none_are_found(folder: Path, past: Callable[..., None]) -> None:
    past(f"UPDATE verdicts SET run_id = '{'0' * 32}'", name=OBSERVATIONS_FILE)
    assert codes(folder) == Counter(["VerdictOfAnotherRun", "AgendaEntryMissing"])
    past(f"UPDATE sweeps SET run_id = '{'0' * 32}'", name=OBSERVATIONS_FILE)
    assert codes(folder) == Counter(["SweepOfUnknownRun", "AgendaEntryMissing"])


def test_an_open_run_that_the_agenda_passes_over_is_found_and_a_look_mends_it(folder: Path) -> None:
    with SqliteStore.open(folder, create=False) as store:
        recorded(store, desired("weekly"))
        weekly = demand_id("weekly").run_id()
        with closing(sqlite3.connect(folder / LEDGER_FILE)) as raw, raw:
            raw.execute("DELETE FROM agenda")
        (finding,) = store.check()
        assert (finding.code, weekly in finding.what, weekly in finding.remedy) == ("AgendaEntryMissing", True, True)
        store.record_sweep(weekly, "s2", b"{}", 1, 2)
        store.record_verdict("s2", StoredVerdict("InProgress", False, 0, b"on its way"))
        assert store.check() == ()
        assert [each.run_id for each in store.list_runs(open_only=True)] == [weekly]
