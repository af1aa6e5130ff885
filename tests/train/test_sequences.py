"""Rows to sequences: cut, joined, masked, and refused where they are none."""

import pytest

from countermark.train import CannotTrain, sequences
from countermark.train.sequences import IGNORED, ROWS_JOINED, Preparation, Tokenize, prepare
from tests.faults import planted, proven_by

#: Letters to numbers; the end of a sequence is ``.``, 0.
LETTERS = Tokenize(lambda text: [0 if letter == "." else ord(letter) - 96 for letter in text], ".")


def made(
    rows: list[dict[str, object]], length: int = 4, packing: str = "none", mask: str = "all_tokens"
) -> list[tuple[list[int], list[int]]]:
    return [(one.ids.tolist(), one.labels.tolist()) for one in prepare(rows, LETTERS, Preparation(length, packing, mask))]


def reasons(rows: list[dict[str, object]], packing: str = "none", mask: str = "all_tokens") -> tuple[str, ...]:
    with pytest.raises(CannotTrain) as caught:
        made(rows, packing=packing, mask=mask)
    return caught.value.reasons


def test_texts_are_ended_once_and_cut_at_the_end() -> None:
    assert made([{"text": "ab"}, {"text": "ab."}, {"text": "abcdef"}]) == [
        ([1, 2, 0], [1, 2, 0]),
        ([1, 2, 0], [1, 2, 0]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
    ]


def test_prompts_are_masked_where_completions_are_asked_for() -> None:
    row: dict[str, object] = {"prompt": "ab", "completion": "c"}
    assert made([row]) == [([1, 2, 3, 0], [1, 2, 3, 0])]
    assert made([row], mask="completion_only") == [([1, 2, 3, 0], [IGNORED, IGNORED, 3, 0])]


def test_a_completion_begins_where_the_ids_first_differ() -> None:
    """A tokenizer may join the end of the prompt with the beginning of the completion."""
    pairs = Tokenize(lambda text: [sum(map(ord, text[at : at + 2])) for at in range(0, len(text), 2)], ".")
    row: dict[str, object] = {"prompt": "abc", "completion": "def"}
    (one,) = prepare([row], pairs, Preparation(9, "none", "completion_only"))
    assert one.labels.tolist() == [IGNORED, *one.ids.tolist()[1:]]


def test_a_sequence_without_any_label_is_left_out_unless_it_is_joined() -> None:
    rows: list[dict[str, object]] = [{"prompt": "abcdef", "completion": "g"}, {"prompt": "a", "completion": "b"}]
    assert made(rows, mask="completion_only") == [([1, 2, 0], [IGNORED, 2, 0])]
    assert made(rows, packing="concat_split", mask="completion_only") == [
        ([1, 2, 3, 4], [IGNORED] * 4),
        ([5, 6, 7, 0], [IGNORED, IGNORED, 7, 0]),
        ([1, 2, 0], [IGNORED, 2, 0]),
    ]


def test_rows_of_which_nothing_is_left_are_none() -> None:
    rows: list[dict[str, object]] = [{"prompt": "abcdef", "completion": "g"}] * 2
    assert reasons(rows, mask="completion_only") == ("None of the 2 rows has a token under the loss within the sequence length of 4.",)


@proven_by(planted(sequences, "ROWS_JOINED", 10**9))
def test_a_thousand_rows_are_joined_at_a_time() -> None:
    rows: list[dict[str, object]] = [{"text": "a"}] * (ROWS_JOINED + 1)
    lengths = [len(ids) for ids, _ in made(rows, length=3, packing="concat_split")]
    assert lengths == [3] * 666 + [2, 2]


BAD = {
    "nothing": ([], "There is no row."),
    "no text": ([{"text": "a"}, {"other": "b"}], "Row 2 has neither"),
    "no completion": ([{"prompt": "a"}], "Row 1 has neither"),
    "no text but a number": ([{"text": 7}], "Row 1 has neither"),
    "everything": ([{"text": "a", "prompt": "b", "completion": "c"}], "Row 1 has text beside"),
    "conversation": ([{"messages": [{"role": "user", "content": "a"}]}], "Row 1 is a conversation"),
    "two kinds": ([{"text": "a"}, {"prompt": "b", "completion": "c"}], "Some rows have text"),
}


@pytest.mark.parametrize(("rows", "beginning"), BAD.values(), ids=BAD.keys())
def test_rows_that_are_none_are_named(rows: list[dict[str, object]], beginning: str) -> None:
    (reason,) = reasons(rows)
    assert reason.startswith(beginning)


@proven_by(planted(sequences, "bad_rows", lambda rows, mask: sequences._why_bad(rows[1]) and (f"Row 2 {sequences._why_bad(rows[1])}",)))
def test_every_bad_row_is_named_and_beyond_twenty_counted() -> None:
    rows: list[dict[str, object]] = [{"text": "a"}, *({"other": str(number)} for number in range(30))]
    found = reasons(rows)
    assert [reason.split()[1] for reason in found[:-1]] == [str(number) for number in range(2, 22)]
    assert found[-1] == "10 more rows are of no known kind."


def test_a_mask_that_the_rows_cannot_have_is_refused() -> None:
    """TRL would take the loss over everything here and say nothing."""
    (reason,) = reasons([{"text": "a"}], mask="completion_only")
    assert reason.startswith("loss_mask completion_only needs")


def test_what_is_not_built_is_refused_all_at_once() -> None:
    found = reasons([{"text": "a"}], packing="bfd", mask="last_turn")
    assert [reason.partition(":")[0] for reason in found] == ["packing bfd", "loss_mask last_turn"]
