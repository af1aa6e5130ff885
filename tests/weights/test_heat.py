"""Where the weights changed, as a map: what stands in which cell, and what of it is shown."""

import pytest

from countermark.values import Sha256
from countermark.weights import heat
from countermark.weights.difference import Numbers, Status, TensorDifference, TensorSide
from countermark.weights.heat import Cell, HeatMap, Scale, heat_map
from tests.faults import planted, proven_by

X = Sha256("ab" * 32)


def row(name: str, status: Status = "equal", relative: float | None = None, created: int = 0) -> TensorDifference:
    side = TensorSide(name, "F32", (2, 3), X)
    numbers = None if status not in ("changed", "cast") else Numbers(6, 1, 1, relative, relative, created, 0, 1.0, "float")
    return TensorDifference(status, None if status == "only_b" else side, None if status == "only_a" else side, numbers)


def drawn(found: HeatMap) -> dict[tuple[str | None, str], list[str | None]]:
    return {(each.stack, one.label): [cell and cell.look for cell in one.cells] for each in found.sections for one in each.rows}


@proven_by(planted(heat, "_is_number", lambda part: False), planted(Cell, "look", "unchanged"))
def test_layers_are_columns_modules_are_rows_and_the_rest_stands_apart() -> None:
    rows = [
        row("model.embed.weight", "changed", 0.1),
        *(row(f"model.layers.{layer}.attn.q.weight", "changed" if layer else "equal", 0.01 * layer) for layer in range(3)),
        row("model.layers.1.attn.q.bias", "only_b"), row("model.layers.2.attn.q.bias", "only_a"),
        *(row(f"model.layers.{layer}.experts.{expert}.up.weight", "equal" if expert != 1 else "changed", 0.3)
          for layer in (1, 2) for expert in range(4)),
        row("vision.0.w", "cast", 0.5), row("vision.1.w", "reshaped"), row("alone.7.w"), row("tied", "tied"),
    ]  # fmt: skip
    found = heat_map(rows, frozenset({"model.layers.0.attn.q.weight"}), 100, 100)
    assert drawn(found) == {
        ("model.layers", "attn.q"): ["missed", "changed", "changed"],
        ("model.layers", "attn.q.bias"): [None, "added", "removed"],
        ("model.layers", "experts.*.up"): [None, "changed", "changed"],
        ("vision", "w"): ["changed", "unmeasured", None],
        (None, "model.embed"): ["changed"],
        (None, "alone.7.w"): ["unchanged"],
    }
    experts = found.sections[0].rows[2].cells[1]
    assert experts == Cell("model.layers.1.experts.0.up.weight", 4, 1, 0.3)
    assert (found.columns, found.scale) == (((0, 0), (1, 1), (2, 2)), Scale(0.01, 0.5))


def test_tensors_that_share_a_cell_are_told_together() -> None:
    rows = [row(f"l.{layer}.w", "changed", relative, 1) for layer, relative in enumerate((0.3, 0.4))] + [row("l.2.w", "changed", None)]
    (cell,) = heat_map(rows, frozenset(), 1, 10).cells()
    assert cell == Cell("l.0.w", 3, 3, pytest.approx(0.5 / 2**0.5), 1, non_finite=2)  # type: ignore[arg-type]
    alone = heat_map([row("l.0.w", "changed", 1e200), row("l.1.w", "changed", 3e200)], frozenset(), 1, 10)
    assert [cell.relative for cell in alone.cells()] == [pytest.approx((10**0.5) * 1e200 / 2**0.5)]


@proven_by(planted(heat, "_folded", lambda sections, rows_max: tuple(sections)))
def test_many_layers_share_columns_and_rows_that_changed_least_are_folded() -> None:
    rows = [row(f"h.{layer}.m{module}.w", "changed", 10.0 ** -(module % 7) * 0.5) for layer in range(100) for module in range(40)]
    rows += [row(f"h.{layer}.calm.w") for layer in range(100)] + [row("h.3.calm.bias", "changed", 1e-9, 1)]
    found = heat_map(rows, frozenset(), 16, 8)
    assert (len(found.columns), found.columns[0], found.columns[-1]) == (15, (0, 6), (98, 99))
    (section,) = found.sections
    # Values that became non-finite are shown before everything else, however small.
    assert [one.label for one in section.rows] == ["calm.bias", "m0.w", "m1.w", "m14.w", "m21.w", "m28.w", "m35.w", "m7.w"]
    assert section.folded == 34


def test_a_name_from_outside_costs_little_and_is_never_a_layer_by_force() -> None:
    names = [".".join(str(number) for number in range(5000)), "99999999.w", "a." * 400, "١.w", "", "...", "0", "1"]
    found = heat_map([row(name) for name in names], frozenset(), 10, 10)
    assert {(section.stack, one.label) for section in found.sections for one in section.rows} >= {(None, "١.w"), (None, ""), ("", "")}
    assert len(found.columns) <= 10


def test_scales_hold_what_changed_within_bounds() -> None:
    wide = Scale(0.0005, 0.2)
    assert (wide.place(0.0005), wide.place(0.2), wide.place(0.0), wide.place(9.0)) == (0.0, 1.0, 0.0, 1.0)
    assert wide.ticks() == (0.0005, 0.01, 0.2)
    kinds = ((0.3,), (0.3, 0.31), (1e-12, 1.0), (1e308, 1.0), (5e-324,), (0.0,))
    scales = [heat_map([row(f"t{at}", "changed", each) for at, each in enumerate(kind)], frozenset(), 9, 9).scale for kind in kinds]
    assert scales[:3] == [Scale(0.05, 0.5), Scale(0.05, 0.5), Scale(1e-4, 1.0)]
    assert scales[-1] is None
    assert all(scale is None or 0.0 <= scale.low < scale.high for scale in scales)
