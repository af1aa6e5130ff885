"""Values out of a trainer's files that no trainer writes: an answer, whatever they are."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.files.checkpoints import read_checkpoint
from countermark.files.layouts.reading import Whys
from countermark.files.layouts.states import (
    OptimizerSays,
    ScalerSays,
    SchedulerSays,
    generators_say,
    optimizer_says,
    scaler_says,
    scheduler_says,
)
from countermark.files.layouts.transformers import TrainerSays, trainer_says
from countermark.files.pickles import Call, Name, TensorStub
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.run.checkpoint import AdmittedCheckpoint, Component, ComponentRead, admit_checkpoint
from tests.files.folders import NONCE, WORK_KEY, checkpoint, group
from tests.files.torchfiles import program_file
from tests.recipe.examples import clean_manifest, clean_spellings

TWICE = "its groups list a tensor twice, or something else than a tensor"


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def says(value: object) -> OptimizerSays | Whys:
    return optimizer_says(value, lambda stub: 4, "optimizer.pt")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "it is no state of an optimizer"),
        ([], "it is no state of an optimizer"),
        ({"state": {}}, "it is no state of an optimizer"),
        ({"state": [], "param_groups": [{"params": [0]}]}, "it is no state of an optimizer"),
        (
            {"state": {}, "param_groups": [{"params": [0]}, {"params": [0]}]},
            TWICE,
        ),
        ({"state": {}, "param_groups": [{"params": [deep(5)]}]}, TWICE),
        ({"state": {3: {}}, "param_groups": [{"params": [0]}]}, "it keeps state for tensor 3, which is in none of its groups"),
        ({"state": {0: {"step": "4"}}, "param_groups": [{"params": [0]}]}, "the step of tensor 0 is no number of steps"),
        ({"state": {0: {"step": True}}, "param_groups": [{"params": [0]}]}, "the step of tensor 0 is no number of steps"),
    ],
)
def test_what_is_no_optimizer_says_why(value: object, why: str) -> None:
    assert says(value) == Whys((why,))


def test_an_optimizer_without_moments_still_counts_its_tensors() -> None:
    found = says({"state": {}, "param_groups": [{"params": [0, 1], "momentum": 0}]})
    assert found == OptimizerSays((), 2, (), ())


ADAM = {"betas": (0.9, 0.999)}


@pytest.mark.parametrize(
    ("state", "groups", "steps"),
    [
        ({}, [ADAM | {"params": [0]}], (0,)),
        ({}, [ADAM | {"params": [0], "step": 4}], (0,)),
        ({}, [ADAM | {"params": []}], ()),
        ({}, [{"params": [0], "momentum": 0.9}], ()),
        ({0: {}}, [ADAM | {"params": [0], "step": 4}], (4,)),
        ({0: {"step": 4}}, [ADAM | {"params": [0], "step": 0}], (4,)),
        ({0: {}, 1: {"step": 4}}, [ADAM | {"params": [0], "step": 0}, ADAM | {"params": [1]}], (4,)),
        ({0: {}, 1: {}}, [ADAM | {"params": [0], "step": 3}, ADAM | {"params": [1], "step": 4}], (3, 4)),
        ({0: {}}, [ADAM | {"params": [0], "step": "many"}], ()),
    ],
)
def test_the_step_is_the_tensors_or_the_groups_and_none_where_an_adam_keeps_nothing(
    state: dict[int, Any], groups: list[dict[str, Any]], steps: tuple[int, ...]
) -> None:
    found = says({"state": state, "param_groups": groups})
    assert isinstance(found, OptimizerSays) and found.steps == steps


@pytest.mark.parametrize(
    ("changes", "leaf", "spelling"),
    [
        ({"fused": None}, "optimizer.implementation", "adamw_torch"),
        ({"fused": True}, "optimizer.implementation", "adamw_torch_fused"),
        ({"amsgrad": True}, "optimizer", "one with amsgrad"),
        ({"maximize": True}, "optimizer", "one with maximize"),
        ({"decoupled_weight_decay": False}, "optimizer", "one whose weight decay is not decoupled"),
        ({"decoupled_weight_decay": True, "amsgrad": False, "maximize": False}, "optimizer.implementation", "adamw_torch"),
    ],
)
def test_what_kind_of_adam_it_is_is_a_fact(changes: dict[str, object], leaf: str, spelling: str) -> None:
    found = says({"state": {}, "param_groups": [group([0], **changes)]})
    assert isinstance(found, OptimizerSays)
    kinds = {fact.leaf: fact.spelling for fact in found.facts if fact.leaf in ("optimizer", "optimizer.implementation")}
    assert kinds == {"optimizer.implementation": "adamw_torch"} | {leaf: spelling}


def test_an_optimizer_without_betas_is_none_that_a_manifest_names() -> None:
    found = says({"state": {}, "param_groups": [{"params": [0, 1], "lr": 0.1, "momentum": 0.9}]})
    assert isinstance(found, OptimizerSays)
    assert [(fact.leaf, fact.spelling) for fact in found.facts] == [("optimizer", "one without betas and eps")]


def test_groups_that_disagree_are_all_facts() -> None:
    state = {"state": {}, "param_groups": [group([0]), group([1], initial_lr=0.5, betas=(0.5, 0.999))]}
    found = says(state)
    assert isinstance(found, OptimizerSays)
    counted = Counter(fact.leaf for fact in found.facts)
    assert counted["learning_rate"] == counted["optimizer.beta1"] == 2 and counted["optimizer.beta2"] == 1


def test_the_largest_weight_decay_counts_because_biases_get_none() -> None:
    found = says({"state": {}, "param_groups": [group([0], weight_decay=0.01), group([1], weight_decay=0.0)]})
    assert isinstance(found, OptimizerSays)
    assert [fact.spelling for fact in found.facts if fact.leaf == "weight_decay"] == ["0.01"]


NO_NUMBERS = [deep(100_000), 10**6000, float("nan"), "x" * 10_000, None, {"a": 1}, (), Call(Name("x"), ())]


@pytest.mark.parametrize("raw", NO_NUMBERS, ids=lambda raw: type(raw).__name__)
def test_a_fact_that_is_none_stands_as_it_was_found(raw: object) -> None:
    found = says({"state": {}, "param_groups": [group([0], initial_lr=raw, eps=raw, betas=(raw, raw))]})
    assert isinstance(found, OptimizerSays)
    leaves = {"learning_rate", "weight_decay", "optimizer.beta1", "optimizer.beta2", "optimizer.eps", "optimizer.implementation"}
    assert {fact.leaf for fact in found.facts} == leaves
    assert all(len(fact.spelling) < 100 for fact in found.facts)


def test_values_too_deep_to_be_written_out_are_read_from_a_file(tmp_path: Path) -> None:
    state = program_file(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")
    found = read_checkpoint(checkpoint(tmp_path, scheduler_pt=state))
    assert not isinstance(found.components[Component.SCHEDULER_STATE], ComponentRead)  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [None, {}, {"last_epoch": -1}, {"last_epoch": True}, {"last_epoch": 4.0}, {"last_epoch": 2**60}])
def test_what_is_no_scheduler_says_why(value: object) -> None:
    assert scheduler_says(value, "scheduler.pt") == Whys(("it is no state of a scheduler: it has no last_epoch",))


def test_a_scheduler_without_rates_is_one() -> None:
    assert scheduler_says({"last_epoch": 4}, "scheduler.pt") == SchedulerSays(4, ())
    assert scheduler_says({"last_epoch": 1, "num_bad_epochs": 0}, "scheduler.pt") == SchedulerSays(1, (), by_metric=True)
    chain = {"_schedulers": [{"last_epoch": 4}, {"last_epoch": 4}], "_last_lr": [0.1]}
    assert scheduler_says(chain, "scheduler.pt") == SchedulerSays(4, ())
    # One after another: they count apart, and it counts for all.
    assert scheduler_says({"_schedulers": [{"last_epoch": 1}, {"last_epoch": 3}], "last_epoch": 4}, "x") == SchedulerSays(4, ())


SCALER = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 0}


@pytest.mark.parametrize(
    ("changes", "steps", "skipped"),
    [
        ({}, 500, 16),
        ({"scale": 2.0**32}, 500, 0),
        ({"scale": 2.0**40}, 1999, 0),
        ({"scale": 2.0**32}, 4000, 2),
        ({"scale": 1.0}, 500, 32),
        ({"scale": 2.0**-10, "backoff_factor": 0.25}, 500, 21),
        ({"growth_interval": 1}, 500, 516),
    ],
)
def test_a_scaler_tells_how_many_steps_it_can_have_skipped(changes: dict[str, float], steps: int, skipped: int) -> None:
    found = scaler_says(SCALER | changes)
    assert isinstance(found, ScalerSays) and found.skips_max(steps) == skipped


def test_a_scaler_that_is_switched_off_skips_nothing() -> None:
    assert isinstance(found := scaler_says({}), ScalerSays) and found.skips_max(10**9) == 0


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"growth_factor": 2.0},
        *(SCALER | {"scale": raw} for raw in (0, -1.0, float("nan"), float("inf"), 10**400, True, "65536")),
        SCALER | {"backoff_factor": 1.0},
        SCALER | {"growth_factor": 0.5},
        SCALER | {"growth_interval": 0},
    ],
)
def test_what_is_no_scaler_says_so(value: object) -> None:
    assert scaler_says(value) == Whys(("it is no state of a gradient scaler",))


@pytest.mark.parametrize(
    "value",
    [None, {}, {"python": (3, (1,), None)}, {"python": (3, ("x",) * 625, None)}, {"numpy": ("MT19937",)}, {"cpu": 1}],
)
def test_what_holds_no_generator_names_all_three(value: object) -> None:
    assert len(generators_say(value)) == 3


@pytest.mark.parametrize(
    ("document", "whys"),
    [
        ({}, ("it has no global_step",)),
        ({"global_step": "4"}, ("it has no global_step",)),
        ({"global_step": -1, "epoch": "x"}, ("it has no global_step", "its epoch is no number")),
        ({"global_step": 4, "epoch": True}, ("its epoch is no number",)),
        ({"global_step": 4, "epoch": float("nan")}, ("its epoch is no number",)),
        ({"global_step": 4, "epoch": float("-inf")}, ("its epoch is no number",)),
        ({"global_step": 4, "epoch": 10**400}, ("its epoch is no number",)),
    ],
)
def test_what_is_no_trainer_state_names_every_reason(document: dict[str, Any], whys: tuple[str, ...]) -> None:
    assert trainer_says(document) == Whys(whys)


def test_a_trainer_state_without_an_epoch_is_one() -> None:
    assert trainer_says({"global_step": 4}) == TrainerSays(4, None, (), ())


Keys = st.text(max_size=2) | st.integers(0, 3)
Inert = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.builds(Name, st.just("n")),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(Keys, inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["state", "param_groups", "params", "last_epoch", "base_lrs", "python", "numpy", "cpu", "betas"]
Keyed = st.dictionaries(st.sampled_from(FIELDS), Inert)


@given(Inert | Keyed, Keyed)
def test_no_value_crashes_a_reader(value: Any, keyed: dict[str, Any]) -> None:
    optimizer_says(value, lambda stub: None, "optimizer.pt")
    optimizer_says({"state": {0: keyed}, "param_groups": [keyed | {"params": [0]}]}, lambda stub: None, "optimizer.pt")
    scheduler_says(value, "scheduler.pt")
    generators_say(value)
    scaler_says(value)
    scaler_says(keyed | {"scale": value})
    trainer_says(keyed | {"global_step": 1, "max_steps": value, "train_batch_size": value, "best_model_checkpoint": value})


def test_an_element_is_asked_for_only_of_tensors() -> None:
    asked: list[TensorStub] = []
    optimizer_says({"state": {0: {"step": 4}}, "param_groups": [{"params": [0]}]}, lambda stub: asked.append(stub) or 4, "optimizer.pt")
    assert asked == []


@given(st.data())
def test_any_change_to_any_byte_of_a_published_checkpoint_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    parent = tmp_path_factory.mktemp("p")
    answer = publish_checkpoint(checkpoint(parent), parent, step=4, attempt=NONCE, work_key=WORK_KEY, manifest=clean_spellings())
    assert isinstance(answer, PublishedCheckpoint)
    folder = Path(answer.path)
    file = data.draw(st.sampled_from(sorted(entry.name for entry in folder.iterdir() if entry.name != "countermark.json")))
    content = (folder / file).read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    flipped = content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    (folder / file).write_bytes({"flip": flipped, "cut": content[:at], "insert": content[:at] + b"x" + content[at:]}[change])
    assert not isinstance(admit_checkpoint(read_checkpoint(folder), clean_manifest(), frozenset({NONCE}), vouched=True), AdmittedCheckpoint)
