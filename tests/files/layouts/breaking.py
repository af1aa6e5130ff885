"""Checkpoints that are broken in one place and in two: the files of a clean one by name, changed, written, and held against admission."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from countermark.files.checkpoints import read_checkpoint
from countermark.run import checkpoint as admission
from countermark.run.checkpoint import (
    CheckpointDefect,
    CheckpointReadback,
    Component,
    ComponentForeign,
    ComponentMissing,
    ComponentStepMismatch,
    ComponentUnread,
    ComponentUnreadable,
    PublicationIncomplete,
    PublicationUnobserved,
    Unobserved,
    admit_checkpoint,
)
from countermark.values import Refused
from tests.recipe.examples import clean_manifest

WEIGHTS, OPTIMIZER, SCHEDULER, GENERATORS, POSITION = Component

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Break:
    """Files that stand otherwise (None: that are gone), and everything that is then said beside the publication."""

    name: str
    changes: Mapping[str, bytes | None]
    found: tuple[CheckpointDefect, ...]

    def __str__(self) -> str:
        return self.name


def written(folder: Path, files: Files, *breaks: Break) -> Path:
    """A folder with these files, broken in these places."""
    contents: dict[str, bytes | None] = {**files, **{name: content for one in breaks for name, content in one.changes.items()}}
    for name, content in contents.items():
        if content is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def read(path: Path) -> CheckpointReadback:
    readback = read_checkpoint(path)
    assert isinstance(readback, CheckpointReadback), readback
    return readback


def whys(path: Path, component: Component) -> tuple[str, ...]:
    """Why a component cannot be read; nothing where it can, or is not there."""
    part = read(path).components[component]
    return part.whys if isinstance(part, ComponentUnreadable) else ()


def defects(path: Path, *, vouched: bool = False, **changes: str) -> Counter[CheckpointDefect]:
    """Everything that admission says against a checkpoint."""
    answer = admit_checkpoint(read_checkpoint(path), clean_manifest(**changes), frozenset(), vouched=vouched)
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


def only_the_first(readback: CheckpointReadback) -> tuple[CheckpointDefect, ...]:
    """The fault to plant: what is wrong with the first component that anything is wrong with, and nothing of the others."""
    return next((found for component in Component if (found := admission._component_defects(readback, component))), ())


def expected(clean: Unobserved, step: int, *breaks: Break) -> Counter[CheckpointDefect]:
    """What must be said of a checkpoint that is broken like this, and is unobserved where nothing is wrong with it."""
    found = [defect for one in breaks for defect in one.found]
    whys: dict[str, None] = {}
    for component in Component:
        for defect in found:
            match defect:
                case ComponentMissing(one) if one is component:
                    whys[f"{one} is missing"] = None
                case ComponentUnread(one) if one is component:
                    whys[f"{one} is unreadable"] = None
                case ComponentStepMismatch(one, other) if one is component:
                    whys[f"{one} is of step {other}, not {step}"] = None
                case _:
                    pass
    told = PublicationIncomplete(tuple(whys)) if whys else PublicationUnobserved(clean.whys)
    return Counter([*found, told])


def incomplete(step: int, *found: CheckpointDefect, whys: tuple[str, ...] = ()) -> Counter[CheckpointDefect]:
    """These defects of components, and that the whole is incomplete for them after what is said first."""
    told = {ComponentMissing: "is missing", ComponentUnread: "is unreadable"}
    theirs = [f"{one.component} {told[type(one)]}" for one in found if isinstance(one, ComponentMissing | ComponentUnread)]
    steps = [f"{one.component} is of step {one.step}, not {step}" for one in found if isinstance(one, ComponentStepMismatch)]
    return Counter([*found, PublicationIncomplete((*whys, *theirs, *steps))])


def missing(component: Component) -> ComponentMissing:
    return ComponentMissing(component)


def unread(component: Component, why: str) -> ComponentUnread:
    return ComponentUnread(component, why)


def of_workers(component: Component, workers: int) -> ComponentForeign:
    return ComponentForeign(component, f"it is the state of {workers} workers, and one alone cannot go on from it")
