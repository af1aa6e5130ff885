"""Which tensor of A is to be held against which of B, decided by names, types and shapes alone: before a byte of data is read.

Rules kept here:

1. Equal names are one pair, whatever their types and shapes.
2. What is left over is paired where one change of a prefix (``model.`` put in front, ``base_model.model.`` taken off) explains two or more
   leftovers at once, each with its shape kept. The change that explains most is taken first; ties fall to the smaller text.
3. Nothing is paired twice, and nothing that is left over is dropped: it is only in A, or only in B.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, final

from countermark.weights.header import TensorSpan

#: Leading parts of a name that are tried as a prefix. Names are from outside: one of a thousand dots must not cost a thousand tries.
_PARTS_MAX: Final = 8
#: The rest of a name that stands behind more prefixes than these (``weight``) tells nothing about any of them, and would cost a square.
_BEARERS_MAX: Final = 4
#: A single tensor that fits by chance is no renaming.
_EXPLAINED_MIN: Final = 2


@final
@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor on both sides."""

    a: TensorSpan
    b: TensorSpan

    @property
    def cast(self) -> bool:
        """Whether the two are of different types."""
        return self.a.dtype != self.b.dtype

    def common_rows(self) -> int | None:
        """Of two shapes that differ in their first size alone: the rows that both have; None for any other two shapes."""
        one, other = self.a.shape, self.b.shape
        if one == other or len(one) != len(other) or not one or one[1:] != other[1:]:
            return None
        return min(one[0], other[0])


@final
@dataclass(frozen=True, slots=True)
class PrefixChange:
    """``before`` at the front of a name in A stands as ``after`` in B; ``tensors`` is how many pairs that made."""

    before: str
    after: str
    tensors: int


@final
@dataclass(frozen=True, slots=True)
class Pairing:
    """Every tensor of both sides once: in a pair, only in A, or only in B; each in the order of the names' UTF-8 bytes."""

    pairs: tuple[Pair, ...]
    only_a: tuple[TensorSpan, ...]
    only_b: tuple[TensorSpan, ...]
    prefixes: tuple[PrefixChange, ...]


def by_name(span: TensorSpan) -> bytes:
    """What tensors are sorted by."""
    return span.name.encode("utf-8", "surrogatepass")


def pair(a: Iterable[TensorSpan], b: Iterable[TensorSpan]) -> Pairing:
    """Pair two sets of tensors, in each of which a name stands once."""
    left = {span.name: span for span in a}
    right = {span.name: span for span in b}
    pairs = [Pair(left.pop(name), right.pop(name)) for name in sorted(left.keys() & right.keys())]
    prefixes: list[PrefixChange] = []
    while (change := _best_change(left, right)) is not None:
        before, after = change
        moved = [(name, after + name[len(before) :]) for name in left if name.startswith(before)]
        moved = [(old, new) for old, new in moved if new in right and _alike(left[old], right[new])]
        pairs.extend(Pair(left.pop(old), right.pop(new)) for old, new in moved)
        prefixes.append(PrefixChange(before, after, len(moved)))
    return Pairing(
        tuple(sorted(pairs, key=lambda one: by_name(one.a))),
        tuple(sorted(left.values(), key=by_name)),
        tuple(sorted(right.values(), key=by_name)),
        tuple(prefixes),
    )


def _alike(one: TensorSpan, other: TensorSpan) -> bool:
    """A cast is often made together with a rename, so the type may be another one."""
    return one.shape == other.shape


def _best_change(left: dict[str, TensorSpan], right: dict[str, TensorSpan]) -> tuple[str, str] | None:
    """The change of a prefix that pairs most of what is left over, or None where none pairs enough."""
    ends: defaultdict[str, list[str]] = defaultdict(list)
    for name in right:
        for prefix, rest in _cuts(name):
            ends[rest].append(prefix)
    explained: Counter[tuple[str, str]] = Counter()
    for name, span in left.items():
        for before, rest in _cuts(name):
            bearers = ends.get(rest, ())
            for after in bearers if len(bearers) <= _BEARERS_MAX else ():
                if before != after and _alike(span, right[after + rest]) and not _same_tail(before, after):
                    explained[before, after] += 1
    if not explained:
        return None
    most = min(explained, key=lambda change: (-explained[change], change))
    return most if explained[most] >= _EXPLAINED_MIN else None


def _cuts(name: str) -> Iterator[tuple[str, str]]:
    """A name as a prefix that ends with a dot (or is empty) and the rest."""
    yield "", name
    at = -1
    for _ in range(_PARTS_MAX):
        at = name.find(".", at + 1)
        if at < 0 or at + 1 == len(name):
            return
        yield name[: at + 1], name[at + 1 :]


def _same_tail(before: str, after: str) -> bool:
    """Whether both prefixes end with one part: the shorter change, without it, says the same."""
    return before.rpartition(".")[0].rpartition(".")[2] == after.rpartition(".")[0].rpartition(".")[2] if before and after else False
