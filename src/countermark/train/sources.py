"""The recipe's sources, loaded and held against the coordinates that they must be.

Rules kept here:

1. What is handed to a script is hashed as it is handed over, and another content than the recipe pins stops the attempt before it trains.
2. Content is read from local folders and files only; nothing is downloaded.
"""

from typing import Any

from countermark.files.dataset_file import LoadedDataset, load_dataset
from countermark.files.model_folder import measure_base
from countermark.files.tokenizer_folder import measure_tokenizer
from countermark.train.assignment import Assignment
from countermark.train.build import numbers_of
from countermark.train.failures import CannotTrain, refusal
from countermark.train.libraries import library
from countermark.values import Refused


def load_rows(assignment: Assignment) -> LoadedDataset:
    """The dataset's rows, with their digest. Raises ``CannotTrain``."""
    path = assignment.source("dataset")
    limit = assignment.sources.get("dataset_limit")
    loaded = load_dataset(path, limit=None if limit is None else int(limit))
    if isinstance(loaded, Refused):
        raise refusal(str(path), loaded.defects)
    return loaded


def rows_as_pinned(assignment: Assignment) -> LoadedDataset:
    """The rows that the recipe pins. Raises ``CannotTrain`` where the file has others now."""
    loaded = load_rows(assignment)
    _hold("dataset", str(assignment.source("dataset")), loaded.measured.dataset.spell(), assignment)
    return loaded


def tokenizer_as_pinned(assignment: Assignment) -> Any:
    """The tokenizer that the recipe pins. Raises ``CannotTrain``."""
    folder = assignment.source("tokenizer")
    measured = measure_tokenizer(folder)
    if isinstance(measured, Refused):
        raise refusal(str(folder), measured.defects)
    _hold("tokenization", str(folder), measured.tokenization.spell(), assignment)
    return library("transformers").AutoTokenizer.from_pretrained(folder)


def base_as_pinned(assignment: Assignment) -> Any:
    """The base model that the recipe pins, stored as its numeric format says. Raises ``CannotTrain``."""
    folder, numbers = assignment.source("model"), numbers_of(assignment.manifest)
    measured = measure_base(folder)
    if isinstance(measured, Refused):
        raise refusal(str(folder), measured.defects)
    _hold("base_artifact", str(folder), measured.base_artifact.spell(), assignment)
    torch, transformers = library("torch"), library("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, numbers.storage))


def _hold(coordinate: str, place: str, found: str, assignment: Assignment) -> None:
    if found != (desired := assignment.desired[coordinate]):
        raise CannotTrain(
            f"{coordinate}: the recipe pins {desired}, and {place} is {found} now. "
            "Restore it, or resolve the recipe again: that is another run."
        )
