"""A PostgreSQL store waits no longer than it says, and outlives what happens to connections, processes and the server."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest

from countermark.run.claims import Cancellation
from countermark.run.records import Recorded, Stands
from countermark.store import StoreError, checks, ledger, postgres
from countermark.store.failures import ServerUnreachable, StoreFailure, StoreFull, StoreLocked
from countermark.store.postgres import PostgresStore
from tests.faults import planted, proven_by
from tests.postgres import Cluster, Mode, postgres_cluster
from tests.run.examples import desired
from tests.store.examples import CONTEXT, RUN, loaded, recorded
from tests.store.past import Past

WAIT_S = 1.0


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    """A store that waits for a second, with a run."""
    with PostgresStore.open(postgres_url, create=True, wait_s=WAIT_S) as opened:
        recorded(opened)
        yield opened


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server that this module may end."""
    with postgres_cluster() as own:
        yield own


@pytest.fixture
def own_url(cluster: Cluster) -> Iterator[str]:
    url = cluster.new_database()
    yield url
    cluster.give_back(url)


def refusal(act: Callable[[], object]) -> StoreFailure:
    with pytest.raises(StoreError) as caught:
        act()
    return caught.value.failure


def ended(url: str) -> None:
    """End every other connection of a database, as a server does that makes room."""
    with psycopg.connect(url, autocommit=True) as raw:
        who = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        pids = [row[0] for row in raw.execute(who).fetchall()]
        for pid in pids:
            raw.execute("SELECT pg_terminate_backend(%s)", [pid])
        while raw.execute(who).fetchall():
            time.sleep(0.01)


# --------------------------------------------------------------------------------------------------------------- waiting


def waits_for_ever() -> AbstractContextManager[object]:
    """Connections that wait ten times as long."""
    honest = postgres._options
    return planted(postgres, "_options", lambda url, wait_s, schema: honest(url, wait_s * 10, schema))()


@proven_by(waits_for_ever)
def test_a_run_that_somebody_holds_is_waited_for_as_long_as_was_said(store: PostgresStore, postgres_url: str) -> None:
    with PostgresStore.open(postgres_url, create=False, wait_s=WAIT_S) as own, psycopg.connect(postgres_url) as raw:
        raw.execute("SELECT 1 FROM countermark.runs WHERE run_id = %s FOR UPDATE", [RUN])
        began = time.monotonic()
        held = Thread(target=lambda: (time.sleep(5), raw.rollback()))
        held.start()
        try:
            own.cancel(RUN, "ada", 1)
        except StoreError as error:
            assert error.failure == StoreLocked(own.location, 1_000, "")
            assert error.failure.what() == "the store is locked; waited 1.0 s"
        else:
            pytest.fail("it waited until the run was let go")
        finally:
            took_s = time.monotonic() - began
            held.join()
        assert 0.9 <= took_s < 4
    assert loaded(store).ledger.version == 0


def no_limit() -> AbstractContextManager[object]:
    """A process may stop in a transaction for as long as it likes."""
    return planted(postgres, "STOPPED_S", 60.1)()


