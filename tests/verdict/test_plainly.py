"""Reconciliation against the tables written down plainly: both give the same verdict about the same attempts."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from countermark.evidence.members import NotAttempted, Read, Succeeded, Unread
from countermark.run.checkpoint import ComponentAbsent
from countermark.verdict.kinds import ExecutionRequired, SharedLocation
from countermark.verdict.rulings import attempts_of
from tests.faults import planted, proven_by
from tests.verdict import strategies as drawn
from tests.verdict.plainly import Plain, plainly
from tests.verdict.scenes import Scene, changed, checkpoint, concluded, ended, manifest, number_of, output, process, unidentified
from tests.verdict.strategies import OUTCOMES, scenes

reconcile_room = import_module("countermark.verdict.reconcile")
SEED = (Read("17", "passed_through"), Unread("no"), None)


@st.composite
def calm(draw: st.DrawFn) -> Scene:
    """A scene in which little goes wrong, so that the lower arms are reached."""

    def one_of(*options: Any) -> Any:
        return draw(st.sampled_from(options))

    seen: dict[str, list[Any]] = {name: [] for name in ("terminals", "late", "processes", "outputs", "checkpoints", "manifests")}
    tries = tuple(replace(one, claimed=True) for one in draw(drawn.tries()))
    numbers = {one.number for one in tries}
    for number in numbers:
        if outcome := one_of(None, None, Succeeded(), Succeeded(), *OUTCOMES[1:3]):
            seen[one_of("terminals", "terminals", "late")].append(ended(number, outcome))
        if state := one_of(None, "dead", "dead", "dead", "alive", "settling"):
            seen["processes"].append(one_of(process(number, state), unidentified(number, state)))
        if one_of(True, True, False):
            seen["outputs"].append(output(number, one_of("d", "e")))
        if whole := one_of(None, True, False):
            seen["checkpoints"].append(checkpoint(number))
        elif whole is False:
            seen["checkpoints"].append(checkpoint(number, rng_state=ComponentAbsent(("a",))))
        seen["manifests"].append(one_of(manifest(number), manifest(number), manifest(number, seed=one_of(*SEED))))

    def axis(*names: str) -> dict[str, Any]:
        other = one_of(None, None, None, None, NotAttempted("nobody looked"), "the disk failed")
        return {"one": tuple(one for name in names for one in seen[name])} | ({} if other is None else {"two": other})

    axes: dict[str, Any] = {name: axis(name) for name in seen if name != "late"}
    order = draw(st.permutations(drawn.STAGES)) if one_of(True, False, False) else drawn.STAGES
    rest: dict[str, Any] = {"grace_ms": one_of(0, 60_000, 10**9), "order": tuple(order), "finished": one_of(True, True, False)}
    abandoned = (one_of(*sorted(numbers)),) if numbers and one_of(True, False, False) else ()
    return Scene(tries, again=axis("terminals", "late"), abandoned=abandoned, **axes, **rest)


def told(scene: Scene) -> Plain:
    """What the program concludes, in the same words."""
    verdict: Any = concluded(scene).verdict
    name = type(verdict).__name__
    if name == "Blocked":
        shared = {
            (type(one).__name__, tuple(sorted(map(number_of, one.attempts)))) for one in verdict.blockers if isinstance(one, SharedLocation)
        }
        alone = {(type(one).__name__, number_of(attempts_of(one)[0])) for one in verdict.blockers if not isinstance(one, SharedLocation)}
        return name, frozenset(shared | alone)
    if name == "Converged":
        return name, frozenset({number_of(verdict.candidate.attempt)})
    about = verdict.candidates if name == "SeveralCandidates" else getattr(verdict, "attempts", ())
    return name, frozenset(number_of(getattr(one, "attempt", one)) for one in about)


def one_arm() -> Any:
    return planted(reconcile_room, "_verdict", lambda fold, frontier: (ExecutionRequired(), ()))()


def frontier_alone() -> Any:
    """Only the frontier is asked whether it lives."""
    real = reconcile_room._verdict

    def verdict(fold: Any, frontier: Any) -> Any:
        fold.found = {standing.attempt: standing for standing in frontier}
        return real(fold, frontier)

    return planted(reconcile_room, "_verdict", verdict)()


@proven_by(one_arm, frontier_alone)
@settings(max_examples=120, phases=(Phase.generate,))
@given(calm())
def test_little_that_goes_wrong_is_concluded_as_the_tables_say(scene: Scene) -> None:
    assert told(scene) == plainly(scene)


@pytest.mark.slow
@settings(max_examples=4000)
@given(calm() | scenes())
def test_anything_is_concluded_as_the_tables_say(scene: Scene) -> None:
    plain = changed(scene, cancelled=False, adjudications=())
    assert told(plain) == plainly(plain)
