"""Sentences for evidence that does not fit together, and for halves that cannot be joined."""

from countermark.evidence.composition import CompositionDefect, CutCoversUnreadAxis, ForeignMember, ReceiptMismatch, SubjectMismatch
from countermark.lines.of_runs import name
from countermark.lines.sentence import Sentence
from countermark.verdict.reconcile import HalvesDisagree

EvidenceDefect = CompositionDefect | HalvesDisagree

_AGAIN = "sweep again: countermark reconcile RUN"


def stage_text(stage: str) -> str:
    """A stage as sentences name it."""
    return stage.replace("_", " ")


def evidence_sentence(defect: EvidenceDefect) -> Sentence:
    match defect:
        case SubjectMismatch(stage, half):
            return Sentence(f"what was read of {stage_text(stage)} is about another {half} than the run", _AGAIN)
        case ReceiptMismatch(stage):
            return Sentence(f"the sweep's receipts for {stage_text(stage)} are not those of what was read", _AGAIN)
        case CutCoversUnreadAxis(stage):
            return Sentence(f"the sweep claims to have read {stage_text(stage)}, and nobody did", _AGAIN)
        case ForeignMember(stage, attempt):
            return Sentence(
                f"{stage_text(stage)} show what is not of this run: in the folder of {name(attempt)}, or under its name, lies another's",
                "a receipt lies in another attempt's folder: see countermark evidence RUN, and move it away",
            )
        case HalvesDisagree(half):
            return Sentence(f"evidence and control are about different {half}s", _AGAIN)
