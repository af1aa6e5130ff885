"""Populations: an arm per source, and who may conclude from absence."""

import pytest

from countermark.evidence.members import (
    Misfiled,
    NotAttempted,
    Observed,
    OutputSeen,
    Population,
    ReadRefused,
    SourceReading,
    one_source,
)
from countermark.run.attempts import AttemptKey
from countermark.values import NonEmpty
from tests.faults import planted, proven_by
from tests.verdict.scenes import key, output, receipt

SEEN = Observed((output(1),), receipt("outputs", "a"))
EMPTY: Observed[OutputSeen] = Observed((), receipt("outputs", "b"))
UNSEEN = NotAttempted("on n2")
DOWN = ReadRefused("the disk failed", receipt("outputs", "c"))


def population(*readings: SourceReading[OutputSeen]) -> Population[OutputSeen]:
    found = NonEmpty.of(readings)
    assert found is not None
    return Population(found)


def source(arm: Observed[OutputSeen] | NotAttempted | ReadRefused, about: AttemptKey | None = None) -> SourceReading[OutputSeen]:
    return SourceReading("s", arm, about)


def test_a_refused_source_hides_no_member_of_another() -> None:
    both = population(source(DOWN), source(SEEN), source(UNSEEN))
    assert tuple(both.members()) == (output(1),)
    assert both.receipts() == (DOWN.receipt, SEEN.receipt)


@proven_by(planted(Population, "complete", lambda self: any(isinstance(reading.arm, Observed) for reading in self.readings)))
@pytest.mark.parametrize("blind", [UNSEEN, DOWN])
def test_only_a_complete_reading_by_every_source_says_that_there_is_none(blind: NotAttempted | ReadRefused) -> None:
    assert one_source("s", EMPTY).complete()
    assert population(source(EMPTY), source(SEEN)).complete()
    assert not population(source(EMPTY), source(blind)).complete()


def test_a_blind_source_is_blind_about_the_attempt_that_it_speaks_of() -> None:
    assert population(source(EMPTY, key(1)), source(SEEN, key(2))).blind_about() == frozenset()
    assert population(source(EMPTY, key(1)), source(DOWN, key(2))).blind_about() == {key(2)}
    assert population(source(UNSEEN), source(DOWN, key(2))).blind_about() == {None, key(2)}


def test_a_single_source_is_the_whole_population_under_its_name() -> None:
    assert one_source("s", SEEN) == population(source(SEEN))


def test_misfiled_receipts_are_kept_apart_from_members() -> None:
    strays = tuple(Misfiled(key(1), letter * 32) for letter in "def")
    one, other = Observed((), receipt("outputs", "a"), strays[:2]), Observed((), receipt("outputs", "b"), strays[2:])
    found = population(source(one), source(DOWN), source(other))
    assert tuple(found.misfiled()) == strays
    assert tuple(found.members()) == ()
