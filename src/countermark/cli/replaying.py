"""``countermark reconcile RUN --from-sweep ID``: what a stored sweep gives now, held against what it gave then."""

from typing import TYPE_CHECKING

from countermark.cli.answers import DONE, REFUSED, Answer, Lines
from countermark.cli.failures import CallRefused
from countermark.lines.conclusion import conclusion_document, conclusion_lines
from countermark.lines.defects import known
from countermark.lines.runs import freshness_line, sweep_document
from countermark.lines.sentence import short
from countermark.lines.texts import Document, plain
from countermark.values import Refused

if TYPE_CHECKING:
    from countermark.app.replay import Replayed
    from countermark.cli.settings import Settings


def replayed(chosen: "Settings", run: str, sweep: str) -> Answer:
    """The answer for a run and the prefix of a sweep's id. Nothing but the store is opened, and it is only read."""
    from countermark.app.compare import find_run
    from countermark.app.replay import replay
    from countermark.app.stores import ledger_of
    from countermark.store.reading import open_to_read

    with open_to_read(ledger_of(chosen.store, chosen.database)) as store:
        record = find_run(store, run)
        if isinstance(record, Refused):
            raise CallRefused(known(record.defects))
        found = replay(store, record, sweep)
    if isinstance(found, Refused):
        raise CallRefused(known(found.defects), run=short(record.run_id))
    return _answer(found, chosen)


def _answer(found: "Replayed", chosen: "Settings") -> Answer:
    """A difference is a refusal with both texts; a verdict that blocks is none, because nothing was asked of the run."""
    record, differs = found.record, found.differs()
    run = short(record.run_id)
    equal = None if found.stored is None else differs is None
    document: Document = {
        "run": record.run_id,
        "name": record.context.name,
        "workKey": record.ledger.desired.demand.work.spell(),
        **conclusion_document(found.conclusion),
        "sweep": sweep_document(found.sweep_id, found.sweep.reads, found.sweep.cut),
        "replay": {
            "equal": equal,
            "replayed": found.replayed.decode(),
            "stored": None if found.stored is None else found.stored.decode("utf-8", "backslashreplace"),
        },
    }
    lines = (
        f"run {run}  {plain(record.context.name)}  {record.ledger.desired.demand.work.spell()}",
        *conclusion_lines(found.conclusion, run),
        f"sweep {found.sweep_id} {freshness_line(found.sweep.reads)}",
        *_compared(found),
    )
    return Answer(
        document, (Lines(lines),), () if differs is None else (differs,), chosen.warnings, DONE if differs is None else REFUSED, run
    )


def _compared(found: "Replayed") -> tuple[str, ...]:
    differs = found.differs()
    if differs is not None:
        stored, replayed = differs.stored.splitlines(), differs.replayed.splitlines()
        return (*(f"stored: {line}" for line in stored), *(f"replayed: {line}" for line in replayed))
    if found.stored is None:
        return ("no verdict was stored with this sweep, so there is nothing to compare this one with",)
    return ("this is the verdict that was stored with the sweep, byte for byte",)
