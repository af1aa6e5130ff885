"""``countermark reconcile RUN --from-sweep ID``: what a stored sweep gives now, held against what it gave then."""

from typing import TYPE_CHECKING

from countermark.cli.answers import DONE, REFUSED, Answer, Lines
from countermark.cli.failures import CallRefused
from countermark.lines.defects import known
from countermark.lines.sentence import short
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
    from countermark.app.replay import replayed_document, replayed_lines

    differs = found.differs()
    lines = (*replayed_lines(found), *_compared(found))
    return Answer(
        replayed_document(found),
        (Lines(lines),),
        () if differs is None else (differs,),
        chosen.warnings,
        DONE if differs is None else REFUSED,
        short(found.record.run_id),
    )


def _compared(found: "Replayed") -> tuple[str, ...]:
    differs = found.differs()
    if differs is not None:
        stored, replayed = differs.stored.splitlines(), differs.replayed.splitlines()
        return (*(f"stored: {line}" for line in stored), *(f"replayed: {line}" for line in replayed))
    if found.stored is None:
        return ("no verdict was stored with this sweep, so there is nothing to compare this one with",)
    return ("this is the verdict that was stored with the sweep, byte for byte",)
