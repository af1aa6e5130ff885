"""The agenda: which runs may be open, and who looks at which of them when. Against the protocol, for every kind of store."""

from contextlib import AbstractContextManager
from threading import Barrier, Thread

import pytest

from countermark.run.attempts import RequestedReexecution
from countermark.run.claims import Adjudication, Dispatched, SetAside
from countermark.run.records import Stands, StoredVerdict
from countermark.store import Store, agenda
from tests.faults import planted, proven_by
from tests.run.examples import demand_id, desired, key
from tests.store.conftest import Opener
from tests.store.examples import RUN, intended, loaded, recorded, won

OPEN = StoredVerdict("InProgress", False, 0, b"running")
CLOSED = StoredVerdict("Converged", True, 0, b"done")


def open_runs(store: Store) -> list[str]:
    return [each.run_id for each in store.list_runs(open_only=True)]


def swept(store: Store, run_id: str = RUN, name: str = "s1") -> None:
    store.record_sweep(run_id, name, b"{}", 1, 2)


def many(store: Store, count: int) -> list[str]:
    """Runs that are due at 0, 1, 2, …"""
    return [recorded(store, desired(f"r{number}"), now_ms=number).run_id for number in range(count)]


# -------------------------------------------------------------------------------------------------------- which are open


def forgetful() -> AbstractContextManager[object]:
    """Facts that put nothing on the agenda."""
    return planted(agenda, "put", lambda *asked: None)()


@proven_by(forgetful)
@pytest.mark.parametrize("what", ["claim", "intent", "outcome", "cancellation", "abandonment", "adjudication"])
def test_every_control_fact_opens_the_run_again(store: Store, what: str) -> None:
    recorded(store)
    claim = won(store, 1)
    intent = intended(store, claim) if what == "outcome" else None
    swept(store)
    closed = StoredVerdict("Converged", True, loaded(store).ledger.version, b"done")
    store.record_verdict("s1", closed)
    assert open_runs(store) == []
    match what:
        case "claim":
            won(store, 2, RequestedReexecution("again"))
        case "intent":
            intended(store, claim)
        case "outcome":
            assert intent is not None
            store.record_dispatch_outcome(intent, Dispatched("pid 7"), 4_000)
        case "cancellation":
            store.cancel(RUN, "ada", 4_000)
        case "abandonment":
            store.abandon(RUN, key(1), "ada", 4_000)
        case _:
            store.adjudicate(RUN, Adjudication(key(1), SetAside(), ("b",), "ada", "seen", 4_000))
    assert open_runs(store) == [RUN]
    assert store.check() == ()


def late_verdicts_change_nothing() -> AbstractContextManager[object]:
    """The fault: a verdict that closes at a passed version leaves the agenda as it is."""
    follow = agenda.follow

    def unless_late(connection: object, run_id: str, closed: bool, version: int) -> None:
        if not closed or agenda.version_of(connection, run_id) == version:  # type: ignore[arg-type]
            follow(connection, run_id, closed, version)  # type: ignore[arg-type]

    return planted(agenda, "follow", unless_late)()


@proven_by(late_verdicts_change_nothing)
def test_a_late_controller_does_not_hide_a_run_that_its_verdict_would_leave_open(store: Store) -> None:
    recorded(store)
    before = loaded(store).ledger.version
    won(store, 1)
    swept(store, name="s1")
    swept(store, name="s2")
    store.record_verdict("s2", StoredVerdict("Converged", True, loaded(store).ledger.version, b"done"))
    assert (open_runs(store), store.check()) == ([], ())
    store.record_verdict("s1", StoredVerdict("Converged", True, before, b"done"))
    assert store.check() == ()


def whatever_the_version() -> AbstractContextManager[object]:
    """A verdict that closes a run although a fact was recorded since."""
    return planted(agenda, "version_of", lambda connection, run_id: 0)()


