"""``countermark store init``: a store, here or where it is named."""

from countermark.cli.answers import Answer, Lines
from countermark.cli.options import JsonOption, StoreOption


def store_init(store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """Create a store here, and say where it lies."""
    from countermark.app.health import store_init as created
    from countermark.cli.context import settings
    from countermark.lines.texts import Document, plain

    chosen = settings(store_url=store)
    was_there = created(chosen.store, chosen.database)
    said = "there was a store already" if was_there else "created a store"
    document: Document = {"store": chosen.store_shown, "created": not was_there}
    return Answer(document, (Lines((f"{said}: {plain(chosen.store_shown)}",)),), warnings=chosen.warnings)
