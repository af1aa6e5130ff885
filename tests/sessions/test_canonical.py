"""One spelling for what came from outside: equal values are equal bytes, and nothing is changed in silence."""

import json
from contextlib import AbstractContextManager
from typing import Final, cast

from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions import canonical
from countermark.sessions.canonical import (
    AND_MORE,
    DEFECTS_MAX,
    DEPTH_MAX,
    PLACES_MAX,
    SPELLING_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    Spelling,
    ValueUnspellable,
    kept_text,
    spelled_json,
)
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by

SPELLED: Final[tuple[tuple[object, str], ...]] = (
    ({"b": None, "a": (1, 2.5, "x")}, '{"a":[1,2.5,"x"],"b":null}'),
    (5.0, "5"),
    (-0.0, "0"),
    (1e20, "100000000000000000000"),
    (1e21, "1e+21"),
    (1e-6, "0.000001"),
    (1e-7, "1e-7"),
    (9007199254740993, "9007199254740993"),
    (2**64, "18446744073709551616"),
    ("é😀", '"é😀"'),
    ([True, False], "[true,false]"),
    ("\x1b\n", '"\\u001b\\n"'),
    ("\\u0000", '"\\\\u0000"'),
)


def as_python_prints() -> AbstractContextManager[object]:
    """Doubles are printed as Python prints them."""
    return planted(canonical, "spell_double", repr)()


@proven_by(as_python_prints)
def test_a_value_has_one_spelling_which_reads_back_as_itself() -> None:
    for value, text in SPELLED:
        found = spelled_json(value, "v")
        assert isinstance(found, Spelling)
        assert (found.text, found.sanitized) == (text, ())
        assert spelled_json(json.loads(text), "v") == found


_CUT: Final = "k\ufffd"
_CUTS: Final = (f"v.{_CUT}\ufffd", f"v.{_CUT}\ufffd\ufffd")
REPLACED: Final[tuple[tuple[object, str, tuple[str, ...]], ...]] = (
    ({"tensor": "a\ud83e"}, '{"tensor":"a\ufffd"}', ("v.tensor",)),
    ({"note": "a\0b"}, '{"note":"a\ufffdb"}', ("v.note",)),
    ({"k\0": 1, "list": ["x", "\udfff"]}, '{"k\ufffd":1,"list":["x","\ufffd"]}', ("v.k\ufffd", "v.list[1]")),
    # Keys that differ in what is replaced stay apart, whatever order they came in.
    ({"k\0": 1, "k\ud800": 2, _CUT: 3}, f'{{"{_CUT}":3,"{_CUT}\ufffd":1,"{_CUT}\ufffd\ufffd":2}}', _CUTS),
    ({"k\ud800": 2, _CUT: 3, "k\0": 1}, f'{{"{_CUT}":3,"{_CUT}\ufffd":1,"{_CUT}\ufffd\ufffd":2}}', _CUTS),
)  # fmt: skip


@proven_by(planted(canonical, "kept_text", lambda text, length_max=0: text))
def test_what_no_database_keeps_is_replaced_and_its_place_is_told() -> None:
    for value, text, places in REPLACED:
        assert spelled_json(value, "v") == Spelling(text, json.loads(text), places)
        assert spelled_json(json.loads(text), "v") == Spelling(text, json.loads(text))


def test_a_text_has_a_longest_length_and_a_cut_one_is_not_cut_again() -> None:
    whole, longer = "x" * TEXT_LENGTH_MAX, "x" * (TEXT_LENGTH_MAX + 1)
    assert kept_text(whole) is whole
    cut = kept_text(longer)
    assert (len(cut), cut[-2:], kept_text(cut) is cut) == (TEXT_LENGTH_MAX, "x\ufffd", True)
    found = spelled_json({"a": longer, "b": 1}, "v")
    assert isinstance(found, Spelling)
    assert (found.sanitized, found.value) == (("v.a",), {"a": cut, "b": 1})


def test_many_places_are_told_as_some_and_more() -> None:
    exact, more = (spelled_json(["\0"] * count, "v") for count in (PLACES_MAX, PLACES_MAX + 1))
    assert isinstance(exact, Spelling)
    assert isinstance(more, Spelling)
    assert exact.sanitized == tuple(f"v[{number}]" for number in range(PLACES_MAX))
    assert more.sanitized == (*exact.sanitized[:-1], AND_MORE)


