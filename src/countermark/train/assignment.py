"""What an attempt is told to do, as its environment and ``manifest.json`` say it.

Rules kept here:

1. Without the variables that ``countermark run`` sets there is no assignment: the error says how to be run, and nothing is guessed.
2. Every reason is given at once.
3. The document is read by ``countermark.files.desired``, strictly; what it refuses are reasons here.
4. Settings are inert: they change how an attempt is carried out, never what it computes. Settings of other tools are left alone.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.attempt_folder import WORK, read_bounded
from countermark.files.desired import CHECKPOINTS, DESIRED_BYTES_MAX, decode_desired
from countermark.lines.defects import sentence
from countermark.recipe import Manifest, spellings
from countermark.recipe.text import TRAINER_SETTINGS, read_inert
from countermark.train.failures import CannotTrain
from countermark.values import Refused, Unreadable

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
        return self.folder / WORK

    @property
    def checkpoints(self) -> Path:
        """Where published checkpoints lie."""
        return self.folder / CHECKPOINTS

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
    content = read_bounded(path, DESIRED_BYTES_MAX)
    if content is None:
        raise CannotTrain(f"{path} does not exist. {MANIFEST_VARIABLE} names it; run the script through countermark run.")
    if isinstance(content, Unreadable):
        raise CannotTrain(f"{path} cannot be read: {content.why}.")
    desired = decode_desired(content)
    if isinstance(desired, Refused):
        raise CannotTrain(*(f"{path}: {sentence(defect).message}." for defect in desired.defects))
    folder = Path(environment[ATTEMPT_VARIABLE])
    if folder.name != desired.attempt:
        raise CannotTrain(f"{path}: it is of attempt {desired.attempt}, and {ATTEMPT_VARIABLE} names {folder.name}.")
    resume = environment.get(RESUME_VARIABLE, "")
    return Assignment(
        nonce=desired.attempt,
        work_key=desired.work_key,
        manifest=desired.manifest,
        sources=desired.sources,
        settings=_settings(desired.trainer),
        folder=folder,
        output=Path(environment[OUTPUT_VARIABLE]),
        resume=Path(resume) if resume else None,
    )


def _settings(table: Mapping[str, object]) -> Settings:
    """The settings of the roster that the document sets, and the defaults of the others."""
    read = {name: read_inert(TRAINER_SETTINGS[name], table.get(name, default)) for name, default in SETTINGS.items()}
    return Settings(**{name: value for name, value in read.items() if isinstance(value, int)})
