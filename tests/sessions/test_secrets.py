"""No byte of a secret stays, whatever place it stands in, and what is none stays as it is."""

import json
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions import secrets
from countermark.sessions.secrets import FORMS, Redacted, redacted, redacted_text, standing_for
from tests.faults import planted, proven_by
from tests.sessions.test_canonical import JSON

_LONG: Final = "abcDEF0123456789" * 3
#: For each form, secrets that are made up.
MADE_UP: Final[dict[str, tuple[str, ...]]] = {
    "private key": (f"-----BEGIN RSA PRIVATE KEY-----\n{_LONG}\n-----END RSA PRIVATE KEY-----",),
    "key of a model": (f"sk-ant-api03-{_LONG}", f"sk-{_LONG}", f"sk-proj-{_LONG}"),
    "Hugging Face token": (f"hf_{_LONG}",),
    "GitHub token": (f"ghp_{_LONG}", f"github_pat_{_LONG}"),
    "GitLab token": (f"glpat-{_LONG}",),
    "Slack token": (f"xoxb-{_LONG}",),
    "AWS key": ("AKIAABCDEFGHIJKLMNOP",),
    "Google key": (f"AIza{_LONG[:35]}",),
    "Weights & Biases key": (f"wandb_v1_{_LONG}",),
    "Countermark token": (f"cmk_{_LONG}",),
    "JSON web token": (f"eyJ{_LONG}.eyJ{_LONG}.{_LONG}",),
    "authorization": (f"Bearer {_LONG}", f"basic {_LONG}=="),
    "password in an address": (f"user:{_LONG}",),
}


def test_every_form_has_an_example() -> None:
    assert list(MADE_UP) == list(FORMS)


@proven_by(planted(secrets, "_HINT", secrets.re.compile("sk-")), planted(secrets, "standing_for", lambda what: what))
def test_a_secret_of_each_form_is_replaced_by_what_it_is() -> None:
    for what, examples in MADE_UP.items():
        for secret in examples:
            before, after = ("postgresql://", "@host/db") if what == "password in an address" else ("set it to '", "' please")
            assert redacted_text(f"{before}{secret}{after}") == f"{before}{'[redacted: ' + what + ']'}{after}"


def test_a_private_key_without_its_end_takes_what_follows_with_it() -> None:
    assert redacted_text(f"see -----BEGIN PRIVATE KEY-----\n{_LONG} and more") == "see [redacted: private key]"


def test_what_is_no_secret_stays_the_same_object() -> None:
    for text in (
        "",
        "task-runner",
        "sketch",
        "sk-short",
        "https://example.org/a:b@c",
        "bearer of news",
        "eyJ",
        "AKIA",
        "-----BEGIN CERTIFICATE-----",
    ):
        assert redacted_text(text) == text
    whole = {"a": ["x", 1, None, {"b": True}]}
    assert redacted(whole, "p") == Redacted(whole, ())


@proven_by(planted(secrets, "KEYS", frozenset()))
def test_a_value_under_a_key_for_secrets_is_one_whatever_it_looks_like() -> None:
    found = redacted({"headers": {"X-Api-Key": "abc", "Accept": "*/*"}, "Password": "x", "password": 5, "secret": ""}, "p")
    assert found == Redacted(
        {
            "headers": {"X-Api-Key": "[redacted: xapikey]", "Accept": "*/*"},
            "Password": "[redacted: password]",
            "password": 5,
            "secret": "",
        },
        ("p.headers.X-Api-Key", "p.Password"),
    )


@given(JSON, st.sampled_from(["s3cr3t-of-ours-0123456789", MADE_UP["Countermark token"][0]]))
def test_no_byte_of_a_named_token_stays_in_keys_texts_or_lists(value: object, token: str) -> None:
    placed = {"a": [value, f"x{token}y"], f"k{token}": {"deep": [token]}, "v": value}
    found = redacted(placed, "p", (token, ""))
    assert token not in json.dumps(found.value, ensure_ascii=False)
    assert len(found.places) >= 2
    assert standing_for("x") not in str(redacted(value, "p", (token,)).value)
