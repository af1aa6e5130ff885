"""What a publication is refused for. Where it stands, every surface can say it; the copying itself stands above, with the disks."""

from dataclasses import dataclass
from typing import final

from countermark.run.checkpoint import CheckpointDefect
from countermark.weights.refusals import FileDefect


@final
@dataclass(frozen=True, slots=True)
class FolderTaken:
    """There is something under the final name already: nothing is ever replaced."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class PublishedBefore:
    """What is to be published is a checkpoint that was published, whole and with its manifest."""

    path: str


PublishDefect = FolderTaken | PublishedBefore | FileDefect | CheckpointDefect
