"""``countermark checkpoint prune``: the last admitted checkpoints of a folder stay, and what they make superfluous goes."""

from pathlib import Path
from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import FreshOption, JsonOption, StoreOption


def checkpoint_prune(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder of checkpoints, for example an attempt's checkpoints folder.")],
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=0, help="How many admitted checkpoints of each computation stay.")],
    target: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="RECIPE|RUN", help="What they are held against; by default the run in whose folder they lie, or what they say."
        ),
    ] = None,
    vouch: Annotated[bool, typer.Option("--vouch", help="You know that their writers had finished, so that they count.")] = False,
    torn: Annotated[bool, typer.Option("--torn", help="Torn ones go as well, where an admitted one is newer.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and delete nothing, also with --yes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what the plan lets go. Without it the plan is shown.")] = False,
    fresh: FreshOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Delete old checkpoints, never the last admitted one; shows the plan first."""
    from countermark.app.inspect import told_instead
    from countermark.app.prune import PruneAsked, prune_checkpoints
    from countermark.cli.context import digest_cache, existing_folder, settings
    from countermark.cli.failures import CallRefused, WrongCall
    from countermark.cli.progress import say, watched_hashing
    from countermark.lines.defects import defect_documents, known
    from countermark.lines.retention import pruning_document, pruning_lines, pruning_rows
    from countermark.values import Refused, shown

    if instead := told_instead(Path(existing_folder(path, "a folder of checkpoints"))):
        raise WrongCall(f"{shown(path)} is no folder of checkpoints{instead}", "name a folder of checkpoints")
    chosen = settings(store_url=store)
    cache = digest_cache(fresh)
    found = prune_checkpoints(
        PruneAsked(path, keep, target, vouch, torn),
        chosen.store,
        chosen.database,
        act=yes and not dry_run,
        told=lambda name: say(f"taking away {name}"),
        cache=cache,
        progress=watched_hashing("checkpoints"),
    )
    if isinstance(found, Refused):
        raise CallRefused(known(found.defects))
    against = {held.name: tuple(held.answer.defects) if isinstance(held.answer, Refused) else () for held, _ in found.plan.fates}
    document = pruning_document(found, {name: defect_documents(defects) for name, defects in against.items()})
    table = Table(("checkpoint", "size", "fate", "why"), pruning_rows(found))
    warnings = (*chosen.warnings, *known(cache.warnings), *known(cache.disagreed))
    return Answer(document, (table, Lines(pruning_lines(found))), warnings=warnings)
