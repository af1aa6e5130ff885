"""The folder that Accelerate's ``save_state`` writes: a state per prepared object, and one of the generators per process.

Rules kept here:

1. Of models, optimizers, schedulers, data loaders and the script's own objects the first has no number and the others count from 1: one
   that is missing among them is named. Nothing in the folder tells how many there were.
2. ``checkpoint_N`` counts saves. The step is the one that a loop registered, since optimizers skip some where gradients are scaled, and
   else the optimizers' own; the ``step`` beside the generators counts micro batches since the data last ended, and all processes must
   agree on it.
3. A scheduler is stepped once for each process, unless the batches were split among them.
4. Where the loader kept no state, and no loop registered where it is (as the loops do that Countermark follows), nothing tells the place in
   the data. A pickled sampler holds live objects, and is read by nobody.
5. What else the script registered goes with the optimizers: no one else knows what it is, and training does not go on without it.
6. It is written in place, after the oldest checkpoint was taken away: nothing proves that the writer had finished.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.layouts.deepspeed_files import is_deepspeeds
from countermark.files.layouts.fsdp import note_beside, take_pieces, workers_of
from countermark.files.layouts.reading import Layout, LayoutReading, Naming, Parts, Whole, Whys, take, torch_state
from countermark.files.layouts.states import generators_say, table_of, whole_number
from countermark.files.layouts.torch_files import is_stateless, note_gaps, ranks_of, take_optimizer, take_ranks, take_scaler, take_scheduler
from countermark.files.layouts.transformers import OPTIMIZER, SCALER, SCHEDULER, TRAINER_STATE
from countermark.files.layouts.weights import pickled, safetensors, take_weights
from countermark.files.pickles import TorchFile
from countermark.files.reading import Entry, OpenFile
from countermark.run.checkpoint import Component, StepWitness, Unobserved

_SAVES: Final = Naming("checkpoint_{save}")
NAMES: Final = (_SAVES, Naming("step_{step}"), Naming("epoch_{epoch}"))
_PROCESS: Final = re.compile(r"random_states_(0|[1-9][0-9]*)\.pkl", re.ASCII)
_CUSTOM: Final = re.compile(r"custom_checkpoint_(0|[1-9][0-9]*)\.pkl", re.ASCII)
#: What only ``save_state`` calls a file.
_MARK: Final = re.compile(r"(optimizer_[1-9][0-9]*|(scheduler|sampler|dl_state_dict)(_[1-9][0-9]*)?)\.bin", re.ASCII)
#: Files of the Transformers trainer, whose optimizer can have the name that Accelerate gives the first.
_TRAINERS: Final = frozenset({OPTIMIZER, SCHEDULER, TRAINER_STATE})
_SAMPLER: Final = re.compile(r"sampler(_[1-9][0-9]*)?\.bin", re.ASCII)
_POSITION: Final = "dl_state_dict"

_IN_PLACE: Final = Unobserved(("Accelerate writes in place, file after file, and takes the oldest checkpoint away before it begins",))


def is_accelerates(entries: tuple[Entry, ...]) -> bool:
    """Whether a file lies there that only ``save_state`` writes."""
    return any(_MARK.fullmatch(entry.name) or _PROCESS.fullmatch(entry.name) or _CUSTOM.fullmatch(entry.name) for entry in entries)


def _recognises(path: Path, entries: tuple[Entry, ...]) -> bool:
    names = {entry.name for entry in entries}
    if is_deepspeeds(entries):
        return False
    if is_accelerates(entries):
        return True
    if "optimizer.bin" in names and names.isdisjoint(_TRAINERS):
        return True
    return is_stateless(entries) and _SAVES.numbered(path.name) is not None


def _read(folder: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    names = frozenset(entry.name for entry in entries)
    reading = LayoutReading(publication=_IN_PLACE)
    optimizer, position = take_registered(folder, names, reading)
    named = next((found for naming in NAMES if (found := naming.numbered(folder.name)) is not None), None)
    reading.step = next((witness.step for witness in position.steps), None if named is None else named.step)
    pieces = take_pieces(folder, entries, reading)
    _optimizers(optimizer, folder, names, reading, pieces.get(Component.OPTIMIZER_STATE))
    generators, processes = take_processes(folder, names)
    scheduler = take_schedulers(folder, names, reading, processes, frozenset(witness.step for witness in optimizer.steps))
    if reading.step is None:
        reading.step = next((witness.step for witness in (*optimizer.steps, *scheduler.steps)), None)
    return reading.settle(
        {
            Component.MODEL_WEIGHTS: pieces.get(Component.MODEL_WEIGHTS) or _weights(folder, names, reading),
            Component.OPTIMIZER_STATE: optimizer,
            Component.SCHEDULER_STATE: scheduler,
            Component.RNG_STATE: generators,
            Component.DATA_POSITION: take_position(position, folder, names),
        }
    )


def _others(parts: Parts, names: frozenset[str], stem: str, ending: str = ".bin") -> tuple[str, ...]:
    """The files of all objects but the first, by their numbers; one that is missing below the highest is noted."""
    numbers = ranks_of(re.compile(rf"{stem}_([1-9][0-9]{{0,3}}){re.escape(ending)}", re.ASCII), names)
    note_gaps(parts, numbers, f"{stem}_{{}}{ending}", 1)
    return tuple(f"{stem}_{number}{ending}" for number in numbers)


def _weights(folder: Path, names: frozenset[str], reading: LayoutReading) -> Parts:
    """The first model as any of the Hugging Face libraries writes one, and each other in its one file."""
    parts = take_weights(folder, names, reading)
    for name in _others(parts, names, "model", ".safetensors"):
        take(parts, folder, name, safetensors)
    for name in (*_others(parts, names, "pytorch_model"), *_others(parts, names, "pytorch_model_fsdp")):
        take(parts, folder, name, pickled)
    return parts


def take_registered(folder: Path, names: frozenset[str], reading: LayoutReading) -> tuple[Parts, Parts]:
    """What the script registered: what goes with the optimizers, and what says where in the data a loop is."""
    optimizer, position = Parts(), Parts()
    first = ("custom_checkpoint_0.pkl",) if ranks_of(_CUSTOM, names) else ()
    for name in (*first, *_others(optimizer, names, "custom_checkpoint", ".pkl")):
        read = Parts()
        place = take(read, folder, name, torch_state(_place_said))
        (position if isinstance(place, _Place) else optimizer).join(read)
        if isinstance(place, _Place):
            position.steps.append(StepWitness(f"{name}: global_step", place.step))
            reading.micro_batches, reading.epoch = place.micro_batches, place.micro_batches / place.per_epoch
    return optimizer, position


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the data a loop is: optimizer steps and micro batches since step 0, and the micro batches of an epoch."""

    step: int
    micro_batches: int
    per_epoch: int


