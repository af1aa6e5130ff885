"""The checkpoint folder that a Transformers trainer writes: ``checkpoint-N``, of a whole model or of a PEFT adapter.

Rules kept here:

1. ``training_args.bin`` is a pickle of live objects and belongs to no component: it is never parsed.
2. Where several workers trained, each has its own state of the generators, and a name with a rank is there only then: of ranks 0 up to the
   highest that is there, and of two at least, none may be missing. Of ranks above that only pieces of weights tell, where there are any.
3. A folder is the trainer's where a file lies in it that only this trainer writes. One that holds weights and no state of anything, or
   nothing at all, was stopped before that: then it goes by its name.
4. The trainer writes in place, so nothing that it leaves proves that it had finished. Its optimizer is in ``optimizer.pt``, gathered from
   shards in ``optimizer.bin``, or in pieces, and never in two of them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Final, final

from countermark.files.documents import as_list
from countermark.files.layouts.deepspeed_files import is_deepspeeds
from countermark.files.layouts.fsdp import note_beside, take_pieces, workers_of
from countermark.files.layouts.reading import Layout, LayoutReading, Naming, Parts, Whole, Whys, document, take, torch_state
from countermark.files.layouts.states import fact, generators_say, table_of, whole_number
from countermark.files.layouts.torch_files import is_stateless, ranks_of, take_optimizer, take_ranks, take_scaler, take_scheduler
from countermark.files.layouts.weights import is_adapter, take_weights
from countermark.files.pickles import TorchFile
from countermark.files.reading import Entry, OpenFile
from countermark.run.checkpoint import ArtifactFact, Component, StepWitness
from countermark.values import shown
from countermark.weights.refusals import FileDefect

OPTIMIZER: Final = "optimizer.pt"
GATHERED: Final = "optimizer.bin"
SCALER: Final = "scaler.pt"
SCHEDULER: Final = "scheduler.pt"
GENERATORS: Final = "rng_state.pth"
TRAINER_STATE: Final = "trainer_state.json"
ARGUMENTS: Final = "training_args.bin"

#: The trainer keeps every line that it logged in its state: some 200 bytes each.
_STATE_BYTES_MAX: Final = 64 << 20

_NAMES: Final = (Naming("checkpoint-{step}"),)
#: Files that only this trainer writes.
_MARKS: Final = frozenset({OPTIMIZER, SCHEDULER, GENERATORS, TRAINER_STATE, ARGUMENTS})
_OF_A_RANK: Final = re.compile(r"rng_state_(0|[1-9][0-9]*)\.pth", re.ASCII)


def is_the_trainers(path: Path, entries: tuple[Entry, ...]) -> bool:
    """Whether a file lies there that only this trainer writes, or nothing that says otherwise, under a name of its."""
    names = {entry.name for entry in entries}
    if not names.isdisjoint(_MARKS) or any(map(_OF_A_RANK.fullmatch, names)):
        return True
    return is_stateless(entries) and _NAMES[0].numbered(path.name) is not None


def _of_a_model(path: Path, entries: tuple[Entry, ...]) -> bool:
    return not is_deepspeeds(entries) and is_the_trainers(path, entries) and not is_adapter(frozenset(entry.name for entry in entries))


def _of_an_adapter(path: Path, entries: tuple[Entry, ...]) -> bool:
    return not is_deepspeeds(entries) and is_the_trainers(path, entries) and is_adapter(frozenset(entry.name for entry in entries))


def _read(folder: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    names = frozenset(entry.name for entry in entries)
    reading = LayoutReading()
    position = take_trainer_state(folder, reading)
    pieces = take_pieces(folder, entries, reading)
    return reading.settle(
        {
            Component.MODEL_WEIGHTS: pieces.get(Component.MODEL_WEIGHTS) or take_weights(folder, names, reading),
            Component.OPTIMIZER_STATE: _optimizer(folder, names, reading, pieces.get(Component.OPTIMIZER_STATE)),
            Component.SCHEDULER_STATE: _scheduler(folder, reading),
            Component.RNG_STATE: take_generators(folder, names, workers_of(names)),
            Component.DATA_POSITION: position,
        }
    )


def _optimizer(folder: Path, names: frozenset[str], reading: LayoutReading, pieces: Parts | None) -> Parts:
    parts = pieces or Parts()
    if pieces is not None:
        note_beside(parts, sorted(names & {OPTIMIZER, GATHERED}), "an optimizer")
    elif {OPTIMIZER, GATHERED} <= names:
        parts.whys.append(f"{OPTIMIZER} and {GATHERED} are both there: nothing tells which of them goes with the weights")
    else:
        take_optimizer(parts, folder, GATHERED if GATHERED in names else OPTIMIZER, reading)
    if SCALER in names:
        take_scaler(parts, folder, SCALER, reading)
    return parts


def _scheduler(folder: Path, reading: LayoutReading) -> Parts:
    parts = Parts()
    take_scheduler(parts, folder, SCHEDULER, reading)
    return parts


def _generators_whole(file: TorchFile, _: OpenFile) -> Whole | Whys:
    whys = generators_say(file.value)
    return Whys(whys) if whys else Whole()


def take_generators(folder: Path, names: frozenset[str], workers: int = 1) -> Parts:
    """The states of the generators of so many workers, or of more where more left theirs."""
    parts = Parts()
    ranks = ranks_of(_OF_A_RANK, names)
    if not ranks and workers > 1:
        parts.absent.append("rng_state_0.pth")
        return parts
    if not ranks:
        take(parts, folder, GENERATORS, torch_state(_generators_whole))
        return parts
    if GENERATORS in names:
        parts.whys.append(f"{GENERATORS} is the state of one worker, and beside it are those of several")
    take_ranks(parts, folder, "rng_state_{}.pth", ranks, max(2, workers), torch_state(_generators_whole))
    return parts


def take_trainer_state(folder: Path, reading: LayoutReading) -> Parts:
    """The trainer's own state, which tells where it is in the data."""
    parts = Parts()
    says = take(parts, folder, TRAINER_STATE, _says)
    if says is not None:
        parts.steps.append(StepWitness(f"{TRAINER_STATE}: global_step", says.step))
        reading.facts.extend(says.facts)
        reading.epoch, reading.step, reading.notes = says.epoch, says.step, (*reading.notes, *says.notes)
    return parts


