"""On what a store would lie. SQLite's write-ahead log shares memory between processes, which no network file system can do.

Rules kept here:

1. The kernel's mount table decides, by the mount that the folder lies on; a name in the path proves nothing.
2. File systems that several machines mount are refused by their type. A type that nobody knows is taken for local: the database itself
   refuses to open its log where memory cannot be shared.
3. A table that cannot be read or that lacks the folder is an error, never taken for "local".
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

#: Types that several machines may mount at once.
NETWORK_TYPES: Final = frozenset(
    "nfs nfs4 cifs smb smb2 smb3 smbfs ncpfs afs openafs coda ceph lustre gpfs beegfs pvfs2 orangefs panfs glusterfs gfs gfs2 ocfs2 "
    "davfs moosefs vboxsf".split()
)
#: The same behind FUSE, where the type is ``fuse.`` and a name.
NETWORK_FUSE: Final = frozenset(
    "sshfs ceph ceph-fuse glusterfs s3fs goofys gcsfuse blobfuse blobfuse2 rclone davfs juicefs mfs mount.moosefs smbnetfs curlftpfs afp "
    "seaweedfs weed cvmfs2 quobyte orangefs mountpoint-s3 alluxio-fuse".split()
)
_OCTAL = re.compile(r"\\([0-7]{3})")


@final
@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table: where, of which type, with which options of the file system itself."""

    point: str
    kind: str
    options: tuple[str, ...]


def read_mounts(table: str) -> tuple[Mount, ...]:
    """The lines of ``/proc/self/mountinfo``; a line of another shape is left out."""

    def plain(text: str) -> str:
        return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)

    mounts: list[Mount] = []
    for line in table.splitlines():
        left, separator, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if separator and len(before) >= 5 and len(after) >= 3:
            mounts.append(Mount(plain(before[4]), after[0], tuple(after[2].split(","))))
    return tuple(mounts)


def mount_of(folder: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount that an absolute folder without links lies on: the longest point above it, the last mounted one of equals."""
    above = [mount for mount in mounts if mount.point == "/" or folder == mount.point or folder.startswith(mount.point + "/")]
    return max(enumerate(above), key=lambda pair: (len(pair[1].point), pair[0]))[1] if above else None


def network_type(mount: Mount) -> str | None:
    """The type of a mount that other machines may share, else None. 9p is one when it goes over a network; a virtual machine's or a
    sandbox's own is local."""
    kind, _, behind = mount.kind.partition(".")
    if kind in NETWORK_TYPES or (kind in ("fuse", "fuseblk") and behind in NETWORK_FUSE):
        return mount.kind
    if kind == "9p" and {"trans=tcp", "trans=rdma"} & set(mount.options):
        return "9p over a network"
    return None


def mount_under(folder: Path) -> Mount | None:
    """The mount that ``folder`` (or, when it is not there yet, the folder above it) lies on. Raises ``OSError``."""
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return mount_of(os.path.realpath(folder), read_mounts(table))
