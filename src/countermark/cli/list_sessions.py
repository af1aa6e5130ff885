"""``countermark list``: the sessions of the store."""

from time import time_ns
from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption
from countermark.cli.session_reading import CursorOption, LimitOption

WhereOption = Annotated[
    str | None, typer.Option("--where", metavar="FILTER", help="Only those for which this holds, as in: weights.edits > 0")
]


def list(  # what a user calls it
    where: WhereOption = None, limit: LimitOption = 50, cursor: CursorOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> Answer:
    """List the sessions of the store, those that changed last first."""
    from countermark.app.sessions import list_sessions
    from countermark.cli.context import settings
    from countermark.cli.session_reading import EMPTY, of, opened
    from countermark.lines.sessions import SESSION_COLUMNS, session_document, session_row

    chosen = settings(store_url=store)
    with opened(chosen) as sessions:
        page = of(list_sessions(sessions, where, limit, cursor))
    now, idle_s = time_ns(), chosen.session_idle_s
    rows = tuple(session_row(each, now, idle_s) for each in page.items)
    nothing = EMPTY if where is None and cursor is None else "no session"
    more = () if page.next is None else (Lines((f"more: --cursor {page.next.spell()}",)),)
    blocks = (Table(SESSION_COLUMNS, rows), *more) if rows else (Lines((nothing,)),)
    document = {
        "sessions": [session_document(each, now, idle_s) for each in page.items],
        "next": None if page.next is None else page.next.spell(),
    }
    return Answer(document, blocks, warnings=chosen.warnings)
