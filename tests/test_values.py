"""Values read, check and spell themselves: one value has one spelling, and nothing from outside raises."""

from dataclasses import FrozenInstanceError
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark import values
from countermark.values import (
    U64,
    FilesDigest,
    NonEmpty,
    NonNegativeDecimal,
    NonNegativeInt,
    PerMille,
    PositiveDecimal,
    PositiveInt,
    Principal,
    Sha256,
    Unreadable,
    WeightsRoot,
    shown,
    spelled,
)
from tests.faults import planted, proven_by

HEX: Final = "0123456789abcdef" * 4
DIGESTS: Final = (Sha256, WeightsRoot, FilesDigest)
NUMBERS: Final[tuple[Any, ...]] = (NonNegativeDecimal, PositiveDecimal, NonNegativeInt, PositiveInt, U64, PerMille)
READERS: Final[tuple[Any, ...]] = (*DIGESTS, *NUMBERS, Principal)


def refused(found: object) -> bool:
    return isinstance(found, Unreadable)


# ---------------------------------------------------------------------------------------------------------- anything

ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("reader", READERS)
@given(raw=ANYTHING)
def test_reading_never_raises_and_what_was_read_is_read_again(reader: Any, raw: object) -> None:
    value = reader.read(raw)
    assert refused(value) or reader.read(value.spell()) == value


@pytest.mark.parametrize("reader", (*DIGESTS, *NUMBERS))
@pytest.mark.parametrize("raw", [None, True, False, [], {}, b"1", "", " ", "1 ", "1\n", "\n", "١", "1_0", "0x1", "nan", "inf", "9" * 5000])
def test_what_only_looks_like_a_value_is_refused(reader: Any, raw: object) -> None:
    assert refused(reader.read(raw))


@pytest.mark.parametrize("reader", NUMBERS)
def test_numbers_that_are_none_and_giants_are_refused(reader: Any) -> None:
    giants = [float("nan"), float("inf"), -float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), 10**5000, "1e9999", "1e401"]
    assert [raw for raw in giants if not refused(reader.read(raw))] == []


NO_DECIMAL, NO_NUMBER, NO_INTEGER = "it is not a finite decimal number", "it is not a number", "it is not a whole number"
TOO_LONG: Final = "it has over 40 digits or an exponent beyond 400"
OF_A_RATE, NO_THOUSANDTHS = (
    "a rate lies between 0 and 1",
    "it is no whole number of thousandths, and rounding it would name another computation",
)


@pytest.mark.parametrize(
    ("read", "raw", "why"),
    [
        (Sha256.read, 3, "a digest is text that begins with sha256:"),
        (Sha256.read, "md5:" + HEX, "it does not begin with sha256:"),
        (WeightsRoot.read, "wr1:" + HEX[:-1], "wr1: must be followed by 64 lower-case hexadecimal digits"),
        (NonNegativeDecimal.read, True, NO_NUMBER),
        (NonNegativeDecimal.read, [1], NO_NUMBER),
        (NonNegativeDecimal.read, 2**512, "it is too large"),
        (NonNegativeDecimal.read, 2**512 - 1, TOO_LONG),
        (NonNegativeDecimal.read, "1" + "0" * 200, NO_DECIMAL),
        (NonNegativeDecimal.read, "x", NO_DECIMAL),
        (NonNegativeDecimal.read, "1." + "1" * 40, TOO_LONG),
        (NonNegativeDecimal.read, "1e401", TOO_LONG),
        (NonNegativeDecimal.read, "1e-401", TOO_LONG),
        (NonNegativeDecimal.read, -1, "it must be at least 0"),
        (PositiveDecimal.read, 0, "it must be greater than 0"),
        (PositiveInt.read, "x", NO_INTEGER),
        (PositiveInt.read, True, NO_INTEGER),
        (PositiveInt.read, 0, "it must be from 1 to 9223372036854775807"),
        (PerMille.read, 1001, "it must be from 0 to 1000"),
        (PerMille.read, "x", NO_DECIMAL),
        (PerMille.read, 1.0, OF_A_RATE + "; write thousandths as a whole number from 0 to 1000"),
        (PerMille.read, 0.0125, NO_THOUSANDTHS),
        (PerMille.of_rate, "x", NO_DECIMAL),
        (PerMille.of_rate, 1.001, OF_A_RATE),
        (PerMille.of_rate, -0.001, OF_A_RATE),
        (PerMille.of_rate, 0.0125, NO_THOUSANDTHS),
        (Principal.read, "", "a name is 1 to 200 letters, digits and ._@:/+- and begins with a letter or digit"),
        (Principal.read, 3, "a name is 1 to 200 letters, digits and ._@:/+- and begins with a letter or digit"),
    ],
)  # fmt: skip
def test_a_refusal_says_why(read: Any, raw: object, why: str) -> None:
    assert read(raw) == Unreadable(why)


