"""Differences of weights in words: one verdict line, and tables in which nothing is folded into nothing."""

import hashlib
from contextlib import AbstractContextManager

import pytest

from countermark.lines import weights as lines
from countermark.lines.texts import plain
from countermark.lines.weights import difference_document, difference_rows, preflight_lines, root_lines, shown_shape, verdict_line
from countermark.values import Sha256, WeightsRoot
from countermark.weights import TensorSpan
from countermark.weights.difference import CommonRows, Numbers, TensorDifference, TensorSide, WeightsDifference, totals_of
from countermark.weights.pairing import pair
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE

X, Y = (Sha256(hashlib.sha256(text).hexdigest()) for text in (b"x", b"y"))


def side(name: str, digest: Sha256 = X, shape: tuple[int, ...] = (2, 3), dtype: str = "F32") -> TensorSide:
    return TensorSide(name, dtype, shape, digest)


def moved(l2: float | None = 3.0, created: int = 0) -> Numbers:
    norm = None if l2 is None else 10.0
    return Numbers(6, 2, 1, l2, l2, created, 0, norm, "float" if l2 is not None else "raw")


EVERY = (
    TensorDifference("equal", side("same"), side("same")),
    TensorDifference("changed", side("w"), side("w", Y), moved(created=1)),
    TensorDifference("changed", side("packed"), side("packed", Y), moved(None)),
    TensorDifference("cast", side("c"), side("c", Y, dtype="F16"), Numbers(6, None, 0, 0.0, 0.0, 0, 0, 1.0, "float")),
    TensorDifference("reshaped", side("g"), side("g", Y, (4, 3)), common=CommonRows(2, 0)),
    TensorDifference("renamed", side("old"), side("new")),
    TensorDifference("only_a", side("tied"), None, alias_of="same"),
    TensorDifference("only_b", None, side("more", Y)),
)


def whole(rows: tuple[TensorDifference, ...], prefixes: tuple[tuple[str, str], ...] = ()) -> WeightsDifference:
    root = WeightsRoot("ab" * 32)
    return WeightsDifference(root, "names", rows, prefixes, totals_of(rows))


def only_changed_counts() -> AbstractContextManager[object]:
    """What was removed, added, cast or renamed is not said beside the count of changes."""
    return planted(lines, "_also", lambda totals: [])()


@proven_by(only_changed_counts)
def test_the_verdict_line_says_everything_that_is_not_equal() -> None:
    assert verdict_line(whole(EVERY, (("model.", ""),))) == (
        "4 of 6 tensors changed, 4 of 36 weights (11.1 %), ‖Δ‖/‖W‖ 0.299 over what changed, non-finite +1, cast: 1, reshaped: 1, "
        "renamed: 1, removed: 1, added: 1, without an l2: 1, names differ by model. → (nothing)"
    )


def test_the_same_root_is_claimed_only_where_nothing_at_all_differs() -> None:
    rows = EVERY[:1]
    root, other = WeightsRoot("ab" * 32), WeightsRoot("cd" * 32)
    for roots in ((root, root), (root, other), (root, "pickled"), ("pickled", "pickled")):
        said = verdict_line(WeightsDifference(*roots, rows, (), totals_of(rows)))  # type: ignore[arg-type]
        assert said == "0 of 1 tensor changed" + (", same tensor root" if roots == (root, root) else "")


def test_each_status_has_a_row_of_its_own() -> None:
    assert [row[:5] for row in difference_rows(EVERY)] == [
        ("same", "equal", "F32", "[2,3]", "-"),
        ("w", "changed", "F32", "[2,3]", "2"),
        ("packed", "changed (by bits alone)", "F32", "[2,3]", "2"),
        ("c", "cast", "F32 → F16", "[2,3]", "-"),
        ("g", "reshaped: common rows equal, 2 rows added", "F32", "[2,3] → [4,3]", "-"),
        ("old → new", "same bytes, renamed", "F32", "[2,3]", "-"),
        ("tied", "only in A (same bytes as same)", "F32", "[2,3]", "-"),
        ("more", "only in B", "F32", "[2,3]", "-"),
    ]
    assert difference_rows(EVERY[1:2])[0][5:] == ("33.3 %", "3.00", "3.00", "0.300", "+1", "-")


def test_both_roots_are_said_and_a_name_without_a_place_is_the_reason() -> None:
    assert root_lines(whole(EVERY)) == ("A wr1:" + "ab" * 32, "B has no root: a name in it has control characters")


def test_a_document_counts_equal_tensors_as_unchanged_and_lonely_ones_as_unknown() -> None:
    rows = {row["name"]: row for row in difference_document(whole(EVERY))["tensors"]}  # type: ignore[union-attr, index, call-overload]
    assert [(rows[name]["changed"], rows[name]["l2"]) for name in ("same", "old", "tied", "more", "packed", "c")] == [
        (0, 0.0), (0, 0.0), (None, None), (None, None), (2, None), (None, 0.0),
    ]  # fmt: skip
    assert (rows["tied"]["sha256Before"], rows["tied"]["sha256After"], rows["tied"]["aliasOf"]) == (X.hex, None, "same")


def test_the_headers_alone_show_shapes_types_and_names() -> None:
    def span(name: str, shape: tuple[int, ...] = (2,), dtype: str = "F32") -> TensorSpan:
        return TensorSpan(name, dtype, shape, 0, 0)

    a = (span("e", (4, 2)), span("c"), span("gone"), span("same"))
    b = (span("e", (6, 2)), span("c", dtype="F16"), span("same"))
    assert preflight_lines(pair(a, b)) == (
        "headers: e [4,2] → [6,2]",
        "headers: 1 tensor of another type: c",
        "headers: 1 tensor only in A: gone",
    )
    assert preflight_lines(pair((), tuple(span(HOSTILE + str(number)) for number in range(5)))) == (
        "headers: 5 tensors only in B: " + ", ".join([plain(HOSTILE + str(number)) for number in range(3)] + ["…"]),
    )
    assert preflight_lines(pair(a, a)) == ()
    many = tuple(span(f"t{number}", (number + 1,)) for number in range(9))
    assert preflight_lines(pair(many, tuple(span(one.name, (99,)) for one in many)))[-1] == "headers: 4 more of another shape"


@pytest.mark.parametrize("name", [HOSTILE, "a\tb", "x\ny"])
def test_no_name_moves_a_column_or_a_terminal(name: str) -> None:
    rows = difference_rows(
        (TensorDifference("renamed", side(name), side("new " + name)), TensorDifference("only_a", side(name), None, alias_of=name))
    )
    assert [cell for row in rows for cell in row if not cell.isprintable()] == []


def test_a_shape_of_many_sizes_is_cut() -> None:
    assert shown_shape((1,) * 9) == "[1,1,1,1,1,1,1,1,…]"
    assert shown_shape(()) == "[]"
