"""The text of a filter, read into a tree: mlflow's filter language, with OR, NOT, parentheses and values that have a type::

    filter     := all { OR all }
    all        := one { AND one }
    one        := NOT one | "(" filter ")" | comparison
    comparison := key sign value | key IS [NOT] NULL | key [NOT] IN "(" value { "," value } ")" | key [NOT] (LIKE | ILIKE) text
    sign       := = | != | < | <= | > | >=
    key        := part { "." part }        part := name | `any text` | "any text"
    value      := number | 'any text' | "any text" | TRUE | FALSE

Rules kept here:

1. Reading never raises, whatever the text, and names everything that is wrong with it, each at its character (counted from 1): what
   cannot be understood is passed over up to the next AND, OR or parenthesis, and reading goes on.
2. Length, depth and the number of terms are bounded, so that neither this reader nor a database runs out of anything.
3. Words of the language are of any case. A quote within quotes is written twice. Numbers are exact.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, TypeAlias, cast, final

from countermark.sessions.filters.tree import (
    RESERVED,
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
)
from countermark.values import NonEmpty

#: The longest filter that is read, in characters.
LENGTH_MAX: Final = 4096
#: How deep parentheses and NOT may be nested.
DEPTH_MAX: Final = 32
#: How many comparisons and values a filter may have, together.
TERMS_MAX: Final = 256
DIGITS_MAX: Final = 40
EXPONENT_MAX: Final = 400


# ------------------------------------------------------------------------------------------------------------ the defects


@final
@dataclass(frozen=True, slots=True)
class FilterTooLong:
    """The filter is longer than any that is read."""

    length: int
    length_max: int


@final
@dataclass(frozen=True, slots=True)
class FilterCharacterUnknown:
    """Characters outside of quotes that mean nothing in a filter; ``at`` is where they stand, counted from 1."""

    at: int
    found: str


@final
@dataclass(frozen=True, slots=True)
class FilterTextUnended:
    """A quote that is opened at ``at`` and never closed."""

    at: int
    quote: str


@final
@dataclass(frozen=True, slots=True)
class FilterTextUnkept:
    """A text that nothing can be compared with, because no store keeps what it holds: NUL, or half of a surrogate pair."""

    at: int
    found: str


@final
@dataclass(frozen=True, slots=True)
class FilterNumberUnreadable:
    """What begins like a number and is none that is read."""

    at: int
    found: str


@final
@dataclass(frozen=True, slots=True)
class FilterUnexpected:
    """At ``at`` stands ``found`` (nothing: the filter's end) where ``wanted`` belongs."""

    at: int
    found: str
    wanted: str


@final
@dataclass(frozen=True, slots=True)
class FilterTooDeep:
    """Parentheses and NOT are nested deeper than is read; ``at`` is where."""

    at: int
    depth_max: int


@final
@dataclass(frozen=True, slots=True)
class FilterTooWide:
    """The filter has more comparisons and values than are read; ``at`` is the first beyond."""

    at: int
    terms_max: int


SyntaxDefect: TypeAlias = (
    FilterTooLong | FilterCharacterUnknown | FilterTextUnended | FilterTextUnkept | FilterNumberUnreadable | FilterUnexpected
    | FilterTooDeep | FilterTooWide
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- the tokens

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<text>'(?:[^']|'')*')|(?P<double>"(?:[^"]|"")*")|(?P<back>`(?:[^`]|``)*`)|(?P<open>['"`].*)
    |(?P<number>[+-]?\.?[0-9](?:[eE][+-]|[A-Za-z0-9_.])*)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>[<>=!]+)|(?P<mark>[(),.])
    |(?P<unknown>.(?:(?![ \t\r\n'"`+\-.A-Za-z0-9_<>=!(),]).)*)""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER: Final = re.compile(r"[+-]?(?P<digits>[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]{1,4}))?")
_UNKEPT: Final = re.compile("[\0\ud800-\udfff]")
_SIGNS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})

_Kind: TypeAlias = Literal["text", "double", "back", "number", "reserved", "word", "sign", "mark", "unknown", "end"]
_QUOTES: Final[dict[str, _Kind]] = {"'": "text", '"': "double", "`": "back"}


@final
@dataclass(frozen=True, slots=True)
class _Token:
    """``said`` is what it stands for (a text without its quotes, a reserved word in capitals), ``found`` how it was written."""

    kind: _Kind
    said: str
    found: str
    at: int


def _tokens(text: str, defects: list[SyntaxDefect]) -> list[_Token]:
    """Every token, the end last. What is wrong with one is told, and a token of its kind stands in its place."""
    tokens: list[_Token] = []
    for found in _TOKEN.finditer(text):
        kind, raw, at = found.lastgroup, found[0], found.start() + 1
        if kind == "unknown":
            defects.append(FilterCharacterUnknown(at, raw))
            tokens.append(_Token("unknown", "", raw, at))
        elif kind == "open":
            defects.append(FilterTextUnended(at, raw[0]))
            tokens.append(_Token(_QUOTES[raw[0]], "", raw, at))
        elif kind in ("text", "double", "back"):
            if _UNKEPT.search(raw) is not None:
                defects.append(FilterTextUnkept(at, raw))
            tokens.append(_Token(cast("_Kind", kind), raw[1:-1].replace(raw[0] * 2, raw[0]), raw, at))
        elif kind == "number":
            said = raw
            if not _is_number(raw):
                defects.append(FilterNumberUnreadable(at, raw))
                said = "0"
            tokens.append(_Token("number", said, raw, at))
        elif kind == "word" and raw.upper() in RESERVED:
            tokens.append(_Token("reserved", raw.upper(), raw, at))
        elif kind != "space":
            tokens.append(_Token(cast("_Kind", kind), raw, raw, at))
    tokens.append(_Token("end", "", "", len(text) + 1))
    return tokens


def _is_number(raw: str) -> bool:
    read = _NUMBER.fullmatch(raw)
    if read is None:
        return False
    exponent = abs(int(read["exponent"] or 0))
    return len(read["digits"].replace(".", "").strip("0")) <= DIGITS_MAX and exponent <= EXPONENT_MAX


# ------------------------------------------------------------------------------------------------------------- the reader

_A_KEY: Final = "a key, NOT or ("
_A_COMPARISON: Final = "=, !=, <, <=, >, >=, IN, LIKE, ILIKE or IS"
_A_VALUE: Final = "a number, a text in quotes, TRUE or FALSE"
#: Where reading goes on behind what it could not understand.
_BOUNDARIES: Final = ("AND", "OR", ")")


class _Refused(Exception):
    """What stands here was told of; reading goes on behind it."""


@final
class _Reader:
    def __init__(self, tokens: list[_Token], defects: list[SyntaxDefect]) -> None:
        self._tokens = tokens
        self._defects = defects
        self._next = 0
        self._terms = 0
        self._gave_up = False
        # What is wrong by itself is not told again for where it stands, nor is the end that a quote never came to.
        self._told = {_place(defect) for defect in defects}
        if any(isinstance(defect, FilterTextUnended) for defect in defects):
            self._told.add(tokens[-1].at)

    def whole(self) -> Filter | None:
        """The filter; None where nothing of it could be read."""
        read: list[Filter | None] = [self._filter(0)]
        while self._here().kind != "end":
            # Only a parenthesis that nobody opened ends a filter before its end.
            self._unexpected("AND, OR or the end")
            self._next += 1
            self._skip()
            if self._takes("AND") or self._takes("OR"):
                read.append(self._filter(0))
        return _joined(Or, read)

    def _here(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, said: str) -> bool:
        token = self._here()
        if token.kind not in ("reserved", "mark") or token.said != said:
            return False
        self._next += 1
        return True

    def _unexpected(self, wanted: str) -> _Refused:
        token = self._here()
        if not self._gave_up and token.at not in self._told:
            self._defects.append(FilterUnexpected(token.at, token.found, wanted))
        return _Refused()

    def _skip(self, *upto: str) -> None:
        """Up to the next of these (AND, OR or a parenthesis) that stands in no parentheses opened on the way."""
        depth = 0
        while (token := self._here()).kind != "end":
            if token.kind in ("mark", "reserved"):
                if not depth and token.said in (upto or _BOUNDARIES):
                    return
                depth += {"(": 1, ")": -1}.get(token.said, 0)
            self._next += 1

    def _filter(self, depth: int) -> Filter | None:
        parts = [self._all(depth)]
        while self._takes("OR"):
            parts.append(self._all(depth))
        return _joined(Or, parts)

    def _all(self, depth: int) -> Filter | None:
        parts = [self._one(depth)]
        while self._takes("AND"):
            parts.append(self._one(depth))
        return _joined(And, parts)

    def _one(self, depth: int) -> Filter | None:
        """A part of what is joined by AND, and whatever else stands before the next AND, OR or closing parenthesis, which is refused."""
        read: Filter | None = None
        try:
            read = self._negated(depth)
            if self._here().kind != "end" and not (self._here().kind in ("mark", "reserved") and self._here().said in _BOUNDARIES):
                raise self._unexpected("AND, OR or the end" if not depth else "AND, OR or )")
        except _Refused:
            self._skip()
        return read

    def _negated(self, depth: int) -> Filter | None:
        at = self._here().at
        if self._takes("NOT"):
            self._deeper(depth, at)
            of = self._negated(depth + 1)
            return None if of is None else Not(of)
        if self._takes("("):
            self._deeper(depth, at)
            read = self._filter(depth + 1)
            if not self._takes(")"):
                # That is the end: a filter goes on to it or to a parenthesis that closes.
                self._unexpected(")")
            return read
        return self._comparison()

    def _deeper(self, depth: int, at: int) -> None:
        if depth >= DEPTH_MAX:
            self._give_up(FilterTooDeep(at, DEPTH_MAX))

    def _give_up(self, defect: SyntaxDefect) -> None:
        """The rest is not read: what is too much stays too much."""
        self._defects.append(defect)
        self._next = len(self._tokens) - 1
        self._gave_up = True
        raise _Refused

    def _term(self) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            self._give_up(FilterTooWide(self._here().at, TERMS_MAX))

    def _comparison(self) -> Filter:
        self._term()
        key = self._key()
        if self._takes("IS"):
            present = self._takes("NOT")
            if not self._takes("NULL"):
                raise self._unexpected("NULL" if present else "NULL or NOT NULL")
            return Not(Absent(key)) if present else Absent(key)
        token = self._here()
        if token.kind == "sign":
            if token.said not in _SIGNS:
                raise self._unexpected(_A_COMPARISON)
            self._next += 1
            return Compare(key, cast("Sign", token.said), self._value())
        negated = self._takes("NOT")
        if self._takes("IN"):
            read: Comparison = In(key, self._values())
        elif (folded := self._takes("ILIKE")) or self._takes("LIKE"):
            read = Match(key, self._text(), folded)
        else:
            raise self._unexpected("IN, LIKE or ILIKE" if negated else _A_COMPARISON)
        return Not(read) if negated else read

    def _key(self) -> Name:
        at = self._here().at
        parts: list[str] = []
        while True:
            token = self._here()
            if token.kind not in ("word", "back", "double", *(("reserved",) if parts else ())):
                raise self._unexpected("the rest of a key" if parts else _A_KEY)
            parts.append(token.found if token.kind == "reserved" else token.said)
            self._next += 1
            if not self._takes("."):
                return Name(".".join(parts), at)

    def _values(self) -> NonEmpty[Value]:
        if not self._takes("("):
            raise self._unexpected("( and values")
        try:
            values = [self._value()]
            while self._takes(","):
                self._term()
                values.append(self._value())
            if not self._takes(")"):
                raise self._unexpected(", or )")
        except _Refused:
            self._skip(")")
            self._takes(")")
            raise
        return NonEmpty(values[0], tuple(values[1:]))

    def _value(self) -> Value:
        token = self._here()
        if token.kind == "number":
            self._next += 1
            return Number(Decimal(token.said), token.at)
        if token.kind == "reserved" and token.said in ("TRUE", "FALSE"):
            self._next += 1
            return Truth(token.said == "TRUE", token.at)
        return self._text(_A_VALUE)

    def _text(self, wanted: str = "a text in quotes") -> Text:
        token = self._here()
        if token.kind not in ("text", "double"):
            raise self._unexpected(wanted)
        self._next += 1
        return Text(token.said, token.at)


def _joined(kind: type[And] | type[Or], parts: list[Filter | None]) -> Filter | None:
    """The parts that could be read, as one."""
    read = tuple(part for part in parts if part is not None)
    return None if not read else read[0] if len(read) == 1 else kind(read)


@final
@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text says. Beside defects, ``tree`` holds what could be read all the same (None: nothing), so that all of it can be judged."""

    tree: Filter | None
    defects: tuple[SyntaxDefect, ...]


def parse(text: str) -> Parsed:
    """A filter's text as a tree, with everything that is wrong with it in the order in which it stands there."""
    if len(text) > LENGTH_MAX:
        return Parsed(None, (FilterTooLong(len(text), LENGTH_MAX),))
    defects: list[SyntaxDefect] = []
    tree = _Reader(_tokens(text, defects), defects).whole()
    # What several parentheses lack at the end is told once.
    return Parsed(tree, tuple(sorted(dict.fromkeys(defects), key=_place)))


def _place(defect: SyntaxDefect) -> int:
    return 0 if isinstance(defect, FilterTooLong) else defect.at
