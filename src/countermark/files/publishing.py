"""Publishing checkpoints and outputs: all of it, or nothing that anybody would take for one.

Rules kept here:

1. The order is fixed: a temporary folder beside the place, the files copied into it and synced, the manifest written and synced, the
   temporary folder synced, one rename, the parent synced. Stopped anywhere, there is either no folder under the final name or all of it.
2. Nothing is ever replaced: the rename fails where the name is taken. A step's folder is used once, and of two publishers one is told.
3. Files are copied or cloned, never linked: a trainer that writes into its own folder again does not reach what was published.
4. What is published is what was read back *from the copy*: its components are parsed and hashed there, and one that is missing, broken, of
   another step or of other tensors stops the publication. A source that changes meanwhile stops it too.
5. A failing disk raises ``PublishFailed``, after the temporary folder was taken away as far as the disk allows. What a publisher left that
   was killed is taken away by the next one.
"""

import errno
import os
import shlex
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar, final

from countermark.files.checkpoints import read_checkpoint, step_of
from countermark.files.durable import make_folder, sync_folder, write_all
from countermark.files.layouts.published import MANIFEST, PublishedManifest, encode_manifest, exact_file
from countermark.files.leftovers import clear, filled
from countermark.files.reading import Entry, OpenFile, is_folder, list_tree, open_below, reason
from countermark.run.attempts import CheckpointIdentity
from countermark.run.checkpoint import (
    Atomic,
    CheckpointAbsent,
    CheckpointNotThere,
    CheckpointReadback,
    ComponentRead,
    FileReading,
    component_defects,
)
from countermark.run.publication import FolderTaken, PublishDefect, PublishedBefore
from countermark.values import NonEmpty, Refused, shown
from countermark.weights.refusals import FileAbsent, FileChanged, FileDefect, FileNotRegular

_NOREPLACE: Final = 1
_AT_FDCWD: Final = -100
#: ``FICLONE``: share the blocks of another file until one of the two is written to.
_CLONE: Final = 0x40049409
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

T = TypeVar("T", CheckpointReadback, Path)


class PublishFailed(OSError):
    """The disk failed: ``what`` did, ``where``, and what mends it (``remedy``)."""

    def __init__(self, error: OSError, target: Path, *, named: bool) -> None:
        super().__init__(error.errno, reason(error), str(target))
        at = "" if error.filename is None else f" ({shown(Path(os.fsdecode(error.filename)).name)})"
        self.where = str(target)
        if named:
            self.what = f"{target.name} was published whole, and the disk did not confirm its name: {reason(error)}"
            self.remedy = "it can be used as it is; whether it outlives a power failure nobody knows, so look at the disk"
            return
        self.what = f"{target.name} was not published, and nothing of it counts: {reason(error)}{at}"
        pruned = f"countermark checkpoint prune {shlex.quote(str(target.parent))} --keep 2"
        self.remedy = (
            f"free space there ({pruned} says what may go), and publish again"
            if error.errno in _FULL
            else "look at the disk and its permissions, and publish again; what is left of this is taken away then"
        )

    def __str__(self) -> str:
        return f"{self.what}; {self.where}: {self.remedy}"


@final
@dataclass(frozen=True, slots=True)
class PublishedCheckpoint:
    """A checkpoint that is whole under its final name, durably."""

    path: str
    step: int
    identity: CheckpointIdentity
    bytes: int


def publish_checkpoint(
    source: Path,
    parent: Path,
    *,
    step: int,
    attempt: str,
    work_key: str,
    manifest: Mapping[str, str],
    micro_batches: int | None = None,
) -> PublishedCheckpoint | Refused[PublishDefect]:
    """Publish a trainer's checkpoint, which is a folder or a single file, as ``parent/step-N``.

    ``attempt`` is the nonce of the attempt that wrote it (32 hexadecimal digits), ``work_key`` its spelled Work key, ``manifest`` the 23
    spellings of the desired manifest, ``micro_batches`` the trainer's own count of those taken. Raises ``PublishFailed``.
    """
    target = parent / f"step-{step}"
    if os.path.lexists(source / MANIFEST):
        return Refused(NonEmpty(PublishedBefore(str(source))))

    def fill(temporary: Path) -> CheckpointReadback | Refused[PublishDefect]:
        copied = _copy(source, temporary)
        read = _checked(copied, step) if isinstance(copied, Path) else copied
        if isinstance(read, Refused):
            return read
        others = _others(temporary, read)
        if isinstance(others, Refused):
            return others
        files = {component: reading.files for component, reading in read.components.items() if isinstance(reading, ComponentRead)}
        published = PublishedManifest(attempt, work_key, step, read.layout, files, others, micro_batches, manifest)
        _write(temporary / MANIFEST, encode_manifest(published))
        sync_folder(temporary)
        return read

    readback = _published(target, fill, lambda name: step_of(name) is not None)
    if isinstance(readback, Refused):
        return readback
    digest = readback.digest
    assert digest is not None, "a component that was not read is a defect"
    size = sum(reading.bytes for reading in readback.components.values() if isinstance(reading, ComponentRead))
    return PublishedCheckpoint(str(target), step, CheckpointIdentity(step, digest), size)


def publish_output(source: Path, target: Path) -> Path | Refused[PublishDefect]:
    """Publish a folder, and the folders in it, at a place that is free; returns the place. Raises ``PublishFailed``."""

    def fill(temporary: Path) -> Path | Refused[PublishDefect]:
        copied = _copy(source, temporary)
        return copied if isinstance(copied, Refused) else target

    return _published(target, fill, lambda name: name == target.name)


