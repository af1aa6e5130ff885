"""Acting on verdicts: one trainer for two controllers, going on after every death, and nothing retried that nobody allowed."""

import os
from contextlib import AbstractContextManager

import pytest

from countermark.app import acting, ports
from countermark.app.deciding import resume_run
from countermark.app.running import Looked
from countermark.files import locks
from countermark.files.attempt_folder import ReceiptRead, read_claim
from countermark.launch.local import LocalLauncher
from countermark.lines.surface import CheckpointNotAmong, RetriesUsedUp
from countermark.run.attempts import Relaunch, Resume
from countermark.run.checkpoint import ComponentMissing, PublicationIncomplete
from countermark.run.claims import DispatchRefused
from countermark.run.readback import Component
from countermark.values import Refused
from countermark.verdict.kinds import CheckpointNotAdmitted, NoSuccess, ResumeAvailable
from tests.app.bench import BOTH_LEDGERS, HONEST, Bench, arm, everything, names
from tests.app.planting import in_controllers
from tests.faults import planted, proven_by

pytestmark = BOTH_LEDGERS


def retries_are_not_counted() -> AbstractContextManager[object]:
    return planted(acting, "_over", lambda ledger, allowed: None)()


def only_nothing_is_counted() -> AbstractContextManager[object]:
    """Attempts made from nothing count, beginnings made again do not."""
    return planted(acting, "begun_again", lambda ledger: ())()


def used_up(answer: object) -> RetriesUsedUp:
    assert isinstance(answer, Refused), f"it was acted upon: {answer}"
    (defect,) = answer.defects
    assert isinstance(defect, RetriesUsedUp)
    return defect


# --------------------------------------------------------------------------------------------------- several controllers


@proven_by(in_controllers("claims_are_keyed_by_attempt"))
def test_two_controllers_at_one_moment_make_one_attempt(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    both = [bench.controller(run, "--meet", str(bench.root), "2") for _ in range(2)]
    said = [process.communicate(timeout=40) for process in both]
    assert all(process.returncode == 0 for process in both), said
    assert all(out.startswith("ExecutionRequired\n") for out, _ in said), "both concluded that the run is to be started"
    bench.hanging()
    bench.go_on()
    bench.ended(run)
    assert len(bench.executions()) == 1 and bench.causes(run) == ["InitialAttempt"]
    assert sorted("carrying on with it" in out for out, _ in said) == [False, True]


@pytest.mark.parametrize("step", ["looked", "claimed", "intended", "launched"])
def test_a_controller_that_died_is_carried_on_with_by_the_next_one(bench: Bench, step: str) -> None:
    run = bench.told(HONEST)
    dying = bench.controller(run, "--die", step)
    assert dying.wait(timeout=40) == 9
    claims = bench.claims(run)
    assert len(claims) == (step != "looked")
    before = {"looked": "ExecutionRequired", "claimed": "LaunchDispatchRequired", "intended": "LaunchDispatchRequired"}
    if step in before:
        assert arm(bench.look(run)) == before[step]
    said, last = bench.watched(run, allowed=everything)
    assert said[-1] == "Converged" and isinstance(last, Looked)
    assert bench.executions() == [""] and bench.causes(run) == ["InitialAttempt"]
    assert bench.claims(run)[: len(claims)] == claims


def test_a_claim_is_dispatched_once_whoever_asks_again(bench: Bench) -> None:
    run = bench.told(HONEST)
    assert bench.acted(run)
    attempt = bench.claims(run)[0].attempt
    again = acting.dispatch(bench.ports, run, attempt)
    assert again == acting.Acted((f"attempt {attempt.nonce.hex[:8]} was dispatched before",))
    assert arm(bench.ended(run)) == "Converged" and bench.executions() == [""]
    late = acting.start(bench.ports, bench.record(run), bench.claims(run)[0].transition.cause)
    assert isinstance(late, acting.Acted) and late.lines[0].endswith("carrying on with it")
    assert bench.executions() == [""]


# ------------------------------------------------------------------------------------------------------------- resuming


def test_a_killed_trainer_is_resumed_from_the_newest_whole_checkpoint(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "save 8", "tear 12", "hang", "kill"), ("effective", "save 12", "output"))
    assert bench.acted(run)
    bench.hanging()
    bench.go_on()
    looked = bench.ended(run)
    verdict = looked.conclusion.verdict
    (first,) = bench.claims(run)
    folder = bench.folder(run)
    assert isinstance(verdict, ResumeAvailable) and verdict.attempt == first.attempt
    assert [(one.step, one.path) for one in verdict.checkpoints] == [
        (8, f"{folder}/checkpoints/step-8"),
        (4, f"{folder}/checkpoints/step-4"),
    ]
    missing = (Component.OPTIMIZER_STATE, Component.SCHEDULER_STATE, Component.RNG_STATE, Component.DATA_POSITION)
    torn, ended = looked.conclusion.why_not
    assert ended == NoSuccess(first.attempt, "killed by signal 9")
    assert isinstance(torn, CheckpointNotAdmitted) and (torn.step, torn.path) == (12, f"{folder}/checkpoints/step-12")
    assert tuple(defect for defect in torn.defects if isinstance(defect, ComponentMissing)) == tuple(map(ComponentMissing, missing))
    assert [type(defect) for defect in torn.defects if not isinstance(defect, ComponentMissing)] == [PublicationIncomplete]

    assert bench.acted(run), "going on from a checkpoint for the first time is no retry"
    assert arm(bench.ended(run)) == "Converged"
    second = bench.claims(run)[1].transition.cause
    assert second == Resume(first.attempt, verdict.checkpoints.first.identity)
    assert bench.executions() == ["", f"{folder}/checkpoints/step-8"]


