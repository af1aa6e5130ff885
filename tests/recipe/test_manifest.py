"""The roster is the manifest's fields, differences are a population, and what is derived is derived exactly."""

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe import (
    ENTRIES,
    ROSTER,
    CoordinateMissing,
    CoordinateUnknown,
    CoordinateUnreadable,
    Difference,
    Manifest,
    differing,
    manifest_from_spellings,
    spellings,
    values_of,
)
from countermark.recipe import manifest as manifest_module
from countermark.recipe.manifest import Dora, Lora, LowRank, manifest_of
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.recipe.examples import CLEAN, clean_manifest, clean_spellings
from tests.recipe.perturbations import PERTURBATIONS
from tests.recipe.values import any_value

NAMES = (
    "base_artifact", "tokenization", "dataset", "data_order", "seed", "method", "target_modules", "rank", "scaling", "dropout", "optimizer",
    "weight_decay", "learning_rate", "lr_schedule", "warmup_steps", "total_steps", "max_grad_norm", "numeric_format", "sequence_length",
    "packing", "loss_mask", "micro_batch", "gradient_accumulation",
)  # fmt: skip


def test_the_roster_has_the_23_coordinates_in_their_order() -> None:
    assert ROSTER == NAMES
    assert len(ROSTER) == 23


def test_the_roster_is_read_off_the_manifest() -> None:
    held = [field.name for field in fields(Manifest)] + [field.name for field in fields(LowRank) if field.name != "init"]
    assert sorted(held) == sorted(ROSTER)
    assert all(entry.says.meaning and entry.says.pin for entry in ENTRIES.values())
    assert manifest_module._roster() == ENTRIES


def test_a_coordinate_that_belongs_to_the_low_rank_arms_is_held_by_them() -> None:
    manifest = clean_manifest()
    assert isinstance(manifest.method, Lora)
    assert isinstance(clean_manifest(method="dora(init=gaussian)").method, Dora)
    assert {entry.name for entry in ENTRIES.values() if entry.field == "method"} == {
        "method", "target_modules", "rank", "scaling", "dropout",
    }  # fmt: skip


@given(st.fixed_dictionaries({name: any_value(name) for name in ROSTER}))
def test_any_manifest_comes_back_from_its_spellings(values: dict[str, object]) -> None:
    manifest = manifest_of(values)  # type: ignore[arg-type]
    assert values_of(manifest) == values
    assert tuple(spellings(manifest)) == ROSTER
    assert manifest_from_spellings(spellings(manifest)) == manifest


def first_only(real: object) -> object:
    return lambda a, b: real(a, b)[:1]  # type: ignore[operator]


@proven_by(planted(manifest_module, "differing", first_only(manifest_module.differing)))
def test_differences_are_the_whole_population_leaf_by_leaf() -> None:
    a = clean_manifest()
    b = clean_manifest(
        seed="18",
        optimizer="adamw_torch_fused(beta1=0.9,beta2=0.95,eps=1e-8)",
        method="dora(init=kaiming)",
        rank="8",
        data_order="sequential",
        max_grad_norm="off",
    )
    assert manifest_module.differing(a, b) == (
        Difference("data_order", "data_order", "shuffle(algorithm=torch_randperm_epoch,seed=3)", "sequential"),
        Difference("seed", "seed", "17", "18"),
        Difference("method", "method.adapter", "lora", "dora"),
        Difference("rank", "rank", "4", "8"),
        Difference("optimizer", "optimizer.implementation", "adamw_torch", "adamw_torch_fused"),
        Difference("optimizer", "optimizer.beta2", "0.999", "0.95"),
        Difference("max_grad_norm", "max_grad_norm", "1", "off"),
    )
    assert manifest_module.differing(a, clean_manifest()) == ()


@pytest.mark.parametrize("leaf", PERTURBATIONS)
def test_each_leaf_differs_alone(leaf: str) -> None:
    change = PERTURBATIONS[leaf]
    a, b = (clean_manifest(**{change.coordinate: text}) for text in (change.a, change.b))
    found = differing(a, b)
    assert {each.coordinate for each in found} == {change.coordinate}
    assert len(found) == 1
    assert found == tuple(Difference(each.coordinate, each.leaf, each.b, each.a) for each in differing(b, a))
    last = leaf.rpartition(".")[2]
    assert found[0].leaf in {change.coordinate, f"{change.coordinate}.{last}"}


def test_everything_wrong_with_stored_spellings_is_said_at_once() -> None:
    stored: dict[str, object] = clean_spellings(learning_rate="2e-4", seed="-1", packing="tight") | {"batch": "4"}
    del stored["rank"]
    stored["dropout"] = 50
    found = manifest_from_spellings(stored)
    assert isinstance(found, Refused)
    assert tuple(found.defects) == (
        CoordinateUnknown("batch"),
        CoordinateUnreadable("seed", "'-1'", "it must be from 0 to 18446744073709551615"),
        CoordinateMissing("rank"),
        CoordinateUnreadable("dropout", "50", "its canonical spelling is 50"),
        CoordinateUnreadable("learning_rate", "'2e-4'", "its canonical spelling is 0.0002"),
        CoordinateUnreadable("packing", "'tight'", "it must be one of none, concat_split, bfd, bfd_split, first_fit, flatten"),
    )


@pytest.mark.parametrize("name", ROSTER)
def test_each_missing_coordinate_is_named_alone(name: str) -> None:
    found = manifest_from_spellings({other: text for other, text in CLEAN.items() if other != name})
    assert isinstance(found, Refused)
    assert tuple(found.defects) == (CoordinateMissing(name),)


def test_what_follows_is_derived() -> None:
    manifest = clean_manifest(micro_batch="3", gradient_accumulation="4", total_steps="20")
    assert manifest.global_batch() == 12
    assert manifest.epochs(rows=37) == 20 / 4  # 13 batches of at most 3 rows, 4 steps of at most 4 batches
    assert clean_manifest(scaling="2", rank="8").alpha() == 16
    with pytest.raises(ValueError, match=r"^no alpha divided by the rank 10 is 0\.86639758852245$"):
        clean_manifest(scaling="0.86639758852245", rank="10").alpha()


@given(st.integers(1, 512), st.integers(1, 1024))
def test_alpha_gives_the_scaling_back_to_the_bit(rank: int, alpha: int) -> None:
    manifest = clean_manifest(rank=str(rank), scaling=_spelled(alpha / rank))
    assert manifest.alpha() / rank == alpha / rank


@given(st.integers(1, 512), st.floats(1e-6, 1e6))
def test_alpha_is_exact_or_refused(rank: int, scaling: float) -> None:
    manifest = clean_manifest(rank=str(rank), scaling=_spelled(scaling))
    try:
        assert manifest.alpha() / rank == scaling
    except ValueError:
        near = scaling * rank
        assert all(near * (1 + step * math.ulp(1.0)) / rank != scaling for step in range(-2, 3))


def _spelled(number: float) -> str:
    from countermark.recipe.numbers import PositiveReal

    real = PositiveReal.read(number)
    assert isinstance(real, PositiveReal)
    return real.spell()
