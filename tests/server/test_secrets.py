"""Our own token, wherever it is sent: no byte of it is stored, answered or logged."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from countermark.server import service
from countermark.server.redaction import event_without_tokens
from countermark.server.tokens import SCOPES, add_token
from countermark.sessions.secrets import without_tokens
from tests.faults import planted, proven_by
from tests.server.running import JSON, PROTOBUF, served
from tests.wire.otlp_requests import EDIT, edit_span, json_of, log, of_span, protobuf_of, request, span


def everywhere(token: str) -> list[dict[str, Any]]:
    """Events with the token in every text that an event has."""
    payload = {"kind": "weights.edit", "tensor": f"layers.{token}", "changed": 1, "note": f"see {token}\0", "aliases": [f"x{token}y"]}
    return [
        {"id": f"id-{token}", "type": "notification", "session": f"s-{token}", "source": token, "name": token, "payload": payload},
        {"type": "message", "session": "s-1", "payload": {"a": [{f"key {token}\0": {"user": token}}], "header": f"Bearer {token}"}},
        {"type": token, "session": "s-1", "id": f"bad-{token}", "time": token, "payload": {token: float("inf")}},
    ]


@proven_by(planted(service, "event_without_tokens", lambda event, named: event))
@pytest.mark.parametrize("kind", ["ours", "brought"])
def test_our_token_stands_in_no_database_answer_or_log(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "store"
    token = "an-ingest-token-of-another-making"
    if kind == "ours":
        made = add_token(folder / "tokens.json", "ingest", SCOPES, "2026-12-03T08:00:00Z")
        assert isinstance(made, str)
        token = made
    headers = {"authorization": f"Bearer {token}"}
    attributes = {**EDIT, "countermark.event.id": token, "gen_ai.conversation.id": token, "countermark.weights.note": token}
    spans = request("traces", [edit_span(attributes), span(token, {token: [token]}), span(spanId=token)], {"service.name": token})
    more = request("traces", [span(token, {token: token}, spanId="00f067aa0ba902b7")])
    logs = request("logs", [log({"user": token}, body={"stringValue": f"I am {token}"}), log(timeUnixNano=token)])
    with caplog.at_level(logging.DEBUG), served(folder) as server:
        answers = [
            server.ask("POST", "/v1/ingest", json.dumps(everywhere(token)).encode(), {**JSON, **headers}),
            server.ask("POST", "/v1/traces", json_of(spans), {**JSON, **headers}),
            server.ask("POST", "/v1/traces", protobuf_of("traces", more), {**PROTOBUF, **headers}),
            server.ask("POST", "/v1/logs", json_of(logs), {**JSON, **headers}),
            server.ask("POST", "/v1/logs", token.encode(), {**JSON, **headers}),
            server.get(f"/v1/search?q={token}", **headers),
            server.get(f"/v1/sessions?cursor={token}&where={token}", **headers),
            server.get(f"/v1/sessions/{token}", **headers),
            server.get(f"/v1/sessions?{token}=1", **headers),
            server.get("/v1/sessions", **headers),
            server.get("/v1/sessions/s-1/events", **headers),
            server.get("/metrics", **headers),
        ]
        stored = server.stored()
    assert [answered.status for answered in answers] == [200, 200, 200, 200, 400, 200, 400, 404, 400, 200, 200, 200]
    assert not any(token.encode() in answered.body for answered in answers)
    assert len(stored) == 6
    assert all("payload" in "".join(event.replaced) for event in stored)
    kept = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "sessions.sqlite" in kept
    assert [name for name, data in kept.items() if token.encode() in data] == []
    assert token not in caplog.text


def test_an_address_with_a_token_in_it_is_answered_without_it(tmp_path: Path) -> None:
    token = "cmk_" + "a" * 43
    with served(tmp_path / "store") as server:
        for answered in (server.get(f"/{token}"), server.get("/healthz", host=token), server.get("/healthz", origin=token)):
            assert answered.status in (403, 404)
            assert token.encode() not in answered.body


def test_what_was_replaced_is_told_by_its_place() -> None:
    token = "cmk_" + "b" * 43
    event = of_span(edit_span({**EDIT, "countermark.weights.note": f"x{token} y", "gen_ai.conversation.id": token}))
    kept = event_without_tokens(event)
    assert kept.session == "[redacted: token]"
    assert kept.replaced == ("session", "payload.note")
    assert json.loads(kept.payload.text)["note"] == "x[redacted: token] y"
    assert kept.payload.value == json.loads(kept.payload.text)


def test_an_event_without_a_token_is_the_same() -> None:
    event = of_span(edit_span())
    assert event_without_tokens(event, ("a token that does not occur",)) is event
    assert without_tokens("nothing of ours: cmk_short", ()) == "nothing of ours: cmk_short"
