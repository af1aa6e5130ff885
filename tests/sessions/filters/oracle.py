"""What a filter means, said a second time and in the plainest way: over rows as Python has them. And rows and filters to try it on.

A row is a mapping from a subject's keys to values: a text, a whole number, a float, a truth value, a frozenset of texts; None where there
is nothing. A time is in nanoseconds.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from hypothesis import strategies as st

from countermark.sessions.filters.keys import OPERATORS, Key, Subject, Time, Words, keys_of
from countermark.sessions.filters.tree import Absent, And, Compare, Filter, In, Match, Name, Not, Number, Or, Text, Truth, Value
from countermark.values import NonEmpty

Row = Mapping[str, Any]

_ORDER: Final = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_NOTHING: Final = {"text": "", "integer": 0, "number": 0.0, "time": 0, "boolean": False}


def holds(tree: Filter, row: Row, subject: Subject) -> bool:
    """Whether a row satisfies a filter."""
    match tree:
        case Not(of):
            return not holds(of, row, subject)
        case And(parts):
            return all(holds(part, row, subject) for part in parts)
        case Or(parts):
            return any(holds(part, row, subject) for part in parts)
        case Compare(key, sign, value):
            found, kind = _cell(key, row, subject)
            if kind == "set of texts":
                return (_meant(value, kind) in found) is (sign == "=")
            return bool(_ORDER[sign](found, _meant(value, kind)))
        case In(key, values):
            found, kind = _cell(key, row, subject)
            wanted = [_meant(value, kind) for value in values]
            return any(each in wanted for each in found) if kind == "set of texts" else found in wanted
        case Match(key, pattern, folded):
            found, kind = _cell(key, row, subject)
            return any(_like(each, pattern.text, folded) for each in (found if kind == "set of texts" else [found]))
        case Absent(key):
            found, kind = _cell(key, row, subject)
            return found == (frozenset() if kind == "set of texts" else _NOTHING[kind])


def _cell(key: Name, row: Row, subject: Subject) -> tuple[Any, str]:
    kind = keys_of(subject)[key.text].type
    found = row[key.text]
    return (_NOTHING[kind] if found is None else found), kind


def _meant(value: Value, kind: str) -> Any:
    match value:
        case Text(text):
            return text_time(text) if kind == "time" else text
        case Number(number):
            return float(number) if kind == "number" else number
        case Truth(truth):
            return truth


def _like(text: str, pattern: str, folded: bool) -> bool:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wilds = {"%": ".*", "_": "."}
    wanted = "".join(wilds[part] if part in wilds else re.escape(small(part[-1], folded)) for part in parts)
    return re.fullmatch(wanted, small(text, folded), re.DOTALL) is not None


def small(text: str, folded: bool) -> str:
    return "".join(chr(ord(each) + 32) if folded and "A" <= each <= "Z" else each for each in text)


def text_time(text: str) -> int:
    """Of ``2026-11-01`` or ``2026-11-01T09:30:00.123456789Z``."""
    second, _, fraction = text.removesuffix("Z").partition(".")
    since = datetime.fromisoformat(second).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(seconds=1) * 10**9 + int(fraction.ljust(9, "0"))


def time_text(at_ns: int) -> str:
    second = datetime(1970, 1, 1) + timedelta(seconds=at_ns // 10**9)
    return f"{second.isoformat()}.{at_ns % 10**9:09}Z"


# ------------------------------------------------------------------------------------------------------------ what is tried

#: What databases differ about: capitals, folding beyond ASCII, wildcards of LIKE, GLOB and regular expressions, quotes, planes of Unicode.
TEXTS: Final = (
    "", "a", "A", "b", "aB", "a%b", "a_b", "a*b", "a?b", "[a]", "^a", "a\\b", "\\", "'", '"', "it's", ":w", "%s", "{p:String}", "$1",
    "é", "É", "ß", "İ", "ı", "K", "ſ", "ｚ", "🐑", "a🐑b", "\n", "a\nb", " a", "a ", "-", "0", "NULL", "�",
)  # fmt: skip
_INTEGERS: Final = (0, 1, -1, 2, 5, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
_WHOLE: Final = (0, 1, 2, 2**63 - 1, 2**63, 2**64, 10**19, 10**20, 10**39)
_DOUBLES: Final = (0.0, -1.0, 0.1, 0.3, 0.30000000000000004, 2.5, 5e-324, 1e300, 1.7976931348623157e308)
_NUMBERS: Final = (*_INTEGERS, *_WHOLE, 2**63 + 1, -(10**30), 10**40, 10**40 - 1)
_DECIMALS: Final = (
    *map(Decimal, _NUMBERS), Decimal("2.5"), Decimal("-0.5"), Decimal("0.1"), Decimal("0.3"), Decimal("1e-400"), Decimal("1e400"),
    Decimal("-1e400"), Decimal("0.1000000000000000055511151231257827"),
)  # fmt: skip
_TIMES: Final = (
    0,
    1,
    -1,
    10**9,
    1_793_491_200_000_000_000,
    1_793_491_200_000_000_001,
    1_793_491_200_500_000_000,
    1_793_577_600_000_000_000,
)
_DAYS: Final = ("1970-01-01", "2026-11-01", "2026-11-02", "0001-01-01", "9999-12-31")

texts: Final = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
#: Patterns: the same texts with what is special in them taken as it is, and wildcards between.
_PLAIN: Final = texts.map(lambda text: re.sub(r"([\\%_])", r"\\\1", text))
patterns: Final = st.lists(_PLAIN | st.sampled_from(("%", "_", "wk1:", "WK")), max_size=4).map("".join)
times: Final = st.sampled_from((*map(time_text, _TIMES), *_DAYS))


def values_of(key: Key) -> st.SearchStrategy[Any]:
    """Values that a row may have for a key, None among them."""
    if key.type == "set of texts":
        return st.frozensets(texts, max_size=3)
    if prefix := prefix_of(key):
        return texts.map(lambda text: prefix + text)
    found: dict[str, st.SearchStrategy[Any]] = {
        "text": texts,
        "integer": st.sampled_from(_WHOLE if key.name == "weights.changed" else _INTEGERS),
        "number": st.sampled_from(_DOUBLES),
        "time": st.sampled_from(_TIMES).map(lambda at: at // unit_of(key) * unit_of(key)),
        "boolean": st.booleans(),
    }
    return st.none() | found[key.type] if may_lack(key) else found[key.type]


def may_lack(key: Key) -> bool:
    """Whether a row may have nothing for a key: a run always has all but a verdict."""
    return key.subject == "sessions" or key.name == "verdict"


def prefix_of(key: Key) -> str:
    return key.column.prefix if isinstance(key.column, Words) else ""


def unit_of(key: Key) -> int:
    return key.column.unit_ns if isinstance(key.column, Time) else 1


def written(key: Key) -> st.SearchStrategy[Value]:
    """Values that a filter may compare a key with."""
    prefixed = st.sampled_from((prefix_of(key), "wk")).flatmap(lambda prefix: texts.map(lambda text: prefix + text))
    found: dict[str, st.SearchStrategy[Value]] = {
        "text": (prefixed if prefix_of(key) else texts).map(Text),
        "set of texts": texts.map(Text),
        "integer": st.sampled_from(_DECIMALS).map(Number),
        "number": (st.sampled_from(_DECIMALS) | st.sampled_from(_DOUBLES).map(lambda double: Decimal(repr(double)))).map(Number),
        "time": times.map(Text),
        "boolean": st.booleans().map(Truth),
    }
    return found[key.type]


@st.composite
def comparisons(draw: st.DrawFn, keys: tuple[Key, ...]) -> Filter:
    key = draw(st.sampled_from(keys))
    name, operator = Name(key.name), draw(st.sampled_from(OPERATORS[key.type]))
    match operator:
        case "IS NULL":
            return Absent(name)
        case "IN":
            several = draw(st.lists(written(key), min_size=1, max_size=3))
            return In(name, NonEmpty(several[0], tuple(several[1:])))
        case "LIKE" | "ILIKE":
            return Match(name, Text(draw(patterns)), operator == "ILIKE")
        case "=" | "!=" | "<" | "<=" | ">" | ">=":
            return Compare(name, operator, draw(written(key)))


def filters(subject: Subject) -> st.SearchStrategy[Filter]:
    """Filters without anything wrong in them."""

    def joined(parts: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
        several = st.lists(parts, min_size=2, max_size=3).map(tuple)
        return parts.map(Not) | several.map(And) | several.map(Or)

    return st.recursive(comparisons(tuple(keys_of(subject).values())), joined, max_leaves=5)


def rows(subject: Subject) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Some rows of a subject."""
    row = st.fixed_dictionaries({key.name: values_of(key) for key in keys_of(subject).values() if key.name != "id"})
    return st.lists(row, max_size=5).map(lambda found: [{"id": f"id{at}", **each} for at, each in enumerate(found)])


