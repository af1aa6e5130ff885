"""``countermark search``: the events that hold some words."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines
from countermark.cli.options import JsonOption, StoreOption
from countermark.cli.session_reading import LimitOption


def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words: runs of letters and digits, all of which an event must hold.")],
    limit: LimitOption = 50,
    before: Annotated[
        int | None, typer.Option("--before", min=1, metavar="ORDINAL", help="Go on where a page ended: what was received before.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Find the events that hold every word of a text, the last received first."""
    from countermark.app.sessions import search_events
    from countermark.cli.context import settings
    from countermark.cli.session_reading import of, opened
    from countermark.lines.pages import found_page

    chosen = settings(store_url=store)
    with opened(chosen) as sessions:
        page = of(search_events(sessions, text, limit, before))
    told = found_page(page)
    more = () if page.next is None else (Lines((f"more: --before {page.next}",)),)
    return Answer(told.document, (*told.blocks, *more), warnings=chosen.warnings)
