"""A check names everything that somebody changed past the store; and what it names, no read believes. On every kind of store."""

from collections import Counter
from contextlib import AbstractContextManager

import psycopg
import pytest

from countermark.recipe import WorkKey
from countermark.recipe.work import bytes_of_material, key_material
from countermark.run import demand as demand_room
from countermark.run.records import (
    DamagedRun,
    LedgerOutOfOrder,
    RowDefect,
    RowUnreadable,
    RunIdRowMismatch,
    RunSummary,
    RunUnknown,
    SlotRowMismatch,
    StoredVerdict,
    SweepDamaged,
    WorkKeyRowMismatch,
)
from countermark.store import Store, checks, ledger, rows
from countermark.store.rows import Row
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import claim, demand_id, desired, nonce, work
from tests.store.conftest import Opener
from tests.store.examples import CONTEXT, RUN, fill, loaded, recorded, won
from tests.store.past import Past

ONE, TWO = nonce(1).hex, nonce(2).hex
WEEKLY = demand_id("weekly").run_id()


@pytest.fixture
def whole(store: Store) -> Store:
    """A whole store with a row in every table."""
    fill(store)
    return store


def codes(store: Store) -> Counter[str]:
    findings = store.check()
    assert all(each.where and each.what and each.remedy for each in findings)
    return Counter(each.code for each in findings)


def refused(store: Store) -> tuple[RowDefect | RunUnknown, ...]:
    answer = store.load_run(RUN)
    assert isinstance(answer, Refused), answer
    assert store.cancel(RUN, "mallory", 9_000) == answer
    return tuple(answer.defects)


# ------------------------------------------------------------------------------------------------------- forged by a hand


def believing() -> AbstractContextManager[object]:
    """A loader that believes the row's Work key."""
    believed = WorkKey(work().principal, work(seed="18").digest)
    return planted(demand_room, "derive_work_key", lambda *material: believed)()


@proven_by(believing)
def test_a_work_key_that_the_material_does_not_give_is_refused(whole: Store, past: Past) -> None:
    other = work(seed="18")
    material = bytes_of_material(key_material(desired(seed="18").manifest, desired().requirements)).hex()
    forged = f"work_digest = '{other.digest.hex}'" if past.in_sqlite else f"material = decode('{material}', 'hex')"
    past.change(f"UPDATE runs SET {forged}")
    assert refused(whole) == (WorkKeyRowMismatch(RUN, other.spell(), work().spell()),)
    assert codes(whole) == Counter(["WorkKeyRowMismatch"])


def test_a_manifest_that_was_changed_gives_another_work_key(whole: Store, past: Past) -> None:
    past.change("""UPDATE runs SET manifest = replace(manifest, '"seed":"17"', '"seed":"18"')""")
    assert refused(whole) == (WorkKeyRowMismatch(RUN, work().spell(), work(seed="18").spell()),)


def test_another_account_is_seen_in_the_slots(whole: Store, past: Past) -> None:
    past.change("UPDATE runs SET principal = 'other'")
    found = refused(whole)
    assert [type(each) for each in found] == [SlotRowMismatch, SlotRowMismatch]
    assert codes(whole) == Counter({"SlotRowMismatch": 2})


def test_another_requester_is_seen_in_the_run_id(whole: Store, past: Past) -> None:
    past.change("UPDATE runs SET requester = 'mallory'")
    assert refused(whole) == (RunIdRowMismatch(RUN, demand_id(requester="mallory").run_id()),)


def test_a_slot_that_the_transition_does_not_give_is_refused(whole: Store, past: Past) -> None:
    past.change(f"UPDATE claims SET slot = '{'e' * 64}' WHERE version = 1")
    derived = claim(1).transition.slot().spell()
    assert refused(whole) == (SlotRowMismatch(RUN, ONE, "sha256:" + "e" * 64, derived),)


def first_wins() -> AbstractContextManager[object]:
    """A loader that stops at its first defect."""
    from countermark.store import ledger

    class First:
        @staticmethod
        def of(found: list[RowDefect]) -> object:
            return NonEmpty.of(found[:1])

    return planted(ledger, "NonEmpty", First)()


