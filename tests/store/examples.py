"""Contexts and short cuts for the tests of stores."""

from countermark.run.attempts import Cause
from countermark.run.claims import Adjudication, AlreadyCommitted, BelieveSource, Committed, Dispatched, DispatchIntent, ExecutionClaim
from countermark.run.demand import TrainingRunDesired
from countermark.run.records import Recorded, RunContext, RunRecord, StoredVerdict
from countermark.store import Store
from tests.run.examples import demand_id, desired, key, transition
from tests.run.test_claims import RETRY

RUN = demand_id().run_id()
CONTEXT = RunContext(
    name="topics-lora",
    sources={"model": "/data/models/SmolLM2-135M", "dataset": "/data/topics.jsonl"},
    trainer={"save_steps": 5, "warm": True, "rate": 0.5, "tags": ("a", "b"), "nested": {"deep": None}},
    argv=("python", "train.py", "--out", "{output}"),
    cwd="/home/ada/project",
    env={"OMP_NUM_THREADS": "1"},
    launcher="local",
    receipts=({"axis": "rank", "source": "recipe.toml", "line": 7},),
)


def recorded(store: Store, wanted: TrainingRunDesired | None = None, now_ms: int = 1_000) -> RunRecord:
    """A run of the clean recipe, or of another, written into the store."""
    answer = store.record_demand(wanted or desired(), CONTEXT, now_ms)
    assert isinstance(answer, Recorded), answer
    return answer.fact


def loaded(store: Store, run: str = RUN) -> RunRecord:
    record = store.load_run(run)
    assert isinstance(record, RunRecord), record
    return record


def won(store: Store, number: int, cause: Cause | None = None) -> ExecutionClaim:
    """The claim of the attempt with a number, made on the current version."""
    answer = store.claim_start(RUN, loaded(store).ledger.version, transition(cause), key(number), 2_000 + number)
    assert isinstance(answer, Committed), answer
    return answer.claim


def carried(store: Store, number: int) -> ExecutionClaim:
    """The claim that holds the first slot, whoever won it."""
    answer = store.claim_start(RUN, loaded(store).ledger.version, transition(), key(number), 2_000)
    assert isinstance(answer, Committed | AlreadyCommitted), answer
    return answer.claim


def intended(store: Store, claim: ExecutionClaim, now_ms: int = 3_000) -> DispatchIntent:
    answer = store.record_dispatch_intent(claim, "local", "n1", now_ms)
    assert isinstance(answer, Recorded), answer
    return answer.fact


#: Closes the run of a filled store, and leaves it open.
CANCELLED = StoredVerdict("Cancelled", True, 7, b"over")
GOING_ON = StoredVerdict("InProgress", False, 7, b"on its way")


def fill(store: Store, verdict: StoredVerdict = CANCELLED) -> None:
    """A row in every table of recorded things, and a store that is whole."""
    recorded(store)
    intent = intended(store, won(store, 1))
    store.record_dispatch_outcome(intent, Dispatched("pid 7"), 4_000)
    won(store, 2, RETRY)
    store.abandon(RUN, key(2), "ada", 5_000)
    store.adjudicate(RUN, Adjudication(key(2), BelieveSource("supervisor"), ("b",), "ada", "seen", 5_500))
    store.cancel(RUN, "ada", 6_000)
    store.record_sweep(RUN, "s1", b"{}", 1, 2)
    store.record_verdict("s1", verdict)
    assert store.check() == ()
