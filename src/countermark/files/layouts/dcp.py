"""What a folder of a torch distributed checkpoint holds: ``.metadata`` and ``__R_N.distcp``, as FSDP, torchtitan and others write it.

Rules kept here:

1. The data files are covered: each byte of each belongs to one piece that ``.metadata`` lists, and each piece lies within its file.
2. Each piece is an archive of its own. It is read without executing it, its checksums are verified, and it must hold what is listed.
3. Which component a piece is of follows from the name that it was saved under. What has no such name is of the weights: a module's
   tensors are saved under names of its own.
4. A component's share of a data file has a digest of its own: over the name, the place in its tensor, and the digest of each of its
   pieces there. What ``.metadata`` says of a piece is in that digest, so the file itself is of no component.
5. ``Atomic`` is said where ``.metadata``, which is written last and renamed into place, is younger than all data and nothing else lies
   there. An older one is what a writer leaves that was stopped while it wrote over a checkpoint.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Final, cast, final

from countermark.files.digest_cache import hash_parts
from countermark.files.layouts.dcp_metadata import DATA_SUFFIX, METADATA, Metadata, Piece, SavedTensor, Trail, read_metadata
from countermark.files.layouts.reading import IN_PLACE, Parts, components_by_word, lying_in, take
from countermark.files.pickles import Storage, TensorStub, TorchFile, read_torch_file, scalar
from countermark.files.reading import Entry, OpenFile, ShortRead, Window, open_below
from countermark.recipe.canonical import digest_of
from countermark.run.checkpoint import COMPONENTS, Atomic, Component, FileReading, Incomplete, Publication, Unobserved
from countermark.values import Sha256, shown
from countermark.weights.refusals import FileChanged, FileDefect, PickleUnreadable

#: What an unfinished writer leaves of its metadata.
UNFINISHED: Final = f"{METADATA}.tmp"
_OF_A_WORKER: Final = re.compile(r"__([0-9]{1,7})_[0-9]+\.distcp", re.ASCII)
#: The names under which states are saved, and which component each belongs to.
WORDS: Final = components_by_word(
    {
        Component.MODEL_WEIGHTS: ("model", "module", "model_state_dict"),
        # Lightning numbers its optimizers.
        Component.OPTIMIZER_STATE: (
            *("optimizer", "optim", "optimizers", "optimizer_state_dict"),
            *(f"optimizer_{at}" for at in range(8)),
        ),
        Component.SCHEDULER_STATE: ("lr_scheduler", "scheduler", "lr_schedulers", "schedulers"),
        Component.RNG_STATE: ("rng", "rng_state", "rng_states", "random_state", "random_states"),
        Component.DATA_POSITION: (
            *("dataloader", "train_state", "trainer_state", "data_position", "sampler"),
            *("step", "global_step", "epoch"),
        ),
    }
)
#: Names that hold states of several components.
_AROUND: Final = frozenset({"app", "state", "state_dict", "checkpoint", "trainer"})


@final
@dataclass(slots=True)
class DcpReading:
    """What the folder holds, by component: its files, the values that are no weights as nested tables, and the tensors of the weights.
    ``workers`` is how many saved it."""

    parts: dict[Component, Parts] = field(default_factory=dict[Component, Parts])
    values: dict[Component, dict[object, object]] = field(default_factory=dict[Component, dict[object, object]])
    tensors: dict[str, SavedTensor] = field(default_factory=dict[str, SavedTensor])
    publication: Publication = IN_PLACE
    workers: int = 1

    def whole(self, component: Component) -> Mapping[object, object] | None:
        """The component's values, None where not all of them were read."""
        parts = self.parts.get(component)
        return None if parts is None or parts.whys or parts.absent or parts.changing else self.values.get(component, {})


@final
@dataclass(frozen=True, slots=True)
class _Placed:
    """The component of a key, and where its value stands in that component's table: under the word that tells the component, of which there
    can be several, and for the weights without it."""

    component: Component
    trail: Trail


def read_dcp(folder: Path, entries: tuple[Entry, ...], below: str = "") -> DcpReading:
    """What lies in ``folder / below``; names in the answer are relative to ``folder``."""
    here = {entry.name.removeprefix(below): entry for entry in lying_in(entries, below)}
    reading = DcpReading()
    common = Parts()
    metadata = take(common, folder, f"{below}{METADATA}", read_metadata)
    reading.publication = _publication(here, metadata)
    if metadata is None:
        reading.parts = dict.fromkeys(COMPONENTS, common)
        return reading
    placed = {key: _placed(trail) for key, trail in metadata.paths.items()}
    reading.parts = {one.component: Parts() for one in placed.values()}
    for key, tensor in metadata.tensors.items():
        if placed[key].component is Component.MODEL_WEIGHTS:
            reading.tensors[".".join(map(str, placed[key].trail))] = tensor
    reading.workers = writers(metadata.files)
    by_file: dict[str, list[Piece]] = {}
    for piece in metadata.pieces:
        by_file.setdefault(piece.file, []).append(piece)
    for file, pieces in by_file.items():
        _FileOfPieces(reading, metadata, placed, pieces).take(folder, f"{below}{file}")
    return reading


def writers(names: Iterable[str]) -> int:
    """How many workers saved what lies in data files of these names: ranks count from 0, and one that had nothing to write has no file."""
    return max((int(found[1]) for name in names if (found := _OF_A_WORKER.fullmatch(name))), default=0) + 1


def _placed(trail: Trail) -> _Placed:
    for at in (0, 1) if trail[0] in _AROUND else (0,):
        component = WORDS.get(str(trail[at])) if at < len(trail) else None
        if component is Component.MODEL_WEIGHTS and at + 1 < len(trail):
            return _Placed(component, trail[at + 1 :])
        if component is not None and component is not Component.MODEL_WEIGHTS:
            return _Placed(component, trail[at:])
    return _Placed(Component.MODEL_WEIGHTS, trail)


