"""What is answered, and with which status.

Rules kept here:

1. Every answer is a document with ``ok``, ``defects`` and ``warnings``, like those of the command line; a refusal has all its defects.
2. A status follows from the kinds of the defects, by ``STATUS`` alone.
3. No token of ours stands in an answer, whatever was sent.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from starlette.responses import Response

from countermark.lines.defects import AnyDefect, defect_documents
from countermark.lines.serving import (
    BodySlow,
    BodyTooLarge,
    HostForeign,
    MediaTypeUnfit,
    MethodUnfit,
    OriginForeign,
    RouteUnknown,
    ServerBusy,
    ServerFault,
    TokenScopeMissing,
    TokenUnknown,
    TokenWanted,
)
from countermark.lines.surface import EnvironmentFault
from countermark.lines.texts import Document
from countermark.sessions.events import BatchTooLong
from countermark.sessions.records import SessionAmbiguous, SessionPrefixShort, SessionUnknown
from countermark.sessions.secrets import without_tokens

JSON: Final = "application/json"
#: The status of a refusal, by the kind of its first defect that has one; 400 where none has.
STATUS: Final[Mapping[type, int]] = {
    TokenWanted: 401, TokenUnknown: 401, TokenScopeMissing: 403, HostForeign: 403, OriginForeign: 403, RouteUnknown: 404, MethodUnfit: 405,
    BodySlow: 408, BodyTooLarge: 413, BatchTooLong: 413, MediaTypeUnfit: 415, SessionUnknown: 404, SessionPrefixShort: 404,
    SessionAmbiguous: 409, ServerFault: 500, ServerBusy: 503, EnvironmentFault: 503,
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answers: the status, the bytes, of which kind they are, and more headers."""

    status: int
    body: bytes
    media: str = JSON
    headers: Mapping[str, str] | None = None

    def response(self) -> Response:
        return Response(self.body, self.status, dict(self.headers or {}), self.media)


def status_of(defects: Iterable[AnyDefect]) -> int:
    return next((STATUS[type(defect)] for defect in defects if type(defect) in STATUS), 400)


def document(
    said: Mapping[str, object],
    defects: Sequence[AnyDefect] = (),
    status: int = 200,
    named: Sequence[str] = (),
    warnings: Sequence[AnyDefect] = (),
) -> Answer:
    """An answer with what it says and what is wrong; ``named`` are tokens that must not stand in it."""
    whole: Document = {"ok": not defects, "defects": defect_documents(defects), "warnings": defect_documents(warnings)}
    text = json.dumps({**whole, **said}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Answer(status, without_tokens(text, named).encode("utf-8", "replace"), headers=_headers(defects))


def refused(defects: Sequence[AnyDefect], named: Sequence[str] = ()) -> Answer:
    """The answer to a request that is refused with these."""
    return document({}, defects, status_of(defects), named)


def _headers(defects: Sequence[AnyDefect]) -> Mapping[str, str] | None:
    found: dict[str, str] = {}
    for defect in defects:
        if isinstance(defect, ServerBusy):
            found["retry-after"] = str(defect.retry_s)
        elif isinstance(defect, EnvironmentFault):
            found["retry-after"] = "5"
        elif isinstance(defect, TokenWanted | TokenUnknown):
            found["www-authenticate"] = "Bearer"
        elif isinstance(defect, MethodUnfit):
            found["allow"] = ", ".join(defect.allowed)
        elif isinstance(defect, BodySlow | BodyTooLarge):
            # What is left of the body is not read as another request.
            found["connection"] = "close"
    return found or None
