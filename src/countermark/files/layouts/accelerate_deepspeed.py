"""The folder that Accelerate's ``save_state`` writes where DeepSpeed trains: the states of a tag, and Accelerate's own files around them.

Rules kept here:

1. The model and its optimizer are those of the tag that ``latest`` names. A second model has a tag of its own, which is named as unread.
2. A scheduler that DeepSpeed does not know lies in ``scheduler.bin``, and is stepped for each process unless the batches were split.
3. Each worker that the states tell of has its generators in a file of Accelerate's.
4. The place in the data is what a loader or a loop kept, beside the samples that DeepSpeed counted.
"""

from pathlib import Path
from typing import Final

from countermark.files.layouts.accelerate import NAMES, is_accelerates, take_position, take_processes, take_registered, take_schedulers
from countermark.files.layouts.deepspeed import read_tag, with_skipped
from countermark.files.layouts.deepspeed_files import is_deepspeeds, tags_of
from countermark.files.layouts.reading import Layout, LayoutReading
from countermark.files.reading import Entry
from countermark.run.checkpoint import Component

_SCHEDULER: Final = "scheduler.bin"


def _read(folder: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    read = read_tag(folder, entries)
    names, reading, parts = read.names, read.reading, read.parts
    optimizer, position = take_registered(folder, names, reading)
    parts[Component.OPTIMIZER_STATE].join(optimizer)
    parts[Component.RNG_STATE], processes = take_processes(folder, names, read.workers)
    if _SCHEDULER in names:
        taken = frozenset({reading.step - read.skipped} if reading.step is not None else ())
        scheduler = take_schedulers(folder, names, reading, read.workers if read.says else processes, taken)
        scheduler.steps = [with_skipped(told.source, told.step, read.skipped) for told in scheduler.steps]
        parts[Component.SCHEDULER_STATE].join(scheduler)
    position = take_position(position, folder, names)
    position.join(parts[Component.DATA_POSITION])
    parts[Component.DATA_POSITION] = position
    others = [tag for tag in tags_of(names) if read.tag and tag != read.tag]
    for component in (Component.MODEL_WEIGHTS, Component.OPTIMIZER_STATE):
        parts[component].whys.extend(f"{tag} holds another model, and is not read" for tag in others)
    return reading.settle(parts)


FOLDER: Final = Layout("accelerate-deepspeed", NAMES, lambda path, entries: is_deepspeeds(entries) and is_accelerates(entries), _read)
