"""The simulated store: a ledger in memory, moved by the decisions of ``countermark.run`` and by nothing else.

Rules kept here:

1. A transaction happens at once. Before it and after it its caller may wait for any time, or die: a request that is under way is reordered
   with others, and an answer may be lost after its commit.
2. Every commit, and every question and answer about a claim, goes into the recorded history, which is checked when all is over.
3. What the store answers is held at once against what it must never answer.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from countermark.run import claims as claims_room
from countermark.run import dispatch as dispatch_room
from countermark.run.attempts import AttemptKey, predecessor_of
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    Admissible,
    AlreadyCommitted,
    Cancellation,
    Committed,
    DispatchIntent,
    DispatchOutcome,
    ExecutionClaim,
    Launcher,
    LaunchResult,
    RunLedger,
    SnapshotStale,
    Transition,
)
from countermark.run.dispatch import Insertable
from countermark.run.records import (
    AttemptFound,
    LedgerEntry,
    Recorded,
    RunContext,
    RunRecord,
    RunSummary,
    Stands,
    StoredSweep,
    StoredVerdict,
)
from countermark.values import Refused
from tests.simulation.history import Answer, Answered, Asked, Fact, FactKind

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

RUN = "run"


class SimStore:
    """One run's ledger and the latest conclusions about it."""

    location = "simulated"

    def __init__(self, world: "World", ledger: RunLedger, context: RunContext) -> None:
        self.world = world
        self.ledger = ledger
        self.context = context
        self.entries: tuple[LedgerEntry, ...] = ()
        self.closed_at: int | None = None
        self.arm = ""
        self.closed_arm = ""
        self.stored: dict[str, StoredSweep] = {}
        self.concluded: dict[str, list[StoredVerdict]] = {}
        self.calls = 0

    def is_open(self) -> bool:
        """Whether the run is on the agenda: nothing closed was concluded at its current version."""
        return self.closed_at != self.ledger.version

    # ------------------------------------------------------------------------------------------------------- reading

    def record(self) -> RunRecord:
        return RunRecord(RUN, self.ledger, self.context, 0, self.entries)

    def load_run(self, run_id: str) -> RunRecord:
        self.world.pause("load")
        self.world.stage_begins("load")
        return self.record()

    def find_attempt(self, prefix: str) -> tuple[AttemptFound, ...]:
        found = (claim.attempt.nonce for claim in self.ledger.claims if claim.attempt.nonce.hex.startswith(prefix))
        return tuple(AttemptFound(RUN, nonce) for nonce in found)

    def find_runs(self, prefix: str) -> tuple[RunSummary, ...]:
        return ()

    def look_again(self, run_id: str, due_ms: int) -> None:
        """Whoever waits looks again."""
        self.world.pause("before look again")
        self.world.moves += 1

    # ------------------------------------------------------------------------------------------------------- writing

    def _transact(self, name: str, body: Callable[[], T]) -> T:
        """One transaction between two moments at which its caller may wait or die."""
        self.world.pause(f"before {name}")
        answer = body()
        self.world.pause(f"after {name}")
        return answer

    def _append(self, kind: FactKind, by: str = "", **more: Any) -> None:
        version = self.ledger.version + 1
        self.ledger = replace(self.ledger, version=version, **more)
        self.entries = (*self.entries, LedgerEntry(version, kind, self.world.now_ms(), by))
        fact = next(iter(more.values()))[-1]
        if isinstance(fact, ExecutionClaim):
            self.world.figures[f"claim: {type(fact.transition.cause).__name__}"] += 1
            before = predecessor_of(fact.transition.cause)
            named = "" if before is None else before.nonce.hex
            slot = fact.transition.slot().hex
            self.world.note(Fact(RUN, version, kind, fact.attempt.nonce.hex, slot, type(fact.transition.cause).__name__, named))
        else:
            attempt = "" if isinstance(fact, Cancellation) else fact.attempt.nonce.hex
            self.world.note(Fact(RUN, version, kind, attempt))
        self.world.say(f"commits {version} {kind} {self.world.called(fact)}")

    def claim_start(
        self, run_id: str, snapshot: int, transition: Transition, candidate: AttemptKey, now_ms: int, by: str = ""
    ) -> Committed | AlreadyCommitted | SnapshotStale | Refused[Any]:
        self.calls += 1
        call = str(self.calls)
        slot = transition.slot().hex
        self.world.note(Asked(call, RUN, slot, candidate.nonce.hex, snapshot))

        def body() -> Committed | AlreadyCommitted | SnapshotStale | Refused[Any]:
            decision = claims_room.admit_start_claim(self.ledger, snapshot, transition, candidate)
            if not isinstance(decision, Admissible):
                return decision
            self._append("claim", by, claims=(*self.ledger.claims, decision.claim))
            return Committed(decision.claim)

        answer = self._transact("claim", body)
        self.world.note(_answered(call, answer))
        return answer

    def record_dispatch_intent(self, claim: ExecutionClaim, launcher: Launcher, host: str, now_ms: int) -> Any:
        # The program starts local processes only; the world's launcher may be another one.
        intent = DispatchIntent(claim.attempt, self.world.launcher, host, now_ms)

        def body() -> object:
            decision = dispatch_room.admit_dispatch_intent(self.ledger, intent)
            if isinstance(decision, Insertable):
                self._append("intent", intents=(*self.ledger.intents, intent))
            if not isinstance(decision, Refused):
                self.world.must_not_be_dispatched(claim.attempt)
            return Recorded(intent) if isinstance(decision, Insertable) else decision

        return self._transact("intent", body)

    def record_dispatch_outcome(self, intent: DispatchIntent, result: LaunchResult, now_ms: int) -> Any:
        outcome = DispatchOutcome(intent.attempt, result, now_ms)

        def body() -> object:
            decision = dispatch_room.admit_dispatch_outcome(self.ledger, outcome)
            if not isinstance(decision, Insertable):
                return decision
            self._append("outcome", outcomes=(*self.ledger.outcomes, outcome))
            return Recorded(outcome)

        return self._transact("outcome", body)

    def cancel(self, run_id: str, by: str, now_ms: int) -> Any:
        cancellation = Cancellation(by, now_ms)

        def body() -> object:
            decision = dispatch_room.admit_cancellation(self.ledger, cancellation)
            if not isinstance(decision, Insertable):
                return decision
            self._append("cancellation", by, cancellations=(cancellation,))
            return Recorded(cancellation)

        return self._transact("cancellation", body)

    def abandon(self, run_id: str, attempt: AttemptKey, by: str, now_ms: int) -> Any:
        abandonment = Abandonment(attempt, by, now_ms)

        def body() -> object:
            decision = dispatch_room.admit_abandonment(self.ledger, abandonment)
            if not isinstance(decision, Insertable):
                return decision
            self._append("abandonment", by, abandonments=(*self.ledger.abandonments, abandonment))
            return Recorded(abandonment)

        return self._transact("abandonment", body)

    def adjudicate(self, run_id: str, adjudication: Adjudication) -> Any:
        def body() -> object:
            decision = dispatch_room.admit_adjudication(self.ledger, adjudication)
            if not isinstance(decision, Insertable):
                return decision
            self._append("adjudication", adjudication.by, adjudications=(*self.ledger.adjudications, adjudication))
            return Recorded(adjudication)

        return self._transact("adjudication", body)

    # -------------------------------------------------------------------------------------------------- observations

    def record_sweep(self, run_id: str, sweep_id: str, document: bytes, started_ms: int, ended_ms: int) -> Any:
        self.world.pause("before sweep stored")
        sweep = StoredSweep(sweep_id, run_id, document, started_ms, ended_ms)
        self.stored[sweep_id] = sweep
        return Recorded(sweep)

    def record_verdict(self, sweep_id: str, verdict: StoredVerdict) -> Any:
        self.world.pause("before verdict stored")
        self.arm = verdict.arm
        # What was concluded on an older ledger closes nothing.
        if verdict.closed and verdict.version == self.ledger.version:
            self.closed_at, self.closed_arm = verdict.version, verdict.arm
            self.world.say(f"closes the run at version {verdict.version}: {verdict.arm}")
        return Recorded(verdict)


def _answered(call: str, answer: Committed | AlreadyCommitted | SnapshotStale | Refused[Any]) -> Answered:
    told: Answer
    match answer:
        case Committed(claim):
            return Answered(call, "committed", claim.attempt.nonce.hex, claim.version)
        case AlreadyCommitted(claim):
            told = "already"
            return Answered(call, told, claim.attempt.nonce.hex, claim.version)
        case SnapshotStale(current):
            return Answered(call, "stale", "", current)
        case Refused():
            return Answered(call, "refused", "", 0)


__all__ = ["RUN", "SimStore", "Stands"]
