"""What is kept of words that somebody else wrote: all of them, or as many as there is room for and how many are missing."""

from countermark.run.records import bounded


def test_words_that_are_too_long_are_cut_with_the_number_of_those_left_out() -> None:
    assert bounded("x" * 100, 100) == "x" * 100
    assert bounded("y" + "x" * 100, 100) == "y" + "x" * 59 + "… (41 more characters)"
    assert bounded("x" * 20_000, 100) == "x" * 60 + "… (19940 more characters)"
