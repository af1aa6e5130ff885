"""The tests' own PostgreSQL: durable, on a socket of its own, gone afterwards, and never missing in silence."""

import os
from collections.abc import Callable

import pytest

from tests import postgres as room
from tests.postgres import MISSING, Cluster, postgres_cluster


def test_what_it_acknowledges_is_on_the_disk_and_nobody_else_reaches_it(postgres: Cluster) -> None:
    settings = [postgres.sql(f"SHOW {name}")[0][0] for name in ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses")]
    assert settings == ["on", "on", "on", ""]


def test_a_suite_may_go_without_fsync_and_never_without_the_commit() -> None:
    with postgres_cluster(durable=False) as cluster:
        assert [cluster.sql(f"SHOW {name}")[0][0] for name in ("fsync", "synchronous_commit")] == ["off", "on"]
        folder, pid = cluster.folder, cluster.pid()
    assert not folder.exists()
    assert not room.runs(pid)


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_what_was_committed_is_there_after_every_end(mode: room.Mode) -> None:
    with postgres_cluster() as cluster:
        cluster.sql("CREATE TABLE kept (number int)", "INSERT INTO kept VALUES (7)")
        before = cluster.pid()
        cluster.restart(mode)
        assert cluster.pid() != before
        assert cluster.sql("SELECT number FROM kept") == [(7,)]


def test_databases_are_empty_also_when_they_were_used_before(postgres: Cluster) -> None:
    url = postgres.new_database()
    name = url.rpartition("/")[2].partition("?")[0]
    postgres.sql("CREATE SCHEMA countermark", f"ALTER DATABASE {name} SET work_mem = '1MB'", database=name)
    postgres.give_back(url)
    assert postgres.new_database() == url
    assert postgres.sql("SELECT 1 FROM pg_namespace WHERE nspname = 'countermark'", database=name) == []
    assert postgres.sql("SELECT 1 FROM pg_db_role_setting") == []
    postgres.give_back(url)


@pytest.mark.parametrize(("needed", "outcome"), [(None, "skipped"), ("1", "failed")])
def test_without_a_server_nothing_passes_in_silence(monkeypatch: pytest.MonkeyPatch, needed: str | None, outcome: str) -> None:
    monkeypatch.setattr(room, "binaries", lambda: None)
    monkeypatch.delenv("TESTS_NEED_POSTGRESQL", raising=False)
    if needed:
        monkeypatch.setitem(os.environ, "TESTS_NEED_POSTGRESQL", needed)
    ended = {"skipped": pytest.skip.Exception, "failed": pytest.fail.Exception}[outcome]
    with pytest.raises(ended, match=r"apt-get install postgresql"), postgres_cluster():
        pass
    assert "apt-get install" in MISSING


def test_each_asking_gets_a_database_of_its_own(postgres_databases: Callable[[], str]) -> None:
    assert postgres_databases() != postgres_databases()
