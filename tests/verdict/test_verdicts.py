"""Every arm of the verdict with its why not, and their precedence: whoever satisfies two arms gets the higher."""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, get_args

import pytest

from countermark.evidence.cut import OutOfOrder, Unobserved
from countermark.evidence.members import CancelledByRequest, Killed, NotAttempted, Preempted, Read, Unread
from countermark.recipe import ROSTER
from countermark.run.attempts import InfrastructureRetry, Relaunch, RequestedReexecution
from countermark.run.checkpoint import Component, ComponentAbsent, ComponentMissing, PublicationIncomplete
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown
from countermark.values import Sha256
from countermark.verdict import Verdict
from countermark.verdict.kinds import (
    AxisNotAttempted,
    AxisRefused,
    Blocked,
    Cancelled,
    CheckpointNotAdmitted,
    Converged,
    CoordinatesUnread,
    ExecutionRequired,
    GraceRunning,
    InProgress,
    LaunchDispatchRequired,
    LaunchPending,
    Lost,
    NoOutputRead,
    NoSuccess,
    NoTerminal,
    NothingAttempted,
    ObservationRequired,
    OrderMissing,
    OrphanOutput,
    ResumeAvailable,
    RetryRequired,
    SeveralCandidates,
    StopRequired,
)
from tests.faults import planted, proven_by
from tests.verdict.scenes import Scene, Try, changed, checkpoint, concluded, ended, failed, key, manifest, output, plus, process

STARTED = Dispatched("started")
NOTHING = Scene()
CLAIMED = Scene((Try(1, "claimed"),))
DISPATCHED = Scene((Try(1, STARTED),))
#: What an attempt that completed shows.
COMPLETED = Scene(
    (Try(1, STARTED),),
    terminals={"supervisor": (ended(1),)},
    processes={"local": (process(1, "dead"),)},
    outputs={"local": (output(1),)},
    manifests={"local": (manifest(1),)},
)
ENDED = changed(COMPLETED, terminals={"supervisor": (failed(1),)}, outputs={"local": ()})
ALIVE = changed(DISPATCHED, processes={"local": (process(1),)})


def at(scene: Scene) -> Verdict:
    return concluded(scene).verdict


def attempts(verdict: Any) -> set[Any]:
    return set(verdict.attempts)


# ------------------------------------------------------------------------------------------------------------- the arms


def test_nothing_attempted_needs_an_execution() -> None:
    conclusion = concluded(NOTHING)
    assert conclusion.verdict == ExecutionRequired()
    assert conclusion.why_not == (NothingAttempted(),)
    assert conclusion.notes == ()


@pytest.mark.parametrize("axis", ["terminals", "processes", "outputs", "checkpoints", "manifests", "again"])
@pytest.mark.parametrize(
    ("given", "kind"),
    [(NotAttempted("nobody looked"), AxisNotAttempted), ("the disk failed", AxisRefused)],
    ids=["not attempted", "refused"],
)
def test_nothing_is_executed_while_an_axis_is_unread(axis: str, given: Any, kind: Any) -> None:
    """The heart of "no absent": one unread source on any stage is no licence to start."""
    scene = changed(NOTHING, **{"again": {"supervisor": ()}, axis: {"local": given}})
    conclusion = concluded(scene)
    assert isinstance(conclusion.verdict, ObservationRequired)
    found: list[AxisNotAttempted | AxisRefused] = [*conclusion.verdict.not_attempted, *conclusion.verdict.refused]
    stage = "terminals_again" if axis == "again" else axis
    assert [(type(one), one.stage, one.source) for one in found] == [(kind, stage, "local")]
    assert found[0] in conclusion.why_not


def test_a_claim_without_intent_is_to_be_dispatched_whatever_was_seen() -> None:
    for scene in (CLAIMED, changed(CLAIMED, processes={"local": "down"}, terminals={"supervisor": NotAttempted("no")})):
        verdict = at(scene)
        assert isinstance(verdict, LaunchDispatchRequired)
        assert attempts(verdict) == {key(1)}


