"""Names that select exactly the adapted modules, as PEFT reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe.coordinates import ModuleNames
from countermark.recipe.modules import selecting_names, selects

LAYERS = tuple(f"layers.{at}.{part}" for at in (0, 1) for part in ("attn", "attn.q", "attn.k", "mlp", "mlp.q", "mlp.up"))


@pytest.mark.parametrize(
    ("adapted", "names"),
    [
        (("layers.0.attn.k", "layers.1.attn.k"), ("k",)),
        (("layers.0.attn.q", "layers.1.attn.q"), ("attn.q",)),
        (("layers.0.attn.q", "layers.1.attn.q", "layers.0.mlp.q", "layers.1.mlp.q"), ("q",)),
        (("layers.0.attn.k",), ("0.attn.k",)),
        (("layers.0.attn.k", "layers.1.attn.q"), ("0.attn.k", "1.attn.q")),
        (("layers.0.mlp", "layers.1.mlp"), ("mlp",)),
    ],
)
def test_the_shortest_names_that_select_exactly_the_adapted(adapted: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert selecting_names(adapted, LAYERS) == ModuleNames(names)


def test_modules_inside_an_adapted_one_are_no_others() -> None:
    inside = ("k", "k.base_layer", "k.lora_A.default", "q", "q.k")
    assert selecting_names(("k",), inside) is None
    assert selecting_names(("k",), inside[:3]) == ModuleNames(("k",))


def test_no_names_are_better_than_names_that_select_more() -> None:
    assert selecting_names(("k",), ("k", "outer.k")) is None
    assert selecting_names((), LAYERS) is None


NAMES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join), min_size=1, max_size=6, unique=True)


@given(NAMES, st.data())
def test_what_is_found_selects_what_is_adapted_and_nothing_else(modules: list[str], data: st.DataObject) -> None:
    adapted = data.draw(st.lists(st.sampled_from(modules), min_size=1, unique=True))
    names = selecting_names(adapted, modules)
    others = [name for name in modules if name not in adapted and not name.startswith(tuple(one + "." for one in adapted))]
    if names is None:
        assert any(other.endswith("." + one) for one in adapted for other in others)
    else:
        assert all(selects(names.names, name) for name in adapted)
        assert not any(selects(names.names, name) for name in others)
