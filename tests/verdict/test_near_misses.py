"""Facts that differ by very little, and conclusions that rest on just one order, one reading or one attempt."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from countermark.evidence.composition import EvidenceComposition
from countermark.evidence.cut import STAGES, OutOfOrder, Stage
from countermark.evidence.members import (
    CancelledByRequest,
    Failed,
    Killed,
    NotExecuted,
    Observed,
    Outcome,
    Population,
    Preempted,
    RawRead,
    SourceReading,
    Unread,
)
from countermark.run.attempts import InfrastructureRetry
from countermark.run.checkpoint import Component, ComponentAbsent, ComponentMissing, PublicationIncomplete
from countermark.run.claims import Dispatched, SetAside
from countermark.values import NonEmpty
from countermark.verdict import conclude
from countermark.verdict import fold as room
from countermark.verdict import places as places_room
from countermark.verdict.kinds import (
    AxisRefused,
    Blocked,
    Cancelled,
    CheckpointNotAdmitted,
    Conclusion,
    ContradictoryTerminals,
    Converged,
    CoordinatesUnread,
    GraceRunning,
    LiveProcessAfterTerminal,
    Lost,
    ObservationRequired,
    OrderMissing,
    ResumeAvailable,
    RetryRequired,
    SeveralExecutions,
    SeveralLiveProcesses,
    SuccessWithoutOutput,
)
from countermark.verdict.standing import outcome_text, terminal_blockers
from tests.faults import planted, proven_by
from tests.verdict.scenes import (
    Scene,
    Try,
    changed,
    checkpoint,
    concluded,
    ended,
    failed,
    key,
    manifest,
    output,
    process,
    receipt,
    ruled,
    sweep,
)

STARTED = Dispatched("started")
ONE = (Try(1, STARTED),)
CHAIN = (Try(1, STARTED), Try(2, STARTED, InfrastructureRetry(key(1))))
COMPLETED = Scene(ONE, terminals={"supervisor": (ended(1),)}, outputs={"local": (output(1),)}, manifests={"local": (manifest(1),)})


def verdict(scene: Scene) -> Any:
    return concluded(scene).verdict


# -------------------------------------------------------------------------------------------------- nearly the same end

NEARLY: list[tuple[Outcome, Outcome]] = [
    (Failed(1), Failed(2)),
    (Killed(9), Killed(15)),
    (Failed(127), NotExecuted(127, "not found")),
    (NotExecuted(127, "not found"), NotExecuted(126, "not found")),
    (Failed(9), Killed(9)),
    (CancelledByRequest(), Preempted()),
    (Killed(15), CancelledByRequest()),
]


def kinds_alone() -> Any:
    """Ends of one kind are one end, whatever the code."""

    def judged(standing: Any) -> Any:
        return terminal_blockers(standing) if len({type(one.outcome) for one in standing.terminals()}) > 1 else ()

    return planted(room, "terminal_blockers", judged)()


def success_alone() -> Any:
    """Ends contradict each other only where one of them is a success."""

    def judged(standing: Any) -> Any:
        return terminal_blockers(standing) if standing.success_said() else ()

    return planted(room, "terminal_blockers", judged)()


@proven_by(success_alone)
@pytest.mark.parametrize(("one", "other"), NEARLY)
@pytest.mark.parametrize("again", [False, True])
def test_two_ends_that_are_nearly_the_same_contradict_each_other(one: Outcome, other: Outcome, again: bool) -> None:
    """From two sources of one reading, or from one source in two readings; of two attempts they are history."""
    apart = {"supervisor": (ended(1, one),), "launcher": (ended(1, other, "launcher"),)}
    scene = Scene(ONE, terminals=apart)
    said = (f"launcher: {outcome_text(other)}", f"supervisor: {outcome_text(one)}")
    if again:
        scene = Scene(ONE, terminals={"supervisor": (ended(1, one),)}, again={"supervisor": (ended(1, other),)})
        said = tuple(sorted(f"supervisor: {outcome_text(outcome)}" for outcome in (one, other)))  # type: ignore[assignment]
    assert verdict(scene) == Blocked(NonEmpty(ContradictoryTerminals(key(1), said)))
    history = Scene(CHAIN, terminals={"supervisor": (ended(1, one),), "launcher": (ended(2, other, "launcher"),)})
    assert verdict(history) == RetryRequired(NonEmpty(key(2)))


@proven_by(kinds_alone)
def test_a_code_is_part_of_an_end() -> None:
    scene = Scene(ONE, terminals={"supervisor": (failed(1), failed(1, code=2))})
    assert verdict(scene) == Blocked(
        NonEmpty(ContradictoryTerminals(key(1), ("supervisor: failed with exit code 1", "supervisor: failed with exit code 2")))
    )


# ------------------------------------------------------------------------------------------------------ nearly two lives

FIRST = "n1 boot b1 pid namespace 4026531836 pid 100 started at tick 7"
OTHER = FIRST.replace("100", "200")


@pytest.mark.parametrize(
    ("states", "several"),
    [
        (("alive", "alive"), SeveralLiveProcesses),
        (("alive", "settling"), SeveralExecutions),
        (("settling", "settling"), SeveralExecutions),
        (("settling", "dead"), SeveralExecutions),
        (("dead", "dead"), SeveralExecutions),
    ],
)
def test_only_trainers_that_live_are_several_live_processes(states: tuple[Any, Any], several: Any) -> None:
    """A supervisor that outlives its trainer is no second trainer; that there were two executions is told all the same."""
    scene = Scene(ONE, processes={"local": (process(1, states[0]), process(1, states[1], pid=200))})
    assert verdict(scene) == Blocked(NonEmpty(several(key(1), (FIRST, OTHER))))


# ----------------------------------------------------------------------------------------- each conclusion and its order


def licensed(scene: Scene, order: tuple[Stage, ...], kind: Any) -> bool:
    """Whether the conclusion is drawn on a sweep in this order; where not, what is missing is named."""
    conclusion = concluded(changed(scene, order=order))
    found = conclusion.verdict
    drawn = isinstance(found, kind) or (isinstance(found, Blocked) and {type(one) for one in found.blockers} == {kind})
    missing = {why.rule: (why.earlier, why.later) for why in conclusion.why_not if isinstance(why, OrderMissing)}
    assert missing == ({} if drawn else {kind.__name__: LICENSES[kind]})
    return drawn


LICENSES: dict[Any, tuple[Stage, Stage]] = {
    SuccessWithoutOutput: ("terminals", "outputs"),
    LiveProcessAfterTerminal: ("terminals", "processes"),
    Lost: ("processes", "terminals_again"),
}
CONCLUDED: dict[Any, Scene] = {
    SuccessWithoutOutput: changed(COMPLETED, outputs={"local": ()}),
    LiveProcessAfterTerminal: changed(COMPLETED, processes={"local": (process(1),)}),
    Lost: Scene(ONE),
}
ordered = EvidenceComposition.order


def one_order_for_all() -> Any:
    """Whatever order a rule asks for, that of terminals before processes is answered."""
    return planted(EvidenceComposition, "order", lambda self, earlier, later: ordered(self, "terminals", "processes"))()


def turned() -> Any:
    return planted(EvidenceComposition, "order", lambda self, earlier, later: ordered(self, later, earlier))()


def any_terminals() -> Any:
    """Either reading of terminals stands for the other."""

    def order(self: Any, earlier: Stage, later: Stage) -> Any:
        swapped: dict[Stage, Stage] = {"terminals": "terminals_again", "terminals_again": "terminals"}
        return ordered(self, swapped.get(earlier, earlier), swapped.get(later, later))

    return planted(EvidenceComposition, "order", order)()


@proven_by(one_order_for_all, turned, any_terminals)
def test_of_all_orders_of_a_sweep_each_conclusion_is_licensed_by_its_own_pair_alone() -> None:
    for kind, (earlier, later) in LICENSES.items():
        for order in permutations(STAGES):
            wanted = order.index(earlier) < order.index(later)
            assert licensed(CONCLUDED[kind], order, kind) is wanted, (kind, order)


# --------------------------------------------------------------------------------------------- whichever of two comes first


@pytest.mark.parametrize("paths", list(permutations(("/store/1/a", "/store/1/b", "/store/1/c"))))
def test_of_several_copies_of_one_output_the_same_is_named_in_whatever_order_they_were_seen(paths: tuple[str, ...]) -> None:
    found = verdict(changed(COMPLETED, outputs={"local": tuple(output(1, path=path) for path in paths)}))
    assert isinstance(found, Converged)
    assert found.candidate.path == "/store/1/a"


@pytest.mark.parametrize("order", list(permutations((0, 1, 2, 3))))
def test_checkpoints_of_one_step_stand_in_one_order_however_they_were_seen(order: tuple[int, ...]) -> None:
    seen = (checkpoint(1, 5, "/z/1"), checkpoint(1, 5, "/z/2"), checkpoint(2, 5, "/a/1"), checkpoint(2, 5, "/a/2"))
    scene = Scene(CHAIN, terminals={"supervisor": (failed(1), failed(2))}, checkpoints={"local": tuple(seen[at] for at in order)})
    found = verdict(scene)
    assert isinstance(found, ResumeAvailable)
    assert [one.path for one in found.checkpoints] == ["/z/1", "/z/2", "/a/1", "/a/2"], "by attempt, and then by path"


@pytest.mark.parametrize("turned_round", [False, True])
def test_grace_ends_at_the_first_look_that_any_source_took_at_processes(turned_round: bool) -> None:
    """A second source that looked much later shows nothing of what the first one could have seen."""
    of = sweep(Scene(ONE, grace_ms=60_000))
    early, late = (replace(receipt("processes", name), started_ms=at) for name, at in (("local", 60_499), ("other", 90_000)))
    readings = tuple(SourceReading(one.id, Observed((), one)) for one in (early, late))
    found = NonEmpty.of(readings[::-1] if turned_round else readings)
    assert found is not None
    reads = replace(of.reads, processes=RawRead(of.reads.processes.subject, Population(found)))
    cut = replace(
        of.cut,
        stages=tuple(replace(one, receipts=Population(found).receipts()) if one.stage == "processes" else one for one in of.cut.stages),
    )
    conclusion = conclude(replace(of, reads=reads, cut=cut))
    assert isinstance(conclusion, Conclusion)
    assert GraceRunning(key(1), 59_999, 60_000) in conclusion.why_not


# ----------------------------------------------------------------------------------------- another attempt than the last

BETWEEN = Scene(
    CHAIN,
    terminals={"supervisor": (failed(2),)},
    again={"supervisor": (failed(1), failed(2))},
    processes={"local": (process(1), process(2, "dead"))},
)
READ_LATE = OrderMissing(key(1), "LiveProcessAfterTerminal", "terminals_again", "processes", OutOfOrder())


def frontier_alone() -> Any:
    """Of whether something may live still, the frontier alone is asked."""
    original = places_room.perhaps_alive

    def asked(fold: Any, standing: Any) -> Any:
        return original(fold, standing) if standing.attempt in fold.evidence.graph.frontier() else ()

    return planted(places_room, "perhaps_alive", asked)()


@proven_by(frontier_alone)
def test_nothing_is_started_beside_an_earlier_attempt_that_may_still_live() -> None:
    """Its process was seen, and the terminal that would end it was written after the look."""
    assert verdict(BETWEEN) == ObservationRequired((), (), (), (READ_LATE,))
    over = changed(BETWEEN, processes={"local": (process(1, "dead"), process(2, "dead"))})
    assert verdict(over) == RetryRequired(NonEmpty(key(2)))


def test_a_run_is_not_cancelled_beside_an_earlier_attempt_that_may_still_live() -> None:
    assert verdict(changed(BETWEEN, cancelled=True)) == ObservationRequired((), (), (), (READ_LATE,))
    over = changed(BETWEEN, cancelled=True, processes={"local": (process(1, "dead"),)})
    assert verdict(over) == Cancelled()


def test_an_earlier_success_of_which_nobody_read_everything_is_asked_about_before_one_candidate_is_named() -> None:
    """It was followed when its success was not to be seen yet; whether it completed decides between one candidate and two."""
    both = Scene(
        CHAIN,
        terminals={"supervisor": (ended(1), ended(2))},
        outputs={"local": (output(1), output(2))},
        manifests={"local": (manifest(1, seed=Unread("no key")), manifest(2))},
    )
    assert verdict(both) == ObservationRequired((), (), (CoordinatesUnread(key(1), ("seed: no key",)),), ())
    ended_before = changed(both, terminals={"supervisor": (failed(1), ended(2))})
    assert isinstance(verdict(ended_before), Converged)


# ------------------------------------------------------------------------------------------------------ two words at once


def test_what_was_given_up_and_set_aside_rests_on_the_word_that_needs_no_look() -> None:
    twice = Scene(ONE, processes={"local": (process(1, "dead"), process(1, "dead", pid=200))})
    aside = changed(ruled(twice, 1, SetAside()), processes={"local": "the node does not answer"})
    refused = AxisRefused("processes", "local", "the node does not answer")
    assert verdict(aside) == ObservationRequired((), (refused,), (), ())
    assert verdict(changed(aside, abandoned=(1,))) == Lost(NonEmpty(key(1)))


def test_a_torn_checkpoint_is_named_beside_what_was_not_observed() -> None:
    torn = checkpoint(1, 9, rng_state=ComponentAbsent(("rng_state.pth",)))
    scene = Scene(ONE, terminals={"supervisor": (failed(1),)}, checkpoints={"local": (torn,), "other": "the disk failed"})
    conclusion = concluded(scene)
    assert conclusion.verdict == ObservationRequired((), (AxisRefused("checkpoints", "other", "the disk failed"),), (), ())
    defects = NonEmpty(ComponentMissing(Component.RNG_STATE), (PublicationIncomplete(("rng_state is missing",)),))
    assert CheckpointNotAdmitted(key(1), 9, torn.path, defects) in conclusion.why_not
    whole = changed(scene, checkpoints={"local": (torn,)})
    assert verdict(whole) == RetryRequired(NonEmpty(key(1)))