# ----------------------------------------------------------------------------------------------------------- digests


@pytest.mark.parametrize("kind", DIGESTS)
@proven_by(planted(values, "_HEX64", __import__("re").compile(r"[0-9a-fA-F]{60,64}")))
def test_a_digest_has_one_spelling(kind: Any) -> None:
    spelled = f"{kind.family}:{HEX}"
    assert kind.read(spelled) == kind(HEX)
    assert str(kind(HEX)) == kind(HEX).spell() == spelled
    wrong = [spelled.upper(), spelled[:-1], spelled + "0", HEX, f"{kind.family}:{HEX.upper()}", spelled + "\n", " " + spelled, f"md5:{HEX}"]
    assert [raw for raw in wrong if not refused(kind.read(raw))] == []


def test_digests_of_unlike_kinds_are_never_equal() -> None:
    digests = {kind(HEX) for kind in DIGESTS}
    assert len(digests) == len({digest.spell() for digest in digests}) == 3
    assert [other for kind in DIGESTS for other in DIGESTS if kind is not other and not refused(kind.read(other(HEX).spell()))] == []


def test_a_bad_argument_of_ours_raises() -> None:
    wrong: tuple[tuple[Any, object, str], ...] = (
        (Sha256, "x", "Sha256 needs 64 lower-case hexadecimal digits"),
        (PositiveInt, 0, "PositiveInt: must be from 1 to 9223372036854775807"),
        (PositiveInt, True, "PositiveInt: must be from 1 to 9223372036854775807"),
        (U64, 2**64, "U64: must be from 0 to 18446744073709551615"),
        (PerMille, 1001, "PerMille: must be from 0 to 1000"),
        (PositiveDecimal, Decimal(0), "PositiveDecimal: it must be greater than 0"),
        (NonNegativeDecimal, Decimal(-1), "NonNegativeDecimal: it must be at least 0"),
        (Principal, "a b", "Principal: 'a b' is not a name"),
    )
    for kind, argument, why in wrong:
        with pytest.raises(ValueError, match=f"^{why}$"):
            kind(argument)
    with pytest.raises(FrozenInstanceError):
        Sha256(HEX).hex = HEX  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------------------- decimals


#: Spellings of one number, and the canonical one.
SPELLINGS: Final[tuple[tuple[list[object], str], ...]] = (
    (["2e-4", "0.0002", "2E-4", "+.0002", "0.00020", 2e-4, Decimal("2e-4"), "20e-5"], "0.0002"),
    (["1e-8", 1e-8, "0.00000001", "10E-9"], "1e-8"),
    (["1e-6", 1e-6, "0.000001"], "0.000001"),
    (["1.5e-7", 1.5e-7], "1.5e-7"),
    (["0", 0, 0.0, -0.0, "-0", "0e5", "0.000", Decimal("-0")], "0"),
    (["1", 1, 1.0, "1.", "1.000", "1e0", "10e-1"], "1"),
    (["0.1", 0.1, ".1"], "0.1"),
    (["1e15", 10**15, 1e15], "1000000000000000"),
    (["1e16", 10**16, 1e16], "1e16"),
    (["100", 100, 1e2, "1e2"], "100"),
    (["1234567890123456.5", "1234567890123456.50"], "1234567890123456.5"),
    (["12345678901234567.5", "12345678901234567.50"], "1.23456789012345675e16"),
    (["1.5e300", 1.5e300, "1500e297"], "1.5e300"),
    (["123456789.125", 123456789.125], "123456789.125"),
    ([1 / 3, "0.3333333333333333"], "0.3333333333333333"),
)


@proven_by(planted(values, "_spell_decimal", str), planted(values, "_spell_decimal", lambda number: f"{number:.6f}"))
def test_spellings_of_one_number_are_one_value() -> None:
    for spellings, canonical in SPELLINGS:
        assert {NonNegativeDecimal.read(raw) for raw in spellings} == {NonNegativeDecimal(Decimal(canonical))}
        assert {str(NonNegativeDecimal.read(raw)) for raw in spellings} == {canonical}
        assert NonNegativeDecimal(Decimal(canonical)).spell() == canonical


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False), st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_two_floats_are_one_value_exactly_if_they_are_equal(one: float, other: float) -> None:
    first, second = NonNegativeDecimal.read(one), NonNegativeDecimal.read(other)
    assert isinstance(first, NonNegativeDecimal) and isinstance(second, NonNegativeDecimal)
    assert float(first.spell()) == one
    assert (first == second) == (one == other) == (first.spell() == second.spell())


