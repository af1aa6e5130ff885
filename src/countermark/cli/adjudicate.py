"""``countermark adjudicate``: a person rules on the conflicts that block a run."""

from typing import Annotated, Final

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import ByOption, JsonOption, RunArgument, StoreOption

_USAGE: Final = "countermark adjudicate RUN [--attempt ATTEMPT] --set-aside|--believe SOURCE --reason TEXT"


def adjudicate(
    run: RunArgument,
    attempt: Annotated[
        str | None,
        typer.Option("--attempt", metavar="ATTEMPT", help="The first digits of the attempt's id; needed where several are blocked."),
    ] = None,
    set_aside: Annotated[
        bool, typer.Option("--set-aside", help="Let the attempt count as ended without success; what of it lives is stopped.")
    ] = False,
    believe: Annotated[
        str | None,
        typer.Option("--believe", metavar="SOURCE", help="Let this source's word on how it ended stand, where terminals contradict."),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the ruling and shown with it.")] = None,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Rule on the conflicts that block a run; the ruling is recorded beside the evidence and erases nothing."""
    from countermark.app.ruling import adjudicate as ruled
    from countermark.cli.context import settings
    from countermark.cli.failures import WrongCall
    from countermark.cli.running import found, opened
    from countermark.cli.watching import decided, nothing
    from countermark.run.claims import BelieveSource, SetAside

    if set_aside == (believe is not None):
        raise WrongCall("say one of --set-aside and --believe SOURCE", _USAGE)
    if reason is None or not reason.strip():
        raise WrongCall("say why with --reason TEXT: whoever reads the ruling later was not there", _USAGE)
    chosen = settings(requester=by, store_url=store)
    ruling = SetAside() if believe is None else BelieveSource(believe)
    with opened(chosen) as ports:
        run_id = found(ports, run).run_id
        answer = ruled(ports, run_id, attempt, ruling, reason.strip(), chosen.requester)
        return decided(ports, run_id, answer, nothing, chosen.warnings, (), wait=False)
