"""The difference of two sets of weights, tensor by tensor, and what the whole of it comes to.

Rules kept here:

1. Every tensor of both sides stands in exactly one row, and nothing is folded into "0 changed": what was added, dropped, cast, reshaped or
   renamed has a status of its own.
2. Norms of the whole are over the tensors that changed, root of the sum of squares; a number that some tensor lacks is left out of it, and
   how many were left out is said.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, final

from countermark.values import Sha256, WeightsRoot

_Bytes = tuple[Sha256, str, tuple[int, ...]]
Domain = Literal["float", "integer", "complex", "raw"]
Status = Literal["equal", "changed", "cast", "reshaped", "renamed", "tied", "only_a", "only_b"]
#: Why a side has no root: a name that no line can carry, a file that is a pickle, or types that safetensors does not spell.
Rootless = Literal["names", "pickled", "types"]


@final
@dataclass(frozen=True, slots=True)
class Numbers:
    """How far two tensors are apart; the definitions are those of ``countermark.weights.statistics``. ``None``: has no meaning here, or is
    larger than float64 holds. ``domain``: float, integer, complex, or raw (compared by bits alone)."""

    elements: int
    changed: int | None
    value_changed: int | None
    l2: float | None
    max_abs: float | None
    non_finite_created: int
    non_finite_cleared: int
    norm_a: float | None
    domain: Domain

    def relative(self) -> float | None:
        """l2 over the norm of A; None where either is unknown, or where A is all zero and B is not."""
        if self.l2 is None or self.norm_a is None:
            return None
        if self.norm_a == 0.0:
            return 0.0 if self.l2 == 0.0 else None
        found = self.l2 / self.norm_a
        return found if math.isfinite(found) else None


@final
@dataclass(frozen=True, slots=True)
class CommonRows:
    """Of two shapes that differ in their first size: how many rows both have, and how many elements of those differ in their bits (None:
    they are of different types)."""

    rows: int
    changed: int | None


@final
@dataclass(frozen=True, slots=True)
class TensorSide:
    """One side's tensor: name, type, shape and the digest of its data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: Sha256


