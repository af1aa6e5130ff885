"""``countermark show``: a session and its events, page by page."""

from time import time_ns
from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption
from countermark.cli.session_reading import CursorOption, FollowOption, LimitOption

if TYPE_CHECKING:
    from countermark.lines.texts import Document

SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="A session's id, or 8 or more of its first characters.")]


def show(
    session: SessionArgument,
    limit: LimitOption = 200,
    cursor: CursorOption = None,
    follow: FollowOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Show what a session comes to and its events in their order, weight edits as everywhere."""
    from countermark.app.sessions import show_events
    from countermark.cli.context import settings
    from countermark.cli.session_reading import following, not_as_json, of, opened
    from countermark.lines.sessions import (
        EVENT_COLUMNS,
        conflict_document,
        event_row,
        event_row_document,
        page_line,
        session_document,
        session_lines,
    )

    not_as_json(follow, as_json)
    chosen = settings(store_url=store)
    with opened(chosen) as sessions:
        latest = sessions.latest()
        listed, page = of(show_events(sessions, session, cursor, limit))
        conflicts = sessions.conflicts(listed.id)
        now, idle_s = time_ns(), chosen.session_idle_s
        more = () if page.next is None else (Lines((f"more: --cursor {page.next.spell()}",)),)
        blocks = (
            Lines((*session_lines(listed, now, idle_s), page_line(page))),
            *((Table(EVENT_COLUMNS, tuple(map(event_row, page.events))),) if page.events else ()),
            *more,
        )
        if follow:
            following(sessions, Answer({}, blocks, warnings=chosen.warnings), latest, listed.id)
    document: Document = {
        "session": session_document(listed, now, idle_s),
        "events": [event_row_document(each) for each in page.events],
        "first": page.first,
        "total": page.total,
        "next": None if page.next is None else page.next.spell(),
        "conflicting": [conflict_document(each) for each in conflicts],
    }
    return Answer(document, blocks, warnings=chosen.warnings)
