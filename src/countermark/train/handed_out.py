"""What a script is handed for its data: rows, sequences and the collator, each remembering what it was made of.

Rules kept here:

1. Rows are hashed as they are handed out: the digest is of what the script got, not of what the recipe says.
2. A dataset handed out is sealed: its sequences and what it remembers cannot be set.
3. The collator pads on the right, takes no loss over padding and hides it from attention.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from countermark.recipe.canonical import DatasetHasher
from countermark.train.failures import CannotTrain
from countermark.train.libraries import library
from countermark.train.sequences import IGNORED, Preparation, Tokens
from countermark.values import Sha256


def hash_rows(rows: Iterable[Mapping[str, object]]) -> Sha256:
    """The coordinate ``dataset`` of these rows. Raises ``CannotTrain`` naming the row that has no canonical form."""
    hasher = DatasetHasher()
    for number, row in enumerate(rows, 1):
        try:
            hasher.row(row)
        except ValueError as error:
            raise CannotTrain(f"Row {number} has no canonical form: {error}.") from error
    return hasher.digest()


@final
@dataclass(frozen=True, slots=True)
class Sequences:
    """A dataset for a trainer: item ``i`` is ``input_ids`` and ``labels`` of sequence ``i``.

    ``rows`` is the digest of the rows, ``order`` the canonical spelling of the data order that the sequences were laid out in (they are in
    the rows' order where it is None), ``tokenizer`` the live object that made the ids.
    """

    rows: Sha256
    how: Preparation
    order: str | None
    tokenizer: Any = field(repr=False)
    tokens: tuple[Tokens, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> dict[str, list[int]]:
        one = self.tokens[at]
        return {"input_ids": one.ids.tolist(), "labels": one.labels.tolist()}


@final
@dataclass(frozen=True, slots=True)
class Collator:
    """Sequences to one batch of tensors (rows × longest sequence, int64), padded on the right with ``pad``."""

    pad: int

    def __call__(self, rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Any]:
        torch = library("torch")
        longest = max(len(row["input_ids"]) for row in rows)
        batch: dict[str, list[list[int]]] = {"input_ids": [], "attention_mask": [], "labels": []}
        for row in rows:
            ids, labels = list(row["input_ids"]), list(row["labels"])
            short = longest - len(ids)
            batch["input_ids"].append(ids + [self.pad] * short)
            batch["attention_mask"].append([1] * len(ids) + [0] * short)
            batch["labels"].append(labels + [IGNORED] * short)
        return {name: torch.tensor(values, dtype=torch.int64) for name, values in batch.items()}