def test_a_person_resumes_from_the_step_that_was_named(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "save 8", "kill"), ("effective", "output"))
    bench.ended(run)
    answer = resume_run(bench.ports, run, 5, "ada")
    assert isinstance(answer, Refused) and tuple(answer.defects) == (CheckpointNotAmong(5, ("8", "4")),)
    assert len(bench.claims(run)) == 1
    assert isinstance(resume_run(bench.ports, run, 4, "ada"), acting.Acted)
    assert arm(bench.ended(run)) == "Converged"
    assert bench.executions()[1].endswith("/checkpoints/step-4")


@proven_by(retries_are_not_counted, only_nothing_is_counted)
def test_a_resume_that_makes_no_progress_is_not_repeated_for_ever(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "kill"), ("effective", "kill"))
    _, last = bench.watched(run, 0, everything)
    assert used_up(last) == RetriesUsedUp(0, 0)
    assert bench.causes(run) == ["InitialAttempt", "Resume"]
    _, last = bench.watched(run, 1, everything)
    assert used_up(last) == RetriesUsedUp(1, 1)
    assert bench.causes(run) == ["InitialAttempt", "Resume", "Resume"]
    assert len(bench.executions()) == 3


def test_a_resume_that_makes_progress_is_no_retry(bench: Bench) -> None:
    run = bench.told(*(("effective", f"save {step}", "kill") for step in (4, 8, 12)), ("effective", "output"))
    assert arm(bench.ended(run, 0, everything)) == "Converged"
    assert bench.causes(run) == ["InitialAttempt", "Resume", "Resume", "Resume"]
    assert [path.rpartition("-")[2] for path in bench.executions()] == ["", "4", "8", "12"]


def the_path_is_found_anew() -> AbstractContextManager[object]:
    """A dispatch that was broken off is made again without asking what it wrote down."""
    return planted(ports, "read_claim", lambda folder: None)()


@proven_by(the_path_is_found_anew)
def test_a_resume_that_was_written_down_keeps_its_path(bench: Bench) -> None:
    """The checkpoint's folder went after the launch, and its copy lies in an earlier attempt: the claim's words stand."""
    run = bench.told(("effective", "save 4", "kill"), ("effective", "hang", "output"))
    bench.ended(run)
    dying = bench.controller(run, "--die", "launched")
    assert dying.wait(timeout=40) == 9
    bench.hanging()
    (bench.folder(run, 0) / "checkpoints" / "step-4").rename(bench.root / "gone")
    attempt = bench.claims(run)[1].attempt
    answer = acting.dispatch(bench.ports, run, attempt)
    assert isinstance(answer, acting.Acted), answer
    assert answer.lines == (f"dispatched attempt {attempt.nonce.hex[:8]} on {bench.ports.host}: already started",)
    (bench.root / "gone").rename(bench.folder(run, 0) / "checkpoints" / "step-4")
    bench.go_on()
    assert arm(bench.ended(run)) == "Converged" and len(bench.executions()) == 2


def test_a_checkpoint_that_went_is_not_begun_at(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "kill"))
    bench.ended(run)
    dying = bench.controller(run, "--die", "claimed")
    assert dying.wait(timeout=40) == 9
    (bench.folder(run, 0) / "checkpoints" / "step-4").rename(bench.root / "gone")
    assert names(bench.step(run)) == ["CheckpointGone"]
    assert len(bench.executions()) == 1 and bench.record(run).ledger.intents[-1].attempt == bench.claims(run)[0].attempt


# ------------------------------------------------------------------------------------------------------------- retrying


@proven_by(retries_are_not_counted)
def test_an_attempt_is_made_again_from_nothing_only_as_often_as_allowed(bench: Bench) -> None:
    run = bench.told(("effective", "kill"), ("effective", "leave 3"))
    assert arm(bench.ended(run)) == "RetryRequired"
    assert used_up(bench.step(run)) == RetriesUsedUp(0, 0)
    assert bench.causes(run) == ["InitialAttempt"]
    assert bench.acted(run, retries=1)
    last = bench.ended(run)
    assert arm(last) == "RetryRequired"
    assert last.conclusion.why_not == (NoSuccess(bench.claims(run)[1].attempt, "failed with exit code 3"),)
    assert used_up(bench.step(run, retries=1)) == RetriesUsedUp(1, 1)
    assert bench.causes(run) == ["InitialAttempt", "InfrastructureRetry"] and bench.executions() == ["", ""]


