"""A database server that goes away while controllers work: it is waited for, told of, and nothing is started twice for it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Timer
from typing import Any, Final

import pytest

from countermark.app import patience
from countermark.app.rounds import Pause, Rounds
from countermark.store.failures import LoginRefused, ServerUnreachable, StoreError, StoreLocked
from countermark.store.postgres import PostgresStore
from tests.app.bench import HONEST, Bench
from tests.app.test_rounds import PACE, controller, executions, verdict_of
from tests.faults import planted, proven_by
from tests.postgres import Cluster, Mode, postgres_cluster

pytestmark = pytest.mark.slow

AWAY_S: Final = 0.3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server that only these tests stop and start."""
    with postgres_cluster() as found:
        yield found


class Outages:
    """Ends the server, and has it started again a little later."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._starting: list[Timer] = []

    def away(self, mode: Mode) -> None:
        self._cluster.stop(mode)
        self._starting.append(Timer(AWAY_S, self._cluster.start))
        self._starting[-1].start()

    def over(self) -> None:
        for timer in self._starting:
            timer.join()
        if not (self._cluster.data / "postmaster.pid").exists():
            self._cluster.start()


@pytest.fixture
def outages(cluster: Cluster) -> Outages:
    return Outages(cluster)


@pytest.fixture
def ledger(cluster: Cluster, outages: Outages) -> Iterator[str]:
    address = cluster.new_database()
    yield address
    outages.over()
    cluster.give_back(address)


def only_locks_mend_themselves() -> AbstractContextManager[object]:
    return planted(patience, "mends_itself", lambda error: isinstance(error.failure, StoreLocked))()


def turns_of(rounds: Rounds) -> Iterator[Any]:
    """The controller's turns; where it gives up, that is a failure of the control."""
    try:
        yield from rounds.turns()
    except StoreError as error:
        pytest.fail(f"the controller gave up: {error}")


@pytest.mark.parametrize("mode", ["fast", "kill"])
@proven_by(only_locks_mend_themselves)
def test_a_server_that_is_started_again_is_waited_for_between_any_two_turns(bench: Bench, outages: Outages, mode: Mode) -> None:
    runs = bench.many(2, *HONEST)
    told: list[str] = []
    last: dict[str, str] = {}
    for number, turn in enumerate(turns_of(controller(bench, told=told.append))):
        if not isinstance(turn, Pause):
            last[turn.run.run_id] = verdict_of(turn)
        if number < 3:
            outages.away(mode)
    assert last == dict.fromkeys(runs, "Converged")
    assert {run: executions(place) for run, place in runs.items()} == dict.fromkeys(runs, 1)
    assert sum(line == "the store answers again" for line in told) == sum("trying again for 60 s" in line for line in told) >= 3
    assert all("the database server cannot be reached" in line for line in told if "trying" in line)
    assert bench.ports.store.check() == ()


#: The calls that a launch is made of, with what comes before and after it.
CALLS: Final = {
    "before": ("record_sweep", "claim_start", "record_dispatch_intent", "record_dispatch_outcome"),
    "after": ("claim_start", "record_dispatch_intent", "record_dispatch_outcome"),
}


