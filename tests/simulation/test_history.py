"""The history checker is shown to see: a clean history has no violation, each break just its own, and two breaks both."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tests.faults import planted, proven_by
from tests.simulation import checker, history
from tests.simulation.checker import (
    AnswerBeforeCommit,
    AnswerFellBehind,
    AnswerWithoutCall,
    CallRepeated,
    ClaimedTwice,
    CommittedOnMovedLedger,
    EndedUnbegun,
    FactTooLate,
    FactWithoutGround,
    LaunchedTwice,
    LaunchedWithout,
    SeveralAlive,
    SeveralSuccessors,
    SlotWonTwice,
    StaleWithoutMove,
    VersionsBroken,
    Violation,
    WinnerWithheld,
    WrongWinnerNamed,
    check,
)
from tests.simulation.history import Answered, Asked, Began, Ended, Event, Fact, Killed, LineUnreadable, append, figures, read

#: Two controllers race for one slot, the winner's attempt is lost with its host, a third controller that looked too early is told so, and
#: the relaunch is stopped when a person cancels.
CLEAN: tuple[Event, ...] = (
    Asked("c1", "r", "initial", "a1", 0),
    Asked("c2", "r", "initial", "a2", 0),
    Fact("r", 1, "claim", "a1", "initial", "InitialAttempt"),
    Answered("c2", "already", "a1", 1),
    Answered("c1", "committed", "a1", 1),
    Fact("r", 2, "intent", "a1"),
    Killed("controller", "after the intent"),
    Began("a1", "n1/b/7/3"),
    Fact("r", 3, "outcome", "a1"),
    Ended("a1", "n1/b/7/3"),
    Asked("c3", "r", "relaunch a1", "a3", 2),
    Answered("c3", "stale", "", 3),
    Asked("c4", "r", "relaunch a1", "a4", 3),
    Fact("r", 4, "claim", "a4", "relaunch a1", "Relaunch", "a1"),
    Answered("c4", "committed", "a4", 4),
    Fact("r", 5, "intent", "a4"),
    Began("a4", "n1/b/9/3"),
    Fact("r", 6, "outcome", "a4"),
    Fact("r", 7, "cancellation", ""),
    Ended("a4", "n1/b/9/3"),
    Asked("c5", "r", "retry a4", "a5", 7),
    Answered("c5", "refused", "", 0),
    Asked("c6", "r", "initial", "a6", 0),
    Answered("c6", "already", "a1", 1),
)


def without(index: int, history: tuple[Event, ...] = CLEAN) -> tuple[Event, ...]:
    return history[:index] + history[index + 1 :]


def put(index: int, event: Event, history: tuple[Event, ...] = CLEAN) -> tuple[Event, ...]:
    """The history with another event at the index."""
    return (*history[:index], event, *history[index + 1 :])


def ahead(index: int, event: Event, history: tuple[Event, ...] = CLEAN) -> tuple[Event, ...]:
    """The history with one more event before the index."""
    return (*history[:index], event, *history[index:])


LAST = len(CLEAN)

BREAKS: dict[str, tuple[tuple[Event, ...], tuple[Violation, ...]]] = {
    "a call is asked twice": (ahead(3, CLEAN[1]), (CallRepeated("c2"),)),
    "a call is answered twice": (ahead(6, CLEAN[4]), (CallRepeated("c1"),)),
    "an answer without a call": (ahead(6, Answered("c9", "stale", "", 5)), (AnswerWithoutCall("c9"),)),
    "a slot is won twice": (
        put(18, Fact("r", 7, "claim", "a9", "initial", "InitialAttempt")),
        (SlotWonTwice("r", "initial", ("a1", "a9")),),
    ),
    "an attempt is claimed twice": (put(18, Fact("r", 7, "claim", "a4", "elsewhere", "RequestedReexecution")), (ClaimedTwice("a4"),)),
    "a predecessor is followed twice": (
        put(18, Fact("r", 7, "claim", "a9", "retry a1", "InfrastructureRetry", "a1")),
        (SeveralSuccessors("a1", ("a4", "a9")),),
    ),
    "the winner is told before its commit": (
        (*CLEAN[:2], CLEAN[4], CLEAN[2], CLEAN[3], *CLEAN[5:]),
        (AnswerBeforeCommit("c1", "a1"),),
    ),
    "the loser is told before the commit": ((*CLEAN[:2], CLEAN[3], CLEAN[2], *CLEAN[4:]), (AnswerBeforeCommit("c2", "a1"),)),
    "the claim was never committed": (
        (*CLEAN, Asked("c7", "r", "again", "a7", 7), Answered("c7", "committed", "a7", 8)),
        (AnswerBeforeCommit("c7", "a7"),),
    ),
    "the loser names itself": (put(3, Answered("c2", "already", "a2", 1)), (WrongWinnerNamed("c2", ("a2", 1), ("a1", 1)),)),
    "the loser says that it won": (
        put(3, Answered("c2", "committed", "a1", 1)),
        (WrongWinnerNamed("c2", ("a1", 1), ("a1", 1)),),
    ),
    "the claim is committed on a moved ledger": (put(12, Asked("c4", "r", "relaunch a1", "a4", 2)), (CommittedOnMovedLedger("c4", 2, 4),)),
    "stale is said of a ledger that stood": (put(10, Asked("c3", "r", "relaunch a1", "a3", 3)), (StaleWithoutMove("c3"),)),
    "a known winner is withheld": (put(LAST - 1, Answered("c6", "refused", "", 0)), (WinnerWithheld("c6", "a1"),)),
    "an answer falls behind": (
        (*CLEAN, Asked("c7", "r", "again", "a7", 1), Answered("c7", "stale", "", 2)),
        (AnswerFellBehind("c7", 4, 2),),
    ),
    "a version is left out": ((*without(18)[:18], *without(18)[18:20], Fact("r", 8, "abandonment", "a4")), (VersionsBroken("r", 7, 8),)),
    "a version stands twice": (put(18, Fact("r", 6, "abandonment", "a4")), (VersionsBroken("r", 7, 6),)),
    "an outcome without an intent": (put(18, Fact("r", 7, "outcome", "a9")), (FactWithoutGround("outcome", "a9"),)),
    "an intent without a claim": (put(18, Fact("r", 7, "intent", "a9")), (FactWithoutGround("intent", "a9"),)),
    "a claim after the cancellation": (
        (*CLEAN, Fact("r", 8, "claim", "a5", "retry a4", "InfrastructureRetry", "a4")),
        (FactTooLate("claim", "a5", "cancellation"),),
    ),
    "an intent after the cancellation, and a second one, after the outcome": (
        (*CLEAN, Fact("r", 8, "intent", "a4")),
        (FactTooLate("intent", "a4", "cancellation"), FactTooLate("intent", "a4", "intent"), FactTooLate("intent", "a4", "outcome")),
    ),
    "a launch without a claim": (ahead(18, Began("a9", "n2/b/1/1")), (LaunchedWithout("a9", "claim"),)),
    "a launch before the claim committed": (
        (*CLEAN[:2], CLEAN[7], *CLEAN[2:7], *CLEAN[8:]),
        (LaunchedWithout("a1", "claim"),),
    ),
    "a launch before the intent": ((*CLEAN[:5], CLEAN[7], *CLEAN[5:7], *CLEAN[8:]), (LaunchedWithout("a1", "intent"),)),
    "a second launch, after the first ended": (
        (*CLEAN[:11], Began("a1", "n2/b/7/3"), Ended("a1", "n2/b/7/3"), *CLEAN[11:]),
        (LaunchedTwice("a1", ("n1/b/7/3", "n2/b/7/3")),),
    ),
    "a trainer began beside another": (
        (*CLEAN[:9], *CLEAN[10:18], CLEAN[9], *CLEAN[18:]),
        (SeveralAlive("r", "a4", ("a1",)),),
    ),
    "an end without a beginning": (ahead(18, Ended("a9", "n2/b/1/1")), (EndedUnbegun("a9", "n2/b/1/1"),)),
    "an end that comes twice": (ahead(18, CLEAN[9]), (EndedUnbegun("a1", "n1/b/7/3"),)),
}


@proven_by(
    planted(checker, "_Checker", lambda ends_known: _Blind()),
    planted(history, "figures", lambda events: None),
)
def test_a_clean_history_has_no_violation_and_these_figures() -> None:
    assert check(CLEAN, ends_known=True) == ()
    assert history.figures(CLEAN) is not None
    assert figures(CLEAN).lines() == (
        "claims asked for: 6 (already 2, committed 2, refused 1, stale 1, unanswered 0)",
        "facts: 7 (cancellation 1, claim 2, intent 2, outcome 2)",
        "launches, counted by the trainers: 2; attempts launched twice: 0",
        "kills: 1",
        "  controller after the intent: 1",
    )


class _Blind:
    """A checker that finds fault with everything."""

    def take(self, position: int, event: Event) -> None:
        self.last = position

    def judge(self) -> tuple[Violation, ...]:
        return (CallRepeated(str(self.last)),)


@pytest.mark.parametrize("name", BREAKS)
@proven_by(planted(checker._Checker, "say", lambda checker, position, violation: None))
def test_each_break_is_named_and_nothing_else(name: str) -> None:
    events, expected = BREAKS[name]
    assert check(events, ends_known=True) == expected


def test_every_kind_of_violation_has_its_break() -> None:
    """An unreadable line is broken in a file, below."""
    broken = {type(violation) for _, expected in BREAKS.values() for violation in expected}
    assert broken | {LineUnreadable} == set(get_args(Violation))


@proven_by(
    planted(checker, "check", lambda events, ends_known=False: check(events, ends_known)[:1]),
    planted(checker, "check", lambda events, ends_known=False: check(events, ends_known)[-1:]),
)
def test_two_breaks_are_both_named() -> None:
    broken = (*put(3, Answered("c2", "already", "a2", 1)), Fact("r", 8, "intent", "a9"), Began("a8", "n3/b/1/1"))
    assert checker.check(broken, ends_known=True) == (
        WrongWinnerNamed("c2", ("a2", 1), ("a1", 1)),
        FactWithoutGround("intent", "a9"),
        LaunchedWithout("a8", "claim"),
    )


def test_what_is_read_afterwards_is_ordered_by_its_versions_alone() -> None:
    facts = tuple(event for event in CLEAN if isinstance(event, Fact))
    others = tuple(event for event in CLEAN if not isinstance(event, Fact))
    late = tuple(Fact(f.run, f.version, f.kind, f.attempt, f.slot, f.cause, f.predecessor, "afterwards") for f in facts)
    assert check((*others, *late), ends_known=True) == ()
    lost = tuple(fact for fact in late if fact.attempt != "a4")
    assert check((*others, *lost), ends_known=True) == (
        AnswerBeforeCommit("c4", "a4"),
        LaunchedWithout("a4", "claim"),
        VersionsBroken("r", 4, 7),
    )


def test_a_person_may_ask_for_a_second_trainer_and_give_the_first_up() -> None:
    beside = (*CLEAN[:9], *CLEAN[10:18], CLEAN[9], *CLEAN[18:])
    asked = put(10, Fact("r", 4, "claim", "a4", "again", "RequestedReexecution"), beside)
    again = tuple(event for event in asked if event != CLEAN[13])
    assert not any(isinstance(each, SeveralAlive) for each in check(again, ends_known=True))
    given_up = (*CLEAN[:9], *CLEAN[10:17], Fact("r", 6, "abandonment", "a1"), *CLEAN[9:10])
    assert check(given_up, ends_known=True) == ()


@proven_by(planted(checker, "_host", lambda process: ""))
def test_what_was_given_up_elsewhere_may_begin_late_and_here_it_is_fenced() -> None:
    before = (*CLEAN[:7], Fact("r", 3, "abandonment", "a1"), *CLEAN[12:15], CLEAN[15], CLEAN[16])
    assert check((*before, Began("a1", "n2/b/7/3")), ends_known=True) == ()
    assert check((*before, Began("a1", "n1/b/7/3")), ends_known=True) == (SeveralAlive("r", "a1", ("a4",)),)
    unsaid = (*CLEAN[:7], CLEAN[8], *before[8:])
    assert check((*unsaid, Began("a1", "n2/b/7/3")), ends_known=True) == (SeveralAlive("r", "a1", ("a4",)),)


# ------------------------------------------------------------------------------------------------------------- the file


def test_a_file_gives_back_what_was_appended_and_names_torn_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for event in CLEAN:
        append(path, event)
    assert tuple(read(path)) == CLEAN
    with open(path, "ab") as lines:
        lines.write(b'{"event":"began","attempt":"a1"}\n{"event":"ask')
    *events, missing, torn = read(path)
    assert tuple(events) == CLEAN
    assert isinstance(missing, LineUnreadable) and missing.line == LAST + 1 and "process" in missing.why
    assert isinstance(torn, LineUnreadable) and torn.line == LAST + 2
    assert check(read(path), ends_known=True) == (missing, torn)


# ----------------------------------------------------------------------------------------------------------- what it costs


class Counted(str):
    """A text that counts how often it is hashed or compared."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return str.__eq__(self, other)


