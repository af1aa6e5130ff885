"""Every call of every kind of store, broken off at each of its steps: what is left is all of it or nothing, and the store goes on."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from countermark.run.attempts import InitialAttempt, RequestedReexecution
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    Cancellation,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    SetAside,
    Transition,
)
from countermark.run.records import StoredSweep, StoredVerdict
from tests.faults import proven_by
from tests.run.examples import demand_id, desired, key, work
from tests.store.breaking import Broke, Failed, Interrupted
from tests.store.examples import CONTEXT
from tests.store.misdeeds import HALF
from tests.store.pair import MACHINES, Pair, Request

RUN: Final = demand_id().run_id()
#: More steps than any call has.
STEPS_MAX: Final = 40


@contextmanager
def unbroken(pair: Pair) -> Iterator[None]:
    """What comes before the call that breaks off."""
    breaks, pair.breaks = pair.breaks, (0, Failed)
    yield
    pair.breaks = breaks


def claim(pair: Pair, number: int) -> None:
    cause = InitialAttempt() if number == 1 else RequestedReexecution(f"request {number}")
    asked, snapshot = Transition(demand_id(), work(), cause), pair.model.records[RUN].ledger.version
    pair.call(
        number % 2,
        lambda store: store.claim_start(RUN, snapshot, asked, key(number), number, "ada"),
        lambda model: model.claim(RUN, snapshot, asked, key(number), number, "ada"),
    )


def claimed(pair: Pair, number: int) -> Any:
    """A claim of its own for each call, made with nothing broken."""
    with unbroken(pair):
        claim(pair, number)
    return pair.model.records[RUN].ledger.claims[-1]


def demand(pair: Pair, number: int) -> None:
    request = f"r{number}"
    pair.call(0, lambda store: store.record_demand(desired(request), CONTEXT, number), lambda model: model.demand(request, number))


def intend(pair: Pair, number: int) -> None:
    chosen = claimed(pair, number)
    intent = DispatchIntent(chosen.attempt, "local", "n1", number)
    pair.call(0, lambda store: store.record_dispatch_intent(chosen, "local", "n1", number), lambda model: model.intend(intent))


def answered(pair: Pair, number: int) -> None:
    with unbroken(pair):
        intend(pair, number)
    intent = pair.model.records[RUN].ledger.intents[-1]
    outcome = DispatchOutcome(intent.attempt, Dispatched("pid 7"), number)
    pair.call(0, lambda store: store.record_dispatch_outcome(intent, outcome.result, number), lambda model: model.answered(outcome), 2)


def give_up(pair: Pair, number: int) -> None:
    said = Abandonment(claimed(pair, number).attempt, "ada", number)
    pair.call(0, lambda store: store.abandon(RUN, said.attempt, "ada", number), lambda model: model.say(RUN, said))


def rule_on(pair: Pair, number: int) -> None:
    said = Adjudication(key(1), SetAside(), ("b",), "ada", f"reason {number}", number)
    pair.call(0, lambda store: store.adjudicate(RUN, said), lambda model: model.say(RUN, said))


def cancel(pair: Pair, number: int) -> None:
    request = f"c{number}"
    with unbroken(pair):
        pair.call(0, lambda store: store.record_demand(desired(request), CONTEXT, 1), lambda model: model.demand(request, 1))
    run, said = demand_id(request).run_id(), Cancellation("ada", number)
    pair.call(0, lambda store: store.cancel(run, "ada", number), lambda model: model.say(run, said))


def take_due(pair: Pair, number: int) -> None:
    now_ms = 1_000 * number
    pair.call(0, lambda store: store.take_due(now_ms, 10, 9), lambda model: model.take_due(now_ms, 10, 9))


def look_again(pair: Pair, number: int) -> None:
    pair.call(0, lambda store: store.look_again(RUN, 77 * number), lambda model: model.look_again(RUN, 77 * number))


def sweep(pair: Pair, number: int) -> None:
    swept = StoredSweep(f"s{number}", RUN, b"{}", 1, 2)
    count = 1 if pair.kind.one_transaction else 2
    pair.call(0, lambda store: store.record_sweep(RUN, swept.sweep_id, b"{}", 1, 2), lambda model: model.sweep(swept), count)


def close(pair: Pair, number: int) -> None:
    """A verdict that closes the run, which a new claim has opened."""
    with unbroken(pair):
        claim(pair, number)
        sweep(pair, number)
    _conclude(pair, f"s{number}", closed=True)


def open_again(pair: Pair, number: int) -> None:
    """A verdict that has a closed run open again."""
    with unbroken(pair):
        close(pair, number)
    _conclude(pair, f"s{number}", closed=False)


def _conclude(pair: Pair, name: str, closed: bool) -> None:
    verdict = StoredVerdict("Converged" if closed else "InProgress", closed, pair.model.records[RUN].ledger.version, b"text")
    pair.call(
        0,
        lambda store: store.record_verdict(name, verdict),
        lambda model: model.conclude(name, verdict),
        1 if pair.kind.one_transaction else 4 if closed else 2,
        lambda model: model.write_verdict(name, verdict) if closed else model.follow_verdict(name, verdict, newest=(name, verdict)),
    )


CALLS: Final[dict[str, Callable[[Pair, int], None]]] = {
    "demand": demand,
    "claim": claim,
    "intent": intend,
    "outcome": answered,
    "abandonment": give_up,
    "adjudication": rule_on,
    "cancellation": cancel,
    "taking what is due": take_due,
    "looking again": look_again,
    "sweep": sweep,
    "closing verdict": close,
    "opening verdict": open_again,
}


def every_step(pair: Pair, call: Callable[[Pair, int], None], how: type[Broke]) -> None:
    """Break the call off at its first step, its second, and so on, until it comes through."""
    pair.call(0, lambda store: store.record_demand(desired(), CONTEXT, 1), lambda model: model.demand("nightly", 1))
    claim(pair, 1)
    for at in range(1, STEPS_MAX):
        before = broken(pair)
        pair.breaks = (at, how)
        call(pair, at + 1)
        if broken(pair) == before:
            return
    raise AssertionError("it has more steps than were tried")


def broken(pair: Pair) -> int:
    return sum(times for what, times in pair.reached.items() if what.startswith("broke off"))


@proven_by(*HALF)
@pytest.mark.parametrize("how", [Failed, Interrupted])
@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_call_that_breaks_off_anywhere_leaves_all_or_nothing(name: str, how: type[Broke], request: Request) -> None:
    reached = Counter[str]()
    for what, call in CALLS.items():
        pair = Pair(MACHINES[name], request, reached)
        before = reached.copy()
        try:
            every_step(pair, call, how)
        finally:
            pair.end()
        new = reached - before
        assert new["broke off at a statement"] and new["broke off at before the commit"] and new["broke off at after the commit"], what
    print(f"\n{name}, {how.__name__}: {', '.join(f'{what} {times}' for what, times in sorted(reached.items()) if 'broke' in what)}")
