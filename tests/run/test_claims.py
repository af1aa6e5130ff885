"""The exclusion key is the transition: one look at the ledger in one order, and every defect together."""

import hashlib
import struct
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe import canonical
from countermark.run import claims as room
from countermark.run.attempts import (
    AttemptGraph,
    CapabilityEscalation,
    Cause,
    CheckpointIdentity,
    InfrastructureRetry,
    InitialAttempt,
    Relaunch,
    RequestedReexecution,
    Resume,
    admit_attempt_graph,
)
from countermark.run.claims import (
    Abandonment,
    Admissible,
    AlreadyCommitted,
    AttemptIdentityTaken,
    Cancellation,
    ClaimDefect,
    ControlComposition,
    ControlDefect,
    ControlOnForeignAttempt,
    ControlState,
    ControlSubjectMismatch,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchWithoutClaim,
    OutcomeWithoutIntent,
    PredecessorNotInGraph,
    RunCancelled,
    RunLedger,
    SeveralClaims,
    SnapshotStale,
    SuccessorExists,
    Transition,
    TransitionOfAnotherRun,
    admit_start_claim,
    cause_parts,
    compose_control,
    creates_or_gets,
)
from countermark.run.demand import Subject
from countermark.values import Refused, Sha256
from tests.faults import planted, proven_by
from tests.run.examples import CHECKPOINT, HALF_OF, attempt, claim, claimed, demand_id, desired, key, stranger, transition, work

EMPTY = RunLedger(desired(), 0)
ONE = claimed(EMPTY, 1)
RETRY = InfrastructureRetry(key(1))
TWO = claimed(ONE, 2, RETRY)
SAID = Cancellation("ada", 5)


def found(ledger: RunLedger, asked: Transition, candidate: int = 9) -> Counter[ClaimDefect]:
    """Every defect of a claim on the current version."""
    answer = admit_start_claim(ledger, ledger.version, asked, key(candidate))
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


# ------------------------------------------------------------------------------------------------------ the four looks


def test_a_free_slot_on_the_current_version_is_admissible_with_the_next_version() -> None:
    assert admit_start_claim(EMPTY, 0, transition(), key(1)) == Admissible(claim(1))
    assert admit_start_claim(ONE, 1, transition(RETRY), key(2)) == Admissible(claim(2, RETRY, 2))


def version_first() -> AbstractContextManager[object]:
    """The version looked at before the slot: an old snapshot never learns who won."""
    honest = room.admit_start_claim

    def wrong(ledger: RunLedger, snapshot: int, asked: Transition, candidate: object) -> object:
        return SnapshotStale(ledger.version) if snapshot != ledger.version else honest(ledger, snapshot, asked, candidate)  # type: ignore[arg-type]

    return planted(room, "admit_start_claim", wrong)()


@proven_by(version_first)
def test_an_occupied_slot_names_its_winner_even_to_an_old_snapshot() -> None:
    for snapshot in (0, 1, 2, 77):
        assert room.admit_start_claim(TWO, snapshot, transition(), key(9)) == AlreadyCommitted(claim(1))


def no_version() -> AbstractContextManager[object]:
    """No look at the version at all."""
    honest = room.admit_start_claim
    return planted(room, "admit_start_claim", lambda ledger, snapshot, *asked: honest(ledger, ledger.version, *asked))()


@proven_by(no_version)
def test_a_free_slot_on_a_moved_ledger_is_stale_and_never_refused() -> None:
    for snapshot in (0, 2, -1):
        assert room.admit_start_claim(ONE, snapshot, transition(RETRY), key(2)) == SnapshotStale(1)
    cancelled = replace(ONE, version=2, cancellations=(SAID,))
    assert room.admit_start_claim(cancelled, 1, transition(RETRY), key(2)) == SnapshotStale(2)


def test_a_cancelled_run_still_names_the_winner() -> None:
    cancelled = replace(ONE, version=2, cancellations=(SAID,))
    assert admit_start_claim(cancelled, 1, transition(), key(9)) == AlreadyCommitted(claim(1))


# ----------------------------------------------------------------------------------------------------- each defect alone


def test_a_cancelled_run_starts_nothing() -> None:
    assert found(replace(ONE, cancellations=(SAID,)), transition(RETRY)) == Counter([RunCancelled()])


