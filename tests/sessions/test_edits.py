"""A weight edit is taken whole or refused whole, with every field that is wrong."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions import edits
from countermark.sessions.edits import (
    FIELDS,
    KIND,
    EventFieldDefect,
    EventFieldInvalid,
    EventFieldMissing,
    EventFieldUnknown,
    WeightEdit,
    is_edit,
    read_edit,
)
from countermark.values import NonEmpty, Refused, shown
from tests.faults import planted, proven_by

DIGEST: Final = "ab" * 32
WHOLE: Final[dict[str, Any]] = {
    "kind": KIND,
    "tensor": "layers.0.w",
    "shape": [2, 3],
    "dtype": "F32",
    "changed": 3,
    "valueChanged": 2,
    "nonFiniteCreated": 1,
    "nonFiniteCleared": 0,
    "l2": 0.5,
    "maxAbs": 0.25,
    "sha256Before": DIGEST.upper(),
    "sha256After": DIGEST,
    "checkpointBefore": f"wr1:{DIGEST}",
    "checkpointAfter": DIGEST.upper(),
    "aliases": ["head.w", "layers.0.w"],
    "note": "scaled by hand",
}
COUNT: Final = "a whole number from 0 to 2^63 − 1"
SIZES: Final = "a list of at most 16 whole numbers from 0 to 2^63 − 1, as [2, 3]"
NAMES: Final = "a list of at most 1,000 texts of 1 to 512 characters"
WEIGHTS: Final = "a digest of weights (wr1:…, fd1:… or mc1:…) or 64 hexadecimal digits"
#: For each field, values that no edit holds there, and what it holds instead.
WRONG: Final[dict[str, tuple[tuple[object, ...], str]]] = {
    "tensor": (("", "x" * 513, 1, None), "a text of 1 to 512 characters"),
    "shape": (("3,4", [1] * 17, [-1], [1.5], [True], [2**63], {}, None), SIZES),
    "dtype": (("", "x" * 65, 1), "the name of a type, 1 to 64 characters"),
    "changed": ((-1, 2**63, 1.5, True, "1", float("nan"), 2.0**54, None), COUNT),
    "valueChanged": ((-1, False), COUNT),
    "nonFiniteCreated": ((-1,), COUNT),
    "nonFiniteCleared": ((0.5,), COUNT),
    "l2": ((-0.5, float("nan"), float("inf"), "1", True, 10**400, [1.0]), "a finite number, 0 or more"),
    "maxAbs": ((-1, float("-inf")), "a finite number, 0 or more"),
    "sha256Before": (("ab", "x" * 64, DIGEST + "\n", 1), "64 hexadecimal digits"),
    "sha256After": (("", f"sha256:{DIGEST}"), "64 hexadecimal digits"),
    "checkpointBefore": (("", "wr1:", f"wr1:{DIGEST.upper()}", f"xx1:{DIGEST}", f"sha256:{DIGEST}"), WEIGHTS),
    "checkpointAfter": ((1, "HEAD"), WEIGHTS),
    "aliases": (("head", [""], [1], ["x"] * 1001, None), NAMES),
    "note": (("x" * 2001, 1), "a text of at most 2,000 characters"),
}


def first_alone() -> AbstractContextManager[object]:
    """Only the first field that is wrong is named."""
    return planted(edits, "Refused", lambda defects: Refused(NonEmpty(defects.first)))()


def refused(payload: Mapping[str, object]) -> tuple[EventFieldDefect, ...]:
    found = read_edit(payload)
    return tuple(found.defects) if isinstance(found, Refused) else ()


def test_a_whole_edit_is_taken_and_its_digests_are_lower_case() -> None:
    found = read_edit(WHOLE)
    assert isinstance(found, WeightEdit)
    assert found.payload() == {**WHOLE, "sha256Before": DIGEST, "checkpointAfter": DIGEST}
    assert read_edit(found.payload()) == found


def test_an_edit_needs_no_more_than_a_name_and_a_count() -> None:
    found = read_edit({"kind": KIND, "tensor": "w", "changed": 0})
    assert found == WeightEdit("w", 0)
    assert isinstance(found, WeightEdit)
    assert found.payload() == {"kind": KIND, "tensor": "w", "changed": 0}


def test_the_roster_is_what_an_edit_holds() -> None:
    assert [field.keyword for field in FIELDS if field.required] == ["tensor", "changed"]
    assert {field.keyword for field in FIELDS} == {field.name for field in fields(WeightEdit)}
    assert sorted(WRONG) == sorted(field.key for field in FIELDS)


@proven_by(planted(edits, "read_field", lambda key, value: value))
def test_a_field_that_holds_what_it_cannot_is_named_alone() -> None:
    for key, (values, wanted) in WRONG.items():
        for value in values:
            assert refused({**WHOLE, key: value}) == (EventFieldInvalid(key, shown(value), wanted),)


@proven_by(first_alone)
def test_every_two_fields_that_are_wrong_are_both_named() -> None:
    for one, (values, _) in WRONG.items():
        for other, (others, _) in WRONG.items():
            if one < other:
                defects = refused({**WHOLE, one: values[0], other: others[-1]})
                assert sorted(defect.field for defect in defects) == sorted((one, other))


@proven_by(first_alone)
def test_a_missing_field_and_an_unknown_one_are_named_with_those_that_are_wrong() -> None:
    assert refused({"kind": KIND}) == (EventFieldMissing("tensor"), EventFieldMissing("changed"))
    payload = {"kind": KIND, "tensor": "w", "colour": "red", "value_changed": 1, "Max-Abs": 2, "l2": -1}
    assert refused(payload) == (
        EventFieldUnknown("'colour'", ""),
        EventFieldUnknown("'value_changed'", "valueChanged"),
        EventFieldUnknown("'Max-Abs'", "maxAbs"),
        EventFieldInvalid("l2", "-1", "a finite number, 0 or more"),
        EventFieldMissing("changed"),
    )


def test_numbers_are_taken_in_either_form_where_they_are_exact() -> None:
    found = read_edit({"kind": KIND, "tensor": "w", "changed": 2.0**53, "l2": 3, "shape": [2.0], "valueChanged": 2**63 - 1})
    assert found == WeightEdit("w", 2**53, shape=(2,), l2=3.0, value_changed=2**63 - 1)
    assert isinstance(found, WeightEdit)
    assert [type(value) for value in (found.changed, found.l2)] == [int, float]


def test_a_count_that_the_shape_does_not_hold_is_taken() -> None:
    assert isinstance(read_edit({**WHOLE, "shape": [0], "changed": 3}), WeightEdit)


def test_an_edit_is_known_by_its_kind() -> None:
    assert [is_edit(one) for one in (WHOLE, {"kind": "chat"}, {}, [], None, "weights.edit")] == [True, *[False] * 5]


@given(
    st.dictionaries(st.sampled_from([*(field.key for field in FIELDS), "kind", "x"]), st.none() | st.integers() | st.floats() | st.text())
)
def test_no_payload_raises(payload: dict[str, object]) -> None:
    assert isinstance(read_edit(payload), WeightEdit | Refused)
