"""A server takes out what is too old, beside everything else."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from countermark.app.forwarding import Forward
from countermark.lines.leaving import Retired
from countermark.server import upkeep
from countermark.sessions.records import Rule
from countermark.store.failures import NotAStore, StoreError
from countermark.store.sessions import retention
from countermark.store.sessions.sqlite import SqliteSessions
from tests.faults import planted, proven_by
from tests.server import running
from tests.server.receiving import eventually
from tests.server.running import served
from tests.server.test_forwarding import metric
from tests.store.sessions.examples import DAY, edit, event


def filled(folder: Path, sessions: int = 3) -> None:
    """Sessions of three months ago, and one of now."""
    now_ns = time.time_ns()
    with SqliteSessions.open(folder, create=True) as store:
        store.ingest([event(f"old-{number}", session=f"s-old-{number}", received_ns=now_ns - 90 * DAY) for number in range(sessions)])
        store.ingest([event("new", session="s-new", received_ns=now_ns)])


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[Retired]:
    """What each round came to that the server has ended."""
    honest, ended = upkeep.retire, list[Retired]()

    def noted(*given: Any) -> Retired:
        ended.append(found := honest(*given))
        return found

    monkeypatch.setattr(upkeep, "retire", noted)
    return ended


@proven_by(planted(upkeep, "rule_of", lambda keep_days, now_ns: Rule(0, 0)))
def test_what_is_older_than_the_setting_says_goes_and_nothing_else(tmp_path: Path, rounds: list[Retired]) -> None:
    filled(tmp_path)
    with served(tmp_path, keep_days=30) as server:
        eventually(lambda: rounds)
        told = [metric(server, f"countermark_retired_{what}_total") for what in ("sessions", "events")]
        assert [each["id"] for each in server.get("/v1/sessions").document["sessions"]] == ["s-new"]
        assert told == [3, 3]


def test_without_the_setting_nothing_goes(tmp_path: Path, rounds: list[Retired]) -> None:
    filled(tmp_path)
    with served(tmp_path) as server:
        eventually(lambda: "upkeep" not in {thread.name for thread in threading.enumerate()})
        assert (rounds, len(server.get("/v1/sessions").document["sessions"])) == ([], 4)


def test_it_is_looked_again_after_a_while_and_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: list[Retired], caplog: pytest.LogCaptureFixture
) -> None:
    honest, asked = SqliteSessions.outdated, list[int]()

    def failing(self: SqliteSessions, *given: Any) -> object:
        asked.append(1)
        if len(asked) == 2:
            raise StoreError(NotAStore("here", "it is broken"))
        return honest(self, *given)

    monkeypatch.setattr(upkeep, "EVERY_S", 0.02)
    monkeypatch.setattr(upkeep, "_AGAIN_S", 0.02)
    monkeypatch.setattr(SqliteSessions, "outdated", failing)
    with served(tmp_path, keep_days=30) as server:
        eventually(lambda: len(rounds) > 2)
        assert server.ingest(running.edit(1)).document["stored"] == 1
    assert "what is older than 30 days could not be taken out: this file is not a countermark store: it is broken" in caplog.text


def test_what_is_to_be_sent_on_stays_and_is_told_of(tmp_path: Path, rounds: list[Retired], caplog: pytest.LogCaptureFixture) -> None:
    with SqliteSessions.open(tmp_path, create=True) as store:
        store.hold_sink("serve.forward", "somebody", 0, 1)
        store.ingest([edit("old", "w", received_ns=time.time_ns() - 90 * DAY)])
    with served(tmp_path, keep_days=30, forward=Forward("http://127.0.0.1:9")) as server:
        eventually(lambda: rounds)
        eventually(lambda: "1 sessions that are older than 30 days stay: serve.forward has not sent everything yet" in caplog.text)
        assert len(server.get("/v1/sessions").document["sessions"]) == 1


def test_the_end_of_a_server_waits_for_one_transaction_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, sessions=200)
    monkeypatch.setattr(retention, "_FORGOTTEN_AT_ONCE", 1)
    monkeypatch.setattr(upkeep, "_REST_S", 0.2)
    with served(tmp_path, keep_days=30) as server:
        eventually(lambda: metric(server, "countermark_retired_events_total") >= 2)
    with SqliteSessions.open(tmp_path, create=False) as store:
        assert store.check() == () and len(store.sessions(limit=300).items) > 100
