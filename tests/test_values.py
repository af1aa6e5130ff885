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
    for build in (
        lambda: Sha256("x"),
        lambda: PositiveInt(0),
        lambda: PositiveInt(True),
        lambda: U64(2**64),
        lambda: PerMille(1001),
        lambda: PositiveDecimal(Decimal(0)),
        lambda: NonNegativeDecimal(Decimal(-1)),
        lambda: Principal("a b"),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            build()
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
    (["123456789.125", 123456789.125], "123456789.125"),
    ([1 / 3, "0.3333333333333333"], "0.3333333333333333"),
)


@proven_by(planted(values, "_spell_decimal", str), planted(values, "_spell_decimal", lambda number: f"{number:.6f}"))
def test_spellings_of_one_number_are_one_value() -> None:
    for spellings, canonical in SPELLINGS:
        assert {NonNegativeDecimal.read(raw) for raw in spellings} == {NonNegativeDecimal(Decimal(canonical))}
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
    assert refused(PositiveDecimal.read("1." + "1" * 40))


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


def test_shown_escapes_what_a_terminal_would_obey() -> None:
    assert shown("\x1b[31mred\n") == r"'\x1b[31mred\n'"
    assert shown("x" * 100, 10) == "'xxxxxxxx…"
