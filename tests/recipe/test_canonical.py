"""RFC 8785, length-prefixed parts, and the content hashes of three coordinates."""

import hashlib
import json
import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe import canonical
from countermark.recipe.canonical import (
    DEPTH_MAX,
    DatasetHasher,
    base_artifact_of,
    canonical_json,
    dataset_digest,
    length_prefixed,
    tokenization_digest,
)
from countermark.values import Sha256, WeightsRoot
from tests.faults import planted, proven_by

# Appendix B of RFC 8785: the bits of a double, and how it is printed.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@proven_by(planted(canonical, "spell_double", repr))
def test_numbers_are_printed_as_the_standard_prints_them() -> None:
    printed = {bits: canonical_json(struct.unpack(">d", bytes.fromhex(bits))[0]).decode() for bits, _ in NUMBERS}
    assert printed == dict(NUMBERS)


def test_the_example_of_the_standard() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical_json(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf16_code_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\u00f6"]
    written = json.loads(canonical_json({key: position for position, key in enumerate(keys)}))
    assert list(written) == ["\r", "1", "\x80", "ö", "€", "\U0001f600", "\ufb33"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_canonical_bytes_read_back_as_the_value(value: object) -> None:
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_the_order_of_keys_changes_nothing(value: dict[str, object]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def nested_objects(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = {"a": value}
    return value


NO_NUMBER = "NaN and infinities are no JSON numbers"
INEXACT = "a whole number lies beyond 2^53, where JSON numbers stop being exact; write it as text"
HALF = "a text holds half of a surrogate pair"
DEEP = "it is nested deeper than 128 levels"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, NO_NUMBER),
        ([math.inf], NO_NUMBER),
        ({"a": -math.inf}, NO_NUMBER),
        (2**53 + 1, INEXACT),
        (2**68, INEXACT),
        (10**21, INEXACT),
        (-(10**400), INEXACT),
        ("\ud800", HALF),
        ({"\udfff": 1}, HALF),
        ({1: 2}, "a key is no text"),
        ({1: 2, "a": 3}, "a key is no text"),
        (b"bytes", "a bytes is no JSON value"),
        ({1, 2}, "a set is no JSON value"),
        (object(), "a object is no JSON value"),
        (nested(DEPTH_MAX + 1), DEEP),
        (nested(100_000), DEEP),
        (nested_objects(DEPTH_MAX + 1), DEEP),
    ],
)
def test_what_has_no_canonical_form_is_refused_with_the_reason(value: object, why: str) -> None:
    with pytest.raises(ValueError) as refusal:
        canonical_json(value)
    assert str(refusal.value) == why
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (0.1, "0.1"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (10.0, "10"),
        (1e-6, "0.000001"),
        (1.5e-6, "0.0000015"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (1.5e300, "1.5e+300"),
        (1e300, "1e+300"),
        (-1.25e-300, "-1.25e-300"),
        (1e20, "100000000000000000000"),
        (1.5e20, "150000000000000000000"),
        (1e21, "1e+21"),
        (1234.5, "1234.5"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
    ],
)
def test_a_double_is_written_as_browsers_write_it(number: float, text: str) -> None:
    assert canonical_json(number) == text.encode()


def test_whole_numbers_that_doubles_are_printed_as_are_written() -> None:
    assert [canonical_json(number) for number in (2**53, -(2**53), 295147905179352830000, 600000000000000000000)] == [
        b"9007199254740992",
        b"-9007199254740992",
        b"295147905179352830000",
        b"600000000000000000000",
    ]


def test_the_deepest_document_is_written() -> None:
    assert canonical_json(nested(DEPTH_MAX)) == b"[" * DEPTH_MAX + b"0" + b"]" * DEPTH_MAX


ROOT = WeightsRoot("1" * 64)
CONFIG: dict[str, object] = {"hidden_size": 8, "rope": 1e4, "text_config": {"layers": 2, "_name_or_path": "inner"}}


def test_a_base_artifact_is_the_root_and_the_configuration_without_its_origin() -> None:
    kept = b'{"hidden_size":8,"rope":10000,"text_config":{"layers":2}}'
    wanted = Sha256(hashlib.sha256(length_prefixed(ROOT.spell().encode(), kept)).hexdigest())
    assert base_artifact_of(ROOT, CONFIG) == wanted
    assert base_artifact_of(ROOT, {**CONFIG, "_name_or_path": "anywhere", "transformers_version": "5.24.0"}) == wanted
    assert base_artifact_of(ROOT, {**CONFIG, "hidden_size": 9}) != wanted
    assert base_artifact_of(WeightsRoot("2" * 64), CONFIG) != wanted


def test_the_origin_is_left_out_at_any_depth() -> None:
    plain: dict[str, object] = {"parts": [{"layers": 2}, "x"], "pair": (1, {"layers": 3})}
    named: dict[str, object] = {
        "parts": [{"layers": 2, "_name_or_path": "inner"}, "x"],
        "pair": (1, {"layers": 3, "transformers_version": "5"}),
    }
    assert base_artifact_of(ROOT, named) == base_artifact_of(ROOT, plain)
    assert base_artifact_of(ROOT, {"_name_or_path": "a"}) == base_artifact_of(ROOT, {})
    assert base_artifact_of(ROOT, {"a": "_name_or_path"}) != base_artifact_of(ROOT, {})


def test_a_configuration_may_be_as_deep_as_any_document_and_no_deeper() -> None:
    deepest = nested_objects(DEPTH_MAX)
    kept = b'{"a":' * DEPTH_MAX + b"0" + b"}" * DEPTH_MAX
    assert isinstance(deepest, dict)
    assert base_artifact_of(ROOT, deepest) == Sha256(hashlib.sha256(length_prefixed(ROOT.spell().encode(), kept)).hexdigest())
    for value in (nested(DEPTH_MAX), nested(100_000), nested_objects(DEPTH_MAX), nested_objects(100_000)):
        with pytest.raises(ValueError, match=f"^{DEEP}$"):
            base_artifact_of(ROOT, {"a": value})


def test_an_origin_at_the_deepest_place_is_left_out_too() -> None:
    """A table at the last level may be empty and nothing else: its origin has to be gone before it is written."""

    def beneath(value: object, wrap: Callable[[object], object]) -> dict[str, object]:
        for _ in range(DEPTH_MAX - 1):
            value = wrap(value)
        return {"a": value}

    for wrap in (lambda value: [value], lambda value: {"b": value}):
        assert base_artifact_of(ROOT, beneath({"_name_or_path": "x"}, wrap)) == base_artifact_of(ROOT, beneath({}, wrap))
        with pytest.raises(ValueError, match=f"^{DEEP}$"):
            base_artifact_of(ROOT, beneath({"c": "x"}, wrap))


def test_rows_are_hashed_in_their_order_each_with_its_length() -> None:
    rows: list[dict[str, object]] = [{"text": "a", "n": 1.0}, {"text": "b"}]
    wanted = Sha256(hashlib.sha256(length_prefixed(b'{"n":1,"text":"a"}', b'{"text":"b"}')).hexdigest())
    assert dataset_digest(rows) == wanted
    assert dataset_digest([{"n": 1, "text": "a"}, {"text": "b"}]) == wanted
    assert dataset_digest(reversed(rows)) != wanted
    assert dataset_digest([]) == Sha256(hashlib.sha256(b"").hexdigest())


def test_a_row_that_is_refused_leaves_no_trace() -> None:
    hasher = DatasetHasher()
    hasher.row({"a": 1})
    with pytest.raises(ValueError, match="NaN"):
        hasher.row({"a": math.nan})
    assert (hasher.rows, hasher.digest()) == (1, dataset_digest([{"a": 1}]))
    hasher.row({"a": 2})
    assert (hasher.rows, hasher.digest()) == (2, dataset_digest([{"a": 1}, {"a": 2}]))
    assert (DatasetHasher().rows, DatasetHasher().digest()) == (0, dataset_digest([]))


def test_a_tokenization_is_its_files_its_special_ids_and_its_template() -> None:
    listed = {"tokenizer.json": Sha256("1" * 64), "added.json": Sha256("2" * 64)}
    files = b'{"added.json":"sha256:' + b"2" * 64 + b'","tokenizer.json":"sha256:' + b"1" * 64 + b'"}'
    for template, told in ((None, b""), ("", b"="), ("é\ud800", b"=\xc3\xa9\xed\xa0\x80")):
        wanted = hashlib.sha256(length_prefixed(files, b'{"eos":1,"pad":null}', told)).hexdigest()
        assert tokenization_digest(listed, {"pad": None, "eos": 1}, template) == Sha256(wanted)


def test_every_part_of_a_tokenization_moves_it() -> None:
    files, special = {"tokenizer.json": Sha256("1" * 64)}, {"pad": 0, "eos": 1}
    digests = [
        tokenization_digest(files, special, None),
        tokenization_digest(files, special, ""),
        tokenization_digest(files, special, "{{ messages }}"),
        tokenization_digest(files, {"pad": 1, "eos": 0}, None),
        tokenization_digest({"tokenizer.json": Sha256("2" * 64)}, special, None),
        tokenization_digest({"other.json": Sha256("1" * 64)}, special, None),
        tokenization_digest({}, special, None),
    ]
    assert len(set(digests)) == len(digests)
    assert tokenization_digest(dict(reversed({**files, "a": Sha256("3" * 64)}.items())), special, None) == tokenization_digest(
        {"a": Sha256("3" * 64), **files}, special, None
    )
