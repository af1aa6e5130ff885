"""What is read from the server: lists, pages, searches, and what is wrong with a question, all of it at once."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from countermark.server import asgi
from countermark.server.routes import Route, read_query
from countermark.store.failures import NotAStore, StoreError
from countermark.store.opening import open_sessions
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.server.running import JSON, Running, edit, running, served, settings_of
from tests.wire.otlp_requests import NOW_NS, TRACE, json_of, request, span


def test_sessions_are_listed_by_a_filter_page_by_page(server: Running) -> None:
    server.ingest([edit(number, session=f"s-{number}") for number in range(1, 8)])
    where = quote("weights.changed > 2 and tag = 'weights:edited'")
    first = server.get(f"/v1/sessions?where={where}&limit=3").document
    second = server.get(f"/v1/sessions?where={where}&limit=3&cursor={quote(first['next'])}").document
    assert ([*first["sessions"], *second["sessions"]], second["next"]) == (
        server.get(f"/v1/sessions?where={where}").document["sessions"],
        None,
    )
    assert sorted(session["id"] for session in (*first["sessions"], *second["sessions"])) == [f"s-{number}" for number in range(3, 8)]


def test_events_of_a_session_are_shown_page_by_page_and_say_which_of_how_many(server: Running) -> None:
    server.ingest([edit(number, time=1_700_000_000_000_000_000 + number) for number in range(1, 6)])
    page = server.get("/v1/sessions/s-1/events?limit=2").document
    assert (page["first"], page["total"], [event["id"] for event in page["events"]]) == (1, 5, ["edit-1", "edit-2"])
    page = server.get(f"/v1/sessions/s-1/events?limit=2&cursor={quote(page['next'])}").document
    assert (page["first"], page["total"], [event["id"] for event in page["events"]]) == (3, 5, ["edit-3", "edit-4"])
    assert page["events"][0]["line"] == "layers.3.w: 3 weights changed"


@pytest.mark.parametrize("session", ["a/b", "a/events", "%2F", "ä ö?#&", "..", "trace:x", "<script>"])
def test_a_session_is_found_by_any_id(server: Running, session: str) -> None:
    server.ingest([edit(1, session=session), edit(2, session="another")])
    path = f"/v1/sessions/{quote(session, safe='')}"
    assert server.get(path).document["session"]["id"] == session
    assert [event["id"] for event in server.get(f"{path}/events").document["events"]] == ["edit-1"]


def test_a_session_is_found_by_its_beginning_and_by_the_id_that_it_had_before(server: Running) -> None:
    server.ask("POST", "/v1/traces", json_of(request("traces", [span()])), JSON)
    assert server.get(f"/v1/sessions/trace:{TRACE}").document["session"]["id"] == f"trace:{TRACE}"
    named = span(spanId="00f067aa0ba902b7", attributes={"gen_ai.conversation.id": "conversation-1"})
    server.ask("POST", "/v1/traces", json_of(request("traces", [named])), JSON)
    for asked in ("conversation-1", "conversat", f"trace:{TRACE}"):
        assert server.get(f"/v1/sessions/{asked}").document["session"]["id"] == "conversation-1"
    server.ingest(edit(1, session="conversation-2"))
    answered = server.get("/v1/sessions/conversat")
    assert (answered.status, answered.codes) == (409, ["SessionAmbiguous"])
    for asked, code in (("conv", "SessionPrefixShort"), ("no-such-session", "SessionUnknown"), ("a%00b-of-eight", "SessionUnknown")):
        answered = server.get(f"/v1/sessions/{asked}")
        assert (answered.status, answered.codes) == (404, [code])


def test_events_are_searched_by_their_words(server: Running) -> None:
    server.ingest([edit(number) for number in (1, 2, 3)])
    found = server.get("/v1/search?q=layers.2.w").document
    assert [event["id"] for event in found["events"]] == ["edit-2"]
    first = server.get("/v1/search?q=LAYERS&limit=2").document
    rest = server.get(f"/v1/search?q=LAYERS&limit=2&before={first['next']}").document
    assert [event["id"] for event in (*first["events"], *rest["events"])] == ["edit-3", "edit-2", "edit-1"]


def first_alone(route: Route, said: Mapping[str, str]) -> object:
    read = read_query(route, said)
    return Refused(NonEmpty(read.defects.first)) if isinstance(read, Refused) else read


@proven_by(planted(asgi, "read_query", first_alone))
def test_everything_that_is_wrong_with_a_question_is_told(server: Running) -> None:
    answered = server.get("/v1/search?limit=0&before=x&colour=red")
    assert (answered.status, [(defect["parameter"], defect["found"]) for defect in answered.document["defects"]]) == (
        400,
        [("limit", "'0'"), ("before", "'x'"), ("'colour'", "'red'"), ("q", "absent")],
    )


def test_a_filter_and_a_cursor_are_judged_together(server: Running) -> None:
    answered = server.get(f"/v1/sessions?where={quote('weights.edit > 0 and tag > 1')}&cursor=x")
    assert (answered.status, answered.codes) == (400, ["FilterKeyUnknown", "FilterOperatorUnfit", "FilterValueUnfit", "ParameterUnfit"])
    answered = server.get("/v1/sessions/no-such-session/events?cursor=x")
    assert (answered.status, answered.codes) == (404, ["SessionUnknown", "ParameterUnfit"])


def test_an_address_that_is_none_and_a_method_that_is_none_are_answered(server: Running) -> None:
    answered = server.get("/v1/session")
    assert (answered.status, answered.codes) == (404, ["RouteUnknown"])
    answered = server.ask("DELETE", "/v1/sessions")
    assert (answered.status, answered.codes, answered.headers["allow"]) == (405, ["MethodUnfit"], "GET, HEAD")


def test_what_was_counted_is_told_to_prometheus(server: Running) -> None:
    server.ingest([edit(1), edit(2), edit(1), {"type": "x"}])
    server.get("/v1/nothing-of-this-is-a-label")
    lines = server.get("/metrics").body.decode().splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert {name: counts[f'countermark_events_total{{outcome="{name}"}}'] for name in ("stored", "duplicate", "conflict", "refused")} == {
        "stored": "2",
        "duplicate": "1",
        "conflict": "0",
        "refused": "1",
    }
    assert counts['countermark_requests_total{route="/v1/ingest",status="200"}'] == "1"
    assert (counts["countermark_latest_ordinal"], counts["countermark_held_bytes"]) == ("2", "0")
    assert not any("nothing-of-this" in line for line in lines)


def test_a_store_that_fails_is_told_and_may_be_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from countermark.store.sessions.sqlite import SqliteSessions

    def failing(*_: object, **__: object) -> None:
        raise StoreError(NotAStore("here", "it is broken"))

    with served(tmp_path / "store") as server:
        for name in ("ingest", "latest", "sessions"):
            monkeypatch.setattr(SqliteSessions, name, failing)
        for answered in (server.ingest(edit(1)), server.get("/readyz"), server.get("/v1/sessions")):
            assert (answered.status, answered.codes, answered.headers["retry-after"]) == (503, ["EnvironmentFault"], "5")
        assert server.get("/healthz").status == 200
        monkeypatch.undo()
        assert server.ingest(edit(1)).document["stored"] == 1


def test_a_fault_of_this_program_is_an_answer_that_tells_its_kind_alone(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a text that nobody may see")

    monkeypatch.setattr("countermark.server.service.take", failing)
    answered = server.ingest(edit(1))
    assert (answered.status, answered.codes, answered.document["defects"][0]["what"]) == (500, ["ServerFault"], "ZeroDivisionError")
    assert "nobody may see" not in json.dumps(answered.document)


def test_over_postgresql_the_same_is_taken_and_answered(tmp_path: Path, postgres_url: str) -> None:
    halves = edit(2, session="s-1\x00\ud83e", payload={"kind": "weights.edit", "tensor": "a\ud83e", "changed": 2, "note": "a\x00b"})
    ways = []
    for name, url in (("sqlite", f"sqlite:///{tmp_path / 'sqlite'}"), ("postgresql", postgres_url)):
        settings = replace(settings_of(tmp_path / name), open_store=partial(open_sessions, url, create=True), now_ns=lambda: NOW_NS)
        with running(settings, tmp_path / name) as server:
            answers = [server.ingest([edit(1), halves, edit(1)]), server.ingest(edit(1))]
            asked = ("/v1/sessions", f"/v1/sessions?where={quote('weights.edits > 0')}", "/v1/search?q=layers", "/v1/sessions/s-1/events")
            odd = ("/v1/sessions/s-1%00%EF%BF%BD", "/v1/sessions/a%00b-of-eight", "/v1/search?q=%00a")
            answers += [server.get(path) for path in (*asked, *odd)]
            ways.append([(answered.status, answered.document) for answered in answers])
    assert ways[0] == ways[1]
    assert [status for status, _ in ways[0]] == [200, 200, 200, 200, 200, 200, 200, 404, 200]
