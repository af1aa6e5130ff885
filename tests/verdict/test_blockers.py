"""Every blocker: clean, one break, two breaks in one attempt, the same break in two attempts, and its pair one attempt apart."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pytest

from countermark.evidence.cut import STAGES, Stage
from countermark.evidence.members import Read
from countermark.run.attempts import InfrastructureRetry, RequestedReexecution
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown
from countermark.verdict import fold as room
from countermark.verdict.kinds import (
    AttemptWithoutExecutionClaim,
    Blocked,
    Blocker,
    ContradictoryTerminals,
    Converged,
    EffectiveManifestDiverges,
    EvidenceOnRefusedDispatch,
    InProgress,
    LiveProcessAfterTerminal,
    SeveralCandidates,
    SeveralExecutions,
    SeveralLiveProcesses,
    SeveralOutputs,
    SharedLocation,
    SuccessWithoutOutput,
)
from tests.faults import planted, proven_by
from tests.verdict.scenes import (
    Scene,
    Try,
    changed,
    checkpoint,
    concluded,
    ended,
    failed,
    key,
    manifest,
    number_of,
    output,
    plus,
    process,
    unidentified,
)

STARTED = Dispatched("started")
TRIES = (Try(1, STARTED), Try(2, STARTED, RequestedReexecution("again")))
#: Two attempts of one run, both completed as they should.
ENDED = Scene(
    TRIES,
    terminals={"supervisor": (ended(1), ended(2))},
    processes={"local": (process(1, "dead"), process(2, "dead"))},
    outputs={"local": (output(1), output(2))},
    manifests={"local": (manifest(1), manifest(2))},
)
#: Two attempts of one run, both under way.
RUNNING = Scene(TRIES, processes={"local": (process(1), process(2))}, manifests={"local": (manifest(1), manifest(2))})
FIRST = "n1 boot b1 pid namespace 4026531836 pid 100 started at tick 7"
OTHER = "n1 boot b1 pid namespace 4026531836 pid 200 started at tick 7"


def blockers(scene: Scene) -> frozenset[Blocker]:
    verdict = concluded(scene).verdict
    found = tuple(verdict.blockers) if isinstance(verdict, Blocked) else ()
    assert len(found) == len(set(found)), "a blocker is reported once"
    return frozenset(found)


def without(axis: Any, number: int) -> Any:
    return {name: tuple(one for one in given if number_of(one.attempt) != number) for name, given in axis.items()}


def controlled(scene: Scene, number: int, made: Callable[[Try], Try]) -> Scene:
    return changed(scene, tries=tuple(made(one) if one.number == number else one for one in scene.tries))


def traces(scene: Scene, number: int) -> tuple[Stage, ...]:
    def seen(stage: Stage) -> bool:
        return any(number_of(one.attempt) == number for given in scene.axis(stage).values() for one in given)

    return tuple(stage for stage in STAGES[:5] if seen(stage))


@dataclass(frozen=True)
class Break:
    """One thing that goes wrong with an attempt: what it touches, what it makes of a scene, and the blocker that is right then."""

    touches: str
    make: Callable[[Scene, int], Scene]
    blocker: Callable[[Scene, int], Blocker]


ON_ENDED = {
    "terminals disagree": Break(
        "terminals",
        lambda scene, n: changed(scene, terminals=plus(scene.terminals, failed(n, "launcher"))),
        lambda scene, n: ContradictoryTerminals(key(n), ("launcher: failed with exit code 1", "supervisor: succeeded")),
    ),
    "alive after its terminal": Break(
        "state",
        lambda scene, n: changed(scene, processes=plus(without(scene.processes, n), process(n, "alive"))),
        lambda scene, n: LiveProcessAfterTerminal(key(n)),
    ),
    "started twice": Break(
        "executions",
        lambda scene, n: changed(scene, processes=plus(scene.processes, process(n, "dead", pid=200))),
        lambda scene, n: SeveralExecutions(key(n), (FIRST, OTHER)),
    ),
    "no output": Break(
        "outputs",
        lambda scene, n: changed(scene, outputs=without(scene.outputs, n)),
        lambda scene, n: SuccessWithoutOutput(key(n)),
    ),
    "two outputs": Break(
        "outputs",
        lambda scene, n: changed(scene, outputs=plus(scene.outputs, output(n, "e", f"/store/{n}/other"))),
        lambda scene, n: SeveralOutputs(key(n), ("sha256:" + "d" * 64, "sha256:" + "e" * 64)),
    ),
    "another manifest": Break(
        "manifests",
        lambda scene, n: changed(
            scene, manifests=plus(without(scene.manifests, n), manifest(n, rank=Read("8", "artifact"), seed=Read("18", "live_object")))
        ),
        lambda scene, n: EffectiveManifestDiverges(key(n), ("seed: 17 → 18 (trainer)", "rank: 4 → 8 (trainer)")),
    ),
    "nobody claimed it": Break(
        "control",
        lambda scene, n: controlled(scene, n, lambda one: replace(one, result="claimed", claimed=False)),
        lambda scene, n: AttemptWithoutExecutionClaim(key(n)),
    ),
    "its dispatch was refused": Break(
        "control",
        lambda scene, n: controlled(scene, n, lambda one: replace(one, result=DispatchRefused("no room"))),
        lambda scene, n: EvidenceOnRefusedDispatch(key(n), traces(scene, n)),
    ),
}
SINGLE = [(name, number) for name in ON_ENDED for number in (1, 2)]
PAIRS = [(a, b) for a, b in combinations(ON_ENDED, 2) if ON_ENDED[a].touches != ON_ENDED[b].touches and "started twice" not in (a, b)]
#: The break that adds an execution, after the one that changes the state of the first.
PAIRS += [(a, "started twice") for a in ON_ENDED if a != "started twice"]


def broken(*breaks: tuple[str, int]) -> tuple[Scene, frozenset[Blocker]]:
    scene = ENDED
    for name, number in breaks:
        scene = ON_ENDED[name].make(scene, number)
    return scene, frozenset(ON_ENDED[name].blocker(scene, number) for name, number in breaks)


judge = room._judge


def nothing_judged() -> Any:
    return planted(room, "_judge", lambda fold, standing: None)()


@contextmanager
def first_wins() -> Iterator[None]:
    """Of each attempt the first blocker alone is reported."""

    def judged(fold: room.Fold, standing: Any) -> None:
        before = len(fold.blockers)
        judge(fold, standing)
        del fold.blockers[before + 1 :]

    with planted(room, "_judge", judged)():
        yield


@contextmanager
def first_attempt_wins() -> Iterator[None]:
    """Once an attempt is blocked, no other one is looked at."""

    def judged(fold: room.Fold, standing: Any) -> None:
        if not fold.blockers:
            judge(fold, standing)

    with planted(room, "_judge", judged)():
        yield


def test_the_clean_scenes_have_no_blocker() -> None:
    assert isinstance(concluded(ENDED).verdict, SeveralCandidates)
    assert isinstance(concluded(RUNNING).verdict, InProgress)


@proven_by(nothing_judged)
@pytest.mark.parametrize(("name", "number"), SINGLE)
def test_one_break_is_exactly_its_blocker(name: str, number: int) -> None:
    scene, expected = broken((name, number))
    assert blockers(scene) == expected


@proven_by(first_wins)
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_breaks_in_one_attempt_are_both_reported(one: str, other: str) -> None:
    scene, expected = broken((one, 1), (other, 1))
    assert len(expected) == 2
    assert blockers(scene) == expected


@proven_by(first_attempt_wins)
@pytest.mark.parametrize(("one", "other"), [(a, b) for a in ON_ENDED for b in ON_ENDED])
def test_a_break_in_each_of_two_attempts_is_reported_for_both(one: str, other: str) -> None:
    scene, expected = broken((one, 1), (other, 2))
    assert len(expected) == 2
    assert blockers(scene) == expected


@proven_by(first_wins)
def test_everything_that_can_go_wrong_with_one_attempt_at_once() -> None:
    names = [name for name in ON_ENDED if name not in ("no output", "nobody claimed it")]
    scene, expected = broken(*((name, 1) for name in names))
    assert blockers(scene) == expected
    assert len(expected) == len(names)


# ----------------------------------------------------------------------------------------- several processes, and places


@proven_by(nothing_judged)
def test_two_live_processes_of_one_attempt() -> None:
    scene = changed(RUNNING, processes=plus(RUNNING.processes, process(1, pid=200)))
    assert blockers(scene) == {SeveralLiveProcesses(key(1), (FIRST, OTHER))}


def test_two_live_processes_and_a_dead_one_are_two_blockers() -> None:
    scene = changed(RUNNING, processes=plus(RUNNING.processes, process(1, pid=200), process(1, "dead", pid=300)))
    third = OTHER.replace("200", "300")
    assert blockers(scene) == {SeveralLiveProcesses(key(1), (FIRST, OTHER)), SeveralExecutions(key(1), (FIRST, OTHER, third))}


def test_two_live_processes_of_two_attempts_are_two_attempts_in_progress() -> None:
    verdict = concluded(RUNNING).verdict
    assert isinstance(verdict, InProgress)
    assert set(verdict.attempts) == {key(1), key(2)}


@pytest.mark.parametrize("state", ["alive", "settling", "dead"])
def test_an_execution_without_identity_may_be_the_one_that_is_known(state: Any) -> None:
    """The lock is held and the receipt was not there yet for one source; the other one read it a moment later."""
    assert blockers(changed(RUNNING, processes=plus(RUNNING.processes, unidentified(1, state)))) == frozenset()


def test_one_execution_seen_by_two_sources_is_one() -> None:
    assert blockers(changed(RUNNING, processes={**RUNNING.processes, "scheduler": (process(1),)})) == frozenset()


def blind_to(field: str) -> Any:
    """Executions are told apart by everything but this."""
    real = room.process_blockers

    def judged(standing: Any) -> Any:
        seen = standing.processes
        alike = [replace(one, execution=replace(one.execution, **{field: getattr(seen[0].execution, field)})) for one in seen]
        return real(replace(standing, processes=alike))

    fault = planted(room, "process_blockers", judged)
    fault.__name__ = f"blind to the {field}"
    return fault


ELSE = {"host": "n2", "boot_id": "b0", "pid_namespace": "4026532000", "pid": 99, "start_ticks": 8}


@proven_by(*map(blind_to, ELSE))
def test_a_process_is_told_by_all_of_its_identity_and_never_by_its_pid_alone() -> None:
    one = process(1)
    assert one.execution is not None
    for field, value in ELSE.items():
        other = replace(one, execution=replace(one.execution, **{field: value}))  # type: ignore[arg-type]
        for state, several in (("alive", SeveralLiveProcesses), ("dead", SeveralExecutions)):
            found = blockers(changed(RUNNING, processes={"local": (one, replace(other, state=state), process(2))}))
            assert [type(blocker) for blocker in found] == [several], (field, state)


def unshared() -> Any:
    return planted(room, "_shared_locations", lambda found: ())()


@proven_by(unshared)
@pytest.mark.parametrize("kinds", [("outputs", "outputs"), ("checkpoints", "checkpoints"), ("outputs", "checkpoints")])
def test_two_attempts_that_wrote_one_place(kinds: tuple[str, str]) -> None:
    def at_one_place(scene: Scene, kind: str, number: int) -> Scene:
        if kind == "outputs":
            return changed(scene, outputs=plus(without(scene.outputs, number), output(number, path="/shared")))
        return changed(scene, checkpoints=plus(scene.checkpoints, checkpoint(number, path="/shared")))

    scene = at_one_place(at_one_place(ENDED, kinds[0], 1), kinds[1], 2)
    assert blockers(scene) == {SharedLocation("/shared", (key(1), key(2)))}


def test_one_attempt_may_be_seen_at_one_place_by_two_sources() -> None:
    scene = changed(ENDED, outputs={**ENDED.outputs, "scheduler": (output(1),)}, checkpoints={"local": (checkpoint(1), checkpoint(1))})
    assert blockers(scene) == frozenset()


# --------------------------------------------------------------------------------------------- the pairs, one attempt apart

HISTORY = (Try(1, STARTED), Try(2, STARTED, InfrastructureRetry(key(1))))


def test_fail_then_succeed_is_history_and_no_contradiction() -> None:
    scene = changed(ENDED, tries=HISTORY, terminals={"supervisor": (failed(1), ended(2))}, outputs={"local": (output(2),)})
    verdict = concluded(scene).verdict
    assert isinstance(verdict, Converged)
    assert verdict.candidate.attempt == key(2)


def test_a_process_of_the_next_attempt_is_no_process_after_a_terminal() -> None:
    scene = changed(
        ENDED, terminals={"supervisor": (ended(1),)}, processes={"local": (process(1, "dead"), process(2))}, outputs={"local": (output(1),)}
    )
    verdict = concluded(scene).verdict
    assert isinstance(verdict, InProgress)
    assert tuple(verdict.attempts) == (key(2),)


def test_executions_of_two_attempts_are_no_several_executions() -> None:
    assert blockers(changed(RUNNING, processes={"local": (process(1, "dead"), process(2, pid=200))})) == frozenset()


def test_an_output_of_another_attempt_does_not_stand_in() -> None:
    scene = changed(ENDED, outputs={"local": (output(2),)})
    assert blockers(scene) == {SuccessWithoutOutput(key(1))}
    assert blockers(changed(scene, tries=HISTORY, terminals={"supervisor": (failed(1), ended(2))})) == frozenset()


def checkpoints_stand_in() -> Any:
    """Who left a checkpoint is not asked for an output."""
    real = room.ordered_blockers
    return planted(
        room, "ordered_blockers", lambda standing, evidence, whole: real(standing, evidence, whole and not standing.checkpoints)
    )()


@proven_by(checkpoints_stand_in)
def test_a_checkpoint_is_never_an_output() -> None:
    seen = plus(ENDED.checkpoints, checkpoint(1), checkpoint(2))
    assert blockers(changed(ENDED, checkpoints=seen)) == frozenset()
    assert blockers(changed(ENDED, checkpoints=seen, outputs=without(ENDED.outputs, 1))) == {SuccessWithoutOutput(key(1))}


def test_outputs_of_two_attempts_may_differ() -> None:
    verdict = concluded(changed(ENDED, outputs={"local": (output(1, "d"), output(2, "e"))})).verdict
    assert isinstance(verdict, SeveralCandidates)
    assert not verdict.equal_weights


def test_two_outputs_of_one_digest_are_one_output() -> None:
    assert blockers(changed(ENDED, outputs=plus(ENDED.outputs, output(1, path="/store/1/copy")))) == frozenset()


def test_traces_of_the_next_attempt_are_none_of_a_refused_one() -> None:
    refused = Try(1, DispatchRefused("no room"))
    scene = Scene((refused, HISTORY[1]), processes={"local": (process(2),)})
    assert isinstance(concluded(scene).verdict, InProgress)


@pytest.mark.parametrize("result", [STARTED, DispatchUnknown("timed out")])
def test_a_launcher_that_started_it_once_does_not_refuse_it(result: Any) -> None:
    assert blockers(controlled(ENDED, 1, lambda one: replace(one, result=result))) == frozenset()


@pytest.mark.parametrize("how", ["live_object", "file_hash", "artifact", "passed_through"])
def test_a_difference_is_one_however_it_was_read(how: Any) -> None:
    scene = changed(ENDED, manifests={"local": (manifest(1, seed=Read("18", how)), manifest(2))})
    assert blockers(scene) == {EffectiveManifestDiverges(key(1), ("seed: 17 → 18 (trainer)",))}


def test_an_artifact_that_disagrees_with_the_trainer_is_named_with_its_source() -> None:
    """The trainer's word agrees; what lies on the disk does not."""
    scene = changed(
        ENDED, manifests=plus(ENDED.manifests, manifest(1, "adapter_config.json", rank=Read("8", "artifact"), seed=Read("18", "artifact")))
    )
    assert blockers(scene) == {
        EffectiveManifestDiverges(key(1), ("seed: 17 → 18 (adapter_config.json)", "rank: 4 → 8 (adapter_config.json)"))
    }