@pytest.mark.parametrize("when", ["before", "after"])
@proven_by(only_locks_mend_themselves)
def test_a_server_that_goes_away_in_the_middle_of_a_turn_starts_nothing_twice(
    bench: Bench, outages: Outages, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before a call nothing of it is recorded; after it, what was recorded stands, and its answer is lost."""
    (run,), place = bench.many(1, *HONEST), bench.root / "place-0"
    left = set(CALLS[when])

    def away(name: str) -> None:
        if name in left:
            left.remove(name)
            outages.away("immediate")

    def breaks(name: str) -> None:
        real = getattr(PostgresStore, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            if when == "before":
                away(name)
                return real(self, *arguments, **options)
            answer = real(self, *arguments, **options)
            if name in left:
                away(name)
                raise StoreError(ServerUnreachable("here", "the answer was lost"))
            return answer

        monkeypatch.setattr(PostgresStore, name, call)

    for name in CALLS[when]:
        breaks(name)
    found: dict[str, Any] = {}
    for turn in turns_of(controller(bench)):
        if not isinstance(turn, Pause):
            found[turn.run.run_id] = verdict_of(turn)
    assert left == set() and found == {run: "Converged"}
    assert executions(place) == 1 and bench.causes(run) == ["InitialAttempt"] and bench.ports.store.check() == ()


def spawned(bench: Bench, *options: str) -> tuple["subprocess.Popen[str]", Path]:
    """The command line as a controller that stays, and the file of what it says."""
    args = ("reconcile", "--all", "--act", "--watch", "--stay", "--store", bench.address, *options)
    heard = bench.root / "heard"
    with heard.open("w", encoding="utf-8") as stream:
        command = [sys.executable, "-m", "countermark.cli.entry", *args]
        process = subprocess.Popen(command, cwd=bench.root, stdout=subprocess.PIPE, stderr=stream, text=True)
    bench.controllers.append(process)
    return process, heard


def test_a_controller_that_stays_outlives_a_restart_and_ends_at_once_when_it_is_interrupted(bench: Bench, cluster: Cluster) -> None:
    first = bench.told(HONEST)
    process, heard = spawned(bench)
    bench.wait(lambda: not bench.ports.store.list_runs(open_only=True))
    cluster.stop("fast")
    bench.wait(lambda: "the database server cannot be reached" in heard.read_text(encoding="utf-8"))
    cluster.start()
    bench.wait(lambda: "the store answers again" in heard.read_text(encoding="utf-8"))
    ((later, place),) = bench.many(1, *HONEST).items()
    bench.wait(lambda: not bench.ports.store.list_runs(open_only=True))
    assert (len(bench.executions()), executions(place)) == (1, 1)
    cluster.stop("fast")
    bench.wait(lambda: heard.read_text(encoding="utf-8").count("cannot be reached") == 2)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(timeout=20) == 130 and time.monotonic() - began < 10
    cluster.start()
    said = heard.read_text(encoding="utf-8").splitlines()
    assert said[-1].startswith("countermark: interrupted; ") and "Traceback" not in "".join(said)
    assert sum(f"run {later[:8]}: claimed" in line for line in said) == sum(f"run {first[:8]}: claimed" in line for line in said) == 1


# ------------------------------------------------------------------------------------------------------- how it is waited


def nothing_is_told_of_the_end() -> AbstractContextManager[object]:
    real = patience.patiently
    return planted(
        patience, "patiently", lambda act, told, *rest: real(act, lambda line: None if "again" in line[-6:] else told(line), *rest)
    )()


@proven_by(nothing_is_told_of_the_end)
def test_the_waiting_is_told_of_ever_more_rarely_and_so_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    monkeypatch.setattr(patience.time, "monotonic", lambda: clock)
    monkeypatch.setattr(patience.time, "sleep", sleep)

    def act() -> str:
        if clock < 3000:
            raise StoreError(ServerUnreachable("here", "refused"))
        return "done"

    told: list[str] = []
    assert patience.patiently(act, told.append, patience.STAYING_S) == "done"
    waits = [int(line.rpartition("for ")[2].removesuffix(" s")) for line in told[:-1]]
    assert [int(patience.STAYING_S) - left for left in waits] == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430]
    assert told[-1] == "the store answers again"
    clock = 0.0
    with pytest.raises(StoreError):
        patience.patiently(act, told.append)
    assert 60 <= clock < 62


@pytest.mark.parametrize(("stay", "longest_s"), [(False, patience.PATIENCE_S), (True, patience.STAYING_S)])
def test_who_stays_waits_longer_than_who_waits_for_an_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, stay: bool, longest_s: float
) -> None:
    waited: list[float] = []

    def patiently(act: Any, told: Any, patience_s: float) -> Any:
        waited.append(patience_s)
        return act()

    monkeypatch.setattr("countermark.app.rounds.patiently", patiently)
    next(Rounds(bench.ports, 0, lambda verdict: False, shares=True, stay=stay, pace=PACE).turns(), None)
    assert waited and set(waited) == {longest_s}


def test_a_login_that_is_refused_is_said_at_once() -> None:
    calls: list[int] = []

    def act() -> None:
        calls.append(1)
        raise StoreError(LoginRefused("here", "ada", "password authentication failed"))

    with pytest.raises(StoreError):
        patience.patiently(act, lambda line: None)
    assert len(calls) == 1
