"""A file of samples is read with every fault on its line, and what it says is hashed apart from its ids."""

import json
from typing import Any

from countermark.experiments.faults import ClusterKeyUnknown, FaultsOmitted, SampleIdRepeated, SampleLineUnreadable, SamplesMissing
from countermark.values import NonEmpty, Refused, Sha256
from countermark.wire import sample_lines
from countermark.wire.sample_lines import FAULTS_MAX, Dataset, read_samples
from tests.faults import planted, proven_by


def _lines(*documents: Any) -> list[bytes]:
    return [json.dumps(each).encode() for each in documents]


def _read(lines: list[bytes], cluster: str | None = None) -> Dataset:
    found = read_samples(lines, cluster)
    assert isinstance(found, Dataset)
    return found


def test_a_file_of_samples() -> None:
    found = _read(
        [*_lines({"id": "q0", "question": "?", "page": 3}, {"id": 7, "question": "!", "page": "x"}, {"id": "q2"}), b" \n"], "page"
    )
    assert [(each.id, each.cluster) for each in found.asked] == [("q0", "3"), ("7", '"x"'), ("q2", None)]
    assert found.texts["7"] == '{"id": 7, "question": "!", "page": "x"}'


@proven_by(planted(sample_lines, "digest_of", lambda *parts: Sha256("1" * 64)))
def test_what_a_sample_says_is_hashed_apart_from_its_id() -> None:
    one = _read(_lines({"id": "a", "q": "x", "n": 1}, {"id": "b", "q": "y"}))
    renumbered = _read(_lines({"n": 1.0, "q": "x", "id": "b"}, {"q": "y", "id": "c"}))
    other = _read(_lines({"id": "a", "q": "x", "n": 2}, {"id": "b", "q": "y"}))
    assert [each.content for each in one.asked] == [each.content for each in renumbered.asked]
    assert one.digest != renumbered.digest != other.digest != one.digest
    assert one.asked[0].content != other.asked[0].content and one.asked[1] == other.asked[1]
    assert one.digest == _read([b'{"n":1,"q":"x","id":"a"}', b"", b'{ "id":"b","q":"y" }']).digest


@proven_by(planted(sample_lines, "at_most", lambda found: found[:1]))
def test_every_fault_is_named_with_its_line() -> None:
    lines = [
        *_lines({"id": "a"}, {"id": "a"}, [1], {"q": 1}, {"id": ""}, {"id": True}),
        b"{",
        b'{"id": "n", "x": NaN}',
        *_lines({"id": "b"}),
    ]
    assert read_samples(lines, "page") == Refused(
        NonEmpty(
            SampleIdRepeated(2, "a", 1),
            (
                SampleLineUnreadable(3, "[1] is no JSON object"),
                SampleLineUnreadable(4, "it has no id"),
                SampleLineUnreadable(5, "it has no id"),
                SampleLineUnreadable(6, "it has no id"),
                SampleLineUnreadable(7, "it is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
                SampleLineUnreadable(8, _why(b'{"id": "n", "x": NaN}')),
                ClusterKeyUnknown("page"),
            ),
        )
    )


def _why(line: bytes) -> str:
    found = read_samples([line])
    assert isinstance(found, Refused) and isinstance(found.defects.first, SampleLineUnreadable)
    assert found.defects.first.why.startswith("sample.x: ")
    return found.defects.first.why


def test_a_file_without_samples_and_one_of_faults_alone() -> None:
    assert read_samples([b"", b"  "]) == Refused(NonEmpty(SamplesMissing()))
    found = read_samples([b"["] * 3_000)
    assert isinstance(found, Refused) and len(found.defects) == FAULTS_MAX
    assert tuple(found.defects)[-1] == FaultsOmitted(3_000 - FAULTS_MAX + 1)
    (long,) = read_samples(_lines({"id": "x" * 2_000})).defects  # type: ignore[union-attr]
    assert long == SampleLineUnreadable(1, "its id has 2,000 characters, and 1,000 are the most")
