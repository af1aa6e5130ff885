"""A store over SQL, whatever the database: it runs the transaction, ``countermark.run`` decides in it.

Rules kept here:

1. A writing transaction excludes every other writer of the same run from its first read to its commit, so that what was admitted is still
   true when it is inserted. How, is each database's affair (``_writing``).
2. The answer is built before the commit and given after it. Where a database lets somebody else insert first what excludes a fact, the run
   is read again by a statement of its own, and the answer is that on what stands there.
3. A transaction that decided not to write commits nothing.
4. Whatever opens a run, or may, puts it on the agenda in the same transaction or before; it is taken out after the verdict that closed it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Final, Self, TypeVar, final

from sqlalchemy import Connection, insert

from countermark.run.attempts import AttemptKey
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    Admissible,
    AlreadyCommitted,
    AttemptIdentityTaken,
    Cancellation,
    ClaimDefect,
    Committed,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    ExecutionClaim,
    Launcher,
    LaunchResult,
    RunLedger,
    SnapshotStale,
    Transition,
    admit_start_claim,
    cause_parts,
)
from countermark.run.demand import TrainingRunDesired
from countermark.run.dispatch import (
    AttemptNotClaimed,
    DispatchDefect,
    Insertable,
    OutcomeDefect,
    admit_abandonment,
    admit_adjudication,
    admit_cancellation,
    admit_dispatch_intent,
    admit_dispatch_outcome,
)
from countermark.run.records import (
    DOCUMENT_BYTES_MAX,
    Attached,
    AttemptFound,
    DemandNamesAnotherWork,
    FieldUnwritable,
    Recorded,
    RowDefect,
    RunContext,
    RunIdRowMismatch,
    RunListed,
    RunRecord,
    RunUnknown,
    Stands,
    StoredSweep,
    StoredVerdict,
    SweepDamaged,
    SweepIdTaken,
    SweepUnknown,
    bounded,
)
from countermark.sessions.filters.condition import Where
from countermark.store import agenda, ledger, rows, sweeps
from countermark.store.interface import Finding, LoadDefect
from countermark.store.material import Material
from countermark.store.rows import Row
from countermark.store.schema import runs
from countermark.values import NonEmpty, Refused

Answer = TypeVar("Answer")
Fact = TypeVar("Fact")
Defect = TypeVar("Defect")
Append = Callable[[Connection, str, int, Fact], None]


def _bounded_result(result: LaunchResult) -> LaunchResult:
    match result:
        case Dispatched(detail):
            return Dispatched(bounded(detail))
        case DispatchRefused(why):
            return DispatchRefused(bounded(why))
        case DispatchUnknown(why):
            return DispatchUnknown(bounded(why))


def _unwritable_document(name: str, document: bytes) -> Refused[FieldUnwritable] | None:
    if len(document) <= DOCUMENT_BYTES_MAX:
        return None
    return Refused(NonEmpty(FieldUnwritable(name, f"it takes {len(document)} bytes, and {DOCUMENT_BYTES_MAX} are the most")))


def _read_again(decide: Callable[[], Answer]) -> Answer:
    """What ``decide`` answers on the run as it is now, once more where somebody's insertion came first: he has committed by then."""
    try:
        return decide()
    except ledger.Overtaken:
        return decide()


@final
class Held:
    """A run that nobody else writes to until its transaction ends."""

    __slots__ = ("_follows", "_given", "connection", "run_id")

    def __init__(self, connection: Connection, run_id: str, material: Material, given: Sequence[Sequence[Row]] | None = None) -> None:
        self.connection: Final = connection
        self.run_id: Final = run_id
        self._follows: Final = material.derive
        self._given = given

    def load(self) -> RunRecord | Refused[LoadDefect]:
        """The run as it is now: first what was read when it was held, where that was done in one go, and from then on what is read anew."""
        if not rows.is_askable(self.run_id):
            return Refused(NonEmpty(RunUnknown(self.run_id)))
        given, self._given = self._given, None
        if given is None:
            return ledger.load(self.connection, self.run_id, self._follows)
        return ledger.read(self.run_id, given, self._follows)


