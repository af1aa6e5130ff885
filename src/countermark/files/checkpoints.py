"""Checkpoints on a disk: which folders are some, and what is in one.

Rules kept here:

1. A checkpoint's name is ``checkpoint-N`` or ``step-N`` and nothing else, and N orders by number. Everything else beside them is listed as
   no checkpoint, temporary folders among it.
2. Reading one never raises for what is in it. What is missing, broken, swapped or written meanwhile is in the readback.
3. ``Atomic`` is said of our published form only, where its manifest is whole and the folder holds exactly the files that it lists. A
   trainer writes in place, file after file: that nothing is wrong with it shows nothing about whether it had finished.
4. The folder is listed before and after its files are read; a difference means that somebody writes there.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.digest_cache import hash_file
from countermark.files.published import MANIFEST, MANIFEST_BYTES_MAX, PublishedManifest, decode_manifest
from countermark.files.reading import Entry, find_folder, is_link, list_folder, read_small
from countermark.files.trainer_layout import FILES, LAYOUT, LayoutReading, read_layout
from countermark.lines.defects import sentence
from countermark.run.checkpoint import (
    COMPONENTS,
    Atomic,
    CheckpointNotThere,
    CheckpointReadback,
    Component,
    ComponentRead,
    ComponentReading,
    Incomplete,
    Publication,
    Unobserved,
    component_digest,
)
from countermark.values import Unreadable, shown
from countermark.weights.refusals import FileAbsent, FileDefect, FileNotRegular

#: The layout of a folder in which none of the known files is.
UNKNOWN_LAYOUT: Final = "unknown"
_NAME: Final = re.compile(r"(checkpoint|step)-(0|[1-9][0-9]{0,15})", re.ASCII)
_IN_PROGRESS: Final = re.compile(r"\.?tmp[-_.].*|.*[-_.]tmp|\..*", re.DOTALL)


@final
@dataclass(frozen=True, slots=True)
class CheckpointListing:
    """The checkpoints in a folder as (step, name), lowest step first, and the names of everything else in it."""

    checkpoints: tuple[tuple[int, str], ...]
    others: tuple[str, ...]


def step_of(name: str) -> int | None:
    """The step that a checkpoint's folder is named by, or None where the name is not one of a checkpoint."""
    found = _NAME.fullmatch(name)
    return int(found[2]) if found else None


def list_checkpoints(folder: Path) -> CheckpointListing | FileDefect:
    """The checkpoints in a folder, by their names alone."""
    listed = list_folder(folder)
    if not isinstance(listed, tuple):
        return listed
    steps = {entry.name: step_of(entry.name) for entry in listed if entry.kind == "a folder"}
    checkpoints = sorted((step, name) for name, step in steps.items() if step is not None)
    named = {name for _, name in checkpoints}
    return CheckpointListing(tuple(checkpoints), tuple(entry.name for entry in listed if entry.name not in named))


def read_checkpoint(path: Path) -> CheckpointReadback | CheckpointNotThere:
    """What is in a checkpoint's folder."""
    if is_link(path) or isinstance(found := find_folder(path), FileNotRegular):
        return CheckpointNotThere(str(path), "a link, or no folder, is there")
    if isinstance(found, FileDefect):
        return CheckpointNotThere(str(path), "nothing is there" if isinstance(found, FileAbsent) else sentence(found).message)
    before = list_folder(path)
    if not isinstance(before, tuple):
        return CheckpointNotThere(str(path), sentence(before).message)
    if MANIFEST in {entry.name for entry in before}:
        return _published(path, before)
    reading = read_layout(path, frozenset(entry.name for entry in before))
    layout = LAYOUT if any(entry.name in FILES for entry in before) else UNKNOWN_LAYOUT
    named = step_of(path.name)
    step = named if named is not None else reading.trainer_step if reading.trainer_step is not None else 0
    marker = _in_progress(path) or _settled(path, before) or Unobserved(("its trainer writes in place, file after file",))
    return _readback(path, layout, step, reading, reading.components, marker, None)


