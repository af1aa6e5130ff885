"""Rows, totals, and what a comparison can be told to fail on."""

import hashlib

from countermark.values import Sha256
from countermark.weights import difference
from countermark.weights.difference import (
    RULES,
    Numbers,
    Surprises,
    TensorDifference,
    TensorSide,
    Ties,
    failing,
    joined,
    matched,
    surprises_of,
    totals_of,
)
from tests.faults import planted, proven_by


def side(name: str, data: str = "x", shape: tuple[int, ...] = (2, 3), dtype: str = "F32") -> TensorSide:
    return TensorSide(name, dtype, shape, Sha256(hashlib.sha256(data.encode()).hexdigest()))


def equal(name: str, data: str = "x") -> TensorDifference:
    return TensorDifference("equal", side(name, data), side(name, data))


def numbers(l2: float | None = 3.0, changed: int | None = 2, created: int = 0) -> Numbers:
    return Numbers(6, changed, changed, l2, l2, created, 0, 10.0, "float")


def changed(name: str, found: Numbers) -> TensorDifference:
    return TensorDifference("changed", side(name, "x"), side(name, "y"), found)


def alone(which: str, name: str, data: str, shape: tuple[int, ...] = (2, 3)) -> TensorDifference:
    one = side(name, data, shape)
    return TensorDifference("only_a", one, None) if which == "a" else TensorDifference("only_b", None, one)


def test_equal_bytes_under_another_name_are_one_renamed_tensor() -> None:
    rows = [alone("b", "new.2", "p"), alone("a", "old.2", "p"), alone("a", "old.1", "p"), alone("b", "new.1", "p"), alone("a", "z", "q")]
    assert matched(rows) == (
        TensorDifference("renamed", side("old.1", "p"), side("new.1", "p")),
        TensorDifference("renamed", side("old.2", "p"), side("new.2", "p")),
        TensorDifference("only_a", side("z", "q"), None),
    )
    assert matched([alone("a", "o", "p"), alone("b", "z", "p", (3, 2))])[0].status == "only_a"


def test_a_tied_tensor_that_one_side_drops_says_whose_bytes_it_has_and_stays_removed() -> None:
    rows = matched([equal("embed", "e"), alone("a", "lm_head", "e"), alone("b", "other", "o")])
    assert [(row.name, row.status, row.alias_of) for row in rows] == [
        ("embed", "equal", None),
        ("lm_head", "only_a", "embed"),
        ("other", "only_b", None),
    ]


def test_norms_are_of_what_changed_and_what_has_none_is_counted() -> None:
    found = totals_of(
        [equal("a"), changed("b", numbers(3.0)), changed("c", numbers(4.0, created=1)), changed("d", numbers(None)), alone("a", "e", "e")]
    )
    assert (found.rows, found.elements, found.changed, found.l2, found.max_abs, found.left_out) == (5, 24, 6, 5.0, 4.0, 1)
    assert (found.count("equal"), found.count("changed", "only_a"), found.non_finite_created) == (1, 4, 1)


def test_a_whole_that_no_float_holds_has_no_norm() -> None:
    found = totals_of([changed("b", numbers(1.5e308)), changed("c", numbers(1.5e308))])
    assert (found.l2, found.max_abs, found.norm_a) == (None, 1.5e308, 14.142135623730951)


def test_the_names_of_one_tensor_are_told_once_whatever_the_other_side_has() -> None:
    both = [changed("embed", numbers()), changed("head", numbers())]
    groups = (("embed", "head"),)

    def told(rows: list[TensorDifference], ties: Ties) -> list[tuple[object, ...]]:
        return [(row.name, row.status, row.alias_of, row.aliases) for row in joined(rows, ties)]

    assert told(both, Ties(groups, groups)) == [("embed", "changed", None, ("head",))]
    # Tied on one side alone, the other side's two tensors are two.
    assert told(both, Ties(groups, ())) == [("embed", "changed", None, ()), ("head", "changed", None, ())]
    for which, ties in (("a", Ties(groups, ())), ("b", Ties((), groups))):
        lonely = [alone(which, "embed", "e"), alone(which, "head", "e")]
        assert told(lonely, ties) == [("embed", f"only_{which}", None, ("head",))]
        assert told([equal("embed"), alone(which, "head", "x")], ties) == [("embed", "equal", None, ()), ("head", "tied", "embed", ())]
    assert matched(joined([equal("embed"), alone("a", "head", "x"), alone("b", "new", "x")], Ties(groups, ())))[1].status == "tied"


def test_a_name_that_is_tied_and_absent_is_no_surprise() -> None:
    rows = joined([changed("embed", numbers()), alone("a", "head", "x")], Ties((("embed", "head"),), ()))
    assert surprises_of(rows, ["*"]) == Surprises(frozenset(), frozenset())
    assert surprises_of(rows, []) == Surprises(frozenset(), frozenset({"embed"}))
    assert failing(rows, RULES, surprises_of(rows, [])) == (("changed", ("embed",)), ("unexpected", ("embed",)))


ROWS = (
    equal("same"),
    changed("changed", numbers()),
    changed("broken", numbers(created=1)),
    alone("a", "removed", "r"),
    alone("b", "added", "s"),
    TensorDifference("cast", side("cast"), side("cast", "c", dtype="F16"), numbers(changed=None)),
    TensorDifference("reshaped", side("grown"), side("grown", "g", (4, 3))),
    TensorDifference("renamed", side("old"), side("new")),
)


def never(row: TensorDifference, rule: str, surprises: Surprises) -> bool:
    return False


@proven_by(planted(difference, "_breaks", never))
def test_each_rule_names_the_tensors_that_break_it_and_removal_always_does() -> None:
    surprises = surprises_of(ROWS, ["same", "chang*"])
    assert surprises == Surprises(frozenset({"same"}), frozenset({"broken", "removed", "added", "cast", "grown"}))
    assert failing(ROWS, (), surprises) == (("removed", ("removed",)),)
    assert dict(failing(ROWS, tuple(RULES), surprises)) == {
        "removed": ("removed",),
        "added": ("added",),
        "changed": ("changed", "broken"),
        "cast": ("cast",),
        "reshaped": ("grown",),
        "renamed": ("old",),
        "non-finite": ("broken",),
        "unexpected": ("broken", "removed", "added", "cast", "grown"),
        "unchanged": ("same",),
    }
    assert failing([equal("same")], tuple(RULES), surprises_of([equal("same")], [])) == ()


def test_relative_is_unknown_where_nothing_can_be_divided_by() -> None:
    assert numbers(3.0).relative() == 0.3
    assert numbers(None).relative() is None
    zero = Numbers(1, 1, 1, 2.0, 2.0, 0, 0, 0.0, "float")
    assert zero.relative() is None
