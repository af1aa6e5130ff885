"""Checkpoints of Orbax: a folder named by its step, in it one folder for each item, and in that the arrays of a tree, or documents.

Rules kept here:

1. Which component a leaf belongs to follows from the name of its item, else from the names that lead to it in the tree. What has no such
   name is of the weights: a module's arrays are saved under names of its own. A schedule of optax is a bare count in the optimizer's state.
2. Each array has a digest of its own, so that a change in the optimizer's arrays moves the digest of that component alone.
3. The steps that the trees tell are read: the trainer's own, and the counts of the optimizer and its schedule. Where an optimizer gathers
   several steps into one, its counts are of other steps and tell nothing.
4. Every document is read strictly; an item that is listed and not there, or still being written, is named.
5. ``Atomic`` is said where the commit was recorded (``commit_success.txt``, or the time of it in the metadata), nothing lies there that is
   younger, and the folder has the name that was committed. Without a record the writer had not finished.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from countermark.files.documents import as_object
from countermark.files.layouts.arrays import Arrays, Leaf, leaves
from countermark.files.layouts.reading import (
    Layout,
    LayoutReading,
    Naming,
    Parts,
    Whole,
    Whys,
    components_by_word,
    document,
    gaps,
    lying_in,
    take,
)
from countermark.files.layouts.states import whole_number
from countermark.files.reading import Entry, read_whole
from countermark.run.checkpoint import Atomic, Component, Incomplete, Publication, StepWitness, Unobserved
from countermark.values import shown

METADATA: Final = "_CHECKPOINT_METADATA"
TREE: Final = "_METADATA"
COMMITTED: Final = "commit_success.txt"
IN_PROGRESS: Final = ".orbax-checkpoint-tmp"

_NAMES: Final = (Naming("{step}"), Naming("step_{step}"))
_OF_PROCESSES: Final = re.compile(r"(.*/)process_(0|[1-9][0-9]{0,5})-of-([1-9][0-9]{0,3})\.json", re.ASCII | re.DOTALL)
_COMMIT: Final = re.compile(r"Checkpoint commit was successful to (.+)", re.DOTALL)
_COMMIT_BYTES_MAX: Final = 64 << 10
#: Kinds of leaves that lie on the disk as arrays.
_ARRAYS: Final = frozenset({"jax.Array", "np.ndarray", "scalar"})
_STEPS: Final = frozenset({"step", "global_step", "train_step"})
#: Where optimizers of optax keep moments, under the names of the arrays that they are of.
_MOMENTS: Final = ("mu", "trace", "nu")
#: Leaves that tell that an optimizer gathers several steps into one.
_GATHERED: Final = frozenset({"mini_step", "gradient_step"})
#: The names that tell which component what lies under them belongs to.
WORDS: Final = components_by_word(
    {
        Component.MODEL_WEIGHTS: ("params", "model", "model_params", "weights", "variables"),
        Component.OPTIMIZER_STATE: ("opt_state", "optimizer", "optimizer_state", "opt"),
        Component.SCHEDULER_STATE: ("lr_scheduler", "scheduler", "lr_schedule", "schedule"),
        Component.RNG_STATE: ("rng", "rngs", "rng_state", "rng_key", "prng_key", "random_state"),
        Component.DATA_POSITION: (
            *("data", "dataset", "data_iterator", "dataset_iterator", "train_iter", "dataloader", "data_position", "epoch"),
            *_STEPS,
        ),
    }
)
#: Names of what holds the states of several components.
_AROUND: Final = frozenset({"state", "train_state", "default", "items"})


@final
@dataclass(slots=True)
class _Folder:
    """A checkpoint while it is read: what lies in it, its components, and the steps that they tell."""

    path: Path
    listed: tuple[Entry, ...]
    entries: Mapping[str, Entry]
    parts: dict[Component, Parts] = field(default_factory=dict[Component, Parts])
    reading: LayoutReading = field(default_factory=LayoutReading)
    whys: list[str] = field(default_factory=list[str])

    def of(self, component: Component) -> Parts:
        return self.parts.setdefault(component, Parts())

    def files(self, below: str) -> list[str]:
        return [entry.name for entry in lying_in(self.listed, below) if entry.kind != "a folder"]

    def document(self, name: str) -> dict[str, object] | None:
        """A document that belongs to no component alone: what is wrong with it speaks against the whole."""
        unread = Parts()
        found = take(unread, self.path, name, document)
        self.whys.extend((*unread.whys, *(f"{one} is not there" for one in unread.absent)))
        return found


def _recognises(path: Path, entries: tuple[Entry, ...]) -> bool:
    return IN_PROGRESS in path.name or any(entry.name == METADATA or entry.name.rpartition("/")[2] == TREE for entry in entries)


def _read(path: Path, entries: tuple[Entry, ...]) -> LayoutReading:
    folder = _Folder(path, entries, {entry.name: entry for entry in entries})
    metadata = folder.document(METADATA) if METADATA in folder.entries else {}
    for item in _items(folder, (metadata or {}).get("item_handlers")):
        _read_item(folder, item)
    folder.reading.publication = _publication(folder, metadata or {})
    return folder.reading.settle(folder.parts)


def _items(folder: _Folder, handlers: object) -> tuple[str, ...]:
    """The items as the folders that they lie in: ``state/``, or nothing where the checkpoint itself is the one."""
    if isinstance(handlers, str) or TREE in folder.entries:
        return ("",)
    lying = {name for name, entry in folder.entries.items() if entry.kind == "a folder" and "/" not in name and IN_PROGRESS not in name}
    for name in sorted({str(name) for name in as_object(handlers) or {}} - lying):
        if name in WORDS:
            folder.of(WORDS[name]).absent.append(name)
        else:
            folder.whys.append(f"item {shown(name)} is listed and not there")
    return tuple(f"{name}/" for name in sorted(lying))


def _read_item(folder: _Folder, item: str) -> None:
    component = WORDS.get(item[:-1])
    found = {component} if component else set[Component]()
    files = folder.files(item)
    trees = {name.removesuffix(TREE) for name in files if name.rpartition("/")[2] == TREE}
    for tree in sorted(trees):
        found |= _read_tree(folder, tree, component)
    if component:
        documents = [name for name in files if trees.isdisjoint(_around(name)) and name.rpartition("/")[2] != COMMITTED]
        for name in documents:
            _read_document(folder, name, component)
        _note_processes(folder.of(component), documents)
    # An item is committed within the checkpoint before that is: what it was a part of then is in its record.
    record = f"{item}{COMMITTED}"
    step = _step(_committed(folder, record)[-2:-1]) if item else None
    for one in sorted(found) if step is not None else ():
        folder.of(one).steps.append(StepWitness(record, step or 0))


def _read_document(folder: _Folder, name: str, component: Component) -> None:
    """A file of an item that is no tree: a document where it is named like one."""
    parts, last = folder.of(component), name.rpartition("/")[2]
    is_document = last == "metadata" or last.endswith(".json")
    said = as_object(take(parts, folder.path, name, document if is_document else lambda opened: Whole())) or {}
    for key in sorted(_STEPS & said.keys()):
        step = whole_number(said[key])
        if step is not None:
            parts.steps.append(StepWitness(f"{name}: {key}", step))


def _note_processes(parts: Parts, documents: list[str]) -> None:
    """Of the documents that processes wrote each for itself, those that are missing."""
    found: dict[tuple[str, int], list[int]] = {}
    for name in documents:
        if of := _OF_PROCESSES.fullmatch(name):
            found.setdefault((of[1], int(of[3])), []).append(int(of[2]))
    for (below, processes), numbers in found.items():
        missing, _ = gaps(numbers, range(processes))
        parts.absent.extend(f"{below}process_{process}-of-{processes}.json" for process in missing)


def _around(name: str) -> set[str]:
    """The names of all folders that a name leads through, with a slash at their ends, and of the checkpoint itself."""
    return {name[: at + 1] for at, letter in enumerate(name) if letter == "/"} | {""}


def _read_tree(folder: _Folder, below: str, of_item: Component | None) -> set[Component]:
    """The arrays of one tree; the components that they belong to are returned."""
    tree = folder.document(f"{below}{TREE}")
    found = tuple(leaves(tree or {}))
    listed = [leaf for leaf in found if leaf.kind in _ARRAYS and leaf.path]
    alone = _alone(listed)
    components = {leaf: of_item or _component_of(leaf, alone) for leaf in listed}
    arrays = Arrays.of(folder.path, below, folder.entries, tree) if tree is not None else Whys(("its tree cannot be read",))
    if any(not leaf.kind for leaf in found):
        folder.whys.append(f"{below}{TREE} lists something of which it does not say what it is")
    if not listed and not of_item:
        folder.whys.append(f"{below}{TREE} lists no array")
    if not isinstance(arrays, Arrays):
        for component in {*components.values(), *([of_item] if of_item else [])}:
            folder.of(component).note(below or TREE, arrays)
        return set(components.values())
    arrays.hash()
    for leaf, component in components.items():
        arrays.take(leaf, folder.of(component))
    _judge(folder, arrays, components)
    return set(components.values())


def _alone(listed: list[Leaf]) -> frozenset[tuple[str, ...]]:
    """The names under which a count is the only leaf."""
    holders = {leaf.path[:-1] for leaf in listed if leaf.path[-1] == "count"}
    sizes = {len(holder) for holder in holders}
    below = Counter(names for leaf in listed for size in sizes if size <= len(leaf.path) and (names := leaf.path[:size]) in holders)
    return frozenset(names for names, leaves_below in below.items() if leaves_below == 1)


def _component_of(leaf: Leaf, alone: frozenset[tuple[str, ...]]) -> Component:
    words = [word for word in leaf.path if word not in _AROUND]
    found = WORDS.get(words[0], Component.MODEL_WEIGHTS) if words else Component.MODEL_WEIGHTS
    bare = leaf.path[-1] == "count" and leaf.path[:-1] in alone
    return Component.SCHEDULER_STATE if bare and found is Component.OPTIMIZER_STATE else found


def _judge(folder: _Folder, arrays: Arrays, components: Mapping[Leaf, Component]) -> None:
    """The steps that a tree tells, and whether its optimizer is one of its weights."""
    gathered = any(leaf.path[-1] in _GATHERED for leaf in components)
    for leaf, component in components.items():
        counts = leaf.path[-1] == "count" and component in {Component.OPTIMIZER_STATE, Component.SCHEDULER_STATE} and not gathered
        if not counts and not (leaf.path[-1] in _STEPS and component is Component.DATA_POSITION):
            continue
        step = whole_number(arrays.number(leaf))
        if step is not None:
            folder.of(component).steps.append(StepWitness(f"{arrays.below}{leaf.name}", step))
            folder.reading.step = step if component is Component.DATA_POSITION or folder.reading.step is None else folder.reading.step
    _judge_shapes(folder.reading, components)


def _judge_shapes(reading: LayoutReading, components: Mapping[Leaf, Component]) -> None:
    kept = [leaf for leaf, component in components.items() if component is Component.OPTIMIZER_STATE]
    for moment in _MOMENTS:
        moments = {leaf.path[leaf.path.index(moment) + 1 :]: leaf.shape for leaf in kept if moment in leaf.path}
        if moments:
            weights = {_own(leaf.path): leaf.shape for leaf, component in components.items() if component is Component.MODEL_WEIGHTS}
            trained = [weights[name] for name in map(_own, moments) if name in weights]
            reading.model_shapes = tuple(sorted(shape for shape in trained if shape is not None)) if weights else None
            reading.optimizer_shapes = tuple(sorted(shape for shape in moments.values() if shape is not None))
            reading.optimizer_parameters = len(moments)
            return


def _own(path: tuple[str, ...]) -> tuple[str, ...]:
    """A leaf's names below those that all weights have in common."""
    at = 0
    while at < len(path) - 1 and (path[at] in _AROUND or path[at] in WORDS):
        at += 1
    return path[at:]