def long_history(runs: int, attempts: int, text: type[str] = str) -> Iterator[Event]:
    """Runs whose attempts each follow the one before, claimed by a winner and a loser: 8 events an attempt."""
    for run in range(runs):
        name, before = text(f"run {run}"), ""
        for number in range(attempts):
            attempt, slot, version = text(f"{run}/{number}"), text(f"slot {number}"), 3 * number
            cause = "Relaunch" if number else "InitialAttempt"
            yield Asked(text(f"{attempt} w"), name, slot, attempt, version)
            yield Fact(name, version + 1, "claim", attempt, slot, cause, before)
            yield Answered(text(f"{attempt} w"), "committed", attempt, version + 1)
            yield Asked(text(f"{attempt} l"), name, slot, text(f"{attempt} other"), version)
            yield Answered(text(f"{attempt} l"), "already", attempt, version + 1)
            yield Fact(name, version + 2, "intent", attempt)
            yield Began(attempt, text(f"{attempt} process"))
            yield Fact(name, version + 3, "outcome", attempt)
            yield Ended(attempt, text(f"{attempt} process"))
            before = attempt


def looks_each(runs: int, attempts: int) -> float:
    """Hashes and comparisons of names for one event."""
    events = tuple(long_history(runs, attempts, Counted))
    Counted.looks = 0
    assert checker.check(events, ends_known=True) == ()
    return Counted.looks / len(events)


def _scans(events: tuple[Event, ...], ends_known: bool) -> tuple[Violation, ...]:
    """A checker that looks every beginning up among all events."""
    names = [event.attempt for event in events if isinstance(event, Began)]
    assert all(names.index(name) >= 0 for name in names)
    return check(events, ends_known)


@proven_by(planted(checker, "check", _scans))
def test_the_cost_of_an_event_does_not_grow_with_the_history() -> None:
    small, wide, deep = looks_each(20, 10), looks_each(300, 10), looks_each(10, 300)
    print(f"\nlooks for each event: {small:.2f} of 1,800, {wide:.2f} of 27,000 in 300 runs, {deep:.2f} of 27,000 in 10 runs")
    assert wide <= 1.05 * small and deep <= 1.05 * small


def test_a_million_events_are_checked() -> None:
    assert check(long_history(1_000, 112), ends_known=True) == ()
