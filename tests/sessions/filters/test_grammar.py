"""Reading a filter's text: what is clean, each thing that can be wrong with it alone and two at once, and whatever else anybody types."""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from countermark.sessions.filters import grammar, tree
from countermark.sessions.filters.grammar import (
    DEPTH_MAX,
    LENGTH_MAX,
    TERMS_MAX,
    FilterCharacterUnknown,
    FilterNumberUnreadable,
    FilterTextUnended,
    FilterTextUnkept,
    FilterTooDeep,
    FilterTooLong,
    FilterTooWide,
    FilterUnexpected,
    Parsed,
    SyntaxDefect,
    parse,
)
from countermark.sessions.filters.tree import (
    Absent,
    And,
    Compare,
    Filter,
    In,
    Match,
    Name,
    Not,
    Number,
    Or,
    Sign,
    Text,
    Truth,
    Value,
    spell,
)
from countermark.values import NonEmpty
from tests.faults import planted, proven_by

A: Final = Compare(Name("a"), "=", Number(Decimal(1)))
B: Final = Compare(Name("b"), "=", Number(Decimal(2)))
C: Final = Compare(Name("c"), "=", Number(Decimal(3)))

KEY: Final = "a key, NOT or ("
SIGN: Final = "=, !=, <, <=, >, >=, IN, LIKE, ILIKE or IS"
VALUE: Final = "a number, a text in quotes, TRUE or FALSE"

CLEAN: Final[dict[str, Filter]] = {
    "a = 1": A,
    " a=1\t\r\n": A,
    "a = 1 AND b = 2 AND c = 3": And((A, B, C)),
    "a = 1 or b = 2 And c = 3": Or((A, And((B, C)))),
    "(a = 1 OR b = 2) AND c = 3": And((Or((A, B)), C)),
    "a = 1 AND (b = 2 AND c = 3)": And((A, And((B, C)))),
    "((a = 1))": A,
    "NOT a = 1 AND b = 2": And((Not(A), B)),
    "NOT (a = 1 AND b = 2)": Not(And((A, B))),
    "not not a = 1": Not(Not(A)),
    "a IS NULL": Absent(Name("a")),
    "a is not null": Not(Absent(Name("a"))),
    "a IN (1)": In(Name("a"), NonEmpty(Number(Decimal(1)))),
    "a NOT IN (1, 'x', true)": Not(In(Name("a"), NonEmpty(Number(Decimal(1)), (Text("x"), Truth(True))))),
    "a LIKE 'x%'": Match(Name("a"), Text("x%"), False),
    "a not ilike 'x'": Not(Match(Name("a"), Text("x"), True)),
    "a.b_2.c = 1": Compare(Name("a.b_2.c"), "=", Number(Decimal(1))),
    "a . in = 1": Compare(Name("a.in"), "=", Number(Decimal(1))),
    "tags.`my key` = 'x'": Compare(Name("tags.my key"), "=", Text("x")),
    '"my ""key" = "it\'s ""so"""': Compare(Name('my "key'), "=", Text('it\'s "so"')),
    "`a``b` = 'it''s'": Compare(Name("a`b"), "=", Text("it's")),
    "`` != ''": Compare(Name(""), "!=", Text("")),
    "`and` >= 1": Compare(Name("and"), ">=", Number(Decimal(1))),
    "a < +1.50e-3": Compare(Name("a"), "<", Number(Decimal("0.0015"))),
    "a <= -.5": Compare(Name("a"), "<=", Number(Decimal("-0.5"))),
    "a > 9007199254740993": Compare(Name("a"), ">", Number(Decimal(9007199254740993))),
    "a = 'é 🐑\n\\%;'": Compare(Name("a"), "=", Text("é 🐑\n\\%;")),
}


@pytest.mark.parametrize("text", CLEAN)
def test_what_is_written_is_read(text: str) -> None:
    assert parse(text) == Parsed(CLEAN[text], ())


