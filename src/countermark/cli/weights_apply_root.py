"""``countermark weights apply-root``: the root that recorded edits make of a base, without reading a model that was edited."""

from typing import Annotated

import typer

from countermark.cli.answers import REFUSED, Answer, Lines, known_defects
from countermark.cli.options import FreshOption, JsonOption, StoreOption


def weights_apply_root(
    base: Annotated[str, typer.Argument(metavar="BASE", help="What the edits began at: weights, or the lines of their root.")],
    events: Annotated[
        list[str],
        typer.Argument(metavar="EVENTS...", help="Files of events, or sessions of the store, in the order in which they were recorded."),
    ],
    fresh: FreshOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Derive the root that recorded edits make of a base, or name every edit that does not fit."""
    from countermark.app.weights import apply_root
    from countermark.cli.context import digest_cache, existing_path
    from countermark.cli.failures import CallRefused
    from countermark.cli.progress import hashing
    from countermark.cli.weights_events import claimed_edits
    from countermark.lines.texts import counted, number
    from countermark.values import Refused

    cache = digest_cache(fresh)
    claimed = claimed_edits(events, store)
    found = apply_root(existing_path(base, "a folder of weights or one file of them"), claimed, cache, hashing(base))
    if isinstance(found, Refused):
        raise CallRefused(known_defects(found.defects))
    lines = (found.root.spell(), f"{counted(found.edits, 'edit')} of {counted(found.edited, 'tensor')} on {found.base.spell()}")
    document = {"base": found.base.spell(), "root": found.root.spell(), "edits": number(found.edits), "edited": number(found.edited)}
    defects = known_defects(cache.disagreed)
    return Answer(document, (Lines(lines),), defects, known_defects(cache.warnings), REFUSED if defects else 0)
