"""Code that replaces what a library does in a step: methods of a subclass, and methods put onto an object."""

from collections.abc import Collection, Iterator
from typing import cast


def own_methods(kind: type, base: type, harmless: Collection[str]) -> Iterator[str]:
    """Names that a class, or a class mixed into it, has of its own in place of its base's; special ones and harmless ones are left out."""
    line = kind.__mro__
    own = {name for one in line if issubclass(one, base) and one is not base for name in vars(one)}
    mixed = {name for one in line[: line.index(base)] for name in vars(one)}
    yield from sorted(name for name in own | mixed if name not in harmless and not name.startswith("__") and hasattr(base, name))


def replaced_methods(thing: object, base: type, harmless: Collection[str] = ()) -> Iterator[str]:
    """Names of methods that were put onto an object itself."""
    attributes = cast("dict[str, object]", thing.__dict__)
    yield from sorted(name for name in attributes if callable(getattr(base, name, None)) and name not in harmless)
