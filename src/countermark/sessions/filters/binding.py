"""A filter's tree, held against the keys that there are: a condition on columns, or everything that does not fit.

Rules kept here:

1. Every comparison is judged, and every defect told: an unknown key with the keys that are spelled like it, an operator that its type does
   not have, a value of another type.
2. Negation is carried down to what compares.
3. Numbers are exact. A number that no column can hold, or that lies between two, is decided here, not rounded there.
4. LIKE: ``%`` is any characters, ``_`` is one, ``\\`` takes the next of these three as it is. ILIKE takes A to Z as a to z, and no
   other letters: what databases agree on.
"""

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias, final

from countermark.sessions.filters.condition import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Cell,
    Condition,
    Flagged,
    Has,
    Holds,
    Is,
    Like,
    Piece,
    Scalar,
    Where,
    Wild,
)
from countermark.sessions.filters.grammar import SyntaxDefect, parse
from countermark.sessions.filters.keys import (
    INT64_MAX,
    OPERATORS,
    PADDED_DIGITS,
    Column,
    Count,
    Double,
    Flag,
    Key,
    Members,
    Operator,
    Padded,
    Subject,
    Time,
    Type,
    Words,
    keys_of,
)
from countermark.sessions.filters.tree import (
    Absent,
    And,
    Compare,
    Comparison,
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
    spell_value,
)
from countermark.sessions.times import nanoseconds
from countermark.values import NonEmpty, Refused, Unreadable

