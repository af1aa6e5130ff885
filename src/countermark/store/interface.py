"""What every kind of store can do; the conformance tests are written against this and nothing else.

Rules kept here:

1. An answer is given after the commit, never before.
2. Repeating a call is safe: what is recorded already is a success (``AlreadyCommitted``, ``Attached``, ``Stands``) and writes nothing.
3. Decisions are made by ``countermark.run`` on the ledger as the transaction sees it; a store only keeps them.
4. A failing environment raises ``StoreError``; the domain's no is a ``Refused`` with every defect.
5. Times are handed in (milliseconds UTC) and order nothing: the order is that of the versions.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, final

from countermark.run.attempts import AttemptKey
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    AlreadyCommitted,
    Cancellation,
    ClaimDefect,
    Committed,
    DispatchIntent,
    DispatchOutcome,
    ExecutionClaim,
    Launcher,
    LaunchResult,
    SnapshotStale,
    Transition,
)
from countermark.run.demand import TrainingRunDesired
from countermark.run.dispatch import AttemptNotClaimed, DispatchDefect, OutcomeDefect
from countermark.run.records import (
    Attached,
    AttemptFound,
    DemandNamesAnotherWork,
    FieldUnwritable,
    Recorded,
    RowDefect,
    RunContext,
    RunListed,
    RunRecord,
    RunUnknown,
    Stands,
    StoredSweep,
    StoredVerdict,
    SweepDamaged,
    SweepIdTaken,
    SweepUnknown,
)
from countermark.sessions.filters.condition import Where
from countermark.values import Refused

LoadDefect = RunUnknown | RowDefect


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check of the store found: a stable ``code``, the place, and what mends it."""

    code: str
    where: str
    what: str
    remedy: str


class Store(Protocol):
    """A ledger with its observations. Safe to use from several threads; a forked child opens its own."""

    @property
    def location(self) -> str:
        """Where the store is, as a person may be shown it."""
        ...

    def record_demand(
        self, desired: TrainingRunDesired, context: RunContext, now_ms: int
    ) -> Recorded[RunRecord] | Attached | Refused[DemandNamesAnotherWork | FieldUnwritable | RowDefect]: ...

    def load_run(self, run_id: str) -> RunRecord | Refused[LoadDefect]:
        """The run with its whole ledger, in one snapshot; refused with every row that does not follow from its material."""
        ...

    def list_runs(self, open_only: bool = False) -> tuple[RunListed, ...]:
        """The runs, oldest record first; ``open_only`` gives those on the agenda: every run but those whose latest verdict is closed and
        still at their version. (A process that ended between a closing verdict and the agenda leaves an entry: one more look, never a lost
        run.)"""
        ...

    def runs_where(self, where: Where) -> tuple[RunListed, ...]:
        """The runs for which a filter over runs holds, oldest record first."""
        ...

    def find_runs(self, prefix: str) -> tuple[RunListed, ...]:
        """The runs whose id begins with ``prefix``."""
        ...

    def find_attempt(self, prefix: str) -> tuple[AttemptFound, ...]:
        """The claimed attempts whose nonce begins with ``prefix``."""
        ...

    def claim_start(
        self, run_id: str, snapshot: int, transition: Transition, candidate: AttemptKey, now_ms: int, by: str = ""
    ) -> Committed | AlreadyCommitted | SnapshotStale | Refused[ClaimDefect | FieldUnwritable | LoadDefect]:
        """``by``: the person who asked for this start; empty where a controller starts by itself."""
        ...

    def record_dispatch_intent(
        self, claim: ExecutionClaim, launcher: Launcher, host: str, now_ms: int
    ) -> Recorded[DispatchIntent] | Stands[DispatchIntent] | Refused[DispatchDefect | FieldUnwritable | LoadDefect]:
        """Said durably before a launcher is called. ``Recorded`` and ``Stands`` alike mean: call it now."""
        ...

    def record_dispatch_outcome(
        self, intent: DispatchIntent, result: LaunchResult, now_ms: int
    ) -> Recorded[DispatchOutcome] | Stands[DispatchOutcome] | Refused[OutcomeDefect | LoadDefect]:
        """What the launcher answered; wordy details are cut, never refused."""
        ...

    def cancel(self, run_id: str, by: str, now_ms: int) -> Recorded[Cancellation] | Stands[Cancellation] | Refused[LoadDefect]: ...

    def abandon(
        self, run_id: str, attempt: AttemptKey, by: str, now_ms: int
    ) -> Recorded[Abandonment] | Stands[Abandonment] | Refused[AttemptNotClaimed | LoadDefect]: ...

    def adjudicate(
        self, run_id: str, adjudication: Adjudication
    ) -> Recorded[Adjudication] | Stands[Adjudication] | Refused[AttemptNotClaimed | FieldUnwritable | LoadDefect]:
        """A person's ruling on blockers of an attempt; wordy reasons are cut, the blockers' texts never."""
        ...

    def take_due(self, now_ms: int, lease_ms: int, limit: int) -> tuple[RunListed, ...]:
        """At most ``limit`` runs of the agenda that are due, the longest due first, each given to one caller and due again in ``lease_ms``.

        The lease saves two controllers from looking at one run. It excludes nothing: a claim's slot does.
        """
        ...

    def look_again(self, run_id: str, due_ms: int) -> None:
        """When the run is to be looked at next; says nothing about a run that is not on the agenda."""
        ...

    def next_due(self) -> int | None:
        """The earliest time at which a run of the agenda is due (milliseconds UTC); None when no run is open."""
        ...

    def record_sweep(
        self, run_id: str, sweep_id: str, document: bytes, started_ms: int, ended_ms: int
    ) -> Recorded[StoredSweep] | Stands[StoredSweep] | Refused[RunUnknown | SweepIdTaken | SweepDamaged | FieldUnwritable]: ...

    def latest_sweep(self, run_id: str) -> StoredSweep | None | Refused[SweepDamaged]:
        """The sweep of the run that was recorded last; the order is that of recording, not of clocks."""
        ...

    def load_sweep(self, sweep_id: str) -> StoredSweep | Refused[SweepUnknown | SweepDamaged]: ...

    def find_sweeps(self, prefix: str) -> tuple[str, ...]:
        """The ids of the sweeps that begin with ``prefix``, in the order of recording."""
        ...

    def record_verdict(
        self, sweep_id: str, verdict: StoredVerdict
    ) -> Recorded[StoredVerdict] | Stands[StoredVerdict] | Refused[SweepUnknown | FieldUnwritable]:
        """Keep what was concluded; the same conclusion twice in a row is kept once. A closing one takes the run off the agenda when the run
        is still at its version, any other has it there."""
        ...

    def verdicts(self, sweep_id: str) -> tuple[StoredVerdict, ...]:
        """What was concluded from the sweep, in the order of recording."""
        ...

    def check(self) -> tuple[Finding, ...]:
        """Everything that is wrong with the store; empty when it is whole. Reads every row."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
