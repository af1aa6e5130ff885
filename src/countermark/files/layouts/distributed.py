"""Checkpoints that are one folder of a torch distributed checkpoint: torchtitan's ``step-N``, and any other.

Rules kept here:

1. What is saved under which name is the trainer's choice; the states are judged by what they say, nested or flattened.
2. An optimizer's tensors carry the names of the weights that they step: each must be one of the weights, of the same shape.
3. torchtitan saves no states of random generators: what it writes can be gone on from, and not as if it had not stopped.
4. Every worker that the data loader counts has its place in the data, and every worker that wrote data has its random generators.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from countermark.files.documents import as_list
from countermark.files.layouts.dcp import DcpReading, read_dcp
from countermark.files.layouts.dcp_metadata import DATA_SUFFIX
from countermark.files.layouts.reading import Layout, LayoutReading, Naming, Whys, gaps
from countermark.files.layouts.states import OptimizerSays, generators_say, optimizer_says, scheduler_says, table_of, whole_number
from countermark.files.layouts.torch_files import ranks_of
from countermark.files.pickles import TensorStub
from countermark.files.reading import Entry
from countermark.run.checkpoint import Component, StepWitness

_STEPS: Final = ("step", "global_step")
_RANK: Final = re.compile(r"(?:[a-z_]*rank_?)?([0-9]{1,6})", re.ASCII)
_LOADER: Final = re.compile(r"dp_rank_(0|[1-9][0-9]{0,6})", re.ASCII)
_TITANS: Final = Naming("step-{step}")
#: What Lightning puts beside the shards of its weights and optimizers.
LIGHTNINGS: Final = "meta.pt"
_OF_LIGHTNING: Final = (
    f"{LIGHTNINGS} holds what Lightning keeps beside its shards, its schedulers and its place in the data, and is not read: that is told "
    "as missing, so that nothing goes on from here unless Lightning gathers it into one file"
)
#: Names of the generators' states in use → the trainer's own.
_GENERATORS: Final = {
    "python": "python", "random": "python", "random_state": "python",
    "numpy": "numpy", "numpy_random_seed": "numpy", "np": "numpy",
    "cpu": "cpu", "torch": "cpu", "torch_manual_seed": "cpu", "torch_rng_state": "cpu",
}  # fmt: skip


def is_dcp(entries: tuple[Entry, ...]) -> bool:
    """Whether data of a distributed checkpoint lies directly in the folder."""
    return any(entry.name.endswith(DATA_SUFFIX) and "/" not in entry.name for entry in entries)


def _read(folder: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    found = read_dcp(folder, entries)
    reading = LayoutReading(publication=found.publication)
    judge_optimizer(found, reading)
    judge_scheduler(found, reading)
    _judge_generators(found)
    _judge_position(found, reading)
    reading.notes = tuple(_OF_LIGHTNING for entry in entries if entry.name == LIGHTNINGS)
    return reading.settle(found.parts)


def judge_optimizer(found: DcpReading, reading: LayoutReading) -> None:
    """What the optimizer's state says, or why it is none."""
    table = found.whole(Component.OPTIMIZER_STATE)
    parts = found.parts.get(Component.OPTIMIZER_STATE)
    if table is None or parts is None:
        return
    said: list[OptimizerSays] = []
    for word, state in _states(table, "param_groups"):
        whole = _unflattened(state)
        says = optimizer_says(whole, lambda _: None, word)
        if isinstance(says, Whys):
            parts.refuse(word, says)
            continue
        said.append(says)
        parts.steps.extend(StepWitness(f"{word}: step", step) for step in says.steps)
        reading.facts.extend(says.facts)
        names = [name for group in whole["param_groups"] for name in as_list(table_of(group).get("params")) or [] if isinstance(name, str)]
        if found.tensors and names:
            reading.model_shapes = tuple(
                sorted((*(reading.model_shapes or ()), *(found.tensors[one].shape for one in names if one in found.tensors)))
            )
    reading.optimizer_parameters = sum(says.parameters for says in said) if said else None
    reading.optimizer_shapes = tuple(sorted(shape for says in said for shape in says.shapes))


def _states(table: Mapping[object, object], known_by: str) -> Iterator[tuple[str, Mapping[object, object]]]:
    """The states in a component's table by name: one, or several under numbers or names of their own."""
    for word, value in table.items():
        state = _table(value)
        inner = [(f"{word}.{key}", _table(one)) for key, one in state.items()]
        if any(known_by in one for _, one in inner) and known_by not in state:
            yield from inner
        else:
            yield str(word), state


