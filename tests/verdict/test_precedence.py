"""Of two arms that apply the higher is the verdict: each scene satisfies both, and without the higher one's fact the lower is concluded.

``Cancelled`` and ``InProgress`` never apply together: what was cancelled and lives is to be stopped.
"""

from contextlib import AbstractContextManager
from importlib import import_module
from itertools import combinations
from typing import Any

import pytest

from countermark.run.claims import Dispatched
from countermark.verdict.kinds import ExecutionRequired, InProgress, StopRequired
from tests.faults import planted, proven_by
from tests.verdict.scenes import Scene, Try, changed, concluded, ended, failed, key, output, process
from tests.verdict.test_verdicts import AGAIN, ALIVE, CLAIMED, COMPLETED, DISPATCHED, ENDED, NEIGHBOURS, TWICE, arms, both

STARTED = Dispatched("started")


def arm(scene: Scene) -> str:
    return type(concluded(scene).verdict).__name__


#: The scenes of ``NEIGHBOURS`` without what makes the higher arm apply.
BARE: dict[tuple[str, str], Scene] = {
    ("Blocked", "StopRequired"): changed(NEIGHBOURS["Blocked", "StopRequired"], outputs={"local": (output(1),)}),
    ("StopRequired", "Cancelled"): changed(NEIGHBOURS["StopRequired", "Cancelled"], processes={"local": (process(1, "dead"),)}),
    ("InProgress", "ObservationRequired"): changed(
        NEIGHBOURS["InProgress", "ObservationRequired"], processes={"local": (process(9, "dead"),)}
    ),
    ("ObservationRequired", "LaunchDispatchRequired"): both(COMPLETED, Try(9, "claimed", AGAIN)),
    ("LaunchDispatchRequired", "LaunchPending"): changed(
        NEIGHBOURS["LaunchDispatchRequired", "LaunchPending"], tries=NEIGHBOURS["LaunchDispatchRequired", "LaunchPending"].tries[1:]
    ),
    ("LaunchPending", "Lost"): DISPATCHED,
    ("Lost", "SeveralCandidates"): changed(NEIGHBOURS["Lost", "SeveralCandidates"], tries=TWICE.tries),
    ("SeveralCandidates", "Converged"): changed(
        NEIGHBOURS["SeveralCandidates", "Converged"], terminals={"supervisor": (ended(1), failed(2))}, outputs={"local": (output(1),)}
    ),
    ("Converged", "ResumeAvailable"): changed(
        NEIGHBOURS["Converged", "ResumeAvailable"], terminals={"supervisor": (failed(1), failed(9))}, outputs={"local": ()}
    ),
    ("ResumeAvailable", "RetryRequired"): changed(NEIGHBOURS["ResumeAvailable", "RetryRequired"], checkpoints={"local": ()}),
    ("RetryRequired", "ExecutionRequired"): Scene(),
}


def lowest_wins() -> AbstractContextManager[object]:
    """Whatever is found, the lowest arm is concluded."""
    return planted(import_module("countermark.verdict.reconcile"), "_verdict", lambda fold, frontier: (ExecutionRequired(), ()))()


def test_every_pair_of_neighbours_is_bared_but_the_one_that_never_stands_together() -> None:
    assert set(NEIGHBOURS) - set(BARE) == {("Cancelled", "InProgress")}


@proven_by(lowest_wins)
@pytest.mark.parametrize(("higher", "lower"), list(BARE))
def test_the_higher_arm_goes_first_and_the_lower_one_stands_behind_it(higher: str, lower: str) -> None:
    assert (arm(NEIGHBOURS[higher, lower]), arm(BARE[higher, lower])) == (higher, lower)


@pytest.mark.parametrize("state", ["alive", "settling"])
def test_what_lives_of_a_cancelled_run_is_stopped_and_never_waited_for(state: Any) -> None:
    scene = changed(ALIVE, processes={"local": (process(1, state),)})
    assert isinstance(concluded(scene).verdict, InProgress)
    assert isinstance(concluded(changed(scene, cancelled=True)).verdict, StopRequired)


# ------------------------------------------------------------------------------- any two arms, whose scenes are laid together

