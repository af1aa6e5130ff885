"""What a person decides: each decision does what it says once, and is refused with every reason where the run is not as it needs it."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from countermark.app import acting, deciding
from countermark.app.acting import Acted
from countermark.app.deciding import Abandoned, abandon_attempt, cancel_run, reexecute_run, resume_run, retry_run
from countermark.files.attempt_folder import ReceiptRead, read_terminal
from countermark.launch.local import LocalLauncher
from countermark.lines.defects import known, sentence
from countermark.lines.surface import RunMovedMeanwhile, RunNamedForAttempt
from countermark.observe import local
from countermark.run.attempts import CapabilityEscalation, InfrastructureRetry, Relaunch, RequestedReexecution
from countermark.run.claims import Dispatched, DispatchRefused
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import Lost, NoSuccess, NotBarred, SeveralCandidates, StopRequired
from countermark.wire.receipts import NotExecuted
from tests.app.bench import BOTH_LEDGERS, HONEST, Bench, arm, everything, names
from tests.faults import planted, proven_by

pytestmark = BOTH_LEDGERS


def lines(answer: object) -> tuple[str, ...]:
    assert isinstance(answer, Acted | Abandoned), answer
    return answer.lines


def attempt_of(bench: Bench, run: str, at: int = -1) -> str:
    return bench.claims(run)[at].attempt.nonce.hex


def stops(verdict: object) -> bool:
    return isinstance(verdict, StopRequired)


def failed(bench: Bench, *scripts: tuple[str, ...]) -> str:
    """A run whose first attempt failed and left nothing to resume from."""
    run = bench.told(("effective", "leave 3"), *scripts)
    assert arm(bench.ended(run)) == "RetryRequired"
    return run


# ------------------------------------------------------------------------------------------------------------- cancelling


def nothing_is_ended() -> AbstractContextManager[object]:
    return planted(deciding, "end_here", lambda ports, record: ())()


def nothing_is_fenced() -> AbstractContextManager[object]:
    return planted(LocalLauncher, "fence", lambda self, nonce: acting.Fenced())()


@proven_by(nothing_is_ended)
def test_cancelling_ends_what_lives_here_and_may_be_repeated(bench: Bench) -> None:
    run = bench.told(("ignore_sigterm", "effective", "save 4", "hang"))
    assert bench.acted(run)
    bench.hanging()
    name = attempt_of(bench, run)[:8]
    assert lines(cancel_run(bench.ports, run, "ada")) == (
        "cancelled: nothing of it starts any more",
        f"attempt {name} is stopped",
    )
    assert bench.watched(run, allowed=stops)[0] == ["Cancelled"]
    assert lines(cancel_run(bench.ports, run, "grace")) == ("it was cancelled before, by ada",)
    assert bench.acted(run, retries=9) == () and len(bench.executions()) == 1


@pytest.mark.parametrize("step", ["claimed", "intended"])
def test_a_claim_that_was_not_launched_never_starts_once_it_is_cancelled(bench: Bench, step: str) -> None:
    run = bench.told(HONEST)
    assert bench.controller(run, "--die", step).wait(timeout=40) == 9
    said = lines(cancel_run(bench.ports, run, "ada"))
    assert len(said) == (1 if step == "claimed" else 2)
    assert arm(bench.ended(run, 9, everything)) == "Cancelled"
    answer = acting.dispatch(bench.ports, run, bench.claims(run)[0].attempt)
    assert names(answer) == ["RunCancelled"] and bench.executions() == []


@proven_by(nothing_is_fenced)
def test_a_launch_that_was_under_way_when_the_run_was_cancelled_comes_to_nothing(bench: Bench) -> None:
    """Another controller said its intent, and calls the launcher after the cancellation."""
    run = bench.told(HONEST)
    assert bench.controller(run, "--die", "intended").wait(timeout=40) == 9
    lines(cancel_run(bench.ports, run, "ada"))
    late = acting._launch(bench.ports, bench.record(run), bench.claims(run)[0], None)
    assert late == Dispatched("started"), "its supervisor starts, and its trainer does not begin behind the fence"
    assert arm(bench.ended(run, 9, everything)) == "Cancelled" and bench.executions() == []
    terminal = read_terminal(bench.folder(run))
    assert isinstance(terminal, ReceiptRead)
    assert terminal.receipt.main == NotExecuted(125, "a relaunch fenced this attempt")


def no_look_asks_what_could_begin() -> AbstractContextManager[object]:
    return planted(local, "_process_or_opening", local._process)()


@proven_by(no_look_asks_what_could_begin, nothing_is_fenced)
def test_a_cancellation_whose_command_died_is_carried_out_by_whoever_looks(bench: Bench) -> None:
    """The command recorded that the run is over and died. A controller that said its intent before calls the launcher afterwards: by then
    another one has barred the attempt, and until it has the run is not over."""
    run = bench.told(HONEST)
    assert bench.controller(run, "--die", "intended").wait(timeout=40) == 9
    bench.ports.store.cancel(run, "ada", bench.ports.now_ms())
    looked = bench.look(run)
    assert arm(looked) == "StopRequired" and looked.conclusion.why_not[0] == NotBarred(bench.claims(run)[0].attempt)
    assert len(bench.ports.store.list_runs(open_only=True)) == 1
    assert arm(bench.ended(run, 9, everything)) == "Cancelled" and not bench.ports.store.list_runs(open_only=True)
    acting._launch(bench.ports, bench.record(run), bench.claims(run)[0], None)
    bench.wait(lambda: isinstance(read_terminal(bench.folder(run)), ReceiptRead))
    assert arm(bench.look(run)) == "Cancelled" and bench.executions() == []


def test_what_was_dispatched_on_another_host_is_named_and_not_said_to_be_stopped(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert bench.with_ports(host="elsewhere").acted(run)
    bench.hanging()
    name = attempt_of(bench, run)[:8]
    said = lines(cancel_run(bench.ports, run, "ada"))
    assert said[1:] == (
        f"attempt {name} was dispatched on elsewhere: if it lives, it is stopped from there (countermark reconcile RUN --act)",
    )
    assert arm(bench.look(run)) == "ObservationRequired", "nobody here can say that nothing of it lives"


# --------------------------------------------------------------------------------------------------------------- retrying


def test_a_person_makes_an_attempt_again_without_any_number_of_retries(bench: Bench) -> None:
    run = failed(bench, ("effective", "leave 4"), HONEST)
    assert lines(retry_run(bench.ports, run, None, False, "ada"))
    first, second = bench.claims(run)
    assert second.transition.cause == InfrastructureRetry(first.attempt)
    last = bench.ended(run)
    assert last.conclusion.why_not == (NoSuccess(second.attempt, "failed with exit code 4"),)
    assert lines(retry_run(bench.ports, run, "more memory", False, "ada"))
    assert bench.claims(run)[2].transition.cause == CapabilityEscalation(second.attempt, "more memory")
    assert arm(bench.ended(run)) == "Converged"


def a_persons_word_is_not_kept() -> AbstractContextManager[object]:
    return planted(acting, "_asked_by", lambda record: ("",) * len(record.ledger.claims))()


@proven_by(a_persons_word_is_not_kept)
def test_what_a_person_asked_for_is_no_retry_of_the_controllers(bench: Bench) -> None:
    run = failed(bench, ("effective", "leave 3"))
    lines(retry_run(bench.ports, run, None, False, "ada"))
    assert arm(bench.ended(run)) == "RetryRequired"
    assert acting.retries_used(bench.record(run)) == 0
    assert bench.acted(run, retries=1), "the one retry that is allowed was not made yet"
    assert arm(bench.ended(run)) == "RetryRequired"
    assert acting.retries_used(bench.record(run)) == 1
    assert names(bench.step(run, retries=1)) == ["RetriesUsedUp"]
    assert [entry.by for entry in bench.record(run).history if entry.kind == "claim"] == ["", "ada", ""]


@proven_by(a_persons_word_is_not_kept)
def test_a_resume_that_a_person_asked_for_is_no_retry_either(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "kill"), ("effective", "kill"))
    bench.ended(run)
    for _ in range(2):
        lines(resume_run(bench.ports, run, 4, "ada"))
        assert arm(bench.ended(run)) == "ResumeAvailable"
    assert acting.retries_used(bench.record(run)) == 0
    assert names(bench.step(run)) == ["RetriesUsedUp"], "going on there a third time, by itself, is one"
    assert bench.acted(run, retries=1)


def test_where_a_checkpoint_is_there_beginning_from_nothing_is_said_explicitly(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "kill"), HONEST)
    assert arm(bench.ended(run)) == "ResumeAvailable"
    assert names(retry_run(bench.ports, run, None, False, "ada")) == ["RetryUnavailable"]
    assert names(retry_run(bench.ports, run, "more memory", False, "ada")) == ["RetryUnavailable"]
    assert len(bench.claims(run)) == 1
    assert lines(retry_run(bench.ports, run, None, True, "ada"))
    assert arm(bench.ended(run)) == "Converged"
    assert bench.claims(run)[1].transition.cause == InfrastructureRetry(bench.claims(run)[0].attempt)
    assert bench.executions() == ["", ""]


@proven_by(nothing_is_fenced)
def test_a_lost_attempt_is_fenced_before_a_person_starts_another(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "kill_all"), ("effective", "kill_all"), HONEST)
    assert arm(bench.ended(run)) == "Lost"
    assert names(retry_run(bench.ports, run, "more memory", True, "ada")) == ["CapabilityNotForLost"]
    first = attempt_of(bench, run)[:8]
    assert lines(retry_run(bench.ports, run, None, False, "ada"))[0] == f"fenced attempt {first}"
    assert (bench.folder(run, 0) / "fenced").exists()
    assert arm(bench.ended(run)) == "Lost"
    assert lines(retry_run(bench.ports, run, None, True, "ada"))
    begun = [claim.transition.cause for claim in bench.claims(run)[1:]]
    assert [cause.checkpoint and cause.checkpoint.step for cause in begun if isinstance(cause, Relaunch)] == [4, None]
    assert arm(bench.ended(run)) == "Converged"


def all_lost_attempts_are_one() -> AbstractContextManager[object]:
    real = deciding._lost
    return planted(deciding, "_lost", lambda ports, looked, lost, *rest: real(ports, looked, Lost(NonEmpty(lost.attempts.first)), *rest))()


@proven_by(all_lost_attempts_are_one)
def test_of_several_lost_attempts_one_call_relaunches_the_first_and_names_the_others(bench: Bench) -> None:
    run = bench.told(("effective", "kill_all"), ("effective", "kill_all"), HONEST, HONEST)
    bench.ended(run)
    assert isinstance(acting.start(bench.ports, bench.record(run), RequestedReexecution("again")), Acted)
    last = bench.ended(run).conclusion.verdict
    assert isinstance(last, Lost) and len(last.attempts) == 2
    first, second = (claim.attempt.nonce.hex[:8] for claim in bench.claims(run))
    said = lines(retry_run(bench.ports, run, None, False, "ada"))
    assert (said[0], said[-1]) == (f"fenced attempt {first}", f"attempt {second} is lost as well: the next retry is for it")
    assert arm(bench.ended(run)) == "Lost", "what is lost is decided on before what was completed beside it"
    assert lines(retry_run(bench.ports, run, None, False, "ada"))[0] == f"fenced attempt {second}"
    assert arm(bench.ended(run)) == "SeveralCandidates" and len(bench.executions()) == 4


def the_look_is_older(bench: Bench, run: str) -> AbstractContextManager[object]:
    """Somebody gives the last attempt up between a person's look and the claim."""
    real = deciding.look_at

    def look_at(ports: Any, run_id: str) -> Any:
        looked = real(ports, run_id)
        bench.ports.store.abandon(run, bench.claims(run)[-1].attempt, "grace", 1)
        return looked

    return planted(deciding, "look_at", look_at)()


