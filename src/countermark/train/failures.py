"""Why a trainer's process cannot go on: the one exception of this room, with every reason."""

from collections.abc import Iterable
from typing import final

from countermark.lines.defects import AnyDefect, sentence


@final
class CannotTrain(Exception):
    """Training cannot begin, or what it made cannot be published. ``reasons`` holds every reason, each one or more sentences."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons


def one_worker(workers: int) -> None:
    """Raises ``CannotTrain`` where several train together."""
    if workers > 1:
        raise CannotTrain(
            f"{workers} workers train together, and this roster is of one: no recipe says how many, and nothing could go on from a "
            "checkpoint of theirs. Start one process, and show it one device (CUDA_VISIBLE_DEVICES)."
        )


def refusal(about: str, defects: Iterable[AnyDefect]) -> CannotTrain:
    """The exception for refused values: ``about`` names what was refused, and each defect says why and what to do."""
    told = [sentence(defect) for defect in defects]
    return CannotTrain(*(f"{about}: {one.message}; {one.remedy}" for one in told))
