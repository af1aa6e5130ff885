"""Observations resolve wholly or are refused wholly: every open axis, every bad value and every contradiction at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from importlib import import_module

import pytest

from countermark.recipe import (
    ENTRIES,
    ROSTER,
    AxisUnresolved,
    CoordinateRefused,
    Layer,
    Observation,
    Observations,
    ObservationsContradict,
    Receipt,
    Resolution,
    UnknownField,
    observed,
    project,
    resolve,
    spellings,
)
from countermark.recipe.resolve import ResolveDefect
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.recipe.examples import CLEAN, clean_manifest, clean_observations, clean_spellings

resolve_module = import_module("countermark.recipe.resolve")


def said(*pairs: tuple[str, object], source: str = "--set", kind: str = "authored") -> Observations:
    """A layer of observations."""
    found = tuple(Observation(axis, raw, Receipt(axis, source, 0, axis, "tests")) for axis, raw in pairs)
    return Observations((Layer("measured" if kind == "measured" else "authored", found),))


def defects(observations: Observations) -> tuple[ResolveDefect, ...]:
    found = resolve(observations)
    return tuple(found.defects) if isinstance(found, Refused) else ()


def test_a_fully_pinned_recipe_resolves() -> None:
    resolution = resolve(clean_observations())
    assert isinstance(resolution, Resolution)
    assert resolution.manifest == clean_manifest()
    assert resolution.receipts == tuple(Receipt(name, "example", 0, name, "tests") for name in ROSTER)
    assert resolution.replaced == ()


@contextmanager
def first_defect_only() -> Iterator[None]:
    real = resolve_module.project
    with planted(resolve_module, "project", lambda given: replace(found := real(given), defects=found.defects[:1]))():
        yield


@proven_by(first_defect_only)
def test_all_axes_of_an_empty_recipe_are_named_with_what_would_pin_them() -> None:
    assert defects(Observations(())) == tuple(AxisUnresolved(name, name, "", ENTRIES[name].says.pin) for name in ROSTER)


@proven_by(first_defect_only)
def test_several_open_axes_are_all_named_with_what_stood_there() -> None:
    open_axes: dict[str, object] = {
        "seed": -1,
        "base_artifact": "org/model",
        "target_modules": "all-linear",
        "numeric_format": "auto",
        "rank": None,
    }
    found = defects(clean_observations().over(said(*open_axes.items())))
    shown = {"seed": "-1", "base_artifact": "org/model", "target_modules": "all-linear", "numeric_format": "auto", "rank": "null"}
    assert found == tuple(
        AxisUnresolved(name, name, shown[name], ENTRIES[name].says.pin, 0, "--set") for name in ROSTER if name in open_axes
    )


@pytest.mark.parametrize("axis", ROSTER)
def test_each_axis_left_out_is_named_alone(axis: str) -> None:
    rest = {name: text for name, text in CLEAN.items() if name != axis}
    assert defects(observed(rest, "r.toml", "tests")) == (AxisUnresolved(axis, axis, "", ENTRIES[axis].says.pin),)


def test_a_missing_leaf_names_the_axis_and_the_leaf() -> None:
    found = defects(clean_observations(optimizer="adamw_torch(beta1=0.9)", data_order="shuffle(seed=auto)"))
    assert found == (
        AxisUnresolved("data_order", "data_order.algorithm", "", ENTRIES["data_order"].says.pin, 0, "example"),
        AxisUnresolved("data_order", "data_order", "auto", ENTRIES["data_order"].says.pin, 0, "example"),
        AxisUnresolved("optimizer", "optimizer.beta2", "", ENTRIES["optimizer"].says.pin, 0, "example"),
        AxisUnresolved("optimizer", "optimizer.eps", "", ENTRIES["optimizer"].says.pin, 0, "example"),
    )


def test_mistakes_and_open_axes_are_said_together_after_what_readers_found() -> None:
    unknown = UnknownField("sead", "17", 3, ("seed",))
    given = clean_observations(rank="four", packing="auto", optimizer="adamw_torch(beta1=2,beta2=0.9,eps=1e-8,mu=0)")
    assert defects(replace(given, defects=(unknown,))) == (
        unknown,
        CoordinateRefused("rank", "rank", 0, "four", "it is not a whole number", "example"),
        CoordinateRefused("optimizer", "optimizer", 0, "0", "'mu' does not belong to adamw_torch", "example"),
        CoordinateRefused("optimizer", "optimizer", 0, "2", "it must be less than 1", "example"),
        AxisUnresolved("packing", "packing", "auto", ENTRIES["packing"].says.pin, 0, "example"),
    )


def test_a_stronger_layer_replaces_and_the_receipts_say_which_did() -> None:
    resolution = resolve(clean_observations().over(said(("seed", "18"), ("optimizer.beta1", 0.95))))
    assert isinstance(resolution, Resolution)
    assert spellings(resolution.manifest) == clean_spellings(seed="18", optimizer="adamw_torch(beta1=0.95,beta2=0.999,eps=1e-8)")
    by_axis = {receipt.axis: receipt.source for receipt in resolution.receipts}
    assert by_axis["seed"] == by_axis["optimizer.beta1"] == "--set"
    assert by_axis["rank"] == by_axis["optimizer"] == "example"
    assert [(receipt.axis, receipt.source) for receipt in resolution.replaced] == [("seed", "example"), ("optimizer", "example")]


def test_a_whole_coordinate_replaces_its_leaves_and_a_leaf_replaces_one() -> None:
    base = clean_observations(lr_schedule="cosine_with_restarts(cycles=3)")
    assert isinstance(resolve(base.over(said(("lr_schedule", "linear")))), Resolution)
    assert defects(base.over(said(("lr_schedule.schedule", "linear")))) == (
        CoordinateRefused("lr_schedule", "lr_schedule", 0, "3", "'cycles' does not belong to linear", "example"),
    )
    chosen = resolve(clean_observations().over(said(("optimizer.implementation", "adamw_torch_fused"))))
    assert isinstance(chosen, Resolution)
    assert chosen.manifest == clean_manifest(optimizer="adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)")


def test_a_stronger_layer_mends_a_mistake_and_can_make_one() -> None:
    broken = clean_observations(data_order="shuffle(seed=1,seed=2)")
    assert len(defects(broken)) == 1
    assert isinstance(resolve(broken.over(said(("data_order", "sequential")))), Resolution)
    assert defects(clean_observations().over(said(("seed", "auto")))) == (
        AxisUnresolved("seed", "seed", "auto", ENTRIES["seed"].says.pin, 0, "--set"),
    )


@proven_by(planted(resolve_module, "_same", lambda *_: True))
def test_one_layer_that_says_two_things_contradicts_itself() -> None:
    assert defects(clean_observations().over(said(("seed", "18"), ("seed", "19"), ("optimizer.beta1", 0.9), ("optimizer.beta1", 0.8)))) == (
        ObservationsContradict("seed", ("seed", "seed"), ("18", "19")),
        ObservationsContradict("optimizer", ("optimizer.beta1", "optimizer.beta1"), ("0.9", "0.8")),
    )
    twice = said(("learning_rate", "2e-4"), ("learning_rate", 0.0002), ("target_modules", ["b", "a"]), ("target_modules", "a,b"))
    assert isinstance(resolve(clean_observations().over(twice)), Resolution)
    leaf = said(("optimizer.beta1", "0.9"), ("optimizer.beta1", 0.9))
    assert isinstance(resolve(clean_observations().over(leaf)), Resolution)
    assert defects(clean_observations().over(said(("seed", 1), ("seed", True)))) == (
        ObservationsContradict("seed", ("seed", "seed"), ("1", "true")),
    )


def test_inside_a_layer_a_leaf_is_held_against_the_whole_wherever_it_stands() -> None:
    pairs: list[tuple[str, object]] = [("optimizer", "adamw_torch(beta1=0.9,beta2=0.9,eps=1e-8)"), ("optimizer.beta1", 0.8)]
    for given in (pairs, pairs[::-1]):
        assert defects(clean_observations().over(said(*given))) == (
            ObservationsContradict("optimizer", ("optimizer", "optimizer.beta1"), ("0.9", "0.8")),
        )


def test_what_cannot_be_read_contradicts_only_what_stands_otherwise() -> None:
    refused = CoordinateRefused("seed", "seed", 0, "x", "it is not a whole number", "--set")
    assert defects(clean_observations().over(said(("seed", "x"), ("seed", "x")))) == (refused,)
    assert defects(clean_observations().over(said(("seed", "x"), ("seed", "y")))) == (
        ObservationsContradict("seed", ("seed", "seed"), ("x", "y")),
    )
    stray = CoordinateRefused("optimizer", "optimizer.mu", 0, "1", "'mu' does not belong to adamw_torch", "--set")
    assert defects(clean_observations().over(said(("optimizer.mu", 1), ("optimizer.mu", 1)))) == (stray,)
    assert defects(clean_observations().over(said(("optimizer.mu", 1), ("optimizer.mu", 2)))) == (
        ObservationsContradict("optimizer", ("optimizer.mu", "optimizer.mu"), ("1", "2")),
    )


@pytest.mark.parametrize("kind", ["authored", "measured"])
def test_every_field_that_cannot_be_taken_apart_is_named(kind: str) -> None:
    whole = said(("data_order", "a(seed=1,seed=2)"), ("data_order", "b(seed)"), kind=kind)
    why = "inside the parentheses each leaf stands once, as leaf=value"
    assert defects(clean_observations().over(whole)) == tuple(
        CoordinateRefused("data_order", "data_order", 0, found, why, "--set") for found in ("a(seed=1,seed=2)", "b(seed)")
    )


@proven_by(planted(resolve_module, "_measure", resolve_module._author))
def test_what_is_measured_fills_what_is_open_and_contradicts_what_differs() -> None:
    ours, theirs = "sha256:" + "d" * 64, "sha256:" + "e" * 64
    measured = said(("dataset", theirs), ("base_artifact", "sha256:" + "b" * 64), source="measured", kind="measured")
    assert defects(clean_observations().over(measured)) == (ObservationsContradict("dataset", ("dataset", "dataset"), (ours, theirs)),)
    open_axis = clean_observations(dataset="data/topics.jsonl")
    resolution = resolve(open_axis.over(measured))
    assert isinstance(resolution, Resolution)
    assert spellings(resolution.manifest)["dataset"] == theirs
    assert {receipt.axis: receipt.source for receipt in resolution.receipts}["dataset"] == "measured"
    assert {receipt.axis: receipt.source for receipt in resolution.receipts}["base_artifact"] == "example"


def test_a_measured_layer_counts_alike_wherever_it_lies() -> None:
    measured = said(("dataset", "sha256:" + "e" * 64), source="measured", kind="measured")
    pinned, opened = clean_observations(), clean_observations(dataset="auto")
    assert defects(measured.over(pinned)) == defects(pinned.over(measured)) != ()
    assert resolve(measured.over(opened)) == resolve(opened.over(measured))


def test_a_measured_leaf_fills_a_product_that_lacks_it() -> None:
    measured = said(("optimizer.implementation", "adamw_torch"), ("optimizer.eps", 1e-8), source="measured", kind="measured")
    assert isinstance(resolve(clean_observations(optimizer="adamw_torch(beta1=0.9,beta2=0.999)").over(measured)), Resolution)
    assert isinstance(resolve(clean_observations().over(measured)), Resolution)
    alone = observed({name: text for name, text in CLEAN.items() if name != "optimizer"}, "example", "tests")
    assert defects(alone.over(said(("optimizer.eps", 1e-8)))) == (
        AxisUnresolved("optimizer", "optimizer.implementation", "", ENTRIES["optimizer"].says.pin, 0, "--set"),
    )
    other = said(("optimizer.implementation", "adamw_torch_fused"), source="measured", kind="measured")
    assert defects(clean_observations().over(other)) == (
        ObservationsContradict("optimizer", ("optimizer", "optimizer.implementation"), ("adamw_torch", "adamw_torch_fused")),
    )


def test_what_a_reader_knows_to_be_deferred_is_open_whatever_it_looks_like() -> None:
    receipt = Receipt("micro_batch", "r.toml", 9, "trainer.auto_find_batch_size", "tests")
    deferred = Observations((Layer("authored", (Observation("micro_batch", True, receipt, deferred=True),)),))
    assert defects(clean_observations().over(deferred)) == (
        AxisUnresolved("micro_batch", "trainer.auto_find_batch_size", "true", ENTRIES["micro_batch"].says.pin, 9, "r.toml"),
    )
    leaf = Observations((Layer("authored", (Observation("optimizer.eps", 1e-8, receipt, deferred=True),)),))
    assert [defect.axis for defect in defects(clean_observations().over(leaf)) if isinstance(defect, AxisUnresolved)] == ["optimizer"]


def test_what_stood_there_is_shown_without_anything_that_could_break_a_line() -> None:
    for raw, shown in [
        ("a\nb", "'a\\nb'"),
        ("x" * 200, "'" + "x" * 78 + "…"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "'" + "x" * 78 + "…"),
        (10**5000, "a whole number of 16610 bits"),
        (2**512, "a whole number of 513 bits"),
        (1 - 2**512, str(1 - 2**512)[:79] + "…"),
        (Decimal("0." + "1" * 90), "0." + "1" * 78),
        ("", "''"),
        ([1, 2], "[1, 2]"),
    ]:
        (found,) = defects(clean_observations().over(said(("seed", raw))))
        assert isinstance(found, CoordinateRefused | AxisUnresolved)
        assert found.found == shown


def test_a_projection_says_what_can_be_read_of_what_cannot_be_resolved() -> None:
    found = project(clean_observations(seed="auto", rank="x"))
    assert found.spellings() == {name: text for name, text in CLEAN.items() if name not in ("seed", "rank")}
    assert {getattr(defect, "axis", "") for defect in found.defects} == {"seed", "rank"}


def test_a_refusal_holds_each_defect_once() -> None:
    twice = UnknownField("sead", "17", 3, ("seed",))
    assert resolve(replace(clean_observations(), defects=(twice, twice))) == Refused(NonEmpty(twice))
