"""What admission and a whole conclusion cost: one large input costs what eight of an eighth of its size cost, in whatever shape.

Seconds of the processor, at sizes that take milliseconds; ``bench/reconcile.py`` measures the sizes that are promised. A rule that looks at
every attempt again for each attempt makes the large one cost up to eight times as much.
"""

import gc
import inspect
import random
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pytest

from countermark.evidence import composition
from countermark.run import attempts as attempts_room
from countermark.run import claims
from countermark.run.attempts import (
    Attempt,
    AttemptGraph,
    AttemptKey,
    InfrastructureRetry,
    admit_attempt_graph,
    predecessor_of,
)
from countermark.run.claims import Dispatched
from countermark.values import NonEmpty
from countermark.verdict import Sweep, conclude
from countermark.verdict.kinds import Conclusion, ResumeAvailable
from tests.faults import planted, proven_by
from tests.verdict.scenes import Scene, Try, checkpoint, failed, key, output, process, subject, sweep
from tests.verdict.test_verdicts import TORN

reconcile_room = import_module("countermark.verdict.reconcile")
SHAPES = ("chain", "reversed", "shuffled", "star", "random")
SIZE = 100
TIMES = 8


def tries(shape: str, size: int) -> tuple[Try, ...]:
    """Attempts whose predecessors make the shape; ``reversed`` and ``shuffled`` are chains that come in another order."""
    chance = random.Random(7)
    before: Callable[[int], int] = {"star": lambda number: 1, "random": lambda number: chance.randint(1, number - 1)}.get(
        shape, lambda number: number - 1
    )
    roots = Try(1, Dispatched("started"))
    found = [roots, *(Try(at, Dispatched("started"), InfrastructureRetry(key(before(at)))) for at in range(2, size + 1))]
    if shape == "reversed":
        found.reverse()
    elif shape == "shuffled":
        chance.shuffle(found)
    return tuple(found)


def attempts(shape: str, size: int) -> tuple[Attempt, ...]:
    return tuple(Attempt(key(one.number), subject().demand, one.cause) for one in tries(shape, size))


def seen(shape: str, size: int) -> Sweep:
    """A sweep over attempts that failed, of which the first left a checkpoint: everything is indexed, judged and followed to the end."""
    numbers = range(1, size + 1)
    scene = Scene(
        tries(shape, size),
        terminals={"supervisor": tuple(map(failed, numbers))},
        processes={"local": tuple(process(number, "dead") for number in numbers)},
        outputs={"local": tuple(map(output, numbers))},
        checkpoints={"local": (checkpoint(1), TORN)},
    )
    return sweep(scene)


def seconds(*acts: tuple[Callable[[], object], int]) -> list[float]:
    """The least that each of these cost, done so many times in a row; they take turns."""
    best = [float("inf")] * len(acts)
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            for at, (act, times) in enumerate(acts):
                began = time.process_time()
                for _ in range(times):
                    act()
                best[at] = min(best[at], time.process_time() - began)
    finally:
        gc.enable()
    return best


# ----------------------------------------------------------------------------------------------------------- admission


def starts_over() -> Any:
    """The fixpoint that asks every attempt again until nothing changes."""

    def rooted(own: list[int], before: list[int], here: list[bool]) -> list[bool]:
        found, changed = [False] * len(own), True
        while changed:
            changed = False
            for place, predecessor, demanded in zip(own, before, here, strict=True):
                if demanded and not found[place] and (predecessor == -2 or (predecessor >= 0 and found[predecessor])):
                    found[place] = changed = True
        return found

    return planted(attempts_room, "_rooted", rooted)()


def walks_back() -> Any:
    """Each attempt followed back to its root by itself."""

    def rooted(own: list[int], before: list[int], here: list[bool]) -> list[bool]:
        place_of = {place: at for at, place in enumerate(own)}

        def leads(place: int) -> bool:
            while before[place_of[place]] >= 0:
                place = before[place_of[place]]
            return True

        return [leads(place) for place in own]

    return planted(attempts_room, "_rooted", rooted)()


def admitted(members: tuple[Attempt, ...]) -> AttemptGraph:
    graph = admit_attempt_graph(subject(), members)
    assert isinstance(graph, AttemptGraph)
    return graph


@proven_by(starts_over, walks_back)
def test_admission_costs_the_same_for_each_attempt_however_many_there_are_and_whatever_their_shape() -> None:
    made = [attempts(shape, size) for size in (SIZE, SIZE * TIMES) for shape in SHAPES]
    assert [len(admitted(members).attempts) for members in made] == [len(members) for members in made]
    costs = seconds(*((lambda members=members: admitted(members), SIZE * TIMES // len(members)) for members in made))
    assert max(costs) < 3 * min(costs), costs


# ------------------------------------------------------------------------------------------------ composition and conclusion


def members_are_looked_for() -> Any:
    """A member's attempt is looked for among all attempts."""
    return planted(composition, "_membership", lambda graph: lambda attempt: any(attempt == one for one in graph.attempts))()


def facts_are_looked_for() -> Any:
    """The facts of each attempt are looked for among all facts."""

    def by_attempt(facts: tuple[Any, ...]) -> Mapping[AttemptKey, tuple[Any, ...]]:
        return {fact.attempt: tuple(one for one in facts if one.attempt == fact.attempt) for fact in facts}

    return planted(claims, "_by_attempt", by_attempt)()


def concluded(given: Sweep) -> Conclusion:
    conclusion = conclude(given)
    assert isinstance(conclusion, Conclusion)
    assert isinstance(conclusion.verdict, ResumeAvailable)
    return conclusion


@proven_by(members_are_looked_for, facts_are_looked_for)
def test_a_conclusion_costs_the_same_for_each_member_however_many_there_are() -> None:
    small, large = seen("chain", SIZE // 2), seen("chain", SIZE // 2 * TIMES)
    many, one = seconds((lambda: concluded(small), TIMES), (lambda: concluded(large), 1))
    assert one < 3 * many


def followed_by_recursion() -> Any:
    """What a checkpoint led to, asked of each predecessor in turn."""

    def followed(fold: Any, ended: NonEmpty[AttemptKey], holder: AttemptKey) -> AttemptKey:
        def back(step: AttemptKey | None) -> bool:
            return step is not None and (step == holder or back(predecessor_of(fold.evidence.graph.attempts[step].cause)))

        return next(last for last in ended if back(last))

    return planted(reconcile_room, "followed_from", followed)()


@proven_by(followed_by_recursion)
def test_a_long_chain_is_concluded_upon_without_recursion() -> None:
    given = seen("chain", SIZE * 4)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        concluded(given)
    except RecursionError:
        pytest.fail("a chain of attempts is followed by recursion")
    finally:
        sys.setrecursionlimit(before)
