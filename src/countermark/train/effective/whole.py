"""All coordinates together: what is read when training begins, and what of it still holds when it ends.

Rules kept here:

1. Every coordinate of the roster is read by exactly one reader; a coordinate without one is an error when this module is loaded.
2. When training ends, what is cheap to look at is looked at again. A coordinate that changed meanwhile has no value: it is unread, with
   both. The run's length and the accumulation are what was really taken, and what no step had shown yet is what the steps showed.
"""

from collections.abc import Callable, Mapping
from typing import Final

from countermark.evidence.members import Read, Unread
from countermark.recipe import ROSTER
from countermark.train.effective import of_adapter, of_base, of_feeding, of_steps, of_text
from countermark.train.effective.seen import NOT_YET, Live, Readings, Said, guarded

_Reader = Callable[[Live], Mapping[str, Said]]
_READERS: Final[tuple[tuple[tuple[str, ...], _Reader], ...]] = (
    (of_base.NAMES, of_base.read_base),
    (of_text.NAMES, of_text.read_text),
    (of_feeding.NAMES, of_feeding.read_feeding),
    (of_adapter.NAMES, of_adapter.read_adapter),
    (of_steps.NAMES, of_steps.read_steps),
)
#: What is looked at again; the rest is large, frozen, and not written to by a trainer.
_AGAIN: Final[tuple[tuple[tuple[str, ...], _Reader], ...]] = (
    (("numeric_format",), of_base.read_format),
    (of_feeding.NAMES, of_feeding.read_feeding),
    (of_adapter.NAMES, of_adapter.read_adapter),
    (of_steps.NAMES, of_steps.read_steps),
)
#: What training itself decides: the later reading is the value.
_TAKEN: Final = frozenset({"total_steps", "gradient_accumulation"})

if sorted(name for names, _ in _READERS for name in names) != sorted(ROSTER):
    raise TypeError("each coordinate of the roster is read by exactly one reader")


def read_all(live: Live) -> Readings:
    """What the live objects show of each of the 23 coordinates, in roster order."""
    found: Readings = {}
    for names, reader in _READERS:
        found |= guarded(names, reader, live)
    return {name: found[name] for name in ROSTER}


def read_again(live: Live, before: Mapping[str, Said]) -> Readings:
    """What still holds at the end of training of what was read at its beginning."""
    later: Readings = {}
    for names, reader in _AGAIN:
        later |= guarded(names, reader, live)
    return {name: _settled(name, said, later.get(name, said)) for name, said in before.items()}


def _settled(name: str, first: Said, last: Said) -> Said:
    if first == NOT_YET:
        return last
    if first == last or isinstance(first, Unread):
        return first
    if name in _TAKEN:
        return last
    ended = last.value if isinstance(last, Read) else f"unread ({last.reason})"
    return Unread(f"it was {first.value} when training began and {ended} when it ended")
