"""Faults that are planted into the controllers under test, which are other processes."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.faults import planted

#: Names of faults in ``tests/app/controller.py`` that every controller is started with; empty unless a fault is planted.
FAULTS: tuple[str, ...] = ()


def in_controllers(*names: str) -> Callable[[], AbstractContextManager[object]]:
    """The fault of this name, planted into every controller that is started meanwhile."""
    import tests.app.planting as here

    fault = planted(here, "FAULTS", names)
    fault.__name__ = fault.__qualname__ = "+".join(names)
    return fault
