"""What an arm prints is read with every fault on its line, and none of them becomes a score."""

import json
from typing import Final

import pytest

from countermark.experiments.faults import (
    ArmMetricRepeated,
    FaultsOmitted,
    OutputFault,
    OutputLineUnreadable,
    OutputOfOtherRepeat,
    OutputOfUnknownSample,
    OutputRepeated,
    SampleMissing,
    ScoreUnusable,
    SeedNotUsed,
)
from countermark.experiments.samples import ArmMetrics, Errored, Sample, Scored, Unscored
from countermark.wire import arm_output
from countermark.wire.arm_output import ArmOutput, End, Exited, Killed, TimedOut, read_output
from countermark.wire.sample_lines import FAULTS_MAX
from tests.faults import planted, proven_by

ASKED: Final = ("q0", "q1", "q2")
CLEAN: Final = [f'{{"id": "{name}", "repeat": 1, "output": "says {name}", "scores": {{"acc": 1}}}}' for name in ASKED]


_WELL: Final = Exited(0)


def read(lines: list[str], end: End = _WELL, seed: int | None = 7) -> ArmOutput:
    return read_output([line.encode("utf-8", "surrogateescape") for line in lines], ASKED, 1, end, seed)


def faults(first: str, *more: str) -> tuple[OutputFault, ...]:
    """The faults of clean lines after their first was replaced and more were added."""
    return read([first, *CLEAN[1:], *more]).faults


def test_a_clean_output() -> None:
    log = ["Loading weights: 100%", "{'loss': 0.3}", '{"level": "info", "message": "half"}', "", "[1, 2]"]
    found = read([log[0], CLEAN[0], *log[1:], *CLEAN[1:]])
    assert found == ArmOutput(tuple(Sample(name, 1, Scored({"acc": 1.0}, f"says {name}")) for name in ASKED), None, (), 4, None)


def _line(document: object) -> str:
    return json.dumps(document)


@proven_by(planted(arm_output, "at_most", lambda found: []))
def test_each_fault_is_named_with_its_line() -> None:
    assert faults('{"id": "q0", "sco') == (
        OutputLineUnreadable(1, "it is not JSON (Unterminated string starting at: line 1 column 14 (char 13))"), SampleMissing("q0"),
    )  # fmt: skip
    assert faults(_line({"id": "q9", "scores": {"acc": 1}})) == (OutputOfUnknownSample(1, "q9"), SampleMissing("q0"))
    assert faults(CLEAN[0], CLEAN[1]) == (OutputRepeated(4, "q1", 2),)
    assert faults(CLEAN[0].replace(": 1,", ": 2,")) == (OutputOfOtherRepeat(1, 2, 1), SampleMissing("q0"))
    assert faults(_line({"id": "q0", "repeat": "1"})) == (OutputLineUnreadable(1, "its repeat '1' is no whole number"), SampleMissing("q0"))
    assert faults(_line({"id": True})) == (OutputLineUnreadable(1, "it has no id"), SampleMissing("q0"))
    assert faults(_line({"id": "q0", "scores": [1]})) == (OutputLineUnreadable(1, "its scores [1] are no JSON object"),)
    assert faults(_line({"id": "q0", "scores": {"acc": "1"}})) == (ScoreUnusable(1, "q0", "acc", "'1' is no number"),)
    assert faults(_line({"id": "q0", "seed": 8, "scores": {"acc": 1}})) == (SeedNotUsed(1, "7", "8"),)
    assert faults(CLEAN[0], _line({"metrics": 3})) == (OutputLineUnreadable(4, "its metrics 3 are no JSON object"),)
    assert faults(CLEAN[0], '{"metrics": {"x": 1}}', '{"metrics": {"x": 2}}') == (ArmMetricRepeated(5, "x"),)
    assert faults(CLEAN[0], '{"metrics": {"x": NaN}}') == (ScoreUnusable(4, "", "x", "nan is not finite"),)
    assert faults(CLEAN[0], '{"id": "q1", "id": "q2"}') == (OutputLineUnreadable(4, "it is not JSON (a key occurs twice in one object)"),)


