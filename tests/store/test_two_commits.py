"""Two files are two commits: a process that ends between them leaves an entry of the agenda too many, and never one too few."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from countermark.run.records import StoredVerdict
from countermark.store import Store
from countermark.store.sqlite import SqliteStore
from tests.faults import planted, proven_by
from tests.store.examples import RUN, loaded, recorded, won


class Died(Exception):
    """The process ended here."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / ".countermark", create=True) as found:
        yield found


@contextmanager
def dying_after_the_first_commit(store: SqliteStore) -> Iterator[None]:
    """Of two transactions that write, the one that ends last is not committed."""
    commits = 0

    def dying(real: Any) -> Any:
        @contextmanager
        def transaction(first: Any, begin: str, hint: bool = False) -> Iterator[Any]:
            nonlocal commits
            with real(first, begin, hint=hint) as given:
                yield given
                if commits and begin == "BEGIN IMMEDIATE":
                    raise Died
            commits += begin == "BEGIN IMMEDIATE"

        return transaction

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        for database in (store._ledger, store._observations):
            patch.setattr(database, "transaction", dying(database.transaction))
        yield
    assert commits == 1


def nothing_is_late() -> AbstractContextManager[object]:
    return planted(SqliteStore, "_late", lambda self, sweep_id, version: False)()


def all_is_late() -> AbstractContextManager[object]:
    return planted(SqliteStore, "_late", lambda self, sweep_id, version: True)()


def open_runs(store: Store) -> list[str]:
    return [each.run_id for each in store.list_runs(open_only=True)]


def closed_by_another(store: SqliteStore) -> int:
    """The version at which a late controller looked, of a run that another one closed since at a later one."""
    recorded(store)
    before = loaded(store).ledger.version
    store.record_sweep(RUN, "late", b"{}", 1, 2)
    won(store, 1)
    store.record_sweep(RUN, "newer", b"{}", 3, 4)
    store.record_verdict("newer", StoredVerdict("Converged", True, loaded(store).ledger.version, b"done"))
    assert (open_runs(store), store.check()) == ([], ())
    return before


@proven_by(nothing_is_late)
def test_a_late_closing_verdict_that_was_broken_off_leaves_a_whole_store(store: SqliteStore) -> None:
    before = closed_by_another(store)
    with dying_after_the_first_commit(store):
        store.record_verdict("late", StoredVerdict("Cancelled", True, before, b"over"))
    assert store.check() == ()
    assert open_runs(store) == [RUN], "one look too many"


@pytest.mark.parametrize("at", ["the version now", "a version that has passed"])
def test_so_does_one_that_closes_nothing(store: SqliteStore, at: str) -> None:
    before = closed_by_another(store)
    version = loaded(store).ledger.version if at == "the version now" else before
    with dying_after_the_first_commit(store):
        store.record_verdict("late", StoredVerdict("InProgress", False, version, b"running"))
    assert store.check() == () and open_runs(store) == [RUN]


@proven_by(all_is_late)
def test_a_closing_verdict_is_there_before_the_run_is_off_the_agenda(store: SqliteStore) -> None:
    recorded(store)
    store.record_sweep(RUN, "s", b"{}", 1, 2)
    verdict = StoredVerdict("Converged", True, loaded(store).ledger.version, b"done")
    with dying_after_the_first_commit(store):
        store.record_verdict("s", verdict)
    assert store.verdicts("s") == (verdict,) and store.check() == ()
    assert open_runs(store) == [RUN], "one look too many"
