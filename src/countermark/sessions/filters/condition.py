"""What a filter asks of a row, decided as far as it can be without one: this is what SQL is made of.

Rules kept here:

1. Nothing stands in front of a condition that turns it around, and none is "unknown" of any row: what compares says by itself whether a row
   without a value satisfies it. So every database gives the same answer, and an index is used where there is one.
2. What is compared is as the column holds it: a padded count, a time in the column's unit.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from countermark.sessions.filters.keys import Count, Double, Flag, Members, Padded, Subject, Time, Words
from countermark.sessions.filters.tree import Sign

#: What is compared with a cell, as the cell holds it.
Cell: TypeAlias = str | int | float
#: One of a pattern's wildcards.
Wild: TypeAlias = Literal["any", "one"]


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """Characters of a pattern that stand for themselves."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Is:
    """A value compares so with ``cell``."""

    sign: Sign
    cell: Cell


@final
@dataclass(frozen=True, slots=True)
class Among:
    """A value is one of these, or none of them (``negated``)."""

    cells: tuple[Cell, ...]
    negated: bool = False


@final
@dataclass(frozen=True, slots=True)
class Like:
    """A text matches a pattern, or does not (``negated``). The pieces of a ``folded`` one are in small letters, A to Z."""

    pieces: tuple[Piece | Wild, ...]
    folded: bool
    negated: bool = False


Test: TypeAlias = Is | Among | Like


#: A column of which every row has one cell.
Scalar: TypeAlias = Words | Count | Padded | Double | Time


@final
@dataclass(frozen=True, slots=True)
class Holds:
    """A row's cell satisfies a test; ``absent`` says whether a row without a value in it does."""

    column: Scalar
    test: Test
    absent: bool


@final
@dataclass(frozen=True, slots=True)
class Flagged:
    """A flag is up, or not."""

    column: Flag
    up: bool


@final
@dataclass(frozen=True, slots=True)
class Has:
    """A set has a member that satisfies a test (None: any member), or has none (``negated``)."""

    column: Members
    test: Test | None
    negated: bool


@final
@dataclass(frozen=True, slots=True)
class Always:
    """Decided by the filter alone."""

    truth: bool


@final
@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: "tuple[Condition, ...]"


@final
@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some part holds."""

    parts: "tuple[Condition, ...]"


Condition: TypeAlias = Holds | Flagged | Has | Always | AllOf | AnyOf


@final
@dataclass(frozen=True, slots=True)
class Where:
    """A filter that was read and held against a subject's keys."""

    subject: Subject
    condition: Condition
