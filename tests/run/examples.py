"""Clean examples of runs to break: one work, demands for it, and ledgers."""

from functools import cache
from typing import Literal

from countermark.recipe import Requirements, Resolution, WorkKey, contract_of, derive_work_key, observed, resolve
from countermark.run.attempts import Attempt, AttemptKey, Cause, CheckpointIdentity, InitialAttempt, Nonce
from countermark.run.claims import Admissible, ExecutionClaim, RunLedger, Transition, admit_start_claim
from countermark.run.demand import Demand, DemandId, Subject, TrainingRunDesired, admit_demand
from countermark.values import Principal, Request, Sha256
from tests.recipe.examples import CLEAN

CHECKPOINT = CheckpointIdentity(5, Sha256("c" * 64))


def resolution(source: str = "recipe.toml", **changed: str) -> Resolution:
    """The clean recipe resolved, with some coordinates spelled otherwise."""
    resolved = resolve(observed(CLEAN | changed, source, "countermark"))
    assert isinstance(resolved, Resolution)
    return resolved


@cache
def work(principal: str = "local", **changed: str) -> WorkKey:
    """The work of the clean recipe, under an account."""
    return derive_work_key(Principal(principal), contract_of(resolution(**changed)), Requirements())


def demand_id(request: str = "nightly", requester: str = "ada") -> DemandId:
    return DemandId(Principal(requester), Request(request))


def desired(request: str = "nightly", requester: str = "ada", principal: str = "local", **changed: str) -> TrainingRunDesired:
    """An admitted demand for the clean recipe."""
    demand = Demand(demand_id(request, requester), work(principal, **changed))
    admitted = admit_demand(demand, resolution(**changed), Requirements())
    assert isinstance(admitted, TrainingRunDesired)
    return admitted


#: Which half of the subject each single fact about a run belongs to.
HALF_OF: dict[str, Literal["demand", "work"]] = {"request": "demand", "requester": "demand", "account": "work", "computation": "work"}


@cache
def stranger(fact: str) -> Subject:
    """A subject that differs from the clean one in this fact alone."""
    match fact:
        case "request":
            return Subject(demand_id("another"), work())
        case "requester":
            return Subject(demand_id(requester="eve"), work())
        case "account":
            return Subject(demand_id(), work("another"))
        case "computation":
            return Subject(demand_id(), work(seed="18"))
        case _:
            raise AssertionError(f"{fact!r} is no fact about a run")


def nonce(number: int) -> Nonce:
    return Nonce(f"{number:032x}")


def key(number: int, principal: str = "local") -> AttemptKey:
    """The attempt of a number at the clean work."""
    return AttemptKey(work(principal), nonce(number))


def attempt(number: int, cause: Cause | None = None, demand: DemandId | None = None, principal: str = "local") -> Attempt:
    return Attempt(key(number, principal), demand or demand_id(), cause or InitialAttempt())


def transition(cause: Cause | None = None, demand: DemandId | None = None, principal: str = "local") -> Transition:
    return Transition(demand or demand_id(), work(principal), cause or InitialAttempt())


def claimed(ledger: RunLedger, number: int, cause: Cause | None = None) -> RunLedger:
    """The ledger with one more claim, as a transaction would leave it."""
    decision = admit_start_claim(ledger, ledger.version, transition(cause), key(number))
    assert isinstance(decision, Admissible), decision
    return RunLedger(
        ledger.desired,
        decision.claim.version,
        (*ledger.claims, decision.claim),
        ledger.intents,
        ledger.outcomes,
        ledger.cancellations,
        ledger.abandonments,
    )


def claim(number: int, cause: Cause | None = None, version: int = 1) -> ExecutionClaim:
    return ExecutionClaim(transition(cause), key(number), version)
