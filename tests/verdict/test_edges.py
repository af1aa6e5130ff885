"""Edges of the verdict that a small change of the program would move: whole conclusions at bounds, one source too many, one door alone."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from countermark.evidence.composition import SubjectMismatch
from countermark.evidence.cut import OutOfOrder, Stage
from countermark.evidence.members import NotAttempted, RawRead, SourceReading, Unread
from countermark.run.attempts import Attempt, DuplicateIdentity, InfrastructureRetry, InitialAttempt, Relaunch, RequestedReexecution
from countermark.run.checkpoint import Component, ComponentAbsent, ComponentMissing, PublicationIncomplete
from countermark.run.claims import BelieveSource, Dispatched
from countermark.run.demand import Subject
from countermark.values import NonEmpty, Refused
from countermark.verdict import ConvergenceInput, conclude
from countermark.verdict.fold import followed_from
from countermark.verdict.kinds import (
    CANDIDATE_SEAL,
    AxisNotAttempted,
    AxisRefused,
    Blocked,
    CheckpointNotAdmitted,
    CompletionCandidate,
    ContradictoryTerminals,
    Converged,
    CoordinatesUnread,
    GraceRunning,
    InProgress,
    LaunchPending,
    Lost,
    NoSuccess,
    NoTerminal,
    ObservationRequired,
    OrderMissing,
    RetryRequired,
)
from tests.run.examples import demand_id
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
    ruled,
    subject,
    sweep,
)
from tests.verdict.test_join import AWAY, blind, parts, scoped, verdict_of

STARTED = Dispatched("started")
RUNNING = Scene((Try(1, STARTED),), processes={"local": (process(1),)})
COMPLETED = Scene(
    (Try(1, STARTED),),
    terminals={"supervisor": (ended(1),)},
    outputs={"local": (output(1),)},
    manifests={"local": (manifest(1),)},
)


# ----------------------------------------------------------------------------------------------------------- the doors


def test_the_seals_say_who_mints() -> None:
    evidence, control = parts(sweep(RUNNING))
    with pytest.raises(ValueError, match=r"^a convergence input is minted by join$"):
        ConvergenceInput(evidence, control, 0, object())
    with pytest.raises(ValueError, match=r"^a completion candidate is minted by reconcile$"):
        CompletionCandidate(key(1), subject().work.digest, "/store", object())


def test_a_graph_that_is_refused_alone_ends_the_way() -> None:
    of = sweep(RUNNING)
    assert conclude(replace(of, attempts=of.attempts * 2)) == Refused(NonEmpty(DuplicateIdentity(key(1)), (DuplicateIdentity(key(1)),)))


def test_reads_that_are_refused_alone_end_the_way() -> None:
    of = sweep(RUNNING)
    stranger = RawRead(Subject(demand_id("another"), subject().work), of.reads.outputs.population)
    assert conclude(replace(of, reads=replace(of.reads, outputs=stranger))) == Refused(NonEmpty(SubjectMismatch("outputs", "demand")))


# ----------------------------------------------------------------------------------------------------------- believing


def test_a_source_that_said_one_thing_is_believed_whatever_the_others_said() -> None:
    three = changed(COMPLETED, terminals={"supervisor": (ended(1),), "launcher": (failed(1, "launcher"), failed(1, "launcher", 2))})
    assert isinstance(concluded(three).verdict, Blocked)
    believed = concluded(ruled(three, 1, BelieveSource("supervisor"))).verdict
    assert type(believed).__name__ == "Converged"


def test_a_source_that_said_two_things_is_not_believed() -> None:
    two = changed(COMPLETED, terminals={"supervisor": (ended(1), failed(1)), "launcher": (failed(1, "launcher", 2),)})
    verdict = concluded(ruled(two, 1, BelieveSource("supervisor"))).verdict
    said = ("launcher: failed with exit code 2", "supervisor: failed with exit code 1", "supervisor: succeeded")
    assert verdict == Blocked(NonEmpty(ContradictoryTerminals(key(1), said)))


# ---------------------------------------------------------------------------------------------------- blind about one


@pytest.mark.parametrize(("number", "kind"), [(1, ObservationRequired), (2, Blocked)])
def test_a_success_lacks_no_output_while_a_source_is_blind_about_just_that_attempt(number: int, kind: type) -> None:
    scene = Scene(
        (Try(1, STARTED), Try(2, STARTED, RequestedReexecution("again"))),
        terminals={"supervisor": (ended(1), failed(2))},
        manifests={"local": (manifest(1),)},
        **blind(outputs={"local": ()}),
    )
    assert isinstance(verdict_of(scoped(scene, number)), kind)


# ---------------------------------------------------------------------------------------------------------- checkpoints


def missing(component: str) -> NonEmpty[Any]:
    return NonEmpty(ComponentMissing(Component(component)), (PublicationIncomplete((f"{component} is missing",)),))


def test_a_checkpoint_that_is_not_admitted_is_named_with_its_attempt() -> None:
    scene = Scene(
        (Try(1, STARTED), Try(2, STARTED, InfrastructureRetry(key(1)))),
        terminals={"supervisor": (failed(1), failed(2))},
        checkpoints={
            "local": (
                checkpoint(1, 5, optimizer_state=ComponentAbsent(("optimizer.pt",))),
                checkpoint(2, 7, rng_state=ComponentAbsent(("rng_state.pth",))),
            )
        },
    )
    found = [why for why in concluded(scene).why_not if isinstance(why, CheckpointNotAdmitted)]
    assert found == [
        CheckpointNotAdmitted(key(1), 5, "/store/1/checkpoints/step-5", missing("optimizer_state")),
        CheckpointNotAdmitted(key(2), 7, "/store/2/checkpoints/step-7", missing("rng_state")),
    ]


class Counted(dict[Any, Attempt]):
    """Attempts that count how often one of them is looked up."""

    looked = 0

    def __getitem__(self, attempt: Any) -> Attempt:
        self.looked += 1
        return super().__getitem__(attempt)


def test_what_follows_a_checkpoint_is_found_by_one_visit_of_each_attempt() -> None:
    def chain() -> Iterator[Attempt]:
        yield Attempt(key(0), demand_id(), InitialAttempt())
        yield from (Attempt(key(number), demand_id(), InfrastructureRetry(key(number - 1))) for number in range(1, 50))
        yield from (Attempt(key(number), demand_id(), InfrastructureRetry(key(49))) for number in range(50, 100))
        yield Attempt(key(100), demand_id(), RequestedReexecution("again"))
        yield Attempt(key(101), demand_id(), InfrastructureRetry(key(100)))

    attempts = Counted({attempt.key: attempt for attempt in chain()})
    fold: Any = SimpleNamespace(evidence=SimpleNamespace(graph=SimpleNamespace(attempts=attempts)))
    ends = NonEmpty(key(101), tuple(key(number) for number in range(99, 49, -1)))
    assert followed_from(fold, ends, key(100)) == key(101)
    assert attempts.looked == 101
    assert followed_from(fold, ends, key(7)) == key(50)
    assert followed_from(fold, ends, key(77)) == key(77)
    assert followed_from(fold, ends, key(101)) == key(101)


# -------------------------------------------------------------------------------------------------- what must be seen

UNREAD = changed(COMPLETED, manifests={"local": (manifest(1, seed=Unread("no key")),)})
SEED = CoordinatesUnread(key(1), ("seed: no key",))
LAST = ("terminals", "outputs", "checkpoints", "manifests", "terminals_again", "processes")


def test_a_success_that_lacks_a_reading_asks_for_that_alone() -> None:
    """It may complete: what another attempt would need to start is nobody's concern yet."""
    dark = changed(UNREAD, processes={"local": NotAttempted("no")}, checkpoints={"local": "the disk failed"})
    conclusion = concluded(dark)
    assert conclusion.verdict == ObservationRequired((), (), (SEED,), ())
    assert conclusion.why_not == (SEED,)


