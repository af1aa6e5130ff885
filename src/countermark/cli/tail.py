"""``countermark tail``: what came in last, of all sessions."""

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption
from countermark.cli.session_reading import FollowOption, LimitOption


def tail(limit: LimitOption = 20, follow: FollowOption = False, store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """Show the events that were received last, and with --follow those that come in."""
    from countermark.cli.context import settings
    from countermark.cli.session_reading import following, not_as_json, opened
    from countermark.lines.pages import NO_SESSION
    from countermark.lines.sessions import EVENT_COLUMNS, event_row, event_row_document
    from countermark.lines.texts import plain

    not_as_json(follow, as_json)
    chosen = settings(store_url=store)
    with opened(chosen) as sessions:
        latest = sessions.latest()
        found = sessions.tail(max(latest - limit, 0), limit)
        rows = tuple((plain(each.session, 80), *event_row(each)) for each in found)
        blocks = (Table(("session", *EVENT_COLUMNS), rows),) if rows else (Lines((NO_SESSION,)),)
        if follow:
            following(sessions, Answer({}, blocks, warnings=chosen.warnings), latest)
    return Answer({"events": [event_row_document(each) for each in found]}, blocks, warnings=chosen.warnings)
