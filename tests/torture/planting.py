"""Faults that are planted into the mortal controllers, which are other processes."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.faults import planted

#: Names of faults in ``tests/torture/mortal.py`` that every mortal controller is started with; empty unless a fault is planted.
FAULTS: tuple[str, ...] = ()


def in_mortals(*names: str) -> Callable[[], AbstractContextManager[object]]:
    """The fault of this name, planted into every mortal controller that is started meanwhile."""
    import tests.torture.planting as here

    fault = planted(here, "FAULTS", names)
    fault.__name__ = fault.__qualname__ = "+".join(names)
    return fault