def test_a_predecessor_has_one_successor() -> None:
    assert found(TWO, transition(Resume(key(1), CHECKPOINT))) == Counter([SuccessorExists(key(1), key(2))])


def test_two_resumes_from_two_checkpoints_are_two_slots_and_one_successor() -> None:
    resumed = claimed(ONE, 2, Resume(key(1), CHECKPOINT))
    later = transition(Resume(key(1), CheckpointIdentity(6, CHECKPOINT.digest)))
    assert later.slot() != resumed.claims[1].transition.slot()
    assert found(resumed, later) == Counter([SuccessorExists(key(1), key(2))])


def test_a_predecessor_must_be_of_the_run() -> None:
    assert found(ONE, transition(InfrastructureRetry(key(5)))) == Counter([PredecessorNotInGraph(key(5))])


def test_a_predecessor_under_another_account_is_none_of_the_run() -> None:
    assert found(ONE, transition(InfrastructureRetry(key(1, "other")))) == Counter([PredecessorNotInGraph(key(1, "other"))])


def test_a_transition_of_another_demand_or_work_is_refused() -> None:
    assert found(ONE, transition(demand=demand_id("weekly"))) == Counter([TransitionOfAnotherRun()])
    assert found(ONE, transition(principal="other")) == Counter([TransitionOfAnotherRun()])
    other = Transition(demand_id(), work(seed="18"), InitialAttempt())
    assert found(ONE, other) == Counter([TransitionOfAnotherRun()])


def test_a_candidate_at_another_work_is_refused() -> None:
    answer = admit_start_claim(EMPTY, 0, transition(), key(1, "other"))
    assert isinstance(answer, Refused)
    assert tuple(answer.defects) == (TransitionOfAnotherRun(),)


def test_an_identity_is_used_once() -> None:
    assert found(ONE, transition(RETRY), candidate=1) == Counter([AttemptIdentityTaken(key(1))])


# ------------------------------------------------------------------------------------------------------ defects in pairs

ALONE: dict[str, tuple[RunLedger, Transition, int, ClaimDefect]] = {
    "cancelled": (replace(TWO, cancellations=(SAID,)), transition(InfrastructureRetry(key(2))), 9, RunCancelled()),
    "taken": (TWO, transition(InfrastructureRetry(key(2))), 1, AttemptIdentityTaken(key(1))),
    "foreign": (TWO, transition(InfrastructureRetry(key(2)), demand_id("weekly")), 9, TransitionOfAnotherRun()),
    "succeeded": (TWO, transition(RequestedReexecution("x")), 9, SuccessorExists(key(1), key(2))),
    "absent": (TWO, transition(RequestedReexecution("x")), 9, PredecessorNotInGraph(key(5))),
}


def broken(names: tuple[str, ...]) -> Counter[ClaimDefect]:
    """A claim that is wrong in each of the named ways."""
    ledger = replace(TWO, cancellations=(SAID,)) if "cancelled" in names else TWO
    before = key(1) if "succeeded" in names else key(5) if "absent" in names else key(2)
    demand = demand_id("weekly") if "foreign" in names else demand_id()
    return found(ledger, transition(Relaunch(before, "host n1"), demand), 1 if "taken" in names else 9)


def first_wins() -> AbstractContextManager[object]:
    """A check that returns at its first defect."""
    honest = room._claim_defects
    return planted(room, "_claim_defects", lambda *asked: honest(*asked)[:1])()


PAIRS = [(a, b) for a in ALONE for b in ALONE if a < b and {a, b} != {"succeeded", "absent"}]


@pytest.mark.parametrize("names", [(), *((name,) for name in ALONE), ("absent", "cancelled", "foreign", "taken")])
def test_every_break_gives_its_own_defect_and_none_other(names: tuple[str, ...]) -> None:
    assert broken(names) == Counter(ALONE[name][3] for name in names)


@proven_by(first_wins)
@pytest.mark.parametrize("names", PAIRS)
def test_two_breaks_give_both_defects(names: tuple[str, str]) -> None:
    assert broken(names) == Counter(ALONE[name][3] for name in names)


# ---------------------------------------------------------------------------------------------------------------- slots

