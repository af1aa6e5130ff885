"""What a filter says, as a tree, and the one spelling of it.

Rules kept here:

1. Reading a tree's spelling gives the tree again. Where something stood in a text is no part of what it says.
2. A tree says nothing of what keys there are, nor of their types: that is judged by ``binding``.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal, TypeAlias, final

from countermark.values import NonEmpty

#: The words that are no keys.
RESERVED: Final = frozenset({"AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "IS", "NULL", "TRUE", "FALSE"})
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")

Sign: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]


@final
@dataclass(frozen=True, slots=True)
class Name:
    """A key as it was written, its parts joined by dots."""

    text: str
    at: int = field(default=0, compare=False)


@final
@dataclass(frozen=True, slots=True)
class Text:
    """A text in quotes: a text, or a time."""

    text: str
    at: int = field(default=0, compare=False)


@final
@dataclass(frozen=True, slots=True)
class Number:
    """A number, exact."""

    number: Decimal
    at: int = field(default=0, compare=False)


@final
@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE or FALSE."""

    truth: bool
    at: int = field(default=0, compare=False)


Value: TypeAlias = Text | Number | Truth


@final
@dataclass(frozen=True, slots=True)
class Compare:
    """``key sign value``."""

    key: Name
    sign: Sign
    value: Value


@final
@dataclass(frozen=True, slots=True)
class Match:
    """``key LIKE pattern``; ``folded``: ILIKE, which takes A to Z as a to z."""

    key: Name
    pattern: Text
    folded: bool


@final
@dataclass(frozen=True, slots=True)
class In:
    """``key IN (values)``."""

    key: Name
    values: NonEmpty[Value]


@final
@dataclass(frozen=True, slots=True)
class Absent:
    """``key IS NULL``."""

    key: Name


Comparison: TypeAlias = Compare | Match | In | Absent


@final
@dataclass(frozen=True, slots=True)
class Not:
    """What does not hold. ``NOT IN``, ``NOT LIKE`` and ``IS NOT NULL`` are read as this, too."""

    of: "Filter"


@dataclass(frozen=True, slots=True)
class _Several:
    parts: "tuple[Filter, ...]"

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise ValueError("what is joined are two or more")


@final
@dataclass(frozen=True, slots=True)
class And(_Several):
    """All of these hold."""


@final
@dataclass(frozen=True, slots=True)
class Or(_Several):
    """One of these holds, or more."""


Filter: TypeAlias = Comparison | Not | And | Or


def spell(tree: Filter) -> str:
    """The one spelling of a tree."""
    match tree:
        case Compare(key, sign, value):
            return f"{_spell_key(key)} {sign} {spell_value(value)}"
        case Match(key, pattern, folded):
            return f"{_spell_key(key)} {'ILIKE' if folded else 'LIKE'} {spell_value(pattern)}"
        case In(key, values):
            return f"{_spell_key(key)} IN ({', '.join(map(spell_value, values))})"
        case Absent(key):
            return f"{_spell_key(key)} IS NULL"
        case Not(Match() | In() as within):
            named = _spell_key(within.key)
            return f"{named} NOT {spell(within).removeprefix(f'{named} ')}"
        case Not(Absent(key)):
            return f"{_spell_key(key)} IS NOT NULL"
        case Not(of):
            return f"NOT {_within(of)}"
        case And(parts):
            return " AND ".join(map(_within, parts))
        case Or(parts):
            return " OR ".join(map(_within, parts))


def _within(part: Filter) -> str:
    return f"({spell(part)})" if isinstance(part, And | Or) else spell(part)


def _spell_key(key: Name) -> str:
    plain = _PLAIN_KEY.fullmatch(key.text) is not None and key.text.partition(".")[0].upper() not in RESERVED
    return key.text if plain else "`" + key.text.replace("`", "``") + "`"


def spell_value(value: Value) -> str:
    """The one spelling of a value."""
    match value:
        case Text(text):
            return "'" + text.replace("'", "''") + "'"
        case Number(number):
            return str(number)
        case Truth(truth):
            return "TRUE" if truth else "FALSE"
