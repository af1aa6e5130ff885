"""Transcripts of agents, one JSON object a line, as events.

Rules kept here:

1. A line is read by its own form: a record that holds a ``message``, one of a rollout (``session_meta``, ``response_item`` and others with
   a ``payload``), a message with a role and a content, or an event of ours. A record of any other form is kept whole as a notification.
2. Secrets are taken out before anything else is done with a line, and each place is told.
3. An event's id follows from the record's own id, or from the transcript's session and the number of its line: importing a transcript
   again, or one that has grown, stores nothing twice.
4. The tokens of a response count once, under its id, however many records repeat them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, cast, final

from countermark.sessions.canonical import Spelling, as_table, as_text, kept_text, spelled_json
from countermark.sessions.events import ID_LENGTH_MAX, KEYS, TYPES, Batch, Event, EventRefused, EventType, EventUnreadable
from countermark.sessions.secrets import redacted
from countermark.sessions.times import read_time
from countermark.values import NonEmpty, Refused, shown
from countermark.wire.events import ID_SHOWN_MAX, id_shown, read_event, read_json

#: What stands behind the place of a secret that was taken out.
SECRET: Final = " (secret)"
#: Records of a rollout, by what their ``type`` says.
_ROLLOUT: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})

_Table: TypeAlias = Mapping[str, object]


@final
@dataclass(frozen=True, slots=True)
class _Part:
    """What becomes an event: its type, payload and name, and the id that it has within its transcript."""

    type: EventType
    payload: _Table
    id: str
    name: str = ""


class Transcript:
    """One transcript, read line by line. ``session`` is what its events belong to where no record names a session: the name of its file.
    ``named`` are texts that are secrets wherever they stand."""

    def __init__(self, session: str, received_ns: int, named: tuple[str, ...] = ()) -> None:
        self._fallback = session
        self._session: str | None = None
        self._received_ns = received_ns
        self._named = named

    def read(self, line: bytes, number: int) -> tuple[Event, ...] | EventRefused:
        """The events of the line with this number (from 0); none of an empty one."""
        if not line.strip():
            return ()
        document = read_json(line)
        if isinstance(document, EventUnreadable):
            return EventRefused(number, "", NonEmpty(document))
        if not isinstance(document, dict):
            return EventRefused(number, "", NonEmpty(EventUnreadable(f"{shown(document)} is no JSON object")))
        clean = redacted(cast(object, document), "payload", self._named)
        record = cast("dict[str, object]", clean.value)
        places = tuple(place + SECRET for place in clean.places)
        kind = record.get("type")
        if isinstance(kind, str) and kind in TYPES and "payload" in record and all(key in KEYS for key in record):
            return self._ours(record, number, places)
        if kind == "session_meta":
            self._session = as_text(as_table(record.get("payload")).get("id")) or self._session
        session = as_text(record.get("sessionId")) or as_text(record.get("session_id")) or self._session or self._fallback
        self._session = session
        return self._events(record, session[:ID_LENGTH_MAX], number, places)

    def _ours(self, record: _Table, number: int, places: tuple[str, ...]) -> tuple[Event, ...] | EventRefused:
        whole = {"session": self._fallback, **record} if not {"session", "trace", "source"} & record.keys() else record
        read = read_event(whole, self._received_ns)
        if isinstance(read, Refused):
            return EventRefused(number, id_shown(record), read.defects)
        return (replace(read, sanitized=(*read.sanitized, *places)),)

    def _events(self, record: _Table, session: str, number: int, places: tuple[str, ...]) -> tuple[Event, ...] | EventRefused:
        start_ns = _time(record.get("timestamp"))
        events: list[Event] = []
        for part in _parts(record, f"{session[:300]}:{number}"):
            spelling = spelled_json(part.payload, "payload")
            if isinstance(spelling, Refused):
                first, *more = spelling.defects
                return EventRefused(number, kept_text(part.id, ID_SHOWN_MAX), NonEmpty(first, tuple(more)))
            events.append(_event(part, spelling, session, self._received_ns, start_ns, places))
        return tuple(events)


def read_transcript(data: bytes, session: str, received_ns: int, named: tuple[str, ...] = ()) -> Batch:
    """The events of a whole transcript, each with the number of its line (from 0), and the lines that are none."""
    reader = Transcript(session, received_ns, named)
    events: list[tuple[int, Event]] = []
    refused: list[EventRefused] = []
    for number, line in enumerate(data.split(b"\n")):
        found = reader.read(line, number)
        if isinstance(found, EventRefused):
            refused.append(found)
        else:
            events.extend((number, event) for event in found)
    return Batch(tuple(events), tuple(refused))


def _event(part: _Part, spelling: Spelling, session: str, received_ns: int, start_ns: int, places: tuple[str, ...]) -> Event:
    told = {key: text[:ID_LENGTH_MAX] for key, text in (("id", part.id), ("session", session), ("name", part.name))}
    kept = {key: kept_text(text) for key, text in told.items()}
    replaced = tuple(key for key, text in told.items() if kept[key] is not text)
    return Event(
        kept["id"],
        part.type,
        spelling,
        received_ns,
        kept["session"],
        name=kept["name"],
        start_ns=start_ns,
        sanitized=(*replaced, *places),
    )


def _parts(record: _Table, place: str) -> Iterator[_Part]:
    """What a record says, in its order."""
    message = record.get("message")
    if isinstance(message, Mapping):
        yield from _of_message(as_table(cast(object, message)), as_text(record.get("uuid")) or place)
    elif isinstance(kind := record.get("type"), str) and kind in _ROLLOUT and isinstance(record.get("payload"), Mapping):
        yield from _of_rollout(kind, as_table(record["payload"]), place)
    elif isinstance(record.get("role"), str) and "content" in record:
        yield from _of_message(record, as_text(record.get("id")) or place)
    else:
        yield _Part(
            "notification", {"kind": "transcript", **record}, as_text(record.get("uuid")) or place, as_text(record.get("type")) or ""
        )


def _of_message(message: _Table, own: str) -> Iterator[_Part]:
    """A message, a part for each block of its content. A message that is one text keeps the id of its record."""
    content = message.get("content")
    blocks = cast("list[object]", content) if isinstance(content, list) else [content]
    told = _envelope(message)
    for at, block in enumerate(blocks):
        own_id = own if len(blocks) == 1 else f"{own[: ID_LENGTH_MAX - 12]}:{at}"
        yield _of_block(block, told, own_id)
    for at, call in enumerate(cast("list[object]", message.get("tool_calls")) if isinstance(message.get("tool_calls"), list) else []):
        function = as_table(as_table(call).get("function"))
        payload = {"tool": function.get("name"), "arguments": function.get("arguments"), "callId": as_table(call).get("id")}
        yield _Part("tool_call", _said(payload), f"{own[: ID_LENGTH_MAX - 12]}:call:{at}")


def _envelope(message: _Table) -> dict[str, object]:
    """What every part of a message repeats: who says it, in which response, and what that used."""
    usage = as_table(message.get("usage"))
    told: dict[str, object] = {"role": message.get("role"), "model": message.get("model")}
    if usage:
        cached = (usage.get(f"cache_{what}_input_tokens") for what in ("creation", "read"))
        inputs = (usage.get("input_tokens", usage.get("prompt_tokens")), *cached)
        outputs = usage.get("output_tokens", usage.get("completion_tokens"))
        told |= {"responseId": message.get("id"), "usage": _said({"inputTokens": _sum(inputs), "outputTokens": outputs})}
    return _said(told)


def _of_block(block: object, told: _Table, own: str) -> _Part:
    if not isinstance(block, Mapping):
        return _Part("message", {**told, **_said({"text": block})}, own)
    table = as_table(cast("object", block))
    kind = table.get("type")
    if kind == "tool_use":
        call = {"tool": table.get("name"), "arguments": table.get("input"), "callId": table.get("id")}
        # A response may be nothing but calls: what it used is said by each of its parts, and counts once.
        return _Part("tool_call", _said({**call, **{key: told.get(key) for key in ("model", "responseId", "usage")}}), own)
    if kind == "tool_result":
        result = {"callId": table.get("tool_use_id"), "result": table.get("content"), "error": table.get("is_error") or None}
        return _Part("tool_result", _said(result), own)
    if kind in ("text", "input_text", "output_text"):
        return _Part("message", {**told, **_said({"text": table.get("text")})}, own)
    if kind == "thinking":
        return _Part("message", {**told, "kind": "thinking", **_said({"text": table.get("thinking")})}, own)
    return _Part("message", {**told, "content": table}, own)


def _of_rollout(kind: str, payload: _Table, place: str) -> Iterator[_Part]:
    what = payload.get("type") if kind == "response_item" else None
    if what == "message":
        yield from _of_message(payload, as_text(payload.get("id")) or place)
        return
    if what in ("function_call", "custom_tool_call", "local_shell_call"):
        arguments = next((payload[key] for key in ("arguments", "input", "action") if key in payload), None)
        call = {"tool": payload.get("name") or what, "arguments": arguments, "callId": payload.get("call_id")}
        yield _Part("tool_call", _said(call), place)
        return
    if what in ("function_call_output", "custom_tool_call_output"):
        yield _Part("tool_result", _said({"callId": payload.get("call_id"), "result": payload.get("output")}), place)
        return
    info = as_table(payload.get("info"))
    usage, total = as_table(info.get("last_token_usage")), as_table(info.get("total_token_usage"))
    if kind == "event_msg" and payload.get("type") == "token_count" and usage:
        used = {"inputTokens": usage.get("input_tokens"), "outputTokens": usage.get("output_tokens")}
        # The same count may be told again while nothing was used: the total so far says which response it is of.
        response = f"{place.rpartition(':')[0]}:{total['total_tokens']}" if "total_tokens" in total else place
        yield _Part("notification", {"kind": "tokens", "responseId": response, "usage": _said(used)}, place, "token_count")
        return
    yield _Part("notification", {"kind": "transcript", "type": kind, "payload": payload}, place, as_text(payload.get("type")) or kind)


def _said(table: _Table) -> dict[str, object]:
    """A table without what is None: what was not said is absent."""
    return {key: value for key, value in table.items() if value is not None}


def _sum(counts: tuple[object, ...]) -> int | None:
    found = [count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count >= 0]
    return sum(found) if found else None


def _time(value: object) -> int:
    read = read_time(value)
    return 0 if read is None else read
