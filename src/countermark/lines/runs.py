"""A run's ledger and its evidence as rows and documents: attempts, claims, and what a sweep saw on each axis.

Rules kept here:

1. Rows stand in the order in which things were recorded or read; nothing is ordered by a clock.
2. Clock times are shown in UTC, from the milliseconds that were stored.
3. A source that was refused or not looked at is a row of its own: it is never left out, and never looks like an empty one. Where one that
   speaks of an attempt gave no reading and no other one saw anything, what there is of that attempt is unknown (``?``), not none.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from countermark.evidence.composition import RawReads
from countermark.evidence.cut import STAGES, ObservationCut, Stage
from countermark.evidence.members import (
    CheckpointSeen,
    EnumerationReceipt,
    ManifestSeen,
    Member,
    NotAttempted,
    Observed,
    OutputSeen,
    Population,
    ProcessSeen,
    Read,
    ReadRefused,
    SourceReading,
    Terminal,
)
from countermark.lines.checkpoint import publication_word
from countermark.lines.defects import defect_documents, document_value, sentence
from countermark.lines.of_evidence import stage_text
from countermark.lines.sentence import short
from countermark.lines.texts import Document, JsonValue, counted, listed, number, plain
from countermark.run.attempts import AttemptKey, Cause, checkpoint_of, predecessor_of
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    BelieveSource,
    Cancellation,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    ExecutionClaim,
    LaunchResult,
    Ruling,
    RunLedger,
    SetAside,
    cause_parts,
)
from countermark.run.records import DamagedRun, RowUnreadable, RunListed, RunRecord, RunSummary, SweepDamaged
from countermark.verdict.standing import outcome_text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Fact = ExecutionClaim | DispatchIntent | DispatchOutcome | Cancellation | Abandonment | Adjudication


def moment(at_ms: int) -> str:
    """A stored clock time, in UTC to the second; beyond the calendar its milliseconds."""
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%d %H:%M:%SZ")
    except OverflowError:
        return f"{at_ms} ms"


def cause_text(cause: Cause) -> str:
    """A cause by its arm and what it names: ``Resume of 01234567 from step 8``."""
    name, *rest = cause_parts(cause)
    before = predecessor_of(cause)
    checkpoint = checkpoint_of(cause)
    said = [] if name == "Resume" else rest[:1] if before is None else rest[1:2]
    return " ".join(
        (
            name,
            *(() if before is None else (f"of {short(before.nonce.hex)}",)),
            *map(plain, said),
            *(() if checkpoint is None else (f"from step {checkpoint.step}",)),
        )
    )


# ------------------------------------------------------------------------------------------------------------- the ledger

RUN_COLUMNS: Final = ("run", "name", "requester", "request", "created", "facts", "cancelled")


def run_row(run: RunListed) -> tuple[str, ...]:
    """A run as a row of a list; what a damaged one does not say is a dash, and why stands in the place of its name."""
    cancelled = "yes" if run.cancelled else "no"
    return (short(run.run_id), *_asked(run), moment(run.created_ms), str(run.version), cancelled)


def _asked(run: RunListed) -> tuple[str, str, str]:
    match run:
        case RunSummary():
            return run.name, run.demand.requester.text, run.demand.request.text
        case DamagedRun():
            return run_name(run), "-", "-"


def run_name(run: RunListed) -> str:
    """A run's name; of a damaged one, why it has none."""
    match run:
        case RunSummary():
            return run.name
        case DamagedRun():
            return f"damaged: {'; '.join(defect.why for defect in run.defects)}"


def verdict_word(arm: str, damage: Iterable[SweepDamaged | RowUnreadable]) -> str:
    """A run's latest verdict; a dash where there is none, and why where its latest look was damaged."""
    return "; ".join(f"damaged: {sentence(defect).message}" for defect in damage) or arm or "-"


