"""Waiting: never too short for what is coming, never without an end for what may not come, and cheap meanwhile."""

import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace

from countermark.app import running
from countermark.app.running import Looked, wait_for_change
from countermark.evidence.members import Observed, Population, Terminal
from countermark.launch.local import LocalLauncher
from countermark.observe.processes import Dead, read_process
from countermark.verdict.kinds import GraceRunning, LaunchPending
from tests.app.bench import HONEST, Bench, arm, everything, starts
from tests.faults import planted, proven_by


def launches_nothing(bench: Bench) -> Bench:
    """A bench whose supervisors end before they start anything, so that nobody can tell what was launched."""
    launcher = LocalLauncher(bench.ports.launcher.attempts_root, supervisor=(sys.executable, "-c", "raise SystemExit(1)"))
    return bench.with_ports(launcher=launcher)


def nothing_is_uncertain() -> AbstractContextManager[object]:
    real = running.hope_of

    def hope(looked: Looked) -> object:
        found = real(looked)
        return None if found is None else replace(found, certain=True)

    return planted(running, "hope_of", hope)()


@proven_by(nothing_is_uncertain)
def test_a_launch_of_unknown_outcome_is_waited_for_as_long_as_the_grace(bench: Bench) -> None:
    blind = launches_nothing(bench)
    run = blind.told(HONEST)
    began = time.monotonic()
    looks = 0
    last = None
    for step in running.watch(blind.ports, run, 9, everything):
        assert isinstance(step, running.Step)
        looks += 1
        assert looks <= 4, "it waits for ever"
        last = step.looked
    assert last is not None and isinstance(last.conclusion.verdict, LaunchPending) and blind.executions() == []
    assert time.monotonic() - began >= 0.3


def test_a_grace_that_runs_is_waited_out_without_looking_all_the_time(bench: Bench) -> None:
    """Dispatched, then gone with all its receipts: nothing is seen of it until the grace has passed."""
    run = bench.told(("effective", "kill_all"))
    assert bench.acted(run)
    bench.wait(lambda: isinstance(read_process(bench.folder(run)), Dead))
    for name in ("start.json", "process.json"):
        (bench.folder(run) / name).unlink(missing_ok=True)
    patient = bench.with_ports(grace_ms=1500)
    steps = [step for step in running.watch(patient.ports, run, 0, starts) if isinstance(step, running.Step)]
    arms = [arm(step.looked) for step in steps]
    assert arms[-1] == "Lost" and set(arms[:-1]) == {"LaunchPending"}
    waits = [why for step in steps for why in step.looked.conclusion.why_not if isinstance(why, GraceRunning)]
    assert all(why.grace_ms == 1500 for why in waits)
    assert len(steps) <= 5, "between two sweeps only receipts and locks are looked at"


def test_what_changed_between_the_look_and_the_waiting_ends_the_waiting(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    looked = bench.look(run)
    assert arm(looked) == "InProgress"
    began = time.monotonic()
    wait_for_change(bench.ports, looked, 0.3)
    assert 0.3 <= time.monotonic() - began < 5, "nothing changed"
    bench.go_on()
    bench.wait((bench.folder(run) / "terminal.json").exists)
    began = time.monotonic()
    wait_for_change(bench.ports, looked, 20.0)
    assert time.monotonic() - began < 5


def no_end_is_news() -> AbstractContextManager[object]:
    return planted(running, "_ended_meanwhile", lambda sweep: False)()


@proven_by(no_end_is_news)
def test_an_end_that_only_the_second_reading_shows_is_looked_at_once_more(bench: Bench) -> None:
    """A trainer that says what it ran only at its end: this sweep read the manifests too early for it."""
    run = bench.told(("effective", "output"))
    assert arm(bench.ended(run)) == "Converged"
    real = running.look
    hidden = (bench.folder(run) / "effective.json").rename(bench.root / "not yet")
    sweeps = 0

    def early(*arguments: object) -> object:
        """The first sweep sees neither the end nor the manifest at their first reading."""
        nonlocal sweeps
        sweeps += 1
        sweep = real(*arguments)  # type: ignore[arg-type]
        if sweeps > 1:
            return sweep
        hidden.rename(bench.folder(run) / "effective.json")
        seen = sweep.reads.terminals.population.readings.first
        assert isinstance(seen.arm, Observed)
        empty: Population[Terminal] = Population(
            replace(sweep.reads.terminals.population.readings, first=replace(seen, arm=replace(seen.arm, members=())))
        )
        reads = replace(sweep.reads, terminals=replace(sweep.reads.terminals, population=empty))
        return replace(sweep, reads=reads)

    with planted(running, "look", early)():
        said, _ = bench.watched(run)
    assert said == ["ObservationRequired", "Converged"]
