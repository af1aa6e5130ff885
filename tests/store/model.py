"""What a store should hold after a sequence of calls, as plain values: ledgers moved by the pure decisions, an agenda that is a table of
times, and observations in their order.

Rule kept here: the model knows nothing of tables, transactions or files. What it says of the agenda is written from the protocol
(``Store``), not from the store's own room.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from countermark.run.attempts import AttemptKey
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    Admissible,
    AttemptIdentityTaken,
    Cancellation,
    Committed,
    DispatchIntent,
    DispatchOutcome,
    RunLedger,
    Transition,
    admit_start_claim,
)
from countermark.run.dispatch import (
    AttemptNotClaimed,
    Insertable,
    admit_abandonment,
    admit_adjudication,
    admit_cancellation,
    admit_dispatch_intent,
    admit_dispatch_outcome,
)
from countermark.run.records import (
    Attached,
    FactKind,
    LedgerEntry,
    Recorded,
    RunRecord,
    RunSummary,
    RunUnknown,
    Stands,
    StoredSweep,
    StoredVerdict,
    SweepIdTaken,
    SweepUnknown,
)
from countermark.values import NonEmpty, Refused
from tests.run.examples import desired
from tests.store.examples import CONTEXT

#: The run's field of the ledger for each kind of fact.
FIELDS: Final[dict[FactKind, str]] = {
    "claim": "claims",
    "intent": "intents",
    "outcome": "outcomes",
    "cancellation": "cancellations",
    "abandonment": "abandonments",
    "adjudication": "adjudications",
}


@final
@dataclass(slots=True)
class Model:
    """Everything that a store holds, and what each call makes of it."""

    records: dict[str, RunRecord] = field(default_factory=dict[str, RunRecord])
    #: Run → when it is due; a run that is not in it is closed.
    agenda: dict[str, int] = field(default_factory=dict[str, int])
    sweeps: dict[str, StoredSweep] = field(default_factory=dict[str, StoredSweep])
    verdicts: tuple[tuple[str, StoredVerdict], ...] = ()

    def copy(self) -> "Model":
        """Another one that moves by itself; what they hold are values."""
        return Model(dict(self.records), dict(self.agenda), dict(self.sweeps), self.verdicts)

    # ------------------------------------------------------------------------------------------------------- control

    def demand(self, request: str, now_ms: int) -> object:
        wanted = desired(request)
        run = wanted.demand.id.run_id()
        if run in self.records:
            return Attached(self.records[run])
        self.records[run] = RunRecord(run, RunLedger(wanted, 0), CONTEXT, now_ms)
        self.agenda[run] = now_ms
        return Recorded(self.records[run])

    def claim(self, run: str, snapshot: int, transition: Transition, candidate: AttemptKey, now_ms: int, by: str) -> object:
        if run not in self.records:
            return Refused(NonEmpty(RunUnknown(run)))
        decision = admit_start_claim(self.records[run].ledger, snapshot, transition, candidate)
        if not isinstance(decision, Admissible):
            return decision
        if any(claim.attempt == candidate for record in self.records.values() for claim in record.ledger.claims):
            return Refused(NonEmpty(AttemptIdentityTaken(candidate)))
        self._write(run, "claim", decision.claim, now_ms, by)
        return Committed(decision.claim)

    def intend(self, intent: DispatchIntent) -> object:
        run = self._run_of(intent.attempt)
        assert run is not None, "an intent is made of a committed claim"
        return self._admitted(run, "intent", admit_dispatch_intent(self.records[run].ledger, intent), intent.recorded_ms)

    def answered(self, outcome: DispatchOutcome) -> object:
        run = self._run_of(outcome.attempt)
        if run is None:
            return Refused(NonEmpty(AttemptNotClaimed(outcome.attempt)))
        return self._admitted(run, "outcome", admit_dispatch_outcome(self.records[run].ledger, outcome), outcome.recorded_ms)

    def say(self, run: str, said: Cancellation | Abandonment | Adjudication) -> object:
        """A person speaks: what is new is looked at at once."""
        if run not in self.records:
            return Refused(NonEmpty(RunUnknown(run)))
        ledger = self.records[run].ledger
        kind: FactKind
        decision: object
        match said:
            case Cancellation():
                kind, decision = "cancellation", admit_cancellation(ledger, said)
            case Abandonment():
                kind, decision = "abandonment", admit_abandonment(ledger, said)
            case Adjudication():
                kind, decision = "adjudication", admit_adjudication(ledger, said)
        answer = self._admitted(run, kind, decision, said.recorded_ms)
        if isinstance(answer, Recorded):
            self.agenda[run] = min(self.agenda[run], said.recorded_ms)
        return answer

    def _run_of(self, attempt: AttemptKey) -> str | None:
        held = (run for run, record in self.records.items() for claim in record.ledger.claims if claim.attempt == attempt)
        return next(held, None)

    def _admitted(self, run: str, kind: FactKind, decision: object, now_ms: int) -> object:
        if not isinstance(decision, Insertable):
            return decision
        self._write(run, kind, decision.fact, now_ms, "")
        return Recorded(decision.fact)

    def _write(self, run: str, kind: FactKind, fact: Any, now_ms: int, by: str) -> None:
        record = self.records[run]
        before, version = record.ledger, record.ledger.version + 1
        more: dict[str, Any] = {FIELDS[kind]: (*getattr(before, FIELDS[kind]), fact)}
        entry = LedgerEntry(version, kind, now_ms, by)
        self.records[run] = replace(record, ledger=replace(before, version=version, **more), history=(*record.history, entry))
        self.agenda.setdefault(run, now_ms)

    # -------------------------------------------------------------------------------------------------------- agenda

    def take_due(self, now_ms: int, lease_ms: int, limit: int) -> tuple[RunSummary, ...]:
        due = sorted((due_ms, run) for run, due_ms in self.agenda.items() if due_ms <= now_ms)[:limit]
        self.agenda.update({run: now_ms + lease_ms for _, run in due})
        return tuple(self.summary(run) for _, run in due)

    def look_again(self, run: str, due_ms: int) -> None:
        if run in self.agenda:
            self.agenda[run] = due_ms

    def next_due(self) -> int | None:
        return min(self.agenda.values(), default=None)

    # -------------------------------------------------------------------------------------------------- observations

    def sweep(self, sweep: StoredSweep) -> object:
        if sweep.run_id not in self.records:
            return Refused(NonEmpty(RunUnknown(sweep.run_id)))
        standing = self.sweeps.setdefault(sweep.sweep_id, sweep)
        if standing is sweep:
            return Recorded(sweep)
        return Stands(standing) if standing == sweep else Refused(NonEmpty(SweepIdTaken(sweep.sweep_id)))

    def conclude(self, sweep: str, verdict: StoredVerdict) -> object:
        if sweep not in self.sweeps:
            return Refused(NonEmpty(SweepUnknown(sweep)))
        stands = self.concluded(sweep)[-1:] == (verdict,)
        self.write_verdict(sweep, verdict)
        self.follow_verdict(sweep, verdict)
        return Stands(verdict) if stands else Recorded(verdict)

    def write_verdict(self, sweep: str, verdict: StoredVerdict) -> None:
        if self.concluded(sweep)[-1:] != (verdict,):
            self.verdicts = (*self.verdicts, (sweep, verdict))

    def follow_verdict(self, sweep: str, verdict: StoredVerdict, newest: tuple[str, StoredVerdict] | None = None) -> None:
        """What the verdict makes of the agenda: only the run's newest one says something, and only of the version that stands."""
        run = self.sweeps[sweep].run_id
        last = newest or [said for said in self.verdicts if self.sweeps[said[0]].run_id == run][-1]
        if (last[0], last[1].closed, last[1].version) != (sweep, verdict.closed, verdict.version):
            return
        if verdict.closed and verdict.version == self.records[run].ledger.version:
            self.agenda.pop(run, None)
        else:
            self.agenda.setdefault(run, 0)

    def concluded(self, sweep: str) -> tuple[StoredVerdict, ...]:
        return tuple(verdict for name, verdict in self.verdicts if name == sweep)

    # ------------------------------------------------------------------------------------------------------- reading

    def summary(self, run: str) -> RunSummary:
        record = self.records[run]
        ledger = record.ledger
        return RunSummary(run, ledger.desired.demand.id, CONTEXT.name, record.created_ms, ledger.version, bool(ledger.cancellations))

    def latest(self, run: str) -> StoredSweep | None:
        return next((sweep for sweep in reversed(self.sweeps.values()) if sweep.run_id == run), None)