@proven_by(first_wins)
def test_every_row_that_is_wrong_is_named_at_once(whole: Store, past: Past) -> None:
    past.change(
        f"UPDATE claims SET slot = '{'e' * 64}' WHERE version = 1",
        "UPDATE intents SET launcher = 'cron'",
        "UPDATE outcomes SET detail = 'no json'",
        "UPDATE runs SET argv = '[1]'",
        "DELETE FROM cancellations",
    )
    wanted = [SlotRowMismatch, RowUnreadable, RowUnreadable, LedgerOutOfOrder, RowUnreadable]
    found = refused(whole)
    assert [type(each) for each in found] == wanted
    assert [each.table for each in found if isinstance(each, RowUnreadable)] == ["intents", "outcomes", "runs"]
    assert codes(whole) == Counter(each.__name__ for each in wanted)


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
def test_a_cell_that_the_ledger_never_writes_is_refused_by_table(whole: Store, past: Past, statement: str) -> None:
    past.change(statement)
    found = refused(whole)
    assert [type(each) for each in found] == [RowUnreadable]
    assert isinstance(found[0], RowUnreadable)
    assert found[0].table == BROKEN[statement]


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM facts WHERE version = 6", "DELETE FROM facts WHERE version = 3", "UPDATE facts SET version = 9 WHERE version = 6"],
)
def test_a_fact_that_was_taken_out_or_moved_is_seen(whole: Store, past: Past, statement: str) -> None:
    past.change(statement)
    assert refused(whole) == (LedgerOutOfOrder(RUN, (1, 2, 3, 4, 5, 6, 7)),)
    assert codes(whole) == Counter(["ReferenceBroken", "LedgerOutOfOrder"])


def test_facts_without_their_run_are_found(whole: Store, past: Past) -> None:
    past.change("DELETE FROM runs")
    found = codes(whole)
    assert found["RunUnknown"] == 1
    assert found["SweepOfUnknownRun"] == 1


# ---------------------------------------------------------------------------------------------------- lists of damaged runs


def told(*why: str, version: int = 0) -> DamagedRun:
    found = NonEmpty.of(RowUnreadable("runs", RUN, each) for each in why)
    assert found is not None
    return DamagedRun(RUN, 1_000, version, False, found)


SOUND = RunSummary(WEEKLY, demand_id("weekly"), CONTEXT.name, 2_000, 0, False)
NO_NAME = "of requester: a name is 1 to 200 letters, digits and ._@:/+- and begins with a letter or digit"
NAMELESS = "recipe_name is no JSON: 'Expecting value: line 1 column 1 (char 0)'"
DAMAGES = {
    "recipe_name = 'no json'": (NAMELESS,),
    "requester = 'a b'": (NO_NAME,),
    "requester = '', recipe_name = '7'": (NO_NAME, "recipe_name is no text"),
    "recipe_name = '\"\u00fc\"'": ("recipe_name is no ASCII",),
}


def raising() -> AbstractContextManager[object]:
    """A list that stops at the first row that cannot be read."""

    def listed(row: Row) -> RunSummary:
        try:
            return RunSummary(RUN, rows.demand_id_of(row), rows.word_of(row, "recipe_name"), 0, 0, False)
        except rows.BadCell as error:
            raise AssertionError(str(error)) from error

    return planted(ledger, "_listed", listed)()


def hiding() -> AbstractContextManager[object]:
    """A list that passes over what it cannot read."""
    honest = ledger._summaries
    return planted(ledger, "_summaries", lambda *asked: tuple(each for each in honest(*asked) if isinstance(each, RunSummary)))()


@proven_by(raising, hiding)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_listed_as_one_and_hides_no_other(store: Store, past: Past, damage: str) -> None:
    recorded(store)
    recorded(store, desired("weekly"), now_ms=2_000)
    past.change(f"UPDATE runs SET {damage} WHERE run_id = '{RUN}'")
    both = (told(*DAMAGES[damage]), SOUND)
    assert store.list_runs() == store.list_runs(open_only=True) == store.take_due(9_000, 1, 9) == both
    assert store.find_runs(RUN) == both[:1]
    assert isinstance(store.load_run(RUN), Refused)
    assert loaded(store, WEEKLY).run_id == WEEKLY
    assert {each.code for each in store.check()} == {"RowUnreadable"}


