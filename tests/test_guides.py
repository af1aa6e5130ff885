"""The recipes that pages show are recipes: read by the program's own reader, and resolved where they are complete."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from countermark.cli import settings
from countermark.cli.settings import PROJECT_FILE, Settings, resolve_settings
from countermark.recipe import ROSTER, AxisUnresolved, Resolution, differing, resolve
from countermark.recipe.formats import toml
from countermark.recipe.formats.toml import read_settings, read_toml
from countermark.recipe.text import TRAINER_SETTINGS, Recipe
from countermark.values import Refused
from tests.faults import planted, proven_by

ROOT: Final = Path(__file__).resolve().parent.parent
GUIDE: Final = (ROOT / "docs/guide/recipe.md").read_text(encoding="utf-8")
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_OPEN: Final = re.compile(r"^(\w+) = .*# left open", re.MULTILINE)
_SET: Final = re.compile(r"--set ('[^']+'|\S+)")


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in a language, in their order."""
    return [text for said, text in _BLOCK.findall(page) if said == language]


def shown(of_settings: bool) -> Iterator[tuple[str, str]]:
    """Path and text of every TOML block in the guides and on the first page: recipes, or settings, which begin with their file's name."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))):
        for text in blocks(path.read_text(encoding="utf-8"), "toml"):
            if text.startswith(f"# {PROJECT_FILE}\n") is of_settings:
                yield path.name, text


def recipes() -> Iterator[tuple[str, str]]:
    """Path and text of every recipe that is shown."""
    return shown(of_settings=False)


def read(text: str) -> Recipe:
    recipe = read_toml(text.encode(), "shown.toml", "tests")
    assert isinstance(recipe, Recipe), recipe
    return recipe


def resolution(recipe: Recipe) -> Resolution:
    found = resolve(recipe.observations)
    assert isinstance(found, Resolution), found
    return found


def left_open(recipe: Recipe) -> set[str]:
    """The coordinates of which somebody said something, and which are open all the same; nothing else may be wrong."""
    said = {each.axis.partition(".")[0] for layer in recipe.observations.layers for each in layer.observations}
    found = resolve(recipe.observations)
    if not isinstance(found, Refused):
        return set()
    assert {type(defect) for defect in found.defects} == {AxisUnresolved}, found.defects
    return {defect.axis.partition(".")[0] for defect in found.defects if isinstance(defect, AxisUnresolved)} & said


def misread(text: str) -> bool:
    """Whether a shown recipe is anything but what it says of itself: whole in each thing that it says, where it marks nothing as left open.
    One that is laid over another is judged so."""
    recipe = read(text)
    whole = read(blocks(GUIDE, "toml")[0]).over(recipe) if "laid over the recipe" in text else recipe
    return recipe.observations.defects != () or left_open(whole) != set(_OPEN.findall(text))


@proven_by(planted(toml, "ENTRIES", {name: entry for name, entry in toml.ENTRIES.items() if name != "rank"}))
def test_every_shown_recipe_is_read_and_open_only_where_it_says_so() -> None:
    found = list(recipes())
    assert len(found) >= 6
    assert [(path, text) for path, text in found if misread(text)] == []


@proven_by(planted(settings, "BY_NAME", {}))
def test_every_shown_setting_is_one(tmp_path: Path) -> None:
    found = list(shown(of_settings=True))
    assert found
    for name, text in found:
        (tmp_path / PROJECT_FILE).write_text(text, encoding="utf-8")
        assert isinstance(resolve_settings({}, {}, tmp_path), Settings), name


def test_a_recipe_that_says_otherwise_is_noticed() -> None:
    head = "countermark = 1\n[coordinates]\n"
    assert not misread(head + "rank = 8\n")
    assert misread(head + "rank = 8  # left open\n")
    assert misread(head + 'rank = "auto"\n')
    assert misread(head + "ranks = 8\n")
    assert misread("[coordinates]\n")


def test_the_first_recipe_of_the_guide_is_complete() -> None:
    complete = read(blocks(GUIDE, "toml")[0])
    assert len({receipt.axis.partition(".")[0] for receipt in resolution(complete).receipts}) == len(ROSTER)
    assert (complete.name, sorted(complete.sources), sorted(complete.trainer)) == (
        "topics-lora",
        ["dataset", "model", "tokenizer"],
        ["keep_checkpoints", "save_steps"],
    )


def test_both_spellings_of_a_choice_are_one_computation() -> None:
    complete, table, text = (read(block) for block in blocks(GUIDE, "toml")[:3])
    over = [resolution(complete.over(each)).manifest for each in (table, text)]
    assert differing(*over) == ()
    assert differing(over[0], resolution(complete).manifest) == ()


def test_the_overlay_of_the_guide_changes_what_it_says_and_nothing_else() -> None:
    complete, *_, overlay = (read(block) for block in blocks(GUIDE, "toml"))
    found = differing(resolution(complete).manifest, resolution(complete.over(overlay)).manifest)
    assert [(each.leaf, each.a, each.b) for each in found] == [("rank", "16", "8"), ("optimizer.beta1", "0.9", "0.95")]


def test_every_set_of_the_guide_is_read_and_resolves() -> None:
    said = {shlex.split(text)[0] for block in blocks(GUIDE, "console") for text in _SET.findall(block)}
    changes = {}
    complete = read(blocks(GUIDE, "toml")[0])
    for text in said:
        setting = read_settings((text,), "tests")
        assert isinstance(setting, Recipe), setting
        found = differing(resolution(complete).manifest, resolution(complete.over(setting)).manifest)
        changes[text.partition("=")[0]] = [each.leaf for each in found]
    assert changes == {
        "seed": ["seed"],
        "optimizer.beta1": ["optimizer.beta1"],
        "data_order.seed": ["data_order.seed"],
        "lr_schedule": ["lr_schedule.schedule"],
        "target_modules": ["target_modules"],
        "sources.model": [],
        "trainer.threads": [],
    }


def test_the_table_of_inert_settings_is_the_roster() -> None:
    _, _, table = GUIDE.partition("| `[trainer]` | meaning |")
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(TRAINER_SETTINGS)
