"""All interleavings of one attempt with one sweep: a healthy attempt is never lost and never contradicts itself, wherever a stage falls.

An attempt's life is a sequence of events; a sweep's six stages each fall after some number of them, in order. Every such choice is tried
(1,716 for seven events), and with it every verdict that a controller could ever draw while nothing is wrong.
"""

from collections import Counter
from itertools import combinations_with_replacement
from typing import Any

import pytest

from countermark.evidence.composition import EvidenceComposition
from countermark.evidence.cut import STAGES, Ordered, Stage
from countermark.evidence.members import ProcessState, Terminal
from countermark.run.claims import Dispatched
from countermark.verdict.kinds import Blocked, Converged, InProgress, LaunchPending, Lost, ObservationRequired, RetryRequired, StopRequired
from tests.faults import planted, proven_by
from tests.verdict import test_interleavings as here
from tests.verdict.scenes import Scene, Try, changed, concluded, ended, failed, manifest, output, process

DISPATCHED = Scene((Try(1, Dispatched("started")),))
HEALTHY = ("supervisor", "trainer", "manifest", "output", "trainer gone", "terminal", "supervisor gone")
#: The trainer fails before it publishes anything.
FAILING = ("supervisor", "trainer", "manifest", "trainer gone", "terminal", "supervisor gone")
#: Everything is killed at once, in the middle.
KILLED = ("supervisor", "trainer", "manifest", "output", "all gone")


def state(passed: tuple[str, ...]) -> ProcessState | None:
    """What a look at processes shows after these events."""
    if "supervisor" not in passed:
        return None
    if "all gone" in passed or "supervisor gone" in passed:
        return "dead"
    return "alive" if "trainer" in passed and "trainer gone" not in passed else "settling"


def stage_sees(stage: Stage, passed: tuple[str, ...], end: Terminal) -> tuple[Any, ...]:
    if stage in ("terminals", "terminals_again"):
        return (end,) if "terminal" in passed else ()
    if stage == "processes":
        seen = state(passed)
        return () if seen is None else (process(1, seen),)
    if stage == "outputs":
        return (output(1),) if "output" in passed else ()
    if stage == "manifests":
        return (manifest(1),) if "manifest" in passed else ()
    return ()


def seen_by(life: tuple[str, ...], places: tuple[int, ...]) -> Scene:
    """What a sweep brings home whose stages fall after these numbers of events. Its grace has passed as soon as a supervisor ever ran."""
    end = ended(1) if "output" in life else failed(1)
    seen = {stage: stage_sees(stage, life[:place], end) for stage, place in zip(STAGES, places, strict=True)}
    axes = {("again" if stage == "terminals_again" else stage): {"one": members} for stage, members in seen.items()}
    return changed(DISPATCHED, grace_ms=0 if seen["processes"] else 10**9, **axes)


def interleavings(life: tuple[str, ...]) -> list[tuple[int, ...]]:
    return list(combinations_with_replacement(range(len(life) + 1), len(STAGES)))


def verdicts(life: tuple[str, ...]) -> Counter[str]:
    return Counter(type(concluded(seen_by(life, places)).verdict).__name__ for places in interleavings(life))


# ------------------------------------------------------------------------------------------------------------- mutants


def no_settling() -> Any:
    """Observers that look at the trainer's lock alone."""
    original = state
    return planted(here, "state", lambda passed: "dead" if original(passed) == "settling" else original(passed))()


def one_pass() -> Any:
    """A sweep that hands the first reading of terminals in again."""
    original = seen_by
    return planted(here, "seen_by", lambda life, places: changed(original(life, places), again=original(life, places).terminals))()


def any_order() -> Any:
    """Whatever was read, it was read in the order that licenses the conclusion."""
    return planted(EvidenceComposition, "order", lambda self, earlier, later: Ordered())()


def terminals_last() -> Any:
    """A sweep that reads terminals once, at its end, and takes that for the first reading as well."""
    original = seen_by

    def seen(life: tuple[str, ...], places: tuple[int, ...]) -> Scene:
        scene = original(life, places)
        return changed(scene, terminals=scene.axis("terminals_again"))

    return planted(here, "seen_by", seen)()


@proven_by(no_settling, one_pass, any_order, terminals_last)
@pytest.mark.parametrize("life", [HEALTHY])
def test_a_healthy_attempt_is_never_lost_and_never_contradicts_itself(life: tuple[str, ...]) -> None:
    found = here.verdicts(life)
    assert sum(found.values()) == 1716
    assert set(found) == {"LaunchPending", "InProgress", "ObservationRequired", "Converged"}


@proven_by(no_settling, one_pass, any_order)
def test_a_failing_attempt_is_never_lost_and_never_contradicts_itself() -> None:
    found = here.verdicts(FAILING)
    assert sum(found.values()) == 924
    assert set(found) == {"LaunchPending", "InProgress", "ObservationRequired", "RetryRequired"}


@pytest.mark.parametrize(("life", "kind"), [(HEALTHY, Converged), (FAILING, RetryRequired), (KILLED, Lost)])
def test_a_sweep_after_the_end_concludes_it(life: tuple[str, ...], kind: type) -> None:
    assert isinstance(concluded(seen_by(life, (len(life),) * 6)).verdict, kind)


def test_what_was_killed_is_lost_only_by_a_sweep_that_saw_it_dead() -> None:
    for places in interleavings(KILLED):
        verdict = concluded(seen_by(KILLED, places)).verdict
        dead = places[1] == len(KILLED)
        assert isinstance(verdict, Lost) is dead
        assert isinstance(verdict, Lost | InProgress | LaunchPending)


@pytest.mark.parametrize("life", [HEALTHY, FAILING])
def test_a_cancelled_attempt_is_stopped_while_anything_of_it_was_seen_alive(life: tuple[str, ...]) -> None:
    for places in interleavings(life):
        scene = changed(seen_by(life, places), cancelled=True)
        verdict = concluded(scene).verdict
        living = any(one.state != "dead" for one in scene.processes["one"])
        terminal = bool(scene.axis("terminals_again")["one"])
        if living and not terminal:
            assert isinstance(verdict, StopRequired)
        elif any(one.state == "alive" for one in scene.processes["one"]):
            assert isinstance(verdict, ObservationRequired)
        assert not isinstance(verdict, Blocked)