def test_a_torn_checkpoint_is_no_matter_while_a_success_lacks_a_reading() -> None:
    torn = checkpoint(1, 5, rng_state=ComponentAbsent(("rng_state.pth",)))
    conclusion = concluded(changed(UNREAD, checkpoints={"local": (torn, checkpoint(1, 7))}))
    assert (conclusion.verdict, conclusion.why_not) == (ObservationRequired((), (), (SEED,), ()), (SEED,))


TWO = (Try(1, STARTED), Try(2, STARTED, RequestedReexecution("again")))


def test_a_run_that_converged_gives_no_reason_why_another_attempt_did_not() -> None:
    conclusion = concluded(changed(COMPLETED, tries=TWO, terminals={"supervisor": (ended(1), failed(2))}))
    assert conclusion.verdict == Converged(CompletionCandidate(key(1), output(1).digest, output(1).path, CANDIDATE_SEAL))
    assert conclusion.why_not == ()


def test_beside_an_attempt_that_completed_the_reasons_of_those_after_it_are_named() -> None:
    conclusion = concluded(changed(COMPLETED, tries=TWO, processes={"local": (process(2),)}))
    assert (conclusion.verdict, conclusion.why_not) == (InProgress(NonEmpty(key(2))), (NoTerminal(key(2)),))


