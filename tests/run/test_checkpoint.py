"""Admission from readbacks alone: seals, every defect alone and beside another, and what a person can vouch for."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from countermark.run import checkpoint
from countermark.run.attempts import CheckpointIdentity
from countermark.run.checkpoint import (
    COMPONENTS,
    AdmittedCheckpoint,
    Atomic,
    AttemptNotMember,
    CheckpointAbsent,
    CheckpointDefect,
    CheckpointNotThere,
    CheckpointReadback,
    Component,
    ComponentAbsent,
    ComponentChanging,
    ComponentDigestMismatch,
    ComponentForeign,
    ComponentMissing,
    ComponentRead,
    ComponentReading,
    ComponentStepMismatch,
    ComponentUnread,
    ComponentUnreadable,
    DataPositionMismatch,
    Divergence,
    FileReading,
    Incomplete,
    ManifestDiverges,
    Publication,
    PublicationIncomplete,
    PublicationUnobserved,
    SoundCheckpoint,
    StepWitness,
    Unobserved,
    WeightsOnlyCheckpoint,
    admit_checkpoint,
    admit_weights_only,
    component_digest,
    leaf_spelling,
    sound_checkpoint,
)
from countermark.run.rates import RatePoint
from countermark.values import NonEmpty, Refused, Sha256
from tests.faults import planted, proven_by
from tests.recipe.examples import clean_manifest, clean_spellings

NONCE = "a" * 32


def file(name: str, letter: str = "1") -> FileReading:
    return FileReading(name, Sha256(letter * 64), 10)


def whole(component: Component, step: int = 4) -> ComponentRead:
    files = (file(f"{component}.bin"),)
    steps = () if component in {Component.MODEL_WEIGHTS, Component.RNG_STATE} else (StepWitness("somewhere", step),)
    return ComponentRead(files, steps, component_digest(files))


def clean(**changes: Any) -> CheckpointReadback:
    """A checkpoint that nothing speaks against, with changes."""
    given: dict[str, Any] = {
        "path": "/p/step-4",
        "layout": "transformers-peft",
        "step": 4,
        "components": {component: whole(component) for component in COMPONENTS},
        "marker": Atomic("renamed"),
        "attempt": NONCE,
        "declared": clean_spellings(),
        "model_shapes": ((2, 3), (3, 2)),
        "optimizer_shapes": ((2, 3), (3, 2)),
        "optimizer_parameters": 2,
        "micro_batches": 8,
    }
    return CheckpointReadback(**given | changes)


def with_component(reading: ComponentReading, component: Component = Component.OPTIMIZER_STATE, **changes: Any) -> CheckpointReadback:
    return clean(components=clean().components | {component: reading}, **changes)


def defects(found: CheckpointReadback, members: frozenset[str] = frozenset({NONCE}), **given: Any) -> Counter[CheckpointDefect]:
    answer = admit_checkpoint(found, clean_manifest(), members, **given)
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


def test_a_clean_readback_is_admitted() -> None:
    admitted = admit_checkpoint(clean(), clean_manifest(), frozenset({NONCE}))
    components, digest = {component: whole(component).digest for component in COMPONENTS}, clean().digest
    assert digest is not None
    assert admitted == AdmittedCheckpoint(
        "/p/step-4", "transformers-peft", 4, NONCE, components, digest, vouched=False, seal=checkpoint._SEAL
    )
    assert admitted.identity == CheckpointIdentity(4, digest)


# -------------------------------------------------------------------------------------------------- one break, two breaks

PART = Component.OPTIMIZER_STATE
BREAKS: dict[str, tuple[dict[str, Any], list[CheckpointDefect]]] = {
    "weights of other bytes": (
        {"components": {Component.MODEL_WEIGHTS: ComponentRead((file("x"),), (), Sha256("9" * 64))}},
        [ComponentDigestMismatch(Component.MODEL_WEIGHTS)],
    ),
    "no generators": (
        {"components": {Component.RNG_STATE: ComponentAbsent(("rng_state.pth",))}},
        [ComponentMissing(Component.RNG_STATE), PublicationIncomplete(("rng_state is missing",))],
    ),
    "a broken scheduler": (
        {"components": {Component.SCHEDULER_STATE: ComponentUnreadable(("cut", "damaged"))}},
        [
            ComponentUnread(Component.SCHEDULER_STATE, "cut"),
            ComponentUnread(Component.SCHEDULER_STATE, "damaged"),
            PublicationIncomplete(("scheduler_state is unreadable",)),
        ],
    ),
    "a position of another step": (
        {"components": {Component.DATA_POSITION: whole(Component.DATA_POSITION, 8)}},
        [ComponentStepMismatch(Component.DATA_POSITION, 8), PublicationIncomplete(("data_position is of step 8, not 4",))],
    ),
    "an optimizer of other tensors": (
        {"optimizer_parameters": 3},
        [ComponentForeign(PART, "it steps 3 tensors and the weights hold 2")],
    ),
    "a position in steps": ({"micro_batches": 4}, [DataPositionMismatch(8, 4)]),
    "an unobserved publication": ({"marker": Unobserved(("in place",))}, [PublicationUnobserved(("in place",))]),
    "another attempt": ({"attempt": "b" * 32}, [AttemptNotMember("b" * 32)]),
    "another seed": (
        {"declared": clean_spellings(seed="18")},
        [ManifestDiverges((Divergence("seed", "17", "18", "its manifest"),))],
    ),
}


def broken(*names: str) -> tuple[CheckpointReadback, Counter[CheckpointDefect]]:
    """A readback with these breaks, and the defects that they make together: incompleteness is said once, for all reasons."""
    changes: dict[str, Any] = {}
    components = dict(clean().components)
    wanted: list[CheckpointDefect] = []
    whys: dict[str, None] = {}
    for name in names:
        change, found = BREAKS[name]
        components |= change.get("components", {})
        changes |= {key: value for key, value in change.items() if key != "components"}
        wanted += [defect for defect in found if not isinstance(defect, PublicationIncomplete)]
        whys |= dict.fromkeys(why for defect in found if isinstance(defect, PublicationIncomplete) for why in defect.whys)
    if "a position of another step" in names:
        # How long an epoch is comes from there.
        wanted = [defect for defect in wanted if not isinstance(defect, DataPositionMismatch)]
    if whys:
        order = {str(component): at for at, component in enumerate(COMPONENTS)}
        wanted = [defect for defect in wanted if not isinstance(defect, PublicationUnobserved)]
        wanted.append(PublicationIncomplete(tuple(sorted(whys, key=lambda why: order[why.split()[0]]))))
    return clean(components=components, **changes), Counter(wanted)


@pytest.mark.parametrize("name", BREAKS)
def test_one_break_is_exactly_its_defects(name: str) -> None:
    found, wanted = broken(name)
    assert defects(found) == wanted


class FirstWins:
    """``NonEmpty`` that forgets all but the first."""

    of = staticmethod(lambda items: NonEmpty(first[0]) if (first := list(items)[:1]) else None)


@proven_by(planted(checkpoint, "NonEmpty", FirstWins))
@pytest.mark.parametrize("names", list(combinations(BREAKS, 2)), ids=" and ".join)
def test_two_breaks_are_both_named(names: tuple[str, str]) -> None:
    found, wanted = broken(*names)
    assert defects(found) == wanted


@proven_by(planted(checkpoint, "NonEmpty", FirstWins))
def test_all_breaks_at_once_are_all_named() -> None:
    found, wanted = broken(*BREAKS)
    assert defects(found) == wanted and len(wanted) == 9


#: What is asked of a checkpoint only where a work is to go on from it.
OF_A_WORK = DataPositionMismatch | AttemptNotMember | ManifestDiverges


@proven_by(planted(checkpoint, "NonEmpty", FirstWins))
def test_what_is_whole_in_itself_is_told_whichever_work_it_belongs_to() -> None:
    for names in (*((name,) for name in BREAKS), *combinations(BREAKS, 2)):
        found, against = broken(*names)
        wanted = Counter({defect: times for defect, times in against.items() if not isinstance(defect, OF_A_WORK)})
        answer = sound_checkpoint(found)
        assert (Counter(answer.defects) if isinstance(answer, Refused) else Counter()) == wanted, names


def test_a_whole_checkpoint_is_sound_and_says_whether_a_person_stood_in() -> None:
    digest, in_place = clean().digest, clean(marker=Unobserved(("in place",)))
    assert digest is not None
    foreign = clean(attempt="b" * 32, declared=clean_spellings(seed="18"), micro_batches=4)
    unseen = Refused(NonEmpty(PublicationUnobserved(("in place",))))
    for found, vouched, stands_in in ((clean(), False, False), (foreign, False, False), (clean(), True, False), (in_place, True, True)):
        answer = sound_checkpoint(found, vouched=vouched)
        assert answer == SoundCheckpoint("/p/step-4", 4, digest, stands_in, checkpoint._SEAL)
        assert isinstance(answer, SoundCheckpoint) and answer.vouched is stands_in
    assert sound_checkpoint(in_place) == unseen


def test_weights_are_asked_for_alone() -> None:
    absent, weights = ComponentAbsent(("x",)), whole(Component.MODEL_WEIGHTS).digest
    carrier = WeightsOnlyCheckpoint("/p/step-4", 4, weights, checkpoint._SEAL)
    torn = clean(components=dict.fromkeys(COMPONENTS, absent) | {Component.MODEL_WEIGHTS: whole(Component.MODEL_WEIGHTS)})
    assert admit_weights_only(clean()) == admit_weights_only(torn) == carrier
    without = with_component(absent, Component.MODEL_WEIGHTS)
    assert admit_weights_only(without) == Refused(NonEmpty(ComponentMissing(Component.MODEL_WEIGHTS)))


# ------------------------------------------------------------------------------------------------------------ the steps


def told(**steps: tuple[int, ...]) -> dict[Component, ComponentReading]:
    """The clean components, some of which tell these steps, one place each."""
    found: dict[Component, ComponentReading] = dict(clean().components)
    for name, told_steps in steps.items():
        component = Component(name)
        files = (file(f"{component}.bin"),)
        found[component] = ComponentRead(files, tuple(StepWitness(f"place {at}", step) for at, step in enumerate(told_steps)))
    return found


def other(component: str, *steps: int) -> list[CheckpointDefect]:
    return [ComponentStepMismatch(Component(component), step) for step in steps]


@pytest.mark.parametrize(
    ("scaled", "steps", "wanted"),
    [
        (False, {"optimizer_state": (3,), "scheduler_state": (3,)}, other("optimizer_state", 3) + other("scheduler_state", 3)),
        (True, {"optimizer_state": (3,), "scheduler_state": (3,)}, []),
        (True, {"optimizer_state": (4,), "scheduler_state": (4,)}, []),
        (True, {"optimizer_state": (5,), "scheduler_state": (5,)}, other("optimizer_state", 5) + other("scheduler_state", 5)),
        (True, {"optimizer_state": (3,), "scheduler_state": (2,)}, other("optimizer_state", 3) + other("scheduler_state", 2)),
        (True, {"optimizer_state": (3,), "scheduler_state": (4,)}, other("optimizer_state", 3)),
        (True, {"optimizer_state": (3,), "scheduler_state": ()}, other("optimizer_state", 3)),
        (True, {"optimizer_state": (3, 4), "scheduler_state": (3,)}, []),
        (True, {"optimizer_state": (3,), "scheduler_state": (3,), "data_position": (3,)}, other("data_position", 3)),
        (True, {"model_weights": (3,), "rng_state": (3,)}, other("model_weights", 3) + other("rng_state", 3)),
        (False, {"optimizer_state": (4, 6, 3, 6)}, other("optimizer_state", 3, 6)),
    ],
)
def test_every_step_that_is_told_is_the_checkpoints_unless_a_scaler_skipped_some_for_both(
    scaled: bool, steps: dict[str, tuple[int, ...]], wanted: list[CheckpointDefect]
) -> None:
    """A gradient scaler skips steps of the optimizer and of its scheduler together, never of one, of another component, or forwards."""
    found = defects(clean(components=told(**steps), scaled=scaled))
    assert Counter({one: times for one, times in found.items() if not isinstance(one, PublicationIncomplete)}) == Counter(wanted)
    assert sum(isinstance(one, PublicationIncomplete) for one in found) == bool(wanted)


def test_a_scaler_skipped_nothing_for_a_scheduler_that_was_not_read() -> None:
    found = clean(components=told(optimizer_state=(3,)) | {Component.SCHEDULER_STATE: ComponentAbsent(("scheduler.pt",))}, scaled=True)
    assert defects(found) == Counter(
        [
            ComponentStepMismatch(PART, 3),
            ComponentMissing(Component.SCHEDULER_STATE),
            PublicationIncomplete(("optimizer_state is of step 3, not 4", "scheduler_state is missing")),
        ]
    )


def foreign(why: str) -> list[CheckpointDefect]:
    return [ComponentForeign(PART, why)]


@pytest.mark.parametrize(
    ("model", "moments", "stepped", "wanted"),
    [
        (((2, 3), (3, 2)), ((3, 2), (2, 3)), 2, []),
        (((2, 3), (3, 2)), ((2, 3),), 2, []),
        (((2, 3), (3, 2)), (), 1, foreign("it steps 1 tensors and the weights hold 2")),
        (((2, 3), (3, 2)), (), 3, foreign("it steps 3 tensors and the weights hold 2")),
        (((2, 3), (3, 2)), ((2, 3), (2, 3)), 2, foreign("it has tensors of shape [2, 3], which the weights have not")),
        (((2, 3), (3, 2)), ((7,), (2, 4)), 2, foreign("it has tensors of shape [2, 4], [7], which the weights have not")),
        (None, ((7,),), 1, []),
        (((2, 3),), ((7,),), None, []),
    ],
)
def test_an_optimizer_steps_just_the_tensors_that_the_weights_hold(model: Any, moments: Any, stepped: Any, wanted: list[Any]) -> None:
    """Moments may be missing, for they are made as a tensor is first stepped; a shape that occurs once is not matched twice."""
    assert defects(clean(model_shapes=model, optimizer_shapes=moments, optimizer_parameters=stepped)) == Counter(wanted)


def test_the_state_of_several_workers_is_named_for_each_component_that_has_one() -> None:
    several = replace(whole(PART), workers=2), replace(whole(Component.RNG_STATE), workers=8)
    found = clean(components=clean().components | {PART: several[0], Component.RNG_STATE: several[1]})
    assert defects(found) == Counter(
        [
            ComponentForeign(PART, "it is the state of 2 workers, and one alone cannot go on from it"),
            ComponentForeign(Component.RNG_STATE, "it is the state of 8 workers, and one alone cannot go on from it"),
        ]
    )


def test_a_rate_is_held_against_the_curve_that_is_asked_for() -> None:
    on, off = (RatePoint(4, 0.0002 * part, 0.0002).fact("scheduler.pt") for part in (16 / 18, 0.5 + 0.5 * math.cos(math.pi * 2 / 18)))
    assert defects(clean(facts=(on,))) == Counter()
    assert defects(clean(facts=(off,))) == Counter([ManifestDiverges((Divergence("lr_schedule", "linear", "cosine", "scheduler.pt"),))])


@pytest.mark.parametrize("members", [frozenset(), frozenset({"b" * 32, "c" * 32})])
def test_a_checkpoint_of_another_attempt_is_no_member_however_few_there_are(members: frozenset[str]) -> None:
    assert defects(clean(), members) == Counter([AttemptNotMember(NONCE)])
    assert defects(clean(attempt=None), members) == Counter(), "one that names nobody lies in an attempt's own folder"


def test_one_checkpoint_is_held_against_each_manifest_in_turn() -> None:
    asked = {seed: clean_manifest(seed=seed) for seed in ("17", "18", "19")}
    found = clean(declared=None, facts=(checkpoint.ArtifactFact("seed", "18", "trainer_state.json"),))
    for _ in range(2):
        admitted = [isinstance(admit_checkpoint(found, manifest, frozenset({NONCE})), AdmittedCheckpoint) for manifest in asked.values()]
        assert admitted == [False, True, False]


def test_what_a_manifest_does_not_speak_of_differs_and_artifacts_are_asked_beside_it() -> None:
    fact = checkpoint.ArtifactFact("seed", "19", "trainer_state.json")
    silent = {name: spelling for name, spelling in clean_spellings().items() if name not in ("rank", "seed")}
    wanted = (
        Divergence("seed", "17", "nothing", "its manifest"),
        Divergence("seed", "17", "19", "trainer_state.json"),
        Divergence("rank", "4", "nothing", "its manifest"),
    )
    assert defects(clean(declared=silent, facts=(fact,))) == Counter([ManifestDiverges(wanted)])
    assert defects(clean(declared=None, facts=(fact,))) == Counter([ManifestDiverges(wanted[1:2])])
    assert defects(clean(facts=(fact,))) == Counter([ManifestDiverges(wanted[1:2])])


# ---------------------------------------------------------------------------------------- the cases about data position


def diverging(found: CheckpointReadback, **changes: str) -> tuple[set[str], set[type]]:
    """The coordinates that diverge from the clean manifest with changes, and the kinds of all other defects."""
    answer = admit_checkpoint(found, clean_manifest(**changes), frozenset({NONCE}))
    against = tuple(answer.defects) if isinstance(answer, Refused) else ()
    coordinates = {name for one in against if isinstance(one, ManifestDiverges) for name in one.coordinates}
    return coordinates, {type(one) for one in against if not isinstance(one, ManifestDiverges)}


def test_o10_a_position_counted_in_steps_is_not_where_the_step_leads_to() -> None:
    declared = clean_spellings(gradient_accumulation="4")
    steps = {component: whole(component, 10) for component in COMPONENTS}
    found = clean(step=10, components=steps, micro_batches=10, declared=declared)
    answer = admit_checkpoint(found, clean_manifest(gradient_accumulation="4"), frozenset({NONCE}))
    assert isinstance(answer, Refused) and Counter(answer.defects) == Counter([DataPositionMismatch(40, 10)])


def test_an_epoch_that_ended_within_a_step_leads_to_another_position() -> None:
    """Three steps of four micro batches each end an epoch of ten."""
    steps = {component: whole(component, 3) for component in COMPONENTS}
    found = clean(step=3, components=steps, micro_batches=10, epoch=1.0, declared=clean_spellings(gradient_accumulation="4"))
    assert diverging(found, gradient_accumulation="4") == (set(), set())
    assert diverging(replace(found, epoch=None), gradient_accumulation="4") == (set(), {DataPositionMismatch})


@pytest.mark.parametrize(
    "reading", [ComponentAbsent(("x",)), ComponentUnreadable(("cut",)), ComponentChanging(("x",)), whole(Component.DATA_POSITION, 8)]
)
def test_a_position_is_not_counted_by_an_epoch_that_nobody_read(reading: ComponentReading) -> None:
    assert DataPositionMismatch not in diverging(with_component(reading, Component.DATA_POSITION, micro_batches=7))[1]


@proven_by(planted(checkpoint, "_accumulation", lambda readback: None))
def test_o11_another_accumulation_is_that_and_no_wrong_position_beside_it() -> None:
    found = clean(declared=clean_spellings(gradient_accumulation="4"), micro_batches=16)
    assert diverging(found) == ({"gradient_accumulation"}, set())
    assert diverging(replace(found, micro_batches=8)) == ({"gradient_accumulation"}, {DataPositionMismatch}), "its own step leads to 16"


@proven_by(planted(checkpoint, "accumulation_divisor", lambda step, epoch: 1))
def test_o11_an_epoch_count_alone_shows_another_accumulation() -> None:
    """Four steps that made 16 of 35 micro batches took four each, or some multiple."""
    silent = clean(declared=None, micro_batches=None, epoch=16 / 35)
    answer = admit_checkpoint(silent, clean_manifest(), frozenset({NONCE}))
    wanted = Divergence("gradient_accumulation", "2", "a multiple of 4", "the epoch count")
    assert isinstance(answer, Refused) and Counter(answer.defects) == Counter([ManifestDiverges((wanted,))])
    assert diverging(silent, gradient_accumulation="4") == diverging(silent, gradient_accumulation="8") == (set(), set())


def test_an_accumulation_that_is_declared_as_no_number_is_counted_by_the_one_that_is_asked_for() -> None:
    assert diverging(clean(declared=clean_spellings() | {"gradient_accumulation": "many"})) == ({"gradient_accumulation"}, set())


def test_a_component_of_another_step_and_of_other_bytes_is_named_as_both() -> None:
    reading = ComponentRead((file("x"),), (StepWitness("a place", 3),), Sha256("9" * 64))
    found = defects(with_component(reading))
    assert found == Counter(
        [ComponentStepMismatch(PART, 3), ComponentDigestMismatch(PART), PublicationIncomplete(("optimizer_state is of step 3, not 4",))]
    )


# ---------------------------------------------------------------------------------------------------------- publication


@pytest.mark.parametrize(
    ("marker", "vouched", "wanted"),
    [
        (Atomic("renamed"), False, []),
        (Unobserved(("in place",)), False, [PublicationUnobserved(("in place",))]),
        (Unobserved(("in place",)), True, []),
        (Incomplete(("in progress",)), False, [PublicationIncomplete(("in progress",))]),
        (Incomplete(("in progress",)), True, [PublicationIncomplete(("in progress",))]),
    ],
)
def test_a_person_vouches_for_what_nobody_saw_and_never_for_what_is_incomplete(
    marker: Publication, vouched: bool, wanted: list[CheckpointDefect]
) -> None:
    assert defects(clean(marker=marker), vouched=vouched) == Counter(wanted)


def test_vouching_is_recorded_only_where_it_stood_in() -> None:
    for marker, stands_in in ((Atomic("renamed"), False), (Unobserved(("in place",)), True)):
        admitted = admit_checkpoint(clean(marker=marker), clean_manifest(), frozenset({NONCE}), vouched=True)
        assert isinstance(admitted, AdmittedCheckpoint) and admitted.vouched is stands_in


def test_a_component_that_changes_unsettles_any_marker_but_incompleteness_goes_first() -> None:
    changing = with_component(ComponentChanging(("optimizer.pt",)))
    assert changing.publication == Unobserved(("optimizer.pt changed while it was read",))
    assert defects(changing, vouched=True) == Counter([ComponentUnread(PART, "optimizer.pt changed while it was read")])
    torn = replace(changing, components=changing.components | {Component.RNG_STATE: ComponentAbsent(("x",))})
    assert torn.publication == Incomplete(("rng_state is missing",))


def test_nothing_is_absent_and_says_so() -> None:
    for admit in (lambda found: admit_checkpoint(found, clean_manifest(), frozenset()), admit_weights_only, sound_checkpoint):
        assert admit(CheckpointNotThere("/p", "gone")) == Refused(NonEmpty(CheckpointAbsent("/p", "gone")))


# ---------------------------------------------------------------------------------------------------------------- seals


def test_nobody_else_mints_an_admitted_checkpoint() -> None:
    admitted = admit_checkpoint(clean(), clean_manifest(), frozenset({NONCE}))
    weights, sound = admit_weights_only(clean()), sound_checkpoint(clean())
    assert isinstance(admitted, AdmittedCheckpoint) and not isinstance(weights, Refused) and not isinstance(sound, Refused)
    with pytest.raises(ValueError, match=r"^an admitted checkpoint is minted by admit_checkpoint$"):
        replace(admitted, step=8, seal=object())
    with pytest.raises(ValueError, match=r"^a checkpoint for its weights is minted by admit_weights_only$"):
        replace(weights, step=8, seal=object())
    with pytest.raises(ValueError, match=r"^a sound checkpoint is minted by sound_checkpoint$"):
        replace(sound, step=8, seal=object())
    with pytest.raises((TypeError, ValueError)):
        replace(admitted, step=8)


# ---------------------------------------------------------------------------------------------------------------- a leaf


@pytest.mark.parametrize(
    ("spelling", "leaf", "found"),
    [
        ("17", "seed", "17"),
        ("adamw_torch(beta1=0.9,beta2=0.999,eps=1e-8)", "optimizer.beta2", "0.999"),
        ("adamw_torch(beta1=0.9,beta2=0.999,eps=1e-8)", "optimizer.eps", "1e-8"),
        ("adamw_torch(beta1=0.9)", "optimizer.eps", "nothing"),
        ("sequential", "data_order.seed", "nothing"),
        ("adamw_torch(beta1=0.9)", "optimizer.implementation", "adamw_torch"),
        ("sequential", "data_order.implementation", "sequential"),
    ],
)
def test_a_leaf_is_read_out_of_its_coordinates_text(spelling: str, leaf: str, found: str) -> None:
    assert leaf_spelling(spelling, leaf) == found
