"""Sentences for what a ledger refuses: rows that do not follow from their material, names that are taken, fields that cannot be kept."""

from countermark.lines.sentence import Sentence, quoted, short
from countermark.lines.texts import listed
from countermark.run.records import (
    DemandNamesAnotherWork,
    FieldUnwritable,
    LedgerOutOfOrder,
    RowDefect,
    RowUnreadable,
    RunIdRowMismatch,
    RunUnknown,
    SlotRowMismatch,
    SweepDamaged,
    SweepIdTaken,
    SweepUnknown,
    WorkKeyRowMismatch,
)

RecordDefect = DemandNamesAnotherWork | RunUnknown | FieldUnwritable | RowDefect | SweepUnknown | SweepIdTaken | SweepDamaged

_RESTORE = "something else wrote to the store: keep a copy, see all of it with countermark store check, and restore a backup"


def record_sentence(defect: RecordDefect) -> Sentence:
    match defect:
        case DemandNamesAnotherWork(run, recorded, demanded):
            # Keys that differ in the principal alone are spelled alike.
            there, here = (f"{key.spell()} under the account {key.principal}" for key in (recorded, demanded))
            return Sentence(
                f"this request's name belongs to run {short(run)}, which is for {there}; this recipe is {here}",
                "choose another name with --request, or leave it out to have it named by the work",
            )
        case RunUnknown(run):
            return Sentence(f"there is no run {quoted(run)} in this store", "list what there is: countermark runs")
        case FieldUnwritable(field, why):
            return Sentence(f"{field} cannot be recorded as it is, because {why}", f"change {field} and call again; nothing was recorded")
        case RowUnreadable(table, row, why):
            return Sentence(f"row {quoted(row)} of the ledger's {table} cannot be read, because {why}", _RESTORE)
        case WorkKeyRowMismatch(run, recorded, derived):
            return Sentence(f"run {short(run)} is recorded with {quoted(recorded)}, and its manifest derives {derived}", _RESTORE)
        case RunIdRowMismatch(run, derived):
            return Sentence(f"run {quoted(run)} is recorded under an id that its demand does not give ({derived})", _RESTORE)
        case SlotRowMismatch(run, attempt, recorded, derived):
            return Sentence(
                f"attempt {short(attempt)} of run {short(run)} is claimed at slot {quoted(recorded)}, and its transition gives {derived}",
                _RESTORE,
            )
        case LedgerOutOfOrder(run, versions):
            return Sentence(
                f"the facts of run {short(run)} are not numbered from 1 without a gap: {listed(map(str, versions[:20]))}", _RESTORE
            )
        case SweepUnknown(sweep):
            return Sentence(f"there is no sweep {quoted(sweep)} in this store", "sweep now: countermark reconcile RUN")
        case SweepIdTaken(sweep):
            return Sentence(f"another sweep was recorded as {quoted(sweep)}", "call again: a new id is drawn each time")
        case SweepDamaged(sweep, recorded, found):
            return Sentence(
                f"sweep {quoted(sweep)} was recorded with digest {recorded} and now has {found}",
                "sweep again (countermark reconcile RUN); the damaged one is kept and never used",
            )
