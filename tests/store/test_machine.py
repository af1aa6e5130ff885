"""A store against a model of itself: any sequence of calls by two openers of one ledger, with reopenings and with transactions that break
off in between, for every kind of store.

Rules kept here:

1. After every call each opener reads just what the model holds: every run with its whole history, the lists, the agenda to the
   millisecond, sweeps and verdicts. At the end the store's own check finds nothing.
2. A call that breaks off at any statement, before its commit or behind it, leaves all of it or nothing. Where a kind keeps observations in
   a database of their own, a verdict may stand between the two commits; then the agenda errs on the side of one more look.
3. Each planted fault is found in the very examples that pass without it.
"""

from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from countermark.run.attempts import Cause, InfrastructureRetry, InitialAttempt, Relaunch, RequestedReexecution, Resume
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
    Launcher,
    LaunchResult,
    Ruling,
    SetAside,
    Transition,
)
from countermark.run.records import StoredSweep, StoredVerdict
from tests.faults import Fault, proven_by
from tests.run.examples import CHECKPOINT, demand_id, desired, key, work
from tests.store.breaking import Broke, Failed, Interrupted
from tests.store.conftest import KINDS
from tests.store.examples import CONTEXT
from tests.store.misdeeds import FAULTS
from tests.store.model import Model
from tests.store.pair import MACHINES, Kind, Pair, Request

REQUESTS: Final = ("nightly", "weekly", "yearly")
#: Attempts of each run; one identity lies in two of them, because it may be claimed once over the whole store.
NUMBERS: Final = {"nightly": range(1, 5), "weekly": range(4, 8), "yearly": range(11, 13)}
#: A run that is there, most of the time, so that most calls have something to do.
SOME_REQUEST: Final = st.sampled_from(("nightly", "nightly", "nightly", "weekly", "weekly", "yearly"))
SWEEPS: Final = ("s1", "s2", "s3")


