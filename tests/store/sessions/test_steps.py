"""The tables come step by step: after a kill between any two of them the next one goes on, and of several one does it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from countermark.store import StoreError
from countermark.store.failures import NotAStore, StoreDamaged, StoreIncomplete, StoreMissing, StoreOfAnotherVersion
from countermark.store.migrations.outcome import SessionsMigrated
from countermark.store.opening import check_sessions, migrate_sessions, open_sessions
from countermark.store.sessions import postgres, sqlite, steps
from countermark.store.sessions.base import SqlSessions
from countermark.store.sessions.postgres import SESSIONS_SCHEMA, PostgresSessions
from countermark.store.sessions.schema import SESSIONS, SESSIONS_VERSION
from countermark.store.sessions.sqlite import SESSIONS_FILE, SqliteSessions
from countermark.store.sessions.steps import STEPS, Step, take
from tests.faults import planted, proven_by
from tests.store.crashing import in_a_child
from tests.store.sessions.examples import event

Open = Callable[..., SqlSessions]


@pytest.fixture(params=["postgresql", "sqlite"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the sessions of one place, where there is nothing yet."""
    if request.param == "sqlite":
        return lambda create=True, **how: SqliteSessions.open(tmp_path, create, 10, **how)
    url = request.getfixturevalue("postgres_url")
    return lambda create=True, **how: PostgresSessions.open(url, create, 10, **how)


@contextmanager
def writing(store: SqlSessions) -> Iterator[Connection]:
    with store._changing() as connection:
        yield connection


def taken(store: SqlSessions) -> list[tuple[int, int]]:
    with store._reading() as connection:
        return steps.taken_in(connection)


@contextmanager
def believes_any_steps() -> Iterator[None]:
    with planted(sqlite, "version_of", lambda taken, where: 1)(), planted(postgres, "version_of", lambda taken, where: 1)():
        yield


def test_a_kill_between_any_two_steps_leaves_a_store_that_the_next_one_finishes(opening: Open) -> None:
    for at in STEPS:
        said: list[Step] = []

        def die(step: Step, at: Step = at) -> None:
            if step is at:
                os.kill(os.getpid(), signal.SIGKILL)

        assert not in_a_child(lambda die=die: opening(between=die)), at.what
        with pytest.raises(StoreError) as refused:
            opening(create=False)
        assert isinstance(refused.value.failure, StoreOfAnotherVersion)
        with opening(between=said.append) as store:
            assert said == list(STEPS[STEPS.index(at) :])
            assert (store.ingest([event("e-1")]).stored, store.check()) == (("e-1",), ())
        with opening(between=said.append) as store:
            # Made as if it had never been, for the next kill.
            assert said == list(STEPS[STEPS.index(at) :])
            unmake(store)


def unmake(store: SqlSessions) -> None:
    """Leave nothing but the table of the steps, with no step in it."""
    with writing(store) as connection:
        for table in ("search", *(table.name for table in SESSIONS.sorted_tables if table.name != "schema_versions")):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("DELETE FROM schema_versions"))


def test_of_several_that_begin_at_once_one_takes_each_step(opening: Open) -> None:
    said: list[tuple[int, Step]] = []

    def slowly(number: int) -> Callable[[Step], None]:
        return lambda step: (said.append((number, step)), time.sleep(0.02))[0]

    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda number: opening(between=slowly(number)), range(6)))
    try:
        assert [step for _, step in said] == list(STEPS)
        assert len({number for number, _ in said}) == 1
        assert {tuple(taken(store)) for store in stores} == {tuple((step.version, step.number) for step in STEPS)}
    finally:
        for store in stores:
            store.close()


def test_a_step_that_is_taken_again_changes_nothing(opening: Open) -> None:
    with opening() as store:
        store.ingest([event("e-1")])
        for step in STEPS:
            with writing(store) as connection:
                connection.execute(text("DELETE FROM schema_versions WHERE step = :step"), {"step": step.number})
                take(connection, step, 1)
        assert (store.check(), store.latest(), store.ingest([event("e-2")]).stored) == ((), 1, ("e-2",))


