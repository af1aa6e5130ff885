"""``countermark checkpoint inspect``: what a checkpoint holds, and everything that speaks against going on from it."""

from typing import Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption


def checkpoint_inspect(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="A checkpoint's folder.")],
    target: Annotated[
        str | None, typer.Option("--for", metavar="RECIPE|RUN", help="The recipe or run that is to go on; by default what it says itself.")
    ] = None,
    vouch: Annotated[bool, typer.Option("--vouch", help="You know that its writer had finished: recorded as such.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Show components, digests and step witnesses, and every defect."""
    from countermark.app.inspect import inspect_checkpoints
    from countermark.cli.context import settings
    from countermark.cli.failures import CallRefused
    from countermark.lines.checkpoint import component_rows, document_of, verdict_lines
    from countermark.lines.defects import AnyDefect, defect_documents, known, sentence
    from countermark.lines.texts import counted
    from countermark.run.checkpoint import CheckpointReadback
    from countermark.values import Refused

    chosen = settings(store_url=store)
    found = inspect_checkpoints(tuple(paths), target, vouch, chosen.store, chosen.database)
    if isinstance(found, Refused):
        raise CallRefused(known(found.defects))
    blocks: list[Lines | Table] = []
    defects: list[AnyDefect] = []
    for inspected in found:
        blocks.append(Lines(verdict_lines(inspected)))
        if isinstance(inspected.readback, CheckpointReadback):
            blocks.append(Table(("component", "state", "step", "size", "digest"), component_rows(inspected.readback)))
        against = inspected.defects()
        defects.extend(against)
        blocks.append(Lines(tuple(f"{type(each).__name__}: {sentence(each).message}" for each in against)))
    document = document_of(found, {at: defect_documents(inspected.defects()) for at, inspected in enumerate(found)})
    bad = sum(bool(inspected.defects()) for inspected in found)
    summary = f"{bad} of {counted(len(found), 'checkpoint')} cannot be resumed from; --json says what to do about each defect"
    return Answer(document, tuple(blocks), tuple(defects), chosen.warnings, REFUSED if defects else 0, summary=summary if defects else None)
