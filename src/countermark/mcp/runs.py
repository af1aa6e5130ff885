"""The tools of runs. Neither looks at a run anew: what the last look saw is told, with how long ago it was."""

from typing import Final

from countermark.app.compare import find_run
from countermark.app.replay import replay, replayed_document, replayed_lines
from countermark.app.running import runs_in
from countermark.lines.blocks import Lines
from countermark.lines.defects import AnyDefect
from countermark.lines.pages import runs_page
from countermark.lines.runs import run_document
from countermark.lines.sentence import short
from countermark.lines.serving import ParameterUnfit
from countermark.lines.texts import Document, plain
from countermark.mcp.arguments import Given
from countermark.mcp.bounds import taken
from countermark.mcp.desk import Desk, Told, Watch
from countermark.mcp.sessions import more_line, place_of
from countermark.run.records import RunRecord
from countermark.store.reading import open_to_read
from countermark.values import NonEmpty, Refused

_NEVER: Final = "nobody has looked at this run yet: countermark reconcile {run}"


def runs_list(desk: Desk, given: Given, watch: Watch) -> Told | Refused[object]:
    place = place_of(desk, "runs_list", given)
    if isinstance(place, ParameterUnfit):
        return Refused(NonEmpty(place))
    where = given.text("where")
    with open_to_read(desk.address) as store:
        found = runs_in(store, where)
    if isinstance(found, Refused):
        return Refused(found.defects)
    left = found
    if place is not None:
        # Runs are never taken out, and new ones stand before.
        at = next((at for at, each in enumerate(found) if each.run_id == place[0]), len(found))
        left = found[at + 1 :]
    rows, _ = taken(left[: given.limit], run_document)
    cursor = desk.cursors.spell("runs_list", given.asked(), (rows[-1].run_id,)) if len(rows) < len(left) else None
    shown = runs_page(rows, where is not None or place is not None)
    return Told({**shown.document, "total": len(found), "next": cursor}, shown.blocks, more=more_line(cursor))


def run_status(desk: Desk, given: Given, watch: Watch) -> Told | Refused[object]:
    with open_to_read(desk.address) as store:
        record = find_run(store, given.text("run") or "")
        if isinstance(record, Refused):
            return record
        latest = store.latest_sweep(record.run_id)
        if isinstance(latest, Refused):
            return Refused(latest.defects)
        if latest is None:
            return _unseen(record)
        found = replay(store, record, latest.sweep_id)
    if isinstance(found, Refused):
        return found
    differs = found.differs()
    defects: tuple[AnyDefect, ...] = () if differs is None else (differs,)
    return Told(replayed_document(found), (Lines(replayed_lines(found)),), defects)


def _unseen(record: RunRecord) -> Told:
    work = record.ledger.desired.demand.work.spell()
    document: Document = {"run": record.run_id, "name": record.context.name, "workKey": work, "verdict": None}
    name = short(record.run_id)
    return Told(document, (Lines((f"run {name}  {plain(record.context.name)}  {work}", _NEVER.format(run=name))),))
