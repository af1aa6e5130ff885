"""What a controller does where the ledger went on, the launch call broke, or a verdict is about several attempts."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from countermark.app import acting, running
from countermark.app.acting import Acted
from countermark.files import locks
from countermark.launch.local import LocalLauncher
from countermark.lines.surface import AttemptNotFenced
from countermark.run.attempts import AttemptKey, Cause, InitialAttempt, Nonce, RequestedReexecution, predecessor_of
from countermark.run.claims import Committed, DispatchRefused, DispatchUnknown, ExecutionClaim, Transition
from countermark.store import base
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import ExecutionRequired, LaunchDispatchRequired, LaunchPending, Lost, StopRequired
from tests.app.bench import BOTH_LEDGERS, HONEST, Bench, arm, everything
from tests.faults import planted, proven_by

pytestmark = BOTH_LEDGERS
AGAIN = RequestedReexecution("once-more")


def claimed(bench: Bench, run: str, cause: Cause) -> ExecutionClaim:
    """What another controller claimed, and did not dispatch yet."""
    ledger = bench.record(run).ledger
    work = ledger.desired.demand.work
    transition = Transition(ledger.desired.demand.id, work, cause)
    answer = bench.ports.store.claim_start(run, ledger.version, transition, AttemptKey(work, Nonce(os.urandom(16).hex())), 1)
    assert isinstance(answer, Committed), answer
    return answer.claim


# --------------------------------------------------------------------------------------------------- a ledger that went on


def any_version_will_do() -> AbstractContextManager[object]:
    honest = base.admit_start_claim
    return planted(base, "admit_start_claim", lambda ledger, snapshot, *asked: honest(ledger, ledger.version, *asked))()


@proven_by(any_version_will_do)
def test_what_was_concluded_before_the_ledger_moved_claims_nothing(bench: Bench) -> None:
    """Somebody asked for another attempt between the look and the act: its slot is another, and its trainer would run beside ours."""
    run = bench.told(HONEST)
    looked = bench.look(run)
    assert looked.conclusion.verdict == ExecutionRequired()
    theirs = claimed(bench, run, AGAIN)
    answer = acting.act(bench.ports, looked.record, looked.conclusion.verdict, 0, ())
    assert answer == Acted(("somebody else acted on the run meanwhile: look again",))
    assert bench.claims(run) == (theirs,)
    assert bench.look(run).conclusion.verdict == LaunchDispatchRequired(NonEmpty(theirs.attempt))
    assert arm(bench.ended(run)) == "Converged" and bench.executions() == [""]


# --------------------------------------------------------------------------------------------------- a call that broke


def what_broke_was_refused() -> AbstractContextManager[object]:
    return planted(acting, "DispatchUnknown", DispatchRefused)()


@proven_by(what_broke_was_refused)
def test_a_launch_call_that_broke_is_unknown_and_only_looked_at(bench: Bench) -> None:
    """Its trainer runs all the same: who takes the call for refused begins another one beside it."""
    run = bench.told(("effective", "hang", "output"))
    honest = LocalLauncher.dispatch

    def breaks(launcher: LocalLauncher, order: Any) -> Any:
        honest(launcher, order)
        bench.hanging()
        raise OSError(5, "Input/output error")

    with planted(LocalLauncher, "dispatch", breaks)():
        said = bench.acted(run)
    (claim,) = bench.claims(run)
    why = "the launch call failed: [Errno 5] Input/output error"
    assert [outcome.result for outcome in bench.record(run).ledger.outcomes] == [DispatchUnknown(why)]
    assert said[-1] == f"whether attempt {claim.attempt.nonce.hex[:8]} was launched is unknown: {why}"
    assert arm(bench.look(run)) == "InProgress" and bench.acted(run, retries=9) == ()
    bench.go_on()
    assert arm(bench.ended(run, 9, everything)) == "Converged" and bench.executions() == [""]


@pytest.mark.slow
@proven_by(what_broke_was_refused)
def test_a_launch_call_that_broke_before_anything_began_waits_for_a_person(bench: Bench) -> None:
    run = bench.told(HONEST)

    def breaks(launcher: LocalLauncher, order: Any) -> Any:
        raise OSError(24, "Too many open files")

    with planted(LocalLauncher, "dispatch", breaks)():
        bench.acted(run)
    (claim,) = bench.claims(run)
    assert bench.ended(run, 9, everything).conclusion.verdict == LaunchPending(NonEmpty(claim.attempt))
    assert len(bench.claims(run)) == 1 and bench.executions() == []


# --------------------------------------------------------------------------------------------------- several attempts


def only_the_first_is_acted_on() -> AbstractContextManager[object]:
    honest = acting.act

    def act(ports: Any, record: Any, verdict: Any, *more: Any) -> Any:
        attempts = getattr(verdict, "attempts", None)
        return honest(ports, record, verdict if attempts is None else replace(verdict, attempts=NonEmpty(attempts.first)), *more)

    return planted(running, "act", act)()


def two_claimed(bench: Bench, *scripts: tuple[str, ...]) -> tuple[str, NonEmpty[AttemptKey]]:
    """A run of which two attempts were claimed by controllers that died."""
    run = bench.told(*scripts)
    first, second = (claimed(bench, run, cause).attempt for cause in (InitialAttempt(), AGAIN))
    return run, NonEmpty(first, (second,))


@pytest.mark.slow
@proven_by(only_the_first_is_acted_on)
def test_every_attempt_that_a_verdict_names_is_dispatched_and_stopped(bench: Bench) -> None:
    run, both = two_claimed(bench, ("effective", "hang", "output"))
    assert bench.look(run).conclusion.verdict == LaunchDispatchRequired(both)
    assert len(bench.acted(run)) == 2
    bench.wait(lambda: len(bench.executions()) == 2)
    for attempt in both:
        bench.ports.store.abandon(run, attempt, "ada", 1)
    assert bench.look(run).conclusion.verdict == StopRequired(both)
    assert bench.acted(run) == tuple(f"attempt {attempt.nonce.hex[:8]} is stopped" for attempt in both)


@contextmanager
def lock_held(bench: Bench, attempt: AttemptKey) -> Iterator[None]:
    descriptor = locks.open_lock(bench.ports.launcher.folder(attempt.nonce.hex) / "lock")
    assert locks.take_lock(descriptor)
    yield
    os.close(descriptor)


@pytest.mark.slow
@proven_by(only_the_first_is_acted_on)
def test_every_attempt_that_was_lost_is_made_anew_or_named(bench: Bench) -> None:
    run, both = two_claimed(bench, ("effective", "kill_all"))
    last = bench.ended(run)
    assert last.conclusion.verdict == Lost(both)
    with lock_held(bench, both.first), lock_held(bench, both.more[0]):
        answer = running.act(bench.ports, last.record, last.conclusion.verdict, 0, ())
    assert isinstance(answer, Refused)
    assert {defect.attempt for defect in answer.defects if isinstance(defect, AttemptNotFenced)} == set(both)
    assert len(bench.claims(run)) == 2


def nothing_was_done() -> AbstractContextManager[object]:
    """The fault: where something could not be done, that is all that is told."""
    honest = acting._together

    def together(*answers: Any) -> Any:
        refused = [answer for answer in answers if isinstance(answer, Refused)]
        return refused[0] if refused else honest(*answers)

    return planted(acting, "_together", together)()


@pytest.mark.slow
@proven_by(nothing_was_done)
def test_what_was_done_is_told_beside_what_could_not_be(bench: Bench) -> None:
    """The second one's trainer is at work: a controller that was told of a refusal alone would leave the run at rest."""
    run, both = two_claimed(bench, ("effective", "kill_all"), ("effective", "kill_all"), HONEST)
    last = bench.ended(run)
    with lock_held(bench, both.first):
        answer = running.act(bench.ports, last.record, last.conclusion.verdict, 0, ())
    assert isinstance(answer, Acted), answer
    first, second = (attempt.nonce.hex[:8] for attempt in both)
    assert answer.lines[0] == f"fenced attempt {second}" and any("dispatched attempt" in line for line in answer.lines)
    assert answer.lines[-1].startswith("not done: ") and first in answer.lines[-1] and second not in answer.lines[-1]
    assert [predecessor_of(claim.transition.cause) for claim in bench.claims(run)] == [None, None, both.more[0]]


@pytest.mark.slow
def test_of_several_lost_attempts_each_is_made_anew_in_its_turn(bench: Bench) -> None:
    """The first one's claim moves the ledger, so the second one is looked at again before it is followed."""
    run, both = two_claimed(bench, ("effective", "kill_all"), ("effective", "kill_all"), HONEST)
    assert arm(bench.ended(run, 9, everything)) == "SeveralCandidates"
    followed = [predecessor_of(claim.transition.cause) for claim in bench.claims(run)]
    assert followed == [None, None, *both] and len(bench.executions()) == 4
