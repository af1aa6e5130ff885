"""Retention on the disk: what is known of each checkpoint of a folder, and the deletion of those that a plan lets go.

Rules kept here:

1. What goes was decided in ``countermark.run.retention``; nothing else is deleted, and each of it out of sight first.
2. Before each deletion those that it rests on are looked at once more. Where one of them changed or vanished, no more is deleted.
3. What a deletion that was interrupted left is taken away by the next one.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import final

from countermark.files.checkpoints import step_of
from countermark.files.leftovers import take_away
from countermark.files.reading import list_tree, reason
from countermark.run.checkpoint import AdmittedCheckpoint, CheckpointDefect, CheckpointNotThere, CheckpointReadback, SoundCheckpoint
from countermark.run.retention import Held, RetentionPlan, SuccessorChanged
from countermark.values import NonEmpty, Refused


@final
class RemovalFailed(OSError):
    """The disk failed while a checkpoint was taken away: ``what`` did, ``where``, and what mends it (``remedy``)."""

    def __init__(self, error: OSError, path: Path) -> None:
        super().__init__(error.errno, reason(error), str(path))
        there = os.path.lexists(path)
        state = "it is still there, whole" if there else "it no longer counts, and not all of it is deleted"
        self.what = f"{path.name} could not be taken away: {reason(error)}; {state}"
        self.where = str(path)
        self.remedy = "look at the disk and its permissions, and prune again: it goes on where this stopped"

    def __str__(self) -> str:
        return f"{self.what}; {self.where}: {self.remedy}"


def held(
    parent: Path,
    name: str,
    readback: CheckpointReadback | CheckpointNotThere,
    answer: AdmittedCheckpoint | SoundCheckpoint | Refused[CheckpointDefect],
) -> Held:
    """A checkpoint of a folder, with what the plan has to know of it."""
    step = readback.step if isinstance(readback, CheckpointReadback) else step_of(name) or 0
    return Held(name, step, readback, answer, *_seen(parent / name))


def carry_out(parent: Path, plan: RetentionPlan, told: Callable[[str], None]) -> tuple[str, ...] | Refused[SuccessorChanged]:
    """Take away what the plan lets go, oldest first; ``told`` hears each name before. Returns the names that went. Raises
    ``RemovalFailed``."""
    gone: list[str] = []
    for going in plan.going:
        changed = tuple(SuccessorChanged(str(parent / one.name)) for one in plan.counted if _changed(parent, one))
        if refusal := NonEmpty.of(changed):
            return Refused(refusal)
        told(going.name)
        try:
            take_away(parent / going.name)
        except OSError as error:
            raise RemovalFailed(error, parent / going.name) from error
        gone.append(going.name)
    return tuple(gone)


def _changed(parent: Path, one: Held) -> bool:
    return _seen(parent / one.name) != (one.written_ns, one.bytes)


def _seen(path: Path) -> tuple[int, int]:
    """When something in a checkpoint was last written, in nanoseconds, and how many bytes its files have; zeros where nothing is there."""
    try:
        own = path.lstat()
    except OSError:
        return 0, 0
    below = list_tree(path)
    if not isinstance(below, tuple):
        return max(own.st_mtime_ns, own.st_ctime_ns), own.st_size
    written = max((max(entry.stamp.mtime_ns, entry.stamp.ctime_ns) for entry in below), default=0)
    return max(own.st_mtime_ns, written), sum(entry.stamp.bytes for entry in below if entry.kind == "a regular file")
