"""One winner for each slot, and every loser names it: several connections over one PostgreSQL ledger, with what excludes taken away."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, literal, select, union_all
from sqlalchemy.dialects import postgresql

from countermark.run.attempts import AttemptKey, InitialAttempt, RequestedReexecution
from countermark.run.claims import AlreadyCommitted, AttemptIdentityTaken, Cancellation, Committed, SnapshotStale, Transition
from countermark.run.records import Attached, Recorded, Stands, StoredSweep, SweepIdTaken
from countermark.store import agenda, base, ledger, postgres
from countermark.store.failures import StoreDamaged, StoreError
from countermark.store.postgres import PostgresStore
from countermark.store.postgres_schema import TABLES
from countermark.store.statements import Statement
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import claim, demand_id, desired, key, transition, work
from tests.store.examples import CONTEXT, RUN, loaded, recorded, won

RACERS = 12
Stores = Callable[[], PostgresStore]


@pytest.fixture
def stores(postgres_url: str) -> Iterator[Stores]:
    """Openers of one store; each has connections of its own, as another controller."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(PostgresStore.open(postgres_url, create=True, wait_s=10))


def together(*acts: Callable[[], Any]) -> list[Any]:
    """What each of several acts gives that begin at once; an exception is an answer too."""
    answers: list[Any] = [None] * len(acts)
    ready = Barrier(len(acts))

    def act(number: int) -> None:
        ready.wait()
        try:
            answers[number] = acts[number]()
        except Exception as error:
            answers[number] = error

    threads = [Thread(target=act, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


def candidates() -> list[tuple[Transition, AttemptKey]]:
    """What each racer asks for: one transition, under an identity of its own."""
    return [(transition(), key(number)) for number in range(1, RACERS + 1)]


# ------------------------------------------------------------------------------------------------------------- the faults


def serializable() -> AbstractContextManager[object]:
    """Transactions of the strictest level, as many a program has them."""
    return planted(postgres, "LEVEL", "SERIALIZABLE")()


def unheld(self: PostgresStore, connection: Connection, run_id: str, *more: Statement) -> object:
    """What ``_hold`` gives, without a lock."""
    return [(), *Statement.together(connection, *more, run_id=run_id)]


def no_row_lock() -> AbstractContextManager[object]:
    """A writing transaction that locks nothing."""
    return planted(PostgresStore, "_hold", unheld)()


@contextmanager
def keyed_by_attempt() -> Iterator[None]:
    """A slot that is the attempt's, so that no two claims ever meet."""
    honest = base.admit_start_claim

    def wrong(now: Any, snapshot: int, asked: Transition, candidate: AttemptKey) -> object:
        return honest(now, now.version, Transition(asked.demand, asked.work, RequestedReexecution(candidate.nonce.hex)), candidate)

    with planted(base, "admit_start_claim", wrong)():
        yield


def blind_to_winners() -> AbstractContextManager[object]:
    """A loser that keeps to what it read before it lost."""

    def once(self: PostgresStore, held: base.Held, *asked: Any) -> object:
        record = held.load()
        assert not isinstance(record, Refused)
        _, wanted, candidate, now_ms, columns = asked
        decision = base.admit_start_claim(record.ledger, record.ledger.version, wanted, candidate)
        if not isinstance(decision, base.Admissible):
            return decision
        try:
            ledger.append_claim(held.connection, RUN, decision.claim.version, columns, now_ms)
        except ledger.Overtaken:
            return SnapshotStale(record.ledger.version)
        return Committed(decision.claim)

    return planted(PostgresStore, "_claimed", once)()


# -------------------------------------------------------------------------------------------------------------- one slot


@proven_by(serializable, keyed_by_attempt)
def test_of_many_claims_of_one_slot_one_is_committed_and_every_loser_names_it(stores: Stores) -> None:
    recorded(stores())
    racers = [stores() for _ in range(RACERS)]
    asked = candidates()
    assert len({each for each, _ in asked}) == 1, "the transitions are equal"
    assert len({each for _, each in asked}) == RACERS, "and the identities differ: else any key would pass"
    for _ in range(3):  # a connection's first transaction is slower than its next
        together(*(racer.next_due for racer in racers))
    answers = together(*(lambda n=n: racers[n].claim_start(RUN, 0, *asked[n], 2_000) for n in range(RACERS)))
    claims = loaded(stores()).ledger.claims
    assert len(claims) == 1
    winner = claims[0]
    assert [answer for answer in answers if answer == Committed(winner)] == [Committed(winner)]
    assert [answer for answer in answers if answer != Committed(winner)] == [AlreadyCommitted(winner)] * (RACERS - 1)
    assert stores().check() == ()


class Crossing:
    """Stops whoever comes first between its reading and its insertion, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.reached, self.go = Event(), Event()
        for name in names:
            monkeypatch.setattr(ledger, name, self._stopping(getattr(ledger, name)))

    def _stopping(self, honest: Callable[..., None]) -> Callable[..., None]:
        def append(*asked: Any, **named: Any) -> None:
            if not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(20)
            honest(*asked, **named)

        return append

    def first_then(self, first: Callable[[], Any], second: Callable[[], Any], waits: bool = True) -> tuple[list[Any], bool]:
        """The answers of both, where the second begins once the first has read; and whether the second had to wait for the first."""
        waited = []

        def later() -> Any:
            assert self.reached.wait(20)
            done = Event()
            answers: list[Any] = []

            def ask() -> None:
                try:
                    answers.append(second())
                except Exception as error:
                    answers.append(error)
                done.set()

            thread = Thread(target=ask)
            thread.start()
            waited.append(not done.wait(1.0))
            self.go.set()
            thread.join(30)
            return answers[0]

        return together(first, later), waited[0]


@proven_by(no_row_lock)
def test_who_writes_holds_the_run_from_the_first_reading_to_the_commit(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = stores(), stores()
    recorded(one)
    crossing = Crossing(monkeypatch, "append_claim")
    answers, waited = crossing.first_then(
        lambda: one.claim_start(RUN, 0, transition(), key(1), 2_000), lambda: two.cancel(RUN, "ada", 3_000)
    )
    assert waited
    assert answers == [Committed(claim(1)), Recorded(Cancellation("ada", 3_000))]
    assert [entry.kind for entry in loaded(one).history] == ["claim", "cancellation"]


def test_other_runs_are_not_waited_for(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = stores(), stores()
    recorded(one)
    recorded(one, desired("weekly"))
    weekly = demand_id("weekly")
    crossing = Crossing(monkeypatch, "append_claim")
    answers, waited = crossing.first_then(
        lambda: one.claim_start(RUN, 0, transition(), key(1), 2_000), lambda: two.cancel(weekly.run_id(), "ada", 3_000)
    )
    assert (answers, waited) == ([Committed(claim(1)), Recorded(Cancellation("ada", 3_000))], False)


# ------------------------------------------------------------------------------- what is inserted where nothing was locked


@proven_by(blind_to_winners)
def test_also_without_the_lock_an_overtaken_claim_is_answered_with_the_winner(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = stores(), stores()
    recorded(one)
    monkeypatch.setattr(PostgresStore, "_hold", unheld)
    crossing = Crossing(monkeypatch, "append_claim")
    answers, waited = crossing.first_then(
        lambda: one.claim_start(RUN, 0, transition(), key(1), 2_000), lambda: two.claim_start(RUN, 0, transition(), key(2), 2_000)
    )
    assert (answers, waited) == ([AlreadyCommitted(claim(2)), Committed(claim(2))], False)
    assert loaded(one).ledger.claims == (claim(2),)
    assert one.check() == ()


def test_an_identity_that_another_run_takes_meanwhile_is_taken(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = stores(), stores()
    recorded(one)
    recorded(one, desired("weekly"))
    other = Transition(demand_id("weekly"), work(), InitialAttempt())
    crossing = Crossing(monkeypatch, "append_claim")
    answers, _ = crossing.first_then(
        lambda: one.claim_start(RUN, 0, transition(), key(1), 2_000),
        lambda: two.claim_start(demand_id("weekly").run_id(), 0, other, key(1), 2_000),
    )
    assert answers[0] == Refused(NonEmpty(AttemptIdentityTaken(key(1))))
    assert isinstance(answers[1], Committed)
    assert loaded(one).ledger.version == 0
    assert one.check() == ()


FACTS: dict[str, tuple[str, Callable[[PostgresStore], object]]] = {
    "intent": ("append_intent", lambda store: store.record_dispatch_intent(claim(1), "local", "n1", 3_000)),
    "cancellation": ("append_cancellation", lambda store: store.cancel(RUN, "ada", 3_000)),
    "abandonment": ("append_abandonment", lambda store: store.abandon(RUN, key(1), "ada", 3_000)),
}


@pytest.mark.parametrize("kind", FACTS)
def test_also_without_the_lock_an_overtaken_fact_stands(stores: Stores, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    append, act = FACTS[kind]
    one, two = stores(), stores()
    recorded(one)
    won(one, 1)
    monkeypatch.setattr(PostgresStore, "_hold", unheld)
    crossing = Crossing(monkeypatch, append)
    answers, _ = crossing.first_then(lambda: act(one), lambda: act(two))
    assert [type(answer) for answer in answers] == [Stands, Recorded]
    assert loaded(one).ledger.version == 2
    assert one.check() == ()


def test_what_stands_in_the_way_and_shows_nowhere_is_damage_and_not_asked_for_ever(stores: Stores, postgres_url: str) -> None:
    import psycopg

    store = stores()
    recorded(store)
    recorded(store, desired("weekly"))
    with psycopg.connect(postgres_url) as raw:
        raw.execute("SET session_replication_role = replica")
        slot = transition().slot().hex
        weekly = demand_id("weekly").run_id()
        row = [weekly, slot, "9" * 32]
        raw.execute("INSERT INTO countermark.claims (run_id, version, slot, nonce, cause) VALUES (%s, 1, %s, %s, '[]')", row)
    with pytest.raises(StoreError) as caught:
        store.claim_start(RUN, 0, transition(), key(1), 2_000)
    why = f"a row that belongs to no fact of the run {RUN} stands in the way of its next claim"
    assert caught.value.failure == StoreDamaged(store.location, why)
    assert loaded(store).ledger.version == 0


# --------------------------------------------------------------------------------------------- runs and sweeps that are new


class Insertion:
    """Stops whoever has inserted a new run before it commits, until somebody else waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inserted, self.go = Event(), Event()
        honest = agenda.put

        def put(*asked: Any) -> None:
            honest(*asked)
            if not self.inserted.is_set():
                self.inserted.set()
                assert self.go.wait(20)

        monkeypatch.setattr(agenda, "put", put)

    def second(self, act: Callable[[], Any]) -> Any:
        assert self.inserted.wait(20)
        done: list[Any] = []

        def ask() -> None:
            try:
                done.append(act())
            except Exception as error:
                done.append(error)

        thread = Thread(target=ask)
        thread.start()
        thread.join(1.0)
        assert thread.is_alive(), "the second waits for what the first inserted"
        self.go.set()
        thread.join(30)
        return done[0]


RUNS = TABLES.tables["runs"]


@contextmanager
def one_statement() -> Iterator[None]:
    """Insertion and reading of the winner as one statement: its snapshot is older than the winner."""
    given: dict[str, Any] = {column.name: bindparam(column.name) for column in RUNS.columns if column.computed is None}
    mine = postgresql.insert(RUNS).values(given).on_conflict_do_nothing().returning(RUNS.c.run_id).cte("mine")
    theirs = select(RUNS.c.run_id, literal(0)).where(RUNS.c.run_id == bindparam("run_id"))
    form = Statement(union_all(select(mine.c.run_id, literal(1).label("own")), theirs))

    def insert_run(self: PostgresStore, connection: Connection, row: dict[str, object], wanted: Any) -> bool:
        material = postgres.bytes_of_material(postgres.key_material(wanted.manifest, wanted.requirements))
        found = form.rows(connection, **{name: cell for name, cell in row.items() if name != "work_digest"}, material=material)
        assert found, "the loser of the one-statement form is shown nothing"
        return bool(found[0]["own"])

    with planted(PostgresStore, "_insert_run", insert_run)():
        yield


@proven_by(one_statement, serializable)
def test_of_two_that_record_one_demand_at_once_the_second_is_given_the_first(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = stores(), stores()
    insertion = Insertion(monkeypatch)
    first, second = together(
        lambda: one.record_demand(desired(), CONTEXT, 1_000),
        lambda: insertion.second(lambda: two.record_demand(desired(), CONTEXT, 2_000)),
    )
    assert isinstance(first, Recorded)
    assert second == Attached(first.fact)
    assert one.check() == ()


def test_a_sweep_s_id_that_another_run_takes_meanwhile_is_taken(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = stores(), stores()
    recorded(one)
    weekly = recorded(one, desired("weekly")).run_id
    reached, go = Event(), Event()
    honest = base.sweeps.append

    def append(*asked: Any) -> bool:
        if not reached.is_set():
            reached.set()
            assert go.wait(20)
        return honest(*asked)

    def second() -> object:
        assert reached.wait(20)
        answer = two.record_sweep(weekly, "s1", b"{}", 1, 2)
        go.set()
        return answer

    monkeypatch.setattr(base.sweeps, "append", append)
    answers = together(lambda: one.record_sweep(RUN, "s1", b"{}", 1, 2), second)
    assert answers == [Refused(NonEmpty(SweepIdTaken("s1"))), Recorded(StoredSweep("s1", weekly, b"{}", 1, 2))]
