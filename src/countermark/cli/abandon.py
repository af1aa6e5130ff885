"""``countermark abandon``: an attempt that nobody can observe is given up, because a person said so."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import ByOption, JsonOption, StoreOption


def abandon(
    attempt: Annotated[str, typer.Argument(metavar="ATTEMPT", help="An attempt's id, or 8 or more of its first digits.")],
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Give up an attempt: it is stopped where it shows up, and another one may be started for it."""
    from countermark.app.acting import Acted
    from countermark.app.deciding import abandon_attempt
    from countermark.cli.context import settings
    from countermark.cli.failures import CallRefused
    from countermark.cli.running import opened
    from countermark.cli.watching import decided, nothing
    from countermark.lines.defects import known
    from countermark.values import Refused

    chosen = settings(requester=by, store_url=store)
    with opened(chosen) as ports:
        given = abandon_attempt(ports, attempt, chosen.requester)
        if isinstance(given, Refused):
            raise CallRefused(known(given.defects))
        return decided(ports, given.run_id, Acted(given.lines), nothing, chosen.warnings, (), wait=False)
