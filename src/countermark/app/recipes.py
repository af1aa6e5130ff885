"""From recipe files to a resolution: reading, laying overlays and ``--set`` over it, measuring local content for ``--pin``.

Rules kept here:

1. Files are read bounded; what they hold is judged by ``countermark.recipe`` alone.
2. A relative source is relative to the file that names it; one that an option names is relative to the working folder. What is handed on is
   an absolute path.
3. ``--pin`` fills what is open and contradicts what disagrees; it says what it measured. What cannot be measured is refused beside every
   other defect.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from countermark.files.dataset_file import measure_dataset
from countermark.files.model_folder import TotalProgress, measure_base
from countermark.files.reading import OpenFile, open_file, read_whole
from countermark.files.tokenizer_folder import measure_tokenizer
from countermark.recipe import (
    Layer,
    Observation,
    Observations,
    Receipt,
    Requirements,
    Resolution,
    WorkKey,
    contract_of,
    derive_work_key,
    resolve,
)
from countermark.recipe.formats.toml import read_settings, read_toml
from countermark.recipe.text import RECIPE_BYTES_MAX, SOURCES, Recipe, RecipeOtherFormat, RecipeTooLarge, Setting, Source
from countermark.values import NonEmpty, Principal, Refused, Sha256
from countermark.weights.refusals import FileAbsent

#: The formats that can be named with ``--format``.
FORMATS: Final = ("toml",)
#: How receipts and defects name the arguments of ``--set``.
SETTINGS: Final = "--set"
_MEASURED_FROM: Final = {"base_artifact": "model", "tokenization": "tokenizer", "dataset": "dataset"}


@final
@dataclass(frozen=True, slots=True)
class Resolved:
    """A resolved recipe with its Work key, where its sources lie (absolute), its inert settings, and what ``--pin`` measured, in lines."""

    name: str
    resolution: Resolution
    work_key: WorkKey
    requirements: Requirements
    sources: Mapping[str, str]
    trainer: Mapping[str, Setting]
    pinned: tuple[str, ...]

    def receipts(self) -> tuple[Mapping[str, str | int], ...]:
        """Who said what each axis is, as a ledger keeps it."""
        return tuple(
            {"axis": said.axis, "source": said.source, "line": said.line, "field": said.field, "tool": said.tool}
            for said in self.resolution.receipts
        )


def _silent(what: str) -> TotalProgress:
    """Nobody watches."""
    return lambda done, total: None


def resolve_recipe(
    path: str,
    *,
    format: str | None = None,
    sets: Sequence[str] = (),
    overlays: Sequence[str] = (),
    pin: bool = False,
    principal: str = "local",
    progress: Callable[[str], TotalProgress] = _silent,
) -> Resolved | Refused[object]:
    """The recipe of a file, resolved, or every defect of all that was handed in."""
    tool = f"countermark {version('countermark')}"
    if format is not None and format not in FORMATS:
        return Refused(NonEmpty(RecipeOtherFormat(path, format)))
    read = [_read_file(each, tool) for each in (path, *overlays)] + ([read_settings(tuple(sets), tool, SETTINGS)] if sets else [])
    refusals = [each for each in read if isinstance(each, Refused)]
    if (defects := NonEmpty.of(defect for refusal in refusals for defect in refusal.defects)) is not None:
        return Refused(defects)
    recipe: Recipe | None = None
    for each in read:
        assert isinstance(each, Recipe)
        recipe = each if recipe is None else recipe.over(each)
    assert recipe is not None, "the recipe itself was read"
    sources = {name: _where(source) if SOURCES[name].kind is None else source.text for name, source in recipe.sources.items()}
    measured = _measured(sources, progress) if pin else _Measured(Observations(()), (), ())
    answer = resolve(recipe.observations.over(measured.observations))
    found = (*measured.defects, *(answer.defects if isinstance(answer, Refused) else ()))
    if (defects := NonEmpty.of(found)) is not None or isinstance(answer, Refused):
        assert defects is not None
        return Refused(defects)
    account = Principal.read(principal)
    assert isinstance(account, Principal), "settings hold principals that were read"
    work = derive_work_key(account, contract_of(answer), Requirements())
    name = recipe.name or Path(path).stem
    return Resolved(name, answer, work, Requirements(), MappingProxyType(sources), recipe.trainer, measured.lines)


def _read_file(path: str, tool: str) -> Recipe | Refused[object]:
    """A recipe file's text, bounded, as far as its text goes."""
    real = Path(os.path.realpath(path))
    opened = open_file(real.parent, real.name)
    if not isinstance(opened, OpenFile):
        return Refused(NonEmpty(opened))
    with opened:
        if opened.size > RECIPE_BYTES_MAX:
            return Refused(NonEmpty(RecipeTooLarge(path, opened.size, RECIPE_BYTES_MAX)))
        content = read_whole(opened, RECIPE_BYTES_MAX)
    if not isinstance(content, bytes):
        return Refused(NonEmpty(content))
    recipe = read_toml(content, path, tool)
    return Refused(recipe.defects) if isinstance(recipe, Refused) else recipe


def _where(source: Source) -> str:
    """A source's path, relative to the file that named it; an option names it relative to the working folder.

    ``..`` is left in it: behind a link it leads elsewhere than its text does.
    """
    base = Path.cwd() if source.said.source == SETTINGS else Path(source.said.source).absolute().parent
    return str(base / os.path.expanduser(source.text))


@final
@dataclass(frozen=True, slots=True)
class _Measured:
    observations: Observations
    defects: tuple[object, ...]
    lines: tuple[str, ...]


def _measured(sources: Mapping[str, str], progress: Callable[[str], TotalProgress]) -> _Measured:
    """What the named sources hold, as a layer of observations."""
    said: list[Observation] = []
    defects: list[object] = []
    lines: list[str] = []
    for axis, source in _MEASURED_FROM.items():
        if source not in sources:
            continue
        found = _measure(axis, sources, progress(source))
        if isinstance(found, Refused):
            defects.extend(_placed(defect, sources[source]) for defect in found.defects)
            continue
        said.append(Observation(axis, found.spell(), Receipt(axis, sources[source], 0, f"sources.{source}", "--pin")))
        lines.append(f"{axis} = {found.spell()} (content of {sources[source]})")
    return _Measured(Observations((Layer("measured", tuple(said)),)), tuple(defects), tuple(lines))


def _placed(defect: object, source: str) -> object:
    """A defect that says which of the sources' files is not there."""
    if not isinstance(defect, FileAbsent) or os.path.isabs(defect.file):
        return defect
    return FileAbsent(os.path.join(source if os.path.isdir(source) else os.path.dirname(source), defect.file))


def _measure(axis: str, sources: Mapping[str, str], progress: TotalProgress) -> Sha256 | Refused[object]:
    if axis == "base_artifact":
        base = measure_base(Path(sources["model"]), progress=progress)
        return Refused(base.defects) if isinstance(base, Refused) else base.base_artifact
    if axis == "tokenization":
        tokenizer = measure_tokenizer(Path(sources["tokenizer"]))
        return Refused(tokenizer.defects) if isinstance(tokenizer, Refused) else tokenizer.tokenization
    limit = int(sources["dataset_limit"]) if "dataset_limit" in sources else None
    dataset = measure_dataset(Path(sources["dataset"]), limit=limit, progress=progress)
    return Refused(dataset.defects) if isinstance(dataset, Refused) else dataset.dataset
