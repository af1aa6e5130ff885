"""What a readback says by itself: of all five components, by which digest, and how its publication follows from marker and components."""

import hashlib

import pytest

from countermark.recipe.canonical import length_prefixed
from countermark.run import readback
from countermark.run.readback import COMPONENTS, Component, ComponentAbsent, ComponentRead, Incomplete, component_digest
from tests.faults import planted, proven_by
from tests.run.test_checkpoint import clean, file, whole, with_component


def test_a_marker_in_progress_and_what_is_missing_are_both_reasons() -> None:
    found = with_component(ComponentAbsent(("optimizer.pt",)), marker=Incomplete(("a temporary name",)))
    assert found.publication == Incomplete(("a temporary name", "optimizer_state is missing"))


@proven_by(planted(readback, "_incomplete", lambda found, component: ()))
def test_no_marker_outweighs_what_is_missing() -> None:
    assert isinstance(with_component(ComponentAbsent(("optimizer.pt",))).publication, Incomplete)


@pytest.mark.parametrize("left_out", COMPONENTS)
def test_a_readback_speaks_of_all_five(left_out: Component) -> None:
    components = {component: whole(component) for component in COMPONENTS if component != left_out}
    with pytest.raises(ValueError, match=r"^a readback says something about each of the five components, in roster order$"):
        clean(components=components)


def test_a_readback_lists_them_in_roster_order() -> None:
    with pytest.raises(ValueError, match="in roster order"):
        clean(components=dict(reversed(clean().components.items())))


def test_a_components_digest_covers_names_and_hashes_in_name_order() -> None:
    files = (file("b", "2"), file("a", "1"))
    material = length_prefixed(b"a", b"1" * 64, b"b", b"2" * 64)
    assert component_digest(files).hex == hashlib.sha256(material).hexdigest() == component_digest(files[::-1]).hex


def test_no_two_components_trade_places_in_the_digest() -> None:
    digests = {clean().digest}
    for component in COMPONENTS:
        digests.add(with_component(ComponentRead((file("other"),)), component).digest)
    assert len(digests) == 6 and with_component(ComponentAbsent(("x",))).digest is None
