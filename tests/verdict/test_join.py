"""The joints: halves that disagree, sweeps whose parts do not fit, and sources that speak of one attempt alone."""

from dataclasses import replace
from typing import Any

import pytest

from countermark.evidence.composition import EvidenceComposition, Readback, SubjectMismatch, bind_readback, compose_evidence
from countermark.evidence.cut import ObservationCut
from countermark.evidence.members import NotAttempted, Population, RawRead
from countermark.run.attempts import (
    AttemptGraph,
    DuplicateIdentity,
    InfrastructureRetry,
    Relaunch,
    RequestedReexecution,
    admit_attempt_graph,
)
from countermark.run.claims import ControlComposition, Dispatched, DispatchWithoutClaim, compose_control
from countermark.run.demand import Subject
from countermark.values import NonEmpty, Refused
from countermark.verdict import ConvergenceInput, HalvesDisagree, Sweep, conclude, join
from countermark.verdict.kinds import (
    Blocked,
    CompletionCandidate,
    InProgress,
    Lost,
    ObservationRequired,
    ResumeAvailable,
    RetryRequired,
    SuccessWithoutOutput,
)
from tests.faults import planted, proven_by
from tests.run.examples import demand_id, desired, work
from tests.verdict import test_join as here
from tests.verdict.scenes import Scene, Try, changed, checkpoint, concluded, ended, failed, key, process, subject, sweep

STARTED = Dispatched("started")
RUNNING = Scene((Try(1, STARTED),), processes={"local": (process(1),)})


def parts(of: Sweep) -> tuple[EvidenceComposition, ControlComposition]:
    graph = admit_attempt_graph(subject(), of.attempts)
    assert isinstance(graph, AttemptGraph)
    readback = bind_readback(subject(), of.reads)
    assert isinstance(readback, Readback)
    evidence, control = compose_evidence(graph, readback, of.cut), compose_control(graph, of.ledger)
    assert isinstance(evidence, EvidenceComposition)
    assert isinstance(control, ControlComposition)
    return evidence, control


def foreign_control(about: dict[str, str]) -> ControlComposition:
    run = desired(**about)
    graph = admit_attempt_graph(Subject(run.demand.id, run.demand.work), ())
    assert isinstance(graph, AttemptGraph)
    composed = compose_control(graph, replace(sweep(Scene()).ledger, desired=run))
    assert isinstance(composed, ControlComposition)
    return composed


@pytest.mark.parametrize(
    ("about", "halves"),
    [
        ({"request": "another"}, {"demand"}),
        ({"requester": "eve"}, {"demand"}),
        ({"principal": "another"}, {"work"}),
        ({"seed": "18"}, {"work"}),
        ({"request": "another", "principal": "another"}, {"demand", "work"}),
    ],
)
def test_halves_of_different_subjects_are_not_joined(about: dict[str, str], halves: set[str]) -> None:
    answer = join(parts(sweep(Scene()))[0], foreign_control(about), 0)
    assert isinstance(answer, Refused)
    assert {defect.half for defect in answer.defects} == halves


def test_halves_of_different_attempts_are_not_joined() -> None:
    answer = join(parts(sweep(RUNNING))[0], parts(sweep(Scene()))[1], 0)
    assert answer == Refused(NonEmpty(HalvesDisagree("attempt")))


def test_halves_are_not_joined_where_either_knows_more_attempts() -> None:
    one, two = parts(sweep(RUNNING)), parts(sweep(changed(RUNNING, tries=(*RUNNING.tries, Try(2, STARTED, RequestedReexecution("again"))))))
    assert isinstance(join(*one, 0), ConvergenceInput)
    assert isinstance(join(*two, 0), ConvergenceInput)
    for evidence, control in ((one[0], two[1]), (two[0], one[1])):
        assert join(evidence, control, 0) == Refused(NonEmpty(HalvesDisagree("attempt")))


def test_inputs_and_candidates_are_minted_by_their_doors_alone() -> None:
    evidence, control = parts(sweep(RUNNING))
    with pytest.raises(ValueError, match="minted"):
        ConvergenceInput(evidence, control, 0, object())
    with pytest.raises(ValueError, match="minted"):
        CompletionCandidate(key(1), subject().work.digest, "/store", object())


# ------------------------------------------------------------------------------------------------------ the whole way


def test_defects_of_both_compositions_are_named_together() -> None:
    of = sweep(RUNNING)
    stranger = Subject(demand_id("another"), work("another"))
    broken = replace(of, cut=replace(of.cut, subject=stranger), ledger=replace(of.ledger, claims=()))
    answer = conclude(broken)
    assert isinstance(answer, Refused)
    assert set(answer.defects) == {
        SubjectMismatch("cut", "demand"),
        SubjectMismatch("cut", "work"),
        DispatchWithoutClaim(key(1), "intent"),
        DispatchWithoutClaim(key(1), "outcome"),
    }


def test_defects_of_the_graph_and_of_the_binder_are_named_together() -> None:
    of = sweep(RUNNING)
    stranger = RawRead(Subject(demand_id("another"), subject().work), of.reads.outputs.population)
    answer = conclude(replace(of, attempts=of.attempts * 2, reads=replace(of.reads, outputs=stranger)))
    assert isinstance(answer, Refused)
    assert list(answer.defects) == [DuplicateIdentity(key(1)), DuplicateIdentity(key(1)), SubjectMismatch("outputs", "demand")]