@pytest.mark.parametrize(("launcher", "host", "wanted"), [
    ("local", "n1", LaunchDispatchRequired), ("ray", "n2", LaunchDispatchRequired), ("slurm", "n1", Lost), ("local", "n2", Lost),
])  # fmt: skip
def test_an_intent_without_outcome_is_dispatched_again_only_where_that_is_safe(launcher: Any, host: str, wanted: type) -> None:
    """Elsewhere it is only looked at, until it is lost."""
    scene = Scene((Try(1, None, launcher=launcher, host=host),))
    assert isinstance(at(scene), wanted)
    if wanted is Lost:
        assert isinstance(at(changed(scene, grace_ms=10**9)), LaunchPending)


def test_an_intent_of_another_host_is_pending_although_nobody_can_look_there() -> None:
    away = NotAttempted("the attempt is on n2; look from there")
    scene = Scene((Try(1, None, host="n2"),), terminals={"supervisor": away}, processes={"local": away})
    conclusion = concluded(scene)
    assert isinstance(conclusion.verdict, LaunchPending)
    named = {why for why in conclusion.why_not if isinstance(why, AxisNotAttempted)}
    assert {why.stage for why in named} == {"processes", "terminals_again"}


@pytest.mark.parametrize(
    ("axis", "trace"),
    [("processes", process(1, "dead")), ("checkpoints", checkpoint(1)), ("outputs", output(1)), ("manifests", manifest(1))],
)
@pytest.mark.parametrize("result", [None, DispatchUnknown("timed out")])
def test_traces_show_that_a_launch_happened_and_the_same_claim_never_restarts(axis: str, trace: Any, result: Any) -> None:
    verdict = at(changed(Scene((Try(1, result),)), **{axis: {"local": (trace,)}}))
    assert isinstance(verdict, Lost)


def test_an_unknown_outcome_is_only_looked_at_however_long_it_takes() -> None:
    conclusion = concluded(Scene((Try(1, DispatchUnknown("timed out")),), grace_ms=0))
    assert isinstance(conclusion.verdict, LaunchPending)
    assert conclusion.why_not == (NoTerminal(key(1)),)


@pytest.mark.parametrize(("grace_ms", "wanted"), [(99_500, Lost), (99_501, LaunchPending)])
def test_grace_lies_between_stored_receipts(grace_ms: int, wanted: type) -> None:
    conclusion = concluded(changed(DISPATCHED, grace_ms=grace_ms))
    assert isinstance(conclusion.verdict, wanted)
    assert attempts(conclusion.verdict) == {key(1)}
    waiting = (GraceRunning(key(1), 99_500, grace_ms),) if wanted is LaunchPending else ()
    assert set(conclusion.why_not) == {NoTerminal(key(1)), *waiting}


def test_a_clock_that_was_stepped_back_only_lengthens_the_wait() -> None:
    conclusion = concluded(Scene((Try(1, STARTED, recorded_ms=200_000),), grace_ms=0))
    assert isinstance(conclusion.verdict, LaunchPending)
    assert GraceRunning(key(1), 0, 0) in conclusion.why_not


def test_a_live_process_without_a_terminal_is_in_progress() -> None:
    conclusion = concluded(ALIVE)
    assert isinstance(conclusion.verdict, InProgress)
    assert attempts(conclusion.verdict) == {key(1)}
    assert conclusion.why_not == (NoTerminal(key(1)),)


def test_a_supervisor_alone_is_progress_because_its_terminal_may_still_come() -> None:
    assert isinstance(at(changed(ALIVE, processes={"local": (process(1, "settling"),)})), InProgress)


def test_a_living_predecessor_keeps_everything_waiting() -> None:
    """A retry of an attempt that turns out to live: nothing is started beside it."""
    scene = changed(ALIVE, tries=(Try(1, STARTED), Try(2, "claimed", InfrastructureRetry(key(1)))))
    verdict = at(scene)
    assert isinstance(verdict, InProgress)
    assert attempts(verdict) == {key(1)}


def test_lost_needs_the_process_read_before_the_terminal() -> None:
    for order, answer in ((("terminals", "outputs", "checkpoints", "manifests", "terminals_again", "processes"), OutOfOrder()),):
        conclusion = concluded(changed(DISPATCHED, order=order))
        missing = OrderMissing(key(1), "Lost", "processes", "terminals_again", answer)
        assert conclusion.verdict == ObservationRequired((), (), (), (missing,))
        assert missing in conclusion.why_not