def _published(target: Path, fill: Callable[[Path], T | Refused[PublishDefect]], of: Callable[[str], bool]) -> T | Refused[PublishDefect]:
    """What ``fill`` makes in a temporary folder, under its name. First goes what dead publishers left under names that ``of`` accepts: on
    a disk that was full, it is what keeps the next one from succeeding."""
    named = False
    try:
        if os.path.lexists(target):
            return Refused(NonEmpty(FolderTaken(str(target))))
        make_folder(target.parent)
        clear(target.parent, of)
        with filled(target.parent, target.name) as temporary:
            try:
                made = fill(temporary)
                if isinstance(made, Refused):
                    return made
                named = rename_new(temporary, target)
            finally:
                if not named:
                    _remove(temporary)
        if not named:
            return Refused(NonEmpty(FolderTaken(str(target))))
        sync_folder(target.parent)
        return made
    except OSError as error:
        raise PublishFailed(error, target, named=named) from error


def _checked(copied: Path, step: int) -> CheckpointReadback | Refused[PublishDefect]:
    """The copy as it reads, or what is wrong with it."""
    found = read_checkpoint(copied)
    if isinstance(found, CheckpointNotThere):
        return Refused(NonEmpty(CheckpointAbsent(found.path, found.why)))
    readback = replace(found, step=step, marker=Atomic("not yet renamed"))
    refusal = NonEmpty.of(component_defects(readback))
    return readback if refusal is None else Refused(refusal)


def _others(folder: Path, readback: CheckpointReadback) -> tuple[FileReading, ...] | Refused[PublishDefect]:
    """The files in a folder that belong to no component."""
    taken = {file.name for part in readback.components.values() if isinstance(part, ComponentRead) for file in part.files}
    listed = list_tree(folder)
    if not isinstance(listed, tuple):
        return Refused(NonEmpty(listed))
    read = [exact_file(folder, entry.name) for entry in listed if entry.kind != "a folder" and entry.name not in taken]
    refusal = NonEmpty.of(tuple(one for one in read if not isinstance(one, FileReading)))
    return tuple(one for one in read if isinstance(one, FileReading)) if refusal is None else Refused(refusal)


def _copy(source: Path, target: Path) -> Path | Refused[PublishDefect]:
    """Copy a folder and all below it, or a single file, into an empty folder, durably; returns where the copy lies. Everything that cannot
    be copied is a defect."""
    if not is_folder(source) and os.path.lexists(source):
        defect = _copy_file(source.parent, source.name, target)
        if defect is not None:
            return Refused(NonEmpty(defect))
        sync_folder(target)
        return target / source.name
    before = list_tree(source)
    if not isinstance(before, tuple):
        return Refused(NonEmpty(before))
    defects = [defect for entry in before if (defect := _copy_entry(source, entry, target)) is not None]
    if not defects and list_tree(source) != before:
        defects.append(FileChanged(source.name))
    if refusal := NonEmpty.of(tuple(defects)):
        return Refused(refusal)
    for entry in before:
        if entry.kind == "a folder":
            sync_folder(target / entry.name)
    sync_folder(target)
    return target


def _copy_entry(source: Path, entry: Entry, target: Path) -> FileDefect | None:
    if entry.kind == "a folder":
        (target / entry.name).mkdir(mode=0o755)
        return None
    if entry.kind == "a closed folder":
        return FileNotRegular(entry.name, entry.kind)
    return _copy_file(source, entry.name, target)


def _copy_file(source: Path, name: str, target: Path) -> FileDefect | None:
    opened = open_below(source, name)
    if not isinstance(opened, OpenFile):
        return FileChanged(name) if isinstance(opened, FileAbsent) else opened
    with opened, _new(target / name) as descriptor:
        if not _clone(descriptor, opened.fileno()):
            # A failure to read is a defect of the source; a failure to write is the disk's and is raised.
            for part in opened.parts_judged(0, opened.size):
                if not isinstance(part, memoryview):
                    return part
                write_all(descriptor, part)
        os.fsync(descriptor)
        return FileChanged(name) if opened.changed() else None


def _write(path: Path, data: bytes) -> None:
    with _new(path) as descriptor:
        write_all(descriptor, memoryview(data))
        os.fsync(descriptor)


@contextmanager
def _new(path: Path) -> Generator[int, None, None]:
    """A new file, open for writing. An ``OSError`` of what is done with it names it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _clone(descriptor: int, source: int) -> bool:
    """Share the blocks of the whole source with the new file; False where the file system cannot."""
    import fcntl

    try:
        fcntl.ioctl(descriptor, _CLONE, source)
    except OSError:
        return False
    return True


def _remove(temporary: Path) -> None:
    """Take a temporary folder away. One that stays is never read by anybody, so a disk that refuses this has not failed the caller."""
    shutil.rmtree(temporary, ignore_errors=True)


def rename_new(source: Path, target: Path) -> bool:
    """Rename a folder to a name that is free, or return False where it is taken. Raises ``OSError`` of the disk."""
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        if renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _NOREPLACE) == 0:
            return True
        code = ctypes.get_errno()
        if code == errno.EEXIST:
            return False
        if code not in {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}:
            raise OSError(code, os.strerror(code), str(target))
    return _rename_checked(source, target)


def _rename_checked(source: Path, target: Path) -> bool:
    """For file systems that cannot refuse to replace: look first. In the gap another's *folder with files* is still safe, because
    rename(2) never replaces one that is not empty, nor a file by a folder."""
    if os.path.lexists(target):
        return False
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            return False
        raise
    return True
