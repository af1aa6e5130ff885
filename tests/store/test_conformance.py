"""What every kind of store must do, against the protocol alone."""

import hashlib
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from countermark.run.attempts import (
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
    Adjudication,
    AlreadyCommitted,
    AttemptIdentityTaken,
    BelieveSource,
    Cancellation,
    Committed,
    ControlComposition,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    OutcomeWithoutIntent,
    PredecessorNotInGraph,
    RunCancelled,
    SetAside,
    SnapshotStale,
    SuccessorExists,
    compose_control,
)
from countermark.run.demand import subject_of
from countermark.run.dispatch import AlreadyDispatched, AttemptNotClaimed, IntentElsewhere
from countermark.run.records import (
    FIELD_BYTES_MAX,
    Attached,
    AttemptFound,
    DemandNamesAnotherWork,
    FieldUnwritable,
    LedgerEntry,
    Recorded,
    RunSummary,
    RunUnknown,
    Stands,
    StoredSweep,
    StoredVerdict,
    SweepIdTaken,
    SweepUnknown,
)
from countermark.store import Store, base, transaction
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import CHECKPOINT, claim, demand_id, desired, key, nonce, transition, work
from tests.store.conftest import Opener
from tests.store.examples import CONTEXT, RUN, carried, intended, loaded, recorded, won

ABSENT = demand_id("nobody").run_id()


# -------------------------------------------------------------------------------------------------------------- demands


def test_a_demand_comes_back_as_it_went_in_from_another_opening_too(stores: Opener) -> None:
    record = recorded(stores())
    assert record == loaded(stores())
    assert (record.run_id, record.created_ms, record.context, record.history) == (RUN, 1_000, CONTEXT, ())
    assert record.ledger.desired == desired()
    assert record.ledger.version == 0


def test_the_same_work_attaches_and_its_first_context_stands(store: Store) -> None:
    first = recorded(store)
    answer = store.record_demand(desired(), replace(CONTEXT, argv=("sh", "other.sh")), 9_000)
    assert answer == Attached(first)
    assert store.list_runs() == (RunSummary(RUN, demand_id(), "topics-lora", 1_000, 0, False),)


def test_one_request_names_one_work(store: Store) -> None:
    recorded(store)
    answer = store.record_demand(desired(seed="18"), CONTEXT, 9_000)
    assert answer == Refused(NonEmpty(DemandNamesAnotherWork(RUN, work(), work(seed="18"))))
    assert store.record_demand(desired(principal="other"), CONTEXT, 9_000) == Refused(
        NonEmpty(DemandNamesAnotherWork(RUN, work(), work("other")))
    )
    assert loaded(store).ledger.desired == desired()


def test_one_work_may_be_demanded_under_two_names(store: Store) -> None:
    one, other = recorded(store), recorded(store, desired("weekly"))
    assert one.run_id != other.run_id
    assert one.ledger.desired.demand.work == other.ledger.desired.demand.work


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=40), number=st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False))
def test_any_text_of_an_operating_system_comes_back(store: Store, text: str, number: float) -> None:
    hostile = f"{text}\0\udcff'\"; DROP TABLE runs; --\n\x1b[31m"
    context = replace(CONTEXT, name=hostile, argv=(hostile,), env={hostile: hostile}, cwd=hostile, trainer={hostile: (number, hostile)})
    request = hashlib.sha256(repr((text, number)).encode()).hexdigest()
    answer = store.record_demand(desired(request), context, 1)
    assert isinstance(answer, Recorded | Attached)
    assert loaded(store, demand_id(request).run_id()).context == context


def test_what_cannot_be_kept_is_refused_field_by_field(store: Store) -> None:
    context = replace(CONTEXT, cwd="x" * FIELD_BYTES_MAX, trainer={"rate": float("nan")})
    answer = store.record_demand(desired(), context, 1)
    assert isinstance(answer, Refused)
    assert [(type(each), getattr(each, "field", "")) for each in answer.defects] == [(FieldUnwritable, "trainer"), (FieldUnwritable, "cwd")]
    assert store.load_run(RUN) == Refused(NonEmpty(RunUnknown(RUN)))


# --------------------------------------------------------------------------------------------------------------- claims


def never_committed() -> AbstractContextManager[object]:
    """Answers before a commit that never comes."""
    return planted(transaction, "commit", Connection.rollback)()


