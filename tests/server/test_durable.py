"""What was acknowledged survives: the server is killed with SIGKILL right after its answers, and nothing of them is lost."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from countermark.server import service
from countermark.store.opening import open_sessions
from tests.faults import planted, proven_by
from tests.server.running import Running, edit

_PROGRAM: Final = """
import sys
from pathlib import Path
from countermark.server import ServerSettings, serve
from countermark.store.opening import open_sessions

folder = Path(sys.argv[1])
settings = ServerSettings(lambda: open_sessions(f"sqlite:///{folder}", create=True), folder / "tokens.json", port=0)
serve(settings, lambda line: print(line, flush=True))
"""
CLIENTS: Final = 3
BATCHES_MIN: Final = 12


def started(folder: Path) -> tuple["subprocess.Popen[str]", int]:
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving at http://127.0.0.1:")
    return process, int(line.rsplit(":", 1)[1])


def send(port: int, client: int, acknowledged: list[str], enough: threading.Event) -> None:
    """Send batches until the server is gone; what it acknowledged is noted."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for number in range(10_000):
        ids = [f"{client}-{number}-{index}" for index in range(5)]
        body = json.dumps([edit(1, id=one, session=f"s-{client}") for one in ids])
        try:
            connection.request("POST", "/v1/ingest", body, {"content-type": "application/json"})
            answered = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return
        acknowledged += [item["id"] for item in answered["events"]]
        if number >= BATCHES_MIN:
            enough.set()


@pytest.mark.parametrize("kills", [2])
def test_nothing_that_was_acknowledged_is_lost_by_kill_9(tmp_path: Path, kills: int) -> None:
    folder = tmp_path / "store"
    acknowledged: list[str] = []
    for kill in range(kills):
        process, port = started(folder)
        enough = threading.Event()
        clients = [threading.Thread(target=send, args=(port, kill * CLIENTS + each, acknowledged, enough)) for each in range(CLIENTS)]
        for client in clients:
            client.start()
        assert enough.wait(60)
        process.kill()
        process.wait()
        for client in clients:
            client.join()
    with open_sessions(f"sqlite:///{folder}", create=False) as store:
        stored = {each.event.id for each in store.tail(0, 1_000_000)}
        assert store.check() == ()
    assert len(acknowledged) > 5 * BATCHES_MIN * kills
    assert set(acknowledged) - stored == set()


def test_sigterm_ends_it_after_what_is_being_stored(tmp_path: Path) -> None:
    process, port = started(tmp_path / "store")
    acknowledged: list[str] = []
    enough = threading.Event()
    client = threading.Thread(target=send, args=(port, 0, acknowledged, enough))
    client.start()
    assert enough.wait(60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)
    client.join()
    with open_sessions(f"sqlite:///{tmp_path / 'store'}", create=False) as store:
        assert set(acknowledged) <= {each.event.id for each in store.tail(0, 1_000_000)}


def acknowledged_first(store: object, batch: object) -> tuple[object, float]:
    """What peers do: say that it is stored, and store it when there is time."""
    from countermark.app.sessions import Item, Taken

    return Taken(tuple(Item(index, event.id, "stored") for index, event in batch.events), ()), 0.0  # type: ignore[attr-defined]


@proven_by(planted(service, "_timed", acknowledged_first))
def test_what_is_answered_is_visible_at_once_to_another_process(server: Running) -> None:
    answered = server.ingest([edit(number) for number in range(50)]).document
    assert [item["id"] for item in answered["events"]] == [event.id for event in server.stored()]
    assert len(answered["events"]) == 50


def test_reading_does_not_wait_for_writing(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    release, entered = threading.Event(), threading.Event()
    timed = service._timed

    def slow(*args: object) -> object:
        entered.set()
        assert release.wait(20)
        return timed(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "_timed", slow)
    answers: list[int] = []
    writer = threading.Thread(target=lambda: answers.append(server.ingest(edit(1)).status))
    writer.start()
    assert entered.wait(20)
    assert (server.get("/v1/sessions").status, server.get("/healthz").status, server.get("/v1/search?q=w").status) == (200, 200, 200)
    assert answers == []
    release.set()
    writer.join()
    assert answers == [200]
