"""The project's own recipes: the clean example reads, and each way of breaking one is said with its line and field, all at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe import (
    ENTRIES,
    AxisUnresolved,
    CoordinateRefused,
    Resolution,
    SettingRefused,
    UnknownField,
    UnsupportedSemanticField,
    resolve,
    spellings,
)
from countermark.recipe.formats import toml
from countermark.recipe.formats.live_tables import LORA_CONFIG, SFT_CONFIG, TRAINING_ARGUMENTS
from countermark.recipe.formats.rules import Refuses
from countermark.recipe.resolve import ResolveDefect
from countermark.recipe.text import (
    DEPTH_MAX,
    RECIPE_BYTES_MAX,
    SOURCES,
    TRAINER_SETTINGS,
    Recipe,
    RecipeEmpty,
    RecipeFieldRepeated,
    RecipeMalformed,
    RecipeNotUtf8,
    RecipeOtherFormat,
    RecipeTextDefect,
    RecipeTooDeep,
    RecipeTooLarge,
)
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.recipe.examples import clean_manifest, clean_recipe_text, clean_spellings

FILE = "r.toml"


def read(text: str | bytes) -> Recipe:
    found = toml.read_toml(text.encode() if isinstance(text, str) else text, FILE, "tests")
    assert isinstance(found, Recipe), found
    return found


def refused(text: str | bytes) -> tuple[RecipeTextDefect, ...]:
    found = toml.read_toml(text.encode() if isinstance(text, str) else text, FILE, "tests")
    assert isinstance(found, Refused), found
    return tuple(found.defects)


def defects(text: str) -> tuple[ResolveDefect, ...]:
    found = resolve(read(text).observations)
    return tuple(found.defects) if isinstance(found, Refused) else ()


def with_lines(**replaced: str) -> str:
    """The clean text with the lines of some fields replaced (an empty text leaves the line empty)."""
    lines = clean_recipe_text().splitlines()
    for name, line in replaced.items():
        (at,) = [at for at, old in enumerate(lines) if old.startswith(f"{name} =")][:1]
        lines[at] = line
    return "\n".join(lines) + "\n"


def line_of(name: str) -> int:
    return next(at for at, line in enumerate(clean_recipe_text().splitlines(), 1) if line.startswith(f"{name} ="))


def test_the_clean_recipe_is_the_clean_manifest() -> None:
    recipe = read(clean_recipe_text())
    resolution = resolve(recipe.observations)
    assert isinstance(resolution, Resolution)
    assert resolution.manifest == clean_manifest()
    assert recipe.name == "topics-lora"
    assert {name: source.text for name, source in recipe.sources.items()} == {
        "model": "models/SmolLM2-135M",
        "tokenizer": "models/SmolLM2-135M",
        "dataset": "data/topics.jsonl",
    }
    assert recipe.trainer == {"save_steps": 5}


def test_every_receipt_names_the_line_that_said_it() -> None:
    resolution = resolve(read(clean_recipe_text()).observations)
    assert isinstance(resolution, Resolution)
    said = {receipt.axis.partition(".")[0]: (receipt.source, receipt.line, receipt.tool) for receipt in resolution.receipts}
    assert said == {name: (FILE, line_of(name), "tests") for name in ENTRIES}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": 'name = "renamed"'},
        {"model": 'model = "elsewhere"'},
        {"save_steps": 'save_steps = "50"\noutput_dir = "out"\nthreads = 1'},
        {"save_steps": "dataloader_workers = 4\nlogging_steps = 1\nkeep_checkpoints = 2"},
        {"learning_rate": 'learning_rate = "0.0002"'},
        {"learning_rate": "learning_rate = 0.000_2"},
        {"scaling": "scaling = 2"},
        {"seed": "seed = 0x11"},
        {"target_modules": 'target_modules = ["v_proj", "q_proj", "v_proj"]'},
        {"target_modules": 'target_modules = "q_proj,v_proj"'},
        {"optimizer": 'optimizer = "adamw_torch(beta1=0.9,beta2=0.999,eps=1e-8)"'},
        {"optimizer": 'optimizer.eps = 1e-8\noptimizer.implementation = "adamw_torch"\noptimizer.beta2 = 0.999\noptimizer.beta1 = 0.90'},
        {"method": 'method = { adapter = "lora", init = "kaiming" }'},
    ],
)
def test_what_is_inert_and_how_a_value_is_written_move_nothing(changes: dict[str, str]) -> None:
    resolution = resolve(read(with_lines(**changes)).observations)
    assert isinstance(resolution, Resolution)
    assert spellings(resolution.manifest) == clean_spellings()


def test_windows_line_ends_and_a_byte_order_mark_change_no_line() -> None:
    for text in (clean_recipe_text().replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + clean_recipe_text().encode()):
        resolution = resolve(read(text).observations)
        assert isinstance(resolution, Resolution)
        assert {receipt.line for receipt in resolution.receipts if receipt.axis == "rank"} == {line_of("rank")}


# ------------------------------------------------------------------------------------------------ text that is no recipe


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", RecipeEmpty(FILE)),
        ("  \n# only a comment\n\n", RecipeEmpty(FILE)),
        (b"countermark = 1\nname = '\xff\xfe'\n", RecipeNotUtf8(FILE, 2, 24)),
        (b"\xef\xbb\xbfa = 1\n\n\xc3(", RecipeNotUtf8(FILE, 3, 10)),
        (b"\x80\x02}q\x00.", RecipeNotUtf8(FILE, 1, 0)),
        ('{"learning_rate": 2e-4}', RecipeOtherFormat(FILE, "JSON")),
        ('[\n  {"a": 1}\n]\n', RecipeOtherFormat(FILE, "JSON")),
        ("# a comment\nbase_model: org/model\nlearning_rate: 2e-4\n", RecipeOtherFormat(FILE, "YAML")),
        ("---\n- a\n", RecipeOtherFormat(FILE, "YAML")),
        ("model:\n  _component_: torchtune\n", RecipeOtherFormat(FILE, "YAML")),
        ("<html>\n", RecipeOtherFormat(FILE, "XML or HTML")),
        ("import torch\nprint(1)\n", RecipeOtherFormat(FILE, "Python")),
        ("countermark = 1\nseed = \n", RecipeMalformed(FILE, 2, 8, "Invalid value")),
        ("countermark = 1\nname = 'a\n", RecipeMalformed(FILE, 2, 0, 'Expected "\'" at the end of the text')),
        ("a = " + "1" * 5000, RecipeMalformed(FILE, 1, 0, "a number is longer than any that is read")),
        ("a = " + "[" * 100_000, RecipeTooDeep(FILE, 1, DEPTH_MAX)),
        ("x = 1\na = " + "{b = " * 5000, RecipeTooDeep(FILE, 2, DEPTH_MAX)),
        ("\n\n" + ".".join("a" * 50_000) + " = 1", RecipeTooDeep(FILE, 3, DEPTH_MAX)),
        ("[" + ".".join("a" * 50_000) + "]", RecipeTooDeep(FILE, 1, DEPTH_MAX)),
    ],
)
def test_text_that_is_no_recipe_is_refused_with_its_place(text: str | bytes, found: RecipeTextDefect) -> None:
    assert refused(text) == (found,)


def test_a_large_text_is_refused_before_it_is_looked_at() -> None:
    assert refused(b"\xff" * 50_000_000) == (RecipeTooLarge(FILE, 50_000_000, RECIPE_BYTES_MAX),)
    largest = clean_recipe_text().encode()
    largest += b"#" * (RECIPE_BYTES_MAX - len(largest))
    assert isinstance(resolve(read(largest).observations), Resolution)
    assert refused(largest + b"#") == (RecipeTooLarge(FILE, RECIPE_BYTES_MAX + 1, RECIPE_BYTES_MAX),)


@contextmanager
def blind_to_repeats() -> Iterator[None]:
    real = toml.index_of_keys

    def blind(text: str, depth_max: int) -> object:
        index = real(text, depth_max)
        index.repeated.clear()
        return index

    with planted(toml, "index_of_keys", blind)():
        yield


@proven_by(blind_to_repeats)
def test_every_repeated_field_is_named_with_both_lines() -> None:
    text = clean_recipe_text() + '\n[coordinates]\nseed = 18\n\n[trainer]\nsave_steps = 6\n"save_steps" = 7\n'
    last = len(clean_recipe_text().splitlines())
    assert refused(text) == (
        RecipeFieldRepeated(FILE, "coordinates", last + 2, 4),
        RecipeFieldRepeated(FILE, "coordinates.seed", last + 3, line_of("seed")),
        RecipeFieldRepeated(FILE, "trainer", last + 5, last - 1),
        RecipeFieldRepeated(FILE, "trainer.save_steps", last + 6, last),
        RecipeFieldRepeated(FILE, "trainer.save_steps", last + 7, last),
    )
    inline = with_lines(optimizer='optimizer = { implementation = "adamw_torch", beta1 = 0.9, beta1 = 0.8 }')
    assert refused(inline) == (RecipeFieldRepeated(FILE, "coordinates.optimizer.beta1", line_of("optimizer"), line_of("optimizer")),)


# ---------------------------------------------------------------------------------------------------- single fields


@pytest.mark.parametrize(
    ("field", "line", "found"),
    [
        ("rank", 'rank = "four"', ("rank", "four", "it is not a whole number")),
        ("rank", "rank = 4.0", ("rank", "4.0", "it is not a whole number")),
        ("rank", "rank = true", ("rank", "true", "it is not a whole number")),
        ("rank", "rank = [4]", ("rank", "[4]", "it is not a whole number")),
        ("rank", "rank = { value = 4 }", ("rank", "{value = 4}", "it is not a whole number")),
        ("rank", "rank = 1979-05-27", ("rank", "1979-05-27", "it is not a whole number")),
        ("rank", "rank = 0", ("rank", "0", "it must be from 1 to 9223372036854775807")),
        ("rank", "rank = 0x" + "f" * 5000, ("rank", "a whole number of 20000 bits", "it is not a whole number")),
        ("learning_rate", "learning_rate = nan", ("learning_rate", "NaN", "it is not a finite decimal number")),
        ("learning_rate", "learning_rate = -2e-4", ("learning_rate", "-0.0002", "it must be greater than 0")),
        ("dropout", "dropout = 1001", ("dropout", "1001", "it must be from 0 to 1000")),
        ("dropout", "dropout = 0.0125", (
            "dropout", "0.0125",
            "it is no whole number of thousandths, and rounding it would name another computation",
        )),
        ("seed", "seed = 18446744073709551616", ("seed", "18446744073709551616", "it must be from 0 to 18446744073709551615")),
    ],
)  # fmt: skip
def test_one_bad_value_is_said_with_its_line_and_field(field: str, line: str, found: tuple[str, str, str]) -> None:
    axis, stood, why = found
    assert defects(with_lines(**{field: line})) == (CoordinateRefused(axis, f"coordinates.{field}", line_of(field), stood, why, FILE),)


@pytest.mark.parametrize(
    ("field", "line", "stood"),
    [
        ("seed", "seed = -1", "-1"),
        ("seed", 'seed = "auto"', "auto"),
        ("dataset", 'dataset = "data/topics.jsonl"', "data/topics.jsonl"),
        ("base_artifact", 'base_artifact = "main"', "main"),
        ("target_modules", 'target_modules = "all-linear"', "all-linear"),
        ("target_modules", 'target_modules = ".*_proj"', ".*_proj"),
        ("target_modules", "target_modules = []", "[]"),
        ("total_steps", 'total_steps = "auto"', "auto"),
        ("max_grad_norm", 'max_grad_norm = "none"', "none"),
        ("packing", 'packing = "default"', "default"),
        ("loss_mask", 'loss_mask = "null"', "null"),
        ("data_order", 'data_order = "random"', "random"),
    ],
)
def test_one_deferral_is_an_open_axis_with_its_line(field: str, line: str, stood: str) -> None:
    assert defects(with_lines(**{field: line})) == (
        AxisUnresolved(field, f"coordinates.{field}", stood, ENTRIES[field].says.pin, line_of(field), FILE),
    )


def test_fields_of_other_tools_and_unknown_ones_are_told_apart_and_found_at_once() -> None:
    text = with_lines(
        countermark="countermark = 2\nepochs = 3",
        name="name = 7",
        seed="seed = 17\nlearning_rte = 1\nlora_alpha = 16\nlabel_smoothing_factor = 0.1",
        model="model = ''\nmodle = 'x'",
        save_steps="save_steps = 0\nsave_step = 5\nneftune_noise_alpha = 5\nnum_processes = 2\nworkers = 1\nauto_find_batch_size = true",
    )
    noise, smooth = "noise is added to the embeddings", "the loss is taken against smoothed labels"
    assert defects(text) == (
        SettingRefused("countermark", 1, "2", "this version reads format 1", FILE),
        UnknownField("epochs", "3", 2, ("total_steps",), FILE),
        SettingRefused("name", 3, "7", "it must be a line of text", FILE),
        UnknownField("coordinates.learning_rte", "1", 11, ("learning_rate",), FILE),
        UnknownField("coordinates.lora_alpha", "16", 12, ("scaling",), FILE),
        UnsupportedSemanticField("coordinates.label_smoothing_factor", "0.1", 13, smooth, FILE),
        SettingRefused("sources.model", 34, "", "it must be a line of text", FILE),
        UnknownField("sources.modle", "x", 35, ("model",), FILE),
        SettingRefused("trainer.save_steps", 40, "0", "it must be from 1 to 9223372036854775807", FILE),
        UnknownField("trainer.save_step", "5", 41, ("save_steps",), FILE),
        UnsupportedSemanticField("trainer.neftune_noise_alpha", "5", 42, noise, FILE),
        UnsupportedSemanticField(
            "trainer.num_processes", "2", 43, "several workers reduce gradients in an order that no coordinate holds", FILE
        ),
        AxisUnresolved("micro_batch", "trainer.auto_find_batch_size", "true", ENTRIES["micro_batch"].says.pin, 45, FILE),
    )


REFUSED = sorted(
    {name for table in (TRAINING_ARGUMENTS, SFT_CONFIG, LORA_CONFIG) for name, rule in table.items() if isinstance(rule, Refuses)}
    | {"loraplus_lr_ratio", "early_stopping", "early_stopping_patience", "num_processes", "nnodes", "world_size"}
)


@pytest.mark.parametrize("field", REFUSED)
def test_each_field_that_changes_the_computation_elsewhere_is_refused_by_name(field: str) -> None:
    (found,) = defects(clean_recipe_text() + f"{field} = 8\n")
    assert isinstance(found, UnsupportedSemanticField)
    assert (found.field, found.found, found.line) == (f"trainer.{field}", "8", len(clean_recipe_text().splitlines()) + 1)
    assert found.why


def test_the_named_semantic_fields_are_among_the_refused() -> None:
    assert {
        "neftune_noise_alpha", "label_smoothing_factor", "loraplus_lr_ratio", "modules_to_save", "rank_pattern", "alpha_pattern",
        "early_stopping", "load_best_model_at_end", "trust_remote_code", "deepspeed", "fsdp", "num_processes",
    } <= set(REFUSED)  # fmt: skip


def test_tables_must_be_tables_and_a_version_must_stand_there() -> None:
    assert [each for each in defects("coordinates = 3\nsources = 'x'\n") if isinstance(each, SettingRefused)] == [
        SettingRefused("countermark", 0, "", "a recipe of this format says which version of it: countermark = 1", FILE),
        SettingRefused("coordinates", 1, "3", "[coordinates] must be a table", FILE),
        SettingRefused("sources", 2, "x", "[sources] must be a table", FILE),
    ]


def test_an_overlay_pins_what_the_recipe_leaves_open_and_says_so() -> None:
    recipe = read(with_lines(seed='seed = "auto"', name="", model=""))
    overlay = toml.read_toml(
        b'countermark = 1\nname = "pinned"\n[coordinates]\nseed = 17\noptimizer = { beta1 = 0.95 }\n'
        b'[sources]\nmodel = "m"\n[trainer]\nthreads = 1\n',
        "o.toml",
        "tests",
    )
    assert isinstance(overlay, Recipe)
    both = recipe.over(overlay)
    resolution = resolve(both.observations)
    assert isinstance(resolution, Resolution)
    assert spellings(resolution.manifest) == clean_spellings(optimizer="adamw_torch(beta1=0.95,beta2=0.999,eps=1e-8)")
    assert {receipt.axis: (receipt.source, receipt.line) for receipt in resolution.receipts}["seed"] == ("o.toml", 4)
    assert (both.name, both.sources["model"].said.source, dict(both.trainer)) == ("pinned", "o.toml", {"save_steps": 5, "threads": 1})


def test_the_tables_of_inert_fields_say_why() -> None:
    assert all(inert.reason for inert in (*SOURCES.values(), *TRAINER_SETTINGS.values()))
    assert set(TRAINER_SETTINGS) == {"output_dir", "save_steps", "keep_checkpoints", "logging_steps", "dataloader_workers", "threads"}


PIECES = st.sampled_from(
    ("countermark = 1\n", "[coordinates]\n", "[trainer]\n", "seed = ", "17\n", "optimizer = {", "}\n", "[", "]", "[[a]]\n", '"""', "'''",
     '"', "'", "\\", "#", "\n", "=", ",", ".", "a.b", "é", "\x00", "\r", "1e400", "0x", "nan\n", "1979-05-27", "{a = {b = ")
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=40)


@given(TEXTS | TEXTS.map(lambda text: clean_recipe_text() + text))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    found = toml.read_toml(text.encode("utf-8", "surrogatepass"), FILE, "tests")
    if isinstance(found, Recipe):
        resolve(found.observations)


def test_a_recipe_of_nothing_but_unknown_fields_is_answered_in_a_moment() -> None:
    text = "".join(f"learning_rat{at} = {at}\n" for at in range(40_000))
    assert len(text) < RECIPE_BYTES_MAX
    found = [each for each in read(text).observations.defects if isinstance(each, UnknownField)]
    assert len(found) == 40_000
    assert (found[0].nearest, found[-1].nearest, found[-1].line) == (("learning_rate",), (), 40_000)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(content: bytes) -> None:
    toml.read_toml(content, FILE, "tests")
