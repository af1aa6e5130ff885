"""Many runs and several controllers: each run is advanced, none waits for another, nothing is started twice, and it ends."""

import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.app import patience, rounds, running
from countermark.app.rounds import Pace, Pause, Rounds, Turn, once_each
from countermark.app.running import Step, StepRefused
from countermark.store.failures import StoreError, StoreForbidden, StoreLocked
from countermark.values import Refused
from tests.app import test_rounds as here
from tests.app.bench import BOTH_LEDGERS, HONEST, Bench, arm, everything, names, nothing
from tests.app.planting import in_controllers
from tests.faults import planted, proven_by
from tests.store.past import Past

pytestmark = BOTH_LEDGERS

#: Short, so that what a killed controller held is free again soon.
PACE: Final = Pace(lease_ms=1500, hope_ms=20_000, rest_ms=120_000, nap_s=0.1)
WAIT_S: Final = 60.0


def executions(place: Path) -> int:
    count = place / "count"
    return len(count.read_text(encoding="utf-8").splitlines()) if count.exists() else 0


def controller(bench: Bench, retries: int = 0, allowed: Any = everything, stay: bool = False, **more: Any) -> Rounds:
    return Rounds(bench.ports, retries, allowed, shares=allowed is everything, stay=stay, pace=PACE, **more)


def until_the_end(turns: Iterator[Turn | Pause]) -> dict[str, Turn]:
    """The last turn of each run."""
    deadline = time.monotonic() + WAIT_S
    found: dict[str, Turn] = {}
    for turn in turns:
        assert time.monotonic() < deadline, f"still going after {WAIT_S} s"
        if isinstance(turn, Turn):
            found[turn.run.run_id] = turn
    return found


def verdict_of(turn: Turn) -> str:
    return "refused" if isinstance(turn.step, Refused) else arm(turn.step.looked)


# --------------------------------------------------------------------------------------------------- several controllers


@proven_by(in_controllers("everybody_takes_everything", "claims_are_keyed_by_attempt"))
def test_several_controllers_bring_many_runs_to_their_end_and_start_each_once(bench: Bench) -> None:
    runs = bench.many(8, *HONEST)
    processes = [bench.controller(None, "--rounds") for _ in range(3)]
    bench.wait(lambda: all(process.poll() is not None for process in processes), WAIT_S)
    assert all(process.returncode == 0 for process in processes), [process.communicate() for process in processes]
    assert {run: executions(place) for run, place in runs.items()} == dict.fromkeys(runs, 1)
    assert {cause for run in runs for cause in bench.causes(run)} == {"InitialAttempt"}
    assert bench.ports.store.list_runs(open_only=True) == ()


def test_what_the_agenda_shares_out_badly_is_still_started_once(bench: Bench) -> None:
    with in_controllers("everybody_takes_everything")():
        test_several_controllers_bring_many_runs_to_their_end_and_start_each_once(bench)


def test_a_killed_controllers_runs_are_finished_by_the_others(bench: Bench) -> None:
    runs = bench.many(6, "effective", "hang", "output")
    first, second = (bench.controller(None, "--rounds") for _ in range(2))
    bench.wait(lambda: sum(executions(place) for place in runs.values()) >= 3)
    first.send_signal(signal.SIGKILL)
    assert first.wait(timeout=20) == -signal.SIGKILL
    for place in runs.values():
        (place / "go on").touch()
    assert second.wait(timeout=120) == 0
    assert {run: executions(place) for run, place in runs.items()} == dict.fromkeys(runs, 1)
    assert bench.ports.store.list_runs(open_only=True) == ()


def one_by_one() -> AbstractContextManager[object]:
    return planted(Rounds, "_limit", lambda self, done, took_s: 1)()


@proven_by(one_by_one)
def test_a_controller_takes_as_many_runs_as_it_can_see_to_in_time_and_no_more(bench: Bench) -> None:
    rounds = controller(bench)
    # Twice as many as before at the most; as many as fit into the time of a batch; never more than the bound, never none.
    assert rounds._limit(4, 0.01) == 8
    assert rounds._limit(100, PACE.batch_s * 2) == 50
    assert rounds._limit(PACE.batch_max, 0.001) == PACE.batch_max
    assert rounds._limit(1, 60.0) == 1 and rounds._limit(1, 0.0) == 2


# ------------------------------------------------------------------------------------------------------- no run waits


def run_by_run() -> AbstractContextManager[object]:
    """Each run is watched to its end before the next one is looked at."""

    def to_the_end(ports: Any, run_id: str, retries: int, allowed: Any, progress: Any) -> Any:
        deadline = time.monotonic() + 8
        steps: list[Any] = []
        for step in running.watch(ports, run_id, retries, allowed):
            assert time.monotonic() < deadline, "the run that hangs keeps the other one waiting"
            steps.append(step)
        return steps[-1]

    return planted(rounds, "step_of", to_the_end)()