def test_a_text_of_stray_bytes_stops_neither_a_list_nor_a_reading_of_others(stores: Opener, past: Past) -> None:
    store = stores()
    recorded(store)
    recorded(store, desired("weekly"), now_ms=2_000)
    won(store, 1)
    if not past.in_sqlite:
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
            past.change("UPDATE runs SET recipe_name = convert_from('\\xff', 'UTF8')")
        return
    stray = "CAST(x'22ff22' AS TEXT)"
    past.change(f"UPDATE runs SET recipe_name = {stray}, cwd = {stray} WHERE run_id = '{RUN}'", f"UPDATE claims SET said_by = {stray}")
    both = (told("recipe_name is no ASCII", version=1), SOUND)
    for each in (store, stores()):
        assert each.list_runs() == each.take_due(9_000, 1, 9) == both
        assert loaded(each, WEEKLY).run_id == WEEKLY
        assert each.load_run(RUN) == Refused(
            NonEmpty(RowUnreadable("claims", f"{RUN}/1", "said_by is no ASCII"), (RowUnreadable("runs", RUN, "recipe_name is no ASCII"),))
        )
        each.look_again(RUN, 0)
        each.look_again(WEEKLY, 1)


def test_an_entry_of_the_agenda_without_a_run_stops_nobody(store: Store, past: Past) -> None:
    recorded(store)
    past.change(f"INSERT INTO agenda VALUES ('{'0' * 32}', 5)")
    assert [each.run_id for each in store.take_due(9_000, 1, 9)] == [RUN]
    assert codes(store) == Counter(["ReferenceBroken"])


def test_a_run_under_a_wrong_id_is_named_when_its_demand_comes_again(store: Store, past: Past) -> None:
    recorded(store)
    past.change(f"UPDATE runs SET run_id = '{'0' * 32}'", f"UPDATE agenda SET run_id = '{'0' * 32}'")
    assert store.record_demand(desired(), CONTEXT, 9_000) == Refused(NonEmpty(RunIdRowMismatch("0" * 32, RUN)))
    assert codes(store) == Counter(["RunIdRowMismatch"])


# ------------------------------------------------------------------------------------------------------- observations


def test_a_sweep_that_was_changed_is_refused_and_found(whole: Store, past: Past) -> None:
    past.change("UPDATE sweeps SET document = " + ("x'7b207d'" if past.in_sqlite else "decode('7b207d', 'hex')"))
    answer = whole.load_sweep("s1")
    assert isinstance(answer, Refused)
    assert [type(each) for each in answer.defects] == [SweepDamaged]
    assert whole.latest_sweep(RUN) == answer
    assert codes(whole) == Counter(["SweepDamaged"])


def test_a_verdict_under_another_run_and_a_sweep_of_none_are_found(whole: Store, past: Past) -> None:
    past.change(f"UPDATE verdicts SET run_id = '{'0' * 32}'")
    assert codes(whole) == Counter(["VerdictOfAnotherRun", "AgendaEntryMissing"])
    past.change(f"UPDATE sweeps SET run_id = '{'0' * 32}'")
    assert codes(whole) == Counter(["SweepOfUnknownRun", "AgendaEntryMissing"])


@pytest.mark.parametrize("table", ["sweeps", "verdicts"])
@pytest.mark.parametrize("ordinal", [-1, 2**63 - 1])
@proven_by(planted(checks, "NUMBERED", ()))
def test_a_row_that_the_database_did_not_number_is_found(whole: Store, past: Past, table: str, ordinal: int) -> None:
    past.change(f"UPDATE {table} SET ordinal = {ordinal}")
    found = [(each.code, each.what) for each in whole.check()]
    assert found == [("RowUncounted", f"a row of {table} is numbered {ordinal}, which is no count of rows: those to come are refused")]


def test_an_open_run_that_the_agenda_passes_over_is_found_and_a_look_mends_it(whole: Store, past: Past) -> None:
    recorded(whole, desired("weekly"))
    past.change("DELETE FROM agenda")
    (finding,) = whole.check()
    assert (finding.code, WEEKLY in finding.what, WEEKLY in finding.remedy) == ("AgendaEntryMissing", True, True)
    whole.record_sweep(WEEKLY, "s2", b"{}", 1, 2)
    whole.record_verdict("s2", StoredVerdict("InProgress", False, 0, b"on its way"))
    assert whole.check() == ()
    assert [each.run_id for each in whole.list_runs(open_only=True)] == [WEEKLY]
