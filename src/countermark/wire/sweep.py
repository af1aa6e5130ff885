"""A stored sweep: bytes ↔ the value that a verdict is derived from.

Rules kept here:

1. Reading what was written gives the same value back, and so the same verdict, byte for byte, years later.
2. A value has one spelling: what was read is spelled again and compared, so a repeated key, another order, another number format or
   anything else that the reading would let pass is refused.
3. Reading is total: whatever the bytes are, the answer is a sweep or ``SweepUnreadable`` with the reason. Nothing raises.
4. The Work key is derived again from the manifest that the document carries; a document is no authority about the work that it names.
5. Text is ASCII JSON, so that a file name that is no Unicode survives.
6. What an earlier release stored stays as it is: a sweep without a person's rulings is a document of format 1. One with rulings is of
   format 2, which is that of format 1 with the rulings beside it. So each value still has one spelling, and a release that knows no rulings
   refuses those documents from which it would conclude wrongly, as it does where a later release lets a state be said that it does not
   know.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, final

import msgspec

from countermark.evidence.composition import RawReads
from countermark.evidence.cut import ObservationCut, Stage, StageRead
from countermark.evidence.members import RawRead
from countermark.recipe import Manifest, Requirements, WorkKey, manifest_from_spellings, spelled
from countermark.run.attempts import Attempt
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    BelieveSource,
    Cancellation,
    DispatchIntent,
    DispatchOutcome,
    ExecutionClaim,
    Launcher,
    Ruling,
    RunLedger,
    SetAside,
    Transition,
)
from countermark.run.demand import Demand, DemandId, Subject, TrainingRunDesired, recall_demand, subject_of
from countermark.run.records import DOCUMENT_BYTES_MAX
from countermark.values import Principal, Refused, Request
from countermark.verdict.sweep import Sweep
from countermark.wire.sweep_causes import CauseText, ResultText, cause_of, cause_text, result_of, result_text
from countermark.wire.sweep_checkpoints import Arm, Plain
from countermark.wire.sweep_members import (
    CheckpointText,
    ManifestText,
    OutputText,
    ProcessText,
    ReceiptText,
    SourceText,
    TerminalText,
    attempt_of,
    attempt_text,
    checkpoint_of,
    checkpoint_text,
    known,
    manifest_of,
    manifest_text,
    output_of,
    output_text,
    population_of,
    population_text,
    process_of,
    process_text,
    receipt_of,
    receipt_text,
    terminal_of,
    terminal_text,
)

__all__ = ["Sweep", "SweepUnreadable", "decode_sweep", "encode_sweep"]

#: How far a reason is told, in characters.
_WHY_LENGTH_MAX: Final = 300


@final
@dataclass(frozen=True, slots=True)
class SweepUnreadable:
    """The bytes are no stored sweep; ``why`` is a clause that fits after "because"."""

    why: str


# -------------------------------------------------------------------------------------------------------------- structs


@final
class SubjectText(Plain, frozen=True):
    """Who asked for which work."""

    requester: str
    request: str
    principal: str
    work: str


@final
class AttemptText(Plain, frozen=True):
    """An attempt that the sweep knew."""

    attempt: str
    requester: str
    request: str
    cause: CauseText


@final
class ClaimText(Plain, frozen=True):
    """A committed claim."""

    attempt: str
    of: SubjectText
    cause: CauseText
    version: int


@final
class IntentText(Plain, frozen=True):
    """A launcher was to be called."""

    attempt: str
    launcher: Launcher
    host: str
    recorded_ms: int


@final
class OutcomeText(Plain, frozen=True):
    """A launcher's answer."""

    attempt: str
    result: ResultText
    recorded_ms: int


@final
class CancellationText(Plain, frozen=True):
    """A person ended the run."""

    by: str
    recorded_ms: int


@final
class AbandonmentText(Plain, frozen=True):
    """A person gave up an attempt."""

    attempt: str
    by: str
    recorded_ms: int


