"""``countermark status``: where a run stands, by a sweep made now; without RUN, what needs somebody."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer, Lines, Table
from countermark.cli.options import JsonOption, StoreOption


def status(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id, or 8 or more of its first digits.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> Answer:
    """Say where a run stands and why; without RUN, what needs you."""
    from countermark.app.running import look_at, open_runs
    from countermark.cli.context import settings
    from countermark.cli.failures import CallRefused
    from countermark.cli.progress import sweeping
    from countermark.cli.running import concluded, found, opened
    from countermark.lines.defects import known
    from countermark.lines.runs import RUN_COLUMNS, run_document, run_row, verdict_word
    from countermark.lines.texts import JsonValue
    from countermark.values import Refused

    chosen = settings(store_url=store)
    with opened(chosen) as ports:
        if run is None:
            waiting = open_runs(ports)
            nothing = (Lines(("no run is open: every one has converged or was cancelled",)),)
            rows = tuple((*run_row(each.summary), verdict_word(each.arm, each.damage)) for each in waiting)
            documents: list[JsonValue] = [{**run_document(each.summary, each.damage), "verdict": each.arm or None} for each in waiting]
            blocks = (Table((*RUN_COLUMNS, "verdict"), rows),) if waiting else nothing
            return Answer({"runs": documents}, blocks, warnings=chosen.warnings)
        looked = look_at(ports, found(ports, run).run_id, sweeping())
        if isinstance(looked, Refused):
            raise CallRefused(known(looked.defects))
        return concluded(looked, (), chosen.warnings)