@proven_by(whatever_the_version)
def test_a_closing_verdict_of_an_old_version_closes_nothing(store: Store) -> None:
    recorded(store)
    won(store, 1)
    swept(store)
    store.record_verdict("s1", CLOSED)
    assert open_runs(store) == [RUN]


def test_a_later_verdict_that_closes_nothing_opens_the_run_again(store: Store) -> None:
    recorded(store)
    swept(store)
    store.record_verdict("s1", CLOSED)
    swept(store, name="s2")
    store.record_verdict("s2", OPEN)
    assert open_runs(store) == [RUN]
    assert isinstance(store.record_verdict("s1", CLOSED), Stands), "an older conclusion that is said again is not the newest"
    assert open_runs(store) == [RUN]
    assert store.check() == ()


def test_a_closing_that_broke_off_before_the_agenda_is_mended_by_the_next_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(store)
    swept(store)
    with monkeypatch.context() as patch:
        patch.setattr(agenda, "follow", lambda *asked: None)
        store.record_verdict("s1", CLOSED)
    assert open_runs(store) == [RUN], "one look too many"
    assert store.check() == ()
    assert store.record_verdict("s1", CLOSED) == Stands(CLOSED)
    assert open_runs(store) == []


# --------------------------------------------------------------------------------------------------------- who looks when


def test_due_runs_are_handed_out_in_the_order_in_which_they_are_due(store: Store) -> None:
    ids = many(store, 5)
    assert store.next_due() == 0
    assert [each.run_id for each in store.take_due(3, 100, 2)] == ids[:2]
    assert [each.run_id for each in store.take_due(3, 200, 9)] == ids[2:4], "what was handed out is hidden"
    assert store.take_due(3, 100, 9) == ()
    assert store.next_due() == 4
    assert [each.run_id for each in store.take_due(103, 1, 9)][:1] == [ids[4]], "the longest due is first"
    assert {each.run_id for each in store.take_due(1_000, 1, 9)} == set(ids)


def test_a_run_that_was_handed_out_is_listed_as_it_is(store: Store) -> None:
    recorded(store)
    won(store, 1)
    assert store.take_due(9_000, 100, 9) == store.list_runs()


def test_a_run_is_looked_at_again_when_it_was_said(store: Store) -> None:
    one, other = many(store, 2)
    store.look_again(one, 500)
    assert (store.next_due(), [each.run_id for each in store.take_due(400, 10, 9)]) == (1, [other])
    store.look_again(other, 900)
    assert store.next_due() == 500
    store.look_again(demand_id("nobody").run_id(), 1)
    assert store.next_due() == 500
    store.record_sweep(one, "s1", b"{}", 1, 2)
    store.record_verdict("s1", CLOSED)
    store.look_again(one, 1)
    assert store.next_due() == 900
    store.record_sweep(other, "s2", b"{}", 1, 2)
    store.record_verdict("s2", CLOSED)
    assert store.next_due() is None
    assert store.take_due(10**12, 1, 9) == ()


def test_what_a_person_says_is_looked_at_at_once_and_what_a_controller_records_is_not(store: Store) -> None:
    recorded(store)
    store.look_again(RUN, 90_000)
    intended(store, won(store, 1))
    assert store.next_due() == 90_000
    store.abandon(RUN, key(1), "ada", 5_000)
    assert store.next_due() == 5_000
    store.cancel(RUN, "ada", 6_000)
    assert store.next_due() == 5_000


def test_two_controllers_take_disjoint_runs(stores: Opener) -> None:
    first, second = stores(), stores()
    ids = many(first, 40)
    taken: dict[int, list[str]] = {0: [], 1: []}
    ready = Barrier(2)

    def controller(number: int, store: Store) -> None:
        ready.wait()
        for _ in range(10):
            taken[number] += [each.run_id for each in store.take_due(1_000, 10**9, 3)]

    threads = [Thread(target=controller, args=each) for each in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken[0] + taken[1]) == sorted(ids)
    assert not set(taken[0]) & set(taken[1])
