"""Secrets in what came from outside are replaced before anything is stored.

Rules kept here:

1. A secret is known by its form (``FORMS``: keys of well-known services, private keys, bearer tokens), by the key under which it stands
   (``KEYS``), or because it was named (our own tokens). What stands for it says what it was and nothing of it.
2. A form is matched within texts of any length in linear time: no pattern repeats a repetition.
3. What is replaced is told by its place, like everything else that is replaced to be kept.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, final

#: What our own tokens begin with, and what one looks like.
TOKEN_PREFIX: Final = "cmk_"
TOKEN: Final = TOKEN_PREFIX + r"[A-Za-z0-9_-]{20,200}"
OWN: Final = re.compile(TOKEN, re.ASCII)
#: What a secret looks like, by what it is called in its place.
FORMS: Final[Mapping[str, str]] = {
    "private key": r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[^-]{0,20000}(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?",
    "key of a model": r"\bsk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_-]{20,300}",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{20,200}",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{20,300}|github_pat_[A-Za-z0-9_]{20,300})",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{16,200}",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,300}",
    "AWS key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "Google key": r"\bAIza[A-Za-z0-9_-]{35}",
    "Weights & Biases key": r"\bwandb_v1_[A-Za-z0-9_]{20,200}",
    "Countermark token": rf"\b{TOKEN}",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{8,4000}",
    "authorization": r"(?i:\b(?:bearer|basic)\s{1,4})[A-Za-z0-9._~+/=-]{16,4000}",
    "password in an address": r"(?<=://)[^\s/@:]{1,200}:[^\s/@]{1,200}(?=@)",
}
#: The keys whose values are secrets whatever they look like, in lower case and without hyphens and underscores.
KEYS: Final = frozenset(
    {
        "password", "passwd", "secret", "clientsecret", "apikey", "xapikey", "accesstoken", "refreshtoken", "authtoken", "bearertoken",
        "authorization", "proxyauthorization", "privatekey", "secretkey", "secretaccesskey", "cookie", "setcookie",
    }
)  # fmt: skip

_NAMES: Final = tuple(FORMS)
_ANY: Final = re.compile("|".join(f"({form})" for form in FORMS.values()))
#: A text without any of these holds no secret of a known form: most texts are looked at once and quickly.
_HINT: Final = re.compile(
    r"-----BEGIN|sk-|hf_|gh[pousr]_|github_pat_|glpat-|xox|AKIA|ASIA|AIza|wandb_v1_|" + TOKEN_PREFIX + r"|eyJ|(?i:bearer|basic)\s|://"
)


def standing_for(what: str) -> str:
    """What stands in the place of a secret."""
    return f"[redacted: {what}]"


@final
@dataclass(frozen=True, slots=True)
class Redacted:
    """A value without its secrets, and the places at which one was."""

    value: object
    places: tuple[str, ...]


def redacted(value: object, place: str, named: Sequence[str] = ()) -> Redacted:
    """A JSON value without secrets; ``named`` are texts that are secrets wherever they stand, in keys as well."""
    places: list[str] = []
    return Redacted(_without(value, place, tuple(filter(None, named)), places, 0), tuple(places))


def without_named(text: str, named: Sequence[str]) -> str:
    """A text without the ``named`` ones, which are tokens; the same object where it holds none."""
    for secret in named:
        if secret in text:
            text = text.replace(secret, standing_for("token"))
    return text


def without_tokens(text: str, named: Sequence[str] = ()) -> str:
    """A text without tokens of ours, and without those that are ``named``."""
    text = without_named(text, named)
    return OWN.sub(standing_for("token"), text) if TOKEN_PREFIX in text else text


def redacted_text(text: str, named: Sequence[str] = ()) -> str:
    """A text without secrets; the same object where it holds none."""
    text = without_named(text, named)
    if _HINT.search(text) is None:
        return text
    return _ANY.sub(lambda found: standing_for(_NAMES[(found.lastindex or 1) - 1]), text)


def _without(value: object, place: str, named: tuple[str, ...], places: list[str], depth: int) -> object:
    # Deeper than anything that is stored: whoever spells it refuses it.
    if depth > 100:
        return value
    if isinstance(value, str):
        kept = redacted_text(value, named)
        if kept is not value and kept != value:
            places.append(place)
        return kept
    if isinstance(value, list | tuple):
        return [_without(item, f"{place}[{at}]", named, places, depth + 1) for at, item in enumerate(cast("list[object]", value))]
    if isinstance(value, Mapping):
        return _table(cast("Mapping[object, object]", value), place, named, places, depth)
    return value


def _table(value: Mapping[object, object], place: str, named: tuple[str, ...], places: list[str], depth: int) -> dict[object, object]:
    found: dict[object, object] = {}
    for key, inner in value.items():
        name = redacted_text(key, named) if isinstance(key, str) else key
        if isinstance(key, str) and isinstance(inner, str) and inner and _bare(key) in KEYS:
            found[name] = standing_for(_bare(key))
            places.append(f"{place}.{name}")
        else:
            found[name] = _without(inner, f"{place}.{name}", named, places, depth + 1)
    return found


def _bare(key: str) -> str:
    return key[:40].lower().replace("-", "").replace("_", "")
