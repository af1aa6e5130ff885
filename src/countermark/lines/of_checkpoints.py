"""Sentences for what keeps a checkpoint from being resumed from."""

from countermark.lines.sentence import Sentence, quoted, short
from countermark.lines.texts import listed, plain
from countermark.run.checkpoint import (
    AttemptElsewhere,
    AttemptNotMember,
    CheckpointAbsent,
    CheckpointDefect,
    ComponentDigestMismatch,
    ComponentForeign,
    ComponentMissing,
    ComponentStepMismatch,
    ComponentUnread,
    DataPositionMismatch,
    ManifestDiverges,
    PublicationIncomplete,
    PublicationUnobserved,
)
from countermark.run.retention import OnlyAdmittedCheckpoint, PruneUnderWay, RetentionDefect, SuccessorChanged

_OLDER = "resume from an older checkpoint: countermark checkpoint inspect on each shows which is admissible"


def checkpoint_sentence(defect: CheckpointDefect) -> Sentence:
    match defect:
        case CheckpointAbsent(path, why):
            return Sentence(f"there is no checkpoint at {quoted(path)}: {plain(why)}", "name a checkpoint's folder")
        case ComponentMissing(component):
            return Sentence(f"{component} is missing: resumed without it, training ends without an error and with other weights", _OLDER)
        case ComponentUnread(component, why):
            return Sentence(f"{component} cannot be read: {plain(why)}", _OLDER)
        case ComponentStepMismatch(component, step):
            return Sentence(f"{component} is of step {step}, which is not the checkpoint's", _OLDER)
        case ComponentDigestMismatch(component):
            return Sentence(f"{component} is not the one that was published: its bytes have another digest", _OLDER)
        case ComponentForeign(component, why):
            return Sentence(f"{component} belongs to something else: {plain(why)}", _OLDER)
        case DataPositionMismatch(expected, found):
            return Sentence(
                f"the data position is {found} micro batches, and the step leads to {expected}: rows would be skipped or seen twice", _OLDER
            )
        case PublicationIncomplete(whys):
            return Sentence(f"it was not published whole: {listed(map(plain, whys))}", _OLDER)
        case PublicationUnobserved(whys):
            return Sentence(
                f"nothing shows that its writer had finished: {listed(map(plain, whys))}",
                "most trainers publish this way; if you know that it had finished, say so with --vouch, or use it for its weights only",
            )
        case AttemptNotMember(attempt):
            return Sentence(f"it was written by attempt {quoted(short(attempt))}, which is not one of this run's", _OLDER)
        case AttemptElsewhere(attempt, holder):
            return Sentence(
                f"it was written by attempt {quoted(short(attempt))} and lies in the folder of attempt {quoted(short(holder))}: "
                "two wrote to one place, and nothing there can be attributed",
                "move it back into the folder of the attempt that wrote it: countermark attempts RUN says where each lies",
            )
        case ManifestDiverges(divergences):
            differences = listed(
                f"{plain(each.leaf)} is {quoted(each.found)} ({plain(each.source)}) where {quoted(each.desired)} is asked for"
                for each in divergences
            )
            return Sentence(
                f"it is of another computation: {differences}", "a changed coordinate is another work: start it with countermark run"
            )


def retention_sentence(defect: RetentionDefect) -> Sentence:
    match defect:
        case OnlyAdmittedCheckpoint(path):
            return Sentence(
                f"{quoted(path)} is the only admitted checkpoint that would be left, and without it nothing can be gone on from",
                "keep at least one: --keep 1; whoever wants none at all deletes the folder",
            )
        case PruneUnderWay(path):
            return Sentence(f"somebody else is pruning {quoted(path)} at this moment, or training there", "call again when that has ended")
        case SuccessorChanged(path):
            return Sentence(
                f"{quoted(path)} changed or vanished since it was judged, and others were to go because of it; no more was deleted",
                "call again: what is there now is judged anew",
            )
