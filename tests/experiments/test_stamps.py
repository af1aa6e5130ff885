"""How well a stamp is known, what raises it, and when two are of the same weights."""

import pytest

from countermark.experiments import stamps
from countermark.experiments.stamps import (
    RAN,
    Stamp,
    StampContradicted,
    StampIncomparable,
    WeightsChanged,
    asserted,
    at_least,
    computed_in_arm,
    measured_again,
    read_digest,
    sameness,
)
from countermark.values import CompositionDigest, FilesDigest, NonEmpty, Refused, Sha256, Unreadable, WeightsRoot
from tests.faults import planted, proven_by

A, B = "a" * 64, "b" * 64


def test_the_levels_are_ordered() -> None:
    assert RAN == ("asserted", "measured_before", "measured_around", "computed_in_arm")
    assert [[at_least(one, other) for other in RAN] for one in RAN] == [[True] * (at + 1) + [False] * (3 - at) for at in range(4)]


def test_a_digest_from_its_spelling() -> None:
    assert asserted("A" * 64) == Stamp(Sha256(A), "asserted", "unknown")
    assert [read_digest(f"{kind}:{A}") for kind in ("wr1", "mc1", "fd1", "sha256")] == [
        WeightsRoot(A), CompositionDigest(A), FilesDigest(A), Sha256(A),
    ]  # fmt: skip
    for wrong in ("a" * 63, "xx1:" + A, "wr1:" + "A" * 64, "", None, 7, "g" * 64):
        assert isinstance(read_digest(wrong), Unreadable)


@proven_by(planted(stamps, "_raised", lambda stamp, ran: stamp))
def test_measured_before_and_after() -> None:
    before = Stamp(WeightsRoot(A), "measured_before", "derived")
    assert measured_again(before, WeightsRoot(A)) == Stamp(WeightsRoot(A), "measured_around", "derived")
    assert measured_again(before, WeightsRoot(B)) == Refused(NonEmpty(WeightsChanged("wr1:" + A, "wr1:" + B)))
    assert measured_again(before, FilesDigest(A)) == Refused(NonEmpty(StampIncomparable("wr1:" + A, "fd1:" + A)))
    with pytest.raises(ValueError, match="never measured"):
        measured_again(Stamp(WeightsRoot(A)), WeightsRoot(A))


def test_computed_in_the_arm() -> None:
    stamp = Stamp(WeightsRoot(A), composition=CompositionDigest(B))
    assert computed_in_arm(stamp, WeightsRoot(A)) == Stamp(WeightsRoot(A), "computed_in_arm", composition=CompositionDigest(B))
    assert computed_in_arm(stamp, CompositionDigest(B)) == Stamp(WeightsRoot(A), "computed_in_arm", composition=CompositionDigest(B))
    assert computed_in_arm(stamp, CompositionDigest(A)) == Refused(NonEmpty(StampContradicted("mc1:" + B, "mc1:" + A)))
    assert computed_in_arm(stamp, WeightsRoot(B)) == Refused(NonEmpty(StampContradicted("wr1:" + A, "wr1:" + B)))
    assert computed_in_arm(stamp, FilesDigest(A)) == Refused(NonEmpty(StampIncomparable("wr1:" + A, "fd1:" + A)))
    strongest = Stamp(WeightsRoot(A), "computed_in_arm")
    assert measured_again(strongest, WeightsRoot(A)) == strongest


def test_the_same_weights() -> None:
    def told(one: Stamp, other: Stamp) -> tuple[str, str]:
        return sameness(one, other), sameness(other, one)

    a, b = Stamp(WeightsRoot(A)), Stamp(WeightsRoot(B))
    loaded = Stamp(WeightsRoot(A), composition=CompositionDigest(A))
    assert told(a, a) == ("same", "same")
    assert told(a, b) == ("different", "different")
    assert told(a, Stamp(FilesDigest(A))) == ("cannot_tell", "cannot_tell")
    assert told(a, Stamp(CompositionDigest(A))) == ("cannot_tell", "cannot_tell")
    assert told(loaded, Stamp(CompositionDigest(A))) == ("same", "same")
    assert told(loaded, Stamp(CompositionDigest(B))) == ("different", "different")
    # One root that is loaded in two ways is not the same that ran.
    assert told(loaded, Stamp(WeightsRoot(A), composition=CompositionDigest(B))) == ("different", "different")


def test_a_stamp_holds_what_it_can() -> None:
    assert Stamp(FilesDigest(A)).kind == "fd1"
    for wrong in ({"ran": "seen"}, {"origin": "here"}):
        with pytest.raises(ValueError, match="known levels"):
            Stamp(WeightsRoot(A), **wrong)
    with pytest.raises(ValueError, match="beside a weights root"):
        Stamp(FilesDigest(A), composition=CompositionDigest(B))
