"""The file of tokens: what is kept of them, and what is refused."""

import json
import os
import threading
from pathlib import Path

import pytest

from countermark.app.errors import EnvironmentFailed
from countermark.lines.serving import TokenNameTaken, TokenNameUnfit, TokenNameUnknown, TokenScopeUnknown
from countermark.server import tokens
from countermark.server.tokens import SCOPES, Keyring, Token, add_token, read_tokens, revoke_token
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by

MADE = "2026-12-03T08:00:00Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "tokens.json"


@proven_by(planted(tokens, "_digest", lambda text: text))
def test_a_token_is_told_once_and_its_digest_is_kept(path: Path) -> None:
    text = add_token(path, "ci", ["read", "ingest"], MADE)
    assert isinstance(text, str)
    assert (text[:4], len(text)) == ("cmk_", 47)
    assert text not in path.read_text()
    (kept,) = read_tokens(path)
    assert (kept.name, kept.scopes, len(kept.sha256), kept.made) == ("ci", ("ingest", "read"), 64, MADE)


def test_a_token_is_found_by_its_text_alone(path: Path) -> None:
    text, other = add_token(path, "one", ["read"], MADE), add_token(path, "two", SCOPES, MADE)
    keyring = Keyring(path)
    assert isinstance(text, str) and isinstance(other, str)
    assert [found.name if (found := keyring.of(asked)) else None for asked in (text, other, text[:-1], text + "x", "", "\ud83e")] == [
        "one", "two", None, None, None, None,
    ]  # fmt: skip
    revoke_token(path, "one")
    assert keyring.of(text) is None
    path.unlink()
    assert (keyring.tokens(), keyring.of(other)) == ((), None)


def first_alone(defects: list[object]) -> NonEmpty[object] | None:
    return NonEmpty(defects[0]) if defects else None


@proven_by(planted(tokens.NonEmpty, "of", first_alone))
def test_everything_that_is_wrong_with_a_wish_is_told(path: Path) -> None:
    add_token(path, "there", ["read"], MADE)
    for name, scopes, wanted in (
        ("there", ["read"], [TokenNameTaken("there")]),
        ("a b", ["read"], [TokenNameUnfit("a b")]),
        ("x", [], [TokenScopeUnknown("", SCOPES)]),
        ("x", ["reed", "act", "all"], [TokenScopeUnknown("reed", SCOPES), TokenScopeUnknown("all", SCOPES)]),
        ("there\n", ["reed"], [TokenNameUnfit("there\n"), TokenScopeUnknown("reed", SCOPES)]),
    ):
        refused = add_token(path, name, scopes, MADE)
        assert isinstance(refused, Refused)
        assert list(refused.defects) == wanted
    refused_revocation = revoke_token(path, "no")
    assert isinstance(refused_revocation, Refused)
    assert list(refused_revocation.defects) == [TokenNameUnknown("no", ("there",))]
    assert [token.name for token in read_tokens(path)] == ["there"]


@proven_by(planted(tokens.fcntl, "flock", lambda *_: None))
def test_tokens_that_are_made_at_once_are_all_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever reads is slow, so that another one reads before it writes.
    read, pause = tokens.read_tokens, threading.Event()
    monkeypatch.setattr(tokens, "read_tokens", lambda where: (read(where), pause.wait(0.05))[0])
    threads = [threading.Thread(target=add_token, args=(path, f"t{number}", ["read"], MADE)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in read(path)} == {f"t{number}" for number in range(5)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"tokens": 3}',
        '{"tokens": [3]}',
        '{"tokens": [{"name": "a", "scopes": [], "sha256": "x", "made": ""}]}',
        "[" * 99_999,
    ],
)
def test_a_file_that_holds_no_tokens_is_not_taken_for_an_empty_one(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(EnvironmentFailed):
        read_tokens(path)
    with pytest.raises(EnvironmentFailed):
        Keyring(path).tokens()


def test_a_scope_of_a_later_version_gives_nothing(path: Path) -> None:
    path.parent.mkdir()
    kept = {"name": "a", "scopes": ["read", "later"], "sha256": "0" * 64, "made": MADE}
    path.write_text(json.dumps({"tokens": [kept]}))
    assert read_tokens(path) == (Token("a", ("read",), "0" * 64, MADE),)
    assert not os.path.exists(path.with_name("tokens.json.lock"))