@proven_by(no_limit)
def test_a_process_that_stops_in_a_transaction_loses_it(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch, planted_fault: object
) -> None:
    if planted_fault is None:
        monkeypatch.setattr(postgres, "STOPPED_S", 0.5)
    code = (
        "import os, signal, sys\n"
        "from countermark.store import ledger, postgres\n"
        "from tests.store.examples import RUN\n"
        f"postgres.STOPPED_S = {postgres.STOPPED_S}\n"
        "honest = ledger.append_cancellation\n"
        "def append(*asked):\n"
        "    honest(*asked)\n"
        "    print('inserted', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "ledger.append_cancellation = append\n"
        "with postgres.PostgresStore.open(sys.argv[1], create=False) as store:\n"
        "    try:\n"
        "        print(store.cancel(RUN, 'stopped', 1), flush=True)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error.failure, flush=True)\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    with subprocess.Popen([sys.executable, "-c", code, postgres_url], stdout=subprocess.PIPE, text=True, env=environment) as stopped:
        assert stopped.stdout is not None
        try:
            assert stopped.stdout.readline() == "inserted\n"
            answer: Any = None
            try:
                answer = store.cancel(RUN, "ada", 2)
            except StoreError as error:
                answer = error.failure
            assert answer == Recorded(Cancellation("ada", 2)), answer
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
            rest = stopped.stdout.read()
    assert rest.startswith("StoreError ServerUnreachable("), rest
    assert "idle-in-transaction timeout" in rest
    assert loaded(store).ledger.cancellations == (Cancellation("ada", 2),)


def test_more_threads_than_connections_wait_their_turn(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = postgres.create_engine
    monkeypatch.setattr(postgres, "create_engine", lambda *asked, **named: honest(*asked, **named | {"pool_size": 1, "max_overflow": 0}))
    with PostgresStore.open(postgres_url, create=True, wait_s=WAIT_S) as store:
        recorded(store)
        with store._reading():
            assert refusal(store.list_runs) == StoreLocked(store.location, 1_000, "")
        assert len(store.list_runs()) == 1


# ----------------------------------------------------------------------------------------------------- broken connections


def never_looked_at() -> AbstractContextManager[object]:
    """An idle connection is used as it is."""
    return planted(postgres, "_was_spoken_to", lambda connection: False)()


@proven_by(never_looked_at)
def test_connections_that_broke_while_nobody_used_them_are_replaced_for_reading(store: PostgresStore, postgres_url: str) -> None:
    ended(postgres_url)
    try:
        assert len(store.list_runs()) == 1
    except StoreError as error:
        pytest.fail(str(error))


def test_connections_that_broke_while_nobody_used_them_are_replaced_for_writing(store: PostgresStore, postgres_url: str) -> None:
    ended(postgres_url)
    assert store.cancel(RUN, "ada", 1) == Recorded(Cancellation("ada", 1))


@pytest.mark.parametrize("act", ["read", "write"])
def test_a_connection_that_breaks_in_the_middle_writes_nothing_and_says_so(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    name = "append_cancellation" if act == "write" else "summaries"
    honest = getattr(ledger, name)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, name, lambda *asked: (ended(postgres_url), honest(*asked))[1])
        failure = refusal(store.list_runs if act == "read" else lambda: store.cancel(RUN, "ada", 1))
    assert isinstance(failure, ServerUnreachable)
    assert "terminating connection due to administrator command" in failure.why
    assert loaded(store).ledger.version == 0
    assert store.cancel(RUN, "ada", 1) == Recorded(Cancellation("ada", 1))


def shared_with_the_child() -> AbstractContextManager[object]:
    """A child that goes on with its parent's connections."""
    return planted(PostgresStore, "_own", lambda self: None)()


@proven_by(shared_with_the_child)
def test_a_forked_child_makes_connections_of_its_own_and_leaves_its_parent_s_alone(store: PostgresStore) -> None:
    def backend() -> int:
        with store._reading() as connection:
            return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

    before = backend()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if backend() != before and isinstance(store.cancel(RUN, "child", 1), Recorded) else 2
            store.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert backend() == before
    assert store.cancel(RUN, "parent", 2) == Stands(Cancellation("child", 1))


# ----------------------------------------------------------------------------------------------------------- the server


ENDS: list[Mode] = ["fast", "immediate", "kill"]


@pytest.mark.parametrize("mode", ENDS)
def test_a_server_that_restarts_between_two_calls_is_not_noticed(cluster: Cluster, own_url: str, mode: Mode) -> None:
    with PostgresStore.open(own_url, create=True) as store:
        recorded(store)
        cluster.restart(mode)
        assert len(store.list_runs()) == 1
        cluster.restart(mode)
        assert store.cancel(RUN, "ada", 1) == Recorded(Cancellation("ada", 1))
        assert store.check() == ()


@pytest.mark.parametrize("mode", ENDS)
def test_a_server_that_ends_in_the_middle_of_a_transaction_has_written_nothing(
    cluster: Cluster, own_url: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ledger.append_cancellation
    with PostgresStore.open(own_url, create=True) as store:
        recorded(store)

        def append(*asked: Any) -> None:
            honest(*asked)
            cluster.restart(mode)

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "append_cancellation", append)
            failure = refusal(lambda: store.cancel(RUN, "ada", 1))
        assert isinstance(failure, ServerUnreachable)
        assert loaded(store).ledger.version == 0
        assert store.cancel(RUN, "ada", 2) == Recorded(Cancellation("ada", 2))
        assert store.check() == ()


def impatient() -> AbstractContextManager[object]:
    """A server that is just starting counts as away."""
    return planted(PostgresStore, "_starting", staticmethod(lambda error: False))()


@proven_by(impatient)
def test_a_server_that_is_still_starting_is_waited_for(cluster: Cluster, own_url: str) -> None:
    """A server that replays its log after a crash answers "not yet"; here its first process is asked so early that it does."""
    with PostgresStore.open(own_url, create=True) as store:
        recorded(store)
        cluster.sql("CREATE TABLE IF NOT EXISTS long (number int)", "CHECKPOINT")
        cluster.sql("INSERT INTO long SELECT generate_series(1, 1500000)")
        cluster.stop("immediate")
        starting = Thread(target=cluster.start)
        starting.start()
        try:
            seen = _while_starting(store)
        finally:
            starting.join()
        assert seen == 1
        cluster.sql("DROP TABLE long")


def _while_starting(store: PostgresStore) -> int | StoreFailure:
    """What the store says once the server answers at all."""
    while True:
        try:
            return len(store.list_runs())
        except StoreError as error:
            if "the database system is" in str(error):
                return error.failure
        time.sleep(0.005)


def test_a_server_that_is_away_is_said_and_then_found_again(cluster: Cluster, own_url: str) -> None:
    with PostgresStore.open(own_url, create=True) as store:
        recorded(store)
        cluster.stop("fast")
        for act in (store.list_runs, lambda: store.cancel(RUN, "ada", 1), lambda: store.record_demand(desired(), CONTEXT, 1)):
            failure = refusal(act)
            assert isinstance(failure, ServerUnreachable)
            assert failure.where == store.location
        cluster.start()
        assert store.cancel(RUN, "ada", 2) == Recorded(Cancellation("ada", 2))


def fills_up(connection: Any, *asked: Any) -> None:
    """The server's own code for it, also where nobody may mount a small disk."""
    connection.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = 'disk_full'; END $$")


def test_a_full_disk_is_said_and_loses_nothing(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "append_cancellation", fills_up)
        assert refusal(lambda: store.cancel(RUN, "ada", 1)) == StoreFull(store.location)
    assert store.cancel(RUN, "ada", 1) == Recorded(Cancellation("ada", 1))


def full_for_readers() -> Any:
    honest = checks.sweep_findings

    def findings(connection: Any, *asked: Any) -> Any:
        yield from honest(connection, *asked)
        fills_up(connection)

    return findings


def test_a_disk_that_is_full_for_reading_too_hides_nothing_that_a_check_found(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record_sweep(RUN, "s1", b"{}", 1, 2)
    Past(store, postgres_url).change("UPDATE sweeps SET document = 'x'")
    monkeypatch.setattr(checks, "sweep_findings", full_for_readers())
    assert [(each.code, each.what) for each in store.check()] == [
        ("SweepDamaged", ANY),
        ("RowsNotRead", "not every row was looked over: the disk is full"),
    ]


@pytest.fixture
def small_disk(cluster: Cluster) -> Iterator[tuple[str, Path]]:
    """A database on a disk of its own that holds little more than an empty one."""
    disk = cluster.folder / "small"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    shutil.chown(disk, "postgres")
    # A new database is full of holes, which take their room when a page is written out, whoever makes the server do so.
    cluster.sql(f"CREATE TABLESPACE small LOCATION '{disk}'", "CREATE DATABASE small TABLESPACE small", "CHECKPOINT")
    yield cluster.url("small"), disk
    subprocess.run(["mount", "-o", "remount,size=80m", disk], check=True)
    cluster.sql("DROP DATABASE small WITH (FORCE)", "DROP TABLESPACE small")
    subprocess.run(["umount", "-l", disk], check=True)
    disk.rmdir()


@pytest.mark.slow
def test_a_disk_that_fills_up_under_the_server_is_said_and_the_store_goes_on_when_there_is_room(small_disk: tuple[str, Path]) -> None:
    address, disk = small_disk
    with PostgresStore.open(address, create=True) as store:
        recorded(store)
        failure: StoreFailure | None = None
        for number in range(40):
            try:
                store.record_sweep(RUN, f"s{number}", random.Random(number).randbytes(2**20), 1, 2)
            except StoreError as error:
                failure = error.failure
                break
        assert failure == StoreFull(store.location)
        (finding,) = store.check()
        assert (finding.code, finding.what) == (
            "SchemaNotCompared",
            "the tables were not compared with what they should be: the disk is full",
        )
        subprocess.run(["mount", "-o", "remount,size=80m", disk], check=True)
        assert isinstance(store.record_sweep(RUN, "s40", b"{}", 1, 2), Recorded)
        assert len(store.find_sweeps("s")) == number + 1
        assert store.check() == ()
