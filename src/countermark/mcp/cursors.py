"""Where a client goes on: a text that only this server can make, and results that it keeps for those who ask for the rest of them.

Rules kept here:

1. A cursor is opaque and signed with a key that lives as long as the server: what another one handed out, or nobody, is refused by name.
2. A cursor belongs to a tool and its other arguments; with others it would name another place.
3. What took long to measure is kept for its further pages, a few of them; whoever comes too late is told to ask anew.
"""

import hashlib
import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Final, TypeAlias, cast, final

from countermark.lines.serving import ParameterUnfit
from countermark.values import shown

_SIGNATURE_BYTES: Final = 16
_LENGTH_MAX: Final = 4_000
_HELD_MAX: Final = 8

#: What a cursor holds: texts and whole numbers.
Place: TypeAlias = tuple[str | int, ...]

_AGAIN: Final = "ask again without a cursor"


@final
class Cursors:
    """Makes and reads the cursors of one server, and holds the results to which some of them lead."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key: Final = secrets.token_bytes(32) if key is None else key
        self._held: OrderedDict[str, object] = OrderedDict()
        self._lock: Final = Lock()

    def spell(self, tool: str, asked: Mapping[str, object], place: Place) -> str:
        body = json.dumps([_digest(tool, asked), *place], ensure_ascii=True, separators=(",", ":")).encode()
        return urlsafe_b64encode(self._signature(body) + body).decode("ascii").rstrip("=")

    def read(self, tool: str, asked: Mapping[str, object], text: str) -> Place | ParameterUnfit:
        """The place that a cursor names, or why it names none."""
        body = self._body(text)
        if body is None:
            return _unfit(text, f"a cursor that this server handed out since it was started; {_AGAIN}")
        digest, *place = cast("list[str | int]", json.loads(body))
        if digest != _digest(tool, asked):
            return _unfit(text, f"a cursor that {tool} handed out for the same other arguments; {_AGAIN}")
        return tuple(place)

    def _body(self, text: str) -> bytes | None:
        if len(text) > _LENGTH_MAX:
            return None
        try:
            raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except ValueError:
            return None
        signature, body = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        # The decoder passes over what is no letter of its alphabet: one place has one spelling.
        if urlsafe_b64encode(raw).decode("ascii").rstrip("=") != text:
            return None
        return body if hmac.compare_digest(signature, self._signature(body)) else None

    def _signature(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()[:_SIGNATURE_BYTES]

    def hold(self, result: object) -> str:
        """Keep a result for its further pages; by this name it is found."""
        name = secrets.token_hex(8)
        with self._lock:
            self._held[name] = result
            while len(self._held) > _HELD_MAX:
                self._held.popitem(last=False)
        return name

    def held(self, name: str, cursor: str) -> object:
        """A result that is kept, or a ``ParameterUnfit`` where it is not any more."""
        with self._lock:
            if name not in self._held:
                return _unfit(cursor, f"a cursor of one of the last {_HELD_MAX} long answers; {_AGAIN}")
            self._held.move_to_end(name)
            return self._held[name]


def _unfit(text: str, wanted: str) -> ParameterUnfit:
    return ParameterUnfit("cursor", shown(text), wanted)


def _digest(tool: str, asked: Mapping[str, object]) -> str:
    text = json.dumps([tool, dict(asked)], ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
