"""What an attempt is told to do, as its environment and ``manifest.json`` say it.

Rules kept here:

1. Without the variables that ``countermark run`` sets there is no assignment: the error says how to be run, and nothing is guessed.
2. Every reason is given at once.
3. The document is read strictly: another format version, a missing part, a coordinate that is not canonical are reasons.
4. Settings are inert: they change how an attempt is carried out, never what it computes. Settings of other tools are left alone.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.attempt_folder import read_bounded
from countermark.files.documents import as_object, parse_object
from countermark.lines.defects import sentence
from countermark.recipe import Manifest, manifest_from_spellings, spellings
from countermark.recipe.text import TRAINER_SETTINGS, read_inert
from countermark.train.failures import CannotTrain
from countermark.values import Refused, Unreadable, shown
from countermark.wire.receipts import CLAIM_BYTES_MAX

MANIFEST_VARIABLE: Final = "COUNTERMARK_MANIFEST"
ATTEMPT_VARIABLE: Final = "COUNTERMARK_ATTEMPT"
OUTPUT_VARIABLE: Final = "COUNTERMARK_OUTPUT"
RESUME_VARIABLE: Final = "COUNTERMARK_RESUME"
_REQUIRED: Final = (MANIFEST_VARIABLE, ATTEMPT_VARIABLE, OUTPUT_VARIABLE)

#: Setting → its value where the recipe's [trainer] table does not speak of it.
SETTINGS: Final[Mapping[str, int]] = {"save_steps": 50, "logging_steps": 10, "threads": 1, "keep_checkpoints": 2, "dataloader_workers": 0}


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """How an attempt is carried out. ``threads``: torch's own, because their number can change bits; ``keep_checkpoints``: how many
    published checkpoints of this attempt stay."""

    save_steps: int
    logging_steps: int
    threads: int
    keep_checkpoints: int
    dataloader_workers: int


@final
@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt's work: its name, the computation, where its sources lie, and where it may write."""

    nonce: str
    work_key: str
    manifest: Manifest
    sources: Mapping[str, str]
    settings: Settings
    folder: Path
    output: Path
    resume: Path | None

    @property
    def desired(self) -> dict[str, str]:
        """The 23 spellings."""
        return spellings(self.manifest)

    @property
    def work(self) -> Path:
        """The trainer's own scratch folder."""
        return self.folder / "work"

    @property
    def checkpoints(self) -> Path:
        """Where published checkpoints lie."""
        return self.folder / "checkpoints"

    def source(self, name: str) -> Path:
        """Where a source lies. Raises ``CannotTrain`` where the recipe does not say."""
        if name not in self.sources:
            raise CannotTrain(f"The recipe does not say where its {name} lies. Add it to [sources]: {name} = PATH.")
        return Path(self.sources[name])


def read_assignment(environment: Mapping[str, str] | None = None) -> Assignment:
    """The assignment in the environment. Raises ``CannotTrain`` with every reason."""
    environment = os.environ if environment is None else environment
    absent = [name for name in _REQUIRED if not environment.get(name)]
    if absent:
        raise CannotTrain(
            f"{', '.join(absent)} not set: this script takes its work from a claimed attempt. "
            "Run it through countermark: countermark run RECIPE -- python SCRIPT"
        )
    path = Path(environment[MANIFEST_VARIABLE])
    content = read_bounded(path, CLAIM_BYTES_MAX)
    if content is None:
        raise CannotTrain(f"{path} does not exist. {MANIFEST_VARIABLE} names it; run the script through countermark run.")
    document = content if isinstance(content, Unreadable) else parse_object(content)
    if isinstance(document, Unreadable):
        raise CannotTrain(f"{path} cannot be read: {document.why}.")
    resume = environment.get(RESUME_VARIABLE, "")
    folder, output = Path(environment[ATTEMPT_VARIABLE]), Path(environment[OUTPUT_VARIABLE])
    return _assignment(path, document, folder, output, Path(resume) if resume else None)


def _assignment(path: Path, document: Mapping[str, object], folder: Path, output: Path, resume: Path | None) -> Assignment:
    reasons: list[str] = []
    if document.get("countermark") != 1:
        reasons.append(f"countermark is {shown(document.get('countermark'))}, and this release reads format 1")
    nonce, work_key = _text(document, "attempt", reasons), _text(document, "workKey", reasons)
    manifest = manifest_from_spellings(_table(document, "manifest", reasons))
    if isinstance(manifest, Refused):
        reasons += (sentence(defect).message for defect in manifest.defects)
    sources = {name: place for name, place in _table(document, "sources", reasons).items() if isinstance(place, str)}
    settings = _settings(_table(document, "trainer", reasons), reasons)
    if folder.name != nonce and not reasons:
        reasons.append(f"it is of attempt {nonce}, and {ATTEMPT_VARIABLE} names {folder.name}")
    if reasons or isinstance(manifest, Refused):
        raise CannotTrain(*(f"{path}: {reason}." for reason in reasons))
    return Assignment(nonce, work_key, manifest, sources, settings, folder, output, resume)


def _text(document: Mapping[str, object], name: str, reasons: list[str]) -> str:
    found = document.get(name)
    if isinstance(found, str):
        return found
    reasons.append(f"{name} is no text")
    return ""


def _table(document: Mapping[str, object], name: str, reasons: list[str]) -> Mapping[str, object]:
    found = as_object(document.get(name))
    if found is None:
        reasons.append(f"{name} is no table")
    return found or {}


def _settings(table: Mapping[str, object], reasons: list[str]) -> Settings:
    values: dict[str, int] = {}
    for name, default in SETTINGS.items():
        read = read_inert(TRAINER_SETTINGS[name], table.get(name, default))
        if not isinstance(read, int):
            reasons.append(f"trainer.{name} is {shown(table[name])}, and {read.why if isinstance(read, Unreadable) else 'it is no number'}")
        values[name] = read if isinstance(read, int) else default
    return Settings(**values)
