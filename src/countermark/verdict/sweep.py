"""A sweep as a value: everything that a verdict is derived from, and nothing else.

Rules kept here:

1. ``conclude`` is the whole way from what was seen to a conclusion, so a stored sweep is replayed through the very doors that it first
   went through: graph admission, binder, compositions, join, fold.
2. Every defect of every door that can be asked is named. A door that needs a refused one's answer is not asked.
"""

from dataclasses import dataclass
from typing import Self, final

from countermark.evidence.composition import CompositionDefect, RawReads, bind_readback, compose_evidence
from countermark.evidence.cut import ObservationCut
from countermark.run.attempts import Attempt, AttemptGraphDefect, admit_attempt_graph
from countermark.run.claims import ControlDefect, RunLedger, compose_control
from countermark.run.demand import subject_of
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import Conclusion
from countermark.verdict.reconcile import HalvesDisagree, join, reconcile

SweepDefect = AttemptGraphDefect | CompositionDefect | ControlDefect | HalvesDisagree


@final
@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep brought home, with the control facts and the attempts as they were known when it began.

    ``grace_ms``: how long a dispatch may show nothing before its attempt is lost, in milliseconds.
    """

    ledger: RunLedger
    attempts: tuple[Attempt, ...]
    reads: RawReads
    cut: ObservationCut
    grace_ms: int

    @classmethod
    def of_claims(cls, ledger: RunLedger, reads: RawReads, cut: ObservationCut, grace_ms: int) -> Self:
        """A sweep over the attempts that the ledger's claims name."""
        return cls(ledger, tuple(claim.as_attempt() for claim in ledger.claims), reads, cut, grace_ms)


def conclude(sweep: Sweep) -> Conclusion | Refused[SweepDefect]:
    """The conclusion of a sweep, or every defect with which its parts do not fit together. Pure and total."""
    subject = subject_of(sweep.ledger.desired)
    graph = admit_attempt_graph(subject, sweep.attempts)
    readback = bind_readback(subject, sweep.reads)
    if isinstance(graph, Refused) or isinstance(readback, Refused):
        return _together(graph, readback)
    evidence = compose_evidence(graph, readback, sweep.cut)
    control = compose_control(graph, sweep.ledger)
    if isinstance(evidence, Refused) or isinstance(control, Refused):
        return _together(evidence, control)
    joined = join(evidence, control, sweep.grace_ms)
    return _together(joined) if isinstance(joined, Refused) else reconcile(joined)


def _together(*answers: object) -> Refused[SweepDefect]:
    """The defects of every refusal among these answers, of which at least one is a refusal."""
    refusals: list[Refused[SweepDefect]] = [answer for answer in answers if isinstance(answer, Refused)]
    found = NonEmpty.of(defect for refusal in refusals for defect in refusal.defects)
    assert found is not None
    return Refused(found)
