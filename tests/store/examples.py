"""Contexts and short cuts for the tests of stores."""

from countermark.run.attempts import Cause
from countermark.run.claims import AlreadyCommitted, Committed, DispatchIntent, ExecutionClaim
from countermark.run.demand import TrainingRunDesired
from countermark.run.records import Recorded, RunContext, RunRecord
from countermark.store import Store
from tests.run.examples import demand_id, desired, key, transition

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