@proven_by(planted(arm_output, "at_most", lambda found: found[:1]))
def test_two_faults_are_both_named() -> None:
    assert faults(_line({"id": "q9"}), CLEAN[2], '{"id": "q1", "repeat": 5}') == (
        OutputOfUnknownSample(1, "q9"), OutputRepeated(4, "q2", 3), OutputOfOtherRepeat(5, 5, 1), SampleMissing("q0"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("score", "why"),
    [
        ("NaN", "nan is not finite"),
        ("-Infinity", "-inf is not finite"),
        ("1e999", "inf is not finite"),
        ("1e200", "its size is beyond 1e+100"),
        ("1" * 400, "it is too large"),
        ("[]", "[] is no number"),
    ],
)
@proven_by(planted(arm_output, "_number", lambda raw: 0.0))
def test_what_is_no_finite_number_is_no_score_and_never_zero(score: str, why: str) -> None:
    found = read([f'{{"id": "q0", "output": "kept", "scores": {{"acc": {score}}}}}', *CLEAN[1:]])
    assert found.samples[0].outcome == Unscored("none of its scores is a number", "kept")
    assert found.faults == (ScoreUnusable(1, "q0", "acc", why),)
    beside = read([f'{{"id": "q0", "output": "kept", "scores": {{"acc": {score}, "f1": 0.5}}}}', *CLEAN[1:]])
    assert beside.samples[0].outcome == Scored({"acc": None, "f1": 0.5}, "kept")


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (Exited(0), Errored("missing", "the arm ended without a word of it")),
        (Exited(3), Errored("crash", "the arm ended with status 3")),
        (Killed(9), Errored("crash", "the arm was ended by signal 9")),
        (TimedOut(60.0), Errored("timeout", "the arm was stopped after 60 s")),
    ],
)
@proven_by(planted(arm_output, "SampleMissing", lambda name: SampleMissing("")))
def test_how_it_ended_says_why_it_is_missing(end: End, outcome: Errored) -> None:
    found = read(CLEAN[:1], end)
    assert found.samples[1:] == (Sample("q1", 1, outcome), Sample("q2", 1, outcome))
    assert found.faults == (SampleMissing("q1"), SampleMissing("q2"))


def test_other_outcomes() -> None:
    found = read([
        _line({"id": "q0", "output": {"b": 1, "a": [2.0]}, "scores": {"acc": True, "f1": None}, "cached": True, "seed": 7}),
        _line({"id": "q1", "error": "CUDA out of memory"}), _line({"id": "q2", "output": "ungraded"}),
    ])  # fmt: skip
    assert found.samples == (
        Sample("q0", 1, Scored({"acc": 1.0, "f1": None}, '{"a":[2],"b":1}'), cached=True),
        Sample("q1", 1, Errored("reported", "CUDA out of memory")),
        Sample("q2", 1, Unscored("it has no score", "ungraded")),
    )
    assert (found.faults, found.seed_used) == ((), 7)


def test_an_arm_that_tells_its_numbers_alone() -> None:
    found = read([_line({"metrics": {"edited_weights": 1204, "gain_pp": 2.5, "gain_per_weight": 0.0021}})])
    assert found == ArmOutput((), ArmMetrics(1, {"edited_weights": 1204.0, "gain_pp": 2.5, "gain_per_weight": 0.0021}), (), 0, None)


def test_seeds_that_change_within_a_job() -> None:
    lines = [_line({"id": name, "seed": at, "scores": {"acc": 1}}) for at, name in enumerate(ASKED)]
    assert read(lines, seed=None).faults == (SeedNotUsed(2, "0", "1"), SeedNotUsed(3, "0", "2"))
    assert read([_line({"id": "q0", "seed": "7"}), *CLEAN[1:]]).faults == (OutputLineUnreadable(1, "its seed '7' is no whole number"),)


def test_what_is_hostile_is_bounded() -> None:
    many = read_output([b'{"id": "x"}'] * 5_000, ASKED, 0, Exited(0))
    assert len(many.faults) == FAULTS_MAX and many.faults[-1] == FaultsOmitted(5_000 + 3 - FAULTS_MAX + 1)
    deep = read(['{"id": ' + "[" * 100_000, *CLEAN])
    assert [type(each) for each in deep.faults] == [OutputLineUnreadable]
    long = "m" * 300
    (fault,) = read([_line({"id": "q0", "scores": {long: 1}}), *CLEAN[1:]]).faults
    assert isinstance(fault, ScoreUnusable) and len(fault.metric) == 200
    crowd = read([_line({"id": "q0", "scores": {f"m{at}": 1 for at in range(1_500)}}), *CLEAN[1:]])
    assert crowd.faults == (OutputLineUnreadable(1, "it has 1,500 scores, and 1,000 are the most"),)
    odd = read(['{"id": "\\ud800"}', '{"id": "q0", "output": "\\ud800"}', *CLEAN[1:]])
    assert odd.faults == (OutputLineUnreadable(1, "its id is no Unicode text"),)
    assert odd.samples[0].outcome == Unscored("it has no score", "\ufffd")