@pytest.mark.parametrize("axis", ["processes", "again"])
def test_lost_needs_both_populations(axis: str) -> None:
    verdict = at(changed(DISPATCHED, **{"again": {"supervisor": ()}, axis: {"local": "down"}}))
    assert isinstance(verdict, ObservationRequired)
    assert [one.stage for one in verdict.refused] == ["terminals_again" if axis == "again" else axis]


def test_lost_does_not_need_the_first_reading_of_terminals() -> None:
    assert isinstance(at(changed(DISPATCHED, terminals={"supervisor": "down"}, again={"supervisor": ()})), Lost)


@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.parametrize("state", ["alive", "settling"])
def test_what_was_cancelled_or_given_up_and_lives_is_to_be_stopped(cancelled: bool, state: Any) -> None:
    scene = changed(ALIVE, processes={"local": (process(1, state),)}, cancelled=cancelled, abandoned=() if cancelled else (1,))
    verdict = at(scene)
    assert isinstance(verdict, StopRequired)
    assert attempts(verdict) == {key(1)}


def test_the_predecessor_of_a_relaunch_is_to_be_stopped_and_no_other() -> None:
    relaunched = changed(ALIVE, tries=(Try(1, STARTED), Try(2, STARTED, Relaunch(key(1), "process"))))
    verdict = at(changed(relaunched, processes=plus(relaunched.processes, process(2))))
    assert isinstance(verdict, StopRequired)
    assert attempts(verdict) == {key(1)}


def test_cancelled_needs_a_complete_look_at_processes() -> None:
    scene = changed(DISPATCHED, cancelled=True)
    assert at(scene) == Cancelled()
    assert at(changed(NOTHING, cancelled=True)) == Cancelled()
    assert at(changed(COMPLETED, cancelled=True)) == Cancelled()
    refused = at(changed(scene, processes={"local": "down"}))
    assert refused == ObservationRequired((), (AxisRefused("processes", "local", "down"),), (), ())


def test_cancelled_is_not_concluded_beside_a_process_that_only_a_later_terminal_ends() -> None:
    scene = changed(ALIVE, cancelled=True, again={"supervisor": (ended(1, CancelledByRequest()),)})
    missing = OrderMissing(key(1), "LiveProcessAfterTerminal", "terminals_again", "processes", OutOfOrder())
    assert at(scene) == ObservationRequired((), (), (), (missing,))


def test_a_completed_attempt_converges() -> None:
    conclusion = concluded(COMPLETED)
    assert isinstance(conclusion.verdict, Converged)
    candidate = conclusion.verdict.candidate
    assert (candidate.attempt, candidate.output, candidate.path) == (key(1), Sha256("d" * 64), "/store/1/output")
    assert conclusion.why_not == ()
    assert conclusion.notes == ()


def test_convergence_is_positive_evidence_and_needs_no_absence() -> None:
    """The scheduler forgot the job and nobody looked at processes; what the supervisor wrote and the files show is enough."""
    scene = changed(
        COMPLETED,
        terminals={"supervisor": (ended(1),), "scheduler": "no such job"},
        processes={"local": NotAttempted("no")},
        checkpoints={"local": "down"},
    )
    assert isinstance(at(scene), Converged)


@pytest.mark.parametrize(("break_", "why"), [
    ({"outputs": {"local": "visibility unproven"}}, NoOutputRead(key(1))),
    ({"manifests": {"local": NotAttempted("no")}}, CoordinatesUnread(key(1), tuple(f"{name}: nobody read it" for name in ROSTER))),
    ({"manifests": {"local": (manifest(1, seed=Unread("a callback failed")),)}}, CoordinatesUnread(key(1), ("seed: a callback failed",))),
    ({"manifests": {"local": (manifest(1, seed=None),)}}, CoordinatesUnread(key(1), ("seed: nobody read it",))),
    ({"manifests": {"local": (manifest(1, seed=Read("17", "passed_through")),)}},
     CoordinatesUnread(key(1), ("seed: passed through, which is no reading",))),
])  # fmt: skip
def test_a_success_without_all_of_its_evidence_needs_an_observation(break_: Any, why: Any) -> None:
    conclusion = concluded(changed(COMPLETED, **break_))
    assert isinstance(conclusion.verdict, ObservationRequired)
    assert why in conclusion.why_not
    unread = (why,) if isinstance(why, CoordinatesUnread) else ()
    assert conclusion.verdict.coordinates_unread == unread