def _says(opened: OpenFile) -> "TrainerSays | Whys | FileDefect":
    found = document(opened, _STATE_BYTES_MAX)
    return trainer_says(found) if isinstance(found, dict) else found


@final
@dataclass(frozen=True, slots=True)
class TrainerSays:
    """The trainer's step and epoch, what its state shows, and notes that speak against nothing."""

    step: int
    epoch: float | None
    facts: tuple[ArtifactFact, ...]
    notes: tuple[str, ...]


def trainer_says(state: Mapping[str, object]) -> TrainerSays | Whys:
    """What ``trainer_state.json`` says."""
    step = whole_number(state.get("global_step"))
    epoch = _number(state.get("epoch"))
    whys = [] if step is not None else ["it has no global_step"]
    if epoch is None and state.get("epoch") is not None:
        whys.append("its epoch is no number")
    logged = [entry for one in as_list(state.get("log_history")) or [] if (entry := whole_number(table_of(one).get("step"))) is not None]
    if step is not None and logged and max(logged) > step:
        whys.append(f"its log goes on to step {max(logged)}, after its global_step of {step}")
    if whys or step is None:
        return Whys(tuple(whys))
    facts: list[ArtifactFact] = []
    if state.get("train_batch_size") is not None:
        facts.append(fact("micro_batch", state["train_batch_size"], "trainer_state.json: train_batch_size"))
    if state.get("max_steps") is not None:
        facts.append(fact("total_steps", state["max_steps"], "trainer_state.json: max_steps"))
    return TrainerSays(step, epoch, tuple(facts), tuple(_notes(state)))


def _number(raw: object) -> float | None:
    """A finite number of any kind, or None."""
    try:
        number = float(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) else nan
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _notes(state: Mapping[str, object]) -> Iterable[str]:
    best = state.get("best_model_checkpoint")
    if isinstance(best, str) and best and not _exists(best):
        yield f"trainer_state.json names {shown(best)} as the best checkpoint, which is not there; a trainer may stop at the end for that"


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


MODEL: Final = Layout("transformers", _NAMES, _of_a_model, _read)
ADAPTER: Final = Layout("transformers-peft", _NAMES, _of_an_adapter, _read)
