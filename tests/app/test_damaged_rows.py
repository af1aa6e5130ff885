"""Whatever somebody's own tools did to the rows of one run, every list and every controller still has the others; nothing breaks off."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Column, Integer, LargeBinary

from countermark.app import running
from countermark.app.ports import Ports, opened
from countermark.app.rounds import Pause, Rounds, Turn, once_each
from countermark.app.running import OpenRun, open_runs
from countermark.run.records import RowUnreadable, SweepDamaged
from countermark.store import agenda
from countermark.store.schema import LEDGER, OBSERVATIONS
from countermark.values import Refused
from tests.app.bench import SETTINGS
from tests.faults import planted, proven_by
from tests.run.examples import demand_id, desired
from tests.store.examples import GOING_ON, RUN, fill, recorded
from tests.store.past import Past

WEEKLY: Final = demand_id("weekly").run_id()
#: Texts that the ledger never writes; the last one is no text in a database that looks at what it is given.
TEXTS: Final = ("''", "'two words'", "'{'", "CAST(x'ff' AS TEXT)")
NUMBERS: Final = ("-1", "9223372036854775807")


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ports(address: str, tmp_path: Path) -> Iterator[Ports]:
    """A store in which one run has a row in every table, and another one is fine."""
    with opened(tmp_path / ".countermark", create=True, url=address or None, **SETTINGS) as found:
        fill(found.store, GOING_ON)
        recorded(found.store, desired("weekly"))
        yield found


def nothing(verdict: object) -> bool:
    return False


def seen(ports: Ports) -> dict[str, bool]:
    """Of each list and each kind of controller, whether it has the run that is fine."""
    store = ports.store
    turns = takewhile(lambda turn: not isinstance(turn, Pause), Rounds(ports, 0, nothing, shares=True, stay=False).turns())
    found: dict[str, Any] = {
        "rounds": [turn.run for turn in turns if isinstance(turn, Turn)],
        "list": store.list_runs(),
        "open": store.list_runs(open_only=True),
        "found": store.find_runs(WEEKLY[:8]),
        "status": [each.summary for each in open_runs(ports)],
        "once": [turn.run for turn in once_each(ports, 0, nothing)],
        "due": store.take_due(2**62, 0, 99),
    }
    assert isinstance(store.check(), tuple) and isinstance(store.find_attempt(""), tuple)
    return {name: WEEKLY in {each.run_id for each in listed} for name, listed in found.items()}


def damaged(ports: Ports, address: str, table: str, column: str, value: str) -> None:
    which = "run_id" if table != "sweeps" else "sweep_id"
    Past(ports.store, address).change(f"UPDATE {table} SET {column} = {value} WHERE {which} = '{RUN if which == 'run_id' else 's1'}'")


# --------------------------------------------------------------------------------------------------------- what was found


def the_first_damage_refuses_all() -> AbstractContextManager[object]:
    honest = running._open_run

    def one(ports: Ports, summary: Any) -> OpenRun:
        found = honest(ports, summary)
        assert not found.damage, "refused for all"
        return found

    return planted(running, "_open_run", one)()


@pytest.mark.parametrize(("column", "value"), [("digest", "'two words'"), ("document", "CAST('x' AS {bytes})"), ("arm", "'Perhaps'")])
@proven_by(the_first_damage_refuses_all)
def test_a_damaged_look_is_told_at_its_run_and_hides_no_other(ports: Ports, address: str, column: str, value: str) -> None:
    value = value.replace("{bytes}", "bytea" if address else "blob")
    damaged(ports, address, "verdicts" if column == "arm" else "sweeps", column, value)
    found = {each.summary.run_id: (each.arm, [type(defect) for defect in each.damage]) for each in open_runs(ports)}
    assert found == {RUN: ("", [RowUnreadable if column == "arm" else SweepDamaged]), WEEKLY: ("", [])}
    # A new look takes the place of the damaged one.
    assert not isinstance(running.look_at(ports, RUN), Refused)
    assert [each.damage for each in open_runs(ports) if each.damage] == []


def stray_entries_are_asked_for() -> AbstractContextManager[object]:
    return planted(agenda, "_as_it_lies", lambda run_id: run_id)()


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
@proven_by(stray_entries_are_asked_for)
def test_an_entry_of_stray_bytes_is_hidden_like_any_other_and_never_handed_out(ports: Ports, address: str) -> None:
    damaged(ports, address, "agenda", "run_id", "CAST(x'ff' AS TEXT)")
    try:
        taken = [each.run_id for each in ports.store.take_due(ports.now_ms(), 60_000, 9)]
    except UnicodeEncodeError as error:
        pytest.fail(str(error))
    due = ports.store.next_due()
    assert taken == [WEEKLY] and due is not None and due > ports.now_ms()


# ----------------------------------------------------------------------------------------------------------- every cell


def _cells() -> Iterator[tuple[str, str, str]]:
    for table in (*LEDGER.sorted_tables, *OBSERVATIONS.sorted_tables):
        for column in table.columns:
            # The order of recording is the database's own: who forges it stops what it counts for.
            if table.name != "schema_versions" and column.name != "ordinal" and column.computed is None:
                for value in _values(column):
                    yield table.name, column.name, value


def _values(column: "Column[Any]") -> tuple[str, ...]:
    if isinstance(column.type, LargeBinary):
        return ("CAST('x' AS {bytes})",)
    return NUMBERS if isinstance(column.type, Integer) else TEXTS


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column", "value"), list(_cells()))
def test_no_cell_of_a_run_stops_a_list_or_a_controller(ports: Ports, address: str, table: str, column: str, value: str) -> None:
    if address and value == TEXTS[-1]:
        pytest.skip("this database keeps no text that is none")
    try:
        damaged(ports, address, table, column, value.replace("{bytes}", "bytea" if address else "blob"))
    except Exception as error:
        if "unique" not in str(error).lower() and "out of range" not in str(error) and "generated" not in str(error):
            raise
        pytest.skip("the database does not hold it")
    seeing = seen(ports)
    assert all(seeing.values()), seeing
