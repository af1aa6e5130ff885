"""Each coordinate reads what it spells, reads its forms from text and tables alike, and can hold no deferral."""

from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countermark.recipe import ENTRIES, ROSTER, Coordinate, coordinates, read_coordinate, values_of
from countermark.recipe import sums as sums_module
from countermark.recipe.coordinates import AdapterInit, ModuleNames, Off, SeededShuffle, Sequential, ShuffleAlgorithm
from countermark.recipe.deferrals import WORDS, defers
from countermark.recipe.manifest import leaves_of
from countermark.recipe.numbers import PositiveReal
from countermark.recipe.sums import Problem, own_leaves, read_kind, unwrapped
from countermark.values import U64, Unreadable
from tests.faults import planted, proven_by
from tests.recipe.examples import clean_manifest, clean_spellings
from tests.recipe.values import any_value

NAMED: st.SearchStrategy[tuple[str, Coordinate]] = st.sampled_from(ROSTER).flatmap(lambda name: st.tuples(st.just(name), any_value(name)))


@proven_by(planted(coordinates._Word, "spell", lambda self: self.word.upper()))
def test_reading_what_was_spelled_gives_the_same_value_back() -> None:
    @given(NAMED)
    @settings(max_examples=700)
    def same(named: tuple[str, Coordinate]) -> None:
        name, value = named
        assert read_coordinate(name, value.spell()) == value

    same()


@proven_by(planted(sums_module, "spell_form", lambda arm, leaves: arm))
def test_the_text_and_the_table_of_a_value_are_read_alike() -> None:
    @given(NAMED)
    @settings(max_examples=700)
    def alike(named: tuple[str, Coordinate]) -> None:
        name, value = named
        leaves = {leaf.partition(".")[2]: text for leaf, text in leaves_of(name, value).items()}
        table: object = leaves if "" not in leaves else leaves[""]
        assert read_coordinate(name, table) == read_coordinate(name, value.spell()) == value

    alike()


@given(NAMED)
def test_no_leaf_spells_what_would_end_it(named: tuple[str, Coordinate]) -> None:
    """The grammar ``arm(leaf=value,…)`` needs no escapes, because no leaf of any value holds a border."""
    for leaf, text in leaves_of(*named).items():
        assert "." not in leaf or not set(text) & set(",()="), (leaf, text)


DEFERRALS = [*sorted(WORDS), None, -1, *(word.upper() for word in sorted(WORDS)), " auto ", "main", "HEAD", "v1.0", "all-linear"]


@pytest.mark.parametrize("name", ROSTER)
def test_nothing_that_defers_is_a_value(name: str) -> None:
    readable = {raw for raw in DEFERRALS if not isinstance(read_coordinate(name, raw), Unreadable)}
    # ``none`` says that rows are not packed, and a module may be called whatever no shorthand is.
    modules = {"tbd", "TBD", "main", "HEAD", "v1.0", "same", "inherit", "SAME", "INHERIT"}
    assert readable == {"packing": {"none"}, "target_modules": modules}.get(name, set())


@pytest.mark.parametrize("name", ROSTER)
def test_an_arm_and_its_leaves_hold_no_deferral_either(name: str) -> None:
    for arm in ENTRIES[name].kind.arms:
        for leaf in own_leaves(arm):
            others = dict.fromkeys(own_leaves(arm), "1")
            for raw in DEFERRALS:
                table = {ENTRIES[name].kind.key: arm.arm, **others, leaf: raw}
                assert isinstance(read_coordinate(name, table), Unreadable), (arm, leaf, raw)


