"""Publishing checkpoints and outputs: all of a folder, or nothing that anybody would take for one.

Rules kept here:

1. The order is fixed: a temporary folder beside the place, the files copied into it and synced, the manifest written and synced, the
   temporary folder synced, one rename, the parent synced. Stopped anywhere, there is either no folder under the final name or all of it.
2. Nothing is ever replaced: the rename fails where the name is taken. A step's folder is used once.
3. Files are copied or cloned, never linked: a trainer that writes into its own folder again does not reach what was published.
4. What is published is what was read back *from the copy*: its components are parsed and hashed there, and one that is missing, broken, of
   another step or of other tensors stops the publication. A source that changes meanwhile stops it too.
5. A failing disk raises its ``OSError``, after the temporary folder was taken away as far as the disk allows.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.layouts import LayoutReading, read_layout
from countermark.files.layouts.published import MANIFEST, PublishedManifest, encode_manifest
from countermark.files.reading import OpenFile, list_folder, open_file
from countermark.run.attempts import CheckpointIdentity
from countermark.run.checkpoint import (
    COMPONENTS,
    Atomic,
    CheckpointReadback,
    ComponentRead,
    FileReading,
    component_defects,
)
from countermark.run.publication import FolderTaken, PublishDefect
from countermark.values import NonEmpty, Refused
from countermark.weights.refusals import FileAbsent, FileChanged, FileDefect, FileNotRegular

_DEPTH_MAX: Final = 16
_NOREPLACE: Final = 1
_AT_FDCWD: Final = -100
#: ``FICLONE``: share the blocks of another file until one of the two is written to.
_CLONE: Final = 0x40049409


class Disk:
    """The operations that publishing consists of. A test puts a disk here that fails or dies at any of them."""

    def make_folder(self, path: Path) -> None:
        """Create a folder; its parent is there and it is not. Raises ``OSError``."""
        path.mkdir(mode=0o755)

    def create(self, path: Path) -> int:
        """A new file, open for writing. Raises ``OSError``."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)

    def clone(self, descriptor: int, source: int) -> bool:
        """Share the blocks of the whole source with the new file; False where the file system cannot."""
        import fcntl

        try:
            fcntl.ioctl(descriptor, _CLONE, source)
        except OSError:
            return False
        return True

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write some of the data and return how many bytes. Raises ``OSError``."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Make a file durable. Raises ``OSError``."""
        os.fsync(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Make a folder's entries durable. Raises ``OSError``."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename_new(self, source: Path, target: Path) -> bool:
        """Give a folder its final name; False where the name is taken. Never replaces anything. Raises ``OSError``."""
        return rename_new(source, target)


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
    disk: Disk | None = None,
) -> PublishedCheckpoint | Refused[PublishDefect]:
    """Publish a trainer's checkpoint folder as ``parent/step-N``.

    ``attempt`` is the nonce of the attempt that wrote it (32 hexadecimal digits), ``work_key`` its spelled Work key, ``manifest`` the 23
    spellings of the desired manifest, ``micro_batches`` the trainer's own count of those taken. Raises ``OSError`` of the disk.
    """
    disk = disk or Disk()
    target = parent / f"step-{step}"
    if os.path.lexists(target):
        return Refused(NonEmpty(FolderTaken(str(target))))
    if os.path.lexists(source / MANIFEST):
        return Refused(NonEmpty(FolderTaken(str(source))))
    temporary = _temporary(disk, parent, target.name)
    try:
        defects = _copy(disk, source, temporary, depth=0)
        if refusal := NonEmpty.of(defects):
            _remove(temporary)
            return Refused(refusal)
        checked = _checked(temporary, step)
        if isinstance(checked, Refused):
            _remove(temporary)
            return checked
        readback, others = checked
        files = {component: reading.files for component, reading in readback.components.items() if isinstance(reading, ComponentRead)}
        published = PublishedManifest(attempt, work_key, step, readback.layout, files, others, micro_batches, manifest)
        _write(disk, temporary / MANIFEST, encode_manifest(published))
        disk.sync_folder(temporary)
        if not disk.rename_new(temporary, target):
            _remove(temporary)
            return Refused(NonEmpty(FolderTaken(str(target))))
        disk.sync_folder(parent)
    except Exception:
        _remove(temporary)
        raise
    digest = readback.digest
    assert digest is not None, "a component that was not read is a defect"
    size = sum(reading.bytes for reading in readback.components.values() if isinstance(reading, ComponentRead))
    return PublishedCheckpoint(str(target), step, CheckpointIdentity(step, digest), size)