def a_person_is_told_what_a_controller_is() -> AbstractContextManager[object]:
    real = deciding.relaunch_from
    return planted(deciding, "relaunch_from", lambda ports, record, attempt, newest, by: real(ports, record, attempt, newest))()


@proven_by(a_person_is_told_what_a_controller_is)
def test_a_decision_on_a_run_that_moved_meanwhile_is_refused_and_claims_nothing(bench: Bench) -> None:
    run = bench.told(("effective", "kill_all"), HONEST)
    assert arm(bench.ended(run)) == "Lost"
    with the_look_is_older(bench, run):
        answer = retry_run(bench.ports, run, None, False, "ada")
    assert answer == Refused(NonEmpty(RunMovedMeanwhile(bench.record(run).ledger.version)))
    assert len(bench.claims(run)) == 1
    assert lines(retry_run(bench.ports, run, None, False, "ada"))
    assert arm(bench.ended(run)) == "Converged" and len(bench.claims(run)) == 2


def only_the_verdict_is_told() -> AbstractContextManager[object]:
    return planted(deciding, "_refused", lambda looked, defect: Refused(deciding.NonEmpty(defect)))()


@proven_by(only_the_verdict_is_told)
def test_a_retry_is_refused_with_every_reason(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert names(retry_run(bench.ports, run, None, False, "ada")) == ["RetryUnavailable"]
    bench.acted(run)
    bench.hanging()
    assert names(retry_run(bench.ports, run, None, True, "ada")) == ["RetryUnavailable"]
    bench.ports.store.cancel(run, "ada", 1)
    assert names(retry_run(bench.ports, run, None, True, "ada")) == ["RunCancelled", "RetryUnavailable"]
    bench.ended(run, allowed=stops)
    assert names(retry_run(bench.ports, run, None, True, "ada")) == ["RunCancelled"]
    assert len(bench.claims(run)) == 1


# ------------------------------------------------------------------------------------------------------------ doing it again


def test_work_is_done_once_more_and_its_weights_are_compared(bench: Bench) -> None:
    run = bench.told(HONEST)
    assert arm(bench.ended(run)) == "Converged"
    for number in (1, 2):
        assert lines(reexecute_run(bench.ports, run, None, "ada"))
        verdict = bench.ended(run).conclusion.verdict
        assert isinstance(verdict, SeveralCandidates) and verdict.equal_weights and len(verdict.candidates) == number + 1
    assert lines(reexecute_run(bench.ports, run, "for-the-paper", "ada"))
    bench.ended(run)
    requests = [cause.request for cause in (c.transition.cause for c in bench.claims(run)) if isinstance(cause, RequestedReexecution)]
    assert requests == ["again-1", "again-2", "for-the-paper"]
    assert lines(reexecute_run(bench.ports, run, "for-the-paper", "grace"))[0].endswith("carrying on with it")
    assert len(bench.claims(run)) == 4 and bench.executions() == [""] * 4


def each_look_makes_a_request() -> AbstractContextManager[object]:
    return planted(deciding, "_standing", lambda looked: "another")()


@proven_by(each_look_makes_a_request)
def test_a_request_that_is_repeated_while_it_is_under_way_is_carried_on_with(bench: Bench) -> None:
    run = bench.told(HONEST, ("effective", "hang", "output"))
    bench.ended(run)
    assert lines(reexecute_run(bench.ports, run, None, "ada"))
    bench.hanging()
    again = reexecute_run(bench.ports, run, None, "grace")
    assert isinstance(again, Acted) and again.lines[0].endswith("carrying on with it")
    assert names(reexecute_run(bench.ports, run, "another", "ada")) == ["RunNotAtRest"]
    bench.go_on()
    assert arm(bench.ended(run)) == "SeveralCandidates" and len(bench.executions()) == 2


def requests_are_counted_by_the_clock() -> AbstractContextManager[object]:
    numbers = iter(range(100))
    return planted(deciding, "_names", lambda: iter([f"again-{next(numbers)}"]))()


@proven_by(requests_are_counted_by_the_clock)
def test_two_persons_who_ask_at_one_moment_get_one_attempt(bench: Bench) -> None:
    run = bench.told(HONEST)
    bench.ended(run)
    others: list[object] = []

    class Raced:
        """The store, where another person's request comes in between this one's look and claim."""

        def __getattr__(self, name: str) -> Any:
            return getattr(bench.ports.store, name)

        def claim_start(self, *arguments: Any) -> Any:
            others.append(reexecute_run(bench.ports, run, None, "grace"))
            return bench.ports.store.claim_start(*arguments)

    store: Any = Raced()
    mine = reexecute_run(replace(bench.ports, store=store), run, None, "ada")
    assert isinstance(mine, Acted) and mine.lines[0].endswith("carrying on with it")
    assert len(others) == 1 and isinstance(others[0], Acted)
    assert arm(bench.ended(run)) == "SeveralCandidates" and len(bench.executions()) == 2


@proven_by(only_the_verdict_is_told)
def test_doing_it_once_more_is_refused_with_every_reason(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    bench.acted(run)
    bench.hanging()
    assert names(reexecute_run(bench.ports, run, None, "ada")) == ["RunNotAtRest"]
    bench.ports.store.cancel(run, "ada", 1)
    assert names(reexecute_run(bench.ports, run, None, "ada")) == ["RunCancelled", "RunNotAtRest"]
    bench.ended(run, allowed=stops)
    assert names(reexecute_run(bench.ports, run, None, "ada")) == ["RunCancelled"]
    assert len(bench.claims(run)) == 1


@proven_by(only_the_verdict_is_told)
def test_a_request_that_was_made_is_refused_once_the_run_is_cancelled(bench: Bench) -> None:
    """Nothing would be claimed for it, and it would be dispatched all the same."""
    run = bench.told(HONEST)
    bench.ended(run)
    assert lines(reexecute_run(bench.ports, run, "paper", "ada"))
    bench.ended(run)
    bench.ports.store.cancel(run, "ada", 1)
    assert names(reexecute_run(bench.ports, run, "paper", "ada")) == ["RunCancelled"]
    assert len(bench.claims(run)) == 2 and len(bench.executions()) == 2


def test_a_run_that_failed_may_be_done_once_more(bench: Bench) -> None:
    run = failed(bench, HONEST)
    assert lines(reexecute_run(bench.ports, run, "fresh", "ada"))
    assert arm(bench.ended(run)) == "Converged", "the attempt that failed stays, and is no candidate"


# -------------------------------------------------------------------------------------------------------------- giving up


def test_a_living_attempt_that_is_given_up_is_to_be_stopped(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"), HONEST)
    bench.acted(run)
    bench.hanging()
    nonce = attempt_of(bench, run)
    assert abandon_attempt(bench.ports, nonce[:8], "ada") == Abandoned(run, (f"attempt {nonce[:8]} is given up",))
    assert abandon_attempt(bench.ports, nonce, "grace") == Abandoned(run, (f"attempt {nonce[:8]} is given up before, by ada",))
    assert arm(bench.look(run)) == "StopRequired"
    assert bench.acted(run) == (f"attempt {nonce[:8]} is stopped",)
    assert arm(bench.look(run)) == "RetryRequired", "it ended, and said so"


def test_an_attempt_of_another_host_that_is_given_up_is_made_anew_here(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"), HONEST)
    assert bench.with_ports(host="elsewhere").acted(run)
    bench.hanging()
    nonce = attempt_of(bench, run)
    assert arm(bench.look(run)) in ("LaunchPending", "ObservationRequired")
    lines(abandon_attempt(bench.ports, nonce, "ada"))
    assert arm(bench.look(run)) == "Lost"
    said = bench.acted(run)
    assert said[0] == f"attempt {nonce[:8]} cannot be fenced from here; should it live on elsewhere, it is stopped there"
    assert not (bench.folder(run, 0) / "fenced").exists()
    assert arm(bench.ended(run)) == "Converged" and bench.causes(run) == ["InitialAttempt", "Relaunch"]
    assert arm(bench.with_ports(observer=replace(bench.ports.observer, host="elsewhere")).look(run)) == "StopRequired"
    bench.go_on()


def no_word_counts() -> AbstractContextManager[object]:
    real = acting._barred
    return planted(acting, "_barred", lambda ports, ledger, attempt: real(ports, replace(ledger, abandonments=()), attempt))()


def other_hosts_are_this_one() -> AbstractContextManager[object]:
    return planted(acting, "_barred", lambda ports, ledger, attempt: "fenced")()


@proven_by(no_word_counts, other_hosts_are_this_one)
def test_a_launch_that_another_host_refused_is_followed_from_here_on_a_persons_word_alone(bench: Bench) -> None:
    """Another controller over there may have said the same intent, and call the launcher later."""
    run = bench.told(HONEST)
    with planted(acting, "_launch", lambda ports, record, claim, beginning: DispatchRefused("the disk is full"))():
        assert bench.with_ports(host="elsewhere").acted(run)[-1].endswith("the disk is full")
    (claim,) = bench.claims(run)
    assert arm(bench.look(run)) == "ObservationRequired" and bench.acted(run, retries=9) == ()
    answer = acting.start(bench.ports, bench.record(run), InfrastructureRetry(claim.attempt))
    assert names(answer) == ["AttemptNotFenced"] and isinstance(answer, Refused)
    said = sentence(known(answer.defects)[0])
    name = claim.attempt.nonce.hex[:8]
    assert "(it was to be dispatched on elsewhere)" in said.message and f"countermark abandon {name}" in said.remedy
    lines(abandon_attempt(bench.ports, name, "ada"))
    assert arm(bench.look(run)) == "Lost"
    assert bench.acted(run)[0].startswith(f"attempt {name} cannot be fenced from here; should it live on elsewhere")
    assert arm(bench.ended(run)) == "Converged" and bench.causes(run) == ["InitialAttempt", "Relaunch"]
    assert bench.executions() == [""]


def test_an_attempt_whose_checkpoint_went_before_its_dispatch_is_got_rid_of(bench: Bench) -> None:
    run = bench.told(("effective", "save 4", "kill"), HONEST)
    bench.ended(run)
    assert bench.controller(run, "--die", "claimed").wait(timeout=40) == 9
    (bench.folder(run, 0) / "checkpoints" / "step-4").rename(bench.root / "gone")
    assert names(bench.step(run)) == ["CheckpointGone"]
    lines(abandon_attempt(bench.ports, attempt_of(bench, run), "ada"))
    assert arm(bench.look(run)) == "Lost"
    assert lines(retry_run(bench.ports, run, None, False, "ada"))
    assert arm(bench.ended(run)) == "Converged"
    assert bench.causes(run) == ["InitialAttempt", "Resume", "Relaunch"] and bench.executions() == ["", ""]


def test_an_attempt_is_named_and_not_its_run(bench: Bench) -> None:
    run = bench.told(("effective", "leave 3"))
    bench.ended(run)
    answer = abandon_attempt(bench.ports, run, "ada")
    assert isinstance(answer, Refused) and tuple(answer.defects) == (RunNamedForAttempt(run, (attempt_of(bench, run),)),)
    for text in ("f" * 32, "short"):
        assert names(abandon_attempt(bench.ports, text, "ada")) == ["NothingNamed"]
    assert bench.record(run).ledger.abandonments == ()
