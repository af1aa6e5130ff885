"""Which modules a set of names selects, and which names select a set of modules.

Rules kept here:

1. A name selects every module that it is, or that ends with it after a dot: so PEFT reads a list of targets.
2. Names that select exactly what is adapted are found or there are none; names that select more would stand for another computation.
"""

from collections.abc import Collection

from countermark.recipe.coordinates import ModuleNames
from countermark.values import Unreadable


def selects(names: Collection[str], module: str) -> bool:
    """Whether one of the names selects a module, by its full name in the base."""
    return any(module == name or module.endswith("." + name) for name in names)


def selecting_names(adapted: Collection[str], modules: Collection[str]) -> ModuleNames | None:
    """The shortest names that select exactly the ``adapted`` ones among all ``modules`` of the base (full names); None where no names do.

    Modules inside an adapted one are not selected by their names any more and are left out of account.
    """
    inside = tuple(name + "." for name in adapted)
    others = {name for name in modules if name not in adapted and not name.startswith(inside)}
    taken = {ending for name in others for ending in _endings(name)}
    names: list[str] = []
    for module in adapted:
        free = [ending for ending in _endings(module) if ending not in taken]
        if not free:
            return None
        names.append(min(free, key=len))
    found = ModuleNames.read(names)
    return None if isinstance(found, Unreadable) else found


def _endings(name: str) -> list[str]:
    """A dotted name and everything that it ends with after a dot."""
    parts = name.split(".")
    return [".".join(parts[at:]) for at in range(len(parts))]
