"""Judges of what is sent and imported: events as JSON, transcripts, and OTLP in both encodings."""

import json
from typing import Final, cast

from countermark.sessions.canonical import Spelling, spelled_json
from countermark.sessions.events import Batch, Event
from countermark.sessions.fold import share_of
from countermark.sessions.secrets import redacted_text
from countermark.sessions.times import TIME_MAX_NS
from countermark.wire.events import batch_of_json, batch_of_lines, event_document, read_event
from countermark.wire.otlp import Encoding, Signal, batch_of
from countermark.wire.transcripts import read_transcript
from tests.wire.otlp_requests import EDIT, edit_span, json_of, log, protobuf_of, request, span
from tests.wire.test_events import WHOLE
from tests.wire.test_transcripts import NESTED, ROLLOUT

NOW: Final = 1_800_000_000 * 10**9
_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "logs")


def _whole(event: Event) -> None:
    """An event that was taken can be stored by every database, is spelled in one way, adds something, and comes back as itself."""
    event.payload.text.encode()
    again = spelled_json(json.loads(event.payload.text), "payload")
    assert isinstance(again, Spelling)
    assert (again.text, again.sanitized) == (event.payload.text, ()), event
    assert 0 <= event.start_ns <= TIME_MAX_NS and 0 <= event.end_ns <= TIME_MAX_NS, event
    told = "".join(text or "" for text in (event.id, event.session, event.source, event.name))
    told.encode()
    assert "\0" not in told, event
    share = share_of(event)
    assert share.sums.events == 1
    if event.session or event.trace or event.source:
        back = read_event(event_document(event), event.received_ns)
        assert isinstance(back, Event), back
        assert (back.id, back.payload.text, back.start_ns, back.session) == (event.id, event.payload.text, event.start_ns, event.session)


def _judged(batch: object) -> bool:
    if not isinstance(batch, Batch):
        return False
    for _, event in batch.events:
        _whole(event)
    return bool(batch.events)


def ingest(data: bytes) -> bool:
    """A body for ``/v1/ingest``, in each of its forms."""
    return _judged(batch_of_json(data, NOW)) | _judged(batch_of_lines(data, NOW))


def transcript(data: bytes) -> bool:
    """A transcript: no secret of a known form stays in what is taken of it."""
    batch = read_transcript(data, "file", NOW)
    for _, event in batch.events:
        assert redacted_text(event.payload.text) == event.payload.text, event
    return _judged(batch)


def otlp(encoding: Encoding, data: bytes) -> bool:
    """A body for either signal's address."""
    taken = [_judged(batch_of(signal, encoding, data, NOW)) for signal in _SIGNALS]
    return any(taken)


def bodies() -> tuple[bytes, ...]:
    odd = {**WHOLE, "session": "s\0", "payload": {"a": ["\ud83e", 1.5, 2**60, None], "\0k": {"deep": [[{}]]}}}
    bare = {"type": "message", "source": "job", "payload": {"usage": {"inputTokens": 1, "cost": 0.5}, "responseId": "r"}}
    return json.dumps(WHOLE).encode(), json.dumps([WHOLE, odd, bare]).encode(), json.dumps({"events": [odd]}).encode()


def transcripts() -> tuple[bytes, ...]:
    secret = {"role": "user", "content": [{"type": "text", "text": "use cmk_" + "a" * 30 + " and ghp_" + "b" * 30}]}
    return NESTED, ROLLOUT, json.dumps(secret).encode()


def requests(encoding: Encoding) -> tuple[bytes, ...]:
    """Requests of both signals: edits, other spans, other records."""
    found: list[bytes] = []
    for signal, items in (("traces", [edit_span(), span("chat", {"gen_ai.operation.name": "chat"})]), ("logs", [log(EDIT), log(body="x")])):
        document = request(cast(Signal, signal), items)
        found.append(json_of(document) if encoding == "json" else protobuf_of(cast(Signal, signal), document))
    return tuple(found)
