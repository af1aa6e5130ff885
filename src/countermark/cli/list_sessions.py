"""``countermark list``: the sessions of the store."""

from time import time_ns
from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines
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
    from countermark.cli.session_reading import of, opened
    from countermark.lines.pages import sessions_page

    chosen = settings(store_url=store)
    with opened(chosen) as sessions:
        page = of(list_sessions(sessions, where, limit, cursor))
    told = sessions_page(page, time_ns(), chosen.session_idle_s, where is not None or cursor is not None)
    more = () if page.next is None else (Lines((f"more: --cursor {page.next.spell()}",)),)
    return Answer(told.document, (*told.blocks, *more), warnings=chosen.warnings)
