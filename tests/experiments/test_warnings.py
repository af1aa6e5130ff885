"""Nothing is warned of a clean pair, each trigger brings its own warning and no other, and two triggers bring both."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from countermark.experiments import comparison, warnings
from countermark.experiments.comparison import Comparison, compare
from countermark.experiments.samples import Attempt, Errored, Sample, Scored, joined
from countermark.experiments.sides import Side
from countermark.experiments.specs import Decoding
from countermark.experiments.stamps import Stamp
from countermark.experiments.warnings import WARNING_CODES, ComparisonWarning, code_of
from countermark.values import CompositionDigest, NonEmpty, Sha256, WeightsRoot
from tests.experiments.arms import GRADER, ROOT_A, ROOT_B, forty, scored, side, with_stamp, without_stamp
from tests.faults import planted, proven_by

Break = Callable[[Side, Side], tuple[Side, Side]]


def codes(a: Side, b: Side, *more: Side) -> list[str]:
    """The codes that a comparison warns of, in its order."""
    return [code_of(type(each)) for each in found(a, b, *more).warnings]


def found(a: Side, b: Side, *more: Side) -> Comparison:
    compared = compare(a, NonEmpty(b, more), None)
    assert isinstance(compared, Comparison)
    return compared


def one(a: Side, b: Side) -> ComparisonWarning:
    (warning,) = found(a, b).warnings
    return warning


def _same_weights(a: Side, b: Side) -> tuple[Side, Side]:
    # Equal scores, so that nothing but the weights is warned of; one pair differs among the outputs alone.
    return a, with_stamp(replace(b, came=a.came), Stamp(ROOT_A, "measured_around"))


def _other_scores(a: Side, b: Side) -> tuple[Side, Side]:
    return a, with_stamp(b, Stamp(ROOT_A, "measured_around"))


def _duplicate(a: Side, b: Side) -> tuple[Side, Side]:
    again = Sample("q3", 0, Scored({"acc": 0.0}, "again"))
    return a, replace(b, came=joined([Attempt(b.stamp, (*b.came.samples, again))]))


def _cached(a: Side, b: Side) -> tuple[Side, Side]:
    first, *rest = b.came.samples
    return a, replace(b, came=replace(b.came, samples=(replace(first, cached=True), *rest)))


def _partial(a: Side, b: Side) -> tuple[Side, Side]:
    *rest, _ = b.came.samples
    return a, replace(b, came=replace(b.came, samples=(*rest, Sample("q39", 0, Errored("crash")))))


def _identical(a: Side, b: Side) -> tuple[Side, Side]:
    return a, replace(b, came=replace(b.came, samples=tuple(
        replace(mine, outcome=Scored(mine.outcome.scores, theirs.outcome.output))
        for mine, theirs in zip(b.came.samples, a.came.samples, strict=True)
        if isinstance(mine.outcome, Scored) and isinstance(theirs.outcome, Scored)
    )))  # fmt: skip


def _few(a: Side, b: Side) -> tuple[Side, Side]:
    return tuple(replace(each, asked=each.asked[11:]) for each in (a, b))  # type: ignore[return-value]


def _alike(a: Side, b: Side) -> tuple[Side, Side]:
    values = [0.25, 0.5] * 20
    return side("base", scored(values, said="a"), 40), side("edited", scored([each + 0.25 for each in values], said="b"), 40)


#: What breaks the clean pair in one place, the codes that this brings, and the part of the module without which it would not be seen.
TRIGGERS: Final[dict[str, tuple[Break, list[str]]]] = {
    "SAME_WEIGHTS": (_same_weights, ["SAME_WEIGHTS", "ZERO_VARIANCE"]),
    "ONE_SIDED_STAMP": (lambda a, b: (a, without_stamp(b)), ["ONE_SIDED_STAMP"]),
    "NO_STAMP": (lambda a, b: (without_stamp(a), without_stamp(b)), ["NO_STAMP"]),
    "ASSERTED_ONLY": (lambda a, b: (a, with_stamp(b, Stamp(ROOT_B))), ["ASSERTED_ONLY"]),
    "CANNOT_TELL": (lambda a, b: (a, with_stamp(b, Stamp(CompositionDigest("c" * 64), "measured_around"))), ["CANNOT_TELL"]),
    "DATASET_DIFFERS": (lambda a, b: (a, replace(b, dataset=Sha256("1" * 64))), ["DATASET_DIFFERS"]),
    "GRADER_DIFFERS": (lambda a, b: (a, replace(b, grader=None)), ["GRADER_DIFFERS"]),
    "DECODING_DIFFERS": (lambda a, b: (a, replace(b, decoding=Decoding.of({"temperature": 1}))), ["DECODING_DIFFERS"]),
    "SEED_UNRECORDED": (lambda a, b: (a, replace(b, seed_used=None)), ["SEED_UNRECORDED"]),
    "REPEATS_DIFFER": (lambda a, b: (a, replace(b, repeats=2)), ["REPEATS_DIFFER", "PARTIAL_RUN"]),
    "DUPLICATE_ID": (_duplicate, ["DUPLICATE_ID"]),
    "CACHED_SAMPLES": (_cached, ["CACHED_SAMPLES"]),
    "MIXED_STAMPS": (lambda a, b: (a, replace(b, came=replace(b.came, stamps=(b.stamp, Stamp(ROOT_A))))), ["MIXED_STAMPS"]),
    "PARTIAL_RUN": (_partial, ["PARTIAL_RUN"]),
    "IDENTICAL_OUTPUTS": (_identical, ["IDENTICAL_OUTPUTS"]),
    "SCORES_DIFFER_SAME_WEIGHTS": (_other_scores, ["SAME_WEIGHTS", "SCORES_DIFFER_SAME_WEIGHTS"]),
    "LOW_N": (_few, ["LOW_N"]),
    "ZERO_VARIANCE": (_alike, ["ZERO_VARIANCE"]),
}


def test_every_code_has_a_trigger() -> None:
    assert list(TRIGGERS) == list(WARNING_CODES)


@proven_by(planted(warnings, "FEW_BELOW", 41), planted(warnings, "sameness", lambda a, b: "cannot_tell"))
def test_a_clean_pair_is_not_warned_of() -> None:
    assert codes(*forty()) == []


@pytest.mark.parametrize("code", TRIGGERS)
@proven_by(planted(comparison, "merged", lambda given: ()))
def test_each_trigger_brings_its_warning(code: str) -> None:
    trigger, expected = TRIGGERS[code]
    assert codes(*trigger(*forty())) == expected


_PARTS: Final = {
    "_of_weights": ("ONE_SIDED_STAMP", "NO_STAMP", "ASSERTED_ONLY", "CANNOT_TELL", "SAME_WEIGHTS"),
    "_of_conditions": ("DATASET_DIFFERS", "GRADER_DIFFERS", "DECODING_DIFFERS", "SEED_UNRECORDED", "REPEATS_DIFFER"),
    "_of_side": ("DUPLICATE_ID", "CACHED_SAMPLES", "MIXED_STAMPS", "PARTIAL_RUN"),
    "_of_answers": ("IDENTICAL_OUTPUTS", "SCORES_DIFFER_SAME_WEIGHTS"),
    "_of_numbers": ("LOW_N", "ZERO_VARIANCE"),
}


@pytest.mark.parametrize(("part", "code"), [(part, code) for part, listed in _PARTS.items() for code in listed])
def test_without_its_part_a_trigger_is_not_seen(part: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger, _ = TRIGGERS[code]
    sides = trigger(*forty())
    assert code in codes(*sides)
    monkeypatch.setattr(warnings, part, lambda *_: ())
    assert code not in codes(*sides)


def _first_wins(given: list[ComparisonWarning]) -> tuple[ComparisonWarning, ...]:
    return warnings.merged(given)[:1]


@proven_by(planted(comparison, "merged", _first_wins))
def test_two_at_once_are_both_named() -> None:
    a, b = forty()
    assert codes(*_cached(a, replace(b, dataset=None, grader=None))) == ["DATASET_DIFFERS", "GRADER_DIFFERS", "CACHED_SAMPLES"]
    assert codes(without_stamp(a), _partial(a, replace(b, seed_used=None))[1]) == ["ONE_SIDED_STAMP", "SEED_UNRECORDED", "PARTIAL_RUN"]


@proven_by(planted(warnings, "_regrades", lambda a, b: False))
def test_a_regrade_has_the_same_weights_and_outputs_by_design() -> None:
    a, b = forty()
    child = replace(_identical(a, with_stamp(b, Stamp(ROOT_A, "measured_around")))[1], regrades=a.experiment, grader=GRADER)
    assert codes(a, child) == []
    assert codes(child, a) == []
    assert codes(child, replace(child, experiment="other", came=a.came)) == []


def test_what_a_warning_holds() -> None:
    a, b = forty()
    names = ("expbase:base", "expedited:edited")
    assert one(*_few(a, b)) == warnings.LowN(*names, (warnings.FewPairs("acc", 29),), 30)
    assert one(*_duplicate(a, b)) == warnings.DuplicateId(names[1], ("q3",), 1)
    assert one(*_cached(a, b)) == warnings.CachedSamples(names[1], 1)
    assert one(a, replace(b, cache_uncounted=True)) == warnings.CachedSamples(names[1], None)
    assert one(*_partial(a, b)) == warnings.PartialRun(names[1], 40, 39, 0, 1, 0)
    assert one(*_identical(a, b)) == warnings.IdenticalOutputs(names, 40)
    assert one(a, without_stamp(b)) == warnings.OneSidedStamp(*names)
    assert one(without_stamp(a), b) == warnings.OneSidedStamp(names[1], names[0])
    assert one(without_stamp(a), without_stamp(b)) == warnings.NoStamp(names)


@proven_by(planted(comparison, "merged", lambda given: tuple(given)))
def test_three_arms_with_the_same_outputs_are_one_warning() -> None:
    a, b = forty()
    third = with_stamp(replace(_identical(a, b)[1], arm="third"), Stamp(WeightsRoot("c" * 64), "measured_around"))
    told = found(a, _identical(a, b)[1], third).warnings
    assert told == (warnings.IdenticalOutputs(("expbase:base", "expedited:edited", "expedited:third"), 40),)


def test_two_logs_of_which_a_cache_answered_one() -> None:
    """Two imported logs without stamps, the second all from a cache: told as such, with equal outputs, and never called equal."""
    a, b = (without_stamp(each) for each in forty())
    log = replace(_identical(a, b)[1], came=a.came, cache_uncounted=True)
    assert codes(a, log) == ["NO_STAMP", "CACHED_SAMPLES", "IDENTICAL_OUTPUTS", "ZERO_VARIANCE"]
