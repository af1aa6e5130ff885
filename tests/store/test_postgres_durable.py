"""An answer of a PostgreSQL store stands for a commit on the server's disk: whoever switches that off is refused, wherever and whenever."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from countermark.run.claims import Cancellation, Committed
from countermark.run.records import Recorded
from countermark.store import StoreError, postgres
from countermark.store.failures import CommitNotDurable, StoreFailure
from countermark.store.interface import Finding
from countermark.store.postgres import PostgresStore
from tests.faults import planted, proven_by
from tests.postgres import Cluster, postgres_cluster
from tests.run.examples import claim, desired, key, transition
from tests.store.examples import CONTEXT, RUN, loaded, recorded

OFF = ("synchronous_commit=off",)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server whose settings this module may change."""
    with postgres_cluster() as own:
        own.sql("CREATE DATABASE d", "CREATE ROLE ada LOGIN SUPERUSER")
        yield own


@pytest.fixture
def settled(cluster: Cluster) -> Iterator[Cluster]:
    """The server with a new store, put back afterwards to what it was."""
    cluster.sql("DROP SCHEMA IF EXISTS countermark CASCADE", database="d")
    PostgresStore.initialise(cluster.url("d"))
    with ExitStack() as last:
        last.callback(_reloaded, cluster, "on", "ALTER SYSTEM RESET ALL")
        last.callback(cluster.sql, "ALTER DATABASE d RESET ALL", "ALTER ROLE ada RESET ALL", "ALTER ROLE ada IN DATABASE d RESET ALL")
        yield cluster


def _reloaded(cluster: Cluster, wanted: str, *statements: str) -> None:
    """Change the server's settings, and wait until a new session has them."""
    cluster.sql(*statements, "SELECT pg_reload_conf()")
    while cluster.sql("SHOW synchronous_commit") != [(wanted,)]:
        pass


def refusal(act: Callable[[], object]) -> StoreFailure:
    with pytest.raises(StoreError) as caught:
        act()
    return caught.value.failure


def nobody_looks() -> AbstractContextManager[object]:
    """A connection that is taken as it is."""
    return planted(postgres, "_check_server", lambda connection, where: None)()


def looked_at_once() -> AbstractContextManager[object]:
    """A store that asks a connection when it is made, and never again."""
    return planted(PostgresStore, "_refuse_hasty", lambda self, commits: None)()


WHERE = {
    "the server": lambda cluster: _reloaded(cluster, "off", "ALTER SYSTEM SET synchronous_commit = off"),
    "the database": lambda cluster: cluster.sql("ALTER DATABASE d SET synchronous_commit = off"),
    "the role": lambda cluster: cluster.sql("ALTER ROLE ada SET synchronous_commit = off"),
    "the role in the database": lambda cluster: cluster.sql("ALTER ROLE ada IN DATABASE d SET synchronous_commit = off"),
    "the address": lambda cluster: None,
}


@proven_by(nobody_looks)
@pytest.mark.parametrize("where", WHERE)
def test_commits_that_do_not_wait_for_the_disk_are_refused_wherever_that_was_said(settled: Cluster, where: str) -> None:
    WHERE[where](settled)
    address = settled.url("d", "ada") + ("&options=-c%20synchronous_commit%3Doff" if where == "the address" else "")
    for create in (False, True):
        failure = refusal(lambda: PostgresStore.open(address, create).close())  # noqa: B023
        assert isinstance(failure, CommitNotDurable)
        assert failure.settings == OFF
        assert failure.what() == "the server answers before a commit is on its disk: synchronous_commit=off"


@proven_by(looked_at_once)
def test_what_is_switched_off_while_the_store_is_open_is_refused_at_each_writing(settled: Cluster) -> None:
    with PostgresStore.open(settled.url("d"), create=False) as store:
        version = recorded(store).ledger.version
        store.next_due()
        _reloaded(settled, "off", "ALTER SYSTEM SET synchronous_commit = off")
        refused = CommitNotDurable(store.location, OFF)
        writings: list[Callable[[], object]] = [
            lambda: store.record_demand(desired("weekly"), CONTEXT, 1),
            lambda: store.claim_start(RUN, version, transition(), key(1), 1),
            lambda: store.cancel(RUN, "ada", 1),
            lambda: store.record_sweep(RUN, "s1", b"{}", 1, 2),
            lambda: store.take_due(9_000, 1, 1),
            lambda: store.look_again(RUN, 1),
        ]
        assert [_answer(act) for act in writings] == [refused] * len(writings)
        assert loaded(store).ledger.version == version, "what was recorded is read all the same"
        _reloaded(settled, "on", "ALTER SYSTEM RESET ALL")
        assert store.claim_start(RUN, version, transition(), key(1), 1) == Committed(claim(1))


def _answer(act: Callable[[], object]) -> object:
    try:
        return act()
    except StoreError as error:
        return error.failure


def settings_unread() -> AbstractContextManager[object]:
    return planted(postgres.postgres_checks, "_settings", lambda connection, where: iter(()))()


@proven_by(settings_unread)
def test_a_server_that_never_syncs_is_a_finding_and_named_where_it_commits_hastily_too() -> None:
    with postgres_cluster(durable=False) as hasty:
        with PostgresStore.open(hasty.url("postgres"), create=True) as store:
            assert store.check() == tuple(
                Finding(
                    "ServerNotDurable",
                    store.location,
                    f"the server runs with {name}=off: {danger}",
                    f"set {name} to on, and reload the server",
                )
                for name, danger in (
                    ("fsync", "a lost power damages the database"),
                    ("full_page_writes", "a lost power may damage the database"),
                )
            )
        hasty.sql("ALTER DATABASE postgres SET synchronous_commit = off")
        failure = refusal(lambda: PostgresStore.open(hasty.url("postgres"), create=False).close())
        assert isinstance(failure, CommitNotDurable)
        assert failure.settings == ("synchronous_commit=off", "fsync=off")


@pytest.mark.parametrize("setting", ["local", "remote_write", "remote_apply"])
def test_every_other_setting_of_it_is_on_the_server_s_disk(settled: Cluster, setting: str) -> None:
    settled.sql(f"ALTER DATABASE d SET synchronous_commit = {setting}")
    with PostgresStore.open(settled.url("d"), create=False) as store:
        assert store.check() == ()


def test_a_stricter_level_that_a_database_prefers_changes_nothing(settled: Cluster) -> None:
    settled.sql("ALTER DATABASE d SET default_transaction_isolation = 'serializable'")
    with PostgresStore.open(settled.url("d"), create=False) as store:
        with store._writing("nobody") as held:
            assert held.connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
        with store._reading() as connection:
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "repeatable read"
            assert connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on"


def test_answers_wait_for_the_disk_by_what_the_server_says_and_not_by_what_we_set(settled: Cluster) -> None:
    """The server's own log of statements: nothing of ours ever sets it."""
    settled.sql("ALTER DATABASE d SET log_statement = 'all'")
    with PostgresStore.open(settled.url("d"), create=False) as store:
        recorded(store)
        assert store.cancel(RUN, "ada", 5) == Recorded(Cancellation("ada", 5))
    log = settled.log.read_text(errors="replace")
    assert "BEGIN" in log
    assert not [line for line in log.splitlines() if "SET synchronous_commit" in line and "ALTER" not in line]
