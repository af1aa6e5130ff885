"""The crash matrix: a real SIGKILL or SIGSTOP at every row, over every ledger, and the verdict of the next controller, exactly.

Each row is a pair with the run in which nobody is killed (``test_when_nobody_is_killed``), and each is seen red under a fault that breaks
what the row rests on.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import pytest

from countermark.app import acting, running
from countermark.app.running import advance
from countermark.files import locks, procfs
from countermark.files.attempt_folder import ReceiptRead, read_process_receipt, read_start
from countermark.launch import local
from countermark.launch.local import LocalLauncher
from countermark.launch.steps import SupervisorStep
from countermark.observe import processes
from countermark.run.claims import DispatchUnknown, ExecutionClaim
from countermark.values import NonEmpty
from countermark.verdict.kinds import (
    Converged,
    ExecutionRequired,
    InProgress,
    LaunchDispatchRequired,
    LaunchPending,
    Lost,
    OrphanOutput,
    Verdict,
)
from tests.app.bench import HONEST, WAIT_S, Bench, arm, everything, names
from tests.faults import planted, proven_by
from tests.launch.planting import in_supervisor
from tests.torture.conftest import Matrix, processes_of, text
from tests.torture.mortal import STAGES
from tests.torture.planting import in_mortals


def verdict(bench: Bench, run: str) -> Verdict:
    """What the next controller concludes."""
    return bench.look(run).conclusion.verdict


def only_claim(bench: Bench, run: str) -> ExecutionClaim:
    (claim,) = bench.claims(run)
    return claim


def lost(bench: Bench, run: str, seconds: float = WAIT_S) -> Verdict:
    """The verdict once the grace has passed."""
    bench.wait(lambda: not isinstance(verdict(bench, run), InProgress | LaunchPending), seconds)
    return verdict(bench, run)


def converges_in_one_attempt(bench: Bench, run: str) -> None:
    assert arm(bench.ended(run, allowed=everything)) == "Converged"
    assert (bench.executions(), bench.causes(run)) == ([""], ["InitialAttempt"])
    assert bench.ports.store.check() == ()


# ------------------------------------------------------------------------------------------------------ nobody is killed


def test_when_nobody_is_killed(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"))
    assert verdict(bench, run) == ExecutionRequired()
    assert bench.acted(run)
    bench.hanging()
    attempt = only_claim(bench, run).attempt
    assert verdict(bench, run) == InProgress(NonEmpty(attempt))
    bench.go_on()
    converges_in_one_attempt(bench, run)
    looked = bench.look(run)
    assert isinstance(looked.conclusion.verdict, Converged) and looked.conclusion.notes == ()


# --------------------------------------------------------------------------------------------------- controllers are killed


@proven_by(in_mortals("commits_come_too_early"))
def test_killed_before_the_claim_commits_there_is_nothing(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    matrix.die(run, "in the transaction")
    assert (verdict(bench, run), bench.claims(run)) == (ExecutionRequired(), ())
    matrix.die(run, "looked")
    assert (verdict(bench, run), bench.claims(run)) == (ExecutionRequired(), ())
    assert not bench.ports.launcher.attempts_root.exists()
    converges_in_one_attempt(bench, run)


@proven_by(in_mortals("answers_come_before_the_commit"))
def test_killed_after_the_commit_the_same_attempt_is_dispatched(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    matrix.die(run, "claimed")
    assert len(bench.claims(run)) == 1
    claim = only_claim(bench, run)
    assert verdict(bench, run) == LaunchDispatchRequired(NonEmpty(claim.attempt))
    assert bench.record(run).ledger.intents == () and not bench.ports.launcher.attempts_root.exists()
    converges_in_one_attempt(bench, run)
    assert only_claim(bench, run) == claim


@proven_by(in_mortals("outcomes_are_written_before_the_launch"))
def test_killed_after_the_intent_the_launcher_that_creates_or_gets_is_called_again(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    matrix.die(run, "intended")
    claim = only_claim(bench, run)
    assert verdict(bench, run) == LaunchDispatchRequired(NonEmpty(claim.attempt))
    assert len(bench.record(run).ledger.intents) == 1 and not bench.ports.launcher.attempts_root.exists()
    converges_in_one_attempt(bench, run)
    assert only_claim(bench, run) == claim and len(bench.record(run).ledger.outcomes) == 1


@contextmanager
def nothing_is_exclusive() -> Iterator[None]:
    """The launcher does not look for a start, and no receipt and no lock keeps a second one out."""
    seen = local.present
    with (
        in_supervisor("start_is_not_exclusive", "process_is_not_exclusive", "lock_is_not_taken")(),
        patch.object(local, "present", lambda folder, name: name != local.START and seen(folder, name)),
    ):
        yield


@proven_by(nothing_is_exclusive)
def test_killed_after_the_launch_the_running_attempt_is_adopted(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"))
    matrix.die(run, "launched")
    bench.hanging()
    claim = only_claim(bench, run)
    assert verdict(bench, run) == InProgress(NonEmpty(claim.attempt))
    assert bench.record(run).ledger.outcomes == ()
    # Who was about to dispatch it finds it started.
    assert acting.dispatch(matrix.with_supervisor().ports, run, claim.attempt) == acting.Acted(
        (f"dispatched attempt {claim.attempt.nonce.hex[:8]} on {bench.ports.host}: already started",)
    )
    time.sleep(0.5)
    assert len(bench.executions()) == 1
    bench.go_on()
    converges_in_one_attempt(bench, run)


def a_timeout_is_a_refusal() -> AbstractContextManager[object]:
    return planted(LocalLauncher, "_looked", lambda self, folder, said: acting.DispatchRefused(said.why))()


@proven_by(a_timeout_is_a_refusal)
def test_a_launch_call_that_timed_out_is_only_looked_at(matrix: Matrix) -> None:
    """The supervisor is held before its start receipt; it wakes up when nobody waits for it any more, and is the one trainer."""
    bench = matrix.bench
    run = bench.told(HONEST)
    slow = matrix.with_supervisor("--at", "begun", "--act", "freeze_self", timeout_s=2)
    assert isinstance(slow.step(run), running.Step)
    claim = only_claim(bench, run)
    assert [type(outcome.result) for outcome in bench.record(run).ledger.outcomes] == [DispatchUnknown]
    for _ in range(3):
        assert verdict(bench, run) == LaunchPending(NonEmpty(claim.attempt))
        assert bench.acted(run, retries=9) == ()
        time.sleep(0.2)
    wake(bench)
    bench.wait((bench.folder(run) / "terminal.json").exists)
    converges_in_one_attempt(bench, run)


def wake(bench: Bench) -> None:
    """Wake every stopped process of the bench's attempts."""
    for row in processes_of(bench.root):
        if row.stopped:
            procfs.signal_exactly(row.pid, row.start_ticks, signal.SIGCONT)