def test_a_place_is_counted_from_one_and_is_no_part_of_what_is_said() -> None:
    read = parse("a = 1 AND `é` IN ('x', 2)").tree
    assert isinstance(read, And)
    first, second = read.parts
    assert isinstance(first, Compare) and isinstance(second, In)
    assert (first.key.at, first.value.at, second.key.at, [value.at for value in second.values]) == (1, 5, 11, [19, 24])
    assert Name("a", 1) == Name("a", 9)


def nested(depth: int) -> str:
    return "(" * depth + "a = 1" + ")" * depth


def wide(terms: int) -> str:
    return f"a IN ({', '.join('1' * terms)})"


BROKEN: Final[dict[str, SyntaxDefect]] = {
    "": FilterUnexpected(1, "", KEY),
    "  ": FilterUnexpected(3, "", KEY),
    "a": FilterUnexpected(2, "", SIGN),
    "a =": FilterUnexpected(4, "", VALUE),
    "a = b": FilterUnexpected(5, "b", VALUE),
    "a = NULL": FilterUnexpected(5, "NULL", VALUE),
    "a = `b`": FilterUnexpected(5, "`b`", VALUE),
    "a == 1": FilterUnexpected(3, "==", SIGN),
    "a <> 1": FilterUnexpected(3, "<>", SIGN),
    "1 = a": FilterUnexpected(1, "1", KEY),
    "'a' = 1": FilterUnexpected(1, "'a'", KEY),
    "in = 1": FilterUnexpected(1, "in", KEY),
    "a = 1 AND AND b = 2": FilterUnexpected(11, "AND", KEY),
    "a. = 1": FilterUnexpected(4, "=", "the rest of a key"),
    "a = 1 AND": FilterUnexpected(10, "", KEY),
    "a = 1 b = 2": FilterUnexpected(7, "b", "AND, OR or the end"),
    "(a = 1 b = 2)": FilterUnexpected(8, "b", "AND, OR or )"),
    "(a = 1": FilterUnexpected(7, "", ")"),
    "((a = 1": FilterUnexpected(8, "", ")"),
    "a = 1)": FilterUnexpected(6, ")", "AND, OR or the end"),
    "a = 1) AND b = 2": FilterUnexpected(6, ")", "AND, OR or the end"),
    "()": FilterUnexpected(2, ")", KEY),
    "a IS 1": FilterUnexpected(6, "1", "NULL or NOT NULL"),
    "a IS NOT 1": FilterUnexpected(10, "1", "NULL"),
    "a NOT = 1": FilterUnexpected(7, "=", "IN, LIKE or ILIKE"),
    "a IN 1": FilterUnexpected(6, "1", "( and values"),
    "a IN ()": FilterUnexpected(7, ")", VALUE),
    "a IN (1,)": FilterUnexpected(9, ")", VALUE),
    "a IN (1 2) AND b = 2": FilterUnexpected(9, "2", ", or )"),
    "a IN (1 AND 2) AND b = 2": FilterUnexpected(9, "AND", ", or )"),
    "a IN (1": FilterUnexpected(8, "", ", or )"),
    "a LIKE 1": FilterUnexpected(8, "1", "a text in quotes"),
    "a LIKE ('x')": FilterUnexpected(8, "(", "a text in quotes"),
    "é = 1": FilterCharacterUnknown(1, "é"),
    "a = 1; DROP": FilterCharacterUnknown(6, ";"),
    "a = {": FilterCharacterUnknown(5, "{"),
    "a-b = 1": FilterCharacterUnknown(2, "-"),
    "a = 'x": FilterTextUnended(5, "'"),
    "a = 'x''": FilterTextUnended(8, "'"),
    "`a = 1": FilterTextUnended(1, "`"),
    "a = '\0'": FilterTextUnkept(5, "'\0'"),
    "a = '\udcff'": FilterTextUnkept(5, "'\udcff'"),
    "a = 1.2.3": FilterNumberUnreadable(5, "1.2.3"),
    "a = 0x10": FilterNumberUnreadable(5, "0x10"),
    "a = 5e": FilterNumberUnreadable(5, "5e"),
    "a = 1e401": FilterNumberUnreadable(5, "1e401"),
    f"a = {'1' * 41}": FilterNumberUnreadable(5, "1" * 41),
    "a = 1_000": FilterNumberUnreadable(5, "1_000"),
    nested(DEPTH_MAX + 1): FilterTooDeep(DEPTH_MAX + 1, DEPTH_MAX),
    "NOT " * (DEPTH_MAX + 1) + "a = 1": FilterTooDeep(4 * DEPTH_MAX + 1, DEPTH_MAX),
    wide(TERMS_MAX + 1): FilterTooWide(7 + 3 * TERMS_MAX, TERMS_MAX),
    "a = 1 AND " * TERMS_MAX + "a = 1": FilterTooWide(10 * TERMS_MAX + 1, TERMS_MAX),
    "a" * (LENGTH_MAX + 1): FilterTooLong(LENGTH_MAX + 1, LENGTH_MAX),
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: ascii(text[:30]))
def test_what_cannot_be_read_is_told_with_its_place(text: str) -> None:
    assert parse(text).defects == (BROKEN[text],)


