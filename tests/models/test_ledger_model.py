"""The model's ledger decides as the program does: every question to every small ledger, of two claims and what was done for them.

``models/ledger_table.pml`` prints what the model's own transactions answer; here the program's functions are asked the same.
"""

import shutil
import subprocess
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

import pytest

from countermark.run import claims, dispatch
from countermark.run.attempts import Cause, InfrastructureRetry, InitialAttempt, Relaunch, Resume
from countermark.run.claims import (
    Abandonment,
    AlreadyCommitted,
    Cancellation,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    Launcher,
    LaunchResult,
    RunLedger,
    SnapshotStale,
    admit_start_claim,
)
from countermark.run.dispatch import Insertable, admit_abandonment, admit_cancellation, admit_dispatch_intent, admit_dispatch_outcome
from countermark.run.records import Stands
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.models.spin import need_spin
from tests.run.examples import CHECKPOINT, claim, desired, key, transition

MODELS: Final = Path(__file__).parents[2] / "models"
RESULTS: Final[tuple[LaunchResult, ...]] = (DispatchRefused("no"), DispatchUnknown("?"), Dispatched("yes"))
ALREADY, STALE, REFUSAL, INSERTED = 1, 2, 3, 4
CLAIM, INTENT, OUTCOME, CANCEL, GIVE_UP = range(5)

Answer = tuple[int, int, int]


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: a ledger, a question, and the model's answer to it."""

    claims: int
    facts: tuple[int, int]
    second_cause: int
    cancelled: bool
    stale: bool
    kind: int
    x: int
    y: int
    answer: Answer


@cache
def table(*switches: str) -> tuple[Row, ...]:
    """What the model answers, under these switches."""
    need_spin()
    given = [f"-D{switch}" for switch in switches]
    # Spin writes what it preprocessed into the folder that it runs in: workers that share one read each other's.
    with TemporaryDirectory() as folder:
        for source in MODELS.glob("*.pml"):
            shutil.copy(source, folder)
        command = ["spin", "-T", *given, "ledger_table.pml"]
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
    lines = (map(int, line.split()[1:]) for line in told.stdout.splitlines() if line.startswith("T "))
    return tuple(
        Row(n, (one, two), cause, bool(ended), bool(stale), kind, x, y, (said, which, moved))
        for n, one, two, cause, ended, stale, kind, x, y, said, which, moved in lines
    )


def cause_of(number: int, follows: int) -> Cause:
    """The cause of the model's number, after the attempt of that number."""
    if number == 1:
        return InitialAttempt()
    before = key(follows)
    made: dict[int, Cause] = {
        3: InfrastructureRetry(before),
        4: Resume(before, CHECKPOINT),
        5: Relaunch(before, "process", None),
        6: Relaunch(before, "process", CHECKPOINT),
    }
    return made[number]


@cache
def wanted(cause: int, follows: int) -> claims.Transition:
    """The transition that a row asks to claim."""
    return transition(cause_of(cause, follows))


@cache
def ledger_of(count: int, facts_of: tuple[int, int], second_cause: int, cancelled: bool, launcher: Launcher) -> RunLedger:
    """A row's ledger as the program has it; an attempt of the model that is counted from 1 is the key of its number."""
    made = [claim(1, InitialAttempt()), claim(2, cause_of(second_cause, 1), version=2)][:count]
    intents, outcomes, given_up = [], [], []
    for number, fact in enumerate(facts_of[:count], 1):
        given, dispatched = divmod(fact, 5)
        if dispatched:
            intents.append(DispatchIntent(key(number), launcher, "here", 0))
        if dispatched > 1:
            outcomes.append(DispatchOutcome(key(number), RESULTS[dispatched - 2], 0))
        if given:
            given_up.append(Abandonment(key(number), "ada", 0))
    cancellations = (Cancellation("ada", 0),) if cancelled else ()
    facts = len(made) + len(intents) + len(outcomes) + len(given_up) + len(cancellations)
    return RunLedger(desired(), facts, tuple(made), tuple(intents), tuple(outcomes), cancellations, tuple(given_up))


