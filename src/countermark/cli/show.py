"""``countermark show``: a session and its events, page by page."""

from time import time_ns
from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines
from countermark.cli.options import JsonOption, StoreOption
from countermark.cli.session_reading import CursorOption, FollowOption, LimitOption

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
    from countermark.lines.pages import events_page

    not_as_json(follow, as_json)
    chosen = settings(store_url=store)
    with opened(chosen) as sessions:
        latest = sessions.latest()
        listed, page = of(show_events(sessions, session, cursor, limit))
        told = events_page(listed, page, sessions.conflicts(listed.id), time_ns(), chosen.session_idle_s)
        more = () if page.next is None else (Lines((f"more: --cursor {page.next.spell()}",)),)
        blocks = (*told.blocks, *more)
        if follow:
            following(sessions, Answer({}, blocks, warnings=chosen.warnings), latest, listed.id)
    return Answer(told.document, blocks, warnings=chosen.warnings)
