"""What DeepSpeed writes with ZeRO: alone, or within the checkpoint of a Transformers trainer.

Rules kept here:

1. How many workers there were is what the states tell; all of them agree. Each worker's file is there, or the ones missing are named.
2. A file with the model's states is of several components: the scheduler, the place in the data, and, where a script keeps them there, the
   random generators have portions of it, each with a digest of its own. All the rest goes with the weights.
3. The step is ``global_steps``. Neither the optimizer nor the scheduler takes one where the gradients overflowed, so ``skipped_steps`` are
   added to theirs.
4. Where each worker has a file with the model's states of its own, that holds none of the weights: they are in the worker's file with the
   optimizer's states, which then has a portion for each of the two.
5. Moments are flat pieces of all tensors together: that they are of the weights beside them cannot be told from their shapes.
6. Objects of DeepSpeed's classes stay inert: they are known by name, and nothing of it is imported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.documents import as_list
from countermark.files.layouts.accelerate import is_accelerates
from countermark.files.layouts.deepspeed_files import (
    TAG,
    WORKERS_MAX,
    Missing,
    Tag,
    find_tag,
    is_deepspeeds,
    model_files,
    optimizer_files,
)
from countermark.files.layouts.portions import OpenValues, take_values
from countermark.files.layouts.reading import Layout, LayoutReading, Naming, Parts, Whys, take, torch_state
from countermark.files.layouts.states import fact, generators_say, optimizer_says, scheduler_says, table_of, whole_number
from countermark.files.layouts.torch_files import take_scheduler
from countermark.files.layouts.transformers import SCHEDULER, is_the_trainers, take_generators, take_trainer_state
from countermark.files.layouts.weights import CARRIERS, is_adapter, take_weights
from countermark.files.pickles import TorchFile, scalar
from countermark.files.reading import Entry, OpenFile
from countermark.run.checkpoint import COMPONENTS, ArtifactFact, Component, Incomplete, StepWitness

_NAMES: Final = (Naming("checkpoint-{step}"),)
#: What states of DeepSpeed name beside what those of every library do.
GLOBALS: Final = frozenset(
    {
        "torch Size",
        "torch device",
        *(f"torch {dtype}" for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")),
        "deepspeed.runtime.fp16.loss_scaler LossScaler",
        "deepspeed.runtime.fp16.loss_scaler DynamicLossScaler",
        "deepspeed.runtime.zero.config ZeroStageEnum",
        "deepspeed.utils.tensor_fragment fragment_address",
        "argparse Namespace",
    }
)
#: Each worker's piece of weights that are divided among all of them.
_DIVIDED: Final = "fp32_flat_groups"
#: Values of the model's file that tell the place in the data.
_POSITION: Final = ("global_samples", "data_sampler")
#: Names under which Megatron's scripts keep the states of the generators there → the trainer's own.
_GENERATORS: Final = {"random_rng_state": "python", "np_rng_state": "numpy", "torch_rng_state": "cpu"}
#: A pickle names one list again and again: what a state lists is counted before it is written out.
_ENTRIES_MAX: Final = 1_000_000
_KEPT: Final = (*_GENERATORS, "cuda_rng_state", "rng_tracker_states")


@final
@dataclass(frozen=True, slots=True)
class _ModelSays:
    """The workers, steps, and settings that a file with the model's states tells."""

    data: int
    model: int
    step: int
    skipped: int
    facts: tuple[ArtifactFact, ...]


@final
@dataclass(slots=True)
class TagReading:
    """A tag while it is read."""

    folder: Path
    names: frozenset[str]
    reading: LayoutReading
    parts: dict[Component, Parts]
    says: list[_ModelSays]
    tag: str = ""

    @property
    def workers(self) -> int:
        """How many workers the states tell of."""
        return max((says.data * says.model for says in self.says), default=1)

    @property
    def skipped(self) -> int:
        """The steps that were taken by neither the optimizer nor the scheduler."""
        return max((says.skipped for says in self.says), default=0)