class Ledgers(RuleBasedStateMachine):
    """Each rule is one call: the model moves by it, one of two openers is asked it, and both must tell what the model holds."""

    def __init__(self, kind: Kind, request: Request, reached: Counter[str]) -> None:
        super().__init__()
        self.pair = Pair(kind, request, reached)
        self.now_ms = 10_000

    @property
    def model(self) -> Model:
        return self.pair.model

    def call(self, *asked: Any) -> None:
        self.pair.call(*asked)

    def teardown(self) -> None:
        self.pair.end()

    def tick(self, step: int = 1) -> int:
        """A clock that also steps back."""
        self.now_ms = max(0, self.now_ms + step)
        return self.now_ms

    # ---------------------------------------------------------------------------------------------------------- rules

    @initialize()
    def first_demand(self) -> None:
        self.demand(0, "nightly", 1)
        first = Transition(demand_id(), work(), InitialAttempt())
        run = demand_id().run_id()
        self.call(1, lambda store: store.claim_start(run, 0, first, key(1), 1), lambda model: model.claim(run, 0, first, key(1), 1, ""))

    @rule(at=st.integers(1, 9), how=st.sampled_from([Failed, Interrupted]))
    def the_next_breaks_off(self, at: int, how: type[Broke]) -> None:
        self.pair.breaks = (at, how)

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.pair.reopen(who)

    @rule(who=st.integers(0, 1), request=SOME_REQUEST, step=st.integers(-1_000, 1_000))
    def demand(self, who: int, request: str, step: int) -> None:
        now_ms = self.tick(step)
        self.call(who, lambda store: store.record_demand(desired(request), CONTEXT, now_ms), lambda model: model.demand(request, now_ms))

    @rule(data=st.data(), who=st.integers(0, 1), request=SOME_REQUEST, lag=st.sampled_from([0, 0, 0, 1]))
    def claim(self, data: st.DataObject, who: int, request: str, lag: int) -> None:
        run, numbers = demand_id(request).run_id(), NUMBERS[request]
        version = self.model.records[run].ledger.version if run in self.model.records else 0
        before, candidate = key(data.draw(st.sampled_from(numbers))), key(data.draw(st.sampled_from(numbers)))
        causes: list[Cause] = [InitialAttempt(), RequestedReexecution("again"), InfrastructureRetry(before)]
        causes += [Resume(before, CHECKPOINT), Relaunch(before, "lost"), Relaunch(before, "lost", CHECKPOINT)]
        asked = Transition(demand_id(request), work(), data.draw(st.sampled_from(causes)))
        by, now_ms, snapshot = data.draw(st.sampled_from(["", "ada"])), self.tick(), version - lag
        self.call(
            who,
            lambda store: store.claim_start(run, snapshot, asked, candidate, now_ms, by),
            lambda model: model.claim(run, snapshot, asked, candidate, now_ms, by),
        )

    @precondition(lambda self: any(record.ledger.claims for record in self.model.records.values()))
    @rule(data=st.data(), who=st.integers(0, 1), launcher=st.sampled_from(["local", "slurm"]), host=st.sampled_from(["n1", "n2"]))
    def intend(self, data: st.DataObject, who: int, launcher: Launcher, host: str) -> None:
        chosen = data.draw(st.sampled_from([each for record in self.model.records.values() for each in record.ledger.claims]))
        now_ms = self.tick()
        intent = DispatchIntent(chosen.attempt, launcher, host, now_ms)
        self.call(who, lambda store: store.record_dispatch_intent(chosen, launcher, host, now_ms), lambda model: model.intend(intent))

    @precondition(lambda self: any(record.ledger.intents for record in self.model.records.values()))
    @rule(data=st.data(), who=st.integers(0, 1), result=st.sampled_from([Dispatched("pid 7"), DispatchRefused("no"), DispatchUnknown("?")]))
    def answered(self, data: st.DataObject, who: int, result: LaunchResult) -> None:
        intent = data.draw(st.sampled_from([each for record in self.model.records.values() for each in record.ledger.intents]))
        now_ms = self.tick()
        outcome = DispatchOutcome(intent.attempt, result, now_ms)
        self.call(who, lambda store: store.record_dispatch_outcome(intent, result, now_ms), lambda model: model.answered(outcome), 2)

    @rule(who=st.integers(0, 1), request=SOME_REQUEST, number=st.integers(0, 1))
    def give_up(self, who: int, request: str, number: int) -> None:
        run, said = demand_id(request).run_id(), Abandonment(key(NUMBERS[request][number]), "ada", self.tick())
        self.call(who, lambda store: store.abandon(run, said.attempt, "ada", said.recorded_ms), lambda model: model.say(run, said))

    @rule(
        who=st.integers(0, 1),
        request=SOME_REQUEST,
        number=st.integers(0, 1),
        ruling=st.sampled_from([SetAside(), BelieveSource("supervisor")]),
        blockers=st.sampled_from([("a",), ("a", "b")]),
    )
    def rule_on(self, who: int, request: str, number: int, ruling: Ruling, blockers: tuple[str, ...]) -> None:
        said = Adjudication(key(NUMBERS[request][number]), ruling, blockers, "ada", "seen", self.tick())
        run = demand_id(request).run_id()
        self.call(who, lambda store: store.adjudicate(run, said), lambda model: model.say(run, said))

    @precondition(lambda self: sum(record.ledger.version for record in self.model.records.values()) > 6)
    @rule(who=st.integers(0, 1), request=SOME_REQUEST)
    def cancel(self, who: int, request: str) -> None:
        run, said = demand_id(request).run_id(), Cancellation("ada", self.tick())
        self.call(who, lambda store: store.cancel(run, "ada", said.recorded_ms), lambda model: model.say(run, said))

    @rule(who=st.integers(0, 1), step=st.integers(-500, 2_000), lease_ms=st.sampled_from([0, 700]), limit=st.integers(1, 3))
    def take_due(self, who: int, step: int, lease_ms: int, limit: int) -> None:
        now_ms = self.tick(step)
        self.call(who, lambda store: store.take_due(now_ms, lease_ms, limit), lambda model: model.take_due(now_ms, lease_ms, limit))

    @rule(who=st.integers(0, 1), request=st.sampled_from([*REQUESTS, "nobody"]), due_ms=st.integers(5_000, 15_000))
    def look_again(self, who: int, request: str, due_ms: int) -> None:
        run = demand_id(request).run_id()
        self.call(who, lambda store: store.look_again(run, due_ms), lambda model: model.look_again(run, due_ms))

    @rule(who=st.integers(0, 1), request=SOME_REQUEST, name=st.sampled_from(SWEEPS), document=st.sampled_from([b"{}", b"[]"]))
    def sweep(self, who: int, request: str, name: str, document: bytes) -> None:
        swept = StoredSweep(name, demand_id(request).run_id(), document, 1, 2)
        transactions = 1 if self.pair.kind.one_transaction else 2
        self.call(who, lambda store: store.record_sweep(swept.run_id, name, document, 1, 2), lambda model: model.sweep(swept), transactions)

    @precondition(lambda self: self.model.sweeps)
    @rule(data=st.data(), who=st.integers(0, 1), closed=st.booleans(), lag=st.sampled_from([0, 0, 1]))
    def conclude(self, data: st.DataObject, who: int, closed: bool, lag: int) -> None:
        name = data.draw(st.sampled_from([*self.model.sweeps, "s9"]))
        swept = self.model.sweeps.get(name)
        version = max(0, self.model.records[swept.run_id].ledger.version - lag) if swept is not None else 0
        verdict = StoredVerdict("Converged" if closed else "InProgress", closed, version, b"text")
        late = swept is not None and self.model.records[swept.run_id].ledger.version > version

        def half(model: Model) -> None:
            """What takes the run off the agenda is recorded before it lets go of the run, any other verdict after it has the run."""
            if closed and not late:
                model.write_verdict(name, verdict)
            elif swept is not None:
                new = model.concluded(name)[-1:] != (verdict,)
                model.follow_verdict(name, verdict, newest=(name, verdict) if new else None)

        # Over two files, what closes a run is looked at twice before it is written.
        transactions = 1 if self.pair.kind.one_transaction else 4 if verdict.closed else 2
        self.call(who, lambda store: store.record_verdict(name, verdict), lambda model: model.conclude(name, verdict), transactions, half)


@proven_by(*FAULTS)
@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_store_holds_its_model(name: str, request: Request, planted_fault: Fault | None) -> None:
    kind = MACHINES[name]
    reached = Counter[str]()
    # Under a fault the first red is all that is asked; it is not made smaller.
    phases = [Phase.generate] if planted_fault is not None else [Phase.generate, Phase.shrink]
    drawn = settings(max_examples=kind.examples, stateful_step_count=40, phases=phases)
    run_state_machine_as_test(lambda: Ledgers(kind, request, reached), settings=drawn)
    print(f"\n{name}: {sum(reached.values())} calls: {', '.join(f'{what} {times}' for what, times in sorted(reached.items()))}")
    if planted_fault is None:
        arms = {"Recorded", "Attached", "Committed", "AlreadyCommitted", "SnapshotStale", "Stands", "Refused", "tuple"}
        assert not arms - reached.keys(), "some arm of the machine is never reached"
        assert any(what.startswith("broke off") for what in reached)


def test_every_kind_of_store_has_its_machine() -> None:
    assert MACHINES.keys() == KINDS.keys()