def test_two_sources_together_may_read_what_neither_read_alone() -> None:
    word, artifact = manifest(1, rank=Unread("no")), manifest(1, "artifact", **{name: None for name in ROSTER if name != "rank"})
    assert isinstance(at(changed(COMPLETED, manifests={"local": (word, artifact)})), Converged)


TWICE = changed(
    COMPLETED,
    tries=(Try(1, STARTED), Try(2, STARTED, RequestedReexecution("again"))),
    terminals={"supervisor": (ended(1), ended(2))},
    processes={"local": (process(1, "dead"), process(2, "dead"))},
    manifests={"local": (manifest(1), manifest(2))},
)


@pytest.mark.parametrize(("digests", "equal"), [("dd", True), ("de", False)])
def test_two_completions_are_both_named_with_whether_they_are_equal(digests: str, equal: bool) -> None:
    verdict = at(changed(TWICE, outputs={"local": (output(1, digests[0]), output(2, digests[1]))}))
    assert isinstance(verdict, SeveralCandidates)
    assert {candidate.attempt for candidate in verdict.candidates} == {key(1), key(2)}
    assert verdict.equal_weights is equal


def test_whether_a_second_success_completed_is_asked_before_one_candidate_is_named() -> None:
    verdict = at(changed(TWICE, outputs={"local": (output(1),), "other": "down"}))
    assert verdict == ObservationRequired((), (AxisRefused("outputs", "other", "down"),), (), ())


@pytest.mark.parametrize("outcome", [None, Killed(9), CancelledByRequest(), Preempted()])
def test_an_ended_attempt_without_a_checkpoint_is_retried(outcome: Any) -> None:
    scene = ENDED if outcome is None else changed(ENDED, terminals={"supervisor": (ended(1, outcome),)})
    conclusion = concluded(scene)
    assert isinstance(conclusion.verdict, RetryRequired)
    assert attempts(conclusion.verdict) == {key(1)}
    assert [type(why) for why in conclusion.why_not] == [NoSuccess]


def test_an_ended_attempt_with_checkpoints_is_resumed_from_the_newest() -> None:
    verdict = at(changed(ENDED, checkpoints={"local": (checkpoint(1, 5), checkpoint(1, 15), checkpoint(1, 10))}))
    assert isinstance(verdict, ResumeAvailable)
    assert verdict.attempt == key(1)
    assert [one.step for one in verdict.checkpoints] == [15, 10, 5]


TORN = checkpoint(1, 20, optimizer_state=ComponentAbsent(("optimizer.pt",)), rng_state=ComponentAbsent(("rng_state.pth",)))


def test_a_torn_checkpoint_is_named_with_every_defect_and_an_older_one_is_resumed_from() -> None:
    conclusion = concluded(changed(ENDED, checkpoints={"local": (TORN, checkpoint(1, 15))}))
    assert isinstance(conclusion.verdict, ResumeAvailable)
    assert [one.step for one in conclusion.verdict.checkpoints] == [15]
    rejected = [why for why in conclusion.why_not if isinstance(why, CheckpointNotAdmitted)]
    assert [(one.step, set(map(type, one.defects))) for one in rejected] == [(20, {ComponentMissing, PublicationIncomplete})]
    missing = {defect.component for defect in rejected[0].defects if isinstance(defect, ComponentMissing)}
    assert missing == {Component.OPTIMIZER_STATE, Component.RNG_STATE}


def test_only_torn_checkpoints_leave_a_retry() -> None:
    conclusion = concluded(changed(ENDED, checkpoints={"local": (TORN,)}))
    assert isinstance(conclusion.verdict, RetryRequired)
    assert [type(why) for why in conclusion.why_not] == [CheckpointNotAdmitted, NoSuccess]


@pytest.mark.parametrize("axis", ["processes", "checkpoints"])
def test_another_attempt_needs_a_complete_look_at_what_lives_and_what_could_be_resumed(axis: str) -> None:
    verdict = at(changed(ENDED, **{axis: {"local": "down"}}))
    assert verdict == ObservationRequired((), (AxisRefused(axis, "local", "down"),), (), ())  # type: ignore[arg-type]


