"""From a command line to a recorded demand."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from countermark.cli.failures import CallRefused, WrongCall
from countermark.cli.progress import say
from countermark.lines.defects import AnyDefect, known
from countermark.lines.sentence import short
from countermark.lines.surface import CommandDiffers
from countermark.run.claims import Launcher
from countermark.run.records import RunContext, RunRecord
from countermark.values import Principal, Refused, Request, Unreadable, shown

if TYPE_CHECKING:
    from countermark.app.ports import Ports
    from countermark.app.recipes import Resolved
    from countermark.cli.settings import Settings


def environment(given: Sequence[str] | None) -> dict[str, str]:
    """The named variables: ``NAME=VALUE`` as it stands, ``NAME`` as it is set here."""
    found: dict[str, str] = {}
    for each in given or ():
        name, sign, value = each.partition("=")
        if not name or "\0" in each:
            raise WrongCall(f"--env {shown(each)} names no variable", "write --env NAME or --env NAME=VALUE")
        if not sign and name not in os.environ:
            raise WrongCall(f"--env {shown(name)} is not set here", f"set it, or write --env {name}=VALUE")
        found[name] = value if sign else os.environ[name]
    return found


def demanded(
    ports: "Ports", found: "Resolved", chosen: "Settings", request: str | None, command: tuple[str, ...], variables: dict[str, str]
) -> tuple[RunRecord, tuple[AnyDefect, ...]]:
    """The run of the demand, recorded now or attached to, with what there is to warn of."""
    from countermark.app.running import demand_run

    name = None if request is None else Request.read(request)
    if isinstance(name, Unreadable):
        raise WrongCall(f"--request {shown(request)} cannot name a demand, because {name.why}", "write --request NAME")
    context = RunContext(
        name=found.name,
        sources=found.sources,
        trainer=found.trainer,
        argv=command,
        cwd=str(Path.cwd()),
        env=variables,
        launcher=cast(Launcher, chosen.launcher),
        receipts=found.receipts(),
    )
    answer = demand_run(ports, found.resolution, found.work_key, Principal(chosen.requester), name, context)
    if isinstance(answer, Refused):
        raise CallRefused(known(answer.defects))
    said = "attached to run" if answer.attached else "recorded run"
    say(f"{said} {short(answer.record.run_id)}: {answer.record.ledger.desired.demand.work.spell()}")
    differs = (CommandDiffers(answer.record.context.argv, command),) if answer.other_command else ()
    return answer.record, differs