def _unflattened(state: Mapping[object, object]) -> dict[str, Any]:
    """An optimizer's state as it is before names are flattened. Nothing in it is copied: what is saved as one value can name one table for
    many."""
    kept: dict[object, object] = {}
    flat: dict[object, dict[object, object]] = {}
    groups: dict[object, dict[object, object]] = {}
    listed: list[object] = []
    for key, value in state.items():
        if key == "state":
            kept.update(_table(value))
        elif key == "param_groups":
            listed = as_list(value) or [_whole_group(group) for group in _table(value).values()]
        elif isinstance(key, str) and "." in key:
            head, _, rest = key.partition(".")
            name, _, leaf = rest.rpartition(".")
            if head == "state" and name:
                flat.setdefault(name, {})[leaf] = value
            elif head == "param_groups" and name:
                groups.setdefault(name, {"params": [name]})[leaf] = value
    listed = [*listed, *groups.values()]
    if len(listed) == 1 and "params" not in _table(listed[0]):
        listed = [{**_table(listed[0]), "params": list(kept)}]
    return {"state": kept | flat, "param_groups": listed}


def _whole_group(group: object) -> Mapping[object, object]:
    """A group of an optimizer; its list of tensors is saved item by item where one of these is a table or a tensor."""
    table = _table(group)
    params = table.get("params")
    items = _table(params)
    return {**table, "params": list(items.values())} if items else table


def judge_scheduler(found: DcpReading, reading: LayoutReading) -> None:
    """What the scheduler's state says, or why it is none."""
    table = found.whole(Component.SCHEDULER_STATE)
    parts = found.parts.get(Component.SCHEDULER_STATE)
    if table is None or parts is None:
        return
    for word, state in _states(table, "last_epoch"):
        says = scheduler_says(state, word)
        if isinstance(says, Whys):
            parts.refuse(word, says)
            continue
        reading.facts.extend(says.facts)
        if not says.by_metric:
            parts.steps.append(StepWitness(f"{word}: last_epoch", says.step))


def _judge_generators(found: DcpReading) -> None:
    """One worker has its generators under any name; each of several has its own under a name with its rank."""
    table = found.whole(Component.RNG_STATE)
    if table is None:
        return
    whys = found.parts[Component.RNG_STATE].whys
    if found.workers == 1:
        whys.extend(_generators_whys(table))
        return
    ranked = {
        int(rank[1]): _table(state)
        for states in table.values()
        for name, state in _table(states).items()
        if (rank := _RANK.fullmatch(str(name))) is not None
    }
    for worker, state in sorted(ranked.items()):
        whys.extend(f"worker {worker}: {why}" for why in _generators_whys({"": state}))
    missing, more = gaps(ranked, range(found.workers))
    whys.extend(f"the states of the generators of worker {worker} of {found.workers} are not in it" for worker in missing)
    if more:
        whys.append(f"the states of the generators of {more} more of {found.workers} workers are not in it")
    found.parts[Component.RNG_STATE].workers = found.workers


def _generators_whys(table: Mapping[object, object]) -> tuple[str, ...]:
    states: dict[str, object] = {}
    for word, value in table.items():
        named = {str(word): value, **{str(name): state for name, state in _table(value).items()}}
        states.update({_GENERATORS[name]: state for name, state in named.items() if name in _GENERATORS})
        if isinstance(value, TensorStub):
            states["cpu"] = value
    return generators_say(states)


def _judge_position(found: DcpReading, reading: LayoutReading) -> None:
    table = found.whole(Component.DATA_POSITION)
    parts = found.parts.get(Component.DATA_POSITION)
    if table is None or parts is None:
        return
    for word, value in table.items():
        for source, raw in ((word, value), *((f"{word}.{name}", one) for name, one in _table(value).items())):
            step = whole_number(raw) if str(source).rpartition(".")[2] in _STEPS else None
            if step is not None:
                parts.steps.append(StepWitness(str(source), step))
                reading.step = step
    loader = table_of(table.get("dataloader"))
    parts.workers = whole_number(loader.get("world_size")) or 1
    missing, more = gaps(ranks_of(_LOADER, map(str, loader)), range(parts.workers if "world_size" in loader else 0))
    parts.whys.extend(f"the data position of worker {rank} of {parts.workers} is not in it" for rank in missing)
    if more:
        parts.whys.append(f"the data positions of {more} more of {parts.workers} workers are not in it")


def _table(value: object) -> Mapping[object, object]:
    return cast(Mapping[object, object], value) if isinstance(value, dict) else {}


TORCHTITAN: Final = Layout(
    "torchtitan", (_TITANS,), lambda path, entries: is_dcp(entries) and _TITANS.numbered(path.name) is not None, _read
)
ANY: Final = Layout(
    "torch-dcp",
    (Naming("checkpoint-{step}"), Naming("step_{step}"), Naming("global_step{step}")),
    lambda path, entries: is_dcp(entries) and _TITANS.numbered(path.name) is None,
    _read,
)
