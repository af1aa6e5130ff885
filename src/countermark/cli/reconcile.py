"""``countermark reconcile``: look, conclude, say what should happen, and do it where that was asked for."""

from typing import Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines
from countermark.cli.options import JsonOption, StoreOption


def reconcile(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id, or 8 or more of its first digits.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Reconcile every open run.")] = False,
    act: Annotated[bool, typer.Option("--act", help="Do what the verdict asks for: dispatch, stop, resume, relaunch.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking (and acting) until waiting changes nothing.")] = False,
    retries: Annotated[int, typer.Option("--retries", metavar="N", min=0, help="How often an attempt may be made again from nothing.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Look at every axis, fold to a verdict and say what should happen; --act does it."""
    from countermark.cli.context import settings
    from countermark.cli.failures import WrongCall
    from countermark.cli.running import found, opened
    from countermark.cli.watching import about, each_of, everything, followed, nothing, once
    from countermark.lines.texts import JsonValue

    if (run is None) != every:
        raise WrongCall("name one run, or --all of them", "countermark reconcile RUN|--all [--act] [--watch] [--retries N]")
    chosen = settings(store_url=store)
    allowed = everything if act else nothing
    turn = followed if watch else once
    with opened(chosen) as ports:
        if run is not None:
            run_id = found(ports, run).run_id
            with about(run_id):
                return turn(ports, run_id, retries, allowed, chosen.warnings)
        answers = each_of(ports, turn, retries, allowed)
    documents: list[JsonValue] = [{"ok": answer.code == 0, **answer.document} for answer in answers]
    blocks = tuple(block for answer in answers for block in answer.blocks) or (Lines(("no run is open",)),)
    defects = tuple(defect for answer in answers for defect in answer.defects)
    return Answer({"runs": documents}, blocks, defects, chosen.warnings, REFUSED if defects else 0)
