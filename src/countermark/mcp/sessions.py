"""The tools of sessions, and the addresses at which a session and an event are read."""

from dataclasses import replace
from typing import Final
from urllib.parse import quote

from countermark.app.sessions import list_sessions, search_events, show_events
from countermark.lines.pages import events_page, found_page, sessions_page
from countermark.lines.serving import ParameterUnfit
from countermark.lines.sessions import event_row_document, session_document
from countermark.lines.texts import Document
from countermark.mcp.arguments import Given
from countermark.mcp.bounds import PAYLOAD_BYTES_MAX, taken
from countermark.mcp.cursors import Place
from countermark.mcp.desk import Desk, Told, Watch
from countermark.sessions.records import EventCursor, EventPage, Page, SessionCursor, SessionListed, StoredEvent
from countermark.values import NonEmpty, Refused

_CONFLICTS_MAX: Final = 20


def session_uri(session: str) -> str:
    return f"countermark://sessions/{quote(session, safe='')}"


def event_uri(ordinal: int) -> str:
    return f"countermark://events/{ordinal}"


def place_of(desk: Desk, tool: str, given: Given) -> Place | None | ParameterUnfit:
    """Where a call goes on; None where it begins."""
    cursor = given.text("cursor")
    return None if cursor is None else desk.cursors.read(tool, given.asked(), cursor)


def more_line(cursor: str | None) -> tuple[str, ...]:
    return () if cursor is None else (f"more: cursor {cursor}",)


def sessions_list(desk: Desk, given: Given, watch: Watch) -> Told | Refused[object]:
    place = place_of(desk, "sessions_list", given)
    if isinstance(place, ParameterUnfit):
        return Refused(NonEmpty(place))
    after = None if place is None else SessionCursor(int(place[0]), str(place[1])).spell()
    with desk.open_sessions() as store:
        page = list_sessions(store, given.text("where"), given.limit, after)
    if isinstance(page, Refused):
        return Refused(page.defects)
    now_ns = desk.now_ns()
    items, _ = taken(page.items, lambda each: session_document(each, now_ns, desk.idle_s))
    last = page.next if len(items) == len(page.items) else SessionCursor(items[-1].updated_ns, items[-1].id)
    following = None if last is None else desk.cursors.spell("sessions_list", given.asked(), (last.updated_ns, last.session))
    shown = sessions_page(Page(items, last), now_ns, desk.idle_s, given.text("where") is not None or place is not None)
    return Told({**shown.document, "next": following}, shown.blocks, more=more_line(following))


def session_get(desk: Desk, given: Given, watch: Watch) -> Told | Refused[object]:
    asked = given.text("session") or ""
    place = place_of(desk, "session_get", given)
    if isinstance(place, ParameterUnfit):
        return Refused(NonEmpty(place))
    after = None if place is None else EventCursor(*map(int, place)).spell()
    with desk.open_sessions() as store:
        found = show_events(store, asked, after, given.limit)
        if isinstance(found, Refused):
            return Refused(found.defects)
        listed, page = found
        conflicts = store.conflicts(listed.id)[:_CONFLICTS_MAX]
    events, documents = taken(page.events, _event)
    following = page.next if len(events) == len(page.events) else _after(events[-1], page.first + len(events) - 1)
    cursor = (
        None
        if following is None
        else desk.cursors.spell("session_get", given.asked(), (following.when_ns, following.ordinal, following.passed))
    )
    shown = events_page(listed, EventPage(events, page.first, page.total, following), conflicts, desk.now_ns(), desk.idle_s)
    document = {**shown.document, "uri": session_uri(listed.id), "events": list(documents), "next": cursor}
    return Told(document, shown.blocks, more=more_line(cursor))


def _after(event: StoredEvent, passed: int) -> EventCursor:
    return EventCursor(event.when_ns, event.ordinal, passed)


def _event(stored: StoredEvent) -> Document:
    """An event as every document has it; what is long is named by the address at which it is read."""
    document = event_row_document(stored)
    size_bytes = len(stored.event.payload.text.encode("utf-8", "replace"))
    if size_bytes <= PAYLOAD_BYTES_MAX:
        return document
    return {**document, "payload": None, "payloadUri": event_uri(stored.ordinal), "payloadBytes": size_bytes}


def search(desk: Desk, given: Given, watch: Watch) -> Told | Refused[object]:
    place = place_of(desk, "search", given)
    if isinstance(place, ParameterUnfit):
        return Refused(NonEmpty(place))
    with desk.open_sessions() as store:
        page = search_events(store, given.text("text") or "", given.limit, None if place is None else int(place[0]))
    if isinstance(page, Refused):
        # A parameter has another name here.
        return Refused(NonEmpty(replace(next(iter(page.defects)), parameter="text")))
    items, documents = taken(page.items, _event)
    last = page.next if len(items) == len(page.items) else items[-1].ordinal
    cursor = None if last is None else desk.cursors.spell("search", given.asked(), (last,))
    shown = found_page(Page(items, last))
    return Told({"events": list(documents), "next": cursor}, shown.blocks, more=more_line(cursor))


def some_sessions(desk: Desk, cursor: str | None, limit: int) -> tuple[tuple[SessionListed, ...], str | None] | Refused[object]:
    """Sessions that have an address, the last changed first, and where to go on."""
    place: Place | None | ParameterUnfit = None if cursor is None else desk.cursors.read("resources", {}, cursor)
    if isinstance(place, ParameterUnfit):
        return Refused(NonEmpty(place))
    after = None if place is None else SessionCursor(int(place[0]), str(place[1])).spell()
    with desk.open_sessions() as store:
        page = list_sessions(store, None, limit, after)
    if isinstance(page, Refused):
        return Refused(page.defects)
    last = page.next
    return page.items, None if last is None else desk.cursors.spell("resources", {}, (last.updated_ns, last.session))


def payload_of(desk: Desk, ordinal: int) -> str | None:
    """The payload of the event with this number, as it is stored; None where there is none."""
    with desk.open_sessions() as store:
        found = store.tail(ordinal - 1, 1)
    return next((each.event.payload.text for each in found if each.ordinal == ordinal), None)
