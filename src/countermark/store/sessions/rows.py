"""Events and sessions ↔ rows. What a row says of a session's sums is read back as the heart has them, to the last digit."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, cast, final

from sqlalchemy import CursorResult

from countermark.sessions.canonical import Spelling, kept_text
from countermark.sessions.edits import is_edit
from countermark.sessions.events import ID_LENGTH_MAX, Event, EventType, smaller
from countermark.sessions.fold import SESSION_FOLD_VERSION, Session, Share, Sums
from countermark.sessions.genai import NO_USAGE, PICO, Usage
from countermark.sessions.records import Conflict, SessionListed, StoredEvent
from countermark.store.statements import Row

INT64_MAX: Final = 2**63 - 1
_PADDED: Final = 40
NO_SUMS: Final = Sums()
_SIDES: Final = (("checkpointBefore", "before"), ("checkpointAfter", "after"))


def askable(text: str) -> bool:
    """Whether a text could stand in a row: a database refuses to be asked for some that never do."""
    return 0 < len(text) <= ID_LENGTH_MAX and kept_text(text) is text


def in_range(number: int) -> int:
    """A number that a database can be asked about; beyond these no row has one."""
    return max(-1, min(number, INT64_MAX))


def by_name(result: CursorResult[Any]) -> Iterator[Row]:
    """The rows of a result, by column name."""
    names = tuple(result.keys())
    return (dict(zip(names, row, strict=True)) for row in result)


def event_row(ordinal: int, session: str, event: Event) -> dict[str, object]:
    """The row of an event, of the session that it belongs to now."""
    return {
        "ordinal": ordinal,
        "event_id": event.id,
        "session_id": session,
        "when_ns": event.times.when or event.received_ns,
        "type": event.type,
        "name": event.name,
        "own_session": event.session,
        "trace": event.trace,
        "span": event.span,
        "parent": event.parent,
        "source": event.source,
        "start_ns": event.start_ns,
        "end_ns": event.end_ns,
        "received_ns": event.received_ns,
        "forwarded": int(event.forwarded),
        "payload": event.payload.text,
        "sanitized": _places(event.sanitized, event.payload.sanitized),
    }


def _places(envelope: tuple[str, ...], payload: tuple[str, ...]) -> str:
    return json.dumps([envelope, payload], ensure_ascii=False) if envelope or payload else ""


def stored_event(row: Row) -> StoredEvent:
    """An event as its row has it."""
    found = cast("Mapping[str, Any]", row)
    envelope, payload = json.loads(found["sanitized"] or "[[], []]")
    event = Event(
        found["event_id"],
        cast(EventType, found["type"]),
        Spelling(found["payload"], json.loads(found["payload"]), tuple(payload)),
        found["received_ns"],
        found["own_session"],
        found["trace"],
        found["span"],
        found["parent"],
        found["source"],
        found["name"],
        found["start_ns"],
        found["end_ns"],
        bool(found["forwarded"]),
        tuple(envelope),
    )
    return StoredEvent(found["ordinal"], found["session_id"], found["when_ns"], event)


def conflict_row(event: Event) -> dict[str, object]:
    """The row of another payload under a known id."""
    digest = blake2b(event.payload.text.encode(), digest_size=16).hexdigest()
    sanitized = _places((), event.payload.sanitized)
    return {
        "event_id": event.id,
        "digest": digest,
        "received_ns": event.received_ns,
        "payload": event.payload.text,
        "sanitized": sanitized,
    }


def conflict(row: Row) -> Conflict:
    found = cast("Mapping[str, Any]", row)
    _, places = json.loads(found["sanitized"] or "[[], []]")
    return Conflict(found["event_id"], Spelling(found["payload"], json.loads(found["payload"]), tuple(places)), found["received_ns"])


def checkpoints_of(event: Event) -> list[tuple[str, str]]:
    """The digests of weights that a weight edit names, each behind its side."""
    payload = event.payload.value
    if event.type != "notification" or not isinstance(payload, Mapping) or not is_edit(payload):
        return []
    return [(side, digest) for key, side in _SIDES if isinstance(digest := payload.get(key), str)]


def key_of(kind: str, name: str) -> str:
    """Under what something is kept that counts once in a session: which kind it is of, and a digest of its name."""
    return kind + blake2b(name.encode(), digest_size=16).hexdigest()


@final
@dataclass(slots=True)
class Account:
    """What is known of a session while events are added to it. ``keyed`` is the usage that responses name."""

    id: str
    sums: Sums = NO_SUMS
    tensors: int = 0
    keyed: Usage = NO_USAGE
    source: str | None = None
    updated_ns: int = 0
    conflicts: int = 0
    tags: tuple[str, ...] = ()
    checkpoints: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def add(self, event: Event, share: Share) -> None:
        """What an event adds without a key."""
        self.sums = self.sums.plus(share.sums)
        self.source = smaller(self.source, event.source)
        self.updated_ns = max(self.updated_ns, event.received_ns)
        if share.sums.edits:
            self.checkpoints.update(checkpoints_of(event))

    @property
    def session(self) -> Session:
        return Session(self.id, self.sums, self.tensors, self.sums.usage.plus(self.keyed))

    def row(self) -> dict[str, object]:
        """The row of the session."""
        sums, session = self.sums, self.session
        exact = [*_numbers(sums.usage), *_numbers(self.keyed)]
        return {
            "session_id": self.id,
            "source": self.source or "",
            "started_ns": sums.first_ns or 0,
            "ended_ns": sums.last_ns or 0,
            "updated_ns": self.updated_ns,
            "said_end_ns": sums.ended_ns or 0,
            "closed": int(session.closed),
            "events": sums.events,
            "messages": sums.messages,
            "tools": sums.tools,
            "errors": sums.errors,
            "odd_times": sums.odd_times,
            "sanitized": sums.sanitized,
            "conflicts": self.conflicts,
            "input_tokens": min(session.usage.input_tokens, INT64_MAX),
            "output_tokens": min(session.usage.output_tokens, INT64_MAX),
            "cost": session.usage.cost_pico / PICO,
            "usage": json.dumps(exact) if any(exact) else "",
            "weight_edits": sums.edits,
            "weight_tensors": self.tensors,
            "weights_changed": str(sums.weights_changed).zfill(_PADDED),
            "fold_version": SESSION_FOLD_VERSION,
        }


def _numbers(usage: Usage) -> tuple[int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.cost_pico


def account(row: Row) -> Account:
    """A session as its row has it."""
    found = cast("Mapping[str, Any]", row)
    exact = json.loads(found["usage"] or "[0, 0, 0, 0, 0, 0]")
    sums = Sums(
        found["events"],
        found["messages"],
        found["tools"],
        found["errors"],
        found["weight_edits"],
        int(found["weights_changed"]),
        Usage(*exact[:3]),
        found["odd_times"],
        found["sanitized"],
        found["started_ns"] or None,
        found["ended_ns"] or None,
        found["said_end_ns"] or None,
    )
    read = Account(
        found["session_id"],
        sums,
        found["weight_tensors"],
        Usage(*exact[3:]),
        found["source"] or None,
        found["updated_ns"],
        found["conflicts"],
    )
    read.tags = read.session.tags
    return read


def listed_session(row: Row) -> SessionListed:
    """A session as a list has it."""
    read = account(row)
    return SessionListed(read.session, read.source or "", read.updated_ns, read.conflicts)
