"""``countermark reexecute``: work that was done is done once more, because a person said so."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import ByOption, JsonOption, NoWaitOption, RunArgument, StoreOption


def reexecute(
    run: RunArgument,
    request: Annotated[
        str | None, typer.Option("--request", metavar="NAME", help="This request's name; by default again-1, again-2 and so on.")
    ] = None,
    by: ByOption = None,
    no_wait: NoWaitOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Do the work of a run at rest once more, from nothing, and say whether the weights are equal."""
    from countermark.app.deciding import reexecute_run
    from countermark.cli.context import named, settings
    from countermark.cli.running import found, opened
    from countermark.cli.watching import decided, starts
    from countermark.verdict.kinds import Converged, SeveralCandidates

    chosen = settings(requester=by, store_url=store)
    name = named(request, "--request", "a request")
    with opened(chosen, acts=True) as ports:
        record = found(ports, run)
        acted = reexecute_run(ports, record.run_id, name, chosen.requester)
        return decided(ports, record.run_id, acted, starts, chosen.warnings, (Converged, SeveralCandidates), wait=not no_wait)
