"""The environment failing, as distinct from the domain saying no."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countermark.lines.surface import EnvironmentFault
    from countermark.store import StoreError


class EnvironmentFailed(Exception):
    """Something outside failed (store, disk, machine): ``what`` failed, ``where``, and the ``remedy``. Surfaces exit with 3."""

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(f"{what} ({where}): {remedy}")
        self.what = what
        self.where = where
        self.remedy = remedy


def fault_of(error: "StoreError | EnvironmentFailed") -> "EnvironmentFault":
    """A failing environment as a defect."""
    from countermark.lines.surface import EnvironmentFault

    return EnvironmentFault(type(getattr(error, "failure", error)).__name__, error.what, error.where, error.remedy)
