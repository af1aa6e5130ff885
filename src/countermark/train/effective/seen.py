"""What every reader of live objects works with.

Rules kept here:

1. A reader looks at live objects and hands back, for each coordinate that it speaks of, a value or the reason why there is none. It never
   takes a value from the desired manifest; where a value is compared with the desired one, the comparison is against what was seen.
2. A reader that fails says so for its coordinates, and training goes on: an unread coordinate cannot become an agreement.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from countermark.evidence.members import How, Read, Unread
from countermark.recipe import read_coordinate
from countermark.train.assignment import Assignment
from countermark.values import Unreadable, shown

Said = Read | Unread
Readings = dict[str, Said]


@final
@dataclass(frozen=True, slots=True)
class Live:
    """The live objects of one training: the trainer's own, and the assignment that they are held against.

    ``trainer`` is None where nobody saw it. ``fresh``: training begins at step 0, and so with the adapter's first weights.
    ``rows_handed_out``: the script took the rows that the recipe pins.
    ``micro_batches`` is the largest number that one optimizer step was seen to take, None before the first step.
    """

    args: Any
    state: Any
    model: Any
    optimizer: Any
    scheduler: Any
    loader: Any
    processing_class: Any
    trainer: Any
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
