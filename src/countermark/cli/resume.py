"""``countermark resume``: go on from an admitted checkpoint, because a person said so."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import ByOption, JsonOption, NoWaitOption, RunArgument, StoreOption


def resume(
    run: RunArgument,
    step: Annotated[int | None, typer.Option("--from", metavar="STEP", min=0, help="Its step; by default the newest.")] = None,
    by: ByOption = None,
    no_wait: NoWaitOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Go on from an admitted checkpoint of a run that ended without success."""
    from countermark.app.deciding import resume_run
    from countermark.cli.context import settings
    from countermark.cli.running import found, opened
    from countermark.cli.watching import decided, starts
    from countermark.verdict.kinds import Converged

    chosen = settings(requester=by, store_url=store)
    with opened(chosen, acts=True) as ports:
        record = found(ports, run)
        acted = resume_run(ports, record.run_id, step, chosen.requester)
        return decided(ports, record.run_id, acted, starts, chosen.warnings, (Converged,), wait=not no_wait)
