"""Any value of any coordinate: a strategy for each, built from the roster's own types, so that a new coordinate needs no line here."""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from countermark.recipe import ENTRIES, Coordinate
from countermark.recipe.coordinates import AdapterInit, DecayShape, LossMask, ModuleNames, NumericFormat, Packing, ShuffleAlgorithm
from countermark.recipe.numbers import DecayRate, NonNegativeReal, PositiveReal, Several
from countermark.recipe.sums import Arm, Form, coordinates_of_arm, own_leaves
from countermark.values import U64, NonNegativeInt, PerMille, PositiveInt, Sha256, Unreadable


def _read(kind: Any, raw: object) -> Any:
    value = kind.read(raw)
    assert not isinstance(value, Unreadable), (kind, raw, value)
    return value


_SEGMENT = st.from_regex(r"[A-Za-z0-9_]{1,6}(-[a-z]{1,3})?", fullmatch=True).map(lambda text: "m" + text)
_MODULES = st.lists(st.lists(_SEGMENT, min_size=1, max_size=3).map(".".join), min_size=1, max_size=5)

WORDS: Final = (AdapterInit, DecayShape, LossMask, NumericFormat, Packing, ShuffleAlgorithm)
SCALARS: Final[Mapping[type, st.SearchStrategy[Any]]] = {
    Sha256: st.binary(min_size=32, max_size=32).map(lambda digest: Sha256(digest.hex())),
    U64: st.integers(0, 2**64 - 1).map(U64),
    PositiveInt: st.integers(1, 2**63 - 1).map(PositiveInt),
    NonNegativeInt: st.integers(0, 2**63 - 1).map(NonNegativeInt),
    PerMille: st.integers(0, 1000).map(PerMille),
    PositiveReal: st.floats(0, exclude_min=True, allow_infinity=False).map(lambda raw: _read(PositiveReal, raw)),
    NonNegativeReal: st.floats(0, allow_infinity=False).map(lambda raw: _read(NonNegativeReal, raw)),
    DecayRate: st.floats(0, 1, exclude_max=True).map(lambda raw: _read(DecayRate, raw)),
    Several: st.integers(2, 2**63 - 1).map(Several),
    ModuleNames: _MODULES.map(lambda names: _read(ModuleNames, names)),
    **{word: st.sampled_from(list(word.words)).map(word) for word in WORDS},
}


def any_arm(arm: type[Arm]) -> st.SearchStrategy[Any]:
    """Any value of an arm, as its coordinate holds it."""
    leaves = {name: SCALARS[kind] for name, kind in own_leaves(arm).items()}
    if coordinates_of_arm(arm):
        return st.tuples(*leaves.values()).map(lambda values: Form(arm, tuple(zip(leaves, values, strict=True))))
    return st.builds(arm, **leaves)


def any_value(coordinate: str) -> st.SearchStrategy[Coordinate]:
    """Any value of a coordinate."""
    kind = ENTRIES[coordinate].kind
    return st.one_of(*(SCALARS[plain] for plain in kind.plain), *map(any_arm, kind.arms))
