"""Every interleaving of two controllers, each of which may die after any of its steps: 923 histories, all of them.

A controller looks, mints an identity, claims, says its intent, calls the launcher and records the answer. Keyed by the transition no
history launches twice; keyed by the attempt hundreds do, because two controllers mint two identities.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from countermark.run import claims as claims_room
from countermark.run import dispatch as dispatch_room
from countermark.run.attempts import AttemptKey
from countermark.run.claims import (
    Admissible,
    AlreadyCommitted,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    ExecutionClaim,
    Launcher,
    RunLedger,
    SnapshotStale,
    Transition,
    admit_start_claim,
)
from countermark.run.dispatch import Insertable, admit_dispatch_intent, admit_dispatch_outcome
from countermark.run.records import Stands
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.run.examples import desired, key, transition

STEPS = 5
Admit = Callable[[RunLedger, int, Transition, AttemptKey], object]


@dataclass
class World:
    """The ledger, and the trainers that run: one entry for each process that a launcher really started."""

    launcher: Launcher
    creates_or_gets: bool
    admit: Admit
    ledger: RunLedger = field(default_factory=lambda: RunLedger(desired(), 0))
    trainers: list[AttemptKey] = field(default_factory=list)

    def launch(self, attempt: AttemptKey) -> None:
        if not (self.creates_or_gets and attempt in self.trainers):
            self.trainers.append(attempt)


@dataclass
class Controller:
    """One controller between its steps; what it holds in memory dies with it."""

    world: World
    candidate: AttemptKey
    done: int = 0
    snapshot: int = -1
    claim: ExecutionClaim | None = None
    may_launch: bool = False

    def step(self) -> None:
        (self.look, self.take_claim, self.say_intent, self.launch, self.record)[self.done]()
        self.done += 1

    def look(self) -> None:
        self.snapshot = self.world.ledger.version

    def take_claim(self) -> None:
        world = self.world
        answer = world.admit(world.ledger, self.snapshot, transition(), self.candidate)
        if isinstance(answer, Admissible):
            world.ledger = replace(world.ledger, version=answer.claim.version, claims=(*world.ledger.claims, answer.claim))
            self.claim = answer.claim
        elif isinstance(answer, AlreadyCommitted):
            self.claim = answer.claim

    def say_intent(self) -> None:
        if self.claim is None:
            return
        ledger = self.world.ledger
        answer = dispatch_room.admit_dispatch_intent(
            ledger, DispatchIntent(self.claim.attempt, self.world.launcher, "n1", self.candidate.nonce.hex[-1:] == "1")
        )
        if isinstance(answer, Insertable):
            self.world.ledger = replace(ledger, version=ledger.version + 1, intents=(*ledger.intents, answer.fact))
        self.may_launch = isinstance(answer, Insertable | Stands)

    def launch(self) -> None:
        if self.claim is not None and self.may_launch:
            self.world.launch(self.claim.attempt)

    def record(self) -> None:
        if self.claim is None or not self.may_launch:
            return
        ledger = self.world.ledger
        answer = admit_dispatch_outcome(ledger, DispatchOutcome(self.claim.attempt, Dispatched(""), 0))
        if isinstance(answer, Insertable):
            self.world.ledger = replace(ledger, version=ledger.version + 1, outcomes=(*ledger.outcomes, answer.fact))


def histories() -> Iterator[tuple[int, ...]]:
    """Every order of the steps of two controllers; one that takes fewer than all its steps has died."""

    def grow(history: tuple[int, ...], left: tuple[int, int]) -> Iterator[tuple[int, ...]]:
        yield history
        for who in (0, 1):
            if left[who]:
                yield from grow((*history, who), (left[0] - (who == 0), left[1] - (who == 1)))

    return grow((), (STEPS, STEPS))


def live(history: tuple[int, ...], launcher: Launcher, creates_or_gets: bool, admit: Admit) -> World:
    world = World(launcher, creates_or_gets, admit)
    controllers = (Controller(world, key(1)), Controller(world, key(2)))
    for who in history:
        controllers[who].step()
    return world


def by_attempt(ledger: RunLedger, snapshot: int, asked: Transition, candidate: AttemptKey) -> object:
    """A rule that excludes a second claim of one *attempt*: what a unique index on the attempt's identity does."""
    for claim in ledger.claims:
        if claim.attempt == candidate:
            return AlreadyCommitted(claim)
    return Admissible(ExecutionClaim(asked, candidate, ledger.version + 1))


def doubles(launcher: Launcher = "local", creates_or_gets: bool = True, admit: Admit | None = None) -> Counter[int]:
    """How many histories ended with each number of trainers. The admission is looked up at each call, so that a fault reaches it."""

    def current(ledger: RunLedger, snapshot: int, asked: Transition, candidate: AttemptKey) -> object:
        return claims_room.admit_start_claim(ledger, snapshot, asked, candidate)

    return Counter(len(live(history, launcher, creates_or_gets, admit or current).trainers) for history in histories())


