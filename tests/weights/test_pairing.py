"""Which tensors are held against which: by names and shapes alone."""

from countermark.weights import TensorSpan, pairing
from countermark.weights.pairing import Pair, Pairing, PrefixChange, pair
from tests.faults import planted, proven_by


def span(name: str, shape: tuple[int, ...] = (2, 2), dtype: str = "F32") -> TensorSpan:
    return TensorSpan(name, dtype, shape, 0, 16)


def layers(prefix: str, count: int = 3, dtype: str = "F32") -> list[TensorSpan]:
    return [span(f"{prefix}layers.{at}.w", dtype=dtype) for at in range(count)]


def names(found: Pairing) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    pairs = [(one.a.name, one.b.name) for one in found.pairs]
    return pairs, [one.name for one in found.only_a], [one.name for one in found.only_b]


def test_equal_names_are_pairs_whatever_their_shape_and_the_rest_is_on_one_side() -> None:
    found = pair([span("a"), span("b", (3,)), span("gone")], [span("b"), span("a", dtype="F16"), span("new")])
    assert names(found) == ([("a", "a"), ("b", "b")], ["gone"], ["new"])
    assert [(one.cast, one.common_rows()) for one in found.pairs] == [(True, None), (False, None)]


def none(left: object, right: object) -> None:
    return None


@proven_by(planted(pairing, "_best_change", none))
def test_one_change_of_a_prefix_explains_several_tensors() -> None:
    for before, after in (("model.", ""), ("", "model."), ("base_model.model.", ""), ("transformer.h.", "model.decoder.")):
        found = pair([*layers(before), span("x")], [*layers(after), span("y")])
        assert names(found)[1:] == (["x"], ["y"])
        assert found.prefixes == (PrefixChange(before, after, 3),)
        assert names(found)[0] == [(f"{before}layers.{at}.w", f"{after}layers.{at}.w") for at in range(3)]


def test_two_changes_are_both_found_and_casts_go_along() -> None:
    found = pair([*layers("model."), *layers("vision.", 2)], [*layers("", dtype="BF16"), *layers("tower.", 2)])
    assert set(found.prefixes) == {PrefixChange("model.", "", 3), PrefixChange("vision.", "tower.", 2)}
    assert (found.only_a, found.only_b) == ((), ())


def test_one_fit_by_chance_is_no_renaming_and_a_shape_must_be_kept() -> None:
    assert names(pair([span("old.w")], [span("new.w")])) == ([], ["old.w"], ["new.w"])
    other = [span(f"layers.{at}.w", (5,)) for at in range(3)]
    assert names(pair(layers("model."), other))[0] == []


def test_an_ending_that_many_share_says_nothing_of_any() -> None:
    found = pair([span(f"m{at}.w") for at in range(3000)], [span(f"n{at}.w") for at in range(3000)])
    assert (len(found.pairs), len(found.only_a), len(found.only_b)) == (0, 3000, 3000)


def test_rows_in_common() -> None:
    assert Pair(span("e", (4, 2)), span("e", (6, 2))).common_rows() == 4
    assert Pair(span("e", (4, 2)), span("e", (4, 3))).common_rows() is None
    assert Pair(span("e", (4,)), span("e", (4, 1))).common_rows() is None