CAUSES: list[Cause] = [
    InitialAttempt(),
    RequestedReexecution("again"),
    RequestedReexecution("again2"),
    InfrastructureRetry(key(1)),
    InfrastructureRetry(key(2)),
    CapabilityEscalation(key(1), "memory"),
    CapabilityEscalation(key(1), "time"),
    Relaunch(key(1), "lost"),
    Relaunch(key(2), "lost"),
    Relaunch(key(1), "lost", CHECKPOINT),
    Resume(key(1), CHECKPOINT),
    Resume(key(1), CheckpointIdentity(6, CHECKPOINT.digest)),
    Resume(key(1), CheckpointIdentity(5, Sha256("d" * 64))),
]


def bare_concatenation() -> AbstractContextManager[object]:
    """Slots over texts without their lengths."""
    return planted(canonical, "length_prefixed", lambda *parts: b"".join(parts))()


def test_every_part_of_a_transition_moves_the_slot() -> None:
    transitions = [transition(cause) for cause in CAUSES]
    transitions += [transition(demand=demand_id("weekly")), transition(demand=demand_id(requester="bob")), transition(principal="other")]
    transitions.append(Transition(demand_id(), work(seed="18"), InitialAttempt()))
    assert len({each.slot() for each in transitions}) == len(transitions)


@proven_by(bare_concatenation)
def test_texts_do_not_run_into_each_other() -> None:
    assert transition(demand=demand_id("bc", "a")).slot() != transition(demand=demand_id("c", "ab")).slot()


TEXTS = st.text(st.characters(), max_size=12)


@given(TEXTS, TEXTS)
def test_slots_are_equal_only_for_equal_causes_whatever_the_text(one: str, other: str) -> None:
    assert (transition(RequestedReexecution(one)).slot() == transition(RequestedReexecution(other)).slot()) == (one == other)
    escalations = transition(CapabilityEscalation(key(1), one)), transition(Relaunch(key(1), one))
    assert escalations[0].slot() != escalations[1].slot()


def test_a_text_that_is_no_unicode_still_has_a_slot() -> None:
    assert transition(RequestedReexecution("\udcff")).slot() != transition(RequestedReexecution("\udcfe")).slot()


def test_the_parts_of_every_cause() -> None:
    ours, digest = key(1).nonce.hex, "c" * 64
    assert [cause_parts(cause) for cause in CAUSES[:11]] == [
        ("InitialAttempt",),
        ("RequestedReexecution", "again"),
        ("RequestedReexecution", "again2"),
        ("InfrastructureRetry", ours),
        ("InfrastructureRetry", key(2).nonce.hex),
        ("CapabilityEscalation", ours, "memory"),
        ("CapabilityEscalation", ours, "time"),
        ("Relaunch", ours, "lost"),
        ("Relaunch", key(2).nonce.hex, "lost"),
        ("Relaunch", ours, "lost", "5", digest),
        ("Resume", ours, "5", digest),
    ]


def test_a_slot_is_what_every_ledger_so_far_holds() -> None:
    """Slots are stored: another way to compute them would free every slot that was ever used."""
    asked = Transition(demand_id("nightly", "ada"), work(), Relaunch(key(1), "é", CHECKPOINT))
    texts = ("countermark/slot/1", "ada", "nightly", "local", work().digest.hex, "Relaunch", key(1).nonce.hex, "é", "5", "c" * 64)
    material = b"".join(struct.pack(">Q", len(text.encode())) + text.encode() for text in texts)
    assert asked.slot() == Sha256(hashlib.sha256(material).hexdigest())


def test_cause_parts_begin_with_the_arm_and_are_unique() -> None:
    parts = [cause_parts(cause) for cause in CAUSES]
    assert [each[0] for each in parts] == [type(cause).__name__ for cause in CAUSES]
    assert len(set(parts)) == len(parts)


def test_which_launchers_create_or_get() -> None:
    assert {launcher: creates_or_gets(launcher) for launcher in ("local", "slurm", "ray")} == {"local": True, "slurm": False, "ray": True}


# --------------------------------------------------------------------------------------------- control and graph composed

INTENT = DispatchIntent(key(1), "local", "n1", 2)
OUTCOME = DispatchOutcome(key(1), Dispatched("pid 7"), 3)
FULL = replace(TWO, version=6, intents=(INTENT,), outcomes=(OUTCOME,), abandonments=(Abandonment(key(2), "ada", 4),), cancellations=(SAID,))