# ------------------------------------------------------------------------------------------------------------ publication


def _publication(folder: _Folder, metadata: Mapping[str, object]) -> Publication:
    name = folder.path.name
    unfinished = sorted({entry for entry in folder.entries if IN_PROGRESS in entry and "/" not in entry.partition(IN_PROGRESS)[2]})
    whys = [*folder.whys, *(f"{shown(one)} is still being written" for one in unfinished)]
    if IN_PROGRESS in name:
        whys.append(f"its name {shown(name)} says that it is still being written")
    committed = _committed(folder, COMMITTED)
    marker = COMMITTED if committed else METADATA if metadata.get("commit_timestamp_nsecs") is not None else None
    if marker is None:
        whys.append("nothing records that its writer had finished")
    if whys or marker is None:
        return Incomplete(tuple(whys))
    last = folder.entries[marker].stamp.mtime_ns
    younger = [one for one in folder.files("") if folder.entries[one].stamp.mtime_ns > last]
    if younger:
        return Unobserved((f"{shown(younger[0])} is younger than the record of its commit, {marker}",))
    if committed and committed[-1] != name:
        return Unobserved((f"it was committed as {shown(committed[-1])} and is called {shown(name)} now",))
    return Atomic(f"its commit is recorded in {marker}, and nothing in it is younger")


def _committed(folder: _Folder, name: str) -> list[str]:
    """The names that lead to where something was committed, as the record of that says; none where there is no record."""
    if name not in folder.entries:
        return []
    content = take(Parts(), folder.path, name, lambda opened: read_whole(opened, _COMMIT_BYTES_MAX))
    found = _COMMIT.fullmatch(content.decode("utf-8", "replace").strip()) if isinstance(content, bytes) else None
    return found[1].split("/") if found else []


def _step(names: list[str]) -> int | None:
    known = [found.step for name in names for naming in _NAMES if (found := naming.numbered(name.partition(IN_PROGRESS)[0]))]
    return known[0] if known else None


FOLDER: Final = Layout("orbax", _NAMES, _recognises, _read)
