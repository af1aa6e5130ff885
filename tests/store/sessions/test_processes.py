"""Several processes at once, and processes and servers that are killed: what was acknowledged is there, and nobody is locked out."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest
from sqlalchemy import text

from countermark.store import StoreError
from countermark.store.failures import SqliteWithoutSearch, StoreOnNetwork
from countermark.store.opening import open_sessions
from countermark.store.sessions import sqlite
from countermark.store.sessions.base import SqlSessions
from countermark.store.sessions.interface import SessionStore
from countermark.store.sessions.sqlite import SESSIONS_FILE, SqliteSessions
from countermark.store.sqlite import SqliteFile
from tests.faults import planted, proven_by
from tests.postgres import Cluster, postgres_cluster
from tests.store.sessions.examples import event
from tests.store.sessions.writer import BATCH


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def begun(url: str, name: str, count: int) -> "subprocess.Popen[str]":
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.store.sessions.writer", url, name, str(count)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def said_until_its_end(process: "subprocess.Popen[str]") -> int:
    """How many more batches a writer said were stored. A line that was cut off is none."""
    assert process.stdout is not None
    said = re.findall(r"\d+\n", process.stdout.read())
    process.communicate(timeout=60)
    return len(said)


def acknowledged(url: str, name: str, batches: int, wait_s: float) -> int:
    """How many batches a writer says are stored, which is killed some time after so many of them."""
    process = begun(url, name, 100_000)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(batches)]
    time.sleep(wait_s)
    process.send_signal(signal.SIGKILL)
    return len(lines) + said_until_its_end(process)


def whole(url: str, name: str, said: int) -> None:
    """Every batch that was acknowledged is there, at most one more, and none in part."""
    with open_sessions(url, create=False) as store:
        total = store.events(f"s-{name}").total
        assert store.check() == ()
    assert total % BATCH == 0
    assert said <= total // BATCH <= said + 1


@pytest.mark.parametrize("seed", range(3))
def test_a_writer_that_is_killed_loses_nothing_that_it_said_was_stored(url: str, seed: int) -> None:
    drawn = random.Random(seed)
    for name in ("a", "b"):
        whole(url, name, acknowledged(url, name, drawn.randint(1, 6), drawn.random() * 0.05))


def test_a_server_that_is_killed_loses_nothing_that_was_said_to_be_stored() -> None:
    with postgres_cluster() as cluster:
        assert isinstance(cluster, Cluster)
        url = cluster.new_database()
        process = begun(url, "a", 100_000)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        cluster.kill()
        said = len(lines) + said_until_its_end(process)
        cluster.start()
        whole(url, "a", said)


def test_each_commit_is_synced(tmp_path: Path) -> None:
    with SqliteSessions.open(tmp_path, create=True) as store, store._changing() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"


def test_who_reads_waits_for_no_writer(url: str) -> None:
    with open_sessions(url, create=True) as store, open_sessions(url, create=True) as other:
        store.ingest([event("e-1")])
        assert isinstance(other, SqlSessions)
        with other._writing():
            began = time.monotonic()
            assert (store.latest(), len(store.sessions().items), store.search("e").items[0].ordinal) == (1, 1, 1)
            assert time.monotonic() - began < 2


def busy(url: str, wait_s: float) -> None:
    """Four writers, a reader, a query that takes its time, and backups: nobody is told that the store is locked."""
    with open_sessions(url, create=True) as store:
        store.ingest([event(f"e-{number}") for number in range(200)])
        writers = [begun(url, f"w{number}", 15) for number in range(4)]
        stop, failed, pages = Flag(), list[BaseException](), list[int]()
        threads = [Thread(target=_until, args=(stop, failed, act)) for act in _others(url, wait_s, store, pages)]
        for thread in threads:
            thread.start()
        codes = [writer.wait(timeout=120) for writer in writers]
        stop.set()
        for thread in threads:
            thread.join()
        for writer in writers:
            writer.communicate()
        assert (codes, failed) == ([0] * 4, [])
        assert len(pages) > 3
        assert {listed.id: listed.session.sums.events for listed in store.sessions().items} == {"s-main": 200} | {
            f"s-w{number}": 15 * BATCH for number in range(4)
        }
        assert store.check() == ()


def _others(url: str, wait_s: float, store: SessionStore, pages: list[int]) -> tuple[Callable[[], None], ...]:
    assert isinstance(store, SqlSessions)

    def read() -> None:
        pages.append(len(store.events("s-main").events))

    def analyse() -> None:
        with store._reading() as connection:
            began = time.monotonic()
            rows = connection.execute(text("SELECT count(*) FROM events a, events b, events c WHERE a.session_id = 's-main'"))
            assert rows.scalar() is not None
            time.sleep(max(0.0, wait_s - (time.monotonic() - began)))

    def back_up() -> None:
        path = Path(url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(path / SESSIONS_FILE)) as source, closing(sqlite3.connect(path / "copy")) as copy:
            source.backup(copy, pages=50)
        time.sleep(0.05)

    return (read, analyse, back_up) if url.startswith("sqlite") else (read, analyse)


def _until(stop: Flag, failed: list[BaseException], act: Callable[[], None]) -> None:
    while not stop.is_set() and not failed:
        try:
            act()
        except Exception as error:
            failed.append(error)


def test_writers_a_reader_a_long_query_and_backups_go_side_by_side(url: str) -> None:
    busy(url, 1)


@pytest.mark.slow
def test_so_they_do_for_longer_than_anybody_waits(url: str) -> None:
    busy(url, 10)


def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    with SqliteSessions.open(tmp_path, create=True) as store, planted(os, "getpid", lambda: -1)():
        with pytest.raises(RuntimeError, match="across a fork"):
            store.latest()


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countermark.store.sqlite.network_type", lambda mount: "nfs4")
    with pytest.raises(StoreError) as refused:
        open_sessions(f"sqlite:///{tmp_path}", create=True)
    assert refused.value.failure == StoreOnNetwork(str(tmp_path), "nfs4")


def test_an_sqlite_that_cannot_search_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_SEARCHES", "fts6")
    with pytest.raises(StoreError) as refused:
        open_sessions(f"sqlite:///{tmp_path}", create=True)
    assert refused.value.failure == SqliteWithoutSearch(str(tmp_path / SESSIONS_FILE), sqlite3.sqlite_version)


@proven_by(planted(SqliteFile, "still_there", lambda self: None))
def test_a_file_that_was_replaced_takes_nothing(tmp_path: Path) -> None:
    with SqliteSessions.open(tmp_path, create=True) as store:
        (tmp_path / SESSIONS_FILE).rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="moved, replaced or removed"):
            store.ingest([event("e-1")])
