"""A checker that reads a recorded history once and names everything in it that must not be.

Rules that a history must keep:

1. One claim per slot, per attempt and per predecessor. Every answer names the claim that holds the slot, and none is given before its
   commit: who is told "committed" finds its claim in the ledger, with just the version after the snapshot that it claimed on.
2. A slot that was known to be taken is never answered by "stale", and "stale" is said only of a ledger that moved.
3. What was answered before a call was made is seen by that call: versions never fall behind what somebody was told.
4. The facts of a run are numbered 1, 2, 3, …, one each.
5. An intent follows its claim, an outcome its intent; after an outcome there is no intent, after a cancellation neither claim nor intent.
6. Nothing begins without a claim and an intent, and of one claim no more than once. Of a run no more live at once than one, and one more
   for each reexecution that a person asked for, not counting what a person gave up (checked where the history says how trainers ended).

Every violation is named, in the order of the history. Each event costs a fixed number of look-ups: the whole is linear.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from tests.simulation.history import Answered, Asked, Began, Ended, Event, Fact, FactKind, Killed, LineUnreadable

# ---------------------------------------------------------------------------------------------------------- violations


@final
@dataclass(frozen=True, slots=True)
class CallRepeated:
    """One call was asked or answered twice."""

    call: str


@final
@dataclass(frozen=True, slots=True)
class AnswerWithoutCall:
    """An answer to a call that nobody made before it."""

    call: str


@final
@dataclass(frozen=True, slots=True)
class SlotWonTwice:
    """Two claims hold one slot."""

    run: str
    slot: str
    attempts: tuple[str, str]


@final
@dataclass(frozen=True, slots=True)
class ClaimedTwice:
    """Two claims name one attempt."""

    attempt: str


@final
@dataclass(frozen=True, slots=True)
class SeveralSuccessors:
    """Two claims follow one attempt."""

    predecessor: str
    attempts: tuple[str, str]


@final
@dataclass(frozen=True, slots=True)
class AnswerBeforeCommit:
    """The call was told of a claim that was not committed when it was told, or never was."""

    call: str
    attempt: str


@final
@dataclass(frozen=True, slots=True)
class WrongWinnerNamed:
    """The call was told of another claim than the one that holds the slot (``holder``; its version stands behind)."""

    call: str
    told: tuple[str, int]
    holder: tuple[str, int]


@final
@dataclass(frozen=True, slots=True)
class CommittedOnMovedLedger:
    """The claim was committed at another version than the one after its snapshot."""

    call: str
    snapshot: int
    version: int


@final
@dataclass(frozen=True, slots=True)
class StaleWithoutMove:
    """The call was told that the ledger moved, and it stood at the call's own snapshot."""

    call: str


@final
@dataclass(frozen=True, slots=True)
class WinnerWithheld:
    """The slot was known to be taken when the call was made, and the call was not told who holds it."""

    call: str
    holder: str


@final
@dataclass(frozen=True, slots=True)
class AnswerFellBehind:
    """The call was answered from an older ledger than somebody had been told of before the call was made."""

    call: str
    known: int
    version: int


@final
@dataclass(frozen=True, slots=True)
class VersionsBroken:
    """The run's versions are not 1, 2, 3, … with one fact each, in the order in which they were seen to commit."""

    run: str
    expected: int
    found: int


@final
@dataclass(frozen=True, slots=True)
class FactWithoutGround:
    """An intent without an earlier claim, or an outcome without an earlier intent (``kind``)."""

    kind: FactKind
    attempt: str


@final
@dataclass(frozen=True, slots=True)
class FactTooLate:
    """A claim or intent (``kind``) after the run's cancellation, a second intent, or an intent after the attempt's outcome (``after``)."""

    kind: FactKind
    attempt: str
    after: Literal["cancellation", "intent", "outcome"]


@final
@dataclass(frozen=True, slots=True)
class LaunchedWithout:
    """A trainer began without a claim, or without an intent, of its attempt (before it began, where commits were seen)."""

    attempt: str
    missing: Literal["claim", "intent"]


@final
@dataclass(frozen=True, slots=True)
class LaunchedTwice:
    """A second trainer began for one attempt."""

    attempt: str
    processes: tuple[str, str]


@final
@dataclass(frozen=True, slots=True)
class SeveralAlive:
    """A trainer began while others of its run lived that no person had asked for."""

    run: str
    began: str
    alive: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class EndedUnbegun:
    """A trainer ended of which nobody saw the beginning, or ended twice."""

    attempt: str
    process: str


