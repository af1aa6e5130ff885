"""Sessions and their events as rows, lines and documents: the same on every surface.

Rules kept here:

1. An event is one line. A weight edit's is ``format_weight_edit``'s; any other says what it is and the beginning of what it says.
2. Whether a session is open is derived here from now and how long it may be idle; the fold has no clock.
3. A time that cannot be used is shown as ``-`` in a row, and as it was said in a document.
4. What was replaced to be kept, what came under the id of another event, and what was counted once is said beside it.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

from countermark.lines.runs import moment
from countermark.lines.texts import Document, JsonValue, counted, number, plain
from countermark.lines.weight_edits import format_weight_edit
from countermark.sessions.canonical import as_table
from countermark.sessions.edits import is_edit
from countermark.sessions.events import Event
from countermark.sessions.genai import PICO, operation_of, span_usage, text_of
from countermark.sessions.records import Conflict, EventPage, SessionListed, StoredEvent
from countermark.sessions.times import OddTime, spell_time

SESSION_COLUMNS: Final = ("session", "state", "updated", "events", "edits", "tensors", "weights changed", "tokens", "errors", "source")
EVENT_COLUMNS: Final = ("time", "type", "event")

State: TypeAlias = Literal["open", "closed", "idle"]

_NS_PER_S: Final = 10**9
_NS_PER_MS: Final = 10**6
_TEXT_SHOWN_MAX: Final = 160
#: Where the words of a message, a tool call or a result may stand in its payload, the first that is there.
_WORDS: Final = ("text", "content", "arguments", "input", "result", "output", "error", "body", "kind")

#: What is said of a time that is not used; one that was not said is nothing odd.
_ODD: Final[Mapping[OddTime | None, str]] = {
    "end before start": "it ends before it starts",
    "ahead of receipt": "its time lies ahead of its receipt",
}

_Table: TypeAlias = Mapping[str, object]


def state_of(listed: SessionListed, now_ns: int, idle_s: float) -> State:
    """``closed`` where its end is the last that was heard of it, ``open`` where something came within ``idle_s`` seconds, else ``idle``."""
    if listed.session.closed:
        return "closed"
    return "open" if now_ns - listed.updated_ns <= idle_s * _NS_PER_S else "idle"


def at(time_ns: int | None) -> str:
    """A time (ns UTC) as rows show it."""
    return "-" if time_ns is None else moment(time_ns // _NS_PER_MS)


def session_row(listed: SessionListed, now_ns: int, idle_s: float) -> tuple[str, ...]:
    """A session as a row of ``SESSION_COLUMNS``."""
    session = listed.session
    sums, usage = session.sums, session.usage
    return (
        plain(session.id, 80),
        state_of(listed, now_ns, idle_s),
        at(listed.updated_ns),
        f"{sums.events:,}",
        f"{sums.edits:,}",
        f"{session.tensors:,}",
        f"{sums.weights_changed:,}",
        f"{usage.input_tokens:,}+{usage.output_tokens:,}" if usage.input_tokens or usage.output_tokens else "-",
        f"{sums.errors:,}",
        plain(listed.source, 40) or "-",
    )


def session_lines(listed: SessionListed, now_ns: int, idle_s: float) -> tuple[str, ...]:
    """A session as ``show`` begins: what it comes to, in sentences."""
    session, sums = listed.session, listed.session.sums
    lines = [f"session {plain(session.id)}: {state_of(listed, now_ns, idle_s)}, {counted(sums.events, 'event')}"]
    lines.append(f"from {at(sums.first_ns)} to {at(sums.last_ns)}, last received {at(listed.updated_ns)}")
    if sums.edits:
        tensors = f"{counted(sums.edits, 'weight edit')} of {counted(session.tensors, 'tensor')}"
        lines.append(f"{tensors}, {counted(sums.weights_changed, 'weight')} changed")
    if talk := [
        counted(count, one) for count, one in ((sums.messages, "message"), (sums.tools, "tool call"), (sums.errors, "error")) if count
    ]:
        lines.append(", ".join(talk))
    if session.usage.input_tokens or session.usage.output_tokens:
        cost = f", {session.usage.cost_pico / PICO:.4f} USD" if session.usage.cost_pico else ""
        lines.append(f"{session.usage.input_tokens:,} tokens in, {session.usage.output_tokens:,} out, each response once{cost}")
    if session.tags:
        lines.append(f"tags: {', '.join(session.tags)}")
    if listed.conflicts:
        lines.append(f"{counted(listed.conflicts, 'other payload')} came under ids that were known; the first of each id is kept")
    return tuple(lines)


def page_line(page: EventPage) -> str:
    """Which events of how many are shown."""
    if not page.events:
        return "no events" if not page.total else f"no more than {counted(page.total, 'event')}"
    return f"{page.first:,}-{page.first + len(page.events) - 1:,} of {page.total:,}"


def event_row(stored: StoredEvent) -> tuple[str, ...]:
    """An event as a row of ``EVENT_COLUMNS``."""
    return at(stored.event.times.when), stored.event.type, event_line(stored.event)


def event_line(event: Event) -> str:
    """An event as one line."""
    payload = as_table(event.payload.value)
    said = _said(event, payload)
    notes = [_ODD[event.times.odd]] if event.times.odd in _ODD else []
    if event.replaced:
        notes.append(f"replaced to be kept: {', '.join(plain(place, 60) for place in event.replaced)}")
    return f"{said} ({'; '.join(notes)})" if notes else said


def _said(event: Event, payload: _Table) -> str:
    if is_edit(payload):
        return format_weight_edit(payload)
    if event.type == "span":
        return _span(event, payload)
    parts = [plain(event.name, 80)] if event.name else []
    for key in ("role", "tool", "name"):
        if isinstance(found := payload.get(key), str) and found:
            parts.append(plain(found, 80))
    words = next((payload[key] for key in _WORDS if payload.get(key) not in (None, "")), None)
    if words is not None:
        parts.append(_beginning(words))
    return ": ".join(parts) or event.type


def _span(event: Event, payload: _Table) -> str:
    attributes, status = as_table(payload.get("attributes")), as_table(payload.get("status"))
    lasted = event.times.lasted
    parts = [plain(event.name, 120) or "a span"]
    if (model := text_of(attributes, "model")) is not None:
        parts.append(plain(model, 60))
    if (tool := text_of(attributes, "tool")) is not None:
        parts.append(plain(tool, 60))
    if operation_of(attributes) == "chat":
        usage = span_usage(attributes)
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    if lasted is not None:
        parts.append(f"{lasted / _NS_PER_S:,.3f} s")
    if status.get("code") == "error":
        parts.append(f"error {_beginning(status.get('message') or '')}".strip())
    return ", ".join(parts)


def _beginning(words: object) -> str:
    return plain(words if isinstance(words, str) else _flat(words), _TEXT_SHOWN_MAX)


def _flat(value: object) -> str:
    """The texts of a nested value, as far as they are shown."""
    found: list[str] = []
    waiting = [value]
    while waiting and sum(map(len, found)) < _TEXT_SHOWN_MAX:
        one = waiting.pop(0)
        if isinstance(one, Mapping):
            # The parts of a message say their kind beside their text.
            table = cast("Mapping[object, object]", one)
            waiting = [*([table["text"]] if "text" in table else table.values()), *waiting]
        elif isinstance(one, list | tuple):
            waiting = [*cast("list[object]", one), *waiting]
        else:
            found.append(str(one))
    return " ".join(found)


def session_document(listed: SessionListed, now_ns: int, idle_s: float) -> Document:
    """A session as a document carries it; its times are texts, exact to the nanosecond."""
    session, sums = listed.session, listed.session.sums
    return {
        "id": session.id,
        "source": listed.source,
        "state": state_of(listed, now_ns, idle_s),
        "closed": session.closed,
        "started": _time(sums.first_ns),
        "ended": _time(sums.last_ns),
        "updated": _time(listed.updated_ns),
        "stats": {
            "events": number(sums.events),
            "messages": number(sums.messages),
            "tools": number(sums.tools),
            "errors": number(sums.errors),
            "tokens": {"input": number(session.usage.input_tokens), "output": number(session.usage.output_tokens)},
            "cost": session.usage.cost_pico / PICO,
            "weightEdits": {
                "edits": number(sums.edits),
                "tensors": number(session.tensors),
                "weightsChanged": number(sums.weights_changed),
            },
        },
        "tags": list(session.tags),
        "conflicts": number(listed.conflicts),
    }


def event_row_document(stored: StoredEvent) -> Document:
    """An event as a document carries it, with its line."""
    event, times = stored.event, stored.event.times
    return {
        "id": event.id,
        "ordinal": number(stored.ordinal),
        "session": stored.session,
        "type": event.type,
        "name": event.name,
        "trace": event.trace,
        "span": event.span,
        "parent": event.parent,
        "source": event.source,
        "time": _time(event.start_ns or None),
        "endTime": _time(event.end_ns or None),
        "lastedNs": None if times.lasted is None else number(times.lasted),
        "oddTime": times.odd,
        "received": _time(event.received_ns),
        "forwarded": event.forwarded,
        "payload": exact(event.payload.value),
        "sanitized": list(event.replaced),
        "line": event_line(event),
    }


def conflict_document(conflict: Conflict) -> Document:
    """Another payload that came under a known id."""
    return {"event": conflict.event, "received": _time(conflict.received_ns), "payload": exact(conflict.payload.value)}


def exact(value: object) -> JsonValue:
    """A JSON value whose whole numbers beyond 2^53 are texts."""
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, Mapping):
        return {str(key): exact(inner) for key, inner in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [exact(inner) for inner in cast("list[object]", value)]
    return cast(JsonValue, value)


def _time(time_ns: int | None) -> str | None:
    return None if time_ns is None else spell_time(time_ns)