def _published(path: Path, before: tuple[Entry, ...]) -> CheckpointReadback:
    """A folder with a manifest of ours in it."""
    names = frozenset(entry.name for entry in before)
    reading = read_layout(path, names)
    content = read_small(path, MANIFEST, MANIFEST_BYTES_MAX)
    manifest = decode_manifest(content) if isinstance(content, bytes) else Unreadable(sentence(content).message)
    if isinstance(manifest, PublishedManifest) and manifest.layout != LAYOUT:
        manifest = Unreadable(f"its layout {shown(manifest.layout)} is not known")
    named = step_of(path.name)
    if isinstance(manifest, Unreadable):
        step = named if named is not None else reading.trainer_step or 0
        damaged = Incomplete((f"{MANIFEST} is unreadable: {manifest.why}",))
        return _readback(path, LAYOUT, step, reading, reading.components, damaged, None)
    components = {component: _declared(reading.components[component], component, manifest) for component in COMPONENTS}
    whys = _differences(path, names, manifest)
    if named is not None and named != manifest.step:
        whys = (*whys, f"{MANIFEST} is of step {manifest.step}, the folder is called {shown(path.name)}")
    marker = _in_progress(path) or (Incomplete(whys) if whys else None) or _settled(path, before) or _renamed(path, manifest)
    return _readback(path, LAYOUT, manifest.step, reading, components, marker, manifest)


def _readback(
    path: Path,
    layout: str,
    step: int,
    reading: LayoutReading,
    components: dict[Component, ComponentReading],
    marker: Publication,
    manifest: PublishedManifest | None,
) -> CheckpointReadback:
    return CheckpointReadback(
        path=str(path),
        layout=layout,
        step=step,
        components=components,
        marker=marker,
        attempt=manifest.attempt if manifest else None,
        work_key=manifest.work_key if manifest else None,
        declared=manifest.manifest if manifest else None,
        facts=tuple(dict.fromkeys(reading.facts)),
        model_shapes=reading.model_shapes,
        optimizer_shapes=reading.optimizer_shapes,
        optimizer_parameters=reading.optimizer_parameters,
        micro_batches=manifest.micro_batches if manifest else None,
        epoch=reading.epoch,
        scaled=reading.scaled,
        notes=reading.notes,
    )


def _declared(reading: ComponentReading, component: Component, manifest: PublishedManifest) -> ComponentReading:
    """A component that was read, beside the digest that it was published with."""
    if not isinstance(reading, ComponentRead):
        return reading
    return ComponentRead(reading.files, reading.steps, component_digest(manifest.components[component]))


def _differences(path: Path, names: frozenset[str], manifest: PublishedManifest) -> tuple[str, ...]:
    """How the folder differs from its manifest, apart from the files of the components, whose digests are held against it anyway."""
    whys = [f"{shown(name)} is not in {MANIFEST}" for name in sorted(names - manifest.names())]
    for file in manifest.others:
        if file.name not in names:
            whys.append(f"{shown(file.name)} is listed in {MANIFEST} and not there")
            continue
        found = hash_file(path, file.name)
        if not isinstance(found, tuple):
            whys.append(sentence(found).message)
        elif found != (file.sha256, file.bytes):
            whys.append(f"{shown(file.name)} is not the file that was published")
    return tuple(whys)


def _in_progress(path: Path) -> Incomplete | None:
    return Incomplete((f"its name {shown(path.name)} says that it is still being written",)) if _IN_PROGRESS.fullmatch(path.name) else None


def _settled(path: Path, before: tuple[Entry, ...]) -> Unobserved | None:
    """None where the folder holds what it held before it was read."""
    return None if list_folder(path) == before else Unobserved(("the folder changed while it was read",))


def _renamed(path: Path, manifest: PublishedManifest) -> Publication:
    """The publisher renames a whole folder to ``step-N``; any other name was given by somebody else, who may have copied in place."""
    if path.name == f"step-{manifest.step}":
        return Atomic(f"{MANIFEST} lists exactly what is there, and the folder was renamed to {path.name} after it was written")
    return Unobserved((f"it was published as step-{manifest.step} and is called {shown(path.name)} now",))
