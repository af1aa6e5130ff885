"""Weight edits as events: what is written is what is read, and every line that is none is refused by its number."""

import hashlib
import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.app.recording import edit_event, edits_found
from countermark.sessions.edits import EventFieldInvalid, WeightEdit
from countermark.values import NonEmpty, Refused, Sha256, shown
from countermark.weights.difference import Numbers, TensorDifference, TensorSide, WeightsDifference, totals_of
from countermark.weights.edits import EditUnreadable, TensorEdit
from countermark.wire.events import event_line
from countermark.wire.weight_edits import edit_of, edits_of
from tests.faults import proven_by
from tests.wire.test_events import first_alone

A, B = (Sha256(hashlib.sha256(text).hexdigest()) for text in (b"a", b"b"))
ROOT: Final = f"wr1:{A.hex}"
NUMBERS: Final = Numbers(6, 3, 2, 0.5, 0.25, 1, 0, 2.0, "float")


def row(name: str = "w", shape: tuple[int, ...] = (2, 3), numbers: Numbers = NUMBERS) -> TensorDifference:
    return TensorDifference("changed", TensorSide(name, "F32", shape, A), TensorSide(name, "F32", shape, B), numbers)


def line(payload: object, **more: object) -> bytes:
    return json.dumps({"id": "1", "type": "notification", "session": "s", "time": "t", "payload": payload, **more}).encode()


def payload(**more: object) -> dict[str, object]:
    found: dict[str, object] = {"kind": "weights.edit", "tensor": "w", "changed": 1, "sha256Before": A.hex, "sha256After": B.hex}
    return {**found, **more}


BROKEN: Final[dict[str, tuple[bytes, str]]] = {
    "no JSON": (b"{", "it is not JSON"),
    "an array": (b"[]", "it is not a JSON object"),
    "a key twice": (b'{"id":1,"id":2}', "a key occurs twice in one object"),
    "nested too deep": (b"[" * 100_000 + b"]" * 100_000, "it is nested too deep"),
    "a key that is none of an edit's": (line(payload(colour="red")), "'colour' is no field of it"),
    "no tensor": (line({"kind": "weights.edit", "changed": 1}), "tensor is missing"),
    "a count below 0": (line(payload(changed=-1)), "changed is -1; wanted: a whole number from 0 to 2^63 − 1"),
    "a norm that is no number": (
        line(payload()).replace(b'"changed": 1', b'"changed": 1, "l2": NaN'),
        "l2 is nan; wanted: a finite number, 0 or more",
    ),
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


def test_every_field_of_a_line_that_is_wrong_is_named() -> None:
    assert edits_of("e", line(payload(l2=-1, note=None))) == Refused(
        NonEmpty(
            EditUnreadable("e:1", "l2 is -1; wanted: a finite number, 0 or more"),
            (EditUnreadable("e:1", "note is None; wanted: a text of at most 2,000 characters"),),
        )
    )


def test_other_events_and_empty_lines_are_passed_over_and_a_bare_payload_is_taken() -> None:
    text = b"\n".join((line({"kind": "chat"}), b"", line("text"), json.dumps(payload(sha256After=B.hex.upper())).encode()))
    assert edits_of("e", text) == (TensorEdit("e:4", "w", A, B),)


def test_a_changed_tensor_is_an_edit() -> None:
    assert edit_of(row(), ROOT, None) == WeightEdit(
        "w", 3, (2, 3), "F32", 2, 1, 0, 0.5, 0.25, A.hex, B.hex, checkpoint_before=ROOT
    )  # fmt: skip


def test_a_shape_that_no_event_carries_is_left_out_and_said() -> None:
    found = edit_of(row(shape=(1,) * 17), None, None)
    assert found is not None
    assert (found.shape, found.note) == (None, "the shape has 17 sizes, more than an event carries, and is left out")


def test_raw_data_has_no_numbers_but_the_bits() -> None:
    found = edit_of(row(numbers=Numbers(6, 3, None, None, None, 0, 0, None, "raw")), None, None)
    assert found is not None
    assert sorted(found.payload()) == ["changed", "dtype", "kind", "sha256After", "sha256Before", "shape", "tensor"]


@pytest.mark.parametrize("status", ["equal", "renamed", "reshaped", "cast", "only_a", "only_b"])
def test_rows_that_edit_no_values_of_one_tensor_are_no_events(status: Any) -> None:
    side = TensorSide("w", "F32", (1,), A)
    sides = {"only_a": (side, None), "only_b": (None, side)}.get(status, (side, side))
    assert edit_of(TensorDifference(status, *sides), None, None) is None


@given(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=40),
    st.floats(0, allow_nan=False, allow_infinity=False),
    st.lists(st.integers(0, 2**40), max_size=16),
)
def test_what_is_recorded_is_what_is_read(name: str, norm: float, sizes: list[int]) -> None:
    edit = edit_of(row(name, tuple(sizes), Numbers(6, 3, 2, norm, norm, 1, 0, 2.0, "float")), ROOT, ROOT)
    assert edit is not None
    text = event_line(edit_event(edit, "s", 10**18))
    assert edits_of("e", text) == (TensorEdit("e:1", name, A, B, "F32", tuple(sizes)),)
    # As ECMAScript prints it: read as a double, it is the same double.
    assert (float(json.loads(text)["payload"]["l2"]), text.count(b"\n")) == (norm, 1)


def test_a_name_that_no_event_carries_refuses_the_record() -> None:
    found = edits_found(WeightsDifference("names", "names", (row("x" * 512), row("y" * 513)), (), totals_of(())), "s")
    assert found == Refused(NonEmpty(EventFieldInvalid(f"{'y' * 40}: tensor", shown("y" * 513), "a text of 1 to 512 characters")))