def test_dropout_is_a_rate_in_thousandths() -> None:
    assert [isinstance(read_coordinate("dropout", raw), Unreadable) for raw in (0, 1000, 1001, -1)] == [False, False, True, True]
    assert read_coordinate("dropout", "0.05") == read_coordinate("dropout", 50)
    for raw in ("0.0125", 1.0, "1.0", True, "fifty"):
        assert isinstance(read_coordinate("dropout", raw), Unreadable), raw


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("seed", 2**64),
        ("seed", 1.0),
        ("seed", True),
        ("rank", 0),
        ("rank", "four"),
        ("learning_rate", 0),
        ("learning_rate", "1e-4x"),
        ("weight_decay", "-0.1"),
        ("warmup_steps", 0.1),
        ("total_steps", 0),
        ("max_grad_norm", 0),
        ("max_grad_norm", False),
        ("max_grad_norm", "Off"),
        ("scaling", "inf"),
        ("scaling", 0),
        ("numeric_format", "bf16"),
        ("numeric_format", "FP32"),
        ("packing", True),
        ("loss_mask", ""),
        ("base_artifact", "sha256:" + "G" * 64),
        ("base_artifact", "wr1:" + "a" * 64),
        ("base_artifact", "sha256:" + "a" * 63),
        ("base_artifact", "meta-llama/Llama-3"),
        ("data_order", "shuffle"),
        ("data_order", "shuffle(seed=3)"),
        ("data_order", "sequential(seed=3)"),
        ("data_order", "shuffle(algorithm=torch_randperm_epoch,seed=3,seed=3)"),
        ("data_order", "shuffle(algorithm=torch_randperm_epoch,seed=3"),
        ("data_order", {"algorithm": "torch_randperm_epoch", "seed": 3}),
        ("data_order", {"order": "shuffle", "algorithm": "torch_randperm_epoch", "seed": 3, "buffer": 9}),
        ("data_order", 7),
        ("method", "full"),
        ("method", "lora"),
        ("method", "lora(init=eva)"),
        ("method", "lora(init=kaiming,rank=4)"),
        ("optimizer", "adamw_torch"),
        ("optimizer", "sgd(beta1=0.9,beta2=0.999,eps=1e-8)"),
        ("optimizer", "adamw_torch(beta1=1,beta2=0.999,eps=1e-8)"),
        ("lr_schedule", "greedy"),
        ("lr_schedule", "linear()extra"),
        ("lr_schedule", "cosine_with_restarts(cycles=1)"),
        ("lr_schedule", "cosine_with_min_lr(min_lr_rate=0)"),
        ("target_modules", []),
        ("target_modules", ""),
        ("target_modules", "q_proj,"),
        ("target_modules", ".*_proj"),
        ("target_modules", ["q_proj", 3]),
        ("target_modules", ["q_proj", "all-linear"]),
        ("target_modules", {"q_proj": 1}),
        ("target_modules", ["a" * 401]),
        ("target_modules", b"q_proj"),
        ("seed", "1" * 5000),
        ("data_order", "x" * 5000),
    ],
)
def test_what_is_no_value_is_refused_with_a_reason(name: str, raw: object) -> None:
    read = read_coordinate(name, raw)
    assert isinstance(read, Unreadable)
    assert read.why


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=4)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=6
)


@given(st.sampled_from(ROSTER), ANYTHING)
def test_reading_never_raises(name: str, raw: object) -> None:
    value = read_coordinate(name, raw)
    assert isinstance(value, Unreadable) or read_coordinate(name, value.spell()) == value


def test_a_product_says_every_reason_at_once() -> None:
    read = read_coordinate("optimizer", {"implementation": "adamw_torch", "beta1": "x", "beta2": 1, "momentum": 0.9})
    assert read == Unreadable(
        "momentum: 'momentum' does not belong to adamw_torch; beta1: it is not a finite decimal number; beta2: it must be less than 1; "
        "eps: it is missing"
    )


def test_what_belongs_to_no_form_is_a_mistake_and_left_open_by_nobody() -> None:
    schedules, norms, optimizers = (ENTRIES[name].kind for name in ("lr_schedule", "max_grad_norm", "optimizer"))
    stray, elsewhere = (Problem("x", f"'x' does not belong to {owner}", open=False) for owner in ("linear", "any form"))
    names = "constant, linear, cosine, cosine_with_restarts, cosine_with_min_lr, polynomial, inverse_sqrt, warmup_stable_decay"
    assert read_kind({"schedule": "linear", "x": 1}, schedules) == (stray,)
    assert read_kind({"schedule": "greedy", "x": 1}, schedules) == (Problem("", f"it must be one of {names}", open=False), elsewhere)
    assert read_kind("linear(x=1=1)", schedules) == (stray,)
    assert read_kind(7, schedules) == (Problem("", f"it must be one of {names}", open=False),)
    assert read_kind("x" * 4096, schedules) == (Problem("", f"it must be one of {names}", open=False),)
    assert read_kind("x" * 4097, schedules) == (Problem("", "it has over 4096 characters", open=False),)
    assert read_kind("linear(x)", schedules) == (Problem("", "inside the parentheses each leaf stands once, as leaf=value", open=False),)
    assert read_kind("x", norms) == (Problem("", "it is not a finite decimal number, or it must be one of off", open=False),)
    assert read_kind({norms.key: 1, "x": 1}, norms) == (Problem("", "it must be one of off", open=False), elsewhere)
    assert read_kind({"implementation": "adamw_torch", "beta1": "auto", "beta2": 1}, optimizers) == (
        Problem("beta1", "it is not a finite decimal number", open=True),
        Problem("beta2", "it must be less than 1", open=False),
        Problem("eps", "it is missing", open=True),
    )