@final
@dataclass(frozen=True, slots=True)
class TensorDifference:
    """One row. ``alias_of``: the tensor of the same side, that both sides have, with the same bytes; where the status is ``tied``, the two
    are one tensor under two names. ``aliases``: further names that the tensor has on either side."""

    status: Status
    a: TensorSide | None
    b: TensorSide | None
    numbers: Numbers | None = None
    common: CommonRows | None = None
    alias_of: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in A, or that in B where A has none."""
        side = self.a if self.a is not None else self.b
        assert side is not None, "a row has a side"
        return side.name


@final
@dataclass(frozen=True, slots=True)
class Totals:
    """The whole: rows by status, elements of A's tensors that both sides have, elements changed, and norms over the tensors that changed.
    ``left_out``: changed tensors that have no l2 (raw data, or larger than float64 holds). ``l2`` and ``norm_a`` are None where the whole
    is larger than that."""

    rows: int
    by_status: tuple[tuple[Status, int], ...]
    elements: int
    changed: int
    value_changed: int
    non_finite_created: int
    non_finite_cleared: int
    l2: float | None
    max_abs: float
    norm_a: float | None
    left_out: int

    def count(self, *statuses: Status) -> int:
        """Rows with one of these statuses."""
        return sum(times for status, times in self.by_status if status in statuses)


@final
@dataclass(frozen=True, slots=True)
class WeightsDifference:
    """Everything: both roots, or why a side has none, the rows in the order of their names, and the prefixes that were taken for one
    another."""

    root_a: WeightsRoot | Rootless
    root_b: WeightsRoot | Rootless
    rows: tuple[TensorDifference, ...]
    prefixes: tuple[tuple[str, str], ...]
    totals: Totals


Rule = Literal["removed", "added", "changed", "cast", "reshaped", "renamed", "non-finite", "unexpected", "unchanged"]

#: What a comparison can be told to fail on, each with the sentence that says it.
RULES: Final[Mapping[Rule, str]] = {
    "removed": "tensors that are only in A (always on)",
    "added": "tensors that are only in B",
    "changed": "tensors whose values changed",
    "cast": "tensors of another type",
    "reshaped": "tensors of another shape",
    "renamed": "tensors under another name",
    "non-finite": "values that became NaN or infinite",
    "unexpected": "changes outside the expected patterns",
    "unchanged": "expected tensors that did not change",
}


@final
@dataclass(frozen=True, slots=True)
class Surprises:
    """Held against what was expected to change: names that match and did not change, and names that changed and do not match."""

    unchanged: frozenset[str]
    changed: frozenset[str]


def surprises_of(rows: Iterable[TensorDifference], patterns: Iterable[str]) -> Surprises:
    """What is not as expected. A pattern is a name with ``*``, ``?`` and ``[…]``, upper and lower case told apart."""
    wanted = tuple(patterns)
    unchanged: list[str] = []
    changed: list[str] = []
    for row in rows:
        if row.status == "tied":
            continue  # the tensor is told under its other name
        expected = any(fnmatchcase(row.name, pattern) for pattern in wanted)
        same = row.status in ("equal", "renamed")
        if expected and same:
            unchanged.append(row.name)
        elif not expected and not same:
            changed.append(row.name)
    return Surprises(frozenset(unchanged), frozenset(changed))


def failing(rows: Iterable[TensorDifference], rules: Iterable[Rule], surprises: Surprises) -> tuple[tuple[Rule, tuple[str, ...]], ...]:
    """Each rule that something breaks, with the names of the tensors that break it."""
    kept = tuple(rows)
    found: list[tuple[Rule, tuple[str, ...]]] = []
    always: tuple[Rule, ...] = ("removed",)
    for rule in dict.fromkeys((*always, *rules)):
        names = tuple(row.name for row in kept if _breaks(row, rule, surprises))
        if names:
            found.append((rule, names))
    return tuple(found)


def _breaks(row: TensorDifference, rule: Rule, surprises: Surprises) -> bool:
    match rule:
        case "removed":
            return row.status == "only_a"
        case "added":
            return row.status == "only_b"
        case "changed" | "cast" | "reshaped":
            return row.status == rule
        case "renamed":
            return row.status == "renamed" or (row.a is not None and row.b is not None and row.a.name != row.b.name)
        case "non-finite":
            return row.numbers is not None and row.numbers.non_finite_created > 0
        case "unexpected":
            return row.name in surprises.changed
        case "unchanged":
            return row.name in surprises.unchanged


@final
@dataclass(frozen=True, slots=True)
class Ties:
    """Sets of names, on each side, that stand for one tensor each."""

    a: tuple[tuple[str, ...], ...] = ()
    b: tuple[tuple[str, ...], ...] = ()


def joined(rows: Iterable[TensorDifference], ties: Ties) -> tuple[TensorDifference, ...]:
    """The rows with each tensor that has several names told once.

    Names that are tied on both sides, or that one side alone has, are one row with its aliases. A name that only one side has, of a tensor
    that both have under another of its names, is *tied*: it was neither removed nor added.
    """
    kept = {_places(row): row for row in rows}
    for side, groups in (("a", ties.a), ("b", ties.b)):
        other = {name: number for number, group in enumerate(ties.b if side == "a" else ties.a) for name in group}
        named = {one.name: place for place, row in kept.items() if (one := row.a if side == "a" else row.b) is not None}
        for group in groups:
            _join(kept, [named[name] for name in sorted(group) if name in named], side, other)
    return tuple(kept.values())


_Place = tuple[str | None, str | None]


def _places(row: TensorDifference) -> _Place:
    return (None if row.a is None else row.a.name, None if row.b is None else row.b.name)


def _join(kept: dict[_Place, TensorDifference], group: list[_Place], side: str, other: Mapping[str, int]) -> None:
    """Tell one tensor's names once; ``other`` numbers the ties of the other side."""
    mine, theirs = (0, 1) if side == "a" else (1, 0)
    both = [place for place in group if place[theirs] is not None and place in kept]
    alone = [place for place in group if place[theirs] is None and place in kept]
    first: dict[object, _Place] = {}
    for place in both:
        tie = other.get(str(place[theirs]), place[theirs])
        if tie in first:
            kept[first[tie]] = _with_alias(kept[first[tie]], str(place[mine]))
            del kept[place]
        else:
            first[tie] = place
    for place in alone:
        if both:
            kept[place] = replace(kept[place], status="tied", alias_of=both[0][mine])
        elif place != alone[0]:
            kept[alone[0]] = _with_alias(kept[alone[0]], str(place[mine]))
            del kept[place]


