"""A store against a model of itself: any sequence of calls, with reopenings in between, over a real ledger file."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from countermark.run.attempts import Cause, InfrastructureRetry, InitialAttempt, Relaunch, RequestedReexecution, Resume
from countermark.run.claims import (
    Abandonment,
    Admissible,
    Cancellation,
    Committed,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    Launcher,
    LaunchResult,
    RunLedger,
    Transition,
    admit_start_claim,
)
from countermark.run.dispatch import (
    Insertable,
    admit_abandonment,
    admit_cancellation,
    admit_dispatch_intent,
    admit_dispatch_outcome,
)
from countermark.run.records import Recorded
from countermark.store.sqlite import SqliteStore
from tests.run.examples import CHECKPOINT, claim, demand_id, desired, key, work
from tests.store.examples import CONTEXT, loaded

REQUESTS = ("nightly", "weekly")
#: Attempts of one run only: identities are unique over the store.
NUMBERS = {"nightly": range(1, 5), "weekly": range(11, 15)}


class Ledgers(RuleBasedStateMachine):
    """The model is the ledgers themselves as values, moved by the pure decisions; the store must always hold the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="countermark-machine-"))
        self.store = SqliteStore.open(self.folder, create=True)
        self.model: dict[str, RunLedger] = {}
        self.now_ms = 0

    def teardown(self) -> None:
        try:
            assert self.store.check() == ()
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    def tick(self, step: int) -> int:
        """A clock that also steps back."""
        self.now_ms += step
        return self.now_ms

    @initialize()
    def first_demand(self) -> None:
        self.demand("nightly", 1)

    @rule(request=st.sampled_from(REQUESTS), step=st.integers(-1_000, 1_000))
    def demand(self, request: str, step: int) -> None:
        answer = self.store.record_demand(desired(request), CONTEXT, self.tick(step))
        assert isinstance(answer, Recorded) == (request not in self.model)
        self.model.setdefault(request, RunLedger(desired(request), 0))

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore.open(self.folder, create=False)

    def moved(self, request: str, **more: object) -> None:
        ledger = self.model[request]
        self.model[request] = replace(ledger, version=ledger.version + 1, **more)  # type: ignore[arg-type]

    @rule(data=st.data(), request=st.sampled_from(REQUESTS), lag=st.sampled_from([0, 0, 0, 1]))
    def claim(self, data: st.DataObject, request: str, lag: int) -> None:
        if request not in self.model:
            return
        ledger, numbers = self.model[request], NUMBERS[request]
        before, candidate = key(data.draw(st.sampled_from(numbers))), key(data.draw(st.sampled_from(numbers)))
        causes: list[Cause] = [InitialAttempt(), RequestedReexecution("again"), InfrastructureRetry(before)]
        causes += [Resume(before, CHECKPOINT), Relaunch(before, "lost"), Relaunch(before, "lost", CHECKPOINT)]
        asked = Transition(demand_id(request), work(), data.draw(st.sampled_from(causes)))
        snapshot = ledger.version - lag
        wanted = admit_start_claim(ledger, snapshot, asked, candidate)
        answer = self.store.claim_start(demand_id(request).run_id(), snapshot, asked, candidate, self.tick(1))
        if isinstance(wanted, Admissible):
            assert answer == Committed(wanted.claim)
            self.moved(request, claims=(*ledger.claims, wanted.claim))
        else:
            assert answer == wanted

    @precondition(lambda self: any(ledger.claims for ledger in self.model.values()))
    @rule(data=st.data(), launcher=st.sampled_from(["local", "slurm", "ray"]), host=st.sampled_from(["n1", "n2"]))
    def intend(self, data: st.DataObject, launcher: Launcher, host: str) -> None:
        request = data.draw(st.sampled_from([request for request, ledger in self.model.items() if ledger.claims]))
        ledger = self.model[request]
        chosen = data.draw(st.sampled_from(ledger.claims))
        intent = DispatchIntent(chosen.attempt, launcher, host, self.tick(1))
        wanted = admit_dispatch_intent(ledger, intent)
        answer = self.store.record_dispatch_intent(chosen, launcher, host, self.now_ms)
        if isinstance(wanted, Insertable):
            assert answer == Recorded(intent)
            self.moved(request, intents=(*ledger.intents, intent))
        else:
            assert answer == wanted

    @precondition(lambda self: any(ledger.intents for ledger in self.model.values()))
    @rule(data=st.data(), result=st.sampled_from([Dispatched("pid 7"), DispatchRefused("no"), DispatchUnknown("?")]))
    def answered(self, data: st.DataObject, result: LaunchResult) -> None:
        request = data.draw(st.sampled_from([request for request, ledger in self.model.items() if ledger.intents]))
        ledger = self.model[request]
        intent = data.draw(st.sampled_from(ledger.intents))
        outcome = DispatchOutcome(intent.attempt, result, self.tick(1))
        wanted = admit_dispatch_outcome(ledger, outcome)
        answer = self.store.record_dispatch_outcome(intent, result, self.now_ms)
        if isinstance(wanted, Insertable):
            assert answer == Recorded(outcome)
            self.moved(request, outcomes=(*ledger.outcomes, outcome))
        else:
            assert answer == wanted

    @rule(request=st.sampled_from(REQUESTS), number=st.integers(1, 4))
    def give_up(self, request: str, number: int) -> None:
        if request not in self.model:
            return
        ledger, attempt = self.model[request], key(NUMBERS[request][number - 1])
        given_up = Abandonment(attempt, "ada", self.tick(1))
        wanted = admit_abandonment(ledger, given_up)
        answer = self.store.abandon(demand_id(request).run_id(), attempt, "ada", self.now_ms)
        if isinstance(wanted, Insertable):
            assert answer == Recorded(given_up)
            self.moved(request, abandonments=(*ledger.abandonments, given_up))
        else:
            assert answer == wanted

    @precondition(lambda self: sum(ledger.version for ledger in self.model.values()) > 6)
    @rule(request=st.sampled_from(REQUESTS))
    def cancel(self, request: str) -> None:
        if request not in self.model:
            return
        ledger, said = self.model[request], Cancellation("ada", self.tick(1))
        wanted = admit_cancellation(ledger, said)
        answer = self.store.cancel(demand_id(request).run_id(), "ada", self.now_ms)
        if isinstance(wanted, Insertable):
            assert answer == Recorded(said)
            self.moved(request, cancellations=(said,))
        else:
            assert answer == wanted

    @invariant()
    def the_store_holds_the_model(self) -> None:
        for request, ledger in self.model.items():
            record = loaded(self.store, demand_id(request).run_id())
            assert record.ledger == ledger
            assert [entry.version for entry in record.history] == list(range(1, ledger.version + 1))
        listed = {each.run_id: (each.version, each.cancelled) for each in self.store.list_runs()}
        model = {demand_id(request).run_id(): (each.version, bool(each.cancellations)) for request, each in self.model.items()}
        assert listed == model


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(max_examples=40, stateful_step_count=25)


def test_the_model_reaches_what_it_is_there_for() -> None:
    """Every arm of the machine writes something on its own, so that no rule is always refused."""
    machine = Ledgers()
    try:
        machine.first_demand()
        answer = machine.store.claim_start(demand_id().run_id(), 0, claim(1).transition, key(1), 1)
        assert answer == Committed(claim(1))
        assert isinstance(machine.store.record_dispatch_intent(claim(1), "local", "n1", 2), Recorded)
    finally:
        machine.store.close()
        shutil.rmtree(machine.folder)
