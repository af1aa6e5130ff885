"""The fold: what a session's events come to.

Rules kept here:

1. The fold is pure and has no clock. It depends neither on the order of the events nor on how they were grouped: sums are of whole numbers,
   and what is counted once (a tensor's name, a model's response) is kept by its key. An event counts once; whoever folds sees to that.
2. ``share_of`` is what one event adds, ``Fold`` is what they add up to, ``Session`` reads it. A store keeps ``Sums`` and the keys and adds
   to them: folding from scratch gives the same.
3. ``SESSION_FOLD_VERSION`` rises with every change of what is folded; what was folded by an older version is folded again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from countermark.sessions.canonical import as_table, as_text
from countermark.sessions.edits import is_edit
from countermark.sessions.events import Event
from countermark.sessions.genai import NO_USAGE, Usage, operation_of, span_usage, text_of, usage_of

SESSION_FOLD_VERSION: Final = 1

#: The tags that a fold gives, and what each means.
TAGS: Final[Mapping[str, str]] = {
    "weights:edited": "at least one weight edit was recorded",
    "time:odd": "some event's time is not used: its end lies before its start, or it lies a day or more ahead of its receipt",
    "text:sanitized": "some event held text that was replaced or cut to be kept",
}

_Table: TypeAlias = Mapping[str, object]


@final
@dataclass(frozen=True, slots=True)
class Sums:
    """What is added up without a key. ``usage`` is that of calls which no response id names. Times are ns UTC, None where none is known;
    ``ended_ns`` is the last time at which something said that the session ended."""

    events: int = 0
    messages: int = 0
    tools: int = 0
    errors: int = 0
    edits: int = 0
    weights_changed: int = 0
    usage: Usage = NO_USAGE
    odd_times: int = 0
    sanitized: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    ended_ns: int | None = None

    def plus(self, other: "Sums") -> "Sums":
        return Sums(
            self.events + other.events,
            self.messages + other.messages,
            self.tools + other.tools,
            self.errors + other.errors,
            self.edits + other.edits,
            self.weights_changed + other.weights_changed,
            self.usage.plus(other.usage),
            self.odd_times + other.odd_times,
            self.sanitized + other.sanitized,
            _earlier(self.first_ns, other.first_ns),
            _later(self.last_ns, other.last_ns),
            _later(self.ended_ns, other.ended_ns),
        )


@final
@dataclass(frozen=True, slots=True)
class Share:
    """What one event adds: sums, and what counts once under its key."""

    sums: Sums
    tensor: str | None = None
    response: str | None = None
    response_usage: Usage = NO_USAGE


@final
@dataclass(slots=True)
class Fold:
    """What events add up to; events are added in any order and any grouping."""

    sums: Sums = Sums()
    tensors: set[str] = field(default_factory=set[str])
    responses: dict[str, Usage] = field(default_factory=dict[str, Usage])

    def add(self, share: Share) -> None:
        self.sums = self.sums.plus(share.sums)
        if share.tensor is not None:
            self.tensors.add(share.tensor)
        if share.response is not None:
            self.responses[share.response] = self.responses.get(share.response, NO_USAGE).most(share.response_usage)


@final
@dataclass(frozen=True, slots=True)
class Session:
    """A session as it is read. ``tokens`` and cost count each response once; ``closed``: the last thing that was heard of it is its end.
    Times are ns UTC."""

    id: str
    sums: Sums
    tensors: int
    usage: Usage

    @property
    def closed(self) -> bool:
        return self.sums.ended_ns is not None and (self.sums.last_ns is None or self.sums.ended_ns >= self.sums.last_ns)

    @property
    def tags(self) -> tuple[str, ...]:
        found = {"weights:edited": self.sums.edits, "time:odd": self.sums.odd_times, "text:sanitized": self.sums.sanitized}
        return tuple(tag for tag in TAGS if found[tag])


def folded(session: str, events: Iterable[Event]) -> Session:
    """The fold of distinct events from scratch. O(events)."""
    fold = Fold()
    for event in events:
        fold.add(share_of(event))
    usage = NO_USAGE
    for one in fold.responses.values():
        usage = usage.plus(one)
    return Session(session, fold.sums, len(fold.tensors), fold.sums.usage.plus(usage))


def share_of(event: Event) -> Share:
    """What one event adds to its session."""
    payload = as_table(event.payload.value)
    times = event.times
    last = None if times.when is None else times.when + (times.lasted or 0)
    told = _Told()
    match event.type:
        case "span":
            told = _of_span(event, payload)
        case "message":
            told = _of_payload(payload, messages=1)
        case "tool_call":
            told = _of_payload(payload, tools=1)
        case "notification":
            if is_edit(payload):
                told = _Told(edits=1, changed=_whole(payload.get("changed")), tensor=as_text(payload.get("tensor")))
            else:
                told = _of_payload(payload)
        case "tool_result":
            pass
        case "end":
            told = _Told(ended=True)
    failed = told.failed or (event.type != "span" and bool(payload.get("error")))
    counted_once = told.response is not None
    sums = Sums(
        1,
        told.messages,
        told.tools,
        int(failed),
        told.edits,
        told.changed,
        NO_USAGE if counted_once else told.usage,
        # An event without a time is nothing odd; a time that was said and cannot be used is.
        int(times.odd not in (None, "unsaid")),
        int(bool(event.replaced)),
        times.when,
        last,
        last if told.ended else None,
    )
    return Share(sums, told.tensor, told.response, told.usage if counted_once else NO_USAGE)


@final
@dataclass(frozen=True, slots=True)
class _Told:
    """What an event says by its type."""

    messages: int = 0
    tools: int = 0
    edits: int = 0
    changed: int = 0
    usage: Usage = NO_USAGE
    tensor: str | None = None
    response: str | None = None
    failed: bool = False
    ended: bool = False


def _of_span(event: Event, payload: _Table) -> _Told:
    attributes, status = as_table(payload.get("attributes")), as_table(payload.get("status"))
    failed = status.get("code") == "error"
    match operation_of(attributes):
        case "chat":
            return _Told(messages=1, usage=span_usage(attributes), response=text_of(attributes, "response"), failed=failed)
        case "execute_tool":
            return _Told(tools=1, failed=failed)
        case "invoke_agent":
            return _Told(failed=failed, ended=event.parent is None)
        case "other":
            return _Told(failed=failed)


def _of_payload(payload: _Table, messages: int = 0, tools: int = 0) -> _Told:
    """An event that is no span says what was used under ``usage``, and of which response under ``responseId``."""
    usage = as_table(payload.get("usage"))
    read = usage_of(usage.get("inputTokens"), usage.get("outputTokens"), usage.get("cost"))
    return _Told(messages=messages, tools=tools, usage=read, response=as_text(payload.get("responseId")) if usage else None)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _earlier(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _later(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)
