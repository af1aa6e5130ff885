"""Code that replaces what a library does in a step: methods of a subclass, and methods put onto an object."""

from collections.abc import Collection, Iterator
from typing import cast


def foreign_methods(
    thing: object, called: str, base: type, harmless: Collection[str], put_by_library: Collection[str] = ()
) -> Iterator[str]:
    """What of an object's methods is not its library's, in sentences; ``base`` is the library's class. ``harmless`` methods compute nothing
    of a step, and attributes ``put_by_library`` are no methods that somebody replaced."""
    kind = type(thing)
    if changed := list(_own_methods(kind, base, harmless)):
        yield f"{kind.__name__} has its own {', '.join(changed)}"
    if put := list(_replaced_methods(thing, base, put_by_library)):
        yield f"the {called}'s {', '.join(put)} was replaced"


def _own_methods(kind: type, base: type, harmless: Collection[str]) -> Iterator[str]:
    """Names that a class, or a class mixed into it, has of its own in place of its base's; special ones and harmless ones are left out."""
    line = kind.__mro__
    own = {name for one in line if issubclass(one, base) and one is not base for name in vars(one)}
    mixed = {name for one in line[: line.index(base)] for name in vars(one)}
    yield from sorted(name for name in own | mixed if name not in harmless and not name.startswith("__") and hasattr(base, name))


def _replaced_methods(thing: object, base: type, harmless: Collection[str]) -> Iterator[str]:
    """Names of methods that were put onto an object itself."""
    attributes = cast("dict[str, object]", thing.__dict__)
    yield from sorted(name for name in attributes if callable(getattr(base, name, None)) and name not in harmless)
