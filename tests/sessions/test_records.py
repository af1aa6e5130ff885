"""Cursors come back as they went out, and nothing else is one."""

import pytest

from countermark.sessions.records import EventCursor, SessionCursor
from countermark.values import Unreadable

LAST = 2**63 - 1


@pytest.mark.parametrize(
    "cursor", [SessionCursor(0, "s"), SessionCursor(LAST, "a.b: 重\n"), EventCursor(0, 1, 0), EventCursor(LAST, LAST, LAST)]
)
def test_a_cursor_is_read_as_it_was_spelled(cursor: SessionCursor | EventCursor) -> None:
    assert type(cursor).read(cursor.spell()) == cursor


@pytest.mark.parametrize(
    "raw", ["", "1", ".s", "1.", "-1.s", "+1.s", "1 .s", f"{LAST + 1}.s", "١.s", "1.a\0", "1.\ud800", "1." + "x" * 513, None, 7, b"1.s"]
)
def test_a_text_that_is_no_cursor_of_sessions_is_unreadable(raw: object) -> None:
    assert isinstance(SessionCursor.read(raw), Unreadable)


@pytest.mark.parametrize("raw", ["", "1.2", "1.2.3.4", "1.2.", "a.2.3", "1.-2.3", f"1.2.{LAST + 1}", "1.2.3\n", None, 7])
def test_a_text_that_is_no_cursor_of_events_is_unreadable(raw: object) -> None:
    assert isinstance(EventCursor.read(raw), Unreadable)
