"""Starting and ending: what an older version folded is folded anew beside everything else."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from countermark.store.failures import NotAStore, StoreError
from countermark.store.sessions.sqlite import SqliteSessions
from tests.server.running import edit, served, settings_of


def test_what_an_older_version_folded_is_folded_anew_and_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, told = threading.Event(), threading.Event()

    def endless(self: SqliteSessions, progress: Callable[[int, int], object], batch: int = 100) -> int:
        begun.set()
        while True:
            progress(1, 2)
            told.wait(0.01)

    monkeypatch.setattr(SqliteSessions, "refold", endless)
    with served(tmp_path / "store") as server:
        assert begun.wait(10)
        assert server.ingest(edit(1)).document["stored"] == 1
        assert server.get("/readyz").status == 200


def test_a_fold_that_fails_is_logged_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object) -> int:
        raise StoreError(NotAStore("here", "it is broken"))

    monkeypatch.setattr(SqliteSessions, "refold", failing)
    with served(tmp_path / "store") as server:
        assert server.ingest(edit(1)).document["stored"] == 1
    assert "what an older version folded could not be folded anew: this file is not a countermark store: it is broken" in caplog.text


def test_a_store_that_cannot_be_opened_keeps_the_server_from_starting(tmp_path: Path) -> None:
    from countermark.server import serve

    def failing() -> SqliteSessions:
        raise StoreError(NotAStore("here", "it is broken"))

    with pytest.raises(StoreError):
        serve(replace(settings_of(tmp_path), open_store=failing))


def test_the_address_is_told_once_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from countermark.server import serve, serving

    told: list[str] = []

    def stops(self: serving.Server, line: str) -> None:
        told.append(line)
        self.should_exit = True

    settings = settings_of(tmp_path / "store")
    servers: list[serving.Server] = []
    made = serving.Server.__init__

    def noted(self: serving.Server, *args: object) -> None:
        made(self, *args)  # type: ignore[arg-type]
        servers.append(self)

    monkeypatch.setattr(serving.Server, "__init__", noted)
    assert serve(settings, lambda line: stops(servers[0], line)) is None
    assert told == [f"serving at http://127.0.0.1:{servers[0].port}"]