def run_document(run: RunListed, damage: Iterable[SweepDamaged | RowUnreadable] = ()) -> Document:
    """A run as an entry of a list. It carries no Work key, because a list derives none. A damaged one comes with its defects, to which
    ``damage`` adds those of its latest look."""
    return {
        "run": run.run_id,
        **_asked_document(run),
        "defects": [*(defect_documents(run.defects) if isinstance(run, DamagedRun) else ()), *defect_documents(damage)],
        "createdMs": number(run.created_ms),
        "facts": run.version,
        "cancelled": run.cancelled,
    }


def _asked_document(run: RunListed) -> Document:
    match run:
        case RunSummary():
            return {"name": run.name, "requester": run.demand.requester.text, "request": run.demand.request.text}
        case DamagedRun():
            return {"name": None, "requester": None, "request": None}


CLAIM_COLUMNS: Final = ("version", "kind", "attempt", "what", "recorded")


def facts_in_order(record: RunRecord) -> Iterator[tuple[int, str, Fact, int]]:
    """Version, kind, fact and recording time of every control fact, in the order of the ledger."""
    ledger = record.ledger
    waiting: Mapping[str, Iterator[Fact]] = {
        "claim": iter(ledger.claims),
        "intent": iter(ledger.intents),
        "outcome": iter(ledger.outcomes),
        "cancellation": iter(ledger.cancellations),
        "abandonment": iter(ledger.abandonments),
        "adjudication": iter(ledger.adjudications),
    }
    for entry in record.history:
        yield entry.version, entry.kind, next(waiting[entry.kind]), entry.recorded_ms


def claim_rows(record: RunRecord) -> tuple[tuple[str, ...], ...]:
    """One row for each control fact."""
    return tuple(
        (str(version), kind, _attempt_of(fact), fact_text(fact), moment(at_ms)) for version, kind, fact, at_ms in facts_in_order(record)
    )


def claim_documents(record: RunRecord) -> list[JsonValue]:
    """One document for each control fact; a claim's carries its slot and cause."""
    return [
        {
            "version": version,
            "kind": kind,
            "attempt": None if isinstance(fact, Cancellation) else document_value(fact.attempt),
            "what": fact_text(fact),
            "recordedMs": number(at_ms),
            **_claimed(fact),
        }
        for version, kind, fact, at_ms in facts_in_order(record)
    ]


def _claimed(fact: Fact) -> Document:
    if not isinstance(fact, ExecutionClaim):
        return {}
    return {"slot": fact.transition.slot().spell(), "cause": list(cause_parts(fact.transition.cause))}


def _attempt_of(fact: Fact) -> str:
    return "-" if isinstance(fact, Cancellation) else short(fact.attempt.nonce.hex)


def fact_text(fact: Fact) -> str:
    """What a control fact says, without its attempt."""
    match fact:
        case ExecutionClaim(transition):
            return f"claimed for {cause_text(transition.cause)}"
        case DispatchIntent(_, launcher, host):
            return f"launcher {launcher} is called on {plain(host)}"
        case DispatchOutcome(_, result):
            return result_text(result)
        case Cancellation(by):
            return f"cancelled by {plain(by)}"
        case Abandonment(_, by):
            return f"given up by {plain(by)}"
        case Adjudication(_, ruling, blockers, by, reason):
            return f"{_ruled(ruling)} by {plain(by)} ({plain(reason)}): {listed(plain(blocker, 2000) for blocker in blockers)}"


def _ruled(ruling: Ruling) -> str:
    match ruling:
        case SetAside():
            return "set aside"
        case BelieveSource(source):
            return f"{plain(source)} believed"


def result_text(result: LaunchResult) -> str:
    """What a launcher answered."""
    match result:
        case Dispatched(detail):
            return f"dispatched: {plain(detail)}"
        case DispatchRefused(why):
            return f"refused, nothing started: {plain(why)}"
        case DispatchUnknown(why):
            return f"unknown, something may run: {plain(why)}"


ATTEMPT_COLUMNS: Final = ("attempt", "cause", "dispatch", "process", "ended", "checkpoints", "output")