def _with_alias(row: TensorDifference, name: str) -> TensorDifference:
    return replace(row, aliases=(*row.aliases, name))


def matched(rows: Iterable[TensorDifference]) -> tuple[TensorDifference, ...]:
    """The rows with what only the digests show, in the order of the names' UTF-8 bytes.

    A tensor that is only in A and one that is only in B are one renamed tensor where their bytes, types and shapes are equal; several of
    the same bytes are taken in the order of their names. What is still on one side only, and holds the bytes of a tensor that both
    sides have, says whose: that may be a tied tensor that one program stores and another drops. It stays on one side only all the
    same, because two tensors of zeros are equal too.
    """
    kept = sorted(rows, key=lambda row: row.name.encode("utf-8", "surrogatepass"))
    arrived: defaultdict[_Bytes, list[TensorSide]] = defaultdict(list)
    for row in reversed(kept):
        if row.status == "only_b" and row.b is not None:
            arrived[_bytes_of(row.b)].append(row.b)
    renamed: dict[str, TensorSide] = {}
    for row in kept:
        if row.status == "only_a" and row.a is not None and arrived[_bytes_of(row.a)]:
            renamed[row.a.name] = arrived[_bytes_of(row.a)].pop()
    taken = {side.name for side in renamed.values()}
    twins = (_twins(row.a for row in kept if row.b is not None), _twins(row.b for row in kept if row.a is not None))
    found: list[TensorDifference] = []
    for row in kept:
        if row.a is not None and row.b is None:
            pair = renamed.get(row.a.name)
            alias = twins[0].get(_bytes_of(row.a))
            if row.status == "tied":
                found.append(row)
            elif pair is not None:
                found.append(TensorDifference("renamed", row.a, pair, aliases=row.aliases))
            else:
                found.append(replace(row, alias_of=alias))
        elif row.b is not None and row.a is None:
            if row.status == "tied":
                found.append(row)
            elif row.b.name not in taken:
                found.append(replace(row, alias_of=twins[1].get(_bytes_of(row.b))))
        else:
            found.append(row)
    return tuple(found)


def _twins(sides: Iterable[TensorSide | None]) -> dict["_Bytes", str]:
    """The first name under which some bytes stand."""
    found: dict[_Bytes, str] = {}
    for side in sides:
        if side is not None:
            found.setdefault(_bytes_of(side), side.name)
    return found


def _bytes_of(side: TensorSide) -> "_Bytes":
    return side.sha256, side.dtype, side.shape


def _norm(parts: Iterable[float | None]) -> float | None:
    """The norm of the whole from those of its parts that have one; None where no float64 holds it."""
    found = math.hypot(*(part for part in parts if part is not None))
    return found if math.isfinite(found) else None


def totals_of(rows: Iterable[TensorDifference]) -> Totals:
    """The totals of some rows."""
    kept = tuple(rows)
    counted: dict[Status, int] = {}
    for row in kept:
        counted[row.status] = counted.get(row.status, 0) + 1
    numbers = [row.numbers for row in kept if row.numbers is not None]
    apart = [one for one in numbers if one.changed != 0]
    return Totals(
        len(kept),
        tuple(counted.items()),
        sum(math.prod(row.a.shape) for row in kept if row.a is not None and row.b is not None),
        sum(one.changed or 0 for one in numbers),
        sum(one.value_changed or 0 for one in numbers),
        sum(one.non_finite_created for one in numbers),
        sum(one.non_finite_cleared for one in numbers),
        _norm(one.l2 for one in apart),
        max((one.max_abs or 0.0 for one in apart), default=0.0),
        _norm(one.norm_a for one in apart),
        sum(one.l2 is None for one in apart),
    )