def test_a_sweep_over_the_claims_knows_their_attempts() -> None:
    of = sweep(RUNNING)
    assert Sweep.of_claims(of.ledger, of.reads, of.cut, of.grace_ms) == of


# ----------------------------------------------------------------------------------------- sources of one attempt alone

AWAY = NotAttempted("the attempt is on n2; look from there")


def scoped(scene: Scene, number: int) -> Sweep:
    """The sweep with every source named ``away`` speaking of that attempt alone, and every other one of any."""
    of = sweep(scene)

    def population(given: Population[Any]) -> Population[Any]:
        found = NonEmpty.of(replace(one, about=key(number)) if one.source == "away" else one for one in given.readings)
        assert found is not None
        return Population(found)

    reads: dict[str, Any] = {stage: RawRead(read.subject, population(read.population)) for stage, read in of.reads.by_stage().items()}
    return replace(of, reads=replace(of.reads, **reads))


def blind(**axes: Any) -> dict[str, Any]:
    return {axis: {**given, "away": AWAY} for axis, given in axes.items()}


def verdict_of(of: Sweep) -> Any:
    answer = conclude(of)
    assert not isinstance(answer, Refused), answer
    return answer.verdict


def everybody_blind() -> Any:
    """No source says which attempt it speaks of, so one that was not read is blind about everything."""
    return planted(here, "scoped", lambda scene, number: sweep(scene))()


#: The first attempt is of another host and given up; the second ran here.
GIVEN_UP = Scene((Try(1, STARTED, host="n2"), Try(2, STARTED, Relaunch(key(1), "process"))), abandoned=(1,))


@proven_by(everybody_blind)
@pytest.mark.parametrize(
    ("axes", "kind"),
    [
        ({"terminals": {"local": ()}, "processes": {"local": ()}}, Lost),
        ({"terminals": {"local": (failed(2),)}, "processes": {"local": ()}, "checkpoints": {"local": ()}}, RetryRequired),
    ],
)
def test_what_cannot_be_seen_of_an_attempt_that_was_given_up_keeps_no_other_waiting(axes: Any, kind: type) -> None:
    assert isinstance(verdict_of(here.scoped(changed(GIVEN_UP, **blind(**axes)), 1)), kind)


@proven_by(everybody_blind)
def test_a_success_without_output_is_concluded_although_another_attempts_folder_cannot_be_read() -> None:
    scene = changed(GIVEN_UP, terminals={"local": (ended(2),)}, **blind(outputs={"local": ()}))
    verdict = verdict_of(here.scoped(scene, 1))
    assert isinstance(verdict, Blocked)
    assert tuple(verdict.blockers) == (SuccessWithoutOutput(key(2)),)


def test_the_same_blind_source_about_the_attempt_itself_keeps_it_waiting() -> None:
    scene = changed(GIVEN_UP, **blind(terminals={"local": ()}, processes={"local": ()}))
    verdict = verdict_of(here.scoped(scene, 2))
    assert isinstance(verdict, ObservationRequired)
    assert {(one.stage, one.source) for one in verdict.not_attempted} == {("processes", "away"), ("terminals_again", "away")}


def test_nothing_is_started_beside_an_earlier_attempt_that_nobody_can_see_and_nobody_gave_up() -> None:
    scene = changed(
        GIVEN_UP, tries=(GIVEN_UP.tries[0], Try(2, STARTED, InfrastructureRetry(key(1)))), abandoned=(), terminals={"local": (failed(2),)}
    )
    verdict = verdict_of(here.scoped(changed(scene, **blind(processes={"local": ()}, checkpoints={"local": (checkpoint(2),)})), 1))
    assert isinstance(verdict, ObservationRequired)
    assert {one.stage for one in verdict.not_attempted} == {"processes"}


def test_a_checkpoint_of_any_attempt_of_the_run_can_be_gone_on_from() -> None:
    scene = Scene(
        (Try(1, STARTED), Try(2, STARTED, InfrastructureRetry(key(1)))),
        terminals={"local": (failed(1), failed(2))},
        checkpoints={"local": (checkpoint(1, 5),)},
    )
    verdict = concluded(scene).verdict
    assert isinstance(verdict, ResumeAvailable)
    assert (verdict.attempt, verdict.checkpoints.first.step) == (key(2), 5)


def test_a_cut_of_another_subject_is_no_order_even_where_it_was_bound() -> None:
    cut = ObservationCut(Subject(demand_id("another"), work()), (), True)
    assert verdict_of(sweep(RUNNING)) == InProgress(NonEmpty(key(1)))
    assert isinstance(conclude(replace(sweep(RUNNING), cut=cut)), Refused)


def test_a_reexecution_keeps_its_own_standing() -> None:
    scene = changed(RUNNING, tries=(Try(1, STARTED), Try(2, "claimed", RequestedReexecution("again"))))
    verdict = concluded(scene).verdict
    assert isinstance(verdict, InProgress)
    assert tuple(verdict.attempts) == (key(1),)
