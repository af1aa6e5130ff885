"""``--set``: an axis, a leaf, a source or a trainer's setting, over everything that files say."""

import pytest

from countermark.recipe import (
    AxisUnresolved,
    CoordinateRefused,
    ObservationsContradict,
    Resolution,
    SettingRefused,
    UnknownField,
    UnsupportedSemanticField,
    resolve,
    spellings,
)
from countermark.recipe.formats.toml import read_settings, read_toml
from countermark.recipe.resolve import ResolveDefect
from countermark.recipe.text import Recipe, SetMalformed
from countermark.values import Refused
from tests.recipe.examples import clean_recipe_text, clean_spellings


def base() -> Recipe:
    found = read_toml(clean_recipe_text().encode(), "r.toml", "tests")
    assert isinstance(found, Recipe)
    return found


def with_set(*texts: str) -> Recipe:
    stronger = read_settings(texts, "tests")
    assert isinstance(stronger, Recipe)
    return base().over(stronger)


def defects(*texts: str) -> tuple[ResolveDefect, ...]:
    found = resolve(with_set(*texts).observations)
    return tuple(found.defects) if isinstance(found, Refused) else ()


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("seed=18", {"seed": "18"}),
        (" seed = 18 ", {"seed": "18"}),
        ("coordinates.seed=18", {"seed": "18"}),
        ("target_modules=k_proj, q_proj", {"target_modules": "k_proj,q_proj"}),
        ('target_modules=["q_proj", "k_proj"]', {"target_modules": "k_proj,q_proj"}),
        ("learning_rate=3e-4", {"learning_rate": "0.0003"}),
        ("optimizer.beta1=0.95", {"optimizer": "adamw_torch(beta1=0.95,beta2=0.999,eps=1e-8)"}),
        ("optimizer.implementation=adamw_torch_fused", {"optimizer": "adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)"}),
        ("optimizer=adamw_bnb_8bit(beta1=0,beta2=0,eps=0)", {"optimizer": "adamw_bnb_8bit(beta1=0,beta2=0,eps=0)"}),
        ('data_order={ order = "sequential" }', {"data_order": "sequential"}),
        ("max_grad_norm=off", {"max_grad_norm": "off"}),
        ('packing="bfd"', {"packing": "bfd"}),
        ("method=dora(init=gaussian)", {"method": "dora(init=gaussian)"}),
        ("trainer.save_steps=9", {}),
        ("sources.model=a=b", {}),
        ("name=another", {}),
    ],
)
def test_each_kind_of_argument(text: str, changes: dict[str, str]) -> None:
    resolution = resolve(with_set(text).observations)
    assert isinstance(resolution, Resolution)
    assert spellings(resolution.manifest) == clean_spellings(**changes)
    sources = {receipt.source for receipt in resolution.receipts}
    assert sources == ({"r.toml", "--set"} if changes else {"r.toml"})


def test_what_is_inert_is_set_too() -> None:
    recipe = with_set("sources.model=a=b", "sources.dataset_limit=5", "trainer.save_steps=9", "name=another")
    assert recipe.name == "another"
    assert recipe.trainer == {"save_steps": 9}
    assert {name: source.text for name, source in recipe.sources.items()} == {
        "model": "a=b",
        "tokenizer": "models/SmolLM2-135M",
        "dataset": "data/topics.jsonl",
        "dataset_limit": "5",
    }
    assert recipe.sources["model"].said.source == "--set"


def test_every_mistake_is_said_at_once() -> None:
    assert defects(
        "seed=19",
        "coordinates.seed=20",
        "rank=four",
        "packing=auto",
        "optimizer.mu=1",
        "rank.x=1",
        "sead=3",
        "trainer.workers=2",
        "trainer.neftune_noise_alpha=5",
        "trainer.save_steps=no",
        "sources.modle=x",
        "name=\x07",
        "target_modules=" + "[" * 4000,
    ) == (
        UnknownField("optimizer.mu", "1", 0, ("optimizer.implementation", "optimizer.beta1", "optimizer.beta2", "optimizer.eps"), "--set"),
        UnknownField("rank.x", "1", 0, ("rank",), "--set"),
        UnknownField("sead", "3", 0, ("seed",), "--set"),
        UnsupportedSemanticField(
            "trainer.workers", "2", 0, "several workers reduce gradients in an order that no coordinate holds", "--set"
        ),
        UnsupportedSemanticField("trainer.neftune_noise_alpha", "5", 0, "noise is added to the embeddings", "--set"),
        SettingRefused("trainer.save_steps", 0, "no", "it is not a whole number", "--set"),
        UnknownField("sources.modle", "x", 0, ("model",), "--set"),
        SettingRefused("name", 0, "'\\x07'", "it must be a line of text", "--set"),
        ObservationsContradict("seed", ("seed", "seed"), ("19", "20")),
        AxisUnresolved(
            "target_modules",
            "target_modules",
            "'" + "[" * 78 + "…",
            'name them: target_modules = ["q_proj", "v_proj"]; what all-linear means is decided by a model',
            0,
            "--set",
        ),
        CoordinateRefused("rank", "rank", 0, "four", "it is not a whole number", "--set"),
        AxisUnresolved("packing", "packing", "auto", 'write it: packing = "none"', 0, "--set"),
    )  # fmt: skip


def test_arguments_that_set_nothing_are_all_named() -> None:
    found = read_settings(("seed", "=3", "rank=4", ""), "tests")
    assert isinstance(found, Refused)
    assert tuple(found.defects) == (
        SetMalformed("'seed'", "it must be AXIS=VALUE"),
        SetMalformed("'=3'", "it must be AXIS=VALUE"),
        SetMalformed("''", "it must be AXIS=VALUE"),
    )


def test_no_argument_changes_nothing() -> None:
    assert resolve(with_set().observations) == resolve(base().observations)