def publish_output(source: Path, target: Path, *, disk: Disk | None = None) -> Path | Refused[PublishDefect]:
    """Publish a folder, and the folders in it, at a place that is free; returns the place. Raises ``OSError`` of the disk."""
    disk = disk or Disk()
    if os.path.lexists(target):
        return Refused(NonEmpty(FolderTaken(str(target))))
    temporary = _temporary(disk, target.parent, target.name)
    try:
        if refusal := NonEmpty.of(_copy(disk, source, temporary, depth=_DEPTH_MAX)):
            _remove(temporary)
            return Refused(refusal)
        if not disk.rename_new(temporary, target):
            _remove(temporary)
            return Refused(NonEmpty(FolderTaken(str(target))))
        disk.sync_folder(target.parent)
    except Exception:
        _remove(temporary)
        raise
    return target


def _temporary(disk: Disk, parent: Path, name: str) -> Path:
    """A temporary folder beside the place; the parent is made, durably, where it is not there yet."""
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        disk.sync_folder(folder.parent)
    temporary = parent / f".tmp-{name}-{secrets.token_hex(8)}"
    disk.make_folder(temporary)
    return temporary


def _checked(folder: Path, step: int) -> tuple[CheckpointReadback, tuple[FileReading, ...]] | Refused[PublishDefect]:
    """The copy as it reads, and the files in it that belong to no component; or what is wrong with it."""
    listed = list_folder(folder)
    if not isinstance(listed, tuple):
        return Refused(NonEmpty(listed))
    readback = _as_readback(folder, step, *read_layout(folder, "a folder", listed))
    if refusal := NonEmpty.of(component_defects(readback)):
        return Refused(refusal)
    taken = {file.name for part in readback.components.values() if isinstance(part, ComponentRead) for file in part.files}
    others: list[FileReading] = []
    for entry in listed:
        if entry.name not in taken:
            opened = open_file(folder, entry.name)
            if not isinstance(opened, OpenFile):
                return Refused(NonEmpty(opened))
            with opened:
                others.append(FileReading(entry.name, opened.sha256(0, opened.size), opened.size))
    return readback, tuple(others)


def _as_readback(folder: Path, step: int, layout: str, reading: LayoutReading) -> CheckpointReadback:
    return CheckpointReadback(
        path=str(folder),
        layout=layout,
        step=step,
        components={component: reading.components[component] for component in COMPONENTS},
        marker=Atomic("not yet renamed"),
        model_shapes=reading.model_shapes,
        optimizer_shapes=reading.optimizer_shapes,
        optimizer_parameters=reading.optimizer_parameters,
        scaled=reading.scaled,
    )


def _copy(disk: Disk, source: Path, target: Path, *, depth: int) -> tuple[FileDefect, ...]:
    """Copy a folder's files into an empty folder, and its folders up to ``depth`` levels; every file that cannot be copied is a defect."""
    before = list_folder(source)
    if not isinstance(before, tuple):
        return (before,)
    defects: list[FileDefect] = []
    for entry in before:
        if entry.kind == "a folder" and depth > 0:
            disk.make_folder(target / entry.name)
            defects.extend(_copy(disk, source / entry.name, target / entry.name, depth=depth - 1))
        elif entry.kind == "a folder":
            defects.append(FileNotRegular(entry.name, entry.kind))
        elif defect := _copy_file(disk, source, entry.name, target):
            defects.append(defect)
    if not defects and list_folder(source) != before:
        defects.append(FileChanged(source.name))
    if not defects:
        disk.sync_folder(target)
    return tuple(defects)


def _copy_file(disk: Disk, source: Path, name: str, target: Path) -> FileDefect | None:
    opened = open_file(source, name)
    if not isinstance(opened, OpenFile):
        return FileChanged(name) if isinstance(opened, FileAbsent) else opened
    with opened:
        descriptor = disk.create(target / name)
        try:
            if not disk.clone(descriptor, opened.fileno()):
                defect = _copy_bytes(disk, opened, descriptor)
                if defect is not None:
                    return defect
            disk.sync(descriptor)
        finally:
            os.close(descriptor)
        return FileChanged(name) if opened.changed() else None


def _copy_bytes(disk: Disk, opened: OpenFile, descriptor: int) -> FileDefect | None:
    """Reading failures are defects of the source; writing failures are the disk's and are raised."""
    for part in opened.parts_judged(0, opened.size):
        if not isinstance(part, memoryview):
            return part
        _write_all(disk, descriptor, part)
    return None


def _write(disk: Disk, path: Path, data: bytes) -> None:
    descriptor = disk.create(path)
    try:
        _write_all(disk, descriptor, memoryview(data))
        disk.sync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(disk: Disk, descriptor: int, data: memoryview) -> None:
    while data:
        data = data[disk.write(descriptor, data) :]


def _remove(temporary: Path) -> None:
    """Take a temporary folder away. One that stays is never read by anybody, so a disk that refuses this has not failed the caller."""
    shutil.rmtree(temporary, ignore_errors=True)
