"""A database server that crashes while controllers work and in the middle of their transactions: ``pg_ctl stop -m immediate`` and a start.

Every controller is the command line in a process of its own. What was not committed is not there, what was committed is, and nothing is
started twice; a controller goes on by itself or ends with a plain message, and then another one goes on.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.files import procfs
from countermark.store import ledger
from tests.app.bench import HONEST, Bench, arm, fixtures
from tests.app.test_rounds import executions
from tests.faults import planted, proven_by
from tests.launch.conftest import Place
from tests.postgres import Cluster, postgres_cluster
from tests.torture import planting
from tests.torture.ledgers import ports_at

HERE: Final = Path(__file__).parent
WAIT_S: Final = 120.0
ALL: Final = ("reconcile", "--all", "--act", "--watch")
FACTS: Final = ("claim", "intent", "outcome")


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server that only these tests crash."""
    with postgres_cluster() as found:
        yield found


@pytest.fixture
def bench(server: Cluster, tmp_path: Path, made: Path) -> Iterator[Bench]:
    fixtures(tmp_path, made)
    address = server.new_database()
    with ports_at(tmp_path / ".countermark", address, create=True) as ports:
        found = Bench(tmp_path, ports, address)
        yield found
        for process in found.controllers:
            process.kill()
            process.wait(timeout=20)
        Place(found.store).close()
    server.give_back(address)


class Controller:
    """The command line over the bench's ledger. ``fact``: what it is held in the transaction of, unless somebody was before."""

    def __init__(self, bench: Bench, name: str, fact: str, *words: str) -> None:
        self.flag = bench.root / "held"
        self.heard = bench.root / f"heard-{name}"
        command = [sys.executable, "-m", "tests.torture.held", *planting.FAULTS, *words, fact, str(self.flag)]
        with self.heard.open("w", encoding="utf-8") as stream:
            # The folder of the ledger is this one's; the working folder is where modules of tests are found.
            self.process = subprocess.Popen(
                [*command, *ALL, "--store", bench.address], cwd=bench.root, stdout=stream, stderr=stream, env=_environment()
            )
        bench.controllers.append(self.process)

    def is_held(self) -> bool:
        row = procfs.read_stat(self.process.pid)
        return self.flag.exists() and row is not None and row.stopped

    def wake(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def said(self) -> str:
        return self.heard.read_text(encoding="utf-8")

    def code(self) -> int:
        return self.process.wait(timeout=WAIT_S)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parents[1])}


def nobody_is_waited_for() -> AbstractContextManager[object]:
    return planted(planting, "FAULTS", ("impatient",))()


def waiting_for_a_lock(server: Cluster) -> bool:
    ((number,),) = server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'")
    return bool(number)


def once_each(bench: Bench, runs: dict[str, Path]) -> None:
    """Every run came to its end by one attempt, which was executed once."""
    assert {run: (arm(bench.look(run)), executions(place), bench.causes(run)) for run, place in runs.items()} == dict.fromkeys(
        runs, ("Converged", 1, ["InitialAttempt"])
    )
    assert bench.ports.store.check() == ()


@pytest.mark.parametrize("fact", FACTS)
@proven_by(nobody_is_waited_for)
def test_a_crash_in_the_middle_of_a_transaction_leaves_nothing_of_it_and_both_controllers_go_on(
    bench: Bench, server: Cluster, fact: str
) -> None:
    """One is held with the rows written and the run's row locked, another comes to the same run; the server crashes under both."""
    runs = bench.many(1, *HONEST)
    (run,) = runs
    first = Controller(bench, "first", fact)
    bench.wait(first.is_held)
    second = Controller(bench, "second", fact)
    if fact != "outcome":
        # What runs already asks for no more than looking.
        bench.wait(lambda: waiting_for_a_lock(server))
    before = bench.record(run).ledger
    assert {"claim": before.claims, "intent": before.intents, "outcome": before.outcomes}[fact] == ()
    server.restart("immediate")
    # The lock of who was held is gone with its transaction: the other one is not kept from anything.
    assert second.code() == 0, second.said()
    once_each(bench, runs)
    first.wake()
    assert first.code() == 0, first.said()
    assert "Traceback" not in first.said() + second.said()
    once_each(bench, runs)


@pytest.mark.slow
def test_controllers_that_work_through_crashes_of_the_server_start_nothing_twice(bench: Bench, server: Cluster) -> None:
    runs = bench.many(8, *HONEST)
    (bench.root / "held").touch()
    controllers = [Controller(bench, str(number), "claim") for number in range(3)]
    crashes = 0
    while any(one.process.poll() is None for one in controllers) and crashes < 4:
        time.sleep(0.7)
        server.restart("immediate")
        crashes += 1
    assert [one.code() for one in controllers] == [0, 0, 0], "".join(one.said() for one in controllers)
    assert crashes >= 3
    assert not [one.said() for one in controllers if "Traceback" in one.said()]
    once_each(bench, runs)


@pytest.mark.slow
def test_a_controller_that_gives_up_says_so_plainly_and_the_ledger_goes_on(bench: Bench, server: Cluster) -> None:
    runs = bench.many(1, *HONEST)
    first = Controller(bench, "first", "claim", "impatient")
    bench.wait(first.is_held)
    server.restart("immediate")
    first.wake()
    assert first.code() not in (0, -signal.SIGKILL)
    assert "whether the last fact was written shows then" in first.said().splitlines()[-1] and "Traceback" not in first.said()
    assert bench.claims(next(iter(runs))) == ()
    assert Controller(bench, "second", "claim").code() == 0
    once_each(bench, runs)


def test_a_demand_that_another_records_between_two_statements_is_attached_to(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a storm: it was refused as a run under another's name."""
    honest = ledger.named_as
    others: list[str] = []

    def named_as(*arguments: Any) -> Any:
        if not others:
            others.append("")
            with ports_at(bench.store, bench.url or "") as ports:
                others[0] = Bench(bench.root, ports, bench.url).demand("/bin/true", request="same").record.run_id
        return honest(*arguments)

    monkeypatch.setattr(ledger, "named_as", named_as)
    mine = bench.demand("/bin/true", request="same")
    assert (mine.attached, [mine.record.run_id]) == (True, others)
