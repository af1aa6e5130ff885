"""Several controllers over one ledger, killed for real: one winner a slot, every loser names it, no answer before the commit."""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from countermark.run.records import RunRecord
from countermark.store import creation
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE
from countermark.store.opening import folder_of, make_store, open_store
from countermark.store.sqlite import SqliteStore
from tests.run.examples import demand_id, desired
from tests.store.examples import recorded

ROUNDS = 30
CONTROLLERS = 4


def ran(*arguments: object) -> Counter[str]:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "tests.store.controller", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: Counter[str] = Counter(json.loads(done.stdout))
    assert found["crashed"] == 0, done.stderr
    return found


@pytest.fixture(params=["postgresql", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made, on each kind of database."""
    return request.getfixturevalue("postgres_url") if request.param == "postgresql" else f"sqlite:///{tmp_path / 'store'}"


def raced(folder: Path, address: str, key: str) -> tuple[Counter[str], dict[int, set[str]], dict[int, list[str]]]:
    """Kills, the attempts that were answered in each round, and those that each run's ledger holds."""
    with open_store(address, create=True) as store:
        for number in range(ROUNDS):
            recorded(store, desired(f"r{number}"))
    ended = ran("race", folder, address, CONTROLLERS, ROUNDS, 7, key)
    answered: defaultdict[int, set[str]] = defaultdict(set)
    told: Counter[str] = Counter()
    for path in folder.glob("answers-*"):
        for number, kind, nonce in map(json.loads, path.read_text().splitlines()):
            answered[number].add(nonce)
            told[f"{kind} {nonce}"] += 1
    assert not [line for line, times in told.items() if line.startswith("Committed") and times > 1], "one claim was won twice"
    held: dict[int, list[str]] = {}
    with open_store(address, create=False) as store:
        assert store.check() == ()
        for number in range(ROUNDS):
            record = store.load_run(demand_id(f"r{number}").run_id())
            assert isinstance(record, RunRecord)
            held[number] = [claim.attempt.nonce.hex for claim in record.ledger.claims]
            assert len(record.ledger.intents) == len({intent.attempt for intent in record.ledger.intents})
    return ended, dict(answered), held


def test_killed_controllers_make_one_claim_for_each_slot_and_every_answer_names_it(tmp_path: Path, address: str) -> None:
    ended, answered, held = raced(tmp_path, address, "transition")
    print(f"{CONTROLLERS} controllers, {ROUNDS} slots, {ended['killed']} killed, 0 double claims")
    assert ended["killed"] >= 10
    assert ended["ended"] == CONTROLLERS
    assert {number: len(attempts) for number, attempts in held.items()} == dict.fromkeys(range(ROUNDS), 1)
    assert answered == {number: set(attempts) for number, attempts in held.items()}


def test_keyed_by_the_attempt_the_same_race_makes_several(tmp_path: Path, address: str) -> None:
    _, _, held = raced(tmp_path, address, "attempt")
    assert sum(len(attempts) > 1 for attempts in held.values()) > ROUNDS // 2


@pytest.mark.parametrize("seed", range(8))
def test_makers_of_one_store_that_are_killed_leave_nothing_or_a_whole_store(tmp_path: Path, address: str, seed: int) -> None:
    ended = ran("make", tmp_path, address, 4, seed)
    assert ended["ended"] >= 1
    with open_store(address, create=False) as store:
        assert store.check() == ()
        recorded(store)
    assert not make_store(address), "there is nothing left to be made"
    if (folder := folder_of(address)) is not None:
        assert {path.name for path in folder.iterdir()} == {LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE}


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it to tidy up."""


@pytest.mark.parametrize("step", ["begun", OBSERVATIONS_FILE, LEDGER_FILE])
def test_a_making_that_ends_after_any_step_is_nothing_or_whole(tmp_path: Path, step: str) -> None:
    folder = tmp_path / "store"
    folder.mkdir()

    def kill(done: str) -> None:
        if done == step:
            raise Killed

    with pytest.raises(Killed):
        creation.make_store(folder, kill)
    assert (folder / LEDGER_FILE).exists() == (step == LEDGER_FILE)
    with SqliteStore.open(folder, create=True) as store:
        assert store.check() == ()


def test_what_a_killed_making_left_under_its_temporary_name_is_taken_away(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    for name in (LEDGER_FILE, OBSERVATIONS_FILE):
        for suffix in ("", "-wal", "-journal"):
            (folder / f".{name}.0011223344556677.new{suffix}").write_bytes(b"half")
    SqliteStore.open(folder, create=True).close()
    assert {path.name for path in folder.iterdir()} == {LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE}


def test_a_making_that_fails_half_way_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "store"

    def failing(*asked: object) -> None:
        raise OSError(28, "No space left on device")

    honest: Callable[[object], None] = os.fsync

    def fsync(descriptor: int) -> None:
        failing() if os.path.isfile(f"/proc/self/fd/{descriptor}") else honest(descriptor)

    monkeypatch.setattr(creation.os, "fsync", fsync)
    with pytest.raises(creation.StoreError):
        SqliteStore.open(folder, create=True)
    assert {path.name for path in folder.iterdir()} == {TICKET_FILE}
