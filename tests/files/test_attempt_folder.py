"""An attempt's folder: absent, read and refused are three answers."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.files import attempt_folder
from countermark.files.attempt_folder import file_system_in, file_system_of, present, read_bounded
from countermark.values import Unreadable
from tests.faults import planted, proven_by

MOUNTS = """\
21 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 21 0:27 / /mnt/shared rw,relatime shared:5 - nfs4 server:/export rw,vers=4.2
31 21 0:28 / /mnt/dash\\040name rw - tmpfs none rw
torn line
"""


def test_a_small_file_is_read_whole_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    assert read_bounded(tmp_path / "a", 4) == Unreadable("it has 5 bytes; 4 are the most")
    assert read_bounded(tmp_path / "b", 5) is None
    assert read_bounded(tmp_path / "nowhere" / "b", 5) is None
    assert isinstance(read_bounded(tmp_path / "a" / "b", 5), Unreadable)


def listing_is_not_asked() -> AbstractContextManager[object]:
    return planted(attempt_folder, "_listed", lambda path: False)()


@proven_by(listing_is_not_asked)
def test_a_listing_that_disagrees_is_no_absence(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")

    def missing(path: object, flags: int) -> int:
        raise FileNotFoundError(2, "No such file or directory")

    with planted(attempt_folder.os, "open", missing)():
        found = read_bounded(tmp_path / "a", 5)
    assert found == Unreadable("the folder lists it and it cannot be opened: the reads disagree")


def test_what_appears_between_opening_and_listing_is_read(tmp_path: Path) -> None:
    """A receipt that is created meanwhile is no disagreement."""
    really_open = os.open
    calls: list[int] = []

    def late(path: Path, flags: int) -> int:
        calls.append(1)
        if len(calls) == 1:
            (tmp_path / "a").write_bytes(b"x")
            raise FileNotFoundError(2, "No such file or directory")
        return really_open(path, flags)

    with planted(attempt_folder.os, "open", late)():
        assert read_bounded(tmp_path / "a", 5) == b"x"


@proven_by(planted(attempt_folder, "NETWORK_FILE_SYSTEMS", frozenset[str]()))
@pytest.mark.parametrize("system", ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs"])
def test_on_a_network_file_system_absence_is_never_said(tmp_path: Path, system: str) -> None:
    with planted(attempt_folder, "file_system_of", lambda path: system)():
        found = read_bounded(tmp_path / "a", 5)
        assert isinstance(found, Unreadable)
        assert system in found.why
        (tmp_path / "a").write_bytes(b"x")
        assert read_bounded(tmp_path / "a", 5) == b"x"


def test_the_file_system_is_found_in_the_mount_table(tmp_path: Path) -> None:
    assert [file_system_in(MOUNTS, device) for device in ("254:0", "0:27", "0:28", "9:9")] == ["ext4", "nfs4", "tmpfs", ""]
    assert file_system_of(Path("/proc")) == "proc"
    assert file_system_of(tmp_path) not in attempt_folder.NETWORK_FILE_SYSTEMS


def test_presence_is_the_name_whatever_bears_it(tmp_path: Path) -> None:
    assert not present(tmp_path, "fenced")
    assert not present(tmp_path / "nowhere", "fenced")
    (tmp_path / "fenced").symlink_to("dangling")
    assert present(tmp_path, "fenced")