#: What makes an arm apply, as attempts of their own (numbers from 20 on) laid beside whatever else there is.
SIDE: dict[str, tuple[tuple[Try, ...], dict[str, tuple[Any, ...]]]] = {
    "Blocked": ((Try(20, STARTED),), {"terminals": (ended(20),)}),
    "StopRequired": ((Try(30, STARTED),), {"processes": (process(30),)}),
    "InProgress": ((Try(40, STARTED),), {"processes": (process(40),)}),
    "ObservationRequired": ((Try(50, STARTED),), {"terminals": (ended(50),), "outputs": (output(50),)}),
    "LaunchDispatchRequired": ((Try(60, "claimed"),), {}),
    "LaunchPending": ((Try(70, STARTED, recorded_ms=99_000),), {}),
    "Lost": ((Try(80, STARTED),), {}),
    "RetryRequired": ((Try(90, STARTED),), {"terminals": (failed(90),)}),
}


def laid(*names: str) -> Scene:
    """The sides laid together in one scene, each attempt a re-execution of its own."""
    from countermark.run.attempts import RequestedReexecution

    tries: list[Try] = []
    axes: dict[str, list[Any]] = {"terminals": [], "processes": [], "outputs": []}
    for name in names:
        made, members = SIDE[name]
        tries += [Try(one.number, one.result, RequestedReexecution(name), recorded_ms=one.recorded_ms) for one in made]
        for axis, found in members.items():
            axes[axis] += found
    abandoned = (30,) if "StopRequired" in names else ()
    return changed(Scene(), tries=tuple(tries), abandoned=abandoned, **{axis: {"local": tuple(found)} for axis, found in axes.items()})


@pytest.mark.parametrize("name", list(SIDE))
def test_each_side_alone_is_its_arm(name: str) -> None:
    assert arm(laid(name)) == name


@proven_by(lowest_wins)
@pytest.mark.parametrize("names", list(combinations(SIDE, 2)), ids=" over ".join)
def test_of_any_two_arms_laid_together_the_higher_is_the_verdict(names: tuple[str, str]) -> None:
    order = arms()
    assert order.index(names[0]) < order.index(names[1])
    assert arm(laid(*names)) == arm(laid(*reversed(names))) == names[0]


def test_all_of_them_laid_together_give_the_highest_and_each_removed_gives_the_next() -> None:
    names = list(SIDE)
    for at, name in enumerate(names):
        assert arm(laid(*names[at:])) == name


# ---------------------------------------------------------------------------------- candidates from anywhere in the graph


def frontier_alone() -> AbstractContextManager[object]:
    """Candidates of attempts that have a successor are forgotten."""
    room = import_module("countermark.verdict.reconcile")
    fold_of = room.fold_of

    def folded(evidence: Any, control: Any, grace_ms: int) -> Any:
        fold = fold_of(evidence, control, grace_ms)
        frontier = set(evidence.graph.frontier())
        fold.candidates[:] = [one for one in fold.candidates if one.attempt in frontier]
        return fold

    return planted(room, "fold_of", folded)()


@proven_by(frontier_alone)
def test_a_candidate_may_have_a_successor() -> None:
    """It was taken for lost and relaunched; then its end came to light, and its successor failed."""
    from countermark.run.attempts import Relaunch

    scene = changed(COMPLETED, tries=(Try(1, STARTED), Try(2, STARTED, Relaunch(key(1), "process"))))
    failed_after = changed(scene, terminals={"supervisor": (ended(1), failed(2))})
    assert arm(failed_after) == "Converged"
    assert arm(changed(failed_after, outputs={"local": ()})) == "Blocked"
    waiting = changed(scene, tries=(Try(1, STARTED), Try(2, "claimed", Relaunch(key(1), "process"))))
    assert arm(waiting) == "LaunchDispatchRequired", "a claim that stands is dispatched before anything is taken for the end"
    assert arm(changed(ENDED, tries=scene.tries, terminals={"supervisor": (failed(1), failed(2))})) == "RetryRequired"
    assert arm(CLAIMED) == "LaunchDispatchRequired"
