"""What a reader does with a field: the three ways of its closed table.

Rules kept here:

1. Every field of a format is in its table, in one of three ways. A field in none is unknown and is refused: this is the strongest guard
   against two computations under one key.
2. *Inert* needs a reason why the field cannot change the weights. A field whose inertness is not proven is refused where it is set.
3. *Refused* names the neutral values, with which the field changes nothing, and what any other one changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import TypeAlias, cast, final


@final
@dataclass(frozen=True, slots=True)
class Maps:
    """The field says something about these coordinates."""

    axes: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Inert:
    """The field cannot change the weights, for this reason."""

    reason: str


@final
@dataclass(frozen=True, slots=True)
class Refuses:
    """The field is accepted with a neutral value only; ``why`` is a sentence's middle: what any other value changes."""

    neutral: tuple[object, ...]
    why: str


FieldRule: TypeAlias = Maps | Inert | Refuses


def maps(*axes: str) -> Maps:
    """A field that says something about these coordinates."""
    return Maps(axes)


def refuses(why: str, *neutral: object) -> Refuses:
    """A field that is refused unless it is neutral."""
    return Refuses(neutral, why)


def plain(raw: object) -> object:
    """A live object's field as plain data: enumerations by value, sets sorted, containers as tuples and dictionaries."""
    if isinstance(raw, Enum):
        return raw.value
    if isinstance(raw, set | frozenset):
        return tuple(sorted(map(str, cast("Iterable[object]", raw))))
    if isinstance(raw, list | tuple):
        return tuple(plain(item) for item in cast("Sequence[object]", raw))
    if isinstance(raw, Mapping):
        return {str(plain(name)): plain(value) for name, value in cast("Mapping[object, object]", raw).items()}
    return raw


def is_neutral(raw: object, rule: Refuses) -> bool:
    """Whether a plain value is one of a rule's neutral ones, True and 1 being two."""
    return any(type(raw) is type(neutral) and raw == neutral for neutral in rule.neutral)


def nearest(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Names that are spelled like one that is not among them."""
    return tuple(get_close_matches(name[:100], list(names), n=3, cutoff=0.75))
