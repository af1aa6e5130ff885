"""A session and its events read the same on every surface, and nothing of them moves a terminal's cursor."""

from typing import Any, Final

from hypothesis import given

from countermark.lines import sessions
from countermark.lines.sessions import (
    EVENT_COLUMNS,
    SESSION_COLUMNS,
    event_line,
    event_row,
    event_row_document,
    page_line,
    session_document,
    session_lines,
    session_row,
    state_of,
)
from countermark.sessions.events import Event
from countermark.sessions.fold import folded
from countermark.sessions.records import EventPage, SessionListed, StoredEvent
from tests.faults import planted, proven_by
from tests.sessions.test_canonical import JSON
from tests.sessions.test_edits import WHOLE
from tests.sessions.test_events import NOW, event, spelling
from tests.sessions.test_fold import CHAT, edit, span

_S: Final = 10**9

LINES: Final[tuple[tuple[Event, str], ...]] = (
    (event(payload=spelling(WHOLE)),
     "layers.0.w: 3 of 6 weights changed (2 in value), ‖Δ‖ 0.500, max 0.250, 1 became NaN or infinite, note: scaled by hand"),
    (event(type="message", payload=spelling({"role": "user", "content": [{"type": "text", "text": "hello\x1b[2J"}]})),
     "user: hello\\x1b[2J"),
    (event(type="tool_call", name="bash", payload=spelling({"arguments": {"command": "ls"}})), "bash: ls"),
    (event(type="tool_result", payload=spelling({"tool": "bash", "error": "no such file"})), "bash: no such file"),
    (event(type="notification", payload=spelling({"kind": "note"})), "note"),
    (event(type="end"), "end"),
    (event(type="message", payload=spelling({"text": "x" * 500})), "x" * 159 + "…"),
    (span({**CHAT, "gen_ai.response.model": "m"}, name="chat m"), "chat m, m, 10 tokens in, 5 out, 0.000 s"),
    (span({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash"}, name="run", status={"code": "error", "message": "cut"}),
     "run, bash, 0.000 s, error cut"),
    (span({}), "a span, 0.000 s"),
    (event(type="end", start_ns=NOW, end_ns=NOW - 1, sanitized=("name",)), "end (it ends before it starts; replaced to be kept: name)"),
    (event(type="end", start_ns=2**63 - 1), "end (its time lies ahead of its receipt)"),
)  # fmt: skip


@proven_by(planted(sessions, "plain", lambda text, most=400: text), planted(sessions, "format_weight_edit", lambda payload: "edited"))
def test_each_event_has_its_line() -> None:
    assert [event_line(one) for one, _ in LINES] == [line for _, line in LINES]


@given(JSON)
def test_every_payload_has_one_printable_line(value: Any) -> None:
    for kind in ("message", "span", "notification"):
        line = event_line(event(type=kind, name="\x1b", payload=spelling({"content": value, "attributes": value, "status": value})))
        assert line.isprintable()
        assert len(line) < 2000


def listed(*events: Event, updated_ns: int = NOW, conflicts: int = 0, source: str = "job") -> SessionListed:
    return SessionListed(folded("run\x1b-1", events), source, updated_ns, conflicts)


@proven_by(planted(sessions, "_NS_PER_S", 1))
def test_a_session_is_open_while_something_came_lately() -> None:
    ended, quiet = listed(event(type="end", start_ns=NOW)), listed(edit("w", 1))
    assert [state_of(ended, NOW, 300), state_of(quiet, NOW + 300 * _S, 300), state_of(quiet, NOW + 301 * _S, 300)] == [
        "closed",
        "open",
        "idle",
    ]


TALK: Final = (
    edit("w", 3), edit("v", 2**63 - 1), span(CHAT), event(type="tool_call", start_ns=NOW),
    event(type="tool_result", payload=spelling({"error": 1})), event(start_ns=NOW, end_ns=1),
)  # fmt: skip


def test_a_session_is_a_row_some_lines_and_a_document() -> None:
    found = listed(*TALK, conflicts=1)
    row = dict(zip(SESSION_COLUMNS, session_row(found, NOW, 300), strict=True))
    assert row == {
        "session": "run\\x1b-1", "state": "open", "updated": "2027-01-15 08:00:00Z", "events": "6", "edits": "2", "tensors": "2",
        "weights changed": "9,223,372,036,854,775,810", "tokens": "10+5", "errors": "1", "source": "job",
    }  # fmt: skip
    assert session_lines(found, NOW, 300) == (
        "session run\\x1b-1: open, 6 events",
        "from 2027-01-15 08:00:00Z to 2027-01-15 08:00:00Z, last received 2027-01-15 08:00:00Z",
        "2 weight edits of 2 tensors, 9,223,372,036,854,775,810 weights changed",
        "1 message, 1 tool call, 1 error",
        "10 tokens in, 5 out, each response once, 0.1000 USD",
        "tags: weights:edited, time:odd",
        "1 other payload came under ids that were known; the first of each id is kept",
    )
    assert session_document(found, NOW, 300) == {
        "id": "run\x1b-1", "source": "job", "state": "open", "closed": False, "started": "2027-01-15T08:00:00Z",
        "ended": "2027-01-15T08:00:00.000000005Z", "updated": "2027-01-15T08:00:00Z",
        "stats": {
            "events": 6, "messages": 1, "tools": 1, "errors": 1, "tokens": {"input": 10, "output": 5}, "cost": 0.1,
            "weightEdits": {"edits": 2, "tensors": 2, "weightsChanged": "9223372036854775810"},
        },
        "tags": ["weights:edited", "time:odd"], "conflicts": 1,
    }  # fmt: skip


def test_what_is_not_there_is_not_said() -> None:
    found = listed(event(), source="")
    assert session_row(found, NOW, 300)[7:] == ("-", "0", "-")
    assert session_lines(found, NOW, 300) == ("session run\\x1b-1: open, 1 event", "from - to -, last received 2027-01-15 08:00:00Z")


def test_a_page_says_which_events_of_how_many_it_shows() -> None:
    one = StoredEvent(1, "s", NOW, event())
    pages = (
        EventPage((one,) * 200, 1, 50_000, None),
        EventPage((one,), 201, 201, None),
        EventPage((), 0, 0, None),
        EventPage((), 0, 7, None),
    )
    assert [page_line(page) for page in pages] == ["1-200 of 50,000", "201-201 of 201", "no events", "no more than 7 events"]


def test_an_event_is_a_row_and_a_document_whose_whole_numbers_stay_exact() -> None:
    payload = {"kind": "weights.edit", "tensor": "w", "changed": 9007199254740993}
    one = event(payload=spelling(payload), start_ns=NOW, end_ns=NOW + 5, trace="ab" * 16, sanitized=("name",))
    stored = StoredEvent(7, "s", NOW, one)
    line = "w: 9,007,199,254,740,993 weights changed (replaced to be kept: name)"
    assert dict(zip(EVENT_COLUMNS, event_row(stored), strict=True)) == {
        "time": "2027-01-15 08:00:00Z", "type": "notification", "event": line,
    }  # fmt: skip
    assert event_row_document(stored) == {
        "id": "e", "ordinal": 7, "session": "s", "type": "notification", "name": "", "trace": "ab" * 16, "span": None, "parent": None,
        "source": None, "time": "2027-01-15T08:00:00Z", "endTime": "2027-01-15T08:00:00.000000005Z", "lastedNs": 5, "oddTime": None,
        "received": "2027-01-15T08:00:00Z", "forwarded": False, "payload": {**payload, "changed": "9007199254740993"},
        "sanitized": ["name"], "line": line,
    }  # fmt: skip
