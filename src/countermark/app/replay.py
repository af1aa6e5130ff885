"""Replaying a stored sweep: the conclusion that follows from it now, held against the text that was stored with it.

Rules kept here:

1. Nothing is looked at but the store, and nothing is written: no observer, no launcher, no clock.
2. The document is read as what it is: damaged, unreadable or another run's, it is refused by name and concludes nothing.
3. Texts are compared byte for byte. What differs is shown whole on both sides, since either side may be the one that is right.
"""

from dataclasses import dataclass
from typing import final

from countermark.app.compare import PREFIX_MIN
from countermark.lines.conclusion import conclusion_document, conclusion_lines, conclusion_text
from countermark.lines.rulings import SweepOfAnotherRun, VerdictDiffers
from countermark.lines.runs import freshness_line, sweep_document
from countermark.lines.sentence import short
from countermark.lines.surface import SeveralNamed, SweepUndecodable
from countermark.lines.texts import Document, plain
from countermark.run.demand import subject_of
from countermark.run.records import RunRecord, StoredSweep, SweepUnknown
from countermark.store import Store
from countermark.values import NonEmpty, Refused
from countermark.verdict import Conclusion, Sweep, conclude
from countermark.wire.sweep import SweepUnreadable, decode_sweep


@final
@dataclass(frozen=True, slots=True)
class Replayed:
    """A stored sweep and what follows from it now. ``stored``: the text of the verdict that was stored with it last; None where the
    controller died before it stored one."""

    record: RunRecord
    sweep_id: str
    sweep: Sweep
    conclusion: Conclusion
    replayed: bytes
    stored: bytes | None

    def differs(self) -> VerdictDiffers | None:
        """The two texts, where they are not the same bytes."""
        if self.stored is None or self.stored == self.replayed:
            return None
        return VerdictDiffers(self.sweep_id, *(text.decode("utf-8", "backslashreplace") for text in (self.stored, self.replayed)))


def replay(store: Store, record: RunRecord, text: str) -> Replayed | Refused[object]:
    """Conclude once more from the run's sweep that 8 or more digits of its id name."""
    found = _named(store, record.run_id, text)
    if isinstance(found, Refused):
        return found
    sweep = decode_sweep(found.document)
    if isinstance(sweep, SweepUnreadable):
        return Refused(NonEmpty(SweepUndecodable(found.sweep_id, sweep.why)))
    if subject_of(sweep.ledger.desired) != subject_of(record.ledger.desired):
        looked_at = sweep.ledger.desired.demand.id.run_id()
        return Refused(NonEmpty(SweepOfAnotherRun(found.sweep_id, looked_at, record.run_id)))
    conclusion = conclude(sweep)
    if isinstance(conclusion, Refused):
        return Refused(conclusion.defects)
    verdicts = store.verdicts(found.sweep_id)
    stored = verdicts[-1].text if verdicts else None
    return Replayed(record, found.sweep_id, sweep, conclusion, conclusion_text(conclusion), stored)


def replayed_document(found: Replayed) -> Document:
    """The run with what follows from the sweep, and both texts."""
    record, differs = found.record, found.differs()
    return {
        "run": record.run_id,
        "name": record.context.name,
        "workKey": record.ledger.desired.demand.work.spell(),
        **conclusion_document(found.conclusion),
        "sweep": sweep_document(found.sweep_id, found.sweep.reads, found.sweep.cut),
        "replay": {
            "equal": None if found.stored is None else differs is None,
            "replayed": found.replayed.decode(),
            "stored": None if found.stored is None else found.stored.decode("utf-8", "backslashreplace"),
        },
    }


def replayed_lines(found: Replayed) -> tuple[str, ...]:
    """The run with what follows from the sweep, in sentences."""
    record = found.record
    run = short(record.run_id)
    return (
        f"run {run}  {plain(record.context.name)}  {record.ledger.desired.demand.work.spell()}",
        *conclusion_lines(found.conclusion, run),
        f"sweep {found.sweep_id} {freshness_line(found.sweep.reads)}",
    )


def _named(store: Store, run_id: str, text: str) -> StoredSweep | Refused[object]:
    """The one sweep of the run that a prefix names, or why there is none. A damaged one is named as that, whosever it was."""
    ids = store.find_sweeps(text) if len(text) >= PREFIX_MIN else ()
    mine: list[StoredSweep] = []
    foreign: list[object] = []
    for sweep_id in ids:
        sweep = store.load_sweep(sweep_id)
        if isinstance(sweep, Refused):
            foreign.extend(sweep.defects)
        elif sweep.run_id == run_id:
            mine.append(sweep)
        else:
            foreign.append(SweepOfAnotherRun(sweep_id, sweep.run_id, run_id))
    if len(mine) == 1:
        return mine[0]
    if mine:
        return Refused(NonEmpty(SeveralNamed(text, tuple(sweep.sweep_id for sweep in mine))))
    found = NonEmpty.of(foreign)
    return Refused(NonEmpty(SweepUnknown(text)) if found is None else found)
