"""What stays and what may go: only what is admitted counts, and nothing goes before its successor is admitted."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest

from countermark.run import retention
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    CheckpointAbsent,
    CheckpointNotThere,
    CheckpointReadback,
    Component,
    ComponentAbsent,
    ComponentMissing,
    Incomplete,
    PublicationIncomplete,
    SoundCheckpoint,
    admit_checkpoint,
    sound_checkpoint,
)
from countermark.run.retention import (
    AmongTheLast,
    BegunAt,
    Fate,
    Goes,
    Held,
    NotAdmitted,
    OnlyAdmitted,
    OnlyAdmittedCheckpoint,
    RetentionPlan,
    Surplus,
    Torn,
    plan_retention,
)
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.recipe.examples import clean_manifest
from tests.run.test_checkpoint import NONCE, clean, whole

OTHER_WORK: Final = "wk1:" + "f" * 64
TORN: Final = (ComponentMissing(Component.RNG_STATE), PublicationIncomplete(("rng_state is missing",)))


def readback(step: int, **changes: object) -> CheckpointReadback:
    """A clean checkpoint of a step, with changes."""
    components = {component: whole(component, step) for component in Component}
    return clean(**{"step": step, "path": f"/c/step-{step}", "components": components, "micro_batches": 2 * step, **changes})


def held(step: int, kind: str = "admitted", work: str | None = None, written: int | None = None) -> Held:
    """A checkpoint of a folder: ``admitted``, ``torn``, ``marked`` as in progress with nothing missing, ``sound`` or ``absent``."""
    name, at = f"step-{step}", step if written is None else written
    if kind == "absent":
        gone = CheckpointNotThere(f"/c/{name}", "nothing is there")
        return Held(name, step, gone, Refused(NonEmpty(CheckpointAbsent(gone.path, gone.why))), at, 0)
    found = readback(step) if work is None else readback(step, work_key=work)
    if kind == "torn":
        found = replace(found, components={**found.components, Component.RNG_STATE: ComponentAbsent(("rng_state.pth",))})
    if kind == "marked":
        found = replace(found, marker=Incomplete(("marked",)))
    members = frozenset({NONCE})
    answer = sound_checkpoint(found) if kind == "sound" else admit_checkpoint(found, clean_manifest(), members)
    assert isinstance(answer, {"admitted": AdmittedCheckpoint, "sound": SoundCheckpoint}.get(kind, Refused)), answer
    return Held(name, step, found, answer, at, 10)


def fates(plan: object) -> Mapping[str, Fate]:
    """What becomes of each by name, in the plan's order."""
    assert isinstance(plan, RetentionPlan), plan
    return {held.name: fate for held, fate in plan.fates}


def test_the_last_admitted_ones_stay_and_the_rest_go_oldest_first() -> None:
    plan = plan_retention([held(step) for step in (1000, 900, 50, 2000)], 2, {})
    assert list(fates(plan).items()) == [
        ("step-50", Surplus("step-900")),
        ("step-900", Surplus("step-1000")),
        ("step-1000", AmongTheLast(2)),
        ("step-2000", AmongTheLast(1)),
    ]
    assert isinstance(plan, RetentionPlan)
    assert [each.step for each in plan.going] == [50, 900] and [each.step for each in plan.counted] == [1000, 2000]
    assert plan.bytes == 20


@proven_by(planted(retention, "_unadmitted", lambda held, staying: AmongTheLast(1)))
@pytest.mark.parametrize("torn", [False, True])
def test_o5_a_torn_newer_one_takes_the_only_good_one_not_away(torn: bool) -> None:
    plan = plan_retention([held(4), held(8, "torn", written=99)], 1, {}, torn=torn)
    assert fates(plan) == {"step-4": OnlyAdmitted(), "step-8": NotAdmitted(TORN)}
    assert isinstance(plan, RetentionPlan) and plan.going == () and [each.step for each in plan.counted] == [4]


@pytest.mark.parametrize("torn", [False, True])
def test_o5_to_keep_none_is_refused_naming_the_only_admitted_one_of_each_computation(torn: bool) -> None:
    found = [held(4), held(8, "torn"), held(2), held(6, work=OTHER_WORK)]
    blocked = plan_retention(found, 0, {}, torn=torn)
    assert blocked == Refused(NonEmpty(OnlyAdmittedCheckpoint("/c/step-4"), (OnlyAdmittedCheckpoint("/c/step-6"),)))
    assert fates(plan_retention([held(8, "torn")], 0, {}, torn=torn)) == {"step-8": NotAdmitted(TORN)}


