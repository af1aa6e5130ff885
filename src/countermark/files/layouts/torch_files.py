"""Files of ``torch.save`` that several libraries write alike under names of their own: optimizers, schedulers, scalers, a state per worker.

Rules kept here:

1. Each file is hashed and judged from one descriptor; its witnesses and facts carry its own name.
2. Of several workers' states every one is there, or the ones that are missing are named. A number in a file's name is never counted up to
   without a bound.
"""

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, TypeVar

from countermark.files.layouts.reading import LayoutReading, Parts, Whys, gaps, take, torch_state
from countermark.files.layouts.states import optimizer_says, scaler_says, scheduler_says
from countermark.files.pickles import scalar
from countermark.files.reading import Entry, OpenFile
from countermark.run.checkpoint import StepWitness
from countermark.weights.refusals import FileDefect

#: Endings of files in which any library keeps a state, and how those begin that hold weights instead.
_STATES: Final = (".pt", ".pth", ".bin", ".pkl", ".ckpt", ".distcp")
_WEIGHTS: Final = ("pytorch_model", "adapter_model")

T = TypeVar("T")


def is_stateless(entries: tuple[Entry, ...]) -> bool:
    """Whether a folder holds weights at the most: no folder, and no file in which any library keeps a state."""
    return not any(entry.kind == "a folder" or (entry.name.endswith(_STATES) and not entry.name.startswith(_WEIGHTS)) for entry in entries)


def take_optimizer(parts: Parts, folder: Path, name: str, reading: LayoutReading) -> None:
    """An optimizer's ``state_dict``; where there are several, the reading has the tensors of all."""
    judge = torch_state(lambda file, opened: optimizer_says(file.value, lambda at: scalar(opened, file, at), name))
    says = take(parts, folder, name, judge)
    if says is None:
        return
    parts.steps.extend(StepWitness(f"{name}: step", step) for step in says.steps)
    reading.facts.extend(says.facts)
    reading.optimizer_shapes = tuple(sorted((*reading.optimizer_shapes, *says.shapes)))
    reading.optimizer_parameters = (reading.optimizer_parameters or 0) + says.parameters


def take_scheduler(
    parts: Parts, folder: Path, name: str, reading: LayoutReading, workers: int = 1, steps: frozenset[int] = frozenset()
) -> None:
    """A scheduler's ``state_dict``. One that is stepped for each of several workers counts their steps together, unless it counts as the
    optimizer does, which is at one of ``steps``; where no optimizer tells, nothing tells which of the two it is."""
    says = take(parts, folder, name, torch_state(lambda file, _: scheduler_says(file.value, name)))
    if says is None:
        return
    reading.facts.extend(says.facts)
    if not says.by_metric and (workers == 1 or steps):
        together = says.step not in steps and says.step % workers == 0
        parts.steps.append(StepWitness(f"{name}: last_epoch", says.step // workers if together else says.step))


def take_scaler(parts: Parts, folder: Path, name: str, reading: LayoutReading) -> None:
    """A gradient scaler's state beside that of the optimizer, which can be as far behind the step as it can have skipped."""
    says = take(parts, folder, name, torch_state(lambda file, _: scaler_says(file.value)))
    if says is not None:
        step = reading.step or 0
        reading.scaled = step - min((witness.step for witness in parts.steps), default=step) <= says.skips_max(step)


def ranks_of(form: re.Pattern[str], names: Iterable[str]) -> tuple[int, ...]:
    """The ranks in names of this form, whose one group is the rank."""
    return tuple(sorted(int(found[1]) for name in names if (found := form.fullmatch(name))))


def note_gaps(parts: Parts, numbers: Iterable[int], form: str, first: int) -> None:
    """What is missing of things that are numbered from the ``first`` on, below the highest of these: their names are of this form."""
    held = tuple(numbers)
    missing, more = gaps(held, range(first, max(held, default=first)))
    parts.whys.extend(f"{form.format(number)} is missing, and others with higher numbers are there" for number in missing)
    if more:
        parts.whys.append(f"{more} more like {form.format(missing[0])} are missing")


def take_ranks(
    parts: Parts, folder: Path, form: str, ranks: Collection[int], least: int, parse: Callable[[OpenFile], T | Whys | FileDefect]
) -> list[T]:
    """The states of several workers, from files named by ``form``: those of ``ranks`` are there. Who is missing below the highest of them,
    or of ``least`` workers, is noted."""
    workers = max(*ranks, least - 1) + 1
    missing, more = gaps(ranks, range(workers))
    parts.whys.extend(f"{form.format(rank)} is missing, the state of one of {workers} workers" for rank in missing)
    if more:
        parts.whys.append(f"the states of {more} more of {workers} workers are missing")
    parts.workers = workers
    return [state for rank in ranks if (state := take(parts, folder, form.format(rank), parse)) is not None]
