"""What a store holds, page by page, each as a document and as blocks: the same for every surface that lists, shows and searches."""

from collections.abc import Sequence
from typing import Final

from countermark.lines.blocks import Lines, Shown, Table, table_of
from countermark.lines.runs import RUN_COLUMNS, run_document, run_row
from countermark.lines.sessions import (
    EVENT_COLUMNS,
    SESSION_COLUMNS,
    conflict_document,
    event_row,
    event_row_document,
    page_line,
    session_document,
    session_lines,
    session_row,
)
from countermark.lines.texts import Document, number, plain
from countermark.run.records import RunListed
from countermark.sessions.records import Conflict, EventPage, Page, SessionCursor, SessionListed, StoredEvent

#: What is said where no session was ever recorded.
NO_SESSION: Final = (
    "no session is recorded yet: countermark weights diff A B --record, countermark import transcript FILE, or countermark serve"
)


def sessions_page(page: Page[SessionListed, SessionCursor], now_ns: int, idle_s: float, chosen: bool) -> Shown:
    """Sessions of a list; ``chosen``: not all that there are were asked for."""
    rows = tuple(session_row(each, now_ns, idle_s) for each in page.items)
    listed = [session_document(each, now_ns, idle_s) for each in page.items]
    document: Document = {"sessions": listed, "next": None if page.next is None else page.next.spell()}
    return Shown(document, (table_of(SESSION_COLUMNS, rows, "no session" if chosen else NO_SESSION),))


def events_page(listed: SessionListed, page: EventPage, conflicts: Sequence[Conflict], now_ns: int, idle_s: float) -> Shown:
    """A session with some of its events and what is in conflict in it."""
    document: Document = {
        "session": session_document(listed, now_ns, idle_s),
        "events": [event_row_document(each) for each in page.events],
        "first": page.first,
        "total": page.total,
        "next": None if page.next is None else page.next.spell(),
        "conflicting": [conflict_document(each) for each in conflicts],
    }
    said = Lines((*session_lines(listed, now_ns, idle_s), page_line(page)))
    return Shown(document, (said, *((Table(EVENT_COLUMNS, tuple(map(event_row, page.events))),) if page.events else ())))


def found_page(page: Page[StoredEvent, int]) -> Shown:
    """Events that were searched for, with their sessions."""
    rows = tuple((plain(each.session, 80), *event_row(each)) for each in page.items)
    document: Document = {
        "events": [event_row_document(each) for each in page.items],
        "next": None if page.next is None else number(page.next),
    }
    return Shown(document, (table_of(("session", *EVENT_COLUMNS), rows, "no event holds all of these words"),))


def runs_page(found: Sequence[RunListed], chosen: bool) -> Shown:
    """Runs of a list; ``chosen``: not all that there are were asked for."""
    nothing = "no run" if chosen else "no run is recorded yet: countermark run RECIPE -- COMMAND"
    return Shown({"runs": [run_document(each) for each in found]}, (table_of(RUN_COLUMNS, tuple(map(run_row, found)), nothing),))