def test_a_store_of_a_later_release_is_refused_with_both_versions_and_left_as_it_is(opening: Open) -> None:
    newer = "INSERT INTO schema_versions VALUES (2, 1, 'something new', 1)"
    with opening() as store, opening() as other:
        with writing(other) as connection:
            connection.execute(text(newer))
        with pytest.raises(StoreError) as refused:
            store.ingest([event("e-1")])
        failure = refused.value.failure
        assert isinstance(failure, StoreOfAnotherVersion)
        assert (failure.found, failure.supported) == (2, SESSIONS_VERSION)
        assert failure.what() == "the store has schema 2, this countermark reads schema 1"
        for create in (True, False):
            with pytest.raises(StoreError) as refused:
                opening(create=create)
            assert (refused.value.failure, store.latest()) == (StoreOfAnotherVersion(refused.value.where, 2, 1), 0)


@proven_by(believes_any_steps)
def test_steps_that_no_release_takes_are_damage(opening: Open) -> None:
    with opening() as store, writing(store) as connection:
        connection.execute(text("DELETE FROM schema_versions WHERE step = 3"))
    with pytest.raises(StoreError) as refused:
        opening().close()
    assert isinstance(refused.value.failure, StoreDamaged)


def test_the_steps_make_the_tables_that_statements_name(opening: Open) -> None:
    with opening() as store, store._reading() as connection:
        found = inspect(connection)
        columns = {table.name: [column["name"] for column in found.get_columns(table.name)] for table in SESSIONS.sorted_tables}
    assert columns == {table.name: [column.name for column in table.columns] for table in SESSIONS.sorted_tables}


def test_nothing_is_made_without_leave(opening: Open) -> None:
    with pytest.raises(StoreError) as refused:
        opening(create=False)
    assert isinstance(refused.value.failure, StoreMissing)


def test_a_file_that_was_lost_is_not_made_anew_beside_its_log(tmp_path: Path) -> None:
    (tmp_path / f"{SESSIONS_FILE}-wal").write_bytes(b"x")
    with pytest.raises(StoreError) as refused:
        open_sessions(f"sqlite:///{tmp_path}", create=True)
    assert refused.value.failure == StoreIncomplete(str(tmp_path), SESSIONS_FILE)


def test_a_schema_of_another_program_is_left_alone(postgres_url: str) -> None:
    with PostgresSessions.open(postgres_url, create=True) as store, writing(store) as connection:
        connection.execute(text(f"ALTER TABLE {SESSIONS_SCHEMA}.schema_versions RENAME TO theirs"))
    with pytest.raises(StoreError) as refused:
        open_sessions(postgres_url, create=True)
    assert isinstance(refused.value.failure, NotAStore)


def test_a_check_and_a_migration_of_a_store_find_its_sessions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}"
    looked = [migrate_sessions(url), migrate_sessions(url, dry_run=True), check_sessions(url)]
    assert (looked, list(tmp_path.glob(SESSIONS_FILE))) == ([None] * 3, []), "who looks makes nothing"

    def stop(step: Step) -> None:
        if step is STEPS[-1]:
            raise InterruptedError

    with pytest.raises(StoreError):
        SqliteSessions.open(tmp_path, create=True, between=stop)
    with pytest.raises(StoreError, match="schema 0, this countermark reads schema 1"):
        check_sessions(url)
    told = [migrate_sessions(url, dry_run=True), migrate_sessions(url), migrate_sessions(url), migrate_sessions(url, dry_run=True)]
    assert told == [SessionsMigrated(0, 1, None), SessionsMigrated(0, 1, 0), *[SessionsMigrated(1, 1, 0)] * 2]
    assert check_sessions(url) == ()
    with SqliteSessions.open(tmp_path, create=False) as store:
        store.ingest([event("e-1")])
        with writing(store) as connection:
            connection.execute(text("UPDATE feed SET ordinal = 0"))
    assert [finding.code for finding in check_sessions(url) or ()] == ["EventNumberAhead"]
    with SqliteSessions.open(tmp_path, create=False) as store, writing(store) as connection:
        connection.execute(text("INSERT INTO schema_versions VALUES (2, 1, 'something new', 1)"))
    with pytest.raises(StoreError, match="schema 2, this countermark reads schema 1"):
        migrate_sessions(url)
