"""Rows to sequences of token ids with labels, as TRL's SFTTrainer makes them; a test holds the two against each other.

Rules kept here:

1. A row is either ``text``, or ``prompt`` and ``completion``; all rows of a dataset are of one kind. The end-of-sequence token is added
   where the text does not end with it.
2. ``completion_only`` begins where the ids of the prompt alone and of the whole row first differ.
3. Packing ``none`` cuts a sequence at its end and leaves out sequences without any label. ``concat_split`` joins a thousand rows at a time
   and cuts them at the sequence length; the last piece of each thousand is as short as it comes out.
4. What is not built here (chat templates, other packings, other masks) is refused by name; every bad row is named.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from countermark.train.failures import CannotTrain

#: The label that a loss leaves out.
IGNORED: Final = -100
#: ``datasets.Dataset.map`` hands over this many rows at a time, and TRL joins what it is handed.
ROWS_JOINED: Final = 1000
_BAD_ROWS_NAMED: Final = 20

Row = Mapping[str, object]


@final
@dataclass(frozen=True, slots=True)
class Tokens:
    """One sequence: its ids and, of the same length, its labels (``IGNORED`` where no loss is taken)."""

    ids: "array[int]"
    labels: "array[int]"


@final
@dataclass(frozen=True, slots=True)
class Preparation:
    """How rows become sequences: three coordinates, as the manifest spells them."""

    sequence_length: int
    packing: str
    loss_mask: str

    def reasons(self) -> tuple[str, ...]:
        """Why this preparation is not built here; empty where it is."""
        reasons: list[str] = []
        if self.packing not in {"none", "concat_split"}:
            reasons.append(f"packing {self.packing}: Training.dataset() packs by none or concat_split; SFTTrainer packs by more.")
        if self.loss_mask not in {"all_tokens", "completion_only"}:
            reasons.append(
                f"loss_mask {self.loss_mask}: Training.dataset() masks all_tokens or completion_only; TRL's SFTTrainer knows more."
            )
        return tuple(reasons)


@final
@dataclass(frozen=True, slots=True)
class Tokenize:
    """A tokenizer as this room uses it: text to ids with its own special tokens, and the text that ends a sequence."""

    ids: Callable[[str], Sequence[int]]
    end: str


def prepare(rows: Iterable[Row], tokenize: Tokenize, how: Preparation) -> list[Tokens]:
    """The sequences of these rows, in their order. Raises ``CannotTrain`` with every reason why there are none."""
    if reasons := how.reasons():
        raise CannotTrain(*reasons)
    listed = list(rows)
    if reasons := bad_rows(listed, how.loss_mask):
        raise CannotTrain(*reasons)
    whole = [_tokens(row, tokenize, how.loss_mask) for row in listed]
    if how.packing == "concat_split":
        return _concatenated(whole, how.sequence_length)
    cut = (Tokens(one.ids[: how.sequence_length], one.labels[: how.sequence_length]) for one in whole)
    if not (kept := [one for one in cut if any(label != IGNORED for label in one.labels)]):
        raise CannotTrain(f"None of the {len(whole)} rows has a token under the loss within the sequence length of {how.sequence_length}.")
    return kept


def untruncated(rows: Iterable[Row], tokenize: Tokenize, loss_mask: str) -> list[Tokens]:
    """The sequences before any cutting and packing. Raises ``CannotTrain``."""
    listed = list(rows)
    if reasons := bad_rows(listed, loss_mask):
        raise CannotTrain(*reasons)
    return [_tokens(row, tokenize, loss_mask) for row in listed]


def bad_rows(rows: Sequence[Row], loss_mask: str) -> tuple[str, ...]:
    """Why rows (counted from 1) are none that this module prepares; the first are named, the others counted."""
    reasons = [f"Row {number} {why}." for number, row in enumerate(rows, 1) if (why := _why_bad(row))]
    kinds = {"text" in row for row in rows}
    if not reasons and len(kinds) > 1:
        reasons.append("Some rows have text and others prompt and completion; a dataset has one kind.")
    if not reasons and loss_mask == "completion_only" and True in kinds:
        reasons.append("loss_mask completion_only needs rows with prompt and completion; these have text.")
    if not rows:
        reasons.append("There is no row.")
    more = len(reasons) - _BAD_ROWS_NAMED
    return (*reasons[:_BAD_ROWS_NAMED], f"{more} more rows are of no known kind.") if more > 0 else tuple(reasons)


def _why_bad(row: Row) -> str:
    if isinstance(row.get("messages"), list | tuple):
        return "is a conversation; Training.dataset() applies no chat template. Use TRL's SFTTrainer with Training.sft_config()"
    has = {name for name in ("text", "prompt", "completion") if isinstance(row.get(name), str)}
    if has in ({"text"}, {"prompt", "completion"}):
        return ""
    return (
        "has neither the text of a sequence nor a prompt with its completion" if len(has) < 3 else "has text beside prompt and completion"
    )


def _tokens(row: Row, tokenize: Tokenize, loss_mask: str) -> Tokens:
    if "text" in row:
        ids = array("i", tokenize.ids(_ended(str(row["text"]), tokenize.end)))
        return Tokens(ids, ids)
    prompt, completion = str(row["prompt"]), _ended(str(row["completion"]), tokenize.end)
    ids = array("i", tokenize.ids(prompt + completion))
    if loss_mask == "all_tokens":
        return Tokens(ids, ids)
    alone = tokenize.ids(prompt)
    start = next((at for at, (one, other) in enumerate(zip(alone, ids, strict=False)) if one != other), min(len(alone), len(ids)))
    return Tokens(ids, array("i", [IGNORED] * start) + ids[start:])


def _ended(text: str, end: str) -> str:
    return text if text.endswith(end) else text + end


def _concatenated(whole: Sequence[Tokens], length: int) -> list[Tokens]:
    found: list[Tokens] = []
    for start in range(0, len(whole), ROWS_JOINED):
        ids, labels = array("i"), array("i")
        for one in whole[start : start + ROWS_JOINED]:
            ids.extend(one.ids)
            labels.extend(one.labels)
        found += (Tokens(ids[at : at + length], labels[at : at + length]) for at in range(0, len(ids), length))
    return found
