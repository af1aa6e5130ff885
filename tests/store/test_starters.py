"""Sixteen real processes that start at once on a store that is not there yet: all of them come to their work, on one whole store."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from countermark.run.records import RunSummary
from countermark.store.opening import open_store
from tests.store.conftest import KINDS

STARTERS = 16


def new_sqlite(folder: Path, databases: Callable[[], str]) -> str:
    return f"sqlite:///{folder}"


def new_postgresql(folder: Path, databases: Callable[[], str]) -> str:
    return databases()


ADDRESSES = {"postgresql": new_postgresql, "sqlite": new_sqlite}


def what_went_wrong(address: str, *fault: str) -> list[str]:
    """Everything that is not as it must be after all had started at once."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "tests.store.starters", address, str(STARTERS), *fault]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    if done.returncode:
        pytest.exit(f"the starters' own program is broken: {done.stderr}")
    ended: Counter[str] = Counter(json.loads(done.stdout))
    print(f"{STARTERS} starters at {address.partition(':')[0]}: {dict(ended)}")
    if ended != {"ended": STARTERS, "Recorded": 1, "Attached": STARTERS - 1}:
        return [str(dict(ended)), done.stderr]
    with open_store(address, create=False) as store:
        found = {each.demand.request.text for each in store.list_runs() if isinstance(each, RunSummary)}
        lost = {"all", *(f"own-{number}" for number in range(STARTERS))} - found
        return [*map(str, store.check()), *(f"nobody has {request}" for request in sorted(lost))]


@pytest.mark.parametrize("kind", sorted(ADDRESSES))
def test_processes_that_start_at_once_on_a_new_store_all_succeed(kind: str, tmp_path: Path, postgres_databases: Callable[[], str]) -> None:
    for number in range(3):
        assert what_went_wrong(ADDRESSES[kind](tmp_path / str(number), postgres_databases)) == []


@pytest.mark.parametrize("kind", sorted(ADDRESSES))
def test_where_nobody_waits_for_the_making_of_another_some_fail(kind: str, tmp_path: Path, postgres_databases: Callable[[], str]) -> None:
    # What a race breaks shows in most tries, not in each.
    assert any(what_went_wrong(ADDRESSES[kind](tmp_path / str(number), postgres_databases), "no turn") for number in range(6))


def test_every_kind_of_store_is_started_on() -> None:
    assert ADDRESSES.keys() == KINDS.keys()
