"""Which files DeepSpeed writes: a folder for each tag, in it the states of the workers by rank, and ``latest``, which names a tag.

Rules kept here:

1. ``latest`` is text that somebody wrote: it names a folder beside it, or it is refused. Without it a single tag is read and nothing shows
   that its writer had finished; of several nothing tells which it is.
2. Which ranks there must be follows from the number of workers that the files tell, and every one that is missing is named or counted.
3. Files of ranks beyond that are of another save, by more workers.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, final

from countermark.files.layouts.reading import Naming
from countermark.files.reading import Entry, is_plain_name, read_small
from countermark.lines.defects import sentence
from countermark.run.checkpoint import Incomplete, Publication, Unobserved
from countermark.values import shown

LATEST: Final = "latest"
TAG: Final = Naming("global_step{step}")
#: So many files that are missing are named; more are counted.
NAMED_MAX: Final = 8
#: More workers than any cluster has: a number out of a file that says so is not counted up to.
WORKERS_MAX: Final = 10_000_000

_MODEL: Final = re.compile(r"(?:zero_pp_rank_(?P<data>[0-9]{1,7})_)?mp_rank_(?P<model>[0-9]{2,7})_model_states\.pt", re.ASCII)
_OPTIMIZER: Final = re.compile(
    r"(?P<prefix>(?:bf16_|fp16_)?)zero_pp_rank_(?P<data>[0-9]{1,7})_mp_rank_(?P<model>[0-9]{2,7})_optim_states\.pt", re.ASCII
)
_EITHER: Final = re.compile(rf"(?:[^/]+/)?(?:{_MODEL.pattern.replace('?P<data>', '').replace('?P<model>', '')}|[^/]+_optim_states\.pt)")


@final
@dataclass(frozen=True, slots=True)
class Tag:
    """Where the states of one tag lie: in the folder itself (``below`` empty) or in one in it, and what that shows of its publication."""

    below: str
    publication: Publication


def is_deepspeeds(entries: tuple[Entry, ...]) -> bool:
    """Whether states as DeepSpeed writes them lie in the folder, or in a folder in it, or ``latest`` names such a one."""
    named = any(entry.name == LATEST and entry.kind == "a regular file" for entry in entries)
    tagged = any(entry.kind == "a folder" and TAG.numbered(entry.name) is not None for entry in entries)
    return (named and tagged) or any(_EITHER.fullmatch(entry.name) for entry in entries)


def tags_of(names: Iterable[str]) -> list[str]:
    """The folders in which states lie, among files of these names."""
    return sorted({name.rpartition("/")[0] for name in names if "/" in name and _EITHER.fullmatch(name)})


def find_tag(folder: Path, entries: tuple[Entry, ...]) -> Tag | str:
    """The tag that is to be read, or why none can be told."""
    names = {entry.name for entry in entries}
    if any("/" not in name and _EITHER.fullmatch(name) for name in names):
        return Tag("", Unobserved(("it is one tag of a DeepSpeed folder, whose ranks write in place, each for itself",)))
    if LATEST not in names:
        tags = tags_of(names)
        if len(tags) != 1:
            return f"{LATEST} is not there, and nothing else tells which of {', '.join(map(shown, tags[:NAMED_MAX]))} it is"
        return Tag(f"{tags[0]}/", Unobserved((f"{LATEST} is not there, which DeepSpeed writes last and without which it loads nothing",)))
    content = read_small(folder, LATEST, 256)
    if not isinstance(content, bytes):
        return sentence(content).message
    tag = content.decode("utf-8", "backslashreplace").strip()
    if not is_plain_name(tag):
        return f"{LATEST} names {shown(tag)}, which is no folder in this one"
    if tag not in names:
        return f"{LATEST} names {shown(tag)}, which is not there"
    why = f"{LATEST} names {shown(tag)}, and DeepSpeed's ranks write in place, each for itself"
    return Tag(f"{tag}/", Unobserved((why,)))


@final
@dataclass(frozen=True, slots=True)
class Ranks:
    """The files of one kind by their ranks (data, model), and the form of a name: which of the numbers stand in it."""

    form: str
    found: dict[tuple[int, int], str]
    others: tuple[str, ...] = ()

    @property
    def divided(self) -> bool:
        """Whether each worker that divides the data has a file of its own."""
        return "{data}" in self.form

    def missing(self, data: int, model: int) -> "Missing":
        """What is missing of so many workers, and what is there beyond them."""
        rows = data if self.divided else 1
        held = {rank for rank in self.found if rank[0] < rows and rank[1] < model}
        every = ((row, column) for row in range(rows) for column in range(model))
        absent = (self.form.format(data=row, model=column) for row, column in every if (row, column) not in held)
        beyond = tuple(name for rank, name in sorted(self.found.items()) if rank not in held)
        return Missing(tuple(islice(absent, NAMED_MAX)), len(held), rows * model, (*beyond, *self.others))


@final
@dataclass(frozen=True, slots=True)
class Missing:
    """Names of files that are missing, how many of how many are there, and names of files that belong to no worker."""

    names: tuple[str, ...]
    there: int
    of: int
    beyond: tuple[str, ...]

    def say(self, what: str) -> Incomplete | None:
        """That something is missing, as a reason why the whole is incomplete."""
        if self.there == self.of:
            return None
        more = f" and {self.of - self.there - len(self.names)} more" if self.of - self.there > len(self.names) else ""
        return Incomplete((f"{what}: {self.there} of {self.of} are there; missing: {', '.join(self.names)}{more}",))


def model_files(below: str, names: Iterable[str]) -> Ranks:
    """The files with the model's states: with a rank of data each where the weights are divided among the workers, and else without."""
    divided: dict[tuple[int, int], str] = {}
    whole: dict[tuple[int, int], str] = {}
    for name in _directly(below, names):
        if found := _MODEL.fullmatch(name):
            of = whole if found["data"] is None else divided
            of[int(found["data"] or 0), int(found["model"])] = f"{below}{name}"
    if divided:
        return Ranks(f"{below}zero_pp_rank_{{data}}_mp_rank_{{model:02d}}_model_states.pt", divided, tuple(sorted(whole.values())))
    return Ranks(f"{below}mp_rank_{{model:02d}}_model_states.pt", whole)


def optimizer_files(below: str, names: Iterable[str]) -> Ranks:
    """The files with the optimizer's states, one for each worker. Where they have several prefixes, those of most workers count."""
    by_prefix: dict[str, dict[tuple[int, int], str]] = {}
    for name in _directly(below, names):
        if found := _OPTIMIZER.fullmatch(name):
            by_prefix.setdefault(found["prefix"], {})[int(found["data"]), int(found["model"])] = f"{below}{name}"
    prefix = max(by_prefix, key=lambda one: (len(by_prefix[one]), one), default="")
    others = tuple(name for one, found in sorted(by_prefix.items()) if one != prefix for name in found.values())
    return Ranks(f"{below}{prefix}zero_pp_rank_{{data}}_mp_rank_{{model:02d}}_optim_states.pt", by_prefix.get(prefix, {}), others)


def _directly(below: str, names: Iterable[str]) -> list[str]:
    return sorted(rest for name in names if name.startswith(below) and "/" not in (rest := name[len(below) :]))
