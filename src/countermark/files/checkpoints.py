"""Checkpoints on a disk: which files and folders are some, and what is in one.

Rules kept here:

1. What a checkpoint is called follows from the layouts, and its number orders it. Everything else beside the checkpoints is listed as none,
   temporary folders among it.
2. Reading one never raises for what is in it. What is missing, broken, swapped or written meanwhile is in the readback.
3. What proves publication is the layout's to say. A name that says "in progress" speaks against all of it.
4. What lies below is listed before and after its files are read; a difference means that somebody writes there.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.digest_cache import DigestCache, measured_with
from countermark.files.layouts import Kind, numbered, read_layout, recognised
from countermark.files.layouts.published import MANIFEST, PublishedManifest, hold_manifest, read_manifest
from countermark.files.reading import Entry, OpenFile, Progress, find_folder, is_link, list_folder, list_tree, open_file
from countermark.lines.defects import sentence
from countermark.run.checkpoint import CheckpointNotThere, CheckpointReadback, Incomplete, Publication, Unobserved
from countermark.values import shown
from countermark.weights.refusals import FileAbsent, FileDefect, FileNotRegular

_IN_PROGRESS: Final = re.compile(r"\.?tmp[-_.].*|.*[-_.]tmp|\..*", re.DOTALL)
_NO_FOLDER: Final = "a link, or no folder, is there"
_KINDS: Final[dict[str, Kind]] = {"a folder": "a folder", "a regular file": "a regular file"}


@final
@dataclass(frozen=True, slots=True)
class CheckpointListing:
    """The checkpoints in a folder as (number, name), lowest first, and the names of everything else in it. The number is the step, or what
    the layout counts by (epochs, saves)."""

    checkpoints: tuple[tuple[int, str], ...]
    others: tuple[str, ...]


def step_of(name: str) -> int | None:
    """The step that a checkpoint's name tells, or None where the name is not one of a checkpoint or counts something else."""
    found = [numbered(name, kind) for kind in _KINDS.values()]
    return next((one.step for one in found if one is not None), None)


def list_checkpoints(folder: Path) -> CheckpointListing | FileDefect:
    """The checkpoints in a folder, by their names alone."""
    listed = list_folder(folder)
    if not isinstance(listed, tuple):
        return listed
    found = {entry.name: numbered(entry.name, kind) for entry in listed if (kind := _KINDS.get(entry.kind))}
    checkpoints = {name: said.number for name, said in found.items() if said is not None}
    others = tuple(entry.name for entry in listed if entry.name not in checkpoints)
    return CheckpointListing(tuple(sorted((number, name) for name, number in checkpoints.items())), others)


def read_checkpoint(
    path: Path, cache: DigestCache | None = None, progress: Progress | None = None
) -> CheckpointReadback | CheckpointNotThere:
    """What is in a checkpoint: a folder, or a single file where its layout is one. What the cache knows is not hashed again, and
    ``progress`` is told of every byte that is, or need not be."""
    with measured_with(cache, progress):
        return _read_checkpoint(path)


def _read_checkpoint(path: Path) -> CheckpointReadback | CheckpointNotThere:
    looked = _look(path)
    if isinstance(looked, CheckpointNotThere):
        return looked
    kind, before = looked
    if kind == "a regular file" and not recognised(path, kind, before):
        return CheckpointNotThere(str(path), _NO_FOLDER)
    files = frozenset(entry.name for entry in before if entry.kind != "a folder")
    found = read_manifest(path) if kind == "a folder" and MANIFEST in files else None
    manifest = found if isinstance(found, PublishedManifest) else None
    layout, reading = read_layout(path, kind, before, manifest.layout if manifest else None)
    if found is not None:
        hold_manifest(path, files, layout, reading, found)
    named = numbered(path.name, kind, layout)
    step = reading.step if manifest or named is None or named.step is None else named.step
    return CheckpointReadback(
        path=str(path),
        layout=layout,
        step=step if step is not None else 0,
        components=reading.components,
        marker=_marker(path, reading.publication, changed=_look(path) != looked),
        attempt=manifest.attempt if manifest else None,
        work_key=manifest.work_key if manifest else None,
        declared=manifest.manifest if manifest else None,
        facts=tuple(dict.fromkeys(reading.facts)),
        model_shapes=reading.model_shapes,
        optimizer_shapes=reading.optimizer_shapes,
        optimizer_parameters=reading.optimizer_parameters,
        micro_batches=manifest.micro_batches if manifest else reading.micro_batches,
        epoch=reading.epoch,
        scaled=reading.scaled,
        notes=reading.notes,
    )


def _look(path: Path) -> tuple[Kind, tuple[Entry, ...]] | CheckpointNotThere:
    """What stands at a path: of which kind, and everything below it; a file is its own one entry."""
    if is_link(path):
        return CheckpointNotThere(str(path), _NO_FOLDER)
    found = find_folder(path)
    if isinstance(found, FileNotRegular):
        opened = open_file(path.parent, path.name)
        if not isinstance(opened, OpenFile):
            return CheckpointNotThere(str(path), _NO_FOLDER)
        with opened:
            return "a regular file", (Entry(path.name, "a regular file", opened.stamp),)
    if isinstance(found, FileDefect):
        return CheckpointNotThere(str(path), "nothing is there" if isinstance(found, FileAbsent) else sentence(found).message)
    entries = list_tree(path)
    return ("a folder", entries) if isinstance(entries, tuple) else CheckpointNotThere(str(path), sentence(entries).message)


def _marker(path: Path, publication: Publication, *, changed: bool) -> Publication:
    if _IN_PROGRESS.fullmatch(path.name):
        return Incomplete((f"its name {shown(path.name)} says that it is still being written",))
    if isinstance(publication, Incomplete) or not changed:
        return publication
    return Unobserved(("the folder changed while it was read",))
