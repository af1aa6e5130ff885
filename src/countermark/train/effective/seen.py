"""What every reader of live objects works with.

Rules kept here:

1. A reader looks at live objects and hands back, for each coordinate that it speaks of, a value or the reason why there is none. It never
   takes a value from the desired manifest; where a value is compared with the desired one, the comparison is against what was seen.
2. A reader that fails says so for its coordinates, and training goes on: an unread coordinate cannot become an agreement.
3. Each library shows its objects through ``Objects``; the readers know no library's trainer. What only steps can show is ``NOT_YET`` before
   one was taken, and what a library does not show at all is said to be unread by the integration itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

from countermark.evidence.members import How, Read, Unread
from countermark.recipe import read_coordinate
from countermark.train.assignment import Assignment
from countermark.train.sequences import Preparation
from countermark.values import Unreadable, shown

Said = Read | Unread
Readings = dict[str, Said]


#: Said of what only steps can show, before one was taken.
NOT_YET: Final = Unread("no step was seen yet")


class Objects(Protocol):
    """What a library shows of one training. Every member is looked at anew, and one that cannot be looked at raises."""

    @property
    def model(self) -> Any:
        """The base with its adapter."""
        ...

    @property
    def whole(self) -> Any:
        """The module that everything trained lies in: the model itself, or what a script wrapped it into."""
        ...

    @property
    def optimizer(self) -> Any:
        """The optimizer itself, out of every wrapping."""
        ...

    @property
    def scheduler(self) -> Any:
        """The scheduler itself, out of every wrapping."""
        ...

    @property
    def loader(self) -> Any:
        """A data loader of torch: dataset, batch sampler, collator."""
        ...

    @property
    def processing_class(self) -> Any:
        """The tokenizer, or None where nobody saw one."""
        ...

    @property
    def step(self) -> int:
        """Optimizer steps taken since step 0."""
        ...

    @property
    def total(self) -> int | None:
        """The steps that the run is set to take, None where nothing sets them before they are taken."""
        ...

    @property
    def seed(self) -> int | None:
        """What the run says that its generators were seeded with, None where nothing says it."""
        ...

    @property
    def accumulation(self) -> int:
        """The micro batches of a step that the run is set to."""
        ...

    @property
    def clipping(self) -> Said:
        """The coordinate ``max_grad_norm``."""
        ...

    @property
    def workers(self) -> int:
        """How many train together."""
        ...

    @property
    def autocast(self) -> str:
        """What computes: ``no`` autocast, ``bf16`` or ``fp16``."""
        ...

    @property
    def averaging(self) -> str:
        """Why a step's micro batches do not weigh by their tokens, as the computation that is specified has it; empty where they do."""
        ...

    def foreign(self, config: Any, resume: str | None) -> Iterator[str]:
        """Everything that changes the computation and has no coordinate; ``config`` is the adapter's configuration."""
        ...

    def unseen(self) -> bool:
        """Whether only steps can show what the code of a step does, and none was taken yet."""
        ...

    def claimed(self, desired: Preparation) -> Preparation | str:
        """How the rows are said to have been prepared (as desired, where nothing says otherwise), or why nobody can tell."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Live:
    """The live objects of one training, and the assignment that they are held against.

    ``fresh``: training begins at step 0, and so with the adapter's first weights. ``rows_handed_out``: the script took the rows that the
    recipe pins. ``micro_batches`` is the largest number that one optimizer step was seen to take, None before the first step.
    """

    objects: Objects
    assignment: Assignment
    fresh: bool
    rows_handed_out: bool = False
    ended: bool = False
    micro_batches: int | None = None


def said(name: str, raw: object, how: How = "live_object") -> Said:
    """What was seen of a coordinate, in its canonical spelling; unread where the coordinate has no such value."""
    value = read_coordinate(name, raw)
    return Unread(f"it is {shown(raw)}, and {value.why}") if isinstance(value, Unreadable) else Read(value.spell(), how)


def one_of(name: str, values: Sequence[object], of: str) -> Said:
    """A coordinate that several places show: their one value, or unread where they differ or there is none."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) == 1:
        return said(name, distinct[0])
    if not distinct:
        return Unread(f"there are no {of}")
    return Unread(f"the {of} have several: {', '.join(shown(value) for value in distinct[:5])}")


def type_name(thing: object) -> str:
    """The full name of a live object's class."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def guarded(names: tuple[str, ...], reader: Callable[[Live], Mapping[str, Said]], live: Live) -> Readings:
    """What a reader says of its coordinates; a failure is the reason why they are unread."""
    try:
        found = reader(live)
    except Exception as error:
        why = f"it could not be read off the live objects: {type(error).__name__}: {error}"[:500]
        return dict.fromkeys(names, Unread(why))
    return {name: found[name] for name in names}
