"""The spectrum of a change, held against NumPy's exact decomposition; and what is called an adapter, and what is not."""

import math
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from countermark.values import Sha256
from countermark.weights import sketch, spectrum
from countermark.weights.difference import Domain, Numbers, Status, TensorDifference, TensorSide
from countermark.weights.elements import numbers_of
from countermark.weights.sketch import Sketch
from countermark.weights.spectrum import COLUMNS_MAX, RANKS, Spectra, Spectrum, cut, gap_of
from tests.faults import planted, proven_by

Array = NDArray[Any]
ROWS, COLUMNS = 256, 384
NAN, INF = math.nan, math.inf


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bf16(values: Array) -> bytes:
    codes = values.astype("<f4").view(np.uint32).astype(np.uint64)
    return ((codes + 0x7FFF + ((codes >> 16) & 1)) >> 16).astype("<u2").tobytes()


def coded(dtype: str, values: Array) -> bytes:
    return bf16(values) if dtype == "BF16" else values.astype({"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).tobytes()


def apart(two: tuple[str, str], a: bytes, b: bytes) -> Array:
    """B − A in float64, and 0 where a pair is not finite."""
    with np.errstate(invalid="ignore"):
        found: Array = numbers_of(two[1], memoryview(b)).astype(np.float64) - numbers_of(two[0], memoryview(a)).astype(np.float64)
    return np.where(np.isfinite(found), found, 0.0)


def sketched(two: tuple[str, str], a: bytes, b: bytes, shape: tuple[int, int], step: int = 40) -> Spectrum:
    """The spectrum by two passes in blocks of ``step`` rows."""
    difference = apart(two, a, b)
    largest = float(np.abs(difference).max())
    made = Sketch(shape[1], largest, *two)
    blocks = [tuple(memoryview(each)[at * len(each) // shape[0] : min(at + step, shape[0]) * len(each) // shape[0]] for each in (a, b))
              for at in range(0, shape[0], step)]  # fmt: skip
    for block in blocks:
        made.first(*block)
    made.turn()
    for block in blocks:
        made.second(*block)
    return made.result(float(np.linalg.norm(difference / largest)) * largest if largest else 0.0)


def exact(two: tuple[str, str], a: bytes, b: bytes, shape: tuple[int, int]) -> list[float]:
    difference = apart(two, a, b).reshape(shape)
    values = np.linalg.svd(difference / max(float(np.abs(difference).max()), 1e-308), compute_uv=False) ** 2
    return [float(values[:rank].sum() / values.sum()) if values.sum() else 0.0 for rank in RANKS]


def low(rank: int, size: float, rows: int = ROWS, columns: int = COLUMNS, decay: float = 0.0) -> Array:
    made = (chance(rank).standard_normal((rows, rank)) * np.exp(-decay * np.arange(rank))) @ chance(9).standard_normal((rank, columns))
    return made / made.std() * size


def noise(size: float, seed: int = 5, rows: int = ROWS, columns: int = COLUMNS) -> Array:
    return chance(seed).standard_normal((rows, columns)) * size


def falling(power: float, rows: int = ROWS) -> Array:
    """Singular values that fall with a power of their number, as those of a whole fine-tune do: no edge anywhere."""
    left, right = (np.linalg.qr(noise(1, seed, rows, rows))[0] for seed in (6, 7))
    return (left * np.arange(1, rows + 1.0) ** -power) @ right.T * 1e-2


def spot(*places: tuple[int, int]) -> Array:
    made = np.zeros((ROWS, COLUMNS))
    for place in places:
        made[place] = 1.0
    return made


def rows_alone(*rows: int) -> Array:
    made = np.zeros((ROWS, COLUMNS))
    for row in rows:
        made[row] = chance(row).standard_normal(COLUMNS)
    return made


BASE: Final = noise(0.02, 1)
#: What was done to weights, in which type, and the rank of the adapter that it looks like.
CHANGES: Final[dict[str, tuple[str, Array, int | None]]] = {
    "dense": ("F32", noise(1e-4), None),
    "dense, rounded": ("BF16", noise(1e-4), None),
    "one step of signs": ("F32", np.sign(noise(1)) * 1e-5, None),
    "rank 8": ("F32", low(8, 1e-4), 8),
    "rank 8, rounded": ("BF16", low(8, 3e-4), 8),
    "rank 8, mostly rounded away": ("BF16", low(8, 2e-5), None),
    "rank 1, rounded": ("BF16", low(1, 2e-4), 1),
    "rank 16 that decays, rounded": ("BF16", low(16, 1e-3, decay=0.15), 16),
    "rank 32": ("F32", low(32, 1e-3), 32),
    "rank 64": ("F32", low(64, 1e-3), None),
    "half precision, rank 4": ("F16", low(4, 1e-3), 4),
    "one number": ("F32", spot((3, 4)), None),
    "a number and noise": ("F32", spot((3, 4)) + noise(1e-5), None),
    "two rows": ("F32", rows_alone(3, 99), None),
    "very small": ("F64", low(8, 1e-3) * 1e-300, 8),
    "very large": ("F64", low(8, 1e-3) * 1e300, 8),
}


def change(name: str) -> tuple[tuple[str, str], bytes, bytes, tuple[int, int]]:
    dtype, moved, _ = CHANGES[name]
    scale = {"very small": 1e-300, "very large": 1e300}.get(name, 1.0)
    base = numbers_of(dtype, memoryview(coded(dtype, BASE * scale))).astype(np.float64).reshape(ROWS, COLUMNS)
    return (dtype, dtype), coded(dtype, base), coded(dtype, base + moved), (ROWS, COLUMNS)


def measured_agrees(made: tuple[tuple[str, str], bytes, bytes, tuple[int, int]]) -> None:
    """Never more than there is; all of it where a rank stands out, and most of it anywhere."""
    found, wanted = sketched(*made), exact(*made)
    for rank, energy in zip(RANKS, wanted, strict=True):
        assert found.energy(rank) <= energy + 2e-6
        assert found.energy(rank) >= 0.6 * energy
        if found.adapter_rank() is not None and rank <= (found.adapter_rank() or 0):
            assert found.energy(rank) == pytest.approx(energy, abs=2e-6)


def basis_as_drawn(self: Sketch) -> None:
    """The directions of the second pass are those of the first: signs, not orthonormal and not turned to the matrix."""
    self._gram = np.zeros((40, 40))


@proven_by(planted(sketch.Sketch, "turn", basis_as_drawn))
def test_energies_are_those_of_the_exact_decomposition() -> None:
    for name in CHANGES:
        measured_agrees(change(name))


@proven_by(
    planted(spectrum, "ENERGY_MIN", 0.0),
    planted(spectrum, "_SPREAD", 0),
    planted(spectrum, "_FLAT", 0.0),
)
def test_an_adapter_is_told_from_every_other_change() -> None:
    assert {name: sketched(*change(name)).adapter_rank() for name in CHANGES} == {name: rank for name, (_, _, rank) in CHANGES.items()}


@proven_by(planted(spectrum, "_FLAT", 1e9), planted(spectrum, "_FLAT", 0.0))
def test_a_rest_that_falls_as_steeply_as_what_stands_out_is_no_noise() -> None:
    def rank(*shares: float) -> int | None:
        return Spectrum(1024, 1024, 1.0, shares, 1024.0, 1024.0).adapter_rank()

    assert rank(*(0.86 * 0.14**place for place in range(6))) is None
    assert rank(0.86, 0.13, 2e-4, 2e-4, 2e-4, 2e-4) == 2


@proven_by(planted(spectrum, "_GAP", 0.0))
def test_a_spectrum_that_falls_without_an_edge_is_no_adapter() -> None:
    base = noise(0.02, 1, 64, 64)
    for power in (0.5, 1.0, 1.5):
        made = (("F32", "F32"), coded("F32", base), coded("F32", base + falling(power, 64)), (64, 64))
        measured_agrees(made)
        assert sketched(*made).adapter_rank() is None


@pytest.mark.parametrize("shape", [(2, 500), (500, 2), (3, 3), (1, 7), (41, 40)])
def test_matrices_with_fewer_sides_than_directions(shape: tuple[int, int]) -> None:
    a, b = noise(1, 1, *shape), noise(1, 2, *shape)
    made = (("F32", "F32"), coded("F32", a), coded("F32", b), shape)
    found, wanted = sketched(*made), exact(*made)
    assert [found.energy(rank) for rank in RANKS] == pytest.approx(wanted, abs=2e-6, rel=0.05)
    assert found.adapter_rank() is None


def test_pairs_that_are_not_finite_count_as_unchanged_and_casts_are_of_values() -> None:
    moved = BASE + low(8, 1e-3)
    a, b = BASE.copy(), moved.copy()
    # Holes in a matrix would raise its rank; a row without any pair is one of zeros.
    a[0, :200], b[0, 200:] = NAN, INF
    made = (("F32", "F32"), coded("F32", a), coded("F32", b), (ROWS, COLUMNS))
    measured_agrees(made)
    assert sketched(*made).adapter_rank() == 8
    cast = (("F32", "BF16"), coded("F32", BASE), coded("BF16", moved), (ROWS, COLUMNS))
    measured_agrees(cast)
    assert sketched(*cast).adapter_rank() == 8


@proven_by(planted(sketch, "signs", lambda rows: chance(None).standard_normal((rows, 40)).astype(np.float32)))  # type: ignore[arg-type]
def test_the_same_bytes_have_the_same_spectrum_however_the_rows_are_cut() -> None:
    made = change("dense")
    assert sketched(*made) == sketched(*made)
    one, other = (sketched(*made, step) for step in (7, 256))
    assert one.shares == pytest.approx(other.shares, abs=1e-7)


def test_nothing_that_changed_has_no_energy() -> None:
    data = coded("F32", BASE)
    found = sketched(("F32", "F32"), data, data, (ROWS, COLUMNS))
    assert (found.energy(32), found.adapter_rank()) == (0.0, None)


def test_shapes_are_cut_where_the_shorter_side_is_longest() -> None:
    cuts = {(): None, (7,): None, (1, 7): None, (7, 1): None, (5, 7): (5, 7), (64, 32, 3, 3): (64, 288), (8, 768, 2048): (6144, 2048)}
    assert {shape: cut(shape) for shape in cuts} == cuts


def changed_row(shape: tuple[int, ...], l2: float | None = 1.0, domain: Domain = "float", status: Status = "changed") -> TensorDifference:
    side = TensorSide("w", "F32", shape, Sha256("ab" * 32))
    return TensorDifference(status, side, side, Numbers(1, 1, 1, l2, l2, 0, 0, l2, domain))


def test_what_can_have_no_spectrum_says_why() -> None:
    assert gap_of(changed_row((5, 7))) is None
    wide = (COLUMNS_MAX + 1, COLUMNS_MAX + 1)
    rows = (
        changed_row((7,)),
        changed_row((5, 7), None),
        changed_row((5, 7), 0.0),
        changed_row((5, 7), domain="integer"),
        changed_row(wide),
    )
    assert [gap_of(row) for row in rows] == ["vector", "no_l2", "no_l2", "not_float", "wide"]
    assert gap_of(TensorDifference("changed", changed_row((5, 7)).a, changed_row((5, 7)).b)) == "not_float"


def test_the_energy_of_several_is_weighted_by_their_size_whatever_it_is() -> None:
    one, other = Spectrum(99, 99, 3e200, (1.0, 0.0), 90, 90), Spectrum(99, 99, 4e200, (0.25, 0.25), 90, 90)
    spectra = Spectra((("a", one), ("b", other), ("c", "vector")))
    assert spectra.energy(1) == pytest.approx((9 * 1.0 + 16 * 0.25) / 25)
    assert (spectra.adapters(), len(spectra.measured), spectra.left_out("vector")) == ((1,), 2, 1)
    assert Spectra((("c", "vector"),)).energy(1) is None
