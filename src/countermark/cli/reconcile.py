"""``countermark reconcile``: look, conclude, say what should happen, and do it where that was asked for."""

from typing import Annotated, Final

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import JsonOption, StoreOption

_USAGE: Final = "countermark reconcile RUN|--all [--act] [--watch [--stay]] [--retries N]"
_REPLAY: Final = "countermark reconcile RUN --from-sweep ID"


def reconcile(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id, or 8 or more of its first digits.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Reconcile every open run.")] = False,
    act: Annotated[bool, typer.Option("--act", help="Do what the verdict asks for: dispatch, stop, resume, relaunch.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking (and acting) until waiting changes nothing.")] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="With --all --watch: go on for the runs that come later, until interrupted.")
    ] = False,
    retries: Annotated[int, typer.Option("--retries", metavar="N", min=0, help="How often an attempt may be made again from nothing.")] = 0,
    from_sweep: Annotated[
        str | None,
        typer.Option(
            "--from-sweep", metavar="ID", help="Conclude once more from a stored sweep, and compare; nothing is looked at or written."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Look at every axis, fold to a verdict and say what should happen; --act does it."""
    from countermark.app.patience import PATIENCE_S, STAYING_S, patiently
    from countermark.cli.context import settings
    from countermark.cli.every import every_run
    from countermark.cli.failures import WrongCall
    from countermark.cli.progress import say
    from countermark.cli.running import found, opened
    from countermark.cli.watching import about, everything, followed, nothing, once

    if from_sweep is not None:
        from countermark.cli.replaying import replayed

        if run is None or every or act or watch or stay or retries:
            raise WrongCall("--from-sweep takes one RUN, and nothing is done from an old look", _REPLAY)
        if len(from_sweep) < 8:
            raise WrongCall("--from-sweep takes 8 or more digits of a sweep's id", _REPLAY)
        return replayed(settings(store_url=store), run, from_sweep)
    if (run is None) != every:
        raise WrongCall("name one run, or --all of them", _USAGE)
    if stay and not (every and watch):
        raise WrongCall("--stay keeps a controller of all runs watching", _USAGE)
    chosen = settings(store_url=store)
    allowed = everything if act else nothing
    patience_s = (STAYING_S if stay else PATIENCE_S) if watch else 0.0
    with opened(chosen, acts=act, patience_s=patience_s) as ports:
        if run is None:
            return every_run(ports, retries, allowed, chosen.warnings, act, watch, stay)
        run_id = patiently(lambda: found(ports, run), say, patience_s).run_id
        with about(run_id):
            return (followed if watch else once)(ports, run_id, retries, allowed, chosen.warnings)