def _deep(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


UNSPELLABLE: Final[dict[str, tuple[object, str, str]]] = {
    "nan": (float("nan"), "", "nan is not a finite number"),
    "infinity": ([float("-inf")], "[0]", "-inf is not a finite number"),
    "bytes": ({"k": b"x"}, ".k", "a bytes is no JSON value"),
    "a key that is a number": ({1: 2}, "", "a key of it is no text"),
    "a whole number without end": (2**5000, "", "the whole number has over 4096 bits"),
    "too deep": (_deep(DEPTH_MAX + 1), "[0]" * DEPTH_MAX, f"it is nested deeper than {DEPTH_MAX} levels"),
}


def first_alone() -> AbstractContextManager[object]:
    """Only the first value without a spelling is refused."""
    return planted(canonical, "Refused", lambda defects: Refused(NonEmpty(defects.first)))()


@proven_by(first_alone)
def test_everything_that_has_no_spelling_is_named_by_its_place() -> None:
    assert isinstance(spelled_json(_deep(DEPTH_MAX), "v"), Spelling)
    for value, place, why in UNSPELLABLE.values():
        assert spelled_json(value, "v") == Refused(NonEmpty(ValueUnspellable(f"v{place}", why)))
    every = spelled_json([value for value, _, _ in UNSPELLABLE.values()], "v")
    assert isinstance(every, Refused)
    # The deepest one stands a level deeper here, so it is refused a level earlier.
    places = [f"v[{number}]{place}" for number, (_, place, _) in enumerate(UNSPELLABLE.values())]
    assert [defect.place for defect in every.defects] == [*places[:-1], "v[5]" + "[0]" * (DEPTH_MAX - 1)]


def test_a_spelling_has_a_longest_length_and_refusals_have_a_number() -> None:
    most = "x" * 999_999
    assert isinstance(spelled_json([most] * 3, "v"), Spelling)
    found = spelled_json([most] * 4, "v")
    assert found == Refused(NonEmpty(ValueUnspellable("v", f"it takes 4,000,009 characters, and {SPELLING_LENGTH_MAX:,} are the most")))
    many = spelled_json([float("nan")] * 10_000, "v")
    assert isinstance(many, Refused)
    assert len(many.defects) == DEFECTS_MAX


ANY_TEXT: Final = st.text(st.characters(exclude_categories=()), max_size=6)
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_spelling_what_was_spelled_changes_nothing(value: object) -> None:
    first = spelled_json(value, "v")
    assert isinstance(first, Spelling)
    again = spelled_json(json.loads(first.text), "v")
    assert again == Spelling(first.text, first.value)
    assert json.loads(first.text) == first.value
    first.text.encode()


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=6), st.randoms())
def test_the_order_of_a_documents_keys_says_nothing(table: dict[str, object], random: object) -> None:
    import random as module

    keys = list(table)
    cast(module.Random, random).shuffle(keys)
    one, other = spelled_json(table, "v"), spelled_json({key: table[key] for key in keys}, "v")
    assert isinstance(one, Spelling)
    assert isinstance(other, Spelling)
    assert (one.text, sorted(one.sanitized)) == (other.text, sorted(other.sanitized))


#: Values that msgspec would spell in another way, or not at all, each in one place.
ODD: Final[tuple[object, ...]] = (
    5.0, -0.0, 1e21, 1e-7, float("nan"), float("-inf"), "\0", "\ud83e", {"k\0": 1}, {1: 2}, {"k" * 1_001: 1}, "t" * (TEXT_LENGTH_MAX + 1),
    2**4096, (1, 2), {"a": (1,)}, object(),
)  # fmt: skip


@proven_by(planted(canonical, "_NUL_WRITTEN", b"nothing that is there"))
def test_msgspec_spells_only_what_it_spells_as_we_do() -> None:
    for odd in ODD:
        assert [canonical._as_it_is(value) for value in (odd, [odd], {"a": [{"b": odd}]})] == [None] * 3
    plain = {"b": ["é", 1, 2.5, None, True], "a": {"\x1b": 2**64}}
    assert canonical._as_it_is(plain) == '{"a":{"\\u001b":18446744073709551616},"b":["é",1,2.5,null,true]}'


def any_float(value: object, depth: int) -> bool:
    return isinstance(value, float) or plainly(value, depth)


plainly = canonical._plain


@proven_by(planted(canonical, "_plain", any_float))
def test_a_double_is_spelled_by_msgspec_only_where_it_spells_it_as_we_do() -> None:
    assert [canonical._as_it_is(value) for value in (5.0, -0.0, 1e21, 1e-7, float("nan"), float("inf"))] == [None] * 6


@given(JSON)
def test_quick_and_closer_spellings_agree(value: object) -> None:
    quick = canonical._as_it_is(value)
    with planted(canonical, "_as_it_is", lambda _: None)():
        slow = spelled_json(value, "v")
    assert quick is None or slow == Spelling(quick, cast(canonical.Json, value))
