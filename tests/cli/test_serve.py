"""The server at the command line: a real process that takes events until it is interrupted, and the tokens that it asks for."""

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import pytest

from countermark.cli import serving
from countermark.cli.settings import PROJECT_FILE
from countermark.wire.otlp_out import event_out
from tests.cli.called import PROGRAM, Caller
from tests.faults import planted, proven_by
from tests.server.receiving import eventually, receiving

EVENT: Final = {
    "id": "e-1",
    "type": "notification",
    "session": "over-http",
    "payload": {"kind": "weights.edit", "tensor": "w", "changed": 3},
}


def sent(url: str, token: str | None = None) -> int:
    headers = {"content-type": "application/json", **({} if token is None else {"authorization": f"Bearer {token}"})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(EVENT).encode(), headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_what_a_server_took_is_shown_after_its_end(here: Path, call: Caller, ended_by: int) -> None:
    token = call("token", "add", "sdk", "--scope", "ingest", "--json").document()["token"]
    served = subprocess.Popen([*PROGRAM, "serve", "--port", "0"], cwd=here, stderr=subprocess.PIPE, env=os.environ.copy(), text=True)
    assert served.stderr is not None
    found = re.fullmatch(r"serving at (http://127\.0\.0\.1:\d+)\n", served.stderr.readline())
    assert found is not None
    url = f"{found[1]}/v1/ingest"
    assert [sent(url), sent(url, token), sent(url, token)] == [401, 200, 200]
    assert call("token", "revoke", "sdk").code == 0
    call("token", "add", "other", "--scope", "ingest")
    assert sent(url, token) == 401
    served.send_signal(ended_by)
    assert served.wait(30) in (0, 130, 143, -signal.SIGTERM)
    served.stderr.close()
    (event,) = call("show", "over-http", "--json").document()["events"]
    assert (event["id"], event["line"]) == ("e-1", "w: 3 weights changed")
    kept = b"".join(path.read_bytes() for path in (here / ".countermark").rglob("*") if path.is_file())
    assert token.encode() not in kept


def test_a_server_that_others_reach_wants_a_token_first(here: Path, call: Caller) -> None:
    called = call("serve", "--host", "0.0.0.0", "--port", "0")
    assert called.code == 1
    assert called.err.startswith("refused: AddressUnguarded: ")
    assert "countermark token add" in called.err


@proven_by(planted(serving, "_MODULES", ()))
def test_a_server_whose_libraries_are_missing_names_what_brings_them(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("countermark.cli.session_reading.opened", lambda *args, **options: pytest.fail("it is served"))
    called = call("serve", "--host", "0.0.0.0", "--port", "0")
    assert (called.code, "pip install 'countermark[server]'" in called.err) == (3, True)


def test_tokens_are_listed_by_name_and_told_once(here: Path, call: Caller) -> None:
    assert call("token", "list").out == "no token: countermark token add NAME --scope ingest\n"
    made = call("token", "add", "sdk", "--scope", "ingest", "--scope", "read", "--json").document()
    assert (made["name"], made["scopes"], made["token"][:4]) == ("sdk", ["ingest", "read"], "cmk_")
    listed = call("token", "list", "--json")
    assert made["token"] not in listed.out
    assert [(token["name"], token["scopes"]) for token in listed.document()["tokens"]] == [("sdk", ["ingest", "read"])]
    assert call("token", "add", "sdk", "--scope", "all", "--json").codes() == ["TokenScopeUnknown", "TokenNameTaken"]
    assert call("token", "revoke", "none", "--json").codes() == ["TokenNameUnknown"]


def test_a_server_sends_on_to_where_the_settings_say_and_shows_no_header(here: Path, call: Caller) -> None:
    with receiving() as receiver:
        (here / PROJECT_FILE).write_text(f'[serve.forward]\nendpoint = "{receiver.url}"\n')
        environ = {**os.environ, "COUNTERMARK_SERVE_FORWARD_HEADERS": "authorization=Bearer%20s3cret"}
        served = subprocess.Popen([*PROGRAM, "serve", "--port", "0"], cwd=here, stderr=subprocess.PIPE, env=environ, text=True)
        assert served.stderr is not None
        url = served.stderr.readline().split()[-1]
        assert sent(f"{url}/v1/ingest") == 200
        eventually(lambda: receiver.edits)
        served.send_signal(signal.SIGINT)
        served.wait(timeout=30)
        assert (receiver.headers[0]["authorization"], receiver.edits) == ("Bearer s3cret", [event_out("e-1")])
        told = subprocess.run([*PROGRAM, "doctor"], cwd=here, env=environ, capture_output=True, text=True, check=False)
    assert "s3cret" not in told.stdout + told.stderr
    assert f"0 edits waiting for {receiver.url}, 0 items set aside that it never takes" in " ".join(told.stdout.split())