def claim_answer(row: Row, ledger: RunLedger) -> Answer:
    snapshot = ledger.version - 1 if row.stale else ledger.version
    answer = admit_start_claim(ledger, snapshot, wanted(row.y, row.x), key(row.claims + 1))
    match answer:
        case AlreadyCommitted(held):
            return ALREADY, 1 + [one.attempt for one in ledger.claims].index(held.attempt), 0
        case SnapshotStale():
            return STALE, 0, 0
        case Refused():
            return REFUSAL, 0, 0
        case claims.Admissible():
            return INSERTED, row.claims + 1, 1


def intent_answer(row: Row, ledger: RunLedger, launcher: Launcher) -> Answer:
    match admit_dispatch_intent(ledger, DispatchIntent(key(row.x + 1), launcher, "here", 0)):
        case Stands():
            return ALREADY, 0, 0
        case Refused():
            return REFUSAL, 0, 0
        case Insertable():
            return INSERTED, 0, 1


def program_answer(row: Row, launcher: Launcher) -> Answer:
    """What the program answers to the row's question."""
    ledger = ledger_of(row.claims, row.facts, row.second_cause, row.cancelled, launcher)
    match row.kind:
        case 0:  # CLAIM
            return claim_answer(row, ledger)
        case 1:  # INTENT
            return intent_answer(row, ledger, launcher)
        case 2:  # OUTCOME
            answer: object = admit_dispatch_outcome(ledger, DispatchOutcome(key(row.x + 1), RESULTS[row.y - 1], 0))
        case 3:  # CANCEL
            answer = admit_cancellation(ledger, Cancellation("grace", 0))
        case _:
            answer = admit_abandonment(ledger, Abandonment(key(row.x + 1), "grace", 0))
    return 0, 0, int(isinstance(answer, Insertable))


def differing(rows: tuple[Row, ...], launcher: Launcher) -> list[tuple[Row, Answer]]:
    """The rows to which the program answers otherwise, with its answers; the first ten."""
    found = []
    for row in rows:
        if (answer := program_answer(row, launcher)) != row.answer:
            found.append((row, answer))
            if len(found) == 10:
                break
    return found


def attempts_exclude() -> AbstractContextManager[object]:
    return planted(claims.Transition, "slot", lambda self: object())()


def successors_are_many() -> AbstractContextManager[object]:
    return planted(claims, "_claim_defects", lambda ledger, transition, candidate: ())()


def every_outcome_is_news() -> AbstractContextManager[object]:
    return planted(dispatch, "strength", lambda result: 0)()


def every_launcher_creates_or_gets() -> AbstractContextManager[object]:
    return planted(dispatch, "creates_or_gets", lambda launcher: True)()


@proven_by(attempts_exclude, successors_are_many, every_outcome_is_news)
def test_the_model_answers_as_the_program_does() -> None:
    assert differing(table(), "local") == []


@proven_by(every_launcher_creates_or_gets)
def test_a_one_shot_intent_of_the_model_is_that_of_a_launcher_that_does_not_create_or_get() -> None:
    assert differing(table("ONE_SHOT"), "slurm") == []


@pytest.mark.parametrize("switch", ["KEY_ON_ATTEMPT", "NO_SLOT", "NO_VERSION", "NO_SUCCESSOR_RULE", "DISPATCH_AFTER_OUTCOME", "ONE_SHOT"])
def test_a_model_with_a_broken_rule_answers_otherwise(switch: str) -> None:
    assert differing(table(switch, "ONLY_TRAINERS"), "local") != []


def test_every_kind_of_question_and_answer_is_in_the_table() -> None:
    rows = table()
    assert {row.kind for row in rows} == {CLAIM, INTENT, OUTCOME, CANCEL, GIVE_UP}
    assert {row.answer[0] for row in rows if row.kind == CLAIM} == {ALREADY, STALE, REFUSAL, INSERTED}
    assert {row.answer[0] for row in rows if row.kind == INTENT} == {ALREADY, REFUSAL, INSERTED}
    assert {row.answer[2] for row in rows if row.kind in {OUTCOME, CANCEL, GIVE_UP}} == {0, 1}
    assert len({replace(row, answer=(0, 0, 0)) for row in rows}) == len(rows), "every question is asked once"
