"""Network file systems are told from local ones by the mount table."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.store import filesystem as room
from countermark.store.filesystem import Mount, mount_of, mount_under, network_type, read_mounts
from tests.faults import planted, proven_by

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:40 / /home rw - nfs4 server:/home rw,vers=4.2,addr=10.0.0.1
41 40 0:41 / /home/ada/local rw master:3 propagate_from:2 - xfs /dev/sdb1 rw
42 27 0:42 / /mnt/a\\040b rw - fuse.sshfs ada@host: rw,user_id=0
43 27 0:43 / /over rw - nfs server:/x rw
44 27 0:44 / /over rw - tmpfs tmpfs rw
nonsense
45 27 0:45 / /9p rw - 9p host rw,trans=tcp,port=564
46 27 0:46 / /sandbox rw - 9p none rw,trans=fd,rfdno=4
"""
MOUNTS = read_mounts(TABLE)


def by_plain_prefix() -> AbstractContextManager[object]:
    """Mount points compared as texts: /homestead would lie on /home."""

    def wrong(folder: str, mounts: tuple[Mount, ...]) -> Mount | None:
        return max((mount for mount in mounts if folder.startswith(mount.point)), key=lambda mount: len(mount.point))

    return planted(room, "mount_of", wrong)()


LIES_ON = {
    "/": "ext4",
    "/homestead/x": "ext4",
    "/home": "nfs4",
    "/home/ada/project": "nfs4",
    "/home/ada/local": "xfs",
    "/home/ada/local/deep/er": "xfs",
    "/mnt/a b/x": "fuse.sshfs",
    "/over/x": "tmpfs",
}


@proven_by(by_plain_prefix)
def test_a_folder_lies_on_the_longest_mount_above_it_and_the_last_of_equals() -> None:
    found = {folder: room.mount_of(folder, MOUNTS) for folder in LIES_ON}
    assert {folder: mount and mount.kind for folder, mount in found.items()} == LIES_ON


def test_no_mount_is_no_answer() -> None:
    assert mount_of("/x", ()) is None


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "beegfs", "gpfs"]
)
def test_what_several_machines_mount_is_refused_by_its_type(kind: str) -> None:
    assert network_type(Mount("/", kind, ())) == kind


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "virtiofs", "fuseblk", "nfsd", "f2fs"]
)
def test_what_one_machine_mounts_is_local(kind: str) -> None:
    assert network_type(Mount("/", kind, ("rw",))) is None


def test_nine_p_is_refused_only_over_a_network() -> None:
    kinds = {mount.point: network_type(mount) for mount in MOUNTS if mount.kind == "9p"}
    assert kinds == {"/9p": "9p over a network", "/sandbox": None}


def test_the_mount_of_a_real_folder_and_of_one_that_is_not_there_yet(tmp_path: Path) -> None:
    here = mount_under(tmp_path)
    assert here is not None
    assert mount_under(tmp_path / "not" / "yet") == here
    (tmp_path / "link").symlink_to("/proc")
    linked = mount_under(tmp_path / "link")
    assert linked is not None
    assert linked.kind == "proc"
