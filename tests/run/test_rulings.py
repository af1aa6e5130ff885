"""What a person ruled reaches the control of its attempt in ledger order, and nothing starts of what was set aside."""

from dataclasses import replace
from typing import Any

import pytest

from countermark.run import claims, dispatch
from countermark.run.attempts import Attempt, InitialAttempt, RequestedReexecution, admit_attempt_graph
from countermark.run.claims import (
    Adjudication,
    BelieveSource,
    ControlComposition,
    ControlOnForeignAttempt,
    DispatchIntent,
    RunLedger,
    SetAside,
    deciding,
)
from countermark.run.demand import subject_of
from countermark.run.dispatch import AttemptAbandoned, AttemptSetAside, Insertable
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import claimed, desired, key

LEDGER = claimed(claimed(RunLedger(desired(), 0), 1), 2, RequestedReexecution("again"))
INTENT = DispatchIntent(key(1), "local", "n1", 2)
ASIDE = Adjudication(key(1), SetAside(), ("a", "b"), "ada", "torn", 5)
BELIEVED = Adjudication(key(1), BelieveSource("launcher"), ("b",), "ben", "seen", 6)
OTHER = replace(ASIDE, attempt=key(2))


def composed(ledger: RunLedger) -> Any:
    cause = InitialAttempt()
    attempts = (Attempt(key(1), desired().demand.id, cause), Attempt(key(2), desired().demand.id, RequestedReexecution("again")))
    graph = admit_attempt_graph(subject_of(desired()), attempts)
    assert not isinstance(graph, Refused)
    return claims.compose_control(graph, ledger)


@proven_by(planted(claims, "_by_attempt", lambda facts: {}))
def test_each_attempt_has_the_rulings_on_it_in_the_order_of_the_ledger() -> None:
    control = composed(replace(LEDGER, adjudications=(ASIDE, OTHER, BELIEVED)))
    assert isinstance(control, ControlComposition)
    assert {attempt: state.adjudications for attempt, state in control.states.items()} == {key(1): (ASIDE, BELIEVED), key(2): (OTHER,)}


def test_a_ruling_on_an_attempt_of_no_graph_is_refused_by_name() -> None:
    stranger = replace(ASIDE, attempt=key(9))
    assert composed(replace(LEDGER, adjudications=(ASIDE, stranger))) == Refused(NonEmpty(ControlOnForeignAttempt(key(9), "adjudication")))


def test_the_last_ruling_on_a_blocker_decides_on_it_alone() -> None:
    assert deciding(()) == {}
    assert deciding((ASIDE, BELIEVED)) == {"a": ASIDE, "b": BELIEVED}
    assert deciding((BELIEVED, ASIDE)) == {"a": ASIDE, "b": ASIDE}


@proven_by(planted(dispatch, "deciding", lambda given: {}))
@pytest.mark.parametrize("given", [(ASIDE,), (ASIDE, BELIEVED), (BELIEVED, ASIDE), (OTHER, ASIDE)])
def test_what_was_set_aside_is_not_started_any_more(given: tuple[Adjudication, ...]) -> None:
    refused = dispatch.admit_dispatch_intent(replace(LEDGER, adjudications=given), INTENT)
    assert refused == Refused(NonEmpty(AttemptSetAside(key(1))))


def test_both_reasons_are_named_where_it_was_given_up_as_well() -> None:
    given_up = replace(LEDGER, adjudications=(ASIDE,), abandonments=(claims.Abandonment(key(1), "ada", 4),))
    refused = dispatch.admit_dispatch_intent(given_up, INTENT)
    assert refused == Refused(NonEmpty(AttemptAbandoned(key(1)), (AttemptSetAside(key(1)),)))


@pytest.mark.parametrize("given", [(), (OTHER,), (BELIEVED,), (ASIDE, replace(BELIEVED, blockers=("a", "b")))])
def test_another_ruling_keeps_nothing_from_starting(given: tuple[Adjudication, ...]) -> None:
    assert dispatch.admit_dispatch_intent(replace(LEDGER, adjudications=given), INTENT) == Insertable(INTENT)
