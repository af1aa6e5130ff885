"""Intents, outcomes, cancellations and abandonments: admitted once, with every reason against."""

from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.run import dispatch as room
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    BelieveSource,
    Cancellation,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    Launcher,
    LaunchResult,
    OutcomeWithoutIntent,
    RunCancelled,
    RunLedger,
    SetAside,
    SuccessorExists,
)
from countermark.run.dispatch import (
    AlreadyDispatched,
    AttemptAbandoned,
    AttemptNotClaimed,
    DispatchDefect,
    Insertable,
    IntentElsewhere,
    IntentUsed,
    admit_abandonment,
    admit_adjudication,
    admit_cancellation,
    admit_dispatch_intent,
    admit_dispatch_outcome,
)
from countermark.run.records import Stands, bounded
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import claimed, desired, key
from tests.run.test_claims import RETRY

CLAIMED = claimed(RunLedger(desired(), 0), 1)
INTENT = DispatchIntent(key(1), "local", "n1", 2)
INTENDED = replace(CLAIMED, version=2, intents=(INTENT,))
SAID = Cancellation("ada", 5)
GIVEN_UP = Abandonment(key(1), "ada", 6)


def against(ledger: RunLedger, intent: DispatchIntent = INTENT) -> Counter[DispatchDefect]:
    answer = room.admit_dispatch_intent(ledger, intent)
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


def outcome(result: LaunchResult) -> DispatchOutcome:
    return DispatchOutcome(key(1), result, 9)


def test_a_committed_claim_gets_its_first_intent() -> None:
    assert admit_dispatch_intent(CLAIMED, INTENT) == Insertable(INTENT)


def test_a_standing_intent_is_acted_on_again_only_where_the_launcher_finds_its_first_call() -> None:
    later = replace(INTENT, recorded_ms=99)
    assert admit_dispatch_intent(INTENDED, later) == Stands(INTENT)
    ray = replace(INTENT, launcher="ray")
    assert admit_dispatch_intent(replace(INTENDED, intents=(ray,)), replace(ray, host="n2")) == Stands(ray)
    slurm = replace(INTENT, launcher="slurm")
    assert against(replace(INTENDED, intents=(slurm,)), slurm) == Counter([IntentUsed(key(1), "slurm")])
    assert against(INTENDED, replace(INTENT, host="n2")) == Counter([IntentElsewhere(key(1), "local", "n1")])
    assert against(INTENDED, ray) == Counter([IntentElsewhere(key(1), "local", "n1")])


RESULTS: tuple[LaunchResult, ...] = (Dispatched(""), DispatchRefused(""), DispatchUnknown("timed out"))


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_an_attempt_with_any_outcome_is_never_dispatched_again(result: LaunchResult) -> None:
    assert against(replace(INTENDED, outcomes=(outcome(result),))) == Counter([AlreadyDispatched(key(1))])


def test_each_other_reason_alone() -> None:
    assert against(replace(CLAIMED, cancellations=(SAID,))) == Counter([RunCancelled()])
    assert against(CLAIMED, replace(INTENT, attempt=key(2))) == Counter([AttemptNotClaimed(key(2))])
    assert against(CLAIMED, replace(INTENT, attempt=key(1, "other"))) == Counter([AttemptNotClaimed(key(1, "other"))])
    assert against(replace(CLAIMED, abandonments=(GIVEN_UP,))) == Counter([AttemptAbandoned(key(1))])
    assert against(claimed(CLAIMED, 2, RETRY)) == Counter([SuccessorExists(key(1), key(2))])


def first_wins() -> AbstractContextManager[object]:
    """Admission that stops at its first reason."""
    honest = room.NonEmpty

    class First:
        @staticmethod
        def of(found: list[DispatchDefect]) -> object:
            return honest.of(found[:1])

    return planted(room, "NonEmpty", First)()


@proven_by(first_wins)
def test_every_reason_together() -> None:
    ledger = replace(claimed(INTENDED, 2, RETRY), cancellations=(SAID,), abandonments=(GIVEN_UP,), outcomes=(outcome(Dispatched("")),))
    wanted: list[DispatchDefect] = [RunCancelled(), AlreadyDispatched(key(1)), IntentElsewhere(key(1), "local", "n1")]
    wanted += [AttemptAbandoned(key(1)), SuccessorExists(key(1), key(2))]
    assert against(ledger, replace(INTENT, host="n2")) == Counter(wanted)


def test_an_outcome_needs_claim_and_intent() -> None:
    assert admit_dispatch_outcome(CLAIMED, outcome(Dispatched(""))) == Refused(NonEmpty(OutcomeWithoutIntent(key(1))))
    stranger = replace(outcome(Dispatched("")), attempt=key(2))
    assert admit_dispatch_outcome(INTENDED, stranger) == Refused(NonEmpty(AttemptNotClaimed(key(2)), (OutcomeWithoutIntent(key(2)),)))


def test_an_outcome_is_recorded_of_a_cancelled_run_too() -> None:
    assert admit_dispatch_outcome(replace(INTENDED, cancellations=(SAID,)), outcome(Dispatched("pid 7"))) == Insertable(
        outcome(Dispatched("pid 7"))
    )


def last_wins() -> AbstractContextManager[object]:
    """Every answer as strong as any other."""
    return planted(room, "strength", lambda result: 0 if result.__class__ is Dispatched else -1)()