def keyed_by_attempt() -> AbstractContextManager[object]:
    """The mutant: excluded by the attempt."""
    return planted(claims_room, "admit_start_claim", by_attempt)()


def no_slot_look() -> AbstractContextManager[object]:
    """The mutant: the slot is not looked at, nor the version."""

    def wrong(ledger: RunLedger, snapshot: int, asked: Transition, candidate: AttemptKey) -> object:
        return Admissible(ExecutionClaim(asked, candidate, ledger.version + 1))

    return planted(claims_room, "admit_start_claim", wrong)()


def test_there_are_923_histories() -> None:
    assert len(set(histories())) == len(tuple(histories())) == 923


@proven_by(keyed_by_attempt, no_slot_look)
def test_keyed_by_the_transition_no_history_launches_twice() -> None:
    ended = doubles()
    assert set(ended) <= {0, 1}
    assert ended[1] > 0


def test_keyed_by_the_attempt_hundreds_launch_twice() -> None:
    assert doubles(admit=by_attempt)[2] >= 100


@proven_by(keyed_by_attempt)
def test_every_controller_that_claims_holds_the_same_claim() -> None:
    for history in histories():
        world = World("local", True, lambda *asked: claims_room.admit_start_claim(*asked))
        controllers = (Controller(world, key(1)), Controller(world, key(2)))
        for who in history:
            controllers[who].step()
        held = {controller.claim for controller in controllers if controller.claim is not None}
        assert held == set(world.ledger.claims)
        assert len(held) <= 1


def one_constant_key() -> AbstractContextManager[object]:
    """The mutant that passes for the wrong reason: both controllers mint one identity, so any key excludes."""
    return planted(Controller, "__init__", _same_candidate(Controller.__init__))()


def _same_candidate(honest: Callable[..., None]) -> Callable[..., None]:
    def init(self: Controller, world: World, candidate: AttemptKey) -> None:
        honest(self, world, key(1))

    return init


@proven_by(keyed_by_attempt, one_constant_key)
def test_the_race_commits_one_attempt_while_the_identities_differ_and_the_transitions_are_equal() -> None:
    world = World("local", True, lambda *asked: claims_room.admit_start_claim(*asked))
    ada, bob = Controller(world, key(1)), Controller(world, key(2))
    for controller in (ada, bob, ada, bob):
        controller.step()
    assert ada.candidate != bob.candidate
    assert len(world.ledger.claims) == 1
    assert ada.claim == bob.claim == world.ledger.claims[0]
    assert world.ledger.claims[0].transition == transition()


def everyone_creates_or_gets() -> AbstractContextManager[object]:
    """The mutant: an intent is acted on again though the launcher starts a second trainer."""
    return planted(dispatch_room, "creates_or_gets", lambda launcher: True)()


@proven_by(everyone_creates_or_gets)
def test_a_launcher_that_cannot_find_its_first_call_is_called_once() -> None:
    ended = doubles(launcher="slurm", creates_or_gets=False)
    assert set(ended) <= {0, 1}
    assert ended[1] > 0


def test_after_any_history_a_third_controller_on_the_host_ends_with_exactly_one_trainer() -> None:
    for history in histories():
        world = live(history, "local", True, admit_start_claim)
        third = Controller(world, key(3))
        for _ in range(STEPS):
            third.step()
        outcomes = [outcome.attempt for outcome in world.ledger.outcomes]
        assert len(world.trainers) == 1
        assert outcomes == world.trainers == [claim.attempt for claim in world.ledger.claims]


def test_what_died_between_intent_and_launch_is_pending_for_a_launcher_that_cannot_find_it() -> None:
    world = live((0, 0, 0), "slurm", False, admit_start_claim)
    third = Controller(world, key(3))
    for _ in range(STEPS):
        third.step()
    assert (world.trainers, third.may_launch, len(world.ledger.intents)) == ([], False, 1)


def test_an_old_snapshot_of_a_moved_ledger_with_a_free_slot_is_told_to_look_again() -> None:
    world = live((0, 0), "local", True, admit_start_claim)
    asked = Transition(transition().demand, transition().work, claims_room.RequestedReexecution("again"))
    assert admit_start_claim(world.ledger, 0, asked, key(2)) == SnapshotStale(1)
    assert not isinstance(admit_start_claim(world.ledger, 1, asked, key(2)), Refused)


def test_the_intent_of_the_other_host_is_left_alone() -> None:
    world = live((0, 0, 0), "local", True, admit_start_claim)
    elsewhere = DispatchIntent(key(1), "local", "n2", 9)
    assert isinstance(admit_dispatch_intent(world.ledger, elsewhere), Refused)
    assert isinstance(admit_dispatch_intent(world.ledger, replace(elsewhere, host="n1")), Stands)
