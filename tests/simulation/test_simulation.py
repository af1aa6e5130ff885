"""Simulated histories of controllers, persons, supervisors and trainers, with crashes at every step: every rule holds in all of them, and
each planted fault is betrayed by some."""

import pytest

from tests.faults import proven_by
from tests.simulation import campaign
from tests.simulation.campaign import histories
from tests.simulation.choices import Choices, Shrinking
from tests.simulation.living import live, simulated
from tests.simulation.mutants import MUTANTS
from tests.simulation.told import OUTSIDE, lines, not_covered

#: 50,000 histories in the gate, in parts that workers share.
PARTS, EACH = 20, 2_500

#: Within how many histories every planted fault must be betrayed.
WITHIN = 20_000


@pytest.mark.parametrize("part", range(PARTS))
def test_every_rule_holds_in_every_history(part: int) -> None:
    told = histories(part * EACH, EACH)
    print("\n" + "\n".join(lines(told)))
    assert told.failure is None, told.failure.text()
    assert told.histories == EACH and told.figures["launches"] > EACH / 2


@pytest.mark.parametrize("name", MUTANTS)
def test_each_planted_fault_is_betrayed(name: str) -> None:
    with MUTANTS[name]():
        told = histories(0, WITHIN, shrinking=False)
    assert told.failure is not None, f"no history of {WITHIN} betrays: {name}"
    print(f"\n{name}: betrayed by history {told.histories}: {told.failure.what[:200]}")


@pytest.mark.parametrize(
    ("name", "violation"),
    [
        ("the key is the attempt", "SlotWonTwice"),
        ("the loser is told of itself", "WrongWinnerNamed"),
        ("a claim is answered and not kept", "AnswerBeforeCommit"),
    ],
)
def test_the_three_rules_of_claims_are_seen_in_recorded_histories(name: str, violation: str) -> None:
    """One winner for each slot, every loser names it, no answer before the commit: each broken in the program, and found by its history."""
    failing: list[str] = []
    with MUTANTS[name]():
        for first in range(0, 400, 20):
            failing += [told.failure.what for told in [histories(first, 20, shrinking=False)] if told.failure is not None]
    assert any(f"{violation}(" in what for what in failing), failing


def test_a_seed_gives_the_same_history_and_so_do_its_decisions() -> None:
    with simulated():
        for seed in range(40):
            drawn = Choices(seed)
            world = live(drawn, tracing=True)
            again = live(Choices(seed), tracing=True)
            given = live(Choices(given=drawn.taken), tracing=True)
            assert world.trace == again.trace == given.trace
            assert world.history == again.history == given.history


def test_a_failure_is_shrunk_to_a_short_tale() -> None:
    with MUTANTS["the start is not exclusive"]():
        told = histories(0, WITHIN)
    failure = told.failure
    assert failure is not None
    assert 3 <= len(failure.tale.splitlines()) <= 40, failure.text()
    assert "TRAINER BEGINS" in failure.tale


def test_shrinking_keeps_what_fails_and_nothing_else() -> None:
    def fails(decisions: object) -> bool:
        assert isinstance(decisions, list)
        return 7 in decisions and 3 in decisions

    assert sorted(Shrinking(fails).shrink([1, 0, 7, 2, 9, 3, 3, 8])) == [3, 7]


@proven_by(MUTANTS["the start is not exclusive"])
def test_what_is_told_of_a_campaign() -> None:
    told = campaign.histories(0, 300)
    assert told.failure is None
    text = "\n".join(lines(told))
    assert text.startswith("histories 300, steps ") and "verdict (" in text and "controller killed (" in text


def test_what_was_not_covered_is_named_and_what_was_is_not() -> None:
    told = campaign.histories(0, 300)
    few = not_covered(told.figures)
    assert "no blocker was: AttemptWithoutExecutionClaim" in "\n".join(few) and not any("ExecutionRequired" in line for line in few)
    point = next(name for name in told.figures if name.startswith("controller killed: before claim"))
    told.figures[point] = 0
    told.figures["verdict: ExecutionRequired"] = 0
    fewer = not_covered(told.figures)
    assert any(line.startswith("no controller was killed at") and "before claim" in line for line in fewer)
    assert any(line.startswith("no verdict was") and "ExecutionRequired" in line for line in fewer)
    text = list(lines(told))
    outside = [f"  outside of what is simulated: {each}" for each in OUTSIDE]
    assert text[text.index("not covered:") + 1 :] == [*(f"  {line}" for line in fewer), *outside]
