"""``countermark runs``: what the store holds."""

from typing import Annotated, TypeAlias

import typer

from countermark.cli.answers import Answer, refused
from countermark.cli.options import JsonOption, StoreOption
from countermark.values import Refused

WhereOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--where", metavar="FILTER", help="Only those for which this holds, as in: closed = false AND recipe LIKE 'a%'"),
]


def runs(where: WhereOption = None, store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """List the runs of the store, newest first."""
    from countermark.app.running import list_runs
    from countermark.cli.context import settings
    from countermark.cli.running import opened
    from countermark.lines.pages import runs_page

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        found = list_runs(ports, where)
    if isinstance(found, Refused):
        return refused(tuple(found.defects))
    told = runs_page(found, where is not None)
    return Answer(told.document, told.blocks, warnings=chosen.warnings)
