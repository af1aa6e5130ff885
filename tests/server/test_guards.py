"""Who may speak to the server: hosts, origins, and tokens with what they may do."""

from pathlib import Path

import pytest

from countermark.app.errors import EnvironmentFailed
from countermark.lines.serving import AddressUnguarded
from countermark.server import asgi, guards, serving
from countermark.server.serving import listening, serve
from countermark.server.tokens import SCOPES, Keyring, add_token, revoke_token
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.server.running import JSON, Running, edit, served, settings_of

MADE = "2026-12-03T08:00:00Z"


def token(folder: Path, name: str, *scopes: str) -> str:
    made = add_token(folder / "tokens.json", name, scopes, MADE)
    assert isinstance(made, str)
    return made


# ------------------------------------------------------------------------------------------------------------ hosts


@proven_by(planted(guards, "name_of", lambda host: "localhost"))
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.7", "", "["]
)
def test_a_request_that_means_another_host_is_turned_away(server: Running, host: str) -> None:
    for method, path in (("GET", "/v1/sessions"), ("POST", "/v1/ingest"), ("GET", "/nothing")):
        answered = server.ask(method, path, b"{}" if method == "POST" else None, {**JSON, "host": host})
        assert (answered.status, answered.codes) == (403, ["HostForeign"])
    assert server.stored() == []


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:4318", "127.0.0.1", "127.0.0.1:1", "[::1]:4318", "[::1]"])
def test_a_request_that_means_this_host_is_answered(server: Running, host: str) -> None:
    assert server.get("/v1/sessions", host=host).status == 200


def test_a_named_host_is_answered(tmp_path: Path) -> None:
    with served(tmp_path / "store", hosts=("Ledger.example",)) as server:
        assert server.get("/v1/sessions", host="ledger.example:80").status == 200


# ----------------------------------------------------------------------------------------------------------- origins


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost", "http://localhost:1", ""])
def test_a_page_of_another_origin_is_turned_away(server: Running, origin: str) -> None:
    answered = server.ingest(edit(1), origin=origin)
    assert (answered.status, answered.codes) == (403, ["OriginForeign"])
    assert "access-control-allow-origin" not in answered.headers
    assert server.get("/v1/sessions", origin=origin).status == 403
    assert server.stored() == []


def test_a_page_of_its_own_origin_is_answered(server: Running) -> None:
    assert server.ingest(edit(1), origin=f"http://127.0.0.1:{server.port}", host=f"127.0.0.1:{server.port}").status == 200


def test_both_are_told_where_both_are_foreign(server: Running) -> None:
    assert server.get("/healthz", host="evil.example", origin="http://else.example").codes == ["HostForeign", "OriginForeign"]


def test_a_page_of_a_named_origin_may_ask_and_is_told_so(tmp_path: Path) -> None:
    with served(tmp_path / "store", origins=("https://app.example/",)) as server:
        asked = server.ask("OPTIONS", "/v1/ingest", None, {"origin": "https://app.example", "access-control-request-method": "POST"})
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, "https://app.example")
        answered = server.ingest(edit(1), origin="https://app.example")
        assert (answered.status, answered.headers["access-control-allow-origin"]) == (200, "https://app.example")
        assert "access-control-allow-origin" not in server.ingest(edit(1)).headers


# ------------------------------------------------------------------------------------------------------------ tokens


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@proven_by(planted(serving, "is_loopback", lambda host: True))
def test_an_address_that_other_hosts_reach_is_not_served_without_a_token(tmp_path: Path, host: str) -> None:
    settings = settings_of(tmp_path / "store")
    with listening(type(settings)(settings.open_store, settings.tokens, host=host, port=0)) as refused:
        assert refused == Refused(NonEmpty(AddressUnguarded(host)))
    assert not (tmp_path / "store").exists()


def test_an_address_that_other_hosts_reach_is_served_with_a_token_and_asks_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    text = token(folder, "all", *SCOPES)
    with served(folder, host="0.0.0.0") as server:
        assert (server.ingest(edit(1)).status, server.get("/v1/sessions").status) == (401, 401)
        assert server.ingest(edit(1), authorization=f"Bearer {text}").status == 200
        assert server.get("/v1/sessions", authorization=f"bearer {text}", host="10.0.0.7:4318").status == 200
        assert server.get("/v1/sessions", authorization=f"bearer {text}", host="evil.example").status == 403
        revoke_token(folder / "tokens.json", "all")
        # The last was revoked: nobody comes in, rather than everybody.
        assert server.get("/v1/sessions", authorization=f"Bearer {text}").codes == ["TokenUnknown"]


NEEDS = {
    "ingest": [("POST", f"/v1/{what}") for what in ("ingest", "traces", "logs")],
    "read": [("GET", path) for path in ("/v1/sessions", "/v1/sessions/x", "/v1/sessions/x/events", "/v1/search", "/metrics")],
}


@proven_by(planted(asgi, "_turned_away", lambda service, route, brought: None))
def test_each_route_asks_for_its_scope(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    texts = {scope: token(folder, scope, scope) for scope in SCOPES}
    with served(folder) as server:
        for needed, routes in NEEDS.items():
            for method, path in routes:
                body = b"" if method == "POST" else None
                without = server.ask(method, path, body)
                assert (without.status, without.codes, without.headers.get("www-authenticate")) == (401, ["TokenWanted"], "Bearer")
                wrong = server.ask(method, path, body, {"authorization": f"Bearer {texts['act'][:-1]}x"})
                assert (wrong.status, wrong.codes) == (401, ["TokenUnknown"])
                for scope, text in texts.items():
                    answered = server.ask(method, path, body, {"authorization": f"Bearer {text}"})
                    if scope == needed:
                        assert answered.status not in (401, 403)
                    else:
                        assert (answered.status, answered.codes) == (403, ["TokenScopeMissing"])
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert server.get(path).status == 200


@proven_by(planted(Keyring, "wanted", lambda self: bool(self.tokens())))
def test_a_token_that_is_made_or_revoked_counts_from_the_next_request_on(server: Running) -> None:
    assert server.get("/v1/sessions").status == 200
    text = token(server.folder, "one", "read")
    token(server.folder, "other", "read")
    assert [server.get("/v1/sessions").status, server.get("/v1/sessions", authorization=f"Bearer {text}").status] == [401, 200]
    revoke_token(server.folder / "tokens.json", "one")
    assert server.get("/v1/sessions", authorization=f"Bearer {text}").codes == ["TokenUnknown"]
    revoke_token(server.folder / "tokens.json", "other")
    # The last was revoked: that shuts the door, and does not open it to everybody on this host.
    assert server.get("/v1/sessions").codes == ["TokenWanted"]
    (server.folder / "tokens.json").unlink()
    assert server.get("/v1/sessions").status == 200


def test_a_file_of_tokens_that_cannot_be_read_lets_nobody_in(server: Running) -> None:
    text = token(server.folder, "one", "read")
    (server.folder / "tokens.json").write_bytes(b"no tokens")
    for headers in ({}, {"authorization": f"Bearer {text}"}):
        answered = server.ask("GET", "/v1/sessions", None, headers)
        assert (answered.status, answered.codes) == (503, ["EnvironmentFault"])
    with pytest.raises(EnvironmentFailed, match="the file of tokens cannot be used"):
        serve(settings_of(server.folder))


def test_an_address_that_is_taken_is_told(server: Running) -> None:
    settings = settings_of(server.folder)
    with pytest.raises(EnvironmentFailed, match="the address cannot be served at"):
        serve(type(settings)(settings.open_store, settings.tokens, port=server.port))
