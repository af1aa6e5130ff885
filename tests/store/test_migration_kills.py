"""A migration that is killed anywhere leaves the old store or the new one, and the next migration goes on from there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from countermark.store.migrations.outcome import Migrated, NothingToDo
from tests.store.crashing import killed_before_statement, shim
from tests.store.migrating import Old, OldDatabase, OldFolder


@pytest.fixture(params=["postgresql", "sqlite"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    if request.param == "sqlite":
        return OldFolder(tmp_path / "store")
    return OldDatabase(request.getfixturevalue("postgres_url"))


def test_a_kill_before_any_statement_leaves_the_old_store_or_the_new_one(old: Old) -> None:
    before = old.rows()
    # The last statements come after the commit; a store that is new by then has fewer of them.
    kills = new = 0
    while killed_before_statement(old, kills + 1):
        kills += 1
        if old.versions() in ([[1, 2], [1, 2]], [[1, 2]]):
            new += 1
            break
        assert old.versions() in ([[1], [1]], [[1]])
        assert old.rows() == before
    found = old.migrate()
    assert isinstance(found, NothingToDo)
    assert kills >= (30 if old.kind == "sqlite" else 15)
    assert {name: len(rows) for name, rows in old.rows().items()} == {name: len(rows) for name, rows in before.items()}
    with old.open() as store:
        assert store.check() == ()
    assert [path.name for path in old.copies() if path.name.startswith(".")] == []


def killed_in_commit(folder: Path, *how: str) -> list[tuple[str, int, int]]:
    """What was found after each kill at a call of the commit, the earliest call first."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed, and the calls of a commit are counted by a small library: apt-get install gcc")
    environ = {**os.environ, "LD_PRELOAD": str(shim(folder)), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.store.crashing", str(folder), *how]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    return [(word, int(ledger), int(observations)) for word, ledger, observations in words]


@pytest.mark.slow
def test_a_kill_at_any_call_of_the_commit_leaves_both_files_old_or_both_new(tmp_path: Path) -> None:
    found = killed_in_commit(tmp_path)
    versions = [(ledger, observations) for _, ledger, observations in found]
    assert set(versions) == {(1, 1), (2, 2)}
    assert versions == sorted(versions), "what is committed stays so"
    assert found[-1] == ("done", 2, 2) and len(found) > 20
    last_old = versions.count((1, 1))
    for number in (1, last_old // 2, last_old, last_old + 1, len(found)):
        old = OldFolder.__new__(OldFolder)
        old.folder = tmp_path / str(number)
        assert isinstance(old.migrate(), Migrated if versions[number - 1] == (1, 1) else NothingToDo)
        with old.open() as store:
            assert store.check() == ()


@pytest.mark.slow
def test_in_the_log_a_commit_of_two_files_would_be_two(tmp_path: Path) -> None:
    """What the control above is there to see, and why both files leave the log."""
    assert {(2, 1), (1, 2)} & {(ledger, observations) for _, ledger, observations in killed_in_commit(tmp_path, "log")}