def test_what_is_at_a_bound_is_read() -> None:
    assert parse(nested(DEPTH_MAX)) == Parsed(A, ())
    assert parse(wide(TERMS_MAX - 1)).defects == ()
    assert parse(("a = 1 AND " * TERMS_MAX)[:-5]).defects == ()
    assert parse("a = 1".ljust(LENGTH_MAX)) == Parsed(A, ())
    assert parse(f"a = {'1' * 40}").defects == parse("a = 1e400").defects == parse("a = -1e-400").defects == ()


#: Broken pieces with their parentheses in order, behind which reading goes on: what a piece lacks at its end is told for that place.
_GONE_ON_BEHIND: Final = FilterUnexpected | FilterTextUnkept | FilterNumberUnreadable
PIECES: Final = {
    text: defect
    for text, defect in BROKEN.items()
    if len(text) < 40 and text.count("(") == text.count(")") and isinstance(defect, _GONE_ON_BEHIND)
}


def _given_up(reader: Any, *upto: str) -> None:
    reader._next = len(reader._tokens) - 1


def _behind(defect: Any, by: int, ends: str) -> Any:
    """A piece's defect where the piece begins ``by`` characters later, and is followed by ``ends``."""
    if isinstance(defect, FilterUnexpected) and not defect.found and ends:
        return FilterUnexpected(defect.at + by + ends.index(ends.strip()), ends.split()[0], defect.wanted)
    return replace(defect, at=defect.at + by)


@proven_by(planted(grammar._Reader, "_skip", _given_up), planted(grammar, "_place", lambda defect: 0 - getattr(defect, "at", 0)))
def test_two_mistakes_are_both_told_whatever_they_are() -> None:
    assert len(PIECES) > 25
    pairs = {f"{first} OR {second}": (one, other) for first, one in PIECES.items() for second, other in PIECES.items()}
    wanted = {text: (_behind(one, 0, " OR "), _behind(other, text.rindex(" OR ") + 4, "")) for text, (one, other) in pairs.items()}
    assert {text: found for text in wanted if (found := parse(text).defects) != wanted[text]} == {}


def test_what_could_be_read_beside_a_mistake_is_there_to_be_judged() -> None:
    assert parse("a = 1 AND b == 2 OR c = 3").tree == Or((A, C))
    assert parse("a IN (1 2) AND b = 2").tree == B
    assert parse("a = 1) AND b = 2 b").tree == Or((A, B))
    assert parse("NOT (a = 1 AND ;)").tree == Not(A)
    assert parse("a ==").tree is None


# ---------------------------------------------------------------------------------------------------------- properties

