"""The environment failing, as distinct from the domain saying no."""


class EnvironmentFailed(Exception):
    """Something outside failed (store, disk, machine): ``what`` failed, ``where``, and the ``remedy``. Surfaces exit with 3."""

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(f"{what} ({where}): {remedy}")
        self.what = what
        self.where = where
        self.remedy = remedy
