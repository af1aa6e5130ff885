"""Recipe files with overlays, settings and measured content: what lies over what, where sources lie, and everything named at once."""

import json
import os
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.app import recipes
from countermark.app.recipes import Resolved, resolve_recipe
from countermark.files.model_folder import TotalProgress
from countermark.lines.defects import known, sentence
from countermark.recipe import spellings
from countermark.recipe.resolve import AxisUnresolved, CoordinateRefused, ObservationsContradict, SettingRefused, UnknownField
from countermark.recipe.text import RecipeMalformed, RecipeOtherFormat, RecipeTooLarge, SetMalformed
from countermark.values import Refused
from countermark.weights.refusals import DatasetRowUnreadable, FileAbsent
from tests.faults import planted, proven_by
from tests.files.tensors import encoded, f32, write
from tests.recipe.examples import CLEAN, clean_recipe_text


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a recipe in a folder of its own, and a tiny model, tokenizer and dataset where the recipe says."""
    place = tmp_path / "project"
    write(place / "recipe.toml", clean_recipe_text().encode())
    model = place / "models" / "SmolLM2-135M"
    write(model / "model.safetensors", encoded({"weight": f32(1.0, 2.0)}))
    write(model / "config.json", json.dumps({"model_type": "tiny", "hidden_size": 2}).encode())
    vocabulary = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}}
    write(model / "tokenizer.json", json.dumps(vocabulary).encode())
    write(model / "tokenizer_config.json", json.dumps({"eos_token": "b"}).encode())
    write(place / "data" / "topics.jsonl", b'{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n')
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return place


def without(here: Path, *axes: str) -> str:
    """The recipe's path, after these coordinates were taken out of it."""
    lines = (here / "recipe.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.partition(" =")[0] not in axes]
    (here / "recipe.toml").write_text("".join(kept), encoding="utf-8")
    return str(here / "recipe.toml")


PINNED = ("base_artifact", "tokenization")


def open_recipe(here: Path) -> str:
    """The recipe without what ``--pin`` can measure."""
    text = (here / "recipe.toml").read_text(encoding="utf-8").replace(f'dataset = "sha256:{"d" * 64}"\n', "", 1)
    (here / "recipe.toml").write_text(text, encoding="utf-8")
    return without(here, *PINNED)


def resolved(path: str | Path, **options: object) -> Resolved:
    answer = resolve_recipe(str(path), **options)  # type: ignore[arg-type]
    assert isinstance(answer, Resolved), answer
    return answer


def refused(path: str | Path, **options: object) -> list[object]:
    """Every defect; each has its sentence."""
    answer = resolve_recipe(str(path), **options)  # type: ignore[arg-type]
    assert isinstance(answer, Refused), answer
    assert all(sentence(defect).message for defect in known(answer.defects))
    return list(answer.defects)


def manifest(found: Resolved) -> dict[str, str]:
    return spellings(found.resolution.manifest)


def test_a_clean_recipe_is_what_it_says(here: Path) -> None:
    found = resolved(here / "recipe.toml")
    assert manifest(found) == CLEAN and found.name == "topics-lora" and found.pinned == ()
    assert dict(found.trainer) == {"save_steps": 5}
    assert {receipt["axis"] for receipt in found.receipts()} >= set(CLEAN)
    assert all(receipt["source"] == str(here / "recipe.toml") for receipt in found.receipts())


def test_a_recipe_without_a_name_goes_by_its_files(here: Path) -> None:
    assert resolved(without(here, "name")).name == "recipe"


# ---------------------------------------------------------------------------------------------------- overlays and --set


def overlays_are_turned_round() -> AbstractContextManager[object]:
    real = recipes.Recipe.over
    return planted(recipes.Recipe, "over", lambda self, stronger: real(stronger, self))()


@proven_by(overlays_are_turned_round)
def test_overlays_lie_over_the_recipe_in_their_order_and_settings_over_all(here: Path) -> None:
    first = write(here / "first.toml", b"countermark = 1\nname = 'first'\n[coordinates]\nseed = 1\nrank = 8\n[trainer]\nsave_steps = 7\n")
    second = write(here / "second.toml", b"countermark = 1\n[coordinates]\nseed = 2\noptimizer = { beta1 = 0.95 }\n")
    found = resolved(here / "recipe.toml", overlays=(str(first), str(second)), sets=("rank=16", "optimizer.eps=1e-6", "trainer.threads=2"))
    changed = {"seed": "2", "rank": "16", "optimizer": "adamw_torch(beta1=0.95,beta2=0.999,eps=0.000001)"}
    got = manifest(found)
    assert {name: value for name, value in got.items() if value != CLEAN[name]}.keys() == changed.keys()
    assert (got["seed"], got["rank"]) == ("2", "16") and "beta1=0.95" in got["optimizer"]
    assert found.name == "first" and dict(found.trainer) == {"save_steps": 7, "threads": 2}
    assert found.work_key != resolved(here / "recipe.toml").work_key


def test_what_is_inert_moves_no_key(here: Path) -> None:
    plain = resolved(here / "recipe.toml").work_key
    assert resolved(here / "recipe.toml", sets=("trainer.save_steps=9", "sources.model=elsewhere", "name=other")).work_key == plain
    assert resolved(here / "recipe.toml", principal="team").work_key != plain


# --------------------------------------------------------------------------------------------------------------- sources


def everything_is_relative_to_the_working_folder() -> AbstractContextManager[object]:
    return planted(recipes, "_where", lambda source: str(Path.cwd() / source.text))()


@proven_by(everything_is_relative_to_the_working_folder)
def test_a_source_is_relative_to_the_file_that_names_it(here: Path) -> None:
    overlay = write(here.parent / "over" / "lay.toml", b"countermark = 1\n[sources]\ntokenizer = '../tok'\n")
    relative = os.path.relpath(here / "recipe.toml")
    found = resolved(relative, overlays=(os.path.relpath(overlay),), sets=("sources.dataset=rows.jsonl",))
    assert {name: os.path.normpath(path) for name, path in found.sources.items()} == {
        "model": f"{here}/models/SmolLM2-135M",
        "tokenizer": f"{here.parent}/tok",
        "dataset": f"{Path.cwd()}/rows.jsonl",
    }
    assert all(os.path.isabs(path) for path in found.sources.values())


def test_absolute_and_home_sources_and_folders_called_by_a_number(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    sets = ("sources.model=/models/base", "sources.tokenizer=~/tok", "sources.dataset=2024", "sources.dataset_limit=7")
    assert dict(resolved(here / "recipe.toml", sets=sets).sources) == {
        "model": "/models/base",
        "tokenizer": "/home/ada/tok",
        "dataset": f"{Path.cwd()}/2024",
        "dataset_limit": "7",
    }


def test_a_way_up_behind_a_link_is_the_systems_not_the_texts(here: Path) -> None:
    (here / "link").symlink_to(here / "models" / "SmolLM2-135M")
    found = resolved(open_recipe(here), sets=(f"sources.dataset={here}/link/../../data/topics.jsonl",), pin=True)
    assert len(found.pinned) == 3


# ----------------------------------------------------------------------------------------------------------------- --pin


def test_pin_fills_what_is_open_and_says_what_it_measured(here: Path) -> None:
    path = open_recipe(here)
    left = refused(path)
    assert [(defect.axis, type(defect)) for defect in left if isinstance(defect, AxisUnresolved)] == [
        (axis, AxisUnresolved) for axis in ("base_artifact", "tokenization", "dataset")
    ]
    assert len(left) == 3
    seen: list[str] = []

    def progress(what: str) -> TotalProgress:
        seen.append(what)
        return lambda done, total: None

    found = resolved(path, pin=True, progress=progress)
    assert seen == ["model", "tokenizer", "dataset"]
    got = manifest(found)
    assert found.pinned == tuple(
        f"{axis} = {got[axis]} (content of {found.sources[source]})"
        for axis, source in (("base_artifact", "model"), ("tokenization", "tokenizer"), ("dataset", "dataset"))
    )
    assert {receipt["axis"] for receipt in found.receipts() if receipt["tool"] == "--pin"} == {"base_artifact", "tokenization", "dataset"}
    written = [f"{axis}={got[axis]}" for axis in ("base_artifact", "tokenization", "dataset")]
    assert resolved(path, sets=written).work_key == found.work_key == resolved(path, sets=written, pin=True).work_key


def the_limit_is_ignored() -> AbstractContextManager[object]:
    real = recipes.measure_dataset
    return planted(recipes, "measure_dataset", lambda path, limit=None, progress=None: real(path, progress=progress))()


@proven_by(the_limit_is_ignored)
def test_content_moves_the_key_and_what_is_behind_the_limit_does_not(here: Path) -> None:
    path = open_recipe(here)
    rows = here / "data" / "topics.jsonl"
    limited = resolved(path, pin=True, sets=("sources.dataset_limit=2",)).work_key
    assert limited != resolved(path, pin=True).work_key
    rows.write_bytes(rows.read_bytes() + b'{"text": "four"}\n')
    assert resolved(path, pin=True, sets=("sources.dataset_limit=2",)).work_key == limited
    rows.write_bytes(b'{"text": "another"}\n' + rows.read_bytes())
    assert resolved(path, pin=True, sets=("sources.dataset_limit=2",)).work_key != limited


def pins_win() -> AbstractContextManager[object]:
    """Where text and content disagree, the content is taken."""
    return planted(recipes, "Layer", lambda kind, said: _Layer("authored", said))()


_Layer = recipes.Layer


@proven_by(pins_win)
def test_text_that_disagrees_with_the_content_is_a_contradiction_of_each_axis(here: Path) -> None:
    found = refused(here / "recipe.toml", pin=True)
    assert [type(defect) for defect in found] == [ObservationsContradict] * 3
    assert [defect.axis for defect in found if isinstance(defect, ObservationsContradict)] == ["base_artifact", "tokenization", "dataset"]
    first = found[0]
    assert isinstance(first, ObservationsContradict) and first.fields == ("coordinates.base_artifact", "sources.model")


def test_what_cannot_be_measured_is_named_beside_everything_else(here: Path) -> None:
    (here / "models" / "SmolLM2-135M" / "config.json").unlink()
    (here / "data" / "topics.jsonl").write_bytes(b'{"text": "one"}\n[1]\n')
    path = without(here, *PINNED, "seed")
    found = refused(path, pin=True, sets=("sources.tokenizer=nowhere", "rank=many", "trainer.save_steps=0"))
    wanted = {FileAbsent: 2, DatasetRowUnreadable: 1, SettingRefused: 1, AxisUnresolved: 3, CoordinateRefused: 1}
    assert Counter(type(defect) for defect in found) == wanted
    files = [defect.file for defect in found if isinstance(defect, FileAbsent)]
    assert files == [f"{here}/models/SmolLM2-135M/config.json", f"{Path.cwd()}/nowhere"]
    rest = [(defect.axis, type(defect)) for defect in found if isinstance(defect, AxisUnresolved | CoordinateRefused)]
    open_axes = [(axis, AxisUnresolved) for axis in ("base_artifact", "tokenization", "seed")]
    assert sorted(rest, key=str) == sorted([*open_axes, ("rank", CoordinateRefused)], key=str)


def test_a_source_that_is_not_there_is_named_with_its_place(here: Path) -> None:
    found = refused(open_recipe(here), pin=True, sets=("sources.dataset=gone.jsonl",))
    assert FileAbsent(f"{Path.cwd()}/gone.jsonl") in found


def test_pin_without_sources_measures_nothing(here: Path) -> None:
    text = (here / "recipe.toml").read_text(encoding="utf-8")
    (here / "recipe.toml").write_text(text[: text.index("[sources]")], encoding="utf-8")
    assert resolved(here / "recipe.toml", pin=True).pinned == ()


# ------------------------------------------------------------------------------------------------------------- bad input


def test_every_file_and_option_that_cannot_be_read_is_named(here: Path) -> None:
    broken = write(here / "broken.toml", b"countermark = 1\nname = \n")
    large = write(here / "large.toml", b"#" * (recipes.RECIPE_BYTES_MAX + 1))
    found = refused(here / "gone.toml", overlays=(str(broken), str(large)), sets=("no equals sign",))
    assert [type(defect) for defect in found] == [FileAbsent, RecipeMalformed, RecipeTooLarge, SetMalformed]


def test_unknown_axes_formats_and_hostile_files(here: Path) -> None:
    assert refused(here / "recipe.toml", format="yaml") == [RecipeOtherFormat(str(here / "recipe.toml"), "yaml")]
    assert resolved(here / "recipe.toml", format="toml").name == "topics-lora"
    (unknown,) = refused(here / "recipe.toml", sets=("sead=7",))
    assert isinstance(unknown, UnknownField) and "seed" in unknown.nearest
    os.mkfifo(here / "pipe.toml")
    assert len(refused(here / "pipe.toml")) == 1
    assert len(refused(here)) == 1
    assert len(refused(write(here / "latin.toml", b'countermark = 1\nname = "\xe9"\n'))) == 1