@proven_by(last_wins)
def test_a_refusal_never_follows_an_answer_that_something_may_run() -> None:
    for standing in (Dispatched("pid 7"), DispatchUnknown("timed out")):
        ledger = replace(INTENDED, outcomes=(outcome(standing),))
        assert room.admit_dispatch_outcome(ledger, outcome(DispatchRefused("no"))) == Stands(outcome(standing))
    refused = replace(INTENDED, outcomes=(outcome(DispatchRefused("no")),))
    assert room.admit_dispatch_outcome(refused, outcome(DispatchUnknown("?"))) == Insertable(outcome(DispatchUnknown("?")))
    assert room.admit_dispatch_outcome(refused, outcome(DispatchRefused("still no"))) == Stands(outcome(DispatchRefused("no")))


def test_the_strongest_answer_stands_wherever_it_is_recorded() -> None:
    started = Dispatched("pid 7")
    for answers in ((started, DispatchUnknown("?")), (DispatchUnknown("?"), started)):
        ledger = replace(INTENDED, outcomes=tuple(map(outcome, answers)))
        assert admit_dispatch_outcome(ledger, outcome(Dispatched("again"))) == Stands(outcome(started))


@given(st.lists(st.sampled_from(RESULTS), max_size=6))
def test_whatever_is_answered_the_recorded_outcomes_only_grow_in_strength(answers: list[LaunchResult]) -> None:
    ledger = INTENDED
    for result in answers:
        decision = admit_dispatch_outcome(ledger, outcome(result))
        if isinstance(decision, Insertable):
            ledger = replace(ledger, outcomes=(*ledger.outcomes, decision.fact))
    order = [DispatchRefused, DispatchUnknown, Dispatched]
    strengths = [order.index(type(each.result)) for each in ledger.outcomes]
    assert strengths == sorted(set(strengths))
    if answers:
        assert strengths[-1] == max(order.index(type(result)) for result in answers)


def test_a_cancellation_is_said_once() -> None:
    assert admit_cancellation(CLAIMED, SAID) == Insertable(SAID)
    assert admit_cancellation(replace(CLAIMED, cancellations=(SAID,)), Cancellation("bob", 7)) == Stands(SAID)


def test_an_attempt_of_the_run_is_given_up_once() -> None:
    assert admit_abandonment(CLAIMED, GIVEN_UP) == Insertable(GIVEN_UP)
    assert admit_abandonment(replace(CLAIMED, abandonments=(GIVEN_UP,)), Abandonment(key(1), "bob", 7)) == Stands(GIVEN_UP)
    assert admit_abandonment(CLAIMED, Abandonment(key(2), "ada", 6)) == Refused(NonEmpty(AttemptNotClaimed(key(2))))


RULED = Adjudication(key(1), SetAside(), ("several outputs",), "ada", "the disk was swapped", 8)


def time_counts() -> AbstractContextManager[object]:
    """A ruling said again at another time is another ruling."""
    return planted(room, "replace", lambda earlier, recorded_ms: earlier)()


@proven_by(time_counts)
def test_a_ruling_that_is_repeated_word_for_word_stands() -> None:
    assert admit_adjudication(CLAIMED, RULED) == Insertable(RULED)
    ledger = replace(CLAIMED, adjudications=(RULED,))
    assert admit_adjudication(ledger, replace(RULED, recorded_ms=99)) == Stands(RULED)


@pytest.mark.parametrize(
    "change",
    [
        {"ruling": BelieveSource("supervisor")},
        {"blockers": ("several outputs", "a live process")},
        {"by": "bob"},
        {"reason": "another"},
        {"attempt": key(2)},
    ],
    ids=lambda change: ",".join(change),
)
def test_a_ruling_that_says_anything_else_is_one_more(change: dict[str, object]) -> None:
    other = replace(RULED, **change)  # type: ignore[arg-type]
    ledger = replace(claimed(CLAIMED, 2, RETRY), adjudications=(RULED,))
    assert admit_adjudication(ledger, other) == Insertable(other)
    both = replace(ledger, adjudications=(RULED, other))
    assert [admit_adjudication(both, replace(said, recorded_ms=99)) for said in (RULED, other)] == [Stands(RULED), Stands(other)]


def test_a_ruling_concerns_an_attempt_of_the_run() -> None:
    stranger = replace(RULED, attempt=key(2))
    assert admit_adjudication(CLAIMED, stranger) == Refused(NonEmpty(AttemptNotClaimed(key(2))))
    assert admit_adjudication(replace(CLAIMED, adjudications=(RULED,)), stranger) == Refused(NonEmpty(AttemptNotClaimed(key(2))))
    assert admit_adjudication(RunLedger(desired(), 0), RULED) == Refused(NonEmpty(AttemptNotClaimed(key(1))))


@pytest.mark.parametrize("launcher", ["local", "slurm", "ray"])
def test_the_first_intent_is_free_to_every_launcher(launcher: Launcher) -> None:
    intent = DispatchIntent(key(1), launcher, "n1", 2)
    assert admit_dispatch_intent(CLAIMED, intent) == Insertable(intent)


@given(st.text(max_size=300), st.integers(60, 200))
def test_words_are_cut_with_the_number_of_those_left_out(text: str, most: int) -> None:
    cut = bounded(text, most)
    assert len(cut) <= most
    assert (cut == text) == (len(text) <= most)
    if len(text) > most:
        kept = text[: most - 40]
        assert cut == f"{kept}… ({len(text) - len(kept)} more characters)"