@proven_by(run_by_run)
def test_a_trainer_at_work_keeps_no_other_run_waiting(bench: Bench) -> None:
    (slow,) = bench.many(1, "effective", "hang 12", "output")
    quick = bench.told(HONEST)
    for turn in controller(bench).turns():
        if isinstance(turn, Turn) and turn.run.run_id == quick and turn.closed:
            break
    assert arm(bench.look(slow)) == "InProgress"
    (bench.root / "place-0" / "go on").touch()
    assert [verdict_of(turn) for turn in until_the_end(controller(bench).turns()).values()] == ["Converged"]


def no_change_shows() -> AbstractContextManager[object]:
    return planted(rounds, "changed", lambda signs: False)()


@proven_by(no_change_shows)
def test_an_end_on_this_host_is_noticed_long_before_the_run_is_due(bench: Bench) -> None:
    (run,) = bench.many(1, "effective", "hang", "output")
    turns = controller(bench).turns()
    for turn in turns:
        if isinstance(turn, Turn) and verdict_of(turn) == "InProgress":
            break
    (bench.root / "place-0" / "go on").touch()
    began = time.monotonic()
    for turn in turns:
        assert time.monotonic() - began < 8, "it waits until the run is due"
        if isinstance(turn, Turn) and turn.closed:
            break
    assert arm(bench.look(run)) == "Converged"


def the_first_refusal_ends_it() -> AbstractContextManager[object]:
    real = rounds.step_of

    def step(*arguments: Any) -> Any:
        found = real(*arguments)
        assert not isinstance(found, Refused | StepRefused), "refused"
        return found

    return planted(rounds, "step_of", step)()


#: What somebody's own tools did to a run's row: it can be listed and not read, or not even listed as the others are.
DAMAGES: Final = {
    "another manifest": """manifest = replace(manifest, '"seed":"17"', '"seed":"18"')""",
    "a requester that is none": "requester = 'two words'",
}


@proven_by(the_first_refusal_ends_it)
def test_damaged_rows_and_refusals_keep_no_other_run_waiting(bench: Bench) -> None:
    broken = [bench.demand("no-such-command", request=f"broken-{number}").record.run_id for number in range(len(DAMAGES))]
    refused = bench.told(("effective", "leave 3"))
    (fine,) = bench.many(1, *HONEST)
    past = Past(bench.ports.store, bench.url or "")
    for run, damage in zip(broken, DAMAGES.values(), strict=True):
        past.change(f"UPDATE runs SET {damage} WHERE run_id = '{run}'")
    found = until_the_end(controller(bench).turns())
    assert {run: verdict_of(turn) for run, turn in found.items()} == {
        **dict.fromkeys(broken, "refused"), refused: "RetryRequired", fine: "Converged",
    }  # fmt: skip
    assert isinstance(found[refused].step, StepRefused)
    assert [names(found[run].step) for run in broken] == [["WorkKeyRowMismatch"], ["RowUnreadable"]]
    for allowed in (everything, nothing):
        again = {turn.run.run_id: verdict_of(turn) for turn in once_each(bench.ports, 0, allowed)}
        assert again == {**dict.fromkeys(broken, "refused"), refused: "RetryRequired"}
    watched = until_the_end(controller(bench, allowed=nothing).turns())
    assert {run: verdict_of(turn) for run, turn in watched.items()} == again


# ------------------------------------------------------------------------------------------------------- when it ends


@dataclass
class Counted:
    """The store, which counts its calls."""

    store: Any
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self.store, name)


def closed_runs_are_listed() -> AbstractContextManager[object]:
    real = rounds.step_of
    return planted(rounds, "step_of", lambda ports, run_id, *rest: (ports.load(run_id), real(ports, run_id, *rest))[1])()


def test_closed_runs_are_not_even_loaded(bench: Bench) -> None:
    for run in (bench.told(HONEST), *bench.many(1, *HONEST)):
        assert arm(bench.ended(run)) == "Converged"
    counted: Any = Counted(bench.ports.store)
    still = bench.with_ports(store=counted)
    assert until_the_end(controller(still).turns()) == {} and list(once_each(still.ports, 0, everything)) == []
    assert set(counted.calls) == {"take_due", "list_runs", "next_due"}


@proven_by(closed_runs_are_listed)
def test_a_run_is_loaded_once_for_a_look(bench: Bench) -> None:
    run = bench.told(("effective", "leave 3"))
    bench.ended(run)
    counted: Any = Counted(bench.ports.store)
    assert len(list(once_each(bench.with_ports(store=counted).ports, 0, nothing))) == 1
    assert counted.calls.count("load_run") == 1


def test_a_controller_ends_when_waiting_changes_nothing_and_one_that_stays_takes_what_comes_later(bench: Bench) -> None:
    first = bench.told(("effective", "leave 3"))
    found = until_the_end(controller(bench).turns())
    assert {run: verdict_of(turn) for run, turn in found.items()} == {first: "RetryRequired"}
    turns = controller(bench, stay=True).turns()
    assert [isinstance(turn, Pause) for turn in islice((turn for turn in turns if isinstance(turn, Pause)), 3)] == [True] * 3
    (later,) = bench.many(1, *HONEST)
    for turn in turns:
        if isinstance(turn, Turn) and turn.closed:
            assert turn.run.run_id == later
            break


