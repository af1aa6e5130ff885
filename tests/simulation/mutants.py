"""Planted faults: rules that were left out or turned around, each of which some simulated history must betray.

Rule kept here: a fault changes the program, or the protocol that launchers and supervisors keep, in one place. It never touches what
judges.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from countermark.app import acting, deciding, running
from countermark.evidence.composition import EvidenceComposition, RawReads
from countermark.evidence.cut import (
    Ordered,
    after_checkpoints,
    after_manifests,
    after_outputs,
    after_processes,
    after_terminals,
    after_terminals_again,
    cut_of,
)
from countermark.evidence.members import NotAttempted, Observed, Population, RawRead
from countermark.launch.local import Fenced
from countermark.run import claims as claims_room
from countermark.run import dispatch as dispatch_room
from countermark.run.claims import Admissible, AlreadyCommitted, DispatchRefused, DispatchUnknown, ExecutionClaim, SuccessorExists
from countermark.run.demand import subject_of
from countermark.verdict import Sweep, places
from countermark.verdict.rulings import Rulings
from countermark.verdict.standing import ManifestAgreement, Standing
from tests.faults import Fault
from tests.simulation import hosts
from tests.simulation.launcher import SimLauncher
from tests.simulation.ledger import SimStore
from tests.simulation.observer import SimObserver

Planting = tuple[object, str, object]


def _fault(name: str, *plantings: Planting) -> Fault:
    @contextmanager
    def fault() -> Iterator[None]:
        with ExitStack() as stack:
            for target, attribute, replacement in plantings:
                if getattr(target, attribute) is replacement:
                    raise ValueError(f"{attribute} already is what the fault would plant")
                stack.enter_context(patch.object(target, attribute, replacement))
            yield

    fault.__name__ = fault.__qualname__ = name
    return fault


_ADMIT: Final = claims_room.admit_start_claim
_APPEND: Final = SimStore._append
_CLAIM_START: Final = SimStore.claim_start
_INTENT: Final = dispatch_room.admit_dispatch_intent
_DEFECTS: Final = claims_room._claim_defects
_LAUNCH: Final = acting._launch
_ARM: Final = SimObserver._arm


def _by_attempt(ledger: Any, snapshot: int, transition: Any, candidate: Any) -> object:
    for claim in ledger.claims:
        if claim.attempt == candidate:
            return AlreadyCommitted(claim)
    return Admissible(ExecutionClaim(transition, candidate, ledger.version + 1))


def _names_itself(ledger: Any, snapshot: int, transition: Any, candidate: Any) -> object:
    answer = _ADMIT(ledger, snapshot, transition, candidate)
    return AlreadyCommitted(ExecutionClaim(transition, candidate, answer.claim.version)) if isinstance(answer, AlreadyCommitted) else answer


def _some_claims_are_not_kept(store: SimStore, kind: str, *by: Any, **more: Any) -> None:
    if kind != "claim" or store.calls % 3:
        _APPEND(store, kind, *by, **more)  # type: ignore[arg-type]


def _any_version(ledger: Any, snapshot: int, transition: Any, candidate: Any) -> object:
    return _ADMIT(ledger, ledger.version, transition, candidate)


def _on_the_version_of_now(store: SimStore, run_id: str, snapshot: int, *arguments: Any) -> object:
    return _CLAIM_START(store, run_id, store.ledger.version, *arguments)


def _though_cancelled(ledger: Any, snapshot: int, transition: Any, candidate: Any) -> object:
    return _ADMIT(replace(ledger, cancellations=()), snapshot, transition, candidate)


def _intent_though_cancelled(ledger: Any, intent: Any) -> object:
    return _INTENT(replace(ledger, cancellations=()), intent)


def _intent_after_outcome(ledger: Any, intent: Any) -> object:
    return _INTENT(replace(ledger, outcomes=()), intent)


def _intent_on_any_host(ledger: Any, intent: Any) -> object:
    return _INTENT(replace(ledger, intents=tuple(replace(earlier, host=intent.host) for earlier in ledger.intents)), intent)


def _successors_allowed(ledger: Any, transition: Any, candidate: Any) -> tuple[object, ...]:
    return tuple(defect for defect in _DEFECTS(ledger, transition, candidate) if not isinstance(defect, SuccessorExists))


def _unknown_is_refused(*arguments: Any) -> object:
    result = _LAUNCH(*arguments)
    return DispatchRefused(result.why) if isinstance(result, DispatchUnknown) else result


def _elsewhere_is_empty(observer: Any, *arguments: Any) -> object:
    arm = _ARM(observer, *arguments)
    return Observed((), observer._receipt("nobody", observer.world.now_ms())) if isinstance(arm, NotAttempted) else arm


def _look_in(order: tuple[str, ...]) -> Callable[..., Sweep]:
    """A sweep that reads in another order than its cut says."""

    def look(ledger: Any, observer: Any, grace_ms: int, progress: Any = None) -> Sweep:
        subject = subject_of(ledger.desired)
        reads: dict[str, RawRead[Any]] = {}
        for stage in order:
            reads[stage] = RawRead(subject, getattr(observer, stage.removesuffix("_again"))(ledger))
        steps = (after_processes, after_outputs, after_checkpoints, after_manifests, after_terminals_again)
        names = ("processes", "outputs", "checkpoints", "manifests", "terminals_again")
        token: Any = after_terminals(subject, reads["terminals"].population.receipts())
        for step, name in zip(steps, names, strict=True):
            token = step(token, subject, reads[name].population.receipts())
        raw = RawReads(*(reads[name] for name in ("terminals", *names)))
        return Sweep.of_claims(ledger, raw, cut_of(token), grace_ms)

    return look


def _lock_free_fence(launcher: SimLauncher, nonce: str) -> object:
    launcher.world.pause("fencing")
    return Fenced()


MUTANTS: Mapping[str, Fault] = {
    fault.__name__: fault
    for fault in (
        _fault("the key is the attempt", (claims_room, "admit_start_claim", _by_attempt)),
        _fault("the loser is told of itself", (claims_room, "admit_start_claim", _names_itself)),
        _fault("a claim is answered and not kept", (SimStore, "_append", _some_claims_are_not_kept)),
        _fault("the cause is not in the slot", (claims_room, "cause_parts", lambda cause: (type(cause).__name__,))),
        _fault("the version is not compared", (claims_room, "admit_start_claim", _any_version)),
        # Each of the two rules covers for the other: a claim on the version of its look, and one successor for each attempt.
        _fault(
            "two successors are allowed, and claims are made on the version of now",
            (claims_room, "_claim_defects", _successors_allowed),
            (SimStore, "claim_start", _on_the_version_of_now),
        ),
        _fault(
            "cancellation is not checked",
            (claims_room, "admit_start_claim", _though_cancelled),
            (dispatch_room, "admit_dispatch_intent", _intent_though_cancelled),
        ),
        _fault("dispatched again after the outcome", (dispatch_room, "admit_dispatch_intent", _intent_after_outcome)),
        _fault("an intent of another host is acted on", (dispatch_room, "admit_dispatch_intent", _intent_on_any_host)),
        _fault(
            "every launcher creates or gets",
            (dispatch_room, "creates_or_gets", lambda launcher: True),
            (places, "creates_or_gets", lambda launcher: True),
        ),
        _fault("unknown is taken for refused", (acting, "_launch", _unknown_is_refused)),
        _fault("a launch that failed is refused without a look", (SimLauncher, "_looked", lambda launcher, folder, said: said)),
        _fault("no fence before a relaunch", (SimLauncher, "fence", _lock_free_fence)),
        _fault("the start is not exclusive", (hosts, "exclusive", lambda folder: False)),
        _fault("the child does not look at the fence", (hosts, "barred", lambda folder: False)),
        _fault("retries are not counted", (acting, "_over", lambda record, allowed: None)),
        _fault("the grace is ignored", (places, "_grace_passed", lambda fold, standing: True)),
        _fault(
            "processes are read after the terminals",
            (running, "look", _look_in(("terminals", "terminals_again", "processes", "outputs", "checkpoints", "manifests"))),
        ),
        _fault(
            "outputs are read before the terminals",
            (running, "look", _look_in(("outputs", "terminals", "processes", "checkpoints", "manifests", "terminals_again"))),
        ),
        _fault(
            "an order is taken for granted",
            (EvidenceComposition, "order", lambda composition, earlier, later: Ordered()),
        ),
        _fault("a read that failed is taken for empty", (Population, "blind_about", lambda population: frozenset())),
        _fault("another host's attempts are taken for gone", (SimObserver, "_arm", _elsewhere_is_empty)),
        _fault("a candidate needs no manifest", (ManifestAgreement, "equal", lambda agreement: True)),
        _fault("what was set aside is forgotten", (Rulings, "set_aside", lambda rulings: None)),
        _fault("any ruling settles whatever blocks", (Rulings, "settles", lambda rulings, blocker: bool(rulings.given))),
        # The command bars what it cancels, and each look asks whether something could still begin: where one died, the other one does it.
        _fault(
            "nobody bars what was cancelled",
            (deciding, "end_here", lambda ports, record: ()),
            (SimObserver, "_opening", lambda observer, look: look),
        ),
        _fault("what lives is not looked at", (Standing, "stirring", lambda standing: False)),
        _fault("a success needs no exit code", (Standing, "succeeded", lambda standing: bool(standing.terminals()))),
    )
}