def test_with_an_admitted_checkpoint_another_unread_source_of_checkpoints_does_not_wait() -> None:
    assert isinstance(at(changed(ENDED, checkpoints={"local": (checkpoint(1),), "other": "down"})), ResumeAvailable)


def test_a_process_that_only_the_later_terminal_ends_is_looked_at_again_before_another_attempt() -> None:
    scene = changed(ALIVE, again={"supervisor": (failed(1),)})
    missing = OrderMissing(key(1), "LiveProcessAfterTerminal", "terminals_again", "processes", OutOfOrder())
    assert at(scene) == ObservationRequired((), (), (), (missing,))


def test_a_resume_is_named_for_the_attempt_that_the_checkpoint_led_to() -> None:
    """Two chains ended; the newest checkpoint lies in the first attempt of the second chain."""
    tries = (Try(1, STARTED), Try(5, STARTED, RequestedReexecution("again")), Try(6, STARTED, InfrastructureRetry(key(5))))
    scene = changed(
        ENDED,
        tries=tries,
        terminals={"supervisor": (failed(1), failed(5), failed(6))},
        checkpoints={"local": (checkpoint(1, 5), checkpoint(5, 9))},
    )
    verdict = at(scene)
    assert isinstance(verdict, ResumeAvailable)
    assert verdict.attempt == key(6)
    assert [one.step for one in verdict.checkpoints] == [9, 5]


def test_a_refused_dispatch_without_traces_is_retried() -> None:
    refused = Scene((Try(1, DispatchRefused("no room")),))
    verdict = at(refused)
    assert isinstance(verdict, RetryRequired)
    assert attempts(verdict) == {key(1)}
    unread = at(changed(refused, again={"supervisor": "down"}))
    assert unread == ObservationRequired((), (AxisRefused("terminals_again", "supervisor", "down"),), (), ())


def test_what_a_person_gave_up_is_lost_on_that_persons_word() -> None:
    for scene in (DISPATCHED, CLAIMED, changed(DISPATCHED, processes={"local": "down"}), Scene((Try(1, DispatchUnknown("?")),))):
        verdict = at(changed(scene, abandoned=(1,), grace_ms=10**9))
        assert isinstance(verdict, Lost)
        assert attempts(verdict) == {key(1)}


def test_an_output_without_success_is_always_named_and_never_a_candidate() -> None:
    scene = changed(ENDED, outputs={"local": (output(1),)})
    conclusion = concluded(scene)
    assert conclusion.notes == (OrphanOutput(key(1), "/store/1/output", Sha256("d" * 64)),)
    assert isinstance(conclusion.verdict, RetryRequired)
    lost = concluded(changed(scene, terminals={"supervisor": ()}))
    assert isinstance(lost.verdict, Lost)
    assert lost.notes == conclusion.notes
    assert concluded(changed(scene, terminals={"supervisor": ()}, processes={"local": (process(1),)})).notes == ()


def test_what_no_order_licensed_is_named_beside_every_verdict() -> None:
    """The attempt completed between the readings: converged, and nothing is said of the process that was seen before."""
    conclusion = concluded(
        changed(COMPLETED, terminals={"supervisor": ()}, again={"supervisor": (ended(1),)}, processes={"local": (process(1),)})
    )
    assert isinstance(conclusion.verdict, Converged)
    assert conclusion.why_not == (OrderMissing(key(1), "LiveProcessAfterTerminal", "terminals_again", "processes", OutOfOrder()),)


# ------------------------------------------------------------------------------------------------------- the read orders


@pytest.mark.parametrize("finished", [True, False])
def test_a_success_without_output_is_concluded_on_a_whole_sweep_only(finished: bool) -> None:
    conclusion = concluded(changed(COMPLETED, outputs={"local": ()}, finished=finished))
    assert isinstance(conclusion.verdict, Blocked if finished else ObservationRequired)
    if not finished:
        why = OrderMissing(key(1), "SuccessWithoutOutput", "terminals", "outputs", Unobserved("the sweep was broken off"))
        assert why in conclusion.why_not