_LETTERS: Final = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_ODD_NAMES: Final = ("a", "weights.edits", "in", "Not.a", "a.in", "_x9", "", "é", "a b", "`", "a.", ".a", "9", "a`b'c\"")
_NAMES: Final = st.sampled_from(_ODD_NAMES) | st.text(_LETTERS, max_size=4)
_TEXTS: Final = st.text(_LETTERS, max_size=5) | st.sampled_from(("'", "''", '"', "\\"))
_NUMBERS: Final = st.integers(-(10**38), 10**38).map(Decimal) | st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent), st.integers(-(10**6), 10**6), st.integers(-300, 300)
)
_VALUES: Final[st.SearchStrategy[Value]] = _TEXTS.map(Text) | _NUMBERS.map(Number) | st.booleans().map(Truth)
_KEYS: Final = _NAMES.map(Name)
_SIGNS: Final = st.sampled_from(cast("tuple[Sign, ...]", ("=", "!=", "<", "<=", ">", ">=")))
_COMPARISONS: Final[st.SearchStrategy[Filter]] = st.one_of(
    st.builds(Compare, _KEYS, _SIGNS, _VALUES),
    st.builds(Match, _KEYS, _TEXTS.map(Text), st.booleans()),
    st.builds(In, _KEYS, st.builds(NonEmpty, _VALUES, st.lists(_VALUES, max_size=2).map(tuple))),
    st.builds(Absent, _KEYS),
)
TREES: Final = st.recursive(
    _COMPARISONS,
    lambda parts: st.one_of(
        parts.map(Not), *(st.lists(parts, min_size=2, max_size=3).map(tuple).map(joined) for joined in (And, Or))
    ),
    max_leaves=8,
)  # fmt: skip


@given(TREES)
def test_reading_a_spelling_gives_the_tree_again(tree: Filter) -> None:
    assume(len(spell(tree)) <= LENGTH_MAX)
    assert parse(spell(tree)) == Parsed(tree, ())


@proven_by(
    planted(tree, "_within", spell),
    planted(tree, "_PLAIN_KEY", re.compile(".*", re.DOTALL)),
    planted(tree, "RESERVED", frozenset({"X"})),
)
def test_a_spelling_keeps_parentheses_and_quotes_where_they_are_needed() -> None:
    trees = [*CLEAN.values(), Not(Or((A, B))), Or((Or((A, B)), C)), Not(Not(Absent(Name("a.in")))), Compare(Name("NOT.a"), "=", Text("'"))]
    assert [each for each in trees if parse(spell(each)) != Parsed(each, ())] == []


#: What a filter is made of, and what it is not, in any order.
_WORDS: Final = (
    "a", "tag", "events", "closed", "(", ")", "AND", "or", "NOT", "in", "is", "null", "like", "ILIKE", "'x'", "''", "`k`", '"q"', "1",
    "-2.5", "1e9", "true", "=", "!=", ">=", ",", ".", "é", "\0", "\udcff", "'", "`", '"', ";", "\\", "==", "1.2.3", "🐑", "\u2028", "--",
)  # fmt: skip
_SOUP: Final = st.lists(st.sampled_from(_WORDS), max_size=30)


def _judged(text: str) -> None:
    parsed = parse(text)
    assert (parsed.tree is not None) or parsed.defects
    assert all(1 <= defect.at <= len(text) + 1 for defect in parsed.defects if not isinstance(defect, FilterTooLong))
    if not parsed.defects and parsed.tree is not None and len(again := spell(parsed.tree)) <= LENGTH_MAX:
        assert parse(again) == parsed
        assert spell(cast("Filter", parse(again).tree)) == again


@given(_SOUP.map(" ".join) | _SOUP.map("".join))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    _judged(text)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_whatever_bytes_are_given_are_read_or_refused(text: str) -> None:
    _judged(text)


def hostile() -> Iterator[str]:
    """The longest texts of one kind: what a reader could be made to run away or to run out with."""
    for piece in ("(", ")", "NOT ", "a = 1 AND (", "a.", "a IN (", ",", "'", "`", "''", "9", "e", "<", "é", "a ", "OR ", "a IS NOT ", "-"):
        yield (piece * LENGTH_MAX)[:LENGTH_MAX]


@proven_by(planted(grammar, "DEPTH_MAX", 10_000))
def test_no_text_of_any_length_or_depth_exhausts_the_reader() -> None:
    for text in hostile():
        try:
            _judged(text)
        except RecursionError:
            pytest.fail(f"the reader ran out of depth over {text[:10]}…")
