"""Closed sums of products: what an arm is, and how one is read from text or from a table.

Rules kept here:

1. An arm is declared once, as a dataclass: its class says its name, and its fields are its leaves. Nothing repeats them.
2. The one text of a value is ``arm`` or ``arm(leaf=value,leaf=value)`` with the leaves in declared order; they are read in any order.
3. ``read(spell(v)) == v``. A leaf's text therefore holds no comma and no parenthesis; a test reads every leaf's grammar for that.
4. Every problem of a value is found, not the first; a leaf that is left open is told from one that is wrong.
5. A field of an arm that carries ``Says`` is a coordinate of its own and is left out of the arm's text.
"""

import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Final, Protocol, cast, final, get_args, get_origin

from countermark.recipe.deferrals import defers
from countermark.values import TEXT_LENGTH_MAX, Unreadable, Value, shown

_CALL: Final = re.compile(r"([a-z0-9_]{1,64})(?:\((.*)\))?", re.ASCII | re.DOTALL)


class Coordinate(Protocol):
    """What the value of every coordinate can do."""

    def spell(self) -> str: ...


@final
@dataclass(frozen=True, slots=True)
class Says:
    """What a coordinate is, and what would pin it where it is left open."""

    meaning: str
    pin: str


@dataclass(frozen=True, slots=True)
class Arm:
    """What the arms of sums share: ``arm`` is the arm's name, ``key`` the name of the choice, the same for all arms of one sum."""

    arm: ClassVar[str] = ""
    key: ClassVar[str] = ""

    def spell(self) -> str:
        return spell_form(self.arm, ((leaf, cast("Coordinate", getattr(self, leaf)).spell()) for leaf in own_leaves(type(self))))


@final
@dataclass(frozen=True, slots=True)
class Form:
    """An arm with its own leaves, while the coordinates that belong to it stand elsewhere."""

    kind: type[Arm]
    leaves: tuple[tuple[str, Value], ...]

    @property
    def arm(self) -> str:
        return self.kind.arm

    def spell(self) -> str:
        return spell_form(self.kind.arm, ((leaf, value.spell()) for leaf, value in self.leaves))


def spell_form(arm: str, leaves: Iterable[tuple[str, str]]) -> str:
    """The one text of an arm and the spellings of its leaves."""
    listed = ",".join(f"{leaf}={text}" for leaf, text in leaves)
    return f"{arm}({listed})" if listed else arm


def unwrapped(annotation: object) -> tuple[object, Says | None]:
    """A field's type without what it says, and what it says."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    kind, *notes = get_args(annotation)
    return kind, next((note for note in notes if isinstance(note, Says)), None)


def own_leaves(arm: type[Arm]) -> dict[str, type[Value]]:
    """The leaves that an arm's text carries, with their types, in declared order."""
    return {leaf.name: cast("type[Value]", leaf.type) for leaf in fields(arm) if unwrapped(leaf.type)[1] is None}


def coordinates_of_arm(arm: type[Arm]) -> dict[str, object]:
    """The fields of an arm that are coordinates of their own, with their annotations, in declared order."""
    return {leaf.name: leaf.type for leaf in fields(arm) if unwrapped(leaf.type)[1] is not None}


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """How a coordinate is read: the plain types that it may have, and the arms."""

    plain: tuple[type[Value], ...]
    arms: tuple[type[Arm], ...]

    @property
    def key(self) -> str:
        """The name of the choice between the arms; empty where there is none."""
        return self.arms[0].key if self.arms else ""

    @property
    def leaves(self) -> tuple[str, ...]:
        """Every leaf that some arm has, in declared order."""
        return tuple(dict.fromkeys(leaf for arm in self.arms for leaf in own_leaves(arm)))


