"""What a checkpoint layout is, and how the files of one are taken: every layout of the roster is written with this.

Rules kept here:

1. Each file is opened once. What is hashed, parsed and judged is one descriptor, and a file that changed meanwhile gives no digest.
2. A component is whole or it is not read: all its files, and each of them parsed. Everything that speaks against it is named.
3. Every step witness is handed on; which of them is right is not decided here.
4. A checkpoint's name is one of its layout's forms from its first letter to its last; numbers have no leading zeros and order as numbers.
5. A name with folders in it leads through real folders only: no link on the way is followed.
6. What one of many files says is looked up and never searched for among the others: a folder can hold a million.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeVar, final

from countermark.files.digest_cache import hash_whole
from countermark.files.documents import CONFIG_BYTES_MAX, parse_object
from countermark.files.pickles import TorchFile, read_torch_file
from countermark.files.reading import Entry, OpenFile, ShortRead, open_below, read_whole
from countermark.lines.defects import sentence
from countermark.run.checkpoint import (
    COMPONENTS,
    ArtifactFact,
    Component,
    ComponentAbsent,
    ComponentChanging,
    ComponentRead,
    ComponentReading,
    ComponentUnreadable,
    FileReading,
    Publication,
    StepWitness,
    Unobserved,
)
from countermark.values import Sha256, Unreadable
from countermark.weights.refusals import FileAbsent, FileChanged, FileDefect, PickleUnreadable

T = TypeVar("T")

#: What a layout's checkpoint is on the disk, in the words of ``Entry.kind``.
Kind = Literal["a folder", "a regular file"]
#: What is said of a writer that puts file after file into the final place.
IN_PLACE: Final = Unobserved(("its trainer writes in place, file after file",))

#: So many of what is missing are named; more are counted.
NAMED_MAX: Final = 8

_FIELD: Final = re.compile(r"\{(step|epoch|save)\}", re.ASCII)
_DIGITS: Final = "(0|[1-9][0-9]{0,15})"


# ---------------------------------------------------------------------------------------------------------------- layouts


@final
@dataclass(frozen=True, slots=True)
class Numbered:
    """What a checkpoint's name says: the number that orders it among its like, and the optimizer step if that is what it counts."""

    number: int
    step: int | None


@final
@dataclass(frozen=True, slots=True)
class Naming:
    """A form of names: ``checkpoint-{step}``, ``epoch_{epoch}``, ``epoch={epoch}-step={step}.ckpt``. The last field orders; ``{save}``
    counts the times that something was saved, which is neither a step nor an epoch."""

    text: str

    def numbered(self, name: str) -> Numbered | None:
        """What the name says, or None where it is not of this form."""
        form, fields = _form(self.text)
        found = form.fullmatch(name)
        if found is None:
            return None
        numbers = [int(group) for group in found.groups()]
        return Numbered(numbers[-1], dict(zip(fields, numbers, strict=True)).get("step"))