@final
class ControlText(Plain, frozen=True):
    """The ledger's facts about the run."""

    version: int
    claims: tuple[ClaimText, ...]
    intents: tuple[IntentText, ...]
    outcomes: tuple[OutcomeText, ...]
    cancellations: tuple[CancellationText, ...]
    abandonments: tuple[AbandonmentText, ...]


@final
class TerminalsText(Plain, frozen=True):
    """One reading of terminals."""

    subject: SubjectText
    sources: tuple[SourceText[TerminalText], ...]


@final
class ProcessesText(Plain, frozen=True):
    """The reading of processes."""

    subject: SubjectText
    sources: tuple[SourceText[ProcessText], ...]


@final
class OutputsText(Plain, frozen=True):
    """The reading of outputs."""

    subject: SubjectText
    sources: tuple[SourceText[OutputText], ...]


@final
class CheckpointsText(Plain, frozen=True):
    """The reading of checkpoints."""

    subject: SubjectText
    sources: tuple[SourceText[CheckpointText], ...]


@final
class ManifestsText(Plain, frozen=True):
    """The reading of effective manifests."""

    subject: SubjectText
    sources: tuple[SourceText[ManifestText], ...]


@final
class ReadsText(Plain, frozen=True):
    """The six populations."""

    terminals: TerminalsText
    processes: ProcessesText
    outputs: OutputsText
    checkpoints: CheckpointsText
    manifests: ManifestsText
    terminals_again: TerminalsText


@final
class StageText(Plain, frozen=True):
    """A stage that ran."""

    stage: Stage
    receipts: tuple[ReceiptText, ...]


@final
class CutText(Plain, frozen=True):
    """The stages in the order in which they ran."""

    subject: SubjectText
    stages: tuple[StageText, ...]
    finished: bool


@final
class SweepText(Plain, frozen=True, tag_field="kind", tag="sweep"):
    """The whole document, in format 1."""

    countermark: Literal[1]
    subject: SubjectText
    requirements: str
    manifest: Annotated[dict[str, str], msgspec.Meta(max_length=100)]
    grace_ms: int
    attempts: tuple[AttemptText, ...]
    control: ControlText
    reads: ReadsText
    cut: CutText


@final
class SetAsideText(Arm, frozen=True):
    """The attempt counts as ended without success."""


@final
class BelieveSourceText(Arm, frozen=True):
    """The terminals of this source stand."""

    source: str


@final
class AdjudicationText(Plain, frozen=True):
    """What a person ruled on an attempt's blockers."""

    attempt: str
    ruling: SetAsideText | BelieveSourceText
    blockers: tuple[str, ...]
    by: str
    reason: str
    recorded_ms: int


@final
class RuledSweepText(Plain, frozen=True, tag_field="kind", tag="ruledSweep"):
    """The whole document, in format 2."""

    countermark: Literal[2]
    sweep: SweepText
    adjudications: Annotated[tuple[AdjudicationText, ...], msgspec.Meta(min_length=1)]


# ------------------------------------------------------------------------------------------------------------- spelling


