"""Looking at checkpoints that lie anywhere, and publishing a checkpoint of an attempt."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Final, TypeAlias

from countermark.files.attempt_folder import attempt_around
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint, step_of
from countermark.files.desired import CHECKPOINTS, Desired, read_desired
from countermark.files.digest_cache import DigestCache
from countermark.files.layouts import UNKNOWN_LAYOUT, numbered
from countermark.files.publishing import PublishedCheckpoint
from countermark.files.publishing import publish_checkpoint as publish
from countermark.files.reading import is_folder, list_folder, list_tree, placed
from countermark.lines.checkpoint import FolderListed, Inspected, Inspection
from countermark.lines.surface import AttemptUnnamed, SeveralOfStep
from countermark.recipe import Manifest, manifest_from_spellings, spellings
from countermark.run.checkpoint import (
    AdmittedCheckpoint,
    AttemptElsewhere,
    CheckpointAbsent,
    CheckpointDefect,
    CheckpointNotThere,
    CheckpointReadback,
    ComponentAbsent,
    ComponentRead,
    SoundCheckpoint,
    admit_checkpoint,
    admit_weights_only,
    sound_checkpoint,
)
from countermark.values import NonEmpty, Refused, shown

#: How many names a sentence tells of what may have been meant.
_TOLD_MAX: Final = 5
_LOOKED_INTO_MAX: Final = 100
#: A path that is to be typed is not cut.
_PATH_MAX: Final = 4096
_THREADS_MAX: Final = 4

Resumable: TypeAlias = AdmittedCheckpoint | SoundCheckpoint | Refused[CheckpointDefect]


def inspect_checkpoints(
    paths: Sequence[str],
    target: str | None,
    vouched: bool,
    folder: Path | None,
    url: str | None = None,
    *,
    step: int | None = None,
    cache: DigestCache | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Inspection | Refused[object]:
    """Each checkpoint, with both answers; ``target`` is the recipe or run that is to go on. A folder of checkpoints stands for all of them,
    in the order of their steps, or for the one of ``step``. ``progress`` is told of the bytes done and of all bytes."""
    desired: Manifest | None = None
    members: frozenset[str] | None = None
    if target is not None:
        from countermark.app.compare import manifest_of

        found = manifest_of(target, folder, url)
        if isinstance(found, Refused):
            return found
        desired, members = found, _members_of(target, folder, url)
    named = [_named(path, step) for path in dict.fromkeys(paths)]
    folders = tuple(one for one in named if isinstance(one, FolderListed))
    shared = tuple(SeveralOfStep(one.path, at, names) for one in folders for at, names in one.shared)
    if step is not None and (asked_for_several := NonEmpty.of(one for one in shared if one.step == step)):
        return Refused(asked_for_several)
    places = [place for one in named for place in (one.places(step) if isinstance(one, FolderListed) else (one,))]
    readbacks = _read_all(places, cache, progress)
    inspected = (Inspected(each, _resumable(each, desired, members, vouched), admit_weights_only(each)) for each in readbacks)
    return Inspection(tuple(inspected), folders, shared)


def _named(text: str, step: int | None) -> "FolderListed | str | CheckpointNotThere":
    """What a path names: a folder of checkpoints, a checkpoint, or nothing that was asked for."""
    path = Path(text)
    itself = numbered(placed(path).name, "a folder")
    listed = list_checkpoints(path) if itself is None and is_folder(path) else None
    if isinstance(listed, CheckpointListing) and listed.checkpoints:
        steps = tuple((step_of(name), name) for _, name in listed.checkpoints)
        if step is not None and step not in {one for one, _ in steps}:
            there = ", ".join(dict.fromkeys(str(one) for one, _ in steps[-_TOLD_MAX:] if one is not None))
            return CheckpointNotThere(text, f"no checkpoint of step {step} is in it, only of {there or 'no step at all'}")
        return FolderListed(text, steps, listed.others)
    if step is not None and step_of(placed(path).name) != step:
        return CheckpointNotThere(text, f"it is no checkpoint of step {step}, and no folder of checkpoints")
    return text


def _read_all(
    places: Sequence[str | CheckpointNotThere], cache: DigestCache | None, progress: Callable[[int, int], None] | None
) -> list[CheckpointReadback | CheckpointNotThere]:
    """What is at each place, in their order. Several are read at once: hashing leaves the interpreter to others. Whoever stops this stops
    all of them within one piece of a file."""
    stopped, lock = Event(), Lock()
    total = sum(map(_size, places)) if progress is not None else 0
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        if stopped.is_set():
            raise _Stopped
        if progress is not None:
            with lock:
                done += count
                progress(min(done, total - 1), total)

    def read(place: str | CheckpointNotThere) -> CheckpointReadback | CheckpointNotThere:
        return place if isinstance(place, CheckpointNotThere) else _told(read_checkpoint(Path(place), cache, advance))

    try:
        if len(places) < 2:
            return [read(place) for place in places]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(len(places), os.cpu_count() or 1, _THREADS_MAX)) as pool:
            try:
                return list(pool.map(read, places))
            except BaseException:
                stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    finally:
        if progress is not None:
            progress(total, total)


class _Stopped(Exception):
    """Another thread was stopped, and this one with it."""


def _size(place: str | CheckpointNotThere) -> int:
    entries = () if isinstance(place, CheckpointNotThere) else list_tree(Path(place))
    if isinstance(entries, tuple):
        return sum(entry.stamp.bytes for entry in entries if entry.kind == "a regular file")
    try:
        return os.lstat(str(place)).st_size
    except (OSError, ValueError):
        return 0


def _told(readback: CheckpointReadback | CheckpointNotThere) -> CheckpointReadback | CheckpointNotThere:
    """The readback; where there is none, or nothing of a checkpoint in it, what is near that may have been meant."""
    path = Path(readback.path)
    if isinstance(readback, CheckpointNotThere):
        beside = list_checkpoints(path.parent)
        names = [name for _, name in beside.checkpoints] if isinstance(beside, CheckpointListing) else []
        near = f"; beside it {'is' if len(names) == 1 else 'are'} {', '.join(map(shown, names[-_TOLD_MAX:]))}" if names else ""
        return CheckpointNotThere(readback.path, readback.why + near)
    empty = readback.layout == UNKNOWN_LAYOUT and all(isinstance(each, ComponentAbsent) for each in readback.components.values())
    if not empty or numbered(placed(path).name, "a folder") is not None:
        return readback
    return CheckpointNotThere(readback.path, f"no file of a checkpoint lies in this folder{told_below(path)}")


def told_instead(path: Path) -> str:
    """What a folder without checkpoints is, or where they lie in it, as the rest of a sentence; empty where there is nothing to tell."""
    listed = list_checkpoints(path)
    if not isinstance(listed, CheckpointListing) or listed.checkpoints:
        return ""
    place = placed(path)
    itself = numbered(place.name, "a folder") is not None
    return f", but a checkpoint itself; it lies in {shown(str(place.parent), _PATH_MAX)}" if itself else told_below(path)


def told_below(path: Path) -> str:
    """In which folders below checkpoints lie, as the rest of a sentence."""
    below = list_folder(path)
    folders = [entry.name for entry in below if entry.kind == "a folder"][:_LOOKED_INTO_MAX] if isinstance(below, tuple) else []
    holding = [name for name in folders if isinstance(one := list_checkpoints(path / name), CheckpointListing) and one.checkpoints]
    return f", and checkpoints lie in {', '.join(shown(str(path / name), _PATH_MAX) for name in holding[:_TOLD_MAX])}" if holding else ""


def _members_of(target: str, folder: Path | None, url: str | None) -> frozenset[str] | None:
    """The attempts of the run that a target names; None where it names no run, and membership is not asked."""
    if Path(target).exists() or folder is None:
        return None
    from countermark.app.compare import find_run
    from countermark.app.stores import ledger_of
    from countermark.store.opening import open_store

    with open_store(ledger_of(folder, url), create=False) as store:
        record = find_run(store, target)
    return None if isinstance(record, Refused) else frozenset(claim.attempt.nonce.hex for claim in record.ledger.claims)


def _resumable(
    readback: CheckpointReadback | CheckpointNotThere, desired: Manifest | None, members: frozenset[str] | None, vouched: bool
) -> Resumable:
    """Held against the work that is to go on; else against what it declares of itself; else as it is."""
    own = frozenset({readback.attempt}) if isinstance(readback, CheckpointReadback) and readback.attempt is not None else frozenset[str]()
    wanted = desired
    if wanted is None and isinstance(readback, CheckpointReadback) and readback.declared is not None:
        declared = manifest_from_spellings(readback.declared)
        wanted = None if isinstance(declared, Refused) else declared
    answer: Resumable = sound_checkpoint(readback, vouched=vouched)
    if wanted is not None:
        answer = admit_checkpoint(readback, wanted, own if members is None else members, vouched=vouched)
    refusal = NonEmpty.of((*(answer.defects if isinstance(answer, Refused) else ()), *_elsewhere(readback)))
    return answer if refusal is None else Refused(refusal)


def _elsewhere(readback: CheckpointReadback | CheckpointNotThere) -> tuple[AttemptElsewhere, ...]:
    """Whether a checkpoint lies in the folder of another attempt than the one that it says it is of."""
    if isinstance(readback, CheckpointNotThere) or readback.attempt is None:
        return ()
    holder = attempt_around(placed(Path(readback.path)))
    said = None if holder is None else read_desired(holder)
    if not isinstance(said, Desired) or said.attempt == readback.attempt:
        return ()
    return (AttemptElsewhere(readback.attempt, said.attempt),)


def publish_checkpoint(path: str, into: str | None) -> PublishedCheckpoint | Refused[object]:
    """Publish a trainer's checkpoint that lies in an attempt's folder as that attempt's checkpoint, or into another folder."""
    place = placed(Path(path))
    attempt = attempt_around(place)
    manifest = None if attempt is None else read_desired(attempt)
    if attempt is None or manifest is None:
        return Refused(NonEmpty(AttemptUnnamed(path)))
    if isinstance(manifest, Refused):
        return manifest
    step = _step_told(place)
    if isinstance(step, str):
        return Refused(NonEmpty(CheckpointAbsent(path, step)))
    target = Path(into) if into is not None else attempt / CHECKPOINTS
    answer = publish(place, target, step=step, attempt=manifest.attempt, work_key=manifest.work_key, manifest=spellings(manifest.manifest))
    return Refused(answer.defects) if isinstance(answer, Refused) else answer


def _step_told(path: Path) -> int | str:
    """The step that a checkpoint's name tells, else its files do; or why nobody can say which it is."""
    named = step_of(path.name)
    if named is not None:
        return named
    readback = read_checkpoint(path)
    parts = readback.components.values() if isinstance(readback, CheckpointReadback) else ()
    told = {witness.step for part in parts if isinstance(part, ComponentRead) for witness in part.steps}
    if len(told) == 1:
        return told.pop()
    listed = list_checkpoints(path)
    if isinstance(listed, CheckpointListing) and (names := [name for _, name in listed.checkpoints]):
        return f"it is a folder of checkpoints: {', '.join(map(shown, names[-_TOLD_MAX:]))}"
    several = (
        f"and its files tell several: {', '.join(map(str, sorted(told)))}" if told else f"and none of its files does{told_below(path)}"
    )
    return f"its name says no step, as checkpoint-N and step-N do, {several}"