@pytest.mark.parametrize("stage", STAGES)
@proven_by(in_mortals("half_a_sweep_is_kept"))
def test_killed_during_a_sweep_nothing_of_it_is_kept(matrix: Matrix, stage: str) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    matrix.die(run, f"before {stage}")
    assert bench.ports.store.latest_sweep(run) is None
    assert verdict(bench, run) == ExecutionRequired()
    assert bench.claims(run) == ()


def conclusions_hold_the_time() -> AbstractContextManager[object]:
    return planted(running, "conclusion_lines", lambda conclusion: (str(time.time_ns()),))()


@pytest.mark.parametrize("point", ["concluded", "swept", "verdict written"])
@proven_by(conclusions_hold_the_time)
def test_killed_while_a_verdict_is_written_the_next_one_is_the_same_byte_for_byte(matrix: Matrix, point: str) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    last = bench.ended(run)
    (before,) = bench.ports.store.verdicts(last.sweep_id)
    assert before.arm == "Converged"
    matrix.die(run, point)
    stored = bench.ports.store.latest_sweep(run)
    assert stored is not None and not hasattr(stored, "defects")
    assert (stored.sweep_id == last.sweep_id) == (point == "concluded")
    assert len(bench.ports.store.verdicts(stored.sweep_id)) == (point != "swept")
    after = bench.look(run)
    assert bench.ports.store.verdicts(after.sweep_id) == (before,)
    assert text(after) == text(last) and bench.ports.store.check() == ()


# -------------------------------------------------------------------------------------------------- supervisors are killed


def struck(matrix: Matrix, run: str, *options: str) -> None:
    """Launch the run under a supervisor that is struck, and wait until it is."""
    bench = matrix.with_supervisor(*options)
    assert isinstance(bench.step(run), running.Step)


def supervisor_gone(bench: Bench, run: str) -> bool:
    start = read_start(bench.folder(run))
    assert isinstance(start, ReceiptRead), start
    row = procfs.read_stat(start.receipt.supervisor.pid)
    return row is None or row.ended or row.start_ticks != start.receipt.supervisor.start_ticks


def trainer_gone(bench: Bench, run: str) -> bool:
    return supervisor_gone(bench, run) and not isinstance(locks.probe_lock(bench.folder(run) / "lock"), locks.LockHeld)


def orphan(bench: Bench, run: str) -> tuple[str, ...]:
    """The paths of the outputs that the conclusion names as nobody's success."""
    notes = bench.look(run).conclusion.notes
    return tuple(note.path for note in notes if isinstance(note, OrphanOutput))