@proven_by(never_committed)
def test_a_claim_is_committed_with_the_next_version_and_read_back(store: Store, stores: Opener) -> None:
    recorded(store)
    assert store.claim_start(RUN, 0, transition(), key(1), 2_000) == Committed(claim(1))
    record = loaded(stores())
    assert (record.ledger.claims, record.ledger.version) == ((claim(1),), 1)
    assert record.history == (LedgerEntry(1, "claim", 2_000),)


@pytest.mark.parametrize(
    "cause",
    [
        RequestedReexecution("again\0\udcff"),
        InfrastructureRetry(key(1)),
        CapabilityEscalation(key(1), "memory=80GiB"),
        Relaunch(key(1), "host n1 went away"),
        Relaunch(key(1), "host n1 went away", CHECKPOINT),
        Resume(key(1), CHECKPOINT),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_every_cause_comes_back(store: Store, cause: Cause) -> None:
    recorded(store)
    assert (won(store, 1), won(store, 2, cause)) == (claim(1), claim(2, cause, 2))
    assert loaded(store).ledger.claims == (claim(1), claim(2, cause, 2))


def version_before_slot() -> AbstractContextManager[object]:
    """A store that looks at the version first."""
    honest = base.admit_start_claim

    def wrong(ledger: object, snapshot: int, *asked: object) -> object:
        return SnapshotStale(ledger.version) if snapshot != ledger.version else honest(ledger, snapshot, *asked)  # type: ignore[arg-type,attr-defined,call-arg]

    return planted(base, "admit_start_claim", wrong)()


@proven_by(version_before_slot)
def test_every_loser_is_given_the_winner_whatever_it_saw(store: Store) -> None:
    recorded(store)
    won(store, 1)
    for snapshot in (0, 1, 5):
        assert store.claim_start(RUN, snapshot, transition(), key(2), 2_000) == AlreadyCommitted(claim(1))
    assert loaded(store).ledger.version == 1


def test_a_moved_ledger_is_looked_at_again(store: Store) -> None:
    recorded(store)
    won(store, 1)
    assert store.claim_start(RUN, 0, transition(InfrastructureRetry(key(1))), key(2), 2_000) == SnapshotStale(1)


def test_refusals_come_whole_and_write_nothing(store: Store) -> None:
    recorded(store)
    won(store, 1)
    won(store, 2, InfrastructureRetry(key(1)))
    assert store.cancel(RUN, "ada", 5_000) == Recorded(Cancellation("ada", 5_000))
    answer = store.claim_start(RUN, 3, transition(Resume(key(1), CHECKPOINT)), key(2), 6_000)
    wanted = (RunCancelled(), SuccessorExists(key(1), key(2)), AttemptIdentityTaken(key(2)))
    assert answer == Refused(NonEmpty(wanted[0], wanted[1:]))
    absent = store.claim_start(RUN, 3, transition(InfrastructureRetry(key(77))), key(3), 6_000)
    assert absent == Refused(NonEmpty(RunCancelled(), (PredecessorNotInGraph(key(77)),)))
    assert loaded(store).ledger.version == 3


def test_an_identity_of_another_run_is_taken(store: Store) -> None:
    recorded(store)
    recorded(store, desired("weekly"))
    won(store, 1)
    other = transition(demand=demand_id("weekly"))
    answer = store.claim_start(demand_id("weekly").run_id(), 0, other, key(1), 2_000)
    assert answer == Refused(NonEmpty(AttemptIdentityTaken(key(1))))


def test_a_cause_without_end_is_refused(store: Store) -> None:
    recorded(store)
    answer = store.claim_start(RUN, 0, transition(RequestedReexecution("x" * 5_000)), key(1), 2_000)
    assert isinstance(answer, Refused)
    assert [type(each) for each in answer.defects] == [FieldUnwritable]


def test_an_unknown_run_is_said_by_every_call(store: Store) -> None:
    unknown = Refused(NonEmpty(RunUnknown(ABSENT)))
    asked = transition(demand=demand_id("nobody"))
    assert store.load_run(ABSENT) == unknown
    assert store.claim_start(ABSENT, 0, asked, key(1), 1) == unknown
    assert store.cancel(ABSENT, "ada", 1) == unknown
    assert store.abandon(ABSENT, key(1), "ada", 1) == unknown
    assert store.record_sweep(ABSENT, "s1", b"{}", 1, 2) == unknown
    assert store.record_dispatch_intent(replace(claim(1), transition=asked), "local", "n1", 1) == unknown


# ------------------------------------------------------------------------------------------------------------- dispatch


def test_an_intent_stands_on_its_host_and_binds_the_others(store: Store) -> None:
    recorded(store)
    won(store, 1)
    intent = DispatchIntent(key(1), "local", "n1", 3_000)
    assert store.record_dispatch_intent(claim(1), "local", "n1", 3_000) == Recorded(intent)
    assert store.record_dispatch_intent(claim(1), "local", "n1", 4_000) == Stands(intent)
    assert store.record_dispatch_intent(claim(1), "local", "n2", 4_000) == Refused(NonEmpty(IntentElsewhere(key(1), "local", "n1")))
    assert loaded(store).ledger.intents == (intent,)


def test_no_intent_without_a_committed_claim(store: Store) -> None:
    recorded(store)
    assert store.record_dispatch_intent(claim(1), "local", "n1", 1) == Refused(NonEmpty(AttemptNotClaimed(key(1))))


@pytest.mark.parametrize("result", [Dispatched("pid 7"), DispatchRefused("no such program"), DispatchUnknown("timed out")])
def test_an_outcome_ends_dispatch_for_good(store: Store, result: Dispatched | DispatchRefused | DispatchUnknown) -> None:
    recorded(store)
    intent = intended(store, won(store, 1))
    outcome = DispatchOutcome(key(1), result, 4_000)
    assert store.record_dispatch_outcome(intent, result, 4_000) == Recorded(outcome)
    assert store.record_dispatch_outcome(intent, result, 5_000) == Stands(outcome)
    assert store.record_dispatch_intent(claim(1), "local", "n1", 6_000) == Refused(NonEmpty(AlreadyDispatched(key(1))))
    assert loaded(store).ledger.outcomes == (outcome,)


def test_an_outcome_needs_its_intent(store: Store) -> None:
    recorded(store)
    intent = DispatchIntent(key(1), "local", "n1", 1)
    assert store.record_dispatch_outcome(intent, Dispatched(""), 2) == Refused(NonEmpty(AttemptNotClaimed(key(1))))
    won(store, 1)
    assert store.record_dispatch_outcome(intent, Dispatched(""), 2) == Refused(NonEmpty(OutcomeWithoutIntent(key(1))))


def test_a_wordy_launcher_loses_words_and_never_its_answer(store: Store) -> None:
    recorded(store)
    intent = intended(store, won(store, 1))
    assert isinstance(store.record_dispatch_outcome(intent, DispatchRefused("no\0" * 100_000), 4_000), Recorded)
    (outcome,) = loaded(store).ledger.outcomes
    assert isinstance(outcome.result, DispatchRefused)
    assert outcome.result.why.startswith("no\0no\0")
    assert outcome.result.why.endswith("more characters)")


def test_cancelling_and_giving_up_are_said_once(store: Store) -> None:
    recorded(store)
    won(store, 1)
    given_up = Abandonment(key(1), "ada", 5_000)
    assert store.abandon(RUN, key(1), "ada", 5_000) == Recorded(given_up)
    assert store.abandon(RUN, key(1), "bob", 6_000) == Stands(given_up)
    assert store.abandon(RUN, key(2), "bob", 6_000) == Refused(NonEmpty(AttemptNotClaimed(key(2))))
    assert store.cancel(RUN, "ada", 7_000) == Recorded(Cancellation("ada", 7_000))
    assert store.cancel(RUN, "bob", 8_000) == Stands(Cancellation("ada", 7_000))
    assert [entry.kind for entry in loaded(store).history] == ["claim", "abandonment", "cancellation"]


def test_who_asked_for_a_claim_is_kept_with_it(store: Store) -> None:
    recorded(store)
    store.claim_start(RUN, 0, transition(), key(1), 2_000)
    store.claim_start(RUN, 1, transition(InfrastructureRetry(key(1))), key(2), 3_000, by="ada\0\udcff" * 9_000)
    first, second = loaded(store).history
    assert (first.by, second.by[:5]) == ("", "ada\0\udcff")
    assert second.by.endswith("more characters)")


RULINGS = [SetAside(), BelieveSource("supervisor\0\udcff")]


@pytest.mark.parametrize("ruling", RULINGS, ids=lambda ruling: type(ruling).__name__)
def test_a_ruling_comes_back_and_erases_nothing(stores: Opener, ruling: SetAside | BelieveSource) -> None:
    store = stores()
    recorded(store)
    won(store, 1)
    ruled = Adjudication(key(1), ruling, ("one blocker\0", "another\udcff"), "ada", "I looked at n1", 5_000)
    assert store.adjudicate(RUN, ruled) == Recorded(ruled)
    assert store.adjudicate(RUN, replace(ruled, recorded_ms=6_000)) == Stands(ruled)
    other = replace(ruled, reason="I looked again", recorded_ms=7_000)
    assert store.adjudicate(RUN, other) == Recorded(other)
    assert store.adjudicate(RUN, replace(ruled, attempt=key(2))) == Refused(NonEmpty(AttemptNotClaimed(key(2))))
    assert store.adjudicate(ABSENT, ruled) == Refused(NonEmpty(RunUnknown(ABSENT)))
    record = loaded(stores())
    assert record.ledger.adjudications == (ruled, other)
    assert [entry.kind for entry in record.history] == ["claim", "adjudication", "adjudication"]


def test_a_wordy_ruling_loses_words_and_never_a_blocker(store: Store) -> None:
    recorded(store)
    won(store, 1)
    blockers = ("b" * 9_000, "c")
    ruled = store.adjudicate(RUN, Adjudication(key(1), SetAside(), blockers, "a" * 9_000, "r" * 9_000, 5_000))
    assert isinstance(ruled, Recorded)
    assert loaded(store).ledger.adjudications == (ruled.fact,)
    assert ruled.fact.blockers == blockers
    assert ruled.fact.by.endswith("more characters)") and ruled.fact.reason.endswith("more characters)")
    too_much = Adjudication(key(1), BelieveSource("s" * 5_000), ("b" * FIELD_BYTES_MAX,), "ada", "", 6_000)
    refused = store.adjudicate(RUN, too_much)
    assert isinstance(refused, Refused)
    assert [(type(each), getattr(each, "field", "")) for each in refused.defects] == [
        (FieldUnwritable, "source"),
        (FieldUnwritable, "blockers"),
    ]


def test_versions_count_the_facts_and_times_order_nothing(store: Store) -> None:
    recorded(store)
    first = won(store, 1)
    intent = intended(store, first, now_ms=-5)
    store.record_dispatch_outcome(intent, Dispatched("pid 7"), -9_000)
    won(store, 2, InfrastructureRetry(key(1)))
    record = loaded(store)
    assert [entry.version for entry in record.history] == [1, 2, 3, 4]
    assert [entry.kind for entry in record.history] == ["claim", "intent", "outcome", "claim"]
    assert record.ledger.version == 4


def test_what_is_loaded_composes_with_its_graph(store: Store) -> None:
    recorded(store)
    intended(store, carried(store, 1))
    won(store, 2, Relaunch(key(1), "lost"))
    ledger = loaded(store).ledger
    graph = admit_attempt_graph(subject_of(ledger.desired), [each.as_attempt() for each in ledger.claims])
    assert not isinstance(graph, Refused)
    control = compose_control(graph, ledger)
    assert isinstance(control, ControlComposition)
    assert {attempt.nonce: state.superseded for attempt, state in control.states.items()} == {nonce(1): True, nonce(2): False}


# -------------------------------------------------------------------------------------------------------------- finding


def test_runs_and_attempts_are_found_by_prefix(store: Store) -> None:
    for request in ("nightly", "weekly", "monthly"):
        recorded(store, desired(request), now_ms=len(request))
    won(store, 1)
    ids = {each.run_id for each in store.list_runs()}
    assert {each.run_id for each in store.find_runs("")} == ids
    assert [each.run_id for each in store.find_runs(RUN[:8])] == [RUN]
    assert store.find_runs(RUN) == tuple(each for each in store.list_runs() if each.run_id == RUN)
    assert [each.created_ms for each in store.list_runs()] == [6, 7, 7]
    for hostile in ("%", "_" * 32, "'", "\0", RUN[:8] + "%", "ſ"):
        assert store.find_runs(hostile) == ()
        assert store.find_attempt(hostile) == ()
    assert store.find_attempt(nonce(1).hex[:31]) == (AttemptFound(RUN, nonce(1)),)
    assert store.find_attempt("f") == ()


def test_a_run_is_open_until_its_latest_verdict_closes_it_at_its_version(store: Store) -> None:
    recorded(store)
    recorded(store, desired("weekly"))
    weekly = demand_id("weekly").run_id()

    def open_runs() -> set[str]:
        return {each.run_id for each in store.list_runs(open_only=True)}

    assert open_runs() == {RUN, weekly}
    store.record_sweep(RUN, "s1", b"{}", 1, 2)
    store.record_verdict("s1", StoredVerdict("InProgress", False, 0, b"running"))
    assert open_runs() == {RUN, weekly}
    store.record_verdict("s1", StoredVerdict("Converged", True, 0, b"done"))
    assert open_runs() == {weekly}
    won(store, 1, RequestedReexecution("again"))
    assert open_runs() == {RUN, weekly}
    assert {each.run_id for each in store.list_runs()} == {RUN, weekly}


# --------------------------------------------------------------------------------------------------------- observations


def test_a_sweep_comes_back_byte_for_byte_and_the_latest_is_the_last_recorded(stores: Opener) -> None:
    store = stores()
    recorded(store)
    document = bytes(range(256)) * 7
    first = StoredSweep("s-later", RUN, document, 9_000, 9_500)
    assert store.latest_sweep(RUN) is None
    assert store.record_sweep(RUN, "s-later", document, 9_000, 9_500) == Recorded(first)
    assert store.record_sweep(RUN, "s-stepped-back", b"{}", 100, 200) == Recorded(StoredSweep("s-stepped-back", RUN, b"{}", 100, 200))
    assert stores().latest_sweep(RUN) == StoredSweep("s-stepped-back", RUN, b"{}", 100, 200)
    assert stores().load_sweep("s-later") == first
    assert store.find_sweeps("s-") == ("s-later", "s-stepped-back")
    assert store.find_sweeps("s-l") == ("s-later",)
    assert store.find_sweeps("%") == ()


def test_a_sweep_id_names_one_sweep(store: Store) -> None:
    recorded(store)
    sweep = StoredSweep("s1", RUN, b"{}", 1, 2)
    assert store.record_sweep(RUN, "s1", b"{}", 1, 2) == Recorded(sweep)
    assert store.record_sweep(RUN, "s1", b"{}", 1, 2) == Stands(sweep)
    assert store.record_sweep(RUN, "s1", b"{ }", 1, 2) == Refused(NonEmpty(SweepIdTaken("s1")))
    assert store.load_sweep("s1") == sweep
    assert store.load_sweep("s2") == Refused(NonEmpty(SweepUnknown("s2")))
    refused = store.record_sweep(RUN, "../s1", b"{}", 1, 2)
    assert isinstance(refused, Refused)
    assert [type(each) for each in refused.defects] == [FieldUnwritable]


def test_verdicts_are_kept_in_order_and_once_in_a_row(store: Store) -> None:
    recorded(store)
    store.record_sweep(RUN, "s1", b"{}", 1, 2)
    one, two = StoredVerdict("InProgress", False, 0, b"one\0"), StoredVerdict("Lost", False, 1, b"two")
    assert store.record_verdict("s1", one) == Recorded(one)
    assert store.record_verdict("s1", one) == Stands(one)
    assert store.record_verdict("s1", two) == Recorded(two)
    assert store.record_verdict("s1", one) == Recorded(one)
    assert store.verdicts("s1") == (one, two, one)
    assert store.verdicts("s2") == ()
    assert store.record_verdict("s2", one) == Refused(NonEmpty(SweepUnknown("s2")))


def test_observations_move_no_version(store: Store) -> None:
    recorded(store)
    won(store, 1)
    store.record_sweep(RUN, "s1", b"{}", 1, 2)
    store.record_verdict("s1", StoredVerdict("InProgress", False, 1, b""))
    assert loaded(store).ledger.version == 1


def test_a_store_that_did_all_this_is_whole(store: Store) -> None:
    recorded(store)
    intent = intended(store, won(store, 1))
    store.record_dispatch_outcome(intent, DispatchUnknown("timed out"), 4_000)
    store.record_dispatch_outcome(intent, Dispatched("found it"), 5_000)
    won(store, 2, Resume(key(1), CheckpointIdentity(5, CHECKPOINT.digest)))
    store.abandon(RUN, key(2), "ada", 6_000)
    store.adjudicate(RUN, Adjudication(key(2), SetAside(), ("b",), "ada", "it hangs", 6_500))
    store.cancel(RUN, "ada", 7_000)
    store.record_sweep(RUN, "s1", b"{}", 1, 2)
    store.record_verdict("s1", StoredVerdict("Cancelled", True, 8, b"over"))
    assert store.check() == ()
    assert loaded(store).ledger.version == 8
    assert InitialAttempt() == loaded(store).ledger.claims[0].transition.cause
