"""Due runs are shared out by a PostgreSQL store: who takes some waits for nobody, and no run is in two hands within a lease."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from threading import Thread

import pytest
from sqlalchemy import Connection, select, update

from countermark.run.records import StoredVerdict
from countermark.store import StoreError, agenda
from countermark.store.ledger import fetch
from countermark.store.postgres import PostgresStore
from countermark.store.schema import agenda as table
from tests.faults import planted, proven_by
from tests.run.examples import desired
from tests.store.examples import recorded

Stores = Callable[[], PostgresStore]


@pytest.fixture
def stores(postgres_url: str) -> Iterator[Stores]:
    """Openers of one store; each has connections of its own, as another controller."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(PostgresStore.open(postgres_url, create=True, wait_s=1))


def many(store: PostgresStore, count: int) -> list[str]:
    """Runs that are due at 0, 1, 2, …"""
    return [recorded(store, desired(f"r{number}"), now_ms=number).run_id for number in range(count)]


def taking(lock: Callable[..., object]) -> AbstractContextManager[object]:
    """Entries handed out with another lock than ours."""

    def take(connection: Connection, now_ms: int, until_ms: int, limit: int) -> tuple[str, ...]:
        due = select(table.c.run_id).where(table.c.due_ms <= now_ms).order_by(table.c.due_ms, table.c.run_id).limit(limit)
        taken = tuple(str(row["run_id"]) for row in fetch(connection, lock(due)))  # type: ignore[arg-type]
        connection.execute(update(table).where(table.c.run_id.in_(taken)).values(due_ms=until_ms))
        return taken

    return planted(agenda, "take", take)()


def waiting_for_each_other() -> AbstractContextManager[object]:
    """Entries that another one is just taking are waited for."""
    return taking(lambda due: due.with_for_update())


def unlocked() -> AbstractContextManager[object]:
    """Entries are read and then changed, with nothing in between."""
    return taking(lambda due: due)


def asked(act: Callable[[], tuple[str, ...]]) -> tuple[str, ...] | str:
    try:
        return act()
    except StoreError as error:
        return str(error.failure.what())


@proven_by(waiting_for_each_other, unlocked)
def test_what_another_controller_is_just_taking_is_passed_over_and_not_waited_for(stores: Stores) -> None:
    one, two = stores(), stores()
    ids = many(one, 6)
    two.next_due()
    with one._planning() as connection:
        mine = agenda.take(connection, 1_000, 9_000, 2)
        began = time.monotonic()
        theirs = asked(lambda: tuple(each.run_id for each in two.take_due(1_000, 9_000, 3)))
        took_s = time.monotonic() - began
    assert (mine, theirs) == (tuple(ids[:2]), tuple(ids[2:5]))
    assert took_s < 0.9
    assert [each.run_id for each in one.take_due(1_000, 9_000, 9)] == ids[5:]
    assert two.take_due(1_000, 9_000, 9) == ()


@proven_by(unlocked)
def test_many_controllers_share_out_every_run_and_none_twice(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    first = stores()
    ids = many(first, 60)
    honest = agenda.take

    def slow(*asked: object) -> tuple[str, ...]:
        taken = honest(*asked)  # type: ignore[arg-type]
        time.sleep(0.01)
        return taken

    monkeypatch.setattr(agenda, "take", slow)
    controllers = [stores() for _ in range(6)]
    taken: list[list[str]] = [[] for _ in controllers]

    def work(number: int) -> None:
        while due := controllers[number].take_due(1_000, 10**9, 3):
            taken[number] += [each.run_id for each in due]

    threads = [Thread(target=work, args=(number,)) for number in range(len(controllers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run for each in taken for run in each) == sorted(ids)
    assert sum(bool(each) for each in taken) > 1, "they shared the work"


def test_who_takes_runs_does_not_hold_up_who_claims_or_concludes_another(stores: Stores) -> None:
    one, two = stores(), stores()
    ids = many(one, 2)
    two.record_sweep(ids[1], "s1", b"{}", 1, 2)
    with one._planning() as connection:
        assert agenda.take(connection, 1_000, 9_000, 1) == (ids[0],)
        began = time.monotonic()
        two.record_verdict("s1", StoredVerdict("Converged", True, 0, b"done"))
        two.cancel(ids[1], "ada", 1)
        assert time.monotonic() - began < 0.9