def kind_of(annotation: object) -> Kind:
    """The kind of an annotated type: a value's class, an arm, or a union of them."""
    bare, _ = unwrapped(annotation)
    members = get_args(bare) if isinstance(bare, types.UnionType) else (bare,)
    arms = tuple(one for one in members if isinstance(one, type) and issubclass(one, Arm))
    plain = tuple(cast("type[Value]", one) for one in members if one not in arms)
    return Kind(plain, arms)


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a value from being read: at a leaf, or (``leaf`` empty) at the value itself. ``open`` tells a deferral, or what is
    missing, from a mistake."""

    leaf: str
    why: str
    open: bool


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """A value taken apart: what names the arm (or is the plain value), and the leaves beside it. ``head`` None means absent."""

    head: object
    leaves: Mapping[str, object]


def take_apart(raw: object, kind: Kind) -> Parts | Problem:
    """The head and leaves of a raw value, not yet read."""
    if not kind.arms:
        return Parts(raw, {})
    if isinstance(raw, Mapping):
        table = cast("Mapping[str, object]", raw)
        return Parts(table.get(kind.key), {leaf: value for leaf, value in table.items() if leaf != kind.key})
    if not isinstance(raw, str):
        return Parts(raw, {})
    if len(raw) > TEXT_LENGTH_MAX:
        return Problem("", f"it has over {TEXT_LENGTH_MAX} characters", open=False)
    found = _CALL.fullmatch(raw.strip())
    if found is None:
        return Parts(raw, {})
    inside = found[2]
    leaves: dict[str, object] = {}
    for piece in inside.split(",") if inside is not None and inside.strip() else ():
        leaf, equals, value = (text.strip() for text in piece.partition("="))
        if not equals or leaf in leaves:
            return Problem("", "inside the parentheses each leaf stands once, as leaf=value", open=False)
        leaves[leaf] = value
    return Parts(found[1], leaves)


def put_together(parts: Parts, kind: Kind) -> Coordinate | tuple[Problem, ...]:
    """The value of its parts, or every problem with them."""
    head = parts.head
    by_name = {arm.arm: arm for arm in kind.arms}
    arm = by_name.get(head) if isinstance(head, str) else None
    if arm is not None:
        return _product(arm, parts.leaves)
    reasons: list[str] = []
    for plain in kind.plain if not parts.leaves else ():
        value = plain.read(head)
        if not isinstance(value, Unreadable):
            return value
        reasons.append(value.why)
    if by_name:
        reasons.append("it must be one of " + ", ".join(by_name))
    elsewhere = tuple(_stray(leaf, "any form") for leaf in parts.leaves if leaf not in kind.leaves)
    readable = any(defers(plain, head) for plain in kind.plain) or (not kind.plain and defers(None, head))
    return (Problem("", ", or ".join(reasons), open=readable), *elsewhere)


def _stray(leaf: str, owner: str) -> Problem:
    return Problem(leaf, f"{shown(leaf)} does not belong to {owner}", open=False)


def _product(arm: type[Arm], given: Mapping[str, object]) -> Coordinate | tuple[Problem, ...]:
    wanted = own_leaves(arm)
    problems = [_stray(leaf, arm.arm) for leaf in given if leaf not in wanted]
    values: dict[str, Value] = {}
    for leaf, kind in wanted.items():
        if leaf not in given:
            problems.append(Problem(leaf, "it is missing", open=True))
            continue
        value = kind.read(given[leaf])
        if isinstance(value, Unreadable):
            problems.append(Problem(leaf, value.why, open=defers(kind, given[leaf])))
        else:
            values[leaf] = value
    if problems:
        return tuple(problems)
    if coordinates_of_arm(arm):
        return Form(arm, tuple(values.items()))
    return cast("Callable[..., Arm]", arm)(**values)


def read_kind(raw: object, kind: Kind) -> Coordinate | tuple[Problem, ...]:
    """A coordinate from raw input, or every problem with it."""
    parts = take_apart(raw, kind)
    return (parts,) if isinstance(parts, Problem) else put_together(parts, kind)