# ---------------------------------------------------------------------------------------------------------------- losing


def nothing_is_fenced() -> AbstractContextManager[object]:
    return planted(LocalLauncher, "fence", lambda self, nonce: acting.Fenced())()


@proven_by(nothing_is_fenced)
def test_an_attempt_whose_supervisor_and_trainer_vanished_is_lost_fenced_and_made_anew(bench: Bench) -> None:
    run = bench.told(("effective", "kill_all"), HONEST)
    said, last = bench.watched(run)
    assert said[-1] == "Lost" and said[0] == "ExecutionRequired" and isinstance(last, Looked)
    assert set(said) <= {"ExecutionRequired", "InProgress", "LaunchPending", "Lost"}
    (lines, first) = bench.acted(run), bench.claims(run)[0].attempt
    assert lines[0] == f"fenced attempt {first.nonce.hex[:8]}"
    assert (bench.folder(run, 0) / "fenced").exists()
    assert arm(bench.ended(run)) == "Converged"
    assert bench.claims(run)[1].transition.cause == Relaunch(first, "process", None)
    assert bench.executions() == ["", ""]


def test_a_lost_attempt_is_made_anew_from_its_newest_admitted_checkpoint(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "tear 8", "kill_all"), ("effective", "output"))
    assert arm(bench.ended(run, 0, everything)) == "Converged"
    cause = bench.claims(run)[1].transition.cause
    assert isinstance(cause, Relaunch) and cause.checkpoint is not None and cause.checkpoint.step == 4
    path = f"{bench.folder(run, 0)}/checkpoints/step-4"
    assert bench.executions() == ["", path]
    claim = read_claim(bench.folder(run, 1))
    assert isinstance(claim, ReceiptRead) and getattr(claim.receipt.beginning, "path", None) == path


@proven_by(retries_are_not_counted)
def test_a_run_that_is_lost_again_and_again_is_bounded(bench: Bench) -> None:
    run = bench.told(("effective", "kill_all"), ("effective", "kill_all"), HONEST)
    _, last = bench.watched(run, 0, everything)
    assert used_up(last) == RetriesUsedUp(0, 0)
    assert bench.causes(run) == ["InitialAttempt", "Relaunch"]


def test_a_lost_attempt_of_which_something_lives_is_not_raced(bench: Bench) -> None:
    """Whoever holds the lock cannot be told from the trainer."""
    run = bench.told(("effective", "kill_all"), HONEST)
    last = bench.ended(run)
    assert arm(last) == "Lost"
    descriptor = locks.open_lock(bench.folder(run) / "lock")
    assert locks.take_lock(descriptor)
    answer = acting.act(bench.ports, last.record, last.conclusion.verdict, 0, ())
    os.close(descriptor)
    assert names(answer) == ["AttemptNotFenced"] and len(bench.claims(run)) == 1


def refused_launches_are_not_fenced() -> AbstractContextManager[object]:
    return planted(acting, "_still_to_be_launched", lambda ports, ledger, before: None)()


@proven_by(refused_launches_are_not_fenced)
def test_what_follows_a_refused_launch_bars_it_first(bench: Bench) -> None:
    """The refusal was one call's: another controller that said the same intent may call the launcher later."""
    run = bench.told(HONEST)
    with planted(acting, "_launch", lambda ports, record, claim, beginning: DispatchRefused("the disk is full"))():
        assert bench.acted(run)[-1].endswith("the disk is full")
    assert arm(bench.look(run)) == "RetryRequired" and bench.executions() == []
    assert bench.acted(run, retries=1)
    assert (bench.folder(run, 0) / "fenced").exists() and not (bench.folder(run, 1) / "fenced").exists()
    assert arm(bench.ended(run)) == "Converged" and bench.executions() == [""]


# -------------------------------------------------------------------------------------------------------------- stopping


def test_a_cancelled_run_is_stopped_though_its_trainer_ignores_sigterm(bench: Bench) -> None:
    run = bench.told(("ignore_sigterm", "effective", "save 4", "hang"))
    assert bench.acted(run)
    bench.hanging()
    bench.ports.store.cancel(run, "ada", bench.ports.now_ms())
    assert arm(bench.look(run)) == "StopRequired"
    assert bench.watched(run)[0] == ["StopRequired"], "watching alone stops nothing, and does not wait for it"
    attempt = bench.claims(run)[0].attempt
    assert bench.acted(run) == (f"attempt {attempt.nonce.hex[:8]} is stopped",)
    assert arm(bench.ended(run, 9, everything)) == "Cancelled"
    assert bench.acted(run, retries=9) == () and len(bench.executions()) == 1
    assert names(resume_run(bench.ports, run, None, "ada")) == ["ResumeUnavailable"]


def test_a_cancelled_run_that_nobody_started_stays_so(bench: Bench) -> None:
    run = bench.told(HONEST)
    bench.ports.store.cancel(run, "ada", bench.ports.now_ms())
    assert arm(bench.ended(run, 9, everything)) == "Cancelled"
    assert bench.claims(run) == () and bench.executions() == []