def _read(folder: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    """A folder of DeepSpeed alone."""
    read = read_tag(folder, entries)
    return read.reading.settle(read.parts)


def _read_trainers(folder: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    """A folder of the Transformers trainer: its own files beside DeepSpeed's."""
    read = read_tag(folder, entries)
    names, reading = read.names, read.reading
    if is_adapter(names) or not names.isdisjoint(CARRIERS):
        read.parts[Component.MODEL_WEIGHTS].join(take_weights(folder, names, reading))
        reading.model_shapes = None
    if SCHEDULER in names:
        scheduler = Parts()
        take_scheduler(scheduler, folder, SCHEDULER, reading)
        scheduler.steps = [with_skipped(told.source, told.step, read.skipped) for told in scheduler.steps]
        read.parts[Component.SCHEDULER_STATE].join(scheduler)
    read.parts[Component.RNG_STATE] = take_generators(folder, names, read.workers)
    step = reading.step
    position = take_trainer_state(folder, reading)
    reading.step = step if step is not None else reading.step
    position.join(read.parts[Component.DATA_POSITION])
    read.parts[Component.DATA_POSITION] = position
    return reading.settle(read.parts)


def read_tag(folder: Path, entries: tuple[Entry, ...]) -> TagReading:
    names = frozenset(entry.name for entry in entries)
    tag = find_tag(folder, entries)
    read = TagReading(folder, names, LayoutReading(), {component: Parts() for component in COMPONENTS}, [])
    if not isinstance(tag, Tag):
        read.reading.publication = Incomplete((tag,))
        for component in (Component.MODEL_WEIGHTS, Component.OPTIMIZER_STATE):
            read.parts[component].whys.append(tag)
        return read
    read.reading.publication, read.tag = tag.publication, tag.below.removesuffix("/")
    ranks = model_files(tag.below, names)
    for name in ranks.found.values():
        _take_model(read, name)
    workers = _workers(read)
    if workers is not None:
        _note(read, Component.MODEL_WEIGHTS, "files of model states", ranks.missing(*workers))
    elif not ranks.found:
        read.parts[Component.MODEL_WEIGHTS].absent.append(ranks.form.format(data=0, model=0))
    _take_optimizers(read, tag, workers, divided=ranks.divided)
    named = TAG.numbered(read.tag)
    if named is not None:
        read.parts[Component.MODEL_WEIGHTS].steps.append(StepWitness(f"{read.tag}: its name", named.number))
    return read


def _note(read: TagReading, component: Component, what: str, missing: Missing) -> None:
    """What is missing of a component's files, and what is there that is of none of the workers."""
    parts = read.parts[component]
    parts.absent.extend(missing.names)
    parts.whys.extend(f"{name} is of no worker of this save" for name in missing.beyond)
    found = missing.say(f"{component}: {what}")
    if found is not None:
        before = read.reading.publication
        read.reading.publication = Incomplete((*(before.whys if isinstance(before, Incomplete) else ()), *found.whys))


def _workers(read: TagReading) -> tuple[int, int] | None:
    """How many workers divided the data, and how many the model; None where no state tells, or they disagree."""
    told = {(says.data, says.model) for says in read.says}
    if len(told) > 1:
        counts = ", ".join(f"{data} x {model}" for data, model in sorted(told))
        read.parts[Component.MODEL_WEIGHTS].whys.append(f"its files tell different numbers of workers: {counts}")
    return told.pop() if len(told) == 1 else None


# ------------------------------------------------------------------------------------------------------------------ model


def _take_model(read: TagReading, name: str) -> None:
    """A file with the model's states, whose portions go to their components."""

    def judge(values: OpenValues) -> _ModelSays | Whys:
        says = _model_says(values.values)
        if not isinstance(says, Whys):
            _portion(read, name, values, says)
        return says

    says = take_values(read.folder, name, judge, GLOBALS)
    weights = read.parts[Component.MODEL_WEIGHTS]
    if not isinstance(says, _ModelSays):
        weights.note(name, says)
        return
    read.says.append(says)
    weights.steps.append(StepWitness(f"{name}: global_steps", says.step))
    read.reading.step = says.step if read.reading.step is None else read.reading.step
    read.reading.facts.extend(says.facts)


def _model_says(values: Mapping[str, object]) -> _ModelSays | Whys:
    counts = {key: whole_number(values.get(key)) for key in ("dp_world_size", "mp_world_size", "global_steps")}
    whys = [f"it tells no {key}" for key, count in counts.items() if count is None]
    data, model, step = (count or 0 for count in counts.values())
    if not whys and not 0 < data * model <= WORKERS_MAX:
        whys.append(f"it tells of {data} x {model} workers")
    if values.get("optimizer") is not None:
        whys.append("it holds a whole optimizer, which is not one of ZeRO")
    if not isinstance(values.get("module"), dict):
        whys.append("it holds no module: the layers of a pipeline lie in files of their own, which are not read")
    if values.get("num_experts"):
        whys.append("it is of a mixture of experts, which lie in files of their own that are not read")
    skipped = whole_number(values.get("skipped_steps")) or 0
    return Whys(tuple(whys)) if whys else _ModelSays(data, model, step, skipped, tuple(_settings(table_of(values.get("ds_config")))))


def _settings(config: Mapping[str, object]) -> Iterable[ArtifactFact]:
    """What DeepSpeed's settings show; ``auto`` was replaced by whoever began the training, or shows nothing."""
    named = {
        "train_micro_batch_size_per_gpu": "micro_batch",
        "gradient_accumulation_steps": "gradient_accumulation",
        "gradient_clipping": "max_grad_norm",
    }
    for key, leaf in named.items():
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield fact(leaf, value, f"ds_config: {key}")


def _portion(read: TagReading, name: str, values: OpenValues, says: _ModelSays) -> None:
    """Each component's portion of the file, and what it says."""
    parts, state = read.parts, values.values
    scheduler = table_of(state.get("lr_scheduler"))
    if scheduler:
        values.put(parts[Component.SCHEDULER_STATE], "lr_scheduler", f"{name}: lr_scheduler")
        _judge_scheduler(read, scheduler, f"{name}: lr_scheduler", says.skipped)
    for key in _POSITION:
        if state.get(key) is not None:
            values.put(parts[Component.DATA_POSITION], key, f"{name}: {key}")
    samples = whole_number(state.get("global_samples"))
    batch = whole_number(table_of(state.get("ds_config")).get("train_batch_size"))
    if samples is not None and batch:
        parts[Component.DATA_POSITION].steps.append(StepWitness(f"{name}: global_samples", samples // batch))
    kept = [key for key in _KEPT if key in state]
    for key in kept:
        values.put(parts[Component.RNG_STATE], key, f"{name}: {key}")
    if kept:
        whys = generators_say({ours: state.get(theirs) for theirs, ours in _GENERATORS.items()})
        parts[Component.RNG_STATE].whys.extend(f"{name}: {why}" for why in whys)
        parts[Component.RNG_STATE].workers = says.data * says.model
    rest = {key: value for key, value in state.items() if key not in (*_POSITION, *_KEPT, "lr_scheduler")}
    values.put_value(parts[Component.MODEL_WEIGHTS], rest, f"{name}: model_weights")


def _judge_scheduler(read: TagReading, scheduler: Mapping[str, object], source: str, skipped: int) -> None:
    """A scheduler of torch, or one of DeepSpeed's own, which counts from 0."""
    parts = read.parts[Component.SCHEDULER_STATE]
    own = whole_number(scheduler.get("last_batch_iteration"))
    if own is not None:
        parts.steps.append(with_skipped(f"{source}: last_batch_iteration", own + 1, skipped))
        return
    says = scheduler_says(scheduler, "lr_scheduler")
    if isinstance(says, Whys):
        parts.refuse(source, says)
        return
    read.reading.facts.extend(says.facts)
    if not says.by_metric:
        parts.steps.append(with_skipped(f"{source}: last_epoch", says.step, skipped))


def with_skipped(source: str, step: int, skipped: int) -> StepWitness:
    """The step of what takes none where the gradients overflow."""
    return StepWitness(f"{source} + skipped_steps" if skipped else source, step + skipped)


# -------------------------------------------------------------------------------------------------------------- optimizer


@final
@dataclass(frozen=True, slots=True)
class _OptimizerSays:
    """Over how many workers it was divided, the steps of its tensors, and what its groups show."""

    workers: tuple[int, ...]
    steps: tuple[int, ...]
    facts: tuple[ArtifactFact, ...]


def _take_optimizers(read: TagReading, tag: Tag, workers: tuple[int, int] | None, *, divided: bool) -> None:
    """Each worker's piece of the optimizer's state, and where the weights are ``divided``, of these."""
    ranks = optimizer_files(tag.below, read.names)
    parts = read.parts[Component.OPTIMIZER_STATE]
    told: dict[int, str] = {}
    counts: set[int] = set()
    for name in ranks.found.values():
        says = _take_divided(read, name) if divided else take(parts, read.folder, name, torch_state(_optimizer_says, GLOBALS))
        if says is not None:
            counts.update(says.workers)
            read.reading.facts.extend(says.facts)
            told.update({step: name for step in says.steps if step not in told})
    parts.steps.extend(with_skipped(f"{name}: step", step, read.skipped) for step, name in sorted(told.items()))
    if workers is None and len(counts) == 1:
        workers = counts.pop(), max((rank for _, rank in ranks.found), default=0) + 1
    if workers is None:
        parts.absent.extend(() if ranks.found else (ranks.form.format(data=0, model=0),))
        return
    missing = ranks.missing(*workers)
    _note(read, Component.OPTIMIZER_STATE, "workers' states", missing)
    read.parts[Component.MODEL_WEIGHTS].absent.extend(missing.names if divided else ())
    if others := sorted(counts - {workers[0]}):
        parts.whys.append(f"it was divided over {others[0]} workers, and the model's states tell of {workers[0]}")
    parts.workers = workers[0] * workers[1]


def _take_divided(read: TagReading, name: str) -> _OptimizerSays | None:
    """A worker's file that holds its piece of the weights beside that of the optimizer's state."""
    both = (Component.MODEL_WEIGHTS, Component.OPTIMIZER_STATE)

    def judge(values: OpenValues) -> _OptimizerSays | Whys:
        says = _optimizer_says(values.file, values.opened)
        state = table_of(values.values.get("optimizer_state_dict"))
        if isinstance(says, Whys) or _DIVIDED not in state:
            return says if isinstance(says, Whys) else Whys((f"it holds no {_DIVIDED}, a piece of the weights",))
        rest = {**values.values, "optimizer_state_dict": {key: value for key, value in state.items() if key != _DIVIDED}}
        for component, held in zip(both, (state[_DIVIDED], rest), strict=True):
            values.put_value(read.parts[component], held, f"{name}: {component}")
        return says

    says = take_values(read.folder, name, judge, GLOBALS)
    if isinstance(says, _OptimizerSays):
        return says
    for component in both:
        read.parts[component].note(name, says)
    return None


def _optimizer_says(file: TorchFile, opened: OpenFile) -> _OptimizerSays | Whys:
    state = table_of(table_of(file.value).get("optimizer_state_dict"))
    base = state.get("base_optimizer_state", state.get("optimizer_state_dict"))
    if base is None:
        return Whys(("it is no state of a ZeRO optimizer",))
    count = state.get("partition_count")
    counts = tuple(whole_number(one) for one in (as_list(count) or [count]) if one is not None)
    if any(one is None or not 0 < one <= WORKERS_MAX for one in counts):
        return Whys(("its partition_count is no number of workers",))
    groups = as_list(base)
    if groups is not None and sum(len(as_list(group) or [group]) for group in groups) > _ENTRIES_MAX:
        return Whys(("its groups list more than any optimizer steps",))
    whole = table_of(base) if groups is None else _of_groups(groups, state.get("base_optimizer_state_step"))
    says = optimizer_says(whole, lambda at: scalar(opened, file, at), "optim_states.pt")
    if isinstance(says, Whys):
        return says
    return _OptimizerSays(tuple(dict.fromkeys(one for one in counts if one)), says.steps, says.facts)


def _of_groups(groups: list[object], step: object) -> Mapping[str, object]:
    """An elastic state, which is a list of moments by group, as the state that any other optimizer has."""
    entries = [entry for group in groups for entry in as_list(group) or [group]]
    settings: dict[str, object] = {"params": list(range(len(entries)))}
    return {"state": dict(enumerate(entries)), "param_groups": [settings | ({} if step is None else {"step": step})]}


ALONE: Final = Layout(
    "deepspeed",
    (TAG,),
    lambda path, entries: is_deepspeeds(entries) and not _is_trainers(path, entries) and not is_accelerates(entries),
    _read,
)
TRAINERS: Final = Layout(
    "transformers-deepspeed", _NAMES, lambda path, entries: is_deepspeeds(entries) and _is_trainers(path, entries), _read_trainers
)


def _is_trainers(path: Path, entries: tuple[Entry, ...]) -> bool:
    named = any(naming.numbered(path.name) for naming in _NAMES)
    return is_the_trainers(path, entries) or (named and not is_accelerates(entries))
