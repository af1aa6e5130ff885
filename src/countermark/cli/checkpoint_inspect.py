"""``countermark checkpoint inspect``: what checkpoints hold, and everything that speaks against going on from each."""

from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import REFUSED, Answer
from countermark.cli.options import FreshOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from countermark.lines.defects import AnyDefect


def checkpoint_inspect(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="A checkpoint (a folder, or one file), or a folder of checkpoints for all of them."),
    ],
    target: Annotated[
        str | None, typer.Option("--for", metavar="RECIPE|RUN", help="The recipe or run that is to go on; by default what it says itself.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", min=0, help="Of a folder of checkpoints, the one of this step.")
    ] = None,
    vouch: Annotated[bool, typer.Option("--vouch", help="You know that its writer had finished: recorded as such.")] = False,
    fresh: FreshOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Show components, digests and step witnesses, and every defect."""
    from countermark.app.inspect import inspect_checkpoints
    from countermark.cli.context import digest_cache, settings
    from countermark.cli.failures import CallRefused
    from countermark.cli.progress import watched_hashing
    from countermark.lines.checkpoint import document_of
    from countermark.lines.defects import defect_documents, known
    from countermark.lines.inspected import inspection_blocks
    from countermark.lines.texts import counted
    from countermark.values import Refused

    # Only what is held against a run asks the store, and so the settings.
    chosen = None if target is None and store is None else settings(store_url=store)
    place = (None, None) if chosen is None else (chosen.store, chosen.database)
    cache = digest_cache(fresh)
    found = inspect_checkpoints(paths, target, vouch, *place, step=step, cache=cache, progress=watched_hashing("checkpoints"))
    if isinstance(found, Refused):
        raise CallRefused(known(found.defects))
    looked_at = found.checkpoints
    each = {at: defect_documents(inspected.defects()) for at, inspected in enumerate(looked_at)}
    alone: tuple[AnyDefect, ...] = (*known(found.shared), *known(cache.disagreed))
    defects: tuple[AnyDefect, ...] = (*(defect for inspected in looked_at for defect in inspected.defects()), *alone)
    blocks = inspection_blocks(found, alone)
    bad = sum(bool(inspected.defects()) for inspected in looked_at)
    summary = f"{bad} of {counted(len(looked_at), 'checkpoint')} cannot be resumed from; --json says what to do about each defect"
    document = document_of(found, each, cache.hashed)
    warned = (*(() if chosen is None else chosen.warnings), *known(cache.warnings))
    return Answer(document, blocks, defects, warned, REFUSED if defects else 0, summary=summary if bad else None)