def test_names_that_another_name_covers_are_left_out() -> None:
    read = read_coordinate("target_modules", {"q_proj", "model.layers.0.self_attn.q_proj", "self_attn.k_proj", "up-proj"})
    assert read == ModuleNames(("q_proj", "self_attn.k_proj", "up-proj"))
    assert read_coordinate("target_modules", "a b") == Unreadable(
        "'a b' is no module name, and a pattern stands for whatever the model has"
    )
    assert read_coordinate("target_modules", ["proj", "q_proj"]) == ModuleNames(("proj", "q_proj"))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (3, "it must be a list of module names"),
        ((), "it names no module"),
        (("q_proj", 3), "3 is no module name"),
        (("a" * 401,), "'" + "a" * 78 + "… is no module name"),
    ],
)
def test_what_names_no_modules_is_refused_by_what_it_is(raw: object, why: str) -> None:
    assert read_coordinate("target_modules", raw) == Unreadable(why)
    assert read_coordinate("target_modules", ["a" * 400]) == ModuleNames(("a" * 400,))


def test_a_note_that_says_nothing_of_a_coordinate_is_passed_over() -> None:
    assert unwrapped(Annotated[int, "a note"]) == (int, None)


@pytest.mark.parametrize("names", [(), ("b", "a"), ("a", "a"), ("a", "x.a"), ("all-linear",), ("a*",), ("a.",)])
def test_module_names_hold_their_rules_in_the_constructor(names: tuple[str, ...]) -> None:
    why = "module names are a sorted set of at least one dotted name, none of which another one ends"
    with pytest.raises(ValueError, match=f"^{why}$"):
        ModuleNames(names)


def test_forms_are_values() -> None:
    manifest = clean_manifest(data_order="sequential", max_grad_norm="off")
    assert (manifest.data_order, manifest.max_grad_norm) == (Sequential(), Off())
    assert clean_manifest().data_order == SeededShuffle(ShuffleAlgorithm("torch_randperm_epoch"), U64(3))
    assert read_coordinate("max_grad_norm", "1.0") == PositiveReal.read(1)
    assert values_of(manifest)["method"].spell() == "lora(init=kaiming)"
    with pytest.raises(ValueError, match=r"^AdapterInit: 'eva' is none of kaiming, gaussian, orthogonal$"):
        AdapterInit("eva")


def test_deferrals_are_told_from_mistakes() -> None:
    kinds = {name: ENTRIES[name].kind.plain[0] if ENTRIES[name].kind.plain else None for name in ROSTER}
    asked: list[tuple[str, object, bool]] = [
        ("base_artifact", "main", True),
        ("base_artifact", "org/model", True),
        ("base_artifact", "sha256:no", False),
        ("seed", "auto", True),
        ("seed", -1, True),
        ("seed", -2, False),
        ("seed", "x", False),
        ("seed", True, False),
        ("rank", None, True),
        ("target_modules", "all-linear", True),
        ("target_modules", ".*proj", True),
        ("target_modules", ("a", "b*"), True),
        ("target_modules", (), True),
        ("target_modules", ("a b",), False),
        ("target_modules", 3, False),
        ("packing", "auto", True),
        ("packing", "bdf", False),
        ("packing", "b*", False),
        ("seed", "4*", False),
        ("target_modules", "a b", False),
        ("target_modules", ("a b", "Auto"), True),
        ("data_order", "random", True),
        ("data_order", "shufle", False),
        ("lr_schedule", True, False),
    ]
    assert [(name, raw, defers(kinds[name], raw)) for name, raw, _ in asked] == asked


def test_the_example_is_canonical() -> None:
    assert {name: value.spell() for name, value in values_of(clean_manifest()).items()} == clean_spellings()
