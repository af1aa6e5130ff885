"""What came of samples, the union of attempts, and what is still to be run."""

import math

import pytest

from countermark.experiments import samples
from countermark.experiments.samples import (
    ArmMetrics,
    Asked,
    Attempt,
    Errored,
    ResumeUnderOtherStamp,
    Sample,
    Scored,
    Union,
    Unscored,
    joined,
    missing,
    regraded,
    resumed,
)
from countermark.experiments.stamps import Stamp
from countermark.values import CompositionDigest, NonEmpty, Refused, WeightsRoot
from tests.faults import planted, proven_by

A, B = Stamp(WeightsRoot("a" * 64), "measured_around"), Stamp(WeightsRoot("b" * 64), "measured_around")


def _done(name: str, score: float = 1.0, repeat: int = 0) -> Sample:
    return Sample(name, repeat, Scored({"acc": score}, f"output of {name}"))


def _failed(name: str, repeat: int = 0) -> Sample:
    return Sample(name, repeat, Errored("crash"))


@proven_by(planted(samples, "joined", lambda attempts: joined(attempts[-1:])))
def test_the_union_of_attempts_and_not_the_newest() -> None:
    """One attempt finished 47 samples, the next one 13 of them again: 47 are finished and nothing is run again."""
    older = Attempt(A, tuple(_done(f"q{at}") for at in range(47)))
    newest = Attempt(A, tuple(_done(f"q{at}", 0.0) for at in range(13)))
    union = samples.joined([older, newest])
    assert union == Union(older.samples, (), (), (A,))
    assert missing([Asked(f"q{at}") for at in range(47)], 1, union.samples) == ()


@proven_by(planted(samples, "is_finished", lambda sample: True))
def test_what_failed_may_be_tried_once_more() -> None:
    asked = [Asked("q0"), Asked("q1"), Asked("q2")]
    first = Attempt(A, (_done("q0"), _failed("q1")))
    assert missing(asked, 2, first.samples) == (("q1", 0), ("q2", 0), ("q0", 1), ("q1", 1), ("q2", 1))
    second = Attempt(A, (_failed("q0"), _done("q1"), Sample("q2", 0, Unscored("no score", "output"))))
    union = joined([first, second])
    assert union.samples == (_done("q0"), _done("q1"), second.samples[2])
    assert missing(asked, 1, union.samples) == ()


def test_one_attempt_that_tells_of_a_sample_twice() -> None:
    union = joined([Attempt(A, (_done("q0"), _done("q0", 0.0), _done("q1")), (ArmMetrics(0, {"x": 1.0}),)),
                    Attempt(B, (_done("q1"),), (ArmMetrics(1, {"x": 2.0}), ArmMetrics(0, {"x": 3.0})))])  # fmt: skip
    assert union == Union((_done("q0"), _done("q1")), (ArmMetrics(0, {"x": 1.0}), ArmMetrics(1, {"x": 2.0})), (("q0", 0),), (A, B))


@proven_by(planted(samples, "spelled_stamp", lambda stamp: "wr1:…"))
def test_resuming_keeps_the_stored_stamp_and_refuses_another_by_both_names() -> None:
    assert resumed(A, None) == A
    assert resumed(A, Stamp(WeightsRoot("a" * 64))) == A
    assert resumed(None, None) is None
    assert resumed(A, B) == Refused(NonEmpty(ResumeUnderOtherStamp("wr1:" + "a" * 64, "wr1:" + "b" * 64)))
    assert resumed(None, B) == Refused(NonEmpty(ResumeUnderOtherStamp("none", "wr1:" + "b" * 64)))
    # The same root, loaded in another way.
    assert isinstance(resumed(A, Stamp(A.digest, composition=CompositionDigest("c" * 64))), Refused)


def test_a_regrade_takes_outputs_and_no_scores() -> None:
    stored = (_done("q0"), _failed("q1"), Sample("q2", 0, Unscored("", "output of q2"), cached=True), _done("q3"))
    graded = regraded(stored, {("q0", 0): {"f1": 0.5}, ("q1", 0): {"f1": 1.0}, ("q2", 0): {"f1": 0.25}, ("q3", 0): {"f1": None}})
    assert graded == (
        Sample("q0", 0, Scored({"f1": 0.5}, "output of q0")),
        _failed("q1"),
        Sample("q2", 0, Scored({"f1": 0.25}, "output of q2"), cached=True),
        Sample("q3", 0, Unscored("the grader gave it no score", "output of q3")),
    )
    assert stored[0] == _done("q0")


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e101])
def test_no_score_is_beyond_numbers(score: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Scored({"acc": score})
    with pytest.raises(ValueError, match="finite"):
        ArmMetrics(0, {"acc": score})
    with pytest.raises(ValueError, match="finite"):
        Scored({"acc": None})
