"""Our own tokens in what came from outside: none is stored, answered or logged.

Rules kept here:

1. A token is known by its form, whoever made it, and by being the one that the request brings. It is replaced wherever it stands: in
   payloads, their keys, ids and names.
2. An event without one is the same object.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from countermark.sessions.canonical import spelled_json
from countermark.sessions.events import Event
from countermark.sessions.secrets import OWN, TOKEN_PREFIX, redacted, without_tokens
from countermark.values import Refused

_TEXTS: Final = ("id", "session", "source", "name")


def event_without_tokens(event: Event, named: Sequence[str] = ()) -> Event:
    """An event without tokens of ours; the places at which one was are told with what was replaced to be kept."""
    if not any(_holds(text, named) for text in (event.payload.text, *(getattr(event, key) or "" for key in _TEXTS))):
        return event
    texts = {key: without_tokens(text, named) for key in _TEXTS if (text := getattr(event, key))}
    places = [key for key, text in texts.items() if text != getattr(event, key)]
    tokens = sorted({*named, *OWN.findall(event.payload.text)}, key=len, reverse=True)
    kept = redacted(event.payload.value, "payload", tokens)
    spelling = spelled_json(kept.value, "payload")
    assert not isinstance(spelling, Refused), "what was spelled has a spelling without its tokens as well"
    # What was replaced before is told by places that may name a token themselves.
    before = [without_tokens(place, named) for place in event.payload.sanitized]
    payload = replace(spelling, sanitized=tuple(dict.fromkeys((*before, *kept.places, *spelling.sanitized))))
    return replace(
        event,
        id=texts["id"],
        session=texts.get("session"),
        source=texts.get("source"),
        name=texts.get("name", ""),
        payload=payload,
        sanitized=(*event.sanitized, *places),
    )


def _holds(text: str, named: Sequence[str]) -> bool:
    return TOKEN_PREFIX in text or any(token in text for token in named)