def graph_of(ledger: RunLedger, *more: object) -> AttemptGraph:
    admitted = admit_attempt_graph(Subject(demand_id(), work()), [*(each.as_attempt() for each in ledger.claims), *more])  # type: ignore[list-item]
    assert isinstance(admitted, AttemptGraph)
    return admitted


def composed(graph: AttemptGraph, ledger: RunLedger) -> Counter[ControlDefect]:
    answer = compose_control(graph, ledger)
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


def test_control_joins_each_attempt_with_its_facts() -> None:
    control = compose_control(graph_of(FULL), FULL)
    assert isinstance(control, ControlComposition)
    assert (control.subject, control.desired) == (Subject(demand_id(), work()), FULL.desired)
    assert control.cancelled
    assert control.states == {
        key(1): ControlState(FULL.claims[0], (INTENT,), (OUTCOME,), False),
        key(2): ControlState(FULL.claims[1], (), (), True),
    }


def test_the_predecessor_of_a_relaunch_is_superseded_and_that_of_a_retry_is_not() -> None:
    for cause, superseded in ((Relaunch(key(1), "lost"), True), (RETRY, False), (Resume(key(1), CHECKPOINT), False)):
        ledger = claimed(ONE, 2, cause)
        control = compose_control(graph_of(ledger), ledger)
        assert isinstance(control, ControlComposition)
        assert (control.states[key(1)].superseded, control.states[key(2)].superseded) == (superseded, False)


@pytest.mark.parametrize("fact", HALF_OF)
def test_a_graph_of_another_run_is_not_joined_whichever_fact_of_the_run_differs(fact: str) -> None:
    graph = admit_attempt_graph(stranger(fact), ())
    assert isinstance(graph, AttemptGraph)
    assert composed(graph, RunLedger(desired(), 0)) == Counter([ControlSubjectMismatch(HALF_OF[fact])])


def test_an_attempt_without_a_claim_is_composed_and_says_so() -> None:
    graph = graph_of(ONE, attempt(8, RequestedReexecution("by hand")))
    control = compose_control(graph, ONE)
    assert isinstance(control, ControlComposition)
    assert control.states[key(8)] == ControlState(None, (), (), False)


def test_each_misfit_alone_and_all_together() -> None:
    graph = graph_of(ONE)
    stray = DispatchIntent(key(7), "local", "n1", 2)
    cases: list[tuple[RunLedger, list[ControlDefect]]] = [
        (replace(ONE, claims=(*ONE.claims, claim(7))), [ControlOnForeignAttempt(key(7), "claim")]),
        (replace(ONE, claims=(*ONE.claims, claim(1, RETRY))), [SeveralClaims(key(1))]),
        (replace(ONE, intents=(stray,)), [ControlOnForeignAttempt(key(7), "intent"), DispatchWithoutClaim(key(7), "intent")]),
        (replace(ONE, outcomes=(OUTCOME,)), [OutcomeWithoutIntent(key(1))]),
        (
            replace(ONE, outcomes=(replace(OUTCOME, attempt=key(7)),)),
            [ControlOnForeignAttempt(key(7), "outcome"), DispatchWithoutClaim(key(7), "outcome"), OutcomeWithoutIntent(key(7))],
        ),
        (replace(ONE, abandonments=(Abandonment(key(7), "ada", 4),)), [ControlOnForeignAttempt(key(7), "abandonment")]),
        (replace(ONE, desired=desired("weekly")), [ControlSubjectMismatch("demand")]),
        (replace(ONE, desired=desired(seed="18")), [ControlSubjectMismatch("work")]),
    ]
    assert composed(graph, ONE) == Counter()
    for ledger, wanted in cases:
        assert composed(graph, ledger) == Counter(wanted)
    everything = replace(ONE, desired=desired("weekly", seed="18"), intents=(stray,), outcomes=(OUTCOME,))
    wanted_together: list[ControlDefect] = [ControlSubjectMismatch("demand"), ControlSubjectMismatch("work")]
    wanted_together += [ControlOnForeignAttempt(key(7), "intent"), DispatchWithoutClaim(key(7), "intent"), OutcomeWithoutIntent(key(1))]
    assert composed(graph, everything) == Counter(wanted_together)


def test_a_composition_is_minted_by_compose_control_alone() -> None:
    with pytest.raises(ValueError, match=r"^a control composition is minted by compose_control$"):
        ControlComposition(Subject(demand_id(), work()), desired(), {}, False, object())