def test_every_outcome_that_was_said_is_named_as_a_reason() -> None:
    scene = changed(COMPLETED, terminals={"supervisor": (ended(1),), "launcher": (failed(1, "launcher"), failed(1, "launcher", 2))})
    assert concluded(scene).why_not == (NoSuccess(key(1), "failed with exit code 1, failed with exit code 2, succeeded"),)


@pytest.mark.parametrize(("number", "asked"), [(1, True), (2, False)])
def test_whose_manifest_or_output_nobody_read_is_told_by_the_source_that_speaks_of_it(number: int, asked: bool) -> None:
    scene = changed(UNREAD, tries=(Try(1, STARTED), Try(2, STARTED, RequestedReexecution("again"))), **blind(manifests=UNREAD.manifests))
    scene = changed(scene, terminals={"supervisor": (ended(1), failed(2))})
    wanted = (AxisNotAttempted("manifests", "away", AWAY.why),) if asked else ()
    assert verdict_of(scoped(scene, number)) == ObservationRequired(wanted, (), (SEED,), ())
    bare = changed(scene, manifests={"local": (manifest(1),)}, **blind(outputs={"local": ()}))
    missing = verdict_of(scoped(bare, 1))
    assert missing == ObservationRequired((AxisNotAttempted("outputs", "away", AWAY.why),), (), (), ())


def test_an_intent_of_another_host_is_elsewhere_while_a_source_is_blind_about_it() -> None:
    scene = Scene((Try(1, None, host="n2"),), **blind(processes={"local": ()}))
    assert verdict_of(scoped(scene, 1)) == LaunchPending(NonEmpty(key(1)))
    assert verdict_of(scoped(scene, 2)) == Lost(NonEmpty(key(1)))


def test_a_launch_elsewhere_names_the_sources_that_are_blind_about_it_alone() -> None:
    """The other attempt was given up, and what cannot be seen of it is not what this one waits for."""
    gone = Scene(
        (Try(1, STARTED, host="n2"), Try(2, None, Relaunch(key(1), "process"), host="n3")), abandoned=(1,), **blind(processes={"local": ()})
    )
    of = scoped(gone, 1)
    stage = of.reads.processes.population
    third = SourceReading("n3", NotAttempted("look from n3"), key(2))
    both = replace(stage, readings=NonEmpty(stage.readings.first, (*stage.readings.more, third)))
    conclusion = conclude(replace(of, reads=replace(of.reads, processes=replace(of.reads.processes, population=both))))
    assert not isinstance(conclusion, Refused)
    assert conclusion.verdict == LaunchPending(NonEmpty(key(2)))
    assert [why for why in conclusion.why_not if isinstance(why, AxisNotAttempted)] == [AxisNotAttempted("processes", "n3", "look from n3")]


def test_within_its_grace_an_attempt_waits_for_no_order() -> None:
    young = Scene((Try(1, STARTED),), order=LAST, grace_ms=10**9)
    conclusion = concluded(young)
    assert conclusion.verdict == LaunchPending(NonEmpty(key(1)))
    assert conclusion.why_not == (GraceRunning(key(1), 99_500, 10**9), NoTerminal(key(1)))
    old = concluded(changed(young, grace_ms=60_000))
    assert old.verdict == ObservationRequired((), (), (), (OrderMissing(key(1), "Lost", "processes", "terminals_again", OutOfOrder()),))


def test_what_ended_waits_for_no_order_of_its_launch() -> None:
    over = Scene((Try(1, STARTED),), terminals={"supervisor": (failed(1),)}, order=LAST)
    assert concluded(over).verdict == RetryRequired(NonEmpty(key(1)))


@pytest.mark.parametrize("stage", ["processes", "terminals"])
def test_where_a_reading_is_missing_its_order_is_not_asked_for_as_well(stage: str) -> None:
    scene = Scene((Try(1, STARTED),), **blind(**{stage: {"local": ()}}))
    seen: Stage = "terminals_again" if stage == "terminals" else "processes"
    wanted = ObservationRequired((AxisNotAttempted(seen, "away", AWAY.why),), (), (), ())
    assert verdict_of(scoped(changed(scene, order=LAST), 1)) == wanted
    other = verdict_of(scoped(changed(scene, order=LAST), 2))
    assert other == ObservationRequired((), (), (), (OrderMissing(key(1), "Lost", "processes", "terminals_again", OutOfOrder()),))


def test_a_source_of_another_attempt_hides_none_of_those_behind_it() -> None:
    scene = Scene((Try(1, STARTED),), processes={"away": AWAY, "local": "the table could not be read", "other": NotAttempted("no")})
    assert verdict_of(scoped(scene, 2)) == ObservationRequired(
        (AxisNotAttempted("processes", "other", "no"),), (AxisRefused("processes", "local", "the table could not be read"),), (), ()
    )
