"""What artifacts show of an effective manifest, beside the trainer's word."""

from contextlib import AbstractContextManager

import pytest

from countermark.evidence.members import Read
from countermark.observe import artifacts
from countermark.observe.artifacts import artifact_readings, with_leaves
from countermark.recipe import read_coordinate
from countermark.run.readback import ArtifactFact
from tests.faults import planted, proven_by
from tests.recipe.examples import CLEAN

ADAM = "adamw_torch(beta1=0.9,beta2=0.999,eps=1e-8)"


def shown(*facts: tuple[str, str]) -> dict[str, str]:
    """The values of the coordinates that these facts (leaf, spelling) show; every one of them was read in an artifact."""
    found = artifact_readings([ArtifactFact(leaf, spelling, "somewhere") for leaf, spelling in facts], CLEAN)
    assert all(isinstance(reading, Read) and reading.how == "artifact" for reading in found.values())
    return {name: reading.value for name, reading in found.items() if isinstance(reading, Read)}


def leaves_are_ignored() -> AbstractContextManager[object]:
    return planted(artifacts, "leaf_spelling", lambda wanted, leaf: "0.95")()


def a_leaf_is_the_whole() -> AbstractContextManager[object]:
    """Any fact about a coordinate makes it read."""
    return planted(artifacts, "_reading", lambda wanted, facts: Read(wanted, "artifact") if facts else None)()


def the_last_wins() -> AbstractContextManager[object]:
    real = artifacts._reading
    return planted(artifacts, "_reading", lambda wanted, facts: real(wanted, facts[-1:]))()


def test_nothing_shows_nothing() -> None:
    assert shown() == {}
    assert shown(("no_such_coordinate", "1"), ("no_such.leaf", "1")) == {}


def test_a_whole_coordinate_is_read_whether_it_agrees_or_not() -> None:
    assert shown(("rank", "4"), ("dropout", "50")) == {"rank": "4", "dropout": "50"}
    assert shown(("rank", "8"), ("dropout", "50")) == {"rank": "8", "dropout": "50"}


@proven_by(leaves_are_ignored, a_leaf_is_the_whole)
def test_a_leaf_that_differs_makes_its_coordinate_differ() -> None:
    assert shown(("optimizer.beta1", "0.95")) == {"optimizer": ADAM.replace("beta1=0.9,", "beta1=0.95,")}
    two = shown(("optimizer.beta1", "0.95"), ("optimizer.eps", "1e-6"))
    assert two == {"optimizer": "adamw_torch(beta1=0.95,beta2=0.999,eps=1e-6)"}


@proven_by(a_leaf_is_the_whole)
def test_leaves_that_agree_do_not_make_their_coordinate_read() -> None:
    assert shown(("optimizer.beta1", "0.9"), ("optimizer.beta2", "0.999"), ("optimizer.eps", "1e-8")) == {}


@proven_by(the_last_wins)
@pytest.mark.parametrize("turn", [1, -1])
def test_a_value_that_differs_is_not_hidden_by_one_that_agrees(turn: int) -> None:
    """Two groups of one optimizer with two betas, and two files with two ranks."""
    facts = [("optimizer.beta1", "0.95"), ("optimizer.beta1", "0.9")][::turn]
    assert shown(*facts) == {"optimizer": ADAM.replace("beta1=0.9,", "beta1=0.95,")}
    assert shown(*[("rank", "8"), ("rank", "4")][::turn]) == {"rank": "8"}
    whole_and_leaf = [("optimizer", ADAM), ("optimizer.beta1", "0.95")][::turn]
    assert shown(*whole_and_leaf) == {"optimizer": ADAM.replace("beta1=0.9,", "beta1=0.95,")}


def test_a_leaf_of_another_form_is_a_difference() -> None:
    """``data_order`` is a shuffle; a leaf that it has not stands beside its own."""
    assert shown(("optimizer.momentum", "0.9")) == {"optimizer": ADAM.replace(")", ",momentum=0.9)")}
    assert shown(("rank.of", "4")) == {"rank": "4(of=4)"}


@pytest.mark.parametrize("name", [name for name, spelling in CLEAN.items() if "(" in spelling])
def test_putting_a_spellings_own_leaves_back_changes_nothing(name: str) -> None:
    spelling = CLEAN[name]
    leaves = dict(part.split("=") for part in spelling.partition("(")[2].removesuffix(")").split(","))
    assert with_leaves(spelling, {}) == with_leaves(spelling, leaves) == spelling
    for leaf in leaves:
        changed = with_leaves(spelling, {leaf: "7"})
        assert changed != spelling and read_coordinate(name, spelling) != read_coordinate(name, changed)


def test_a_form_without_leaves_gets_them() -> None:
    assert (with_leaves("linear", {}), with_leaves("linear", {"power": "2"})) == ("linear", "linear(power=2)")