def attempt_rows(ledger: RunLedger, reads: RawReads | None) -> tuple[tuple[str, ...], ...]:
    """One row for each claimed attempt; ``reads`` are those of the latest sweep, None where there was none (shown as ``?``)."""
    return tuple(tuple(_attempt(claim, ledger, reads).values()) for claim in ledger.claims)


def attempt_documents(ledger: RunLedger, reads: RawReads | None) -> list[JsonValue]:
    """One document for each claimed attempt; what no sweep saw is null."""
    return [
        {
            **{key: None if value == "?" else value for key, value in _attempt(claim, ledger, reads).items()},
            "attempt": claim.attempt.nonce.hex,
            "cause": list(cause_parts(claim.transition.cause)),
            "predecessor": document_value(predecessor_of(claim.transition.cause)),
        }
        for claim in ledger.claims
    ]


def _attempt(claim: ExecutionClaim, ledger: RunLedger, reads: RawReads | None) -> dict[str, str]:
    key = claim.attempt
    outcomes = [result_text(outcome.result).partition(":")[0] for outcome in ledger.outcomes if outcome.attempt == key]
    intended = any(intent.attempt == key for intent in ledger.intents)
    seen: dict[str, str] = dict.fromkeys(ATTEMPT_COLUMNS[3:], "?") if reads is None else _seen(key, reads)
    return {
        "attempt": short(key.nonce.hex),
        "cause": cause_text(claim.transition.cause),
        "dispatch": outcomes[-1] if outcomes else "intended" if intended else "none",
        **seen,
    }


def _seen(key: AttemptKey, reads: RawReads) -> dict[str, str]:
    both = (*reads.terminals.population.members(), *reads.terminals_again.population.members())
    terminals = {outcome_text(each.outcome) for each in both if each.attempt == key}
    states = {each.state for each in reads.processes.population.members() if each.attempt == key}
    steps = sorted(each.step for each in reads.checkpoints.population.members() if each.attempt == key)
    outputs = [each.digest.spell() for each in reads.outputs.population.members() if each.attempt == key]

    def told(found: Iterable[str], population: Population[Member], nothing: str) -> str:
        return ", ".join(found) or (nothing if population.blind_about().isdisjoint((None, key)) else "?")

    return {
        "process": told(sorted(states), reads.processes.population, "none"),
        "ended": told(sorted(terminals), reads.terminals_again.population, "no"),
        "checkpoints": told(map(str, steps), reads.checkpoints.population, "none"),
        "output": told(outputs, reads.outputs.population, "none"),
    }


# ----------------------------------------------------------------------------------------------------------- the evidence

SOURCE_COLUMNS: Final = ("stage", "source", "reading", "receipt", "host", "started", "ended")
MEMBER_COLUMNS: Final = ("stage", "attempt", "what")


def source_rows(reads: RawReads) -> tuple[tuple[str, ...], ...]:
    """One row for each source of each stage, in the order in which the sweep read them."""
    return tuple((stage_text(stage), plain(reading.source), *_reading(reading)) for stage, reading in _readings(reads))


def _readings(reads: RawReads) -> Iterator[tuple[Stage, SourceReading[Member]]]:
    by_stage = reads.by_stage()
    for stage in STAGES:
        for reading in by_stage[stage].population.readings:
            yield stage, reading


def _reading(reading: SourceReading[Member]) -> tuple[str, ...]:
    match reading.arm:
        case Observed(members, receipt, misfiled):
            more = f", {counted(len(misfiled), 'receipt')} of another attempt" if misfiled else ""
            return (f"observed {counted(len(members), 'member')}{more}", *_receipt(receipt))
        case NotAttempted(why):
            return (f"not attempted: {plain(why)}", "-", "-", "-", "-")
        case ReadRefused(reason, receipt):
            return (f"refused: {plain(reason)}", *_receipt(receipt))


def _receipt(receipt: EnumerationReceipt) -> tuple[str, str, str, str]:
    return (short(receipt.id), plain(receipt.host), moment(receipt.started_ms), moment(receipt.ended_ms))