def test_the_bounds_of_decimals() -> None:
    assert refused(PositiveDecimal.read("0")) and refused(PositiveDecimal.read(-1)) and refused(NonNegativeDecimal.read("-1e-9"))
    assert PositiveDecimal.read("1e-400") == PositiveDecimal(Decimal("1e-400"))
    for longest in ("1e400", "1." + "1" * 39, "1" + "0" * 199):
        assert PositiveDecimal.read(longest) == PositiveDecimal(Decimal(longest))


# ----------------------------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [(NonNegativeInt, 0, 2**63 - 1), (PositiveInt, 1, 2**63 - 1), (U64, 0, 2**64 - 1), (PerMille, 0, 1000)],
)
def test_the_bounds_of_integers(kind: Any, lowest: int, highest: int) -> None:
    for number in (lowest, highest):
        assert kind.read(number) == kind.read(str(number)) == kind(number)
        assert kind(number).spell() == str(number)
    assert refused(kind.read(lowest - 1)) and refused(kind.read(highest + 1)) and refused(kind.read(str(highest + 1)))
    assert refused(kind.read("1.5")) and refused(kind.read(1.5)) and refused(kind.read("1e3"))


def test_a_rate_becomes_thousandths_or_is_refused_never_rounded() -> None:
    assert [PerMille.read(raw) for raw in (0, 1000, 0.05, "0.05", "0.050", 0.0, 0.999)] == [
        PerMille(0), PerMille(1000), PerMille(50), PerMille(50), PerMille(50), PerMille(0), PerMille(999),
    ]  # fmt: skip
    assert [raw for raw in (1001, "1001", 0.0125, "0.0125", 1.0, "1.0", -0.1, 1.5, -1) if not refused(PerMille.read(raw))] == []
    assert (PerMille.of_rate(1.0), PerMille.of_rate(0)) == (PerMille(1000), PerMille(0))
    assert refused(PerMille.of_rate(2)) and refused(PerMille.of_rate(0.0125)) and refused(PerMille.of_rate("x"))


# ----------------------------------------------------------------------------------------------- names, populations


def test_names_are_printable_and_short() -> None:
    good = ["local", "a", "team/ci@host:1", "A" * 200]
    bad = ["", " a", "a b", "a\n", "é", "-a", "A" * 201, "a\x1b[31m", "../x"]
    assert [Principal.read(raw) for raw in good] == [Principal(raw) for raw in good]
    assert [raw for raw in bad if not refused(Principal.read(raw))] == []


def test_a_population_cannot_be_empty_and_keeps_its_order() -> None:
    assert NonEmpty.of(()) is None
    found = NonEmpty.of(iter("cab"))
    assert found == NonEmpty("c", ("a", "b"))
    assert found is not None and (list(found), len(found)) == (["c", "a", "b"], 3)


@given(ANYTHING, st.integers(8, 200))
def test_what_is_shown_is_short_and_printable(raw: object, length_max: int) -> None:
    text = shown(raw, length_max)
    assert len(text) <= length_max
    assert text.isprintable()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (True, "true"),
        (None, "null"),
        (Decimal("1.50"), "1.50"),
        ((1, True, "a"), "[1, true, 'a']"),
        ({"beta1": Decimal("0.9"), "on": [False]}, "{beta1 = 0.9, on = [false]}"),
        ({"\n": date(1979, 5, 27)}, r"{'\n' = 1979-05-27}"),
        ("\x1b[31m", r"'\x1b[31m'"),
        (["x" * 200], "['" + "x" * 77 + "…"),
    ],
)
def test_what_stood_in_a_recipe_is_spelled_as_recipes_spell_it(raw: object, text: str) -> None:
    assert spelled(raw) == text


def test_a_value_that_is_nested_deeply_is_spelled_all_the_same() -> None:
    nested: object = ()
    for _ in range(50):
        nested = (nested,)
    assert len(spelled(nested)) <= 80
    # What lies deeper is shown as Python has it.
    assert (spelled([[[[True]]]]), spelled([[[[[True]]]]])) == ("[[[[true]]]]", "[[[[[True]]]]]")
    assert spelled([[[{"a": {"b": None}}]]]) == "[[[{a = {'b': None}}]]]"


def test_shown_escapes_what_a_terminal_would_obey() -> None:
    assert shown("\x1b[31mred\n") == r"'\x1b[31mred\n'"
    assert shown("x" * 100, 10) == "'xxxxxxxx…"
    assert shown("x" * 100 + "'", 10) == shown("x" * 100, 10)
    assert (shown("x" * 78), shown("x" * 79)) == ("'" + "x" * 78 + "'", "'" + "x" * 78 + "…")
    assert (spelled(["x" * 76]), spelled(["x" * 77])) == ("['" + "x" * 76 + "']", "['" + "x" * 77 + "…")
