"""``countermark resume``: go on from an admitted checkpoint, because a person said so."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import JsonOption, RunArgument, StoreOption


def resume(
    run: RunArgument,
    step: Annotated[int | None, typer.Option("--from", metavar="STEP", min=0, help="Its step; by default the newest.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Start it and return, without watching until a verdict.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Go on from an admitted checkpoint of a run that ended without success."""
    from countermark.app.running import resume_run
    from countermark.cli.context import settings
    from countermark.cli.failures import CallRefused
    from countermark.cli.progress import say
    from countermark.cli.running import found, opened
    from countermark.cli.watching import watched
    from countermark.lines.defects import known
    from countermark.values import Refused

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        record = found(ports, run)
        acted = resume_run(ports, record.run_id, step)
        if isinstance(acted, Refused):
            raise CallRefused(known(acted.defects))
        for line in acted.lines:
            say(line)
        return watched(ports, record, chosen.warnings, wait=not no_wait)