def test_each_computation_keeps_its_own() -> None:
    plan = plan_retention([held(2), held(4, work=OTHER_WORK), held(6), held(8, work=OTHER_WORK), held(10)], 2, {})
    assert fates(plan) == {
        "step-2": Surplus("step-6"),
        "step-4": AmongTheLast(2),
        "step-6": AmongTheLast(2),
        "step-8": AmongTheLast(1),
        "step-10": AmongTheLast(1),
    }


def test_what_is_not_admitted_neither_counts_nor_goes() -> None:
    found = [held(2), held(4, "sound"), held(6), held(8, "absent"), held(10, "torn"), held(12, "marked")]
    told = fates(plan_retention(found, 1, {}))
    assert told["step-2"] == Surplus("step-6") and told["step-6"] == AmongTheLast(1)
    assert told["step-4"] == NotAdmitted(())
    assert told["step-8"] == NotAdmitted((CheckpointAbsent("/c/step-8", "nothing is there"),))
    assert told["step-10"] == NotAdmitted(TORN)
    assert told["step-12"] == NotAdmitted((PublicationIncomplete(("marked",)),))


def test_where_an_attempt_begins_stays() -> None:
    found = [held(2), held(4), held(6)]
    begun = {each.answer.identity: "b" * 32 for each in found[:1] if isinstance(each.answer, AdmittedCheckpoint)}
    plan = plan_retention(found, 1, begun)
    assert fates(plan) == {"step-2": BegunAt("b" * 32), "step-4": Surplus("step-6"), "step-6": AmongTheLast(1)}
    assert isinstance(plan, RetentionPlan) and [each.step for each in plan.counted] == [2, 6]


def test_torn_ones_go_where_they_were_asked_for_and_are_older_in_step_and_in_time() -> None:
    found = [held(2, "torn"), held(3, "marked"), held(4, written=40), held(5, "torn", written=41), held(6, written=60), held(7, "torn")]
    found += [held(1, "torn", written=61), held(8, "absent"), held(0, "sound", written=0)]
    asked, unasked = fates(plan_retention(found, 2, {}, torn=True)), fates(plan_retention(found, 2, {}))
    assert {name for name, fate in asked.items() if isinstance(fate, Goes)} == {"step-2", "step-3", "step-5"}
    assert asked["step-2"] == Torn("step-4", TORN) and asked["step-5"] == Torn("step-6", TORN)
    assert asked["step-3"] == Torn("step-4", (PublicationIncomplete(("marked",)),))
    assert not [name for name, fate in unasked.items() if isinstance(fate, Goes)]
    equal = fates(plan_retention([held(4, "torn", written=9), held(5, written=9)], 1, {}, torn=True))
    assert equal == {"step-4": NotAdmitted(TORN), "step-5": OnlyAdmitted()}
    beside = replace(held(5, "torn", written=4), name="of the same step")
    assert fates(plan_retention([beside, held(5)], 1, {}, torn=True))["of the same step"] == NotAdmitted(TORN)
    # What rests on one that goes itself would be left with nothing: only those that stay count.
    assert fates(plan_retention([held(1, "torn", written=3), held(2, written=4), held(3, written=2)], 1, {}, torn=True)) == {
        "step-1": NotAdmitted(TORN),
        "step-2": Surplus("step-3"),
        "step-3": AmongTheLast(1),
    }


KINDS: Final = ("admitted", "torn", "marked", "sound", "absent")


def test_whatever_lies_there_the_newest_admitted_one_of_each_computation_stays() -> None:
    everything = [held(step, kind, work) for step, (kind, work) in enumerate([(k, w) for k in KINDS[:3] for w in (None, OTHER_WORK)])]
    everything += [held(10), held(11, "sound"), held(12, "absent"), held(13, work=OTHER_WORK)]
    for size in (1, 2, 3, 4):
        for found in combinations(everything, size):
            for keep in (1, 2):
                for torn in (False, True):
                    plan = plan_retention(found, keep, {}, torn=torn)
                    assert isinstance(plan, RetentionPlan)
                    for work in {each.computation for each in found}:
                        chain = [one for one in plan_order(found) if one.computation == work and isinstance(one.answer, AdmittedCheckpoint)]
                        left = [one for one in chain if one not in plan.going]
                        assert left == chain[-keep:]


def plan_order(found: tuple[Held, ...]) -> list[Held]:
    return sorted(found, key=lambda one: one.step)
