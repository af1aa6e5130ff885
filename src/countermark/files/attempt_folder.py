"""An attempt's folder: the names in it, and reading one receipt out of it.

Rules kept here:

1. A receipt that is not there, and one that cannot be read, are different answers; nothing torn, oversized or hostile is "absent".
2. Absence is said only when the opening and the folder's listing agree.
3. Reading follows no symbolic link, never blocks on a pipe, and stops at the receipt's bound.
4. On a network file system absence is never said: a file written elsewhere may not be visible here yet.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar, final

from countermark.values import Unreadable
from countermark.wire.receipts import (
    CLAIM_BYTES_MAX,
    RECEIPT_BYTES_MAX,
    ClaimReceipt,
    FencedReceipt,
    ProcessReceipt,
    Receipt,
    StartReceipt,
    StopReceipt,
    TerminalReceipt,
    decode,
)

CLAIM: Final = "claim.json"
MANIFEST: Final = "manifest.json"
LOCK: Final = "lock"
START: Final = "start.json"
PROCESS: Final = "process.json"
STOP: Final = "stop.json"
FENCED: Final = "fenced"
TERMINAL: Final = "terminal.json"
LOG: Final = "log.txt"
OLDER_LOG: Final = "log.1.txt"
WORK: Final = "work"
OUTPUT: Final = "output"

#: File systems whose directories another machine may change behind this one's cache.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "smb3", "smbfs"}
)

R_co = TypeVar("R_co", bound=Receipt, covariant=True)
R = TypeVar("R", bound=Receipt)


@final
@dataclass(frozen=True, slots=True)
class ReceiptRead(Generic[R_co]):
    """The receipt as it was read; it may name another attempt than the folder does."""

    receipt: R_co


@final
@dataclass(frozen=True, slots=True)
class ReceiptAbsent:
    """There is no such receipt."""


@final
@dataclass(frozen=True, slots=True)
class ReceiptRefused:
    """Something is in the receipt's place, or nobody can tell; ``why`` names the file and what is wrong with it."""

    why: str


ReceiptReading = ReceiptRead[R] | ReceiptAbsent | ReceiptRefused


def attempt_around(place: Path) -> Path | None:
    """The attempt's folder that a path (as ``placed`` gives it) is, or lies in; None where it lies in none."""
    return next((one for one in (place, *place.parents) if os.path.isfile(one / CLAIM)), None)


def read_start(folder: Path) -> ReceiptReading[StartReceipt]:
    """The start receipt of an attempt's folder."""
    return _read(folder, START, StartReceipt)


def read_process_receipt(folder: Path) -> ReceiptReading[ProcessReceipt]:
    """The trainer's own process receipt."""
    return _read(folder, PROCESS, ProcessReceipt)


def read_terminal(folder: Path) -> ReceiptReading[TerminalReceipt]:
    """The supervisor's terminal receipt."""
    return _read(folder, TERMINAL, TerminalReceipt)


def read_claim(folder: Path) -> ReceiptReading[ClaimReceipt]:
    """What the launcher was told to start."""
    return _read(folder, CLAIM, ClaimReceipt)


def read_stop(folder: Path) -> ReceiptReading[StopReceipt]:
    """The request for the attempt's end."""
    return _read(folder, STOP, StopReceipt)


def read_fenced(folder: Path) -> ReceiptReading[FencedReceipt]:
    """The fence of a relaunch."""
    return _read(folder, FENCED, FencedReceipt)


def present(folder: Path, name: str) -> bool:
    """Whether anything bears the name, readable or not: what decides when the safe answer is "it is there"."""
    try:
        os.stat(folder / name, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read(folder: Path, name: str, kind: type[R]) -> ReceiptReading[R]:
    bytes_max = CLAIM_BYTES_MAX if kind is ClaimReceipt else RECEIPT_BYTES_MAX
    data = read_bounded(folder / name, bytes_max)
    if data is None:
        return ReceiptAbsent()
    receipt = data if isinstance(data, Unreadable) else decode(data, kind)
    return ReceiptRefused(f"{name}: {receipt.why}") if isinstance(receipt, Unreadable) else ReceiptRead(receipt)


def read_bounded(path: Path, bytes_max: int) -> bytes | Unreadable | None:
    """A small regular file's bytes; None when there surely is none; else why it cannot be read."""
    try:
        descriptor = _open(path)
        if descriptor is None:
            return _surely_absent(path)
    except OSError as error:
        return Unreadable(str(error.strerror))
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            return Unreadable("it is no regular file")
        if seen.st_size > bytes_max:
            return Unreadable(f"it has {seen.st_size} bytes; {bytes_max} are the most")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(bytes_max + 1)
    except OSError as error:
        return Unreadable(str(error.strerror))
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    """A descriptor, or None when the opening says that there is no such file and the listing agrees. What appears between the two is
    opened at the second try; what is listed and cannot be opened even then raises ``OSError``."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        if not _listed(path):
            return None
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        raise OSError(0, "the folder lists it and it cannot be opened: the reads disagree") from None


def _listed(path: Path) -> bool:
    try:
        return path.name in os.listdir(path.parent)
    except FileNotFoundError:
        return False


def _surely_absent(path: Path) -> Unreadable | None:
    try:
        system = file_system_of(path.parent)
    except FileNotFoundError:
        return None
    if system in NETWORK_FILE_SYSTEMS:
        return Unreadable(f"it is not visible on a {system} file system, which does not prove that it was not written")
    return None


def file_system_of(path: Path) -> str:
    """The type of the file system that a path lies on, as the kernel's mount table names it; empty when it does not tell."""
    device = os.stat(path).st_dev
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        return file_system_in(table.read(), f"{os.major(device)}:{os.minor(device)}")


def file_system_in(mount_table: str, device: str) -> str:
    """The type that a mount table gives for a ``major:minor`` device; empty when it has none."""
    for line in mount_table.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2:3] == [device]:
            return source.partition(" ")[0]
    return ""
