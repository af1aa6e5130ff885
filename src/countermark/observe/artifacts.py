"""What an attempt's artifacts show of its effective manifest: the adapter's configuration, the optimizer's groups, the scheduler.

Rules kept here:

1. An artifact often shows one leaf of a coordinate (``optimizer.beta1``). A leaf that differs makes the coordinate differ; leaves that
   agree do not make it read, because they do not show its form (which optimizer).
2. Two artifacts can show two values (groups of one optimizer). One that differs is never hidden by another that agrees; of several that
   differ, the first is told.
3. This is a second source beside the trainer's word. It says nothing about coordinates that no artifact shows.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from countermark.evidence.members import Read, Unread
from countermark.recipe import ROSTER
from countermark.run.checkpoint import leaf_spelling
from countermark.run.readback import ArtifactFact

SOURCE: Final = "artifacts"


def artifact_readings(facts: Iterable[ArtifactFact], desired: Mapping[str, str]) -> dict[str, Read | Unread]:
    """The coordinates that these facts show, given the desired spellings (whose form says which leaves a coordinate has)."""
    by_coordinate: dict[str, list[ArtifactFact]] = {}
    for fact in facts:
        if fact.coordinate in desired:
            by_coordinate.setdefault(fact.coordinate, []).append(fact)
    readings = ((name, _reading(desired[name], by_coordinate.get(name, []))) for name in ROSTER)
    return {name: reading for name, reading in readings if reading is not None}


def _reading(wanted: str, facts: list[ArtifactFact]) -> Read | None:
    """The coordinate as the facts show it, or None while they show no difference and not the whole of it."""
    whole = [fact for fact in facts if fact.leaf == fact.coordinate]
    other = next((fact for fact in whole if fact.spelling != wanted), None)
    if other is not None:
        return Read(other.spelling, "artifact")
    differing: dict[str, str] = {}
    for fact in facts:
        if fact.leaf != fact.coordinate and leaf_spelling(wanted, fact.leaf) != fact.spelling:
            differing.setdefault(fact.leaf.partition(".")[2], fact.spelling)
    if differing:
        return Read(with_leaves(wanted, differing), "artifact")
    return Read(wanted, "artifact") if whole else None


def with_leaves(spelling: str, leaves: Mapping[str, str]) -> str:
    """A spelling ``form(leaf=value,…)`` with other values for some of its leaves."""
    form, _, inner = spelling.partition("(")
    parts = [part.partition("=") for part in inner.removesuffix(")").split(",")] if inner else []
    said = {name: leaves.get(name, value) for name, _, value in parts} | dict(leaves)
    return f"{form}({','.join(f'{name}={value}' for name, value in said.items())})" if said else form