def encode_sweep(sweep: Sweep) -> bytes:
    """The sweep as one line of canonical JSON. Equal sweeps have equal bytes."""
    plain, ruled = _document(sweep), _rulings_text(sweep.ledger)
    document: object = msgspec.to_builtins(RuledSweepText(2, plain, ruled) if ruled else plain)
    return json.dumps(document, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def _document(sweep: Sweep) -> SweepText:
    desired = sweep.ledger.desired
    work = desired.demand.work
    attempts = tuple(
        AttemptText(attempt_text(one.key, work), one.demand.requester.text, one.demand.request.text, cause_text(one.cause, work))
        for one in sweep.attempts
    )
    return SweepText(
        1,
        _subject_text(subject_of(desired)),
        desired.requirements.spell(),
        dict(spelled(desired.manifest)),
        sweep.grace_ms,
        attempts,
        _control_text(sweep.ledger, work),
        _reads_text(sweep.reads, work),
        _cut_text(sweep.cut),
    )


def _subject_text(subject: Subject) -> SubjectText:
    demand, work = subject.demand, subject.work
    return SubjectText(demand.requester.text, demand.request.text, work.principal.text, work.spell())


def _control_text(ledger: RunLedger, work: WorkKey) -> ControlText:
    def name(fact: ExecutionClaim | DispatchIntent | DispatchOutcome | Abandonment) -> str:
        return attempt_text(fact.attempt, work)

    def claim(fact: ExecutionClaim) -> ClaimText:
        transition = fact.transition
        of = _subject_text(Subject(transition.demand, transition.work))
        return ClaimText(name(fact), of, cause_text(transition.cause, work), fact.version)

    return ControlText(
        ledger.version,
        tuple(map(claim, ledger.claims)),
        tuple(IntentText(name(fact), fact.launcher, fact.host, fact.recorded_ms) for fact in ledger.intents),
        tuple(OutcomeText(name(fact), result_text(fact.result), fact.recorded_ms) for fact in ledger.outcomes),
        tuple(CancellationText(fact.by, fact.recorded_ms) for fact in ledger.cancellations),
        tuple(AbandonmentText(name(fact), fact.by, fact.recorded_ms) for fact in ledger.abandonments),
    )


def _rulings_text(ledger: RunLedger) -> tuple[AdjudicationText, ...]:
    work = ledger.desired.demand.work
    return tuple(
        AdjudicationText(attempt_text(one.attempt, work), _ruling_text(one.ruling), one.blockers, one.by, one.reason, one.recorded_ms)
        for one in ledger.adjudications
    )


def _ruling_text(ruling: Ruling) -> SetAsideText | BelieveSourceText:
    match ruling:
        case SetAside():
            return SetAsideText()
        case BelieveSource(source):
            return BelieveSourceText(source)


def _reads_text(reads: RawReads, work: WorkKey) -> ReadsText:
    return ReadsText(
        TerminalsText(_subject_text(reads.terminals.subject), population_text(reads.terminals.population, work, terminal_text)),
        ProcessesText(_subject_text(reads.processes.subject), population_text(reads.processes.population, work, process_text)),
        OutputsText(_subject_text(reads.outputs.subject), population_text(reads.outputs.population, work, output_text)),
        CheckpointsText(_subject_text(reads.checkpoints.subject), population_text(reads.checkpoints.population, work, checkpoint_text)),
        ManifestsText(_subject_text(reads.manifests.subject), population_text(reads.manifests.population, work, manifest_text)),
        TerminalsText(_subject_text(reads.terminals_again.subject), population_text(reads.terminals_again.population, work, terminal_text)),
    )


def _cut_text(cut: ObservationCut) -> CutText:
    stages = tuple(StageText(read.stage, tuple(map(receipt_text, read.receipts))) for read in cut.stages)
    return CutText(_subject_text(cut.subject), stages, cut.finished)


# -------------------------------------------------------------------------------------------------------------- reading


def decode_sweep(data: bytes) -> Sweep | SweepUnreadable:
    """The sweep that the bytes are, or why they are none."""
    if len(data) > DOCUMENT_BYTES_MAX:
        return SweepUnreadable(f"it has {len(data)} bytes; {DOCUMENT_BYTES_MAX} are the most")
    try:
        document = msgspec.convert(json.loads(data.decode("ascii")), type=SweepText | RuledSweepText)
        sweep = _sweep_of(document)
        spelled = encode_sweep(sweep)
    except (ValueError, RecursionError, OverflowError) as error:
        return SweepUnreadable(ascii(str(error))[1:-1][:_WHY_LENGTH_MAX])
    return sweep if spelled == data else SweepUnreadable("it is not spelled as a sweep is: a part is repeated, superfluous or in disorder")


def _sweep_of(document: SweepText | RuledSweepText) -> Sweep:
    text, ruled = (document, ()) if isinstance(document, SweepText) else (document.sweep, document.adjudications)
    desired = _desired_of(text)
    work = desired.demand.work
    attempts = tuple(
        Attempt(attempt_of(one.attempt, work), _demand_of(one.requester, one.request), cause_of(one.cause, work)) for one in text.attempts
    )
    return Sweep(_ledger_of(text.control, ruled, desired), attempts, _reads_of(text.reads, work), _cut_of(text.cut), text.grace_ms)


def _desired_of(text: SweepText) -> TrainingRunDesired:
    subject = _subject_of(text.subject)
    desired = recall_demand(Demand(subject.demand, subject.work), _manifest_of(text.manifest), known(Requirements.read(text.requirements)))
    if isinstance(desired, Refused):
        raise ValueError("its Work key does not follow from its manifest")
    return desired


def _manifest_of(text: Mapping[str, str]) -> Manifest:
    manifest = manifest_from_spellings(text)
    if isinstance(manifest, Refused):
        raise ValueError(f"its manifest has {len(manifest.defects)} defects: {', '.join(type(one).__name__ for one in manifest.defects)}")
    return manifest


def _demand_of(requester: str, request: str) -> DemandId:
    return DemandId(known(Principal.read(requester)), known(Request.read(request)))


def _subject_of(text: SubjectText) -> Subject:
    return Subject(_demand_of(text.requester, text.request), known(WorkKey.read(text.principal, text.work)))


def _ledger_of(text: ControlText, ruled: tuple[AdjudicationText, ...], desired: TrainingRunDesired) -> RunLedger:
    work = desired.demand.work

    def claim(one: ClaimText) -> ExecutionClaim:
        of = _subject_of(one.of)
        return ExecutionClaim(Transition(of.demand, of.work, cause_of(one.cause, work)), attempt_of(one.attempt, work), one.version)

    return RunLedger(
        desired,
        text.version,
        tuple(map(claim, text.claims)),
        tuple(DispatchIntent(attempt_of(one.attempt, work), one.launcher, one.host, one.recorded_ms) for one in text.intents),
        tuple(DispatchOutcome(attempt_of(one.attempt, work), result_of(one.result), one.recorded_ms) for one in text.outcomes),
        tuple(Cancellation(one.by, one.recorded_ms) for one in text.cancellations),
        tuple(Abandonment(attempt_of(one.attempt, work), one.by, one.recorded_ms) for one in text.abandonments),
        tuple(
            Adjudication(attempt_of(one.attempt, work), _ruling_of(one.ruling), one.blockers, one.by, one.reason, one.recorded_ms)
            for one in ruled
        ),
    )


def _ruling_of(text: SetAsideText | BelieveSourceText) -> Ruling:
    match text:
        case SetAsideText():
            return SetAside()
        case BelieveSourceText(source=source):
            return BelieveSource(source)


def _reads_of(text: ReadsText, work: WorkKey) -> RawReads:
    return RawReads(
        RawRead(_subject_of(text.terminals.subject), population_of(text.terminals.sources, work, terminal_of)),
        RawRead(_subject_of(text.processes.subject), population_of(text.processes.sources, work, process_of)),
        RawRead(_subject_of(text.outputs.subject), population_of(text.outputs.sources, work, output_of)),
        RawRead(_subject_of(text.checkpoints.subject), population_of(text.checkpoints.sources, work, checkpoint_of)),
        RawRead(_subject_of(text.manifests.subject), population_of(text.manifests.sources, work, manifest_of)),
        RawRead(_subject_of(text.terminals_again.subject), population_of(text.terminals_again.sources, work, terminal_of)),
    )


def _cut_of(text: CutText) -> ObservationCut:
    stages = tuple(StageRead(one.stage, tuple(map(receipt_of, one.receipts))) for one in text.stages)
    return ObservationCut(_subject_of(text.subject), stages, text.finished)
