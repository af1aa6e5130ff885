"""A resolved spec, its hash and its jobs; and everything that is named wrongly, at once."""

from dataclasses import replace

import pytest

from countermark.experiments import specs
from countermark.experiments.specs import (
    ARMS_MAX,
    Arm,
    ArmRepeated,
    ArmsMissing,
    ArmsTooMany,
    ArmUnnamed,
    ArmWithoutCommand,
    Decoding,
    Job,
    Range,
    RepeatsOutOfRange,
    RunIdentity,
    Spec,
    SpecTextUnreadable,
    WeightsOfUnknownArm,
    WeightsRepeated,
    WeightsWithoutArm,
    job_config,
    jobs,
    named_weights,
    spec_defects,
)
from countermark.experiments.stamps import Stamp
from countermark.values import CompositionDigest, NonEmpty, Refused, Sha256, WeightsRoot
from tests.faults import planted, proven_by

ARMS = (Arm("base", ("python", "eval.py")), Arm("edited", ("python", "eval.py", "--lora")))
SPEC = Spec(Sha256("d" * 64), ARMS, repeats=2, seed=7, higher=frozenset({"gain_pp"}), ranges={"acc": Range(0.0, 1.0)})
STAMP = Stamp(WeightsRoot("a" * 64), "measured_around")

_OTHERS = {
    "dataset": Sha256("e" * 64), "arms": ARMS[:1], "repeats": 3, "seed": 8, "cluster": "page", "higher": frozenset[str](),
    "ranges": {"acc": Range(0.0, 2.0)}, "task": Sha256("1" * 64), "grader": Sha256("2" * 64), "decoding": Decoding.of({"top_p": 0.5}),
    "timeout_s": 60.0,
}  # fmt: skip


@pytest.mark.parametrize("field", _OTHERS)
@proven_by(planted(specs, "canonical_json", lambda document: b"{}"))
def test_every_part_of_a_spec_counts_in_its_hash(field: str) -> None:
    assert replace(SPEC, **{field: _OTHERS[field]}).digest() != SPEC.digest()


def test_equal_specs_hash_alike_however_they_were_written() -> None:
    again = replace(SPEC, ranges=dict(reversed(SPEC.ranges.items())), decoding=Decoding.of({"a": 1, "b": 2.0}))
    assert again.digest() == replace(SPEC, decoding=Decoding.of({"b": 2, "a": 1.0})).digest()
    # What was hashed once is hashed so for ever: stored experiments are found by it.
    assert SPEC.digest().hex == "4f00733b78071bf2d2582858ad71aa3a8dc715a105760ee2fd24880e92bbe328"


def test_jobs_are_arms_by_repeats_with_equal_seeds() -> None:
    assert jobs(SPEC) == (Job(ARMS[0], 0, 7), Job(ARMS[1], 0, 7), Job(ARMS[0], 1, 8), Job(ARMS[1], 1, 8))
    assert {job.seed for job in jobs(replace(SPEC, seed=None))} == {None}


@proven_by(planted(specs, "stamp_identity", lambda stamp: None))
def test_the_config_of_a_job_covers_its_command_files_seed_and_stamp() -> None:
    job = jobs(SPEC)[0]
    files = {"eval.py": Sha256("3" * 64)}
    whole = job_config(SPEC, job, STAMP, files)
    others = [
        job_config(SPEC, replace(job, seed=8), STAMP, files),
        job_config(SPEC, jobs(SPEC)[1], STAMP, files),
        job_config(SPEC, job, None, files),
        job_config(SPEC, job, Stamp(WeightsRoot("b" * 64)), files),
        job_config(SPEC, job, replace(STAMP, composition=CompositionDigest("c" * 64)), files),
        job_config(SPEC, job, STAMP, {"eval.py": Sha256("4" * 64)}),
        job_config(replace(SPEC, grader=Sha256("2" * 64)), job, STAMP, files),
        job_config(replace(SPEC, decoding=Decoding.of({})), job, STAMP, files),
        job_config(replace(SPEC, dataset=Sha256("e" * 64)), job, STAMP, files),
    ]
    assert len({whole, *others}) == 10
    # How well the weights are known does not make another job of it.
    assert job_config(SPEC, job, replace(STAMP, ran="asserted"), files) == whole


def test_the_identity_of_a_run() -> None:
    run = RunIdentity(STAMP, Sha256("d" * 64), None, None, None, 7, 2)
    others = [
        replace(run, stamp=None), replace(run, dataset=Sha256("e" * 64)), replace(run, task=Sha256("1" * 64)),
        replace(run, grader=Sha256("1" * 64)), replace(run, decoding=Decoding.of({})), replace(run, seed=None), replace(run, repeats=1),
    ]  # fmt: skip
    assert len({each.digest() for each in (run, *others)}) == 8


@proven_by(planted(specs, "is_unicode", lambda text: True))
def test_everything_that_is_wrong_with_arms_is_named() -> None:
    assert spec_defects(ARMS, 1) == ()
    wrong = (Arm("no name", ("x",)), Arm("a", ()), Arm("a", ("\udc80",)), Arm("b", ("",)))
    assert spec_defects(wrong, 0) == (
        ArmUnnamed("no name"), ArmRepeated("a"), ArmWithoutCommand("a"), ArmWithoutCommand("b"), SpecTextUnreadable("the command of a"),
        RepeatsOutOfRange(0, 100_000),
    )  # fmt: skip
    assert spec_defects((), 1) == (ArmsMissing(),)
    assert spec_defects([Arm(f"a{at}", ("x",)) for at in range(ARMS_MAX + 1)], 1) == (ArmsTooMany(ARMS_MAX + 1, ARMS_MAX),)
    with pytest.raises(ValueError, match="made of what was read"):
        replace(SPEC, arms=())
    with pytest.raises(ValueError, match="finite ends"):
        Range(1.0, 1.0)


@proven_by(planted(specs, "WeightsRepeated", ArmRepeated))
def test_whose_weights_they_are() -> None:
    assert named_weights(ARMS, ["base=/a", "edited=/b=c"]) == {"base": "/a", "edited": "/b=c"}
    assert named_weights(ARMS[:1], ["/weights/a=b"]) == {"base": "/weights/a=b"}
    assert named_weights(ARMS[:1], ["base=/a"]) == {"base": "/a"}
    assert named_weights(ARMS, []) == {}
    assert named_weights(ARMS, ["/a", "bse=/b", "base=/a", "base=/c"]) == Refused(
        NonEmpty(WeightsWithoutArm("/a", ("base", "edited")), (WeightsOfUnknownArm("bse", ("base", "edited")), WeightsRepeated("base")))
    )
