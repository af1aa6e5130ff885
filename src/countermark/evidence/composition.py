"""Binding raw reads to a subject, and composing graph, readback and cut: the only door to reconciliation.

Rules kept here:

1. The binder compares the subject of *every* read, each half on its own, and only then decides.
2. The composition matches the cut to the populations by their receipts: a cut of another sweep orders reads that it never made, and one
   reading that is handed in for both readings of terminals is no second look.
3. Every member belongs to an attempt of the admitted graph, or is named as foreign.
4. Costs O(attempts + members).
"""

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from typing import Final, Literal, final

from countermark.evidence.cut import STAGES, ObservationCut, Order, Stage
from countermark.evidence.members import CheckpointSeen, ManifestSeen, Member, OutputSeen, Population, ProcessSeen, RawRead, Terminal
from countermark.run.attempts import AttemptGraph, AttemptKey
from countermark.run.demand import Subject
from countermark.values import NonEmpty, Refused

_SEAL: Final = object()

Half = Literal["demand", "work"]


@final
@dataclass(frozen=True, slots=True)
class SubjectMismatch:
    """A stage's read (or the graph or the cut) is about another demand or another work (``half``)."""

    stage: Stage | Literal["graph", "cut"]
    half: Half


@final
@dataclass(frozen=True, slots=True)
class ReceiptMismatch:
    """The cut's receipts for the stage are not those that the population carries."""

    stage: Stage


@final
@dataclass(frozen=True, slots=True)
class CutCoversUnreadAxis:
    """The cut claims a stage that nobody enumerated."""

    stage: Stage


@final
@dataclass(frozen=True, slots=True)
class ForeignMember:
    """A member of the stage's population concerns an attempt outside the admitted graph, or a receipt in the folder of ``attempt`` names
    another one."""

    stage: Stage
    attempt: AttemptKey


CompositionDefect = SubjectMismatch | ReceiptMismatch | CutCoversUnreadAxis | ForeignMember


@final
@dataclass(frozen=True, slots=True)
class RawReads:
    """What a sweep brought home, one population per stage; terminals stand twice."""

    terminals: RawRead[Terminal]
    processes: RawRead[ProcessSeen]
    outputs: RawRead[OutputSeen]
    checkpoints: RawRead[CheckpointSeen]
    manifests: RawRead[ManifestSeen]
    terminals_again: RawRead[Terminal]

    def by_stage(self) -> Mapping[Stage, RawRead[Member]]:
        """The six reads under the names of their stages, in sweep order."""
        return {
            "terminals": self.terminals,
            "processes": self.processes,
            "outputs": self.outputs,
            "checkpoints": self.checkpoints,
            "manifests": self.manifests,
            "terminals_again": self.terminals_again,
        }


@final
@dataclass(frozen=True, slots=True)
class Readback:
    """Reads that are all about one subject; minted by ``bind_readback`` alone."""

    subject: Subject
    reads: RawReads
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a readback is minted by bind_readback")

    def population(self, stage: Stage) -> Population[Member]:
        """The population read at a stage."""
        return self.reads.by_stage()[stage].population


def _halves(stage: Stage | Literal["graph", "cut"], wanted: Subject, found: Subject) -> tuple[SubjectMismatch, ...]:
    demand = () if found.demand == wanted.demand else (SubjectMismatch(stage, "demand"),)
    work = () if found.work == wanted.work else (SubjectMismatch(stage, "work"),)
    return demand + work


def bind_readback(subject: Subject, reads: RawReads) -> Readback | Refused[SubjectMismatch]:
    """Bind the reads to the subject, or name every stage and half that is about something else."""
    by_stage = reads.by_stage()
    defects = tuple(defect for stage in STAGES for defect in _halves(stage, subject, by_stage[stage].subject))
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    return Readback(subject, reads, _SEAL)


@final
@dataclass(frozen=True, slots=True)
class EvidenceComposition:
    """Graph, populations and read order of one subject; minted by ``compose_evidence`` alone."""

    subject: Subject
    graph: AttemptGraph
    readback: Readback
    cut: ObservationCut
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("an evidence composition is minted by compose_evidence")

    def order(self, earlier: Stage, later: Stage) -> Order:
        """The cut's answer for this composition's own subject."""
        return self.cut.order(self.subject, earlier, later)


def _membership(graph: AttemptGraph) -> Callable[[AttemptKey], bool]:
    """Whether an attempt is in the graph. Asked of every member, and all attempts of a graph are at one work, so nonces are looked up and
    works compared."""
    work = graph.subject.work
    nonces = frozenset(key.nonce.hex for key in graph.attempts)
    return lambda attempt: attempt.nonce.hex in nonces and (attempt.work is work or attempt.work == work)


def compose_evidence(graph: AttemptGraph, readback: Readback, cut: ObservationCut) -> EvidenceComposition | Refused[CompositionDefect]:
    """Join the three, or refuse with every mismatch on every stage."""
    subject = readback.subject
    defects: list[CompositionDefect] = [*_halves("graph", subject, graph.subject), *_halves("cut", subject, cut.subject)]
    is_member = _membership(graph)
    covered = {read.stage: read.receipts for read in cut.stages}
    first_look = frozenset(receipt.id for receipt in readback.population("terminals").receipts())
    for stage in STAGES:
        population = readback.population(stage)
        receipts = population.receipts()
        same_look = stage == "terminals_again" and any(receipt.id in first_look for receipt in receipts)
        if stage in covered and not receipts:
            defects.append(CutCoversUnreadAxis(stage))
        elif same_look or (stage in covered and covered[stage] != receipts):
            defects.append(ReceiptMismatch(stage))
        defects.extend(ForeignMember(stage, member.attempt) for member in population.members() if not is_member(member.attempt))
        defects.extend(ForeignMember(stage, misfiled.folder) for misfiled in population.misfiled())
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    return EvidenceComposition(subject, graph, readback, cut, _SEAL)