# --------------------------------------------------------------------------------------------------- everything, once each


def _samples(key: Key) -> Sequence[Any]:
    """Values of every kind that a row may have for a key, absent ones first."""
    match key.type:
        case "text":
            return (*((None,) if may_lack(key) else ()), *(prefix_of(key) + text for text in TEXTS))
        case "set of texts":
            return (frozenset[str](), *(frozenset((text, TEXTS[-at])) for at, text in enumerate(TEXTS)))
        case "integer":
            return (None, *(_WHOLE if key.name == "weights.changed" else _INTEGERS))
        case "number":
            return (None, *_DOUBLES)
        case "time":
            return (*((None,) if may_lack(key) else ()), *(at // unit_of(key) * unit_of(key) for at in _TIMES))
        case "boolean":
            return (None, False, True)


def population(subject: Subject) -> list[dict[str, Any]]:
    """Rows in which each key has each of its samples, beside others than in the row before."""
    keys = tuple(keys_of(subject).values())
    rows = range(max(len(_samples(key)) for key in keys))
    return [{key.name: f"id{at}" if key.name == "id" else _samples(key)[at % len(_samples(key))] for key in keys} for at in rows]


def every_comparison(subject: Subject) -> list[Filter]:
    """Each key by each comparison: with many values where it is the first key with such a column, else with a few."""
    asked: list[Filter] = []
    seen: set[str] = set()
    for key in keys_of(subject).values():
        shape = repr(replace(key.column, column=""))
        asked += comparisons_of(key, 9 if shape in seen else 1)
        seen.add(shape)
    return [Not(tree) if at % 2 else tree for at, tree in enumerate(asked)]


def comparisons_of(key: Key, step: int) -> Iterator[Filter]:
    """A key by each comparison; values take turns: each is compared by some operator, and each operator with some of all kinds."""
    name, samples = Name(key.name), _compared(key)
    for at, operator in enumerate(OPERATORS[key.type]):
        some = samples[at % 3 :: 3 * step] or samples[:1]
        match operator:
            case "IS NULL":
                yield from (Absent(name), Absent(name))
            case "IN":
                yield from (In(name, NonEmpty(value, (samples[0], samples[-1]))) for value in some)
            case "LIKE" | "ILIKE":
                shapes = ("", "%", "_", "%%", "wk1:%", "w_1:A%", *(_shape(text, at) for at, text in enumerate(TEXTS)))
                yield from (Match(name, Text(shape), operator == "ILIKE") for shape in shapes[::step])
            case "=" | "!=" | "<" | "<=" | ">" | ">=":
                yield from (Compare(name, operator, value) for value in some)


def _shape(text: str, at: int) -> str:
    return ("{}", "{}%", "%{}_", "%{}%")[at % 4].format(re.sub(r"([\\%_])", r"\\\1", text))


def _compared(key: Key) -> Sequence[Value]:
    match key.type:
        case "text" | "set of texts":
            return [Text(prefix + text) for text in TEXTS for prefix in dict.fromkeys((prefix_of(key), ""))]
        case "integer" | "number":
            return [Number(number) for number in (*_DECIMALS, *map(Decimal, map(repr, _DOUBLES)))]
        case "time":
            return [Text(text) for text in (*map(time_text, _TIMES), *_DAYS)]
        case "boolean":
            return [Truth(True), Truth(False)]