#: How many keys are told that may have been meant.
NEAREST_MAX: Final = 3
#: In front of a key these say nothing, as in mlflow; so does the subject's name for one of it.
_PREFIXES: Final = ("attributes.", "attribute.", "attr.")
_ONE_OF: Final[Mapping[Subject, str]] = {"sessions": "session.", "runs": "run."}
_FOLDED: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_SATISFIES: Final[Mapping[Sign, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_NEGATED: Final[Mapping[Sign, Sign]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


# ------------------------------------------------------------------------------------------------------------ the defects


@final
@dataclass(frozen=True, slots=True)
class FilterKeyUnknown:
    """No key of what is listed goes by this name; ``nearest`` are those that are spelled like it."""

    at: int
    key: str
    subject: str
    nearest: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class FilterOperatorUnfit:
    """A key's type has no such comparison; ``operators`` are those that it has."""

    at: int
    key: str
    operator: str
    type: str
    operators: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class FilterValueUnfit:
    """A key cannot be compared with this value; ``why`` is a clause that fits after "because"."""

    at: int
    key: str
    found: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class FilterPatternUnfit:
    """In a pattern of LIKE, at its character ``position`` (counted from 1), a backslash stands before what it has no meaning for."""

    at: int
    key: str
    position: int


BindingDefect: TypeAlias = FilterKeyUnknown | FilterOperatorUnfit | FilterValueUnfit | FilterPatternUnfit
FilterDefect: TypeAlias = SyntaxDefect | BindingDefect


# ------------------------------------------------------------------------------------------------------------- the binding


def read_where(text: str, subject: Subject) -> Where | Refused[FilterDefect]:
    """The condition that a filter's text puts on a subject's rows, or everything that is wrong with it."""
    parsed = parse(text)
    binder = _Binder(subject)
    condition = None if parsed.tree is None else binder.bind(parsed.tree, False)
    defects = NonEmpty.of(sorted((*parsed.defects, *binder.defects), key=lambda each: getattr(each, "at", 0)))
    if defects is not None:
        return Refused(defects)
    assert condition is not None, "a text without defects has a tree"
    return Where(subject, condition)


#: A value as its key's type has it: a text, a truth value, or a number (a time in nanoseconds since 1970).
Known: TypeAlias = str | bool | Fraction
#: What takes the place of a comparison that was refused: the whole filter is.
_REFUSED: Final = Always(False)


@final
class _Binder:
    def __init__(self, subject: Subject) -> None:
        self._subject: Final[Subject] = subject
        self._keys: Final = keys_of(subject)
        self.defects: Final[list[BindingDefect]] = []

    def bind(self, tree: Filter, negated: bool) -> Condition:
        """The condition that a tree, or its negation, puts on a row."""
        match tree:
            case Not(of):
                return self.bind(of, not negated)
            case And(parts):
                bound = tuple([self.bind(part, negated) for part in parts])
                return AnyOf(bound) if negated else AllOf(bound)
            case Or(parts):
                bound = tuple([self.bind(part, negated) for part in parts])
                return AllOf(bound) if negated else AnyOf(bound)
            case Compare() | Match() | In() | Absent():
                key = self._key(tree.key)
                return _REFUSED if key is None else self._compared(tree, key, negated)

    def _key(self, name: Name) -> Key | None:
        text = name.text
        for prefix in (*_PREFIXES, _ONE_OF[self._subject]):
            if text not in self._keys:
                text = name.text.removeprefix(prefix)
        if text in self._keys:
            return self._keys[text]
        self.defects.append(FilterKeyUnknown(name.at, name.text, self._subject, _nearest(text, tuple(self._keys))))
        return None

    def _compared(self, tree: Comparison, key: Key, negated: bool) -> Condition:
        word, column = _operator(tree), key.column
        fits = word in OPERATORS[key.type]
        if not fits:
            self.defects.append(FilterOperatorUnfit(tree.key.at, key.name, word, key.type, OPERATORS[key.type]))
        match tree:
            case Compare(_, sign, value):
                values = self._values((value,), key)
                return _decided(column, sign, values, negated) if fits and values else _REFUSED
            case In(_, several):
                values = self._values(several, key)
                return _decided(column, "=", values, negated) if fits and values else _REFUSED
            case Match(_, pattern, folded):
                pieces = self._pieces(pattern, key, folded)
                return _matched(column, pieces, folded, negated) if fits else _REFUSED
            case Absent():
                return _missing(column, negated) if fits else _REFUSED

    def _pieces(self, pattern: Text, key: Key, folded: bool) -> tuple[Piece | Wild, ...]:
        """A pattern's pieces, in small letters where it is ``folded``."""
        pieces: list[Piece | Wild] = []
        wilds: dict[str, Wild] = {"%": "any", "_": "one"}
        said = pattern.text.translate(_FOLDED) if folded else pattern.text
        text, rest = "", iter(enumerate(said, start=1))
        for position, character in rest:
            if character == "\\":
                _, character = next(rest, (0, ""))
                if character not in ("\\", "%", "_"):
                    self.defects.append(FilterPatternUnfit(pattern.at, key.name, position))
                text += character
            elif character in wilds:
                pieces += (*((Piece(text),) if text else ()), wilds[character])
                text = ""
            else:
                text += character
        return (*pieces, *((Piece(text),) if text else ()))

    def _values(self, values: Iterable[Value], key: Key) -> tuple[Known, ...]:
        """The values as their key's type has them; none where one of them is refused."""
        known = [self._value(value, key) for value in values]
        found = tuple([each for each in known if each is not None])
        return found if len(found) == len(known) else ()

    def _value(self, value: Value, key: Key) -> Known | None:
        """A value as its key's type has it (a time in nanoseconds); None where it is refused."""
        wanted = key.type
        why = _WANTED[wanted]
        match value:
            case Text(text) if wanted in ("text", "set of texts"):
                return text
            case Text(text) if wanted == "time":
                read = nanoseconds(text)
                if not isinstance(read, Unreadable):
                    return Fraction(read)
                why = read.why
            case Number(number) if wanted in ("integer", "number"):
                return Fraction(number)
            case Truth(truth) if wanted == "boolean":
                return truth
            case Text() | Number() | Truth():
                pass
        self.defects.append(FilterValueUnfit(value.at, key.name, spell_value(value), why))
        return None


_WANTED: Final[Mapping[Type, str]] = {
    "text": "it is compared with a text in quotes",
    "set of texts": "its members are compared with a text in quotes",
    "integer": "it is compared with a number, without quotes",
    "number": "it is compared with a number, without quotes",
    "time": "it is compared with a date or a date-time in quotes",
    "boolean": "it is TRUE or FALSE, without quotes",
}


def _operator(tree: Comparison) -> Operator:
    match tree:
        case Compare(_, sign, _):
            return sign
        case Match(_, _, folded):
            return "ILIKE" if folded else "LIKE"
        case In():
            return "IN"
        case Absent():
            return "IS NULL"


def _nearest(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that are spelled like one, and those that share a part with it."""
    parts = set(name.lower().split("."))
    shared = (each for each in names if parts & set(each.split(".")))
    return tuple(dict.fromkeys((*difflib.get_close_matches(name.lower(), names, NEAREST_MAX), *shared)))[:NEAREST_MAX]


# ---------------------------------------------------------------------------------------------------------- what is decided


def _decided(column: Column, sign: Sign, values: tuple[Known, ...], negated: bool) -> Condition:
    """What it means that a column compares so with a value, or is one of several."""
    first, *others = values
    if isinstance(column, Flag):
        return Flagged(column, (first is True) is ((sign == "=") is not negated))
    if isinstance(column, Members):
        return Has(column, Among(tuple(map(str, values))) if others else Is("=", str(first)), negated is not (sign == "!="))
    if not others:
        found = _translated(column, sign, first)
        if isinstance(found, bool):
            return Always(found is not negated)
        is_so = Is(_NEGATED[found.sign] if negated else found.sign, found.cell)
        return Holds(column, is_so, _SATISFIES[is_so.sign](_absent(column), is_so.cell))
    cells = tuple([found.cell for value in values if isinstance(found := _translated(column, "=", value), Is)])
    return Holds(column, Among(cells, negated), (_absent(column) in cells) is not negated) if cells else Always(negated)


def _matched(column: Column, pieces: tuple[Piece | Wild, ...], folded: bool, negated: bool) -> Condition:
    """What it means that a text, or a member of a set, matches a pattern."""
    if isinstance(column, Members):
        return Has(column, Like(pieces, folded), negated)
    assert isinstance(column, Words), "only texts have patterns"
    return Holds(column, Like(pieces, folded, negated), all(piece == "any" for piece in pieces) is not negated)


def _missing(column: Column, negated: bool) -> Condition:
    """What it means that nothing is there: no member, no text, 0."""
    if isinstance(column, Members):
        return Has(column, None, not negated)
    return _decided(column, "=", ("" if isinstance(column, Words) else Fraction(0),), negated)


def _absent(column: Scalar) -> Cell:
    """The cell that stands for a value which is absent."""
    match column:
        case Words():
            return ""
        case Count() | Time():
            return 0
        case Padded():
            return _padded(0)
        case Double():
            return 0.0


def _translated(column: Scalar, sign: Sign, value: Known) -> Is | bool:
    """The comparison as one of what the column holds; or its answer, where every cell gives the same."""
    match column:
        case Words(_, prefix):
            text = str(value)
            if text.startswith(prefix):
                return Is(sign, text.removeprefix(prefix))
            return _SATISFIES[sign](prefix, text)  # every spelling begins with the prefix, so it lies on the same side of the text
        case Count():
            return _whole(sign, Fraction(value), -INT64_MAX - 1, INT64_MAX)
        case Time(_, unit_ns):
            return _whole(sign, Fraction(value) / unit_ns, -INT64_MAX - 1, INT64_MAX)
        case Padded():
            found = _whole(sign, Fraction(value), 0, 10**PADDED_DIGITS - 1)
            return found if isinstance(found, bool) else Is(found.sign, _padded(int(found.cell)))
        case Double():
            return Is(sign, _double(Fraction(value)))


def _padded(count: int) -> str:
    return str(count).zfill(PADDED_DIGITS)


def _double(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _whole(sign: Sign, value: Fraction, low: int, high: int) -> Is | bool:
    """A comparison of whole numbers from ``low`` to ``high`` with any number, as one with such a number."""
    whole = math.floor(value)
    if whole != value:
        # Between two whole numbers: equal to none, and above it is from the next one on.
        if sign in ("=", "!="):
            return sign == "!="
        sign, whole = ("<=", whole) if sign in ("<", "<=") else (">=", whole + 1)
    return Is(sign, whole) if low <= whole <= high else _SATISFIES[sign](low if whole > high else high, whole)
