"""What is fed: tokenization, rows, sequence length, packing, loss mask.

Rules kept here:

1. What was fed is proven by what comes out of the live loader: each sequence, through the live collator, has the ids and labels that the
   named rows give under the named tokenizer and preparation. Then all five coordinates are read.
2. For a dataset that was handed out, its own tokens are held against the collator's; for any other, the rows are prepared again: by what
   the library says of it, by what is desired where it says nothing.
3. Where that does not come out, length, packing and mask are unread, and rows and tokenizer that were handed out are ``passed_through``:
   what became of them nobody saw.
4. Looking draws no random number: generators are left as they were.
"""

import random
from array import array
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from countermark.evidence.members import How, Read, Unread
from countermark.files.dataset_file import LoadedDataset
from countermark.train.effective.seen import Live, Readings, Said, said
from countermark.train.failures import CannotTrain
from countermark.train.handed_out import Sequences
from countermark.train.libraries import library
from countermark.train.objects import tokenization_of, tokenize_with
from countermark.train.sequences import IGNORED, Preparation, Tokens, prepare, untruncated
from countermark.train.sources import load_rows
from countermark.values import Refused

NAMES: Final = ("tokenization", "dataset", "sequence_length", "packing", "loss_mask")
#: Sequences of a dataset that was handed out which are looked at through the collator.
_LOOKED_AT: Final = 64


def read_text(live: Live) -> Readings:
    """The coordinates of ``NAMES``."""
    dataset = live.objects.loader.dataset
    if isinstance(dataset, Sequences):
        return _handed_out(live, dataset)
    rows = load_rows(live.assignment)
    desired = live.assignment.manifest
    how = live.objects.claimed(Preparation(desired.sequence_length.number, desired.packing.word, desired.loss_mask.word))
    if isinstance(how, str):
        return _unproven(live, how)
    try:
        expected = _expected(live, rows, how)
    except CannotTrain as error:
        return _unproven(live, " ".join(error.reasons))
    why = _differs(live, expected)
    if why:
        return _unproven(live, why)
    return {
        "tokenization": _tokenization(live, live.objects.processing_class, "file_hash"),
        "dataset": said("dataset", rows.measured.dataset.spell()),
        **_prepared(how),
    }


def _handed_out(live: Live, dataset: Sequences) -> Readings:
    why = _differs(live, dataset.tokens[:_LOOKED_AT], whole=False)
    if why:
        unread = Unread(f"the collator makes something else out of the sequences: {why}")
        return dict.fromkeys(NAMES, unread)
    return {
        "tokenization": _tokenization(live, dataset.tokenizer, "file_hash"),
        "dataset": said("dataset", dataset.rows.spell()),
        **_prepared(dataset.how),
    }


def _prepared(how: Preparation) -> Readings:
    values = (("sequence_length", how.sequence_length), ("packing", how.packing), ("loss_mask", how.loss_mask))
    return {name: said(name, value) for name, value in values}


def _unproven(live: Live, why: str) -> Readings:
    """Nobody knows what the trainer is fed; what was handed out is known to have been handed out."""
    unread = Unread(f"the trainer is fed by a dataset of its own: {why}")
    handed = live.assignment.desired["dataset"]
    return {
        "tokenization": _tokenization(live, live.objects.processing_class, "passed_through"),
        "dataset": Read(handed, "passed_through") if live.rows_handed_out else unread,
        **dict.fromkeys(("sequence_length", "packing", "loss_mask"), unread),
    }


# ------------------------------------------------------------------------------------------------------------ tokenizer


def _tokenization(live: Live, tokenizer: Any, how: How) -> Said:
    """The folder's hash if the live tokenizer works as the folder's does; else the hash of what it would be saved as."""
    if tokenizer is None:
        return Unread("nobody saw a tokenizer")
    found = tokenization_of(tokenizer, live.assignment.source("tokenizer"))
    if isinstance(found, Refused):
        return Unread("the live tokenizer is not the folder's, and cannot be measured")
    digest, is_the_folders = found
    return said("tokenization", digest.spell(), how if is_the_folders else "live_object")


# ---------------------------------------------------------------------------------------------------------- preparation


def _expected(live: Live, rows: LoadedDataset, how: Preparation) -> list[Tokens]:
    """The sequences that the rows give. Raises ``CannotTrain`` where they are not built here."""
    if live.objects.processing_class is None:
        raise CannotTrain("Nobody saw a tokenizer.")
    tokenize = tokenize_with(live.objects.processing_class)
    if not how.packing.startswith("bfd"):
        return prepare(rows.rows, tokenize, how)
    whole = untruncated(rows.rows, tokenize, how.loss_mask)
    columns = {"input_ids": [one.ids.tolist() for one in whole], "labels": [one.labels.tolist() for one in whole]}
    packed = library("trl").pack_dataset(library("datasets").Dataset.from_dict(columns), how.sequence_length, how.packing)
    return [Tokens(array("i", row["input_ids"]), array("i", row["labels"])) for row in packed]


def _differs(live: Live, expected: Sequence[Tokens], *, whole: bool = True) -> str:
    """In what the live sequences, through the live collator, differ from the expected ones; empty where they do not."""
    dataset = live.objects.loader.dataset
    if whole and len(dataset) != len(expected):
        return f"it has {len(dataset)} sequences, and the rows give {len(expected)}"
    with _undrawn():
        for at, one in enumerate(expected):
            ids, labels, first = _collated(live, dataset[at])
            if ids != one.ids.tolist():
                return f"sequence {at} has other ids"
            if labels != [IGNORED if is_first else label for label, is_first in zip(one.labels, first, strict=True)]:
                return f"sequence {at} has other labels"
    return ""


def _collated(live: Live, row: Any) -> tuple[list[int], list[int], list[bool]]:
    """One sequence as it reaches the model, without what pads it: ids, labels, and where a collator says that a row begins. No loss is
    taken over the first token of a row there: nothing in the row predicts it."""
    batch = live.objects.loader.collate_fn([row])
    ids, labels, mask = batch["input_ids"], batch["labels"], batch.get("attention_mask")
    places = batch.get("position_ids")
    first = places == 0 if places is not None else library("torch").zeros_like(ids, dtype=library("torch").bool)
    if mask is not None:
        ids, labels, first = ids[mask.bool()], labels[mask.bool()], first[mask.bool()]
    return ids.reshape(-1).tolist(), labels.reshape(-1).tolist(), first.reshape(-1).tolist()


@contextmanager
def _undrawn() -> Generator[None]:
    """Generators as they were before."""
    numpy, torch = library("numpy"), library("torch")
    states = random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