def _place_said(file: TorchFile, _: OpenFile) -> _Place | Whole | Whys:
    state = table_of(file.value)
    if "countermark" not in state:
        return Whole()
    step, taken, per_epoch = (whole_number(state.get(name)) for name in ("global_step", "micro_batches", "batches_per_epoch"))
    if step is None or taken is None or not per_epoch:
        return Whys(("it does not tell where in the data its loop is",))
    return _Place(step, taken, per_epoch)


def _optimizers(parts: Parts, folder: Path, names: frozenset[str], reading: LayoutReading, pieces: Parts | None) -> None:
    """The optimizers, each in its file, or all of them in pieces."""
    others = _others(parts, names, "optimizer")
    if pieces is not None:
        parts.join(pieces)
        note_beside(parts, (*sorted(names & {"optimizer.bin"}), *others), "an optimizer")
    else:
        for name in ("optimizer.bin", *others):
            take_optimizer(parts, folder, name, reading)
    if SCALER in names:
        take_scaler(parts, folder, SCALER, reading)


def take_schedulers(folder: Path, names: frozenset[str], reading: LayoutReading, processes: int, steps: frozenset[int]) -> Parts:
    """The schedulers of so many processes, beside optimizers that took these steps."""
    parts = Parts()
    for name in ("scheduler.bin", *_others(parts, names, "scheduler")):
        take_scheduler(parts, folder, name, reading, processes, steps)
    return parts


def _micro_batches(file: TorchFile, _: OpenFile) -> int | Whys:
    value = table_of(file.value)
    count = whole_number(value.get("step"))
    named = {"python": "random_state", "numpy": "numpy_random_seed", "cpu": "torch_manual_seed"}
    whys = generators_say({ours: value.get(theirs) for ours, theirs in named.items()})
    if count is None:
        whys = (*whys, "it does not count micro batches: it has no step")
    return Whys(whys) if whys or count is None else count


def take_processes(folder: Path, names: frozenset[str], least: int = 1) -> tuple[Parts, int]:
    """The states of the generators of so many processes at the ``least``, and how many processes there were."""
    parts = Parts()
    ranks = ranks_of(_PROCESS, names)
    if not ranks:
        parts.absent.append("random_states_0.pkl")
        return parts, 1
    counts = take_ranks(parts, folder, "random_states_{}.pkl", ranks, max(least, workers_of(names)), torch_state(_micro_batches))
    if len(set(counts)) > 1:
        parts.whys.append(f"its processes had taken different numbers of micro batches: {', '.join(map(str, sorted(set(counts))))}")
    return parts, parts.workers


def take_position(parts: Parts, folder: Path, names: frozenset[str]) -> Parts:
    """The states of the data loaders, and pickled samplers; where nothing tells the place, the first loader's is what is missing."""
    samplers = sorted(filter(_SAMPLER.fullmatch, names))
    for name in samplers:
        take(parts, folder, name, torch_state(lambda file, _: Whole()))
    if not (samplers or parts.files) or not names.isdisjoint({f"{_POSITION}.bin", f"{_POSITION}_1.bin"}):
        for name in (f"{_POSITION}.bin", *_others(parts, names, _POSITION)):
            take(parts, folder, name, torch_state(_loader_says))
    return parts


def _loader_says(file: TorchFile, _: OpenFile) -> Whole | Whys:
    """A loader counts what it handed out; one that has processes of its own counts since they last told theirs."""
    state = table_of(file.value)
    counts = [state.get("_num_yielded"), state.get("_steps_since_snapshot")]
    return Whole() if any(whole_number(count) is not None for count in counts) else Whys(("it is no state of a data loader",))


FOLDER: Final = Layout("accelerate", NAMES, _recognises, _read)