@cache
def _form(text: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    parts = _FIELD.split(text)
    return re.compile(_DIGITS.join(re.escape(part) for part in parts[::2]), re.ASCII), tuple(parts[1::2])


@final
@dataclass(slots=True)
class LayoutReading:
    """What the files of one checkpoint say, component by component.

    ``publication`` is what proves or disproves in this layout that the writer had finished; ``step`` is the optimizer step that the files
    themselves tell for the whole (the name of the checkpoint is asked first). ``scaled`` says that a gradient scaler can have skipped the
    steps by which the optimizer is behind. The rest is as in ``CheckpointReadback``.
    """

    components: dict[Component, ComponentReading] = field(default_factory=dict[Component, ComponentReading])
    publication: Publication = IN_PLACE
    step: int | None = None
    facts: list[ArtifactFact] = field(default_factory=list[ArtifactFact])
    model_shapes: tuple[tuple[int, ...], ...] | None = None
    optimizer_shapes: tuple[tuple[int, ...], ...] = ()
    optimizer_parameters: int | None = None
    micro_batches: int | None = None
    epoch: float | None = None
    scaled: bool = False
    notes: tuple[str, ...] = ()

    def settle(self, found: dict[Component, "Parts"]) -> "LayoutReading":
        """The reading with these components; one that nothing was found of is absent."""
        self.components = {component: found[component].done() if component in found else ComponentAbsent(()) for component in COMPONENTS}
        return self


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which a library puts a checkpoint on a disk.

    ``recognises`` and ``read`` are given the path of the checkpoint and what lies below it: every file and folder, at any depth, under its
    name relative to the path (``global_step8/mp_rank_00_model_states.pt``), in name order; a checkpoint that is one regular file is its own
    one entry.
    Both look at what the entries name and at nothing else.
    """

    name: str
    names: tuple[Naming, ...]
    recognises: Callable[[Path, tuple[Entry, ...]], bool]
    read: Callable[[Path, tuple[Entry, ...]], LayoutReading]
    kind: Kind = "a folder"

    def numbered(self, name: str) -> Numbered | None:
        """What a checkpoint's name says in this layout, or None where it is not one of its names."""
        return next((found for naming in self.names if (found := naming.numbered(name)) is not None), None)


def components_by_word(words: Mapping[Component, tuple[str, ...]]) -> Mapping[str, Component]:
    """The component that each of the words tells under which a library's states are saved."""
    return MappingProxyType({word: component for component, those in words.items() for word in those})


def lying_in(entries: tuple[Entry, ...], below: str) -> tuple[Entry, ...]:
    """Of entries in the order of their names those in one folder, at any depth: ``below`` is its name with a slash, or nothing."""
    if not below:
        return entries
    begin = bisect_left(entries, below, key=lambda entry: entry.name)
    after = f"{below[:-1]}{chr(ord('/') + 1)}"
    return entries[begin : bisect_left(entries, after, begin, key=lambda entry: entry.name)]


def gaps(there: Iterable[int], wanted: range) -> tuple[tuple[int, ...], int]:
    """The first of the wanted numbers that are not there, and how many more of them are not. Nothing is counted up to the last one."""
    held = {number for number in there if number in wanted}
    named = tuple(islice((number for number in wanted if number not in held), NAMED_MAX))
    return named, max(0, wanted.stop - wanted.start) - len(held) - len(named)


# ------------------------------------------------------------------------------------------------------------- components


@final
@dataclass(frozen=True, slots=True)
class Whys:
    """Every reason why a file is not what it must be."""

    texts: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Whole:
    """Nothing is to be said against a file."""


@final
@dataclass(slots=True)
class Parts:
    """One component while its files are read; ``workers`` is how many processes each wrote their part of it."""

    files: list[FileReading] = field(default_factory=list[FileReading])
    steps: list[StepWitness] = field(default_factory=list[StepWitness])
    absent: list[str] = field(default_factory=list[str])
    whys: list[str] = field(default_factory=list[str])
    changing: list[str] = field(default_factory=list[str])
    workers: int = 1

    def done(self) -> ComponentReading:
        """The component as it was read. What is missing or changing beside something unreadable is told with it."""
        if self.whys:
            beside = (*(f"{name} is missing" for name in self.absent), *(f"{name} changed while it was read" for name in self.changing))
            return ComponentUnreadable((*self.whys, *beside))
        if self.absent:
            return ComponentAbsent(tuple(self.absent))
        if self.changing:
            return ComponentChanging(tuple(self.changing))
        if not self.files:
            return ComponentAbsent(())
        return ComponentRead(tuple(sorted(self.files, key=lambda file: file.name)), tuple(self.steps), workers=self.workers)

    def join(self, other: "Parts") -> None:
        """Take what another reading found into this one."""
        self.workers = max(self.workers, other.workers)
        self.files.extend(other.files)
        self.steps.extend(other.steps)
        self.absent.extend(other.absent)
        self.whys.extend(other.whys)
        self.changing.extend(other.changing)

    def defect(self, defect: FileDefect) -> None:
        """Note a file that could not be read."""
        if isinstance(defect, FileAbsent):
            self.absent.append(defect.file)
        elif isinstance(defect, FileChanged):
            self.changing.append(defect.file)
        else:
            self.whys.append(sentence(defect).message)

    def refuse(self, name: str, whys: Whys) -> None:
        """Note why a file is not what it must be."""
        self.whys.extend(why if name in why else f"{name}: {why}" for why in whys.texts)

    def note(self, name: str, found: "Whys | FileDefect") -> None:
        """Note what keeps a file from counting."""
        if isinstance(found, Whys):
            self.refuse(name, found)
        else:
            self.defect(found)


def take(parts: Parts, folder: Path, name: str, parse: Callable[[OpenFile], T | Whys | FileDefect]) -> T | None:
    """One file of a component: hashed and parsed from one descriptor. What keeps it from counting is noted, and None returned."""
    opened = open_below(folder, name)
    if not isinstance(opened, OpenFile):
        parts.defect(opened)
        return None
    with opened:
        try:
            digest = hash_whole(opened)
            parsed = parse(opened) if isinstance(digest, Sha256) else digest
            if opened.changed():
                parsed = FileChanged(name)
        except (OSError, ShortRead) as error:
            parts.defect(opened.judged(error))
            return None
    if isinstance(parsed, Whys | FileDefect):
        parts.note(name, parsed)
        return None
    assert isinstance(digest, Sha256), "a file without a digest was not parsed"
    parts.files.append(FileReading(name, digest, opened.size))
    return parsed


def document(opened: OpenFile, bytes_max: int = CONFIG_BYTES_MAX) -> dict[str, object] | Whys | FileDefect:
    """A parser for ``take``: a JSON document as Python writes it, which is an object. Trainers log losses and norms that are no numbers."""
    content = read_whole(opened, bytes_max)
    if not isinstance(content, bytes):
        return content
    found = parse_object(content, as_python_writes=True)
    return Whys((found.why,)) if isinstance(found, Unreadable) else found


def torch_state(
    judge: Callable[[TorchFile, OpenFile], T | Whys], names: frozenset[str] = frozenset()
) -> Callable[[OpenFile], T | Whys | FileDefect]:
    """A parser for ``take``: a file of ``torch.save``, read without executing it, and then judged. Its pickle may name these globals beside
    those of every file."""

    def parse(opened: OpenFile) -> T | Whys | FileDefect:
        found = read_torch_file(opened, names)
        if isinstance(found, PickleUnreadable):
            return Whys(found.whys)
        return judge(found, opened) if isinstance(found, TorchFile) else found

    return parse
