"""Who an event is, which session it belongs to, and what can be used of its times."""

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions import events
from countermark.sessions.canonical import Spelling, spelled_json
from countermark.sessions.events import (
    Event,
    content_event_id,
    session_of,
    smaller,
    span_event_id,
    trace_session,
)
from tests.faults import planted, proven_by

NOW: Final = 1_800_000_000 * 10**9
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"


def spelling(value: object) -> Spelling:
    found = spelled_json(value, "payload")
    assert isinstance(found, Spelling)
    return found


def event(**said: Any) -> Event:
    return Event(**{"id": "e", "type": "notification", "payload": spelling({}), "received_ns": NOW, **said})


def content_id(**said: Any) -> str:
    whole = {"session": "s", "trace": TRACE, "source": "job", "name": "n", "start_ns": 5, **said}
    return content_event_id(whole.pop("kind", "message"), spelling(whole.pop("payload", {"a": 1})), **whole)


@proven_by(planted(events, "length_prefixed", lambda *parts: b"".join(parts)))
def test_an_event_without_an_id_is_known_by_all_that_it_says() -> None:
    other: dict[str, Any] = {
        "kind": "notification", "payload": {"a": 2}, "session": None, "trace": "1" * 32, "source": None, "name": "", "start_ns": 6,
    }  # fmt: skip
    ids = [content_id(), *(content_id(**{key: value}) for key, value in other.items())]
    assert len(set(ids)) == len(ids)
    assert content_id(payload={"a": 1.0}) == content_id()
    # What stands in one part is not what stands in the next.
    assert content_id(session="sx", trace="y") != content_id(session="s", trace="xy")
    assert span_event_id(TRACE, "1" * 16) != span_event_id(TRACE[:-1], "9" + "1" * 16)


SESSIONS: Final[tuple[tuple[dict[str, Any], str | None, str], ...]] = (
    ({"session": "mine", "trace": TRACE, "source": "job"}, "other", "mine"),
    ({"trace": TRACE, "source": "job"}, "other", "other"),
    ({"trace": TRACE, "source": "job"}, None, f"trace:{TRACE}"),
    ({"source": "job"}, "other", "log:job"),
    ({}, None, "log:unknown"),
)


@proven_by(planted(events, "trace_session", lambda trace: trace))
def test_a_session_is_the_one_that_is_named_nearest() -> None:
    for said, named_by_trace, expected in SESSIONS:
        assert session_of(event(**said), named_by_trace) == expected
    assert trace_session(TRACE) == f"trace:{TRACE}"


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=("Cs",)), max_size=3), max_size=6))
def test_the_name_of_a_trace_is_the_byte_smallest_in_any_order(names: list[str | None]) -> None:
    found: str | None = None
    for name in names:
        found = smaller(found, name)
    assert found == min((name for name in names if name is not None), key=str.encode, default=None)


def test_an_event_tells_every_place_that_was_replaced() -> None:
    assert event(sanitized=("name",), payload=spelling({"a": "\0"})).replaced == ("name", "payload.a")
