"""Faults that are planted into the supervisors of the launchers under test, which are other processes."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.faults import planted

#: Names of faults in ``tests/launch/driver.py`` that every driver is started with; empty unless a fault is planted.
FAULTS: tuple[str, ...] = ()


def in_supervisor(*names: str) -> Callable[[], AbstractContextManager[object]]:
    """The fault of this name, planted into every supervisor that is started meanwhile."""
    import tests.launch.planting as here

    fault = planted(here, "FAULTS", names)
    fault.__name__ = fault.__qualname__ = "+".join(names)  # type: ignore[attr-defined]
    return fault