Violation: TypeAlias = (
    LineUnreadable
    | CallRepeated
    | AnswerWithoutCall
    | SlotWonTwice
    | ClaimedTwice
    | SeveralSuccessors
    | AnswerBeforeCommit
    | WrongWinnerNamed
    | CommittedOnMovedLedger
    | StaleWithoutMove
    | WinnerWithheld
    | AnswerFellBehind
    | VersionsBroken
    | FactWithoutGround
    | FactTooLate
    | LaunchedWithout
    | LaunchedTwice
    | SeveralAlive
    | EndedUnbegun
)


# ------------------------------------------------------------------------------------------------------------- checker


@final
@dataclass(slots=True)
class _Call:
    """A call as it was made: what somebody had been told by then of its run and of its slot."""

    asked: Asked
    known: int
    holder: str


@final
@dataclass(slots=True)
class _Claim:
    """A claim of the ledger, and what became of it."""

    fact: Fact
    position: int
    intended: int | None = None
    answered: int | None = None


@final
@dataclass(slots=True)
class _Run:
    """A run's facts in the order of their versions so far."""

    next_version: int = 1
    cancelled: int | None = None
    reexecutions: int = 0
    alive: dict[str, str] = field(default_factory=dict[str, str])


@final
@dataclass(slots=True)
class _Checker:
    ends_known: bool
    found: list[tuple[int, Violation]] = field(default_factory=list[tuple[int, Violation]])
    calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    answers: dict[str, tuple[int, Answered]] = field(default_factory=dict[str, tuple[int, Answered]])
    told: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    holders: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    facts: list[tuple[int, Fact]] = field(default_factory=list[tuple[int, Fact]])
    trainers: list[tuple[int, Began | Ended]] = field(default_factory=list[tuple[int, Began | Ended]])
    runs: dict[str, _Run] = field(default_factory=lambda: defaultdict[str, _Run](_Run))
    claims: dict[str, _Claim] = field(default_factory=dict[str, _Claim])
    slots: dict[tuple[str, str], _Claim] = field(default_factory=dict[tuple[str, str], _Claim])
    successors: dict[str, str] = field(default_factory=dict[str, str])
    given_up: set[str] = field(default_factory=set[str])

    def say(self, position: int, violation: Violation) -> None:
        self.found.append((position, violation))

    # ------------------------------------------------------------------------------------------ once through the events

    def take(self, position: int, event: Event | LineUnreadable) -> None:
        match event:
            case LineUnreadable():
                self.say(position, event)
            case Asked():
                if event.call in self.calls:
                    self.say(position, CallRepeated(event.call))
                else:
                    holder = self.holders.get((event.run, event.slot), "")
                    self.calls[event.call] = _Call(event, self.told[event.run], holder)
            case Answered():
                self._take_answer(position, event)
            case Fact():
                self.facts.append((position, event))
            case Began() | Ended():
                self.trainers.append((position, event))
            case Killed():
                pass

    def _take_answer(self, position: int, event: Answered) -> None:
        call = self.calls.get(event.call)
        if call is None:
            self.say(position, AnswerWithoutCall(event.call))
        elif event.call in self.answers:
            self.say(position, CallRepeated(event.call))
        else:
            self.answers[event.call] = (position, event)
            run = call.asked.run
            self.told[run] = max(self.told[run], event.version)
            if event.attempt:
                self.holders.setdefault((run, call.asked.slot), event.attempt)

    # ------------------------------------------------------------------------------------------ then through what it kept

    def judge(self) -> tuple[Violation, ...]:
        for position, fact in self.facts:
            self._fact(position, fact)
        for position, answered in self.answers.values():
            self._answer(position, self.calls[answered.call], answered)
        executions: dict[str, str] = {}
        for position, event in self.trainers:
            if isinstance(event, Began):
                self._began(position, event, executions)
            else:
                self._ended(position, event, executions)
        self.found.sort(key=lambda pair: pair[0])
        return tuple(violation for _, violation in self.found)

    def _fact(self, position: int, fact: Fact) -> None:
        run = self.runs[fact.run]
        if fact.version != run.next_version:
            self.say(position, VersionsBroken(fact.run, run.next_version, fact.version))
        run.next_version = fact.version + 1
        if fact.kind == "claim":
            self._claim(position, fact, run)
        elif fact.kind == "cancellation":
            run.cancelled = position if run.cancelled is None else run.cancelled
        elif fact.kind == "abandonment":
            self.given_up.add(fact.attempt)
        elif fact.kind in ("intent", "outcome"):
            self._dispatch(position, fact, run)

    def _claim(self, position: int, fact: Fact, run: _Run) -> None:
        claim = _Claim(fact, position)
        if run.cancelled is not None:
            self.say(position, FactTooLate("claim", fact.attempt, "cancellation"))
        if fact.attempt in self.claims:
            self.say(position, ClaimedTwice(fact.attempt))
        holder = self.slots.setdefault((fact.run, fact.slot), claim)
        if holder is not claim:
            self.say(position, SlotWonTwice(fact.run, fact.slot, (holder.fact.attempt, fact.attempt)))
        if fact.predecessor:
            successor = self.successors.setdefault(fact.predecessor, fact.attempt)
            if successor != fact.attempt:
                self.say(position, SeveralSuccessors(fact.predecessor, (successor, fact.attempt)))
        run.reexecutions += fact.cause == "RequestedReexecution"
        self.claims.setdefault(fact.attempt, claim)

    def _dispatch(self, position: int, fact: Fact, run: _Run) -> None:
        claim = self.claims.get(fact.attempt)
        if fact.kind == "outcome":
            if claim is None or claim.intended is None:
                self.say(position, FactWithoutGround("outcome", fact.attempt))
            if claim is not None and claim.answered is None:
                claim.answered = position
            return
        if claim is None:
            self.say(position, FactWithoutGround("intent", fact.attempt))
            return
        if run.cancelled is not None:
            self.say(position, FactTooLate("intent", fact.attempt, "cancellation"))
        if claim.intended is not None:
            self.say(position, FactTooLate("intent", fact.attempt, "intent"))
        if claim.answered is not None:
            self.say(position, FactTooLate("intent", fact.attempt, "outcome"))
        claim.intended = position if claim.intended is None else claim.intended

    def _answer(self, position: int, call: _Call, answered: Answered) -> None:
        asked = call.asked
        match answered.answer:
            case "committed" | "already":
                self._holder(position, asked, answered)
            case "stale":
                if answered.version == asked.snapshot:
                    self.say(position, StaleWithoutMove(asked.call))
                if answered.version < call.known:
                    self.say(position, AnswerFellBehind(asked.call, call.known, answered.version))
            case "refused":
                pass
        if call.holder and answered.answer != "already":
            self.say(position, WinnerWithheld(asked.call, call.holder))

    def _holder(self, position: int, asked: Asked, answered: Answered) -> None:
        holder = self.slots.get((asked.run, asked.slot))
        early = holder is not None and holder.fact.seen == "at commit" and holder.position > position
        if holder is None or early:
            self.say(position, AnswerBeforeCommit(asked.call, answered.attempt))
            return
        told, really = (answered.attempt, answered.version), (holder.fact.attempt, holder.fact.version)
        if told != really or (answered.answer == "committed" and told[0] != asked.candidate):
            self.say(position, WrongWinnerNamed(asked.call, told, really))
        if answered.answer == "committed" and answered.version != asked.snapshot + 1:
            self.say(position, CommittedOnMovedLedger(asked.call, asked.snapshot, answered.version))

    def _began(self, position: int, event: Began, executions: dict[str, str]) -> None:
        claim = self.claims.get(event.attempt)
        if claim is None or (claim.fact.seen == "at commit" and claim.position > position):
            self.say(position, LaunchedWithout(event.attempt, "claim"))
        elif claim.intended is None or (claim.fact.seen == "at commit" and claim.intended > position):
            self.say(position, LaunchedWithout(event.attempt, "intent"))
        first = executions.setdefault(event.attempt, event.process)
        run = None if claim is None else self.runs[claim.fact.run]
        # A second line of the same process is a second beginning, too: a trainer says once that it began.
        if first != event.process or (run is not None and event.process in run.alive):
            self.say(position, LaunchedTwice(event.attempt, (first, event.process)))
        if claim is None or run is None:
            return
        if self.ends_known:
            late = event.attempt in self.given_up
            alive = tuple(
                sorted(
                    attempt
                    for process, attempt in run.alive.items()
                    # No fence reaches what was given up on another host: there the person's word was false, whoever begins first.
                    if attempt not in self.given_up and not (late and _host(process) != _host(event.process))
                )
            )
            if len(alive) > run.reexecutions:
                self.say(position, SeveralAlive(claim.fact.run, event.attempt, alive))
        run.alive[event.process] = event.attempt

    def _ended(self, position: int, event: Ended, executions: dict[str, str]) -> None:
        claim = self.claims.get(event.attempt)
        if event.attempt not in executions:
            self.say(position, EndedUnbegun(event.attempt, event.process))
        elif claim is not None and self.runs[claim.fact.run].alive.pop(event.process, None) is None:
            self.say(position, EndedUnbegun(event.attempt, event.process))


def _host(process: str) -> str:
    return process.split("/", 1)[0]


def check(events: Iterable[Event | LineUnreadable], ends_known: bool = False) -> tuple[Violation, ...]:
    """Every violation, in the order of the history. ``ends_known``: every trainer's end is in the history."""
    checker = _Checker(ends_known)
    for position, event in enumerate(events):
        checker.take(position, event)
    return checker.judge()