def never_starts_again(bench: Bench, run: str) -> None:
    """The same claim is never restarted: who dispatches it again is told that it was."""
    attempt = bench.claims(run)[0].attempt
    answer = acting.dispatch(bench.ports, run, attempt)
    assert answer == acting.Acted((f"attempt {attempt.nonce.hex[:8]} was dispatched before",))


@proven_by(in_supervisor("nothing_happens_at_steps"))
@pytest.mark.parametrize(
    ("step", "act"),
    [("start written", "kill_self"), ("child begun", "kill_both"), ("locked", "kill_both"), ("process written", "kill_both")],
)
def test_a_supervisor_killed_before_command_ran_leaves_a_lost_attempt(matrix: Matrix, step: SupervisorStep, act: str) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "output"))
    struck(matrix, run, "--at", step, "--act", act)
    bench.wait(lambda: trainer_gone(bench, run))
    attempt = only_claim(bench, run).attempt
    assert lost(bench, run) == Lost(NonEmpty(attempt))
    assert orphan(bench, run) == () and bench.executions() == []
    never_starts_again(bench, run)
    assert bench.acted(run)[0] == f"fenced attempt {attempt.nonce.hex[:8]}"
    assert arm(bench.ended(run)) == "Converged"
    assert (bench.executions(), bench.causes(run)) == ([""], ["InitialAttempt", "Relaunch"])


@pytest.mark.parametrize("step", ["locked", "process written"])
@proven_by(in_supervisor("lock_is_not_taken"))
def test_a_child_without_its_supervisor_is_alive_by_the_lock(matrix: Matrix, step: SupervisorStep) -> None:
    """Its supervisor is killed after the fork, and the child is held before it becomes COMMAND."""
    bench = matrix.bench
    run = bench.told(HONEST)
    struck(matrix, run, "--at", step, "--act", "kill_parent_and_freeze")
    bench.wait(lambda: supervisor_gone(bench, run) and frozen(bench, run))
    attempt = only_claim(bench, run).attempt
    assert (bench.folder(run) / "process.json").exists() == (step == "process written")
    assert isinstance(locks.probe_lock(bench.folder(run) / "lock"), locks.LockHeld)
    time.sleep(0.6)
    looked = bench.look(run)
    assert looked.conclusion.verdict == InProgress(NonEmpty(attempt))
    (seen,) = looked.sweep.reads.processes.population.members()
    assert (seen.state, seen.execution is None) == ("alive", step == "locked")
    assert bench.acted(run, retries=9) == () and bench.executions() == []
    wake(bench)
    bench.wait(lambda: bench.executions() and trainer_gone(bench, run))
    assert lost(bench, run) == Lost(NonEmpty(attempt))
    assert orphan(bench, run) == (str(bench.folder(run) / "output"),)
    assert bench.executions() == [""]


def frozen(bench: Bench, run: str) -> bool:
    """Whether a process of the run's newest attempt is stopped."""
    return any(row.stopped for row in processes_of(bench.folder(run)))


@proven_by(in_supervisor("lock_is_not_inherited"))
def test_a_trainer_whose_supervisor_was_killed_goes_on_and_is_lost_when_it_ended(matrix: Matrix) -> None:
    """Its process is held against it, too: with neither, nobody would see it."""
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"))
    struck(matrix, run)
    bench.hanging()
    start = read_start(bench.folder(run))
    assert isinstance(start, ReceiptRead)
    assert procfs.signal_exactly(start.receipt.supervisor.pid, start.receipt.supervisor.start_ticks, signal.SIGKILL)
    bench.wait(lambda: supervisor_gone(bench, run))
    attempt = only_claim(bench, run).attempt
    assert isinstance(locks.probe_lock(bench.folder(run) / "lock"), locks.LockHeld)
    time.sleep(0.6)
    assert verdict(bench, run) == InProgress(NonEmpty(attempt))
    assert bench.acted(run, retries=9) == ()
    bench.go_on()
    bench.wait(lambda: trainer_gone(bench, run))
    assert lost(bench, run) == Lost(NonEmpty(attempt))
    assert orphan(bench, run) == (str(bench.folder(run) / "output"),)
    never_starts_again(bench, run)
    assert arm(bench.ended(run, allowed=everything)) == "Converged"
    assert bench.causes(run) == ["InitialAttempt", "Relaunch"] and len(bench.executions()) == 2


@pytest.mark.parametrize("step", ["main ended", "descendants ended"])
@proven_by(in_supervisor("nothing_happens_at_steps"))
def test_a_trainer_that_ended_before_its_terminal_is_lost_with_its_output(matrix: Matrix, step: SupervisorStep) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    struck(matrix, run, "--at", step)
    bench.wait(lambda: trainer_gone(bench, run) and bench.executions())
    assert lost(bench, run) == Lost(NonEmpty(only_claim(bench, run).attempt))
    assert orphan(bench, run) == (str(bench.folder(run) / "output"),)
    never_starts_again(bench, run)
    assert bench.executions() == [""]