class SqlStore(ABC):
    """What is common to every SQL database; a subclass opens connections and runs transactions."""

    @property
    @abstractmethod
    def location(self) -> str: ...

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]:
        """One snapshot of the ledger."""

    @abstractmethod
    def _searching(self) -> AbstractContextManager[Connection]:
        """A snapshot of the ledger, with the tables of the observations beside its own."""

    @abstractmethod
    def _writing(self, run_id: str) -> AbstractContextManager[Held]:
        """A transaction that excludes other writers of the run; it commits when the block ends without an exception."""

    @abstractmethod
    def _observed(self) -> AbstractContextManager[Connection]:
        """One snapshot of the observations."""

    @abstractmethod
    def _observing(self, run_id: str) -> AbstractContextManager[Connection | None]:
        """A transaction that writes observations of a run; None where no such run is recorded."""

    @abstractmethod
    def _planning(self) -> AbstractContextManager[Connection]:
        """A transaction that changes the agenda and nothing else."""

    @abstractmethod
    def _concluding(self, sweep_id: str, verdict: StoredVerdict) -> AbstractContextManager[tuple[Connection, Connection]]:
        """The observations and the ledger, both for writing, with every other writer of the sweep's run excluded. Where they commit apart,
        a verdict that takes the run off the agenda is recorded before the agenda changes, and any other one after it."""

    @cached_property
    def _material(self) -> Material:
        return Material()

    @abstractmethod
    def check(self) -> tuple[Finding, ...]: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------------------- demands

    def record_demand(
        self, desired: TrainingRunDesired, context: RunContext, now_ms: int
    ) -> Recorded[RunRecord] | Attached | Refused[DemandNamesAnotherWork | FieldUnwritable | RowDefect]:
        columns = rows.context_columns(context)
        run_id = desired.demand.id.run_id()
        with self._writing(run_id) as held:
            connection = held.connection
            standing = held.load()
            if isinstance(standing, RunRecord):
                return self._attached(standing, desired)
            if (defects := NonEmpty.of(each for each in standing.defects if not isinstance(each, RunUnknown))) is not None:
                return Refused(defects)
            if isinstance(columns, tuple):
                return Refused(NonEmpty(columns[0], columns[1:]))
            # The run itself is another's that came first, between two statements: the insertion finds it.
            if (misnamed := ledger.named_as(connection, desired.demand.id)) not in (None, run_id):
                return Refused(NonEmpty(RunIdRowMismatch(misnamed, run_id)))
            row = {**rows.desired_columns(desired), **columns, "created_ms": now_ms}
            if not self._insert_run(connection, row, desired):
                standing = held.load()  # a statement of its own: it sees who came first
                assert isinstance(standing, RunRecord), standing
                return self._attached(standing, desired)
            agenda.put(connection, run_id, now_ms)
            written = held.load()
        assert isinstance(written, RunRecord), f"a run that was just written cannot be read: {written}"
        return Recorded(written)

    def _attached(self, standing: RunRecord, desired: TrainingRunDesired) -> Attached | Refused[DemandNamesAnotherWork]:
        recorded = standing.ledger.desired.demand.work
        if recorded != desired.demand.work:
            return Refused(NonEmpty(DemandNamesAnotherWork(standing.run_id, recorded, desired.demand.work)))
        return Attached(standing)

    def _insert_run(self, connection: Connection, row: dict[str, object], desired: TrainingRunDesired) -> bool:
        """Whether the run was written; where another came first, nothing was."""
        connection.execute(insert(runs), row)
        return True

    def load_run(self, run_id: str) -> RunRecord | Refused[LoadDefect]:
        with self._reading() as connection:
            return Held(connection, run_id, self._material).load()

    def list_runs(self, open_only: bool = False) -> tuple[RunListed, ...]:
        with self._reading() as connection:
            return ledger.on_agenda(connection) if open_only else ledger.summaries(connection)

    def runs_where(self, where: Where) -> tuple[RunListed, ...]:
        with self._searching() as connection:
            return ledger.chosen(connection, where)

    def find_runs(self, prefix: str) -> tuple[RunListed, ...]:
        if not rows.is_askable(prefix):
            return ()
        with self._reading() as connection:
            return ledger.summaries(connection, prefix)

    def find_attempt(self, prefix: str) -> tuple[AttemptFound, ...]:
        if not rows.is_askable(prefix):
            return ()
        with self._reading() as connection:
            return ledger.attempts(connection, prefix)

    # -------------------------------------------------------------------------------------------------------- control

    def claim_start(
        self, run_id: str, snapshot: int, transition: Transition, candidate: AttemptKey, now_ms: int, by: str = ""
    ) -> Committed | AlreadyCommitted | SnapshotStale | Refused[ClaimDefect | FieldUnwritable | LoadDefect]:
        if (wordy := NonEmpty.of(rows.unwritable_words("cause", *cause_parts(transition.cause)))) is not None:
            return Refused(wordy)
        # Before the run is held: everybody else waits for what is done meanwhile.
        columns = ledger.claim_columns(transition, candidate, bounded(by))
        with self._writing(run_id) as held:
            try:
                return _read_again(lambda: self._claimed(held, snapshot, transition, candidate, now_ms, columns))
            except ledger.Overtaken:
                # Admissible by all that the run holds, and not insertable: another run's claim has the identity, or the store is damaged.
                if ledger.run_of_attempt(held.connection, candidate.nonce) is None:
                    raise
                return Refused(NonEmpty(AttemptIdentityTaken(candidate)))

    def _claimed(
        self, held: Held, snapshot: int, transition: Transition, candidate: AttemptKey, now_ms: int, columns: Mapping[str, object]
    ) -> Committed | AlreadyCommitted | SnapshotStale | Refused[ClaimDefect | FieldUnwritable | LoadDefect]:
        """The answer on the run as it is now; raises ``Overtaken`` where it was no longer so when the claim was inserted."""
        record = held.load()
        if isinstance(record, Refused):
            return record
        decision = admit_start_claim(record.ledger, snapshot, transition, candidate)
        if not isinstance(decision, Admissible):
            return decision
        ledger.append_claim(held.connection, held.run_id, decision.claim.version, columns, now_ms)
        agenda.put(held.connection, held.run_id, now_ms)
        return Committed(decision.claim)

    def _append(
        self,
        run_id: str,
        admit: Callable[[RunLedger], Insertable[Fact] | Stands[Fact] | Refused[Defect]],
        append: Append[Fact],
        plan: Callable[[Connection, str, int], None],
        now_ms: int,
    ) -> Recorded[Fact] | Stands[Fact] | Refused[Defect | LoadDefect]:
        """Append the fact that ``admit`` lets in on the run as it is now, as its next version; ``plan`` puts the run on the agenda."""
        with self._writing(run_id) as held:
            return _read_again(lambda: self._appended(held, admit, append, plan, now_ms))

    def _appended(
        self,
        held: Held,
        admit: Callable[[RunLedger], Insertable[Fact] | Stands[Fact] | Refused[Defect]],
        append: Append[Fact],
        plan: Callable[[Connection, str, int], None],
        now_ms: int,
    ) -> Recorded[Fact] | Stands[Fact] | Refused[Defect | LoadDefect]:
        """The answer on the run as it is now; raises ``Overtaken`` where it was no longer so when the fact was inserted."""
        record = held.load()
        if isinstance(record, Refused):
            return record
        decision = admit(record.ledger)
        if not isinstance(decision, Insertable):
            return decision
        append(held.connection, held.run_id, record.ledger.version + 1, decision.fact)
        plan(held.connection, held.run_id, now_ms)
        return Recorded(decision.fact)

    def record_dispatch_intent(
        self, claim: ExecutionClaim, launcher: Launcher, host: str, now_ms: int
    ) -> Recorded[DispatchIntent] | Stands[DispatchIntent] | Refused[DispatchDefect | FieldUnwritable | LoadDefect]:
        if (wordy := NonEmpty.of(rows.unwritable_words("host", host))) is not None:
            return Refused(wordy)
        intent = DispatchIntent(claim.attempt, launcher, host, now_ms)
        run_id = claim.transition.demand.run_id()
        return self._append(run_id, lambda now: admit_dispatch_intent(now, intent), ledger.append_intent, agenda.put, now_ms)

    def record_dispatch_outcome(
        self, intent: DispatchIntent, result: LaunchResult, now_ms: int
    ) -> Recorded[DispatchOutcome] | Stands[DispatchOutcome] | Refused[OutcomeDefect | LoadDefect]:
        outcome = DispatchOutcome(intent.attempt, _bounded_result(result), now_ms)
        with self._reading() as connection:
            run_id = ledger.run_of_attempt(connection, intent.attempt.nonce)
        if run_id is None:
            return Refused(NonEmpty(AttemptNotClaimed(intent.attempt)))
        return self._append(run_id, lambda now: admit_dispatch_outcome(now, outcome), ledger.append_outcome, agenda.put, now_ms)

    def cancel(self, run_id: str, by: str, now_ms: int) -> Recorded[Cancellation] | Stands[Cancellation] | Refused[LoadDefect]:
        cancellation = Cancellation(bounded(by), now_ms)
        return self._append(run_id, lambda now: admit_cancellation(now, cancellation), ledger.append_cancellation, agenda.hurry, now_ms)

    def abandon(
        self, run_id: str, attempt: AttemptKey, by: str, now_ms: int
    ) -> Recorded[Abandonment] | Stands[Abandonment] | Refused[AttemptNotClaimed | LoadDefect]:
        abandonment = Abandonment(attempt, bounded(by), now_ms)
        return self._append(run_id, lambda now: admit_abandonment(now, abandonment), ledger.append_abandonment, agenda.hurry, now_ms)

    def adjudicate(
        self, run_id: str, adjudication: Adjudication
    ) -> Recorded[Adjudication] | Stands[Adjudication] | Refused[AttemptNotClaimed | FieldUnwritable | LoadDefect]:
        if (wordy := NonEmpty.of(rows.unwritable_adjudication(adjudication))) is not None:
            return Refused(wordy)
        kept = replace(adjudication, by=bounded(adjudication.by), reason=bounded(adjudication.reason))
        return self._append(run_id, lambda now: admit_adjudication(now, kept), ledger.append_adjudication, agenda.hurry, kept.recorded_ms)

    # --------------------------------------------------------------------------------------------------------- agenda

    def take_due(self, now_ms: int, lease_ms: int, limit: int) -> tuple[RunListed, ...]:
        with self._planning() as connection:
            taken = agenda.take(connection, now_ms, now_ms + lease_ms, limit)
            return ledger.named(connection, taken) if taken else ()

    def look_again(self, run_id: str, due_ms: int) -> None:
        if not rows.is_askable(run_id):
            return
        with self._planning() as connection:
            agenda.set_due(connection, run_id, due_ms)

    def next_due(self) -> int | None:
        with self._reading() as connection:
            return agenda.next_due(connection)

    # --------------------------------------------------------------------------------------------------- observations

    def record_sweep(
        self, run_id: str, sweep_id: str, document: bytes, started_ms: int, ended_ms: int
    ) -> Recorded[StoredSweep] | Stands[StoredSweep] | Refused[RunUnknown | SweepIdTaken | SweepDamaged | FieldUnwritable]:
        if (too_large := _unwritable_document("document", document)) is not None:
            return too_large
        if (wordy := NonEmpty.of(rows.unwritable_sweep_id(sweep_id))) is not None:
            return Refused(wordy)
        if not rows.is_askable(run_id):
            return Refused(NonEmpty(RunUnknown(run_id)))
        sweep = StoredSweep(sweep_id, run_id, document, started_ms, ended_ms)
        with self._observing(run_id) as connection:
            if connection is None:
                return Refused(NonEmpty(RunUnknown(run_id)))
            standing = sweeps.load(connection, sweep_id)
            if standing is None:
                if sweeps.append(connection, sweep):
                    return Recorded(sweep)
                standing = sweeps.load(connection, sweep_id)  # a statement of its own: it sees who came first
            if isinstance(standing, Refused):
                return standing
            return Stands(sweep) if standing == sweep else Refused(NonEmpty(SweepIdTaken(sweep_id)))

    def latest_sweep(self, run_id: str) -> StoredSweep | None | Refused[SweepDamaged]:
        if not rows.is_askable(run_id):
            return None
        with self._observed() as connection:
            return sweeps.latest(connection, run_id)

    def load_sweep(self, sweep_id: str) -> StoredSweep | Refused[SweepUnknown | SweepDamaged]:
        if not rows.is_askable(sweep_id):
            return Refused(NonEmpty(SweepUnknown(sweep_id)))
        with self._observed() as connection:
            found = sweeps.load(connection, sweep_id)
        return Refused(NonEmpty(SweepUnknown(sweep_id))) if found is None else found

    def find_sweeps(self, prefix: str) -> tuple[str, ...]:
        if not rows.is_askable(prefix):
            return ()
        with self._observed() as connection:
            return sweeps.begins(connection, prefix)

    def record_verdict(
        self, sweep_id: str, verdict: StoredVerdict
    ) -> Recorded[StoredVerdict] | Stands[StoredVerdict] | Refused[SweepUnknown | FieldUnwritable]:
        if (too_large := _unwritable_document("verdict", verdict.text)) is not None:
            return too_large
        if not rows.is_askable(sweep_id):
            return Refused(NonEmpty(SweepUnknown(sweep_id)))
        with self._concluding(sweep_id, verdict) as (observations, control):
            run_id = sweeps.run_of(observations, sweep_id)
            if run_id is None:
                return Refused(NonEmpty(SweepUnknown(sweep_id)))
            standing = sweeps.concluded(observations, sweep_id)
            stands = bool(standing) and standing[-1] == verdict
            if not stands:
                sweeps.append_verdict(observations, run_id, sweep_id, verdict)
            if sweeps.newest_of(observations, run_id) == (sweep_id, verdict.closed, verdict.version):
                agenda.follow(control, run_id, verdict.closed, verdict.version)
        return Stands(verdict) if stands else Recorded(verdict)

    def verdicts(self, sweep_id: str) -> tuple[StoredVerdict, ...]:
        if not rows.is_askable(sweep_id):
            return ()
        with self._observed() as connection:
            return sweeps.concluded(connection, sweep_id)