def what_others_left_is_left() -> AbstractContextManager[object]:
    return planted(rounds._Shared, "_unseen", lambda self, limit: ())()


@proven_by(what_others_left_is_left)
def test_what_one_controller_left_at_rest_another_may_be_allowed_to_do(bench: Bench) -> None:
    run = bench.told(("effective", "leave 3"), HONEST)
    assert verdict_of(until_the_end(controller(bench).turns())[run]) == "RetryRequired"
    found = until_the_end(controller(bench, retries=1).turns())
    assert {run: verdict_of(turn) for run, turn in found.items()} == {run: "Converged"}
    assert bench.causes(run) == ["InitialAttempt", "InfrastructureRetry"]


def test_one_that_only_watches_takes_nothing_away_from_those_that_act(bench: Bench) -> None:
    run = bench.told(HONEST)
    counted: Any = Counted(bench.ports.store)
    watching = controller(bench.with_ports(store=counted), allowed=nothing)
    found = until_the_end(watching.turns())
    assert {run: verdict_of(turn) for run, turn in found.items()} == {run: "ExecutionRequired"}
    assert not {"take_due", "look_again"} & set(counted.calls)
    assert verdict_of(until_the_end(controller(bench).turns())[run]) == "Converged"


def test_a_watcher_sees_what_others_do_to_a_run_at_rest(bench: Bench) -> None:
    run = bench.told(HONEST)
    turns = controller(bench, allowed=nothing, stay=True).turns()
    first = next(turns)
    assert isinstance(first, Turn) and verdict_of(first) == "ExecutionRequired"
    assert bench.acted(run)
    deadline = time.monotonic() + WAIT_S
    for turn in turns:
        assert time.monotonic() < deadline
        if isinstance(turn, Turn) and turn.closed:
            break


def acts_are_repeated_at_once() -> AbstractContextManager[object]:
    return planted(here, "PACE", replace(PACE, hope_ms=0))()


@proven_by(acts_are_repeated_at_once)
def test_an_act_that_comes_to_nothing_is_not_repeated_without_a_break(bench: Bench) -> None:
    """A trainer that does not end is asked again, and leaves time for the other runs."""
    one = controller(bench)
    run = bench.told(HONEST)
    step = bench.step(run, allowed=nothing)
    assert isinstance(step, Step)
    stopped = Step(step.looked, running.Acted(("attempt was asked to stop and may still live",)))
    first, second = (one._after_ms(run, stopped) for _ in range(2))
    assert first == 20 and second >= 10_000


def nobody_is_elsewhere() -> AbstractContextManager[object]:
    return planted(rounds, "seen_from_elsewhere", lambda looked: False)()


@proven_by(nobody_is_elsewhere)
def test_what_only_another_host_can_look_at_is_left_for_it_by_one_that_stays(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert bench.with_ports(host="elsewhere").acted(run)
    step = bench.step(run, allowed=nothing)
    assert isinstance(step, Step) and running.hope_of(step.looked) is None
    waits = [controller(bench, stay=stay)._after_ms(run, step) for stay in (True, False)]
    assert waits == [PACE.hope_ms, PACE.rest_ms]
    bench.go_on()


# --------------------------------------------------------------------------------------------- a store that goes away


@dataclass
class GoesAway:
    """The store, which fails some times in a row at each new call of one of its operations."""

    store: Any
    times: int
    error: StoreError
    failed: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.failed.setdefault(name, 0) < self.times:
                self.failed[name] += 1
                raise self.error
            return getattr(self.store, name)(*arguments, **options)

        return call


LOCKED: Final = StoreError(StoreLocked("here", 5000, "7"))


def nothing_mends_itself() -> AbstractContextManager[object]:
    return planted(patience, "mends_itself", lambda error: pytest.fail("given up"))()


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_BETWEEN_S", 0.01)


@pytest.mark.usefixtures("in_haste")
@proven_by(nothing_mends_itself)
def test_a_store_that_goes_away_for_a_moment_is_waited_for(bench: Bench) -> None:
    run = bench.told(HONEST)
    told: list[str] = []
    store: Any = GoesAway(bench.ports.store, 2, LOCKED)
    found = until_the_end(controller(bench.with_ports(store=store), told=told.append).turns())
    assert verdict_of(found[run]) == "Converged" and len(bench.executions()) == 1
    assert store.failed["take_due"] == store.failed["record_sweep"] == store.failed["claim_start"] == 2
    assert told and told[0].startswith("the store is locked by process 7; waited 5.0 s (here): trying again for ")


@pytest.mark.usefixtures("in_haste", "ledger")
@pytest.mark.parametrize("error", [LOCKED, StoreError(StoreForbidden("here", "no"))])
def test_a_store_that_stays_away_or_is_closed_to_us_ends_it(error: StoreError) -> None:
    calls = 0

    def fails() -> None:
        nonlocal calls
        calls += 1
        raise error

    with pytest.raises(StoreError):
        patience.patiently(fails, lambda line: None, patience_s=0.1)
    assert (calls > 3) == (error is LOCKED)
