"""``countermark runs``: what the store holds."""

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption


def runs(store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """List the runs of the store, newest first."""
    from countermark.cli.context import settings
    from countermark.cli.running import opened
    from countermark.lines.runs import RUN_COLUMNS, run_documents, run_rows

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        found = tuple(reversed(ports.store.list_runs()))
    empty = (Lines(("no run is recorded yet: countermark run RECIPE -- COMMAND",)),)
    return Answer({"runs": run_documents(found)}, (Table(RUN_COLUMNS, run_rows(found)),) if found else empty, warnings=chosen.warnings)
