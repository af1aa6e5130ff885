"""``countermark runs``: what the store holds."""

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption


def runs(store: StoreOption = None, as_json: JsonOption = False) -> Answer:
    """List the runs of the store, newest first."""
    from countermark.cli.context import settings
    from countermark.cli.running import opened
    from countermark.lines.runs import RUN_COLUMNS, run_document, run_row

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        found = tuple(reversed(ports.store.list_runs()))
    empty = (Lines(("no run is recorded yet: countermark run RECIPE -- COMMAND",)),)
    blocks = (Table(RUN_COLUMNS, tuple(map(run_row, found))),) if found else empty
    return Answer({"runs": [run_document(each) for each in found]}, blocks, warnings=chosen.warnings)
