"""Events to store, and everything that a store tells of them."""

from dataclasses import dataclass
from typing import Any, Final, cast, final

from sqlalchemy import select

from countermark.sessions.canonical import Spelling, spelled_json
from countermark.sessions.edits import WeightEdit
from countermark.sessions.events import Event, EventType
from countermark.sessions.records import SessionListed
from countermark.store.sessions.base import SqlSessions
from countermark.store.sessions.interface import SessionStore
from countermark.store.sessions.schema import SESSIONS

NOW: Final = 1_796_000_000 * 10**9
SECOND: Final = 10**9
DAY: Final = 86_400 * SECOND
T1, T2, T3 = ("1" * 32, "2" * 32, "3" * 32)


def spelled(payload: object) -> Spelling:
    """A payload that has a spelling."""
    found = spelled_json(payload, "payload")
    assert isinstance(found, Spelling)
    return found


def event(
    id: str,
    payload: object = None,
    kind: EventType = "notification",
    *,
    received_ns: int = NOW,
    start_ns: int | None = None,
    **envelope: Any,
) -> Event:
    """An event of session ``s-main`` that happened when it was received, unless ``envelope`` says otherwise."""
    said = spelled({"text": id} if payload is None else payload)
    given = {"session": "s-main", **envelope} if "trace" not in envelope else envelope
    return Event(id, kind, said, received_ns, start_ns=received_ns if start_ns is None else start_ns, **given)


def edit(id: str, tensor: str, changed: int = 3, said: dict[str, Any] | None = None, **envelope: Any) -> Event:
    """A weight edit."""
    return event(id, WeightEdit(tensor, changed, **(said or {})).payload(), **envelope)


def chat(id: str, response: str, tokens: int, **envelope: Any) -> Event:
    """A span that reports a call of a model."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": response,
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cost": 0.25,
    }
    return event(id, {"attributes": attributes}, "span", **envelope)


def only(store: SessionStore) -> SessionListed:
    """The one session that there is."""
    (found,) = store.sessions(limit=1_000).items
    return found


def ids(store: SessionStore, session: str = "s-main") -> list[str]:
    """The ids of a session's events, in its order."""
    return [stored.event.id for stored in store.events(session, limit=1_000).events]


def found(store: SessionStore, text: str) -> list[str]:
    """The ids of the events that hold these words, the last received first."""
    return [stored.event.id for stored in store.search(text, limit=1_000).items]


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """Every row of every table by its cells; ``ordinals`` are apart, because they say in which order events came."""

    tables: dict[str, list[tuple[Any, ...]]]
    ordinals: dict[str, int]


def rows_of(store: SessionStore) -> Rows:
    """What lies in a store now."""
    assert isinstance(store, SqlSessions)
    tables: dict[str, list[tuple[Any, ...]]] = {}
    ordinals: dict[str, int] = {}
    with store._reading() as connection:
        for table in SESSIONS.sorted_tables:
            columns = [column for column in table.columns if column.name != "ordinal"]
            if table.name != "feed":
                tables[table.name] = sorted((tuple(row) for row in connection.execute(select(*columns))), key=repr)
        events = SESSIONS.tables["events"]
        for row in connection.execute(select(events.c.event_id, events.c.ordinal)):
            ordinals[cast(str, row.event_id)] = cast(int, row.ordinal)
    return Rows(tables, ordinals)
