"""What a publication is refused for. Where it stands, every surface can say it; the copying itself stands above, with the disks."""

from dataclasses import dataclass
from typing import final

from countermark.run.checkpoint import CheckpointDefect
from countermark.weights.refusals import FileDefect


@final
@dataclass(frozen=True, slots=True)
class FolderTaken:
    """There is a folder under the final name already, or the source itself was published already: nothing is ever replaced."""

    path: str


PublishDefect = FolderTaken | FileDefect | CheckpointDefect