@final
@dataclass(frozen=True, slots=True)
class _FileOfPieces:
    """One data file while its pieces are taken."""

    reading: DcpReading
    metadata: Metadata
    placed: Mapping[str, _Placed]
    pieces: list[Piece]

    def take(self, folder: Path, name: str) -> None:
        """Hash and parse the file's pieces; what keeps a component from counting is noted with it."""
        concerned = [self.reading.parts[one] for one in COMPONENTS if one in {self.placed[piece.key].component for piece in self.pieces}]
        opened = open_below(folder, name)
        if not isinstance(opened, OpenFile):
            for parts in concerned:
                parts.defect(opened)
            return
        with opened:
            if why := self.uncovered(opened.size):
                for parts in concerned:
                    parts.whys.append(f"{name}: {why}")
                return
            digests = hash_parts(opened, tuple((piece.begin, piece.begin + piece.size) for piece in self.pieces))
            defect = digests if not isinstance(digests, tuple) else self.parsed(opened)
        if defect is not None:
            for parts in concerned:
                parts.defect(defect)
        if isinstance(digests, tuple):
            for component, share in self.shares(digests).items():
                self.reading.parts[component].files.append(FileReading(f"{name}: {component}", *share))

    def uncovered(self, size: int) -> str | None:
        """Why the pieces are not the file, byte for byte."""
        at = 0
        for piece in self.pieces:
            if piece.begin < at:
                return f"{shown(piece.key)} overlaps what lies before it"
            if piece.begin > at:
                return f"{piece.begin - at} bytes before {shown(piece.key)} belong to nothing"
            at += piece.size
        if at > size:
            return f"it has {size} bytes and its pieces have {at}"
        return f"its last {size - at} bytes belong to nothing" if at < size else None

    def shares(self, digests: tuple[Sha256, ...]) -> dict[Component, tuple[Sha256, int]]:
        """The digest and the size of what each component has in the file."""
        told: dict[Component, list[bytes]] = {}
        sizes: Counter[Component] = Counter()
        for piece, digest in zip(self.pieces, digests, strict=True):
            component = self.placed[piece.key].component
            told.setdefault(component, []).extend((piece.key.encode(), str(piece.offsets).encode(), digest.hex.encode()))
            sizes[component] += piece.size
        return {one: (digest_of(*parts), sizes[one]) for one, parts in told.items()}

    def parsed(self, opened: OpenFile) -> FileDefect | None:
        """Keeps the values of all pieces, and notes why one is not what is listed."""
        try:
            for piece in self.pieces:
                parts = self.reading.parts[self.placed[piece.key].component]
                parts.whys.extend(
                    f"{opened.name}: {shown(piece.key)}: {why}" for why in self.value(Window(opened, piece.begin, piece.size), piece)
                )
        except (OSError, ShortRead) as error:
            return opened.judged(error)
        return FileChanged(opened.name) if opened.changed() else None

    def value(self, window: Window, piece: Piece) -> Iterator[str]:
        """Keeps the value of a piece; yields why it is not what is listed. Raises as ``OpenFile.read`` does."""
        found = read_torch_file(window)
        if isinstance(found, PickleUnreadable):
            yield from found.whys
            return
        if not isinstance(found, TorchFile):
            raise ShortRead(window.name)
        value = found.value
        if piece.shape is not None:
            saved = self.metadata.tensors[piece.key]
            if not isinstance(value, TensorStub) or (value.shape, value.storage.dtype) != (piece.shape, saved.dtype):
                yield "it is not the tensor that is listed"
                return
            whole = TensorStub(Storage(saved.dtype, "", 0), 0, saved.shape, ())
            value = scalar(window, found, value) if prod(saved.shape) == 1 else whole
        placed = self.placed[piece.key]
        if placed.component is Component.MODEL_WEIGHTS:
            return
        if not _kept(self.reading.values.setdefault(placed.component, {}), placed.trail, value):
            yield "it stands where something else stands"


def _kept(table: dict[object, object], trail: Trail, value: object) -> bool:
    """Put a value at its place in a nested table; False where that place is inside of, or around, another value."""
    for step in trail[:-1]:
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            return False
        table = cast(dict[object, object], inner)
    known = table.setdefault(trail[-1], value)
    return known is value or (isinstance(value, TensorStub | int | float) and known == value)


def _publication(here: Mapping[str, Entry], metadata: Metadata | None) -> Publication:
    """What the times and names of the files show."""
    if METADATA not in here:
        return Incomplete((f"{METADATA}, which is written last, is not there",))
    if UNFINISHED in here:
        return Incomplete((f"{UNFINISHED} is there: whoever wrote it had not finished",))
    if metadata is None:
        return Incomplete((f"{METADATA} is unreadable",))
    written = here[METADATA].stamp.mtime_ns
    data = {name: entry.stamp.mtime_ns for name, entry in here.items() if name in metadata.files}
    if younger := sorted(name for name, at in data.items() if at > written):
        names = ", ".join(younger[:3]) + (f" and {len(younger) - 3} more" if len(younger) > 3 else "")
        why = f"{METADATA} is older than {names}: it is of an earlier save that was written over, or a copy did not keep the times"
        return Incomplete((why,))
    if others := sorted(name for name in here if name.endswith(DATA_SUFFIX) and name not in metadata.files):
        return Unobserved((f"{shown(others[0])} is of another save: the folder was not a fresh one",))
    if any(at == written for at in data.values()):
        return Unobserved((f"{METADATA} and data have the very same time, so which was written last cannot be told",))
    return Atomic(f"{METADATA} was renamed into place after all data was written, in a fresh folder")
