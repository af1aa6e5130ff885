"""``countermark retry``: an attempt is made again, because a person said so."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import ByOption, JsonOption, NoWaitOption, RunArgument, StoreOption


def retry(
    run: RunArgument,
    capability: Annotated[
        str | None, typer.Option("--capability", metavar="NAME", help="What the next attempt is given that the last one lacked.")
    ] = None,
    from_nothing: Annotated[
        bool, typer.Option("--from-nothing", help="Begin at the base artifact, also where a checkpoint could be gone on from.")
    ] = False,
    by: ByOption = None,
    no_wait: NoWaitOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Make an attempt again after every attempt ended without success, or was lost."""
    from countermark.app.deciding import retry_run
    from countermark.cli.context import named, settings
    from countermark.cli.running import found, opened
    from countermark.cli.watching import decided, starts
    from countermark.verdict.kinds import Converged

    chosen = settings(requester=by, store_url=store)
    given = named(capability, "--capability", "a capability")
    with opened(chosen, acts=True) as ports:
        record = found(ports, run)
        acted = retry_run(ports, record.run_id, given, from_nothing, chosen.requester)
        return decided(ports, record.run_id, acted, starts, chosen.warnings, (Converged,), wait=not no_wait)
