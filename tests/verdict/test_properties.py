"""Whatever is handed in: a verdict, the same one for the same facts in any order, and the same bytes for the same input."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from countermark.lines.conclusion import conclusion_document, conclusion_lines
from countermark.verdict import Conclusion, conclude
from countermark.verdict import fold as room
from countermark.verdict.kinds import (
    AttemptWithoutExecutionClaim,
    Blocked,
    Cancelled,
    Converged,
    ExecutionRequired,
    InProgress,
    Lost,
    SeveralCandidates,
    StopRequired,
)
from tests.faults import planted, proven_by
from tests.verdict.scenes import Scene, changed, concluded, sweep
from tests.verdict.strategies import scenes

STAGES = ("terminals", "processes", "outputs", "checkpoints", "manifests", "again")


def unordered(value: Any) -> Any:
    """A document with its populations as sets."""
    if isinstance(value, dict):
        return {name: unordered(inner) for name, inner in value.items()}
    return sorted(map(unordered, value), key=json.dumps) if isinstance(value, list) else value


def facts(conclusion: Conclusion) -> Any:
    return unordered(conclusion_document(conclusion))


@given(scenes())
def test_every_input_has_a_verdict_that_can_be_told(scene: Scene) -> None:
    conclusion = concluded(scene)
    lines = conclusion_lines(conclusion)
    assert lines[0].startswith(type(conclusion.verdict).__name__ + ": ")
    assert lines[1].startswith("next: ")
    assert all(line.isprintable() for line in lines)
    json.dumps(conclusion_document(conclusion), allow_nan=False)


@given(scenes())
def test_the_same_input_gives_the_same_bytes(scene: Scene) -> None:
    first, second = concluded(scene), concluded(scene)
    assert first == second
    assert "\n".join(conclusion_lines(first)).encode() == "\n".join(conclusion_lines(second)).encode()


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[Scene, Scene]:
    """A scene, and the same facts in another order."""
    scene = draw(scenes())

    def axis(given: Any) -> Any:
        mixed = {source: tuple(draw(st.permutations(found))) if isinstance(found, tuple) else found for source, found in given.items()}
        return dict(draw(st.permutations(tuple(mixed.items()))))

    axes = {name: axis(getattr(scene, name)) for name in STAGES}
    return scene, changed(scene, tries=tuple(draw(st.permutations(scene.tries))), **axes)


@contextmanager
def first_blocked_wins() -> Iterator[None]:
    """Once an attempt is blocked, no other one is looked at: what is found depends on which one comes first."""
    judge = room._judge

    def judged(fold: room.Fold, standing: Any) -> None:
        if not fold.blockers:
            judge(fold, standing)

    with planted(room, "_judge", judged)():
        yield


@proven_by(first_blocked_wins)
@given(shuffled())
def test_the_order_in_which_facts_come_changes_nothing(pair: tuple[Scene, Scene]) -> None:
    one, other = pair
    assert facts(concluded(one)) == facts(concluded(other))


def _always(verdict: Any) -> Any:
    """A reconciliation that always draws this conclusion."""
    from importlib import import_module

    return planted(import_module("countermark.verdict.reconcile"), "_verdict", lambda fold, frontier: (verdict, ()))


@proven_by(_always(ExecutionRequired()), _always(Cancelled()))
@given(scenes())
def test_what_licenses_an_act_is_in_the_evidence(scene: Scene) -> None:
    """Independent of the fold: what each verdict must not be concluded without."""
    verdict = concluded(scene).verdict
    unread = [stage for stage in STAGES if any(not isinstance(found, tuple) for found in getattr(scene, stage).values())]
    living = {one.attempt for given in scene.processes.values() if isinstance(given, tuple) for one in given if one.state != "dead"}
    if isinstance(verdict, ExecutionRequired):
        assert not scene.tries and not unread
    if isinstance(verdict, Cancelled):
        assert scene.cancelled and "processes" not in unread
    if isinstance(verdict, Lost):
        given_up = {attempt for attempt in verdict.attempts if int(attempt.nonce.hex[:8], 16) in scene.abandoned}
        assert not living & set(verdict.attempts)
        assert given_up == set(verdict.attempts) or (scene.finished and not {"processes", "again"} & set(unread))
    if isinstance(verdict, InProgress | StopRequired):
        assert living.issuperset(verdict.attempts)
    if isinstance(verdict, Converged | SeveralCandidates):
        assert not scene.cancelled
    if isinstance(verdict, Blocked):
        unclaimed = {one.number for one in scene.tries if not one.claimed}
        named = {int(one.attempt.nonce.hex[:8], 16) for one in verdict.blockers if isinstance(one, AttemptWithoutExecutionClaim)}
        assert named == unclaimed


@given(scenes())
def test_concluding_changes_nothing_of_its_input(scene: Scene) -> None:
    before = sweep(scene)
    conclude(before)
    assert before == sweep(scene)