@proven_by(in_supervisor("every_end_is_a_failure"))
def test_killed_after_the_terminal_everything_was_said(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    struck(matrix, run, "--at", "terminal written")
    bench.wait(lambda: trainer_gone(bench, run) and (bench.folder(run) / "terminal.json").exists())
    looked = bench.look(run)
    assert isinstance(looked.conclusion.verdict, Converged) and looked.conclusion.notes == ()
    converges_in_one_attempt(bench, run)


# ----------------------------------------------------------------------------------------------------------- stopped ones


@pytest.mark.parametrize("step", ["start written", "child begun"])
@proven_by(in_supervisor("fence_is_not_checked"))
def test_a_stopped_supervisor_that_wakes_up_after_the_relaunch_starts_nothing(matrix: Matrix, step: SupervisorStep) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    slow = matrix.with_supervisor(
        "--at", step, "--act", "freeze_self" if step == "start written" else "kill_parent_and_freeze", timeout_s=2
    )
    assert isinstance(slow.step(run), running.Step)
    bench.wait(lambda: frozen(bench, run))
    first = only_claim(bench, run).attempt
    assert lost(bench, run) == Lost(NonEmpty(first))
    assert bench.acted(run)[0] == f"fenced attempt {first.nonce.hex[:8]}"
    assert arm(bench.ended(run)) == "Converged" and len(bench.executions()) == 1
    old = bench.folder(run, 0)
    wake(bench)
    bench.wait(lambda: isinstance(read_process_receipt(old), ReceiptRead))
    bench.wait(lambda: not isinstance(locks.probe_lock(old / "lock"), locks.LockHeld))
    if step == "start written":
        bench.wait((old / "terminal.json").exists)
    assert len(bench.executions()) == 1
    assert isinstance(verdict(bench, run), Converged)


@contextmanager
def stopped_is_taken_for_dead() -> Iterator[None]:
    """An observer that believes in the process table alone, and takes a stopped process for none."""
    with (
        patch.object(processes.locks, "probe_lock", lambda path: locks.LockFree()),
        patch.object(procfs.ProcessStat, "ended", property(lambda row: row.state in "ZXxTt")),
    ):
        yield


@pytest.mark.parametrize("who", ["the trainer", "the trainer and its supervisor"])
@proven_by(stopped_is_taken_for_dead)
def test_a_stopped_trainer_is_in_progress_and_never_lost(matrix: Matrix, who: str) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    attempt = only_claim(bench, run).attempt
    start, process = read_start(bench.folder(run)), read_process_receipt(bench.folder(run))
    assert isinstance(start, ReceiptRead) and isinstance(process, ReceiptRead)
    named = [process.receipt.process] + ([start.receipt.supervisor] if who != "the trainer" else [])
    for one in named:
        assert procfs.signal_exactly(one.pid, one.start_ticks, signal.SIGSTOP)
    bench.wait(lambda: all((row := procfs.read_stat(one.pid)) is not None and row.stopped for one in named))
    for _ in range(3):
        time.sleep(0.3)
        looked = bench.look(run)
        assert looked.conclusion.verdict == InProgress(NonEmpty(attempt))
        assert [seen.state for seen in looked.sweep.reads.processes.population.members()] == ["alive"]
        step = advance(bench.ports, run, 9, everything)
        assert isinstance(step, running.Step) and step.acted.lines == ()
    for one in named:
        os.kill(one.pid, signal.SIGCONT)
    bench.go_on()
    converges_in_one_attempt(bench, run)


def nothing_is_fenced() -> AbstractContextManager[object]:
    return planted(LocalLauncher, "fence", lambda self, nonce: acting.Fenced())()


@proven_by(nothing_is_fenced)
def test_a_relaunch_waits_for_who_holds_the_lock(matrix: Matrix) -> None:
    """Believed dead, and stirring all the same when the relaunch comes: a child that is held between the lock and exec."""
    bench = matrix.bench
    run = bench.told(HONEST)
    struck(matrix, run, "--at", "locked", "--act", "kill_parent_and_freeze")
    bench.wait(lambda: supervisor_gone(bench, run) and frozen(bench, run))
    record, attempt = bench.record(run), only_claim(bench, run).attempt
    assert names(acting.act(bench.ports, record, Lost(NonEmpty(attempt)), 9, ())) == ["AttemptNotFenced"]
    assert len(bench.claims(run)) == 1
    wake(bench)
    bench.wait(lambda: bench.executions() and trainer_gone(bench, run))
    assert bench.executions() == [""]
