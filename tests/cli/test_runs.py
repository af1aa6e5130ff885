"""``countermark runs --where``: which runs a filter lists, over a ledger in a folder and one in a database, and what it refuses."""

from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import true

from countermark.store import ledger
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.cli.test_ledgers import BOTH, address
from tests.faults import planted, proven_by

__all__ = ["address"]

FIRST: Final = "topics-ä 50%"
SECOND: Final = "Topics"


@pytest.fixture
def store(here: Path, call: Caller, address: str) -> str:
    """Two runs whose command failed; the second one was cancelled after that, and closed."""
    for seed, name in ((7, FIRST), (8, SECOND)):
        recipe = here / write_recipe(here, name=f"{seed}.toml", seed=str(seed))
        recipe.write_text(recipe.read_text("utf-8").replace('"toy"', f'"{name}"'), "utf-8")
        called = call("run", recipe.name, "--json", "--store", address, "--", "sh", "-c", "exit 3")
        assert called.code == 1, called.err
    assert call("cancel", str(called.document()["run"]), "--store", address).code == 0
    return address


def listed(call: Caller, store: str, where: str) -> list[str]:
    """The names of the recipes of the runs that a filter lists, newest first."""
    called = call("runs", "--where", where, "--store", store, "--json")
    assert called.code == 0, called.err
    return [run["name"] for run in called.document()["runs"]]


@BOTH
@proven_by(planted(ledger, "condition", lambda where, rows, dialect: true()))
def test_a_filter_lists_the_runs_that_it_holds_for(call: Caller, store: str) -> None:
    run = call("runs", "--where", "closed = false", "--store", store, "--json").document()["runs"][0]["run"]
    work = call("status", run, "--store", store, "--json").document()["workKey"]
    for where, names in {
        "closed = false": [FIRST],
        "closed != false": [SECOND],
        "verdict = 'Cancelled'": [SECOND],
        "verdict != 'Cancelled' AND verdict IS NOT NULL": [FIRST],
        f"recipe = '{FIRST}'": [FIRST],
        r"recipe LIKE 'topics-_ 50\%'": [FIRST],
        "recipe LIKE 'topics%'": [FIRST],
        "recipe ILIKE 'topics%'": [SECOND, FIRST],
        "recipe < 'a'": [SECOND],
        f"id = '{run}'": [FIRST],
        f"id NOT IN ('{run}', 'x')": [SECOND],
        f"work = '{work}'": [FIRST],
        f"work LIKE '{work[:12]}%' OR work < 'wk1:'": [FIRST],
        "requester = 'nobody' OR launcher != 'local'": [],
        "principal IS NULL OR request IS NULL": [],
        "created > '2026-01-01' AND created < '9999-12-31'": [SECOND, FIRST],
        "created < '2026-01-01T00:00:00Z'": [],
    }.items():
        assert (where, listed(call, store, where)) == (where, names)


@BOTH
def test_a_filter_that_no_run_satisfies_is_answered_and_no_refusal(call: Caller, store: str) -> None:
    called = call("runs", "--where", "recipe = 'x'", "--store", store)
    assert (called.code, called.out, called.err) == (0, "no run\n", "")


def test_everything_that_is_wrong_with_a_filter_is_told_at_once(call: Caller, store: str) -> None:
    wrong = "recipes = 'a' AND created = 7 OR closed LIKE 'x' AND ;"
    called = call("runs", "--where", wrong, "--json", "--store", store)
    assert called.code == 1
    assert [(each["code"], each["at"]) for each in called.document()["defects"]] == [
        ("FilterKeyUnknown", 1),
        ("FilterValueUnfit", 29),
        ("FilterOperatorUnfit", 34),
        ("FilterCharacterUnknown", 54),
    ]
    said = call("runs", "--where", "recipes = 'a'", "--store", store)
    assert (said.code, said.out) == (1, "")
    assert said.err == "refused: FilterKeyUnknown: 'recipes' at character 1 of the filter is no key of runs\n  → write recipe\n"


def test_a_filter_cannot_become_a_part_of_the_query(call: Caller, store: str) -> None:
    assert listed(call, store, "recipe = ''' OR 1=1 --'") == []
    assert listed(call, store, 'recipe = "\'; DROP TABLE runs; --"') == []
    assert listed(call, store, "recipe IS NOT NULL") == [SECOND, FIRST]