def test_a_success_that_the_second_reading_shows_licenses_nothing_about_outputs() -> None:
    conclusion = concluded(changed(COMPLETED, outputs={"local": ()}, terminals={"supervisor": ()}, again={"supervisor": (ended(1),)}))
    why = OrderMissing(key(1), "SuccessWithoutOutput", "terminals_again", "outputs", OutOfOrder())
    assert conclusion.verdict == ObservationRequired((), (), (), (why,))


def test_an_order_that_was_the_other_way_round_licenses_nothing() -> None:
    order = ("outputs", "processes", "terminals", "checkpoints", "manifests", "terminals_again")
    scene = changed(COMPLETED, outputs={"local": ()}, processes={"local": (process(1),)}, order=order)
    conclusion = concluded(scene)
    assert {type(why) for why in conclusion.why_not} >= {OrderMissing, NoOutputRead}
    assert {why.rule for why in conclusion.why_not if isinstance(why, OrderMissing)} == {"SuccessWithoutOutput", "LiveProcessAfterTerminal"}
    assert not isinstance(conclusion.verdict, Blocked)


# ----------------------------------------------------------------------------------------------------------- precedence

BLOCKER = changed(TWICE, outputs={"local": (output(1), output(2), output(1, "e", "/elsewhere"))})
#: For each arm and the next one, a scene that satisfies both. Attempt 9 is a re-execution beside attempt 1.
AGAIN = RequestedReexecution("again")


def both(scene: Scene, *others: Try, **axes: Any) -> Scene:
    return changed(scene, tries=(*scene.tries, *others), **axes)


NEIGHBOURS: dict[tuple[str, str], Scene] = {
    ("Blocked", "StopRequired"): both(
        changed(COMPLETED, outputs={"local": ()}), Try(9, STARTED, AGAIN), processes={"local": (process(9),)}, abandoned=(9,)
    ),
    ("StopRequired", "Cancelled"): changed(ALIVE, cancelled=True),
    ("Cancelled", "InProgress"): changed(DISPATCHED, cancelled=True),
    ("InProgress", "ObservationRequired"): both(
        changed(COMPLETED, outputs={"local": "down"}), Try(9, STARTED, AGAIN), processes={"local": (process(9),)}
    ),
    ("ObservationRequired", "LaunchDispatchRequired"): both(changed(COMPLETED, outputs={"local": "down"}), Try(9, "claimed", AGAIN)),
    ("LaunchDispatchRequired", "LaunchPending"): both(CLAIMED, Try(9, DispatchUnknown("?"), AGAIN)),
    ("LaunchPending", "Lost"): both(DISPATCHED, Try(9, DispatchUnknown("?"), AGAIN)),
    ("Lost", "SeveralCandidates"): both(TWICE, Try(9, STARTED, RequestedReexecution("third")), outputs={"local": (output(1), output(2))}),
    ("SeveralCandidates", "Converged"): changed(TWICE, outputs={"local": (output(1), output(2))}),
    ("Converged", "ResumeAvailable"): both(
        COMPLETED, Try(9, STARTED, AGAIN), terminals={"supervisor": (ended(1), failed(9))}, checkpoints={"local": (checkpoint(9),)}
    ),
    ("ResumeAvailable", "RetryRequired"): both(
        ENDED, Try(9, STARTED, AGAIN), terminals={"supervisor": (failed(1), failed(9))}, checkpoints={"local": (checkpoint(9),)}
    ),
    ("RetryRequired", "ExecutionRequired"): ENDED,
}


def arms() -> list[str]:
    return [kind.__name__ for kind in get_args(Verdict)]


def test_every_arm_stands_beside_its_neighbour() -> None:
    assert list(NEIGHBOURS) == list(zip(arms(), arms()[1:], strict=False))


def lowest_wins() -> AbstractContextManager[object]:
    """Whatever is found, the lowest arm is concluded."""
    return planted(import_module("countermark.verdict.reconcile"), "_verdict", lambda fold, frontier: (ExecutionRequired(), ()))()


@proven_by(lowest_wins)
@pytest.mark.parametrize(("higher", "lower"), list(NEIGHBOURS))
def test_the_higher_of_two_arms_is_the_verdict(higher: str, lower: str) -> None:
    assert type(at(NEIGHBOURS[(higher, lower)])).__name__ == higher