def member_rows(reads: RawReads) -> tuple[tuple[str, str, str], ...]:
    """One row for each member that any source saw."""
    return tuple(
        (stage_text(stage), short(member.attempt.nonce.hex), member_text(member))
        for stage, reading in _readings(reads)
        if isinstance(reading.arm, Observed)
        for member in reading.arm.members
    )


def member_text(member: Member) -> str:
    """What a member says, without its attempt."""
    match member:
        case Terminal(_, outcome, source, at_ms):
            return f"{outcome_text(outcome)}, says {plain(source)} at {moment(at_ms)}"
        case ProcessSeen(_, execution, state):
            if execution is None:
                return f"{state}: holds the lock, has no receipt yet"
            return f"{state}: pid {execution.pid} on {plain(execution.host)}, started at tick {execution.start_ticks}"
        case CheckpointSeen(_, step, path, readback):
            return f"checkpoint of step {step}, {publication_word(readback.publication)}: {plain(path)}"
        case OutputSeen(_, path, digest, size_bytes, materialization):
            return f"output {digest.spell()}, {counted(size_bytes, 'byte')}, {plain(materialization)}: {plain(path)}"
        case ManifestSeen(_, source, coordinates):
            read = sum(isinstance(found, Read) for found in coordinates.values())
            return f"{plain(source)} read {counted(read, 'coordinate')} of {len(coordinates)}"


def evidence_document(reads: RawReads) -> list[JsonValue]:
    """The stages in read order, each with its sources, their arm, receipt and members."""
    by_stage = reads.by_stage()
    return [{"stage": stage, "sources": [_source_document(reading) for reading in by_stage[stage].population.readings]} for stage in STAGES]


def _source_document(reading: SourceReading[Member]) -> Document:
    match reading.arm:
        case Observed(members, receipt, misfiled):
            found: list[JsonValue] = [_member_document(member) for member in members]
            strange: list[JsonValue] = [document_value(each) for each in misfiled]
            document: Document = {"source": reading.source, "arm": "observed", "members": found, "misfiled": strange}
            return {**document, "receipt": _receipt_document(receipt), "why": None}
        case NotAttempted(why):
            return {"source": reading.source, "arm": "notAttempted", "members": None, "receipt": None, "why": why}
        case ReadRefused(reason, receipt):
            return {"source": reading.source, "arm": "refused", "members": None, "receipt": _receipt_document(receipt), "why": reason}


def _receipt_document(receipt: EnumerationReceipt) -> Document:
    document = document_value(receipt)
    assert isinstance(document, dict)
    return document


def _member_document(member: Member) -> Document:
    said: Document = {"attempt": member.attempt.nonce.hex, "line": member_text(member)}
    if isinstance(member, CheckpointSeen):
        return {"is": "CheckpointSeen", **said, "step": number(member.step), "path": member.path}
    document = document_value(member)
    assert isinstance(document, dict)
    return {**document, **said}


def sweep_document(sweep_id: str, reads: RawReads, cut: ObservationCut) -> Document:
    """A sweep as a status carries it: its id, its stages in read order with their receipts, and how fresh it is."""
    began, ended = span(reads)
    return {
        "id": sweep_id,
        "finished": cut.finished,
        "order": [read.stage for read in cut.stages],
        "stages": evidence_document(reads),
        "freshness": {"beganMs": began if began is None else number(began), "endedMs": ended if ended is None else number(ended)},
    }


def span(reads: RawReads) -> tuple[int | None, int | None]:
    """When the first source was begun and the last one ended, by the clocks of their readers."""
    receipts = [receipt for read in reads.by_stage().values() for receipt in read.population.receipts()]
    return min((each.started_ms for each in receipts), default=None), max((each.ended_ms for each in receipts), default=None)


def freshness_line(reads: RawReads) -> str:
    """How fresh a sweep is, in one line."""
    began, ended = span(reads)
    if began is None or ended is None:
        return "looked at nothing"
    return f"looked from {moment(began)} to {moment(ended)}"
