"""Weight edits as events: what is written is what is read, and every line that is none is refused by its number."""

import hashlib
import json
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights.difference import Numbers, TensorDifference, TensorSide
from countermark.weights.edits import EditUnreadable, TensorEdit
from countermark.wire import weight_edits
from countermark.wire.weight_edits import LINE_BYTES_MAX, edits_of, event_line, payload_of
from tests.faults import planted, proven_by

A, B = (Sha256(hashlib.sha256(text).hexdigest()) for text in (b"a", b"b"))
NUMBERS: Final = Numbers(6, 3, 2, 0.5, 0.25, 1, 0, 2.0, 2.0, "float")


def row(name: str = "w", shape: tuple[int, ...] = (2, 3), numbers: Numbers = NUMBERS) -> TensorDifference:
    return TensorDifference("changed", TensorSide(name, "F32", shape, A), TensorSide(name, "F32", shape, B), numbers)


def line(payload: object, **more: object) -> bytes:
    return json.dumps({"id": "1", "type": "notification", "session": "s", "time": "t", "payload": payload, **more}).encode()


def payload(**more: object) -> dict[str, object]:
    found: dict[str, object] = {"kind": "weights.edit", "tensor": "w", "changed": 1, "sha256Before": A.hex, "sha256After": B.hex}
    return {**found, **more}


def first_alone() -> AbstractContextManager[object]:
    """Only the first line that cannot be read is refused."""
    return planted(weight_edits, "Refused", lambda defects: Refused(NonEmpty(defects.first)))()


BROKEN: Final[dict[str, tuple[bytes, str]]] = {
    "no JSON": (b"{", "it is not JSON"),
    "an array": (b"[]", "it is not a JSON object"),
    "a key twice": (b'{"id":1,"id":2}', "a key occurs twice in one object"),
    "nested too deep": (b"[" * 100_000 + b"]" * 100_000, "it is nested too deep"),
    "a key that is none of an edit's": (line(payload(colour="red")), "Object contains unknown field `colour`"),
    "no tensor": (line({"kind": "weights.edit", "changed": 1}), "Object missing required field `tensor`"),
    "an empty name": (line(payload(tensor="")), "Expected `str` of length >= 1"),
    "a name too long": (line(payload(tensor="x" * 513)), "Expected `str` of length <= 512"),
    "a count below 0": (line(payload(changed=-1)), "Expected `int` >= 0"),
    "a count past 63 bits": (line(payload(changed=2**63)), ""),
    "a digest of another length": (line(payload(sha256Before="ab")), "Expected `str` matching regex"),
    "a digest with its end": (line(payload(sha256Before="a" * 64 + "\n")), "Expected `str` matching regex"),
    "a shape of 17 sizes": (line(payload(shape=[1] * 17)), "Expected `array` of length <= 16"),
    "a norm below 0": (line(payload(l2=-0.5)), "Expected `float` >= 0.0"),
    "a norm that is no number": (line(payload()).replace(b'"changed": 1', b'"changed": 1, "l2": NaN'), ""),
    "null": (line(payload(note=None)), "Expected `str`, got `null`"),
}


@proven_by(first_alone)
def test_every_line_that_is_no_event_is_named_and_none_hides_another() -> None:
    found = edits_of("e.jsonl", b"\n".join(text for text, _ in BROKEN.values()) + b"\n" + line(payload()))
    assert isinstance(found, Refused)
    assert [defect.edit for defect in found.defects] == [f"e.jsonl:{number}" for number in range(1, len(BROKEN) + 1)]


@pytest.mark.parametrize("name", BROKEN)
def test_each_says_what_is_wrong(name: str) -> None:
    text, why = BROKEN[name]
    found = edits_of("e", text)
    assert isinstance(found, Refused)
    (defect,) = found.defects
    assert isinstance(defect, EditUnreadable)
    assert why in defect.why


def test_a_line_has_a_longest_length() -> None:
    text = line(payload(note="")).replace(b'"note": ""', b'"note": "' + b"x" * LINE_BYTES_MAX + b'"')
    assert edits_of("e", text) == Refused(
        NonEmpty(EditUnreadable("e:1", f"the line has {len(text)} bytes, and {LINE_BYTES_MAX} are the most"))
    )


def test_other_events_and_empty_lines_are_passed_over_and_a_bare_payload_is_taken() -> None:
    text = b"\n".join((line({"kind": "chat"}), b"", line("text"), json.dumps(payload(sha256After=B.hex.upper())).encode()))
    assert edits_of("e", text) == (TensorEdit("e:4", "w", A, B),)


def test_what_is_written_has_sorted_keys_and_whole_numbers_where_they_are_whole() -> None:
    said = payload_of(row(numbers=Numbers(6, 3, 2, 4.0, 0.25, 1, 0, 2.0, 2.0, "float")), "wr1:before", None)
    assert said is not None
    assert event_line(said, "0", "s", "t").decode() == (
        '{"id":"0","payload":{"changed":3,"checkpointBefore":"wr1:before","dtype":"F32","kind":"weights.edit","l2":4,"maxAbs":0.25,'
        f'"nonFiniteCleared":0,"nonFiniteCreated":1,"sha256After":"{B.hex}","sha256Before":"{A.hex}","shape":[2,3],"tensor":"w",'
        '"valueChanged":2},"session":"s","time":"t","type":"notification"}\n'
    )


def test_a_shape_that_no_event_carries_is_left_out_and_said() -> None:
    said = payload_of(row(shape=(1,) * 17), None, None)
    assert said is not None
    assert ("shape" in said, said["note"]) == (False, "the shape has 17 sizes, more than an event carries, and is left out")
    assert edits_of("e", event_line(said, "0", "s", "t")) == (TensorEdit("e:1", "w", A, B, "F32"),)


def test_raw_data_has_no_numbers_but_the_bits() -> None:
    said = payload_of(row(numbers=Numbers(6, 3, None, None, None, 0, 0, None, None, "raw")), None, None)
    assert said is not None
    assert sorted(said) == ["changed", "dtype", "kind", "sha256After", "sha256Before", "shape", "tensor"]


@pytest.mark.parametrize("status", ["equal", "renamed", "reshaped", "cast", "only_a", "only_b"])
def test_rows_that_edit_no_values_of_one_tensor_are_no_events(status: Any) -> None:
    side = TensorSide("w", "F32", (1,), A)
    sides = {"only_a": (side, None), "only_b": (None, side)}.get(status, (side, side))
    assert payload_of(TensorDifference(status, *sides), None, None) is None


@given(
    st.text(min_size=1, max_size=40).filter(lambda text: not any("\ud800" <= each <= "\udfff" for each in text)),
    st.floats(0, allow_nan=False, allow_infinity=False),
    st.lists(st.integers(0, 2**40), max_size=16),
)
def test_what_is_written_is_what_is_read(name: str, norm: float, sizes: list[int]) -> None:
    said = payload_of(row(name, tuple(sizes), Numbers(6, 3, 2, norm, norm, 1, 0, 2.0, 2.0, "float")), "x", "y")
    assert said is not None
    text = event_line(said, "0", "s", "t")
    assert edits_of("e", text) == (TensorEdit("e:1", name, A, B, "F32", tuple(sizes)),)
    assert (json.loads(text)["payload"]["l2"], text.count(b"\n")) == (norm, 1)
