"""``countermark store prune``: the sessions that are older than anybody wants to keep them."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.failures import WrongCall
from countermark.cli.options import JsonOption, StoreOption


def store_prune(
    keep_days: Annotated[
        int | None,
        typer.Option(
            "--keep-days", metavar="N", min=1, max=36_500, help="For how many days sessions are kept; by default as session.keep_days says."
        ),
    ] = None,
    unsent: Annotated[
        bool, typer.Option("--unsent", help="Also those of which something is still to be sent on, which is not sent any more then.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go and take out nothing, also with --yes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Take out what goes. Without it, it is only shown.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Take out sessions in which nothing happened for some days; shows first what would go."""
    import time

    from countermark.app.retention import retire, rule_of
    from countermark.cli.context import settings
    from countermark.cli.progress import removing
    from countermark.cli.session_reading import opened
    from countermark.lines.leaving import leaving_document, leaving_lines, leaving_rows

    chosen = settings(store_url=store)
    days = keep_days or chosen.session_keep_days
    if days is None:
        raise WrongCall("nothing says for how long sessions are kept", "name it: --keep-days N, or the setting session.keep_days")
    with opened(chosen) as kept:
        found = retire(kept, rule_of(days, time.time_ns(), unsent), yes and not dry_run, removing())
    document = {"store": chosen.store_shown, "keepDays": days, **leaving_document(found)}
    table = Table(("session", "events", "last", "fate"), leaving_rows(found))
    return Answer(document, (table, Lines(leaving_lines(found))), warnings=chosen.warnings)
