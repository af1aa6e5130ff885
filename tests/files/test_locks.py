"""Locks of open file descriptions: inherited, probed without being taken, gone with the last holder."""

import fcntl
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest

from countermark.files import locks
from countermark.files.locks import LockAbsent, LockFree, LockHeld, LockUnreadable, holds_lock, open_lock, probe_lock, take_fence, take_lock
from tests.faults import planted, proven_by


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def locks_of_the_process() -> AbstractContextManager[object]:
    """The fault: the old kind of lock, which belongs to a process and ends when it closes any descriptor of the file."""
    old = {"F_OFD_GETLK": fcntl.F_GETLK, "F_OFD_SETLK": fcntl.F_SETLK}
    return planted(locks, "fcntl", SimpleNamespace(**{**vars(fcntl), **old}))()


@proven_by(locks_of_the_process)
def test_a_lock_is_exclusive_and_seen_from_the_same_process(path: Path) -> None:
    first, second = open_lock(path), open_lock(path)
    assert probe_lock(path) == LockFree()
    assert (take_lock(first), take_lock(second), probe_lock(path)) == (True, False, LockHeld())
    os.close(os.open(path, os.O_RDONLY))
    assert probe_lock(path) == LockHeld()
    os.close(first)
    assert (probe_lock(path), take_lock(second)) == (LockFree(), True)
    os.close(second)


def fences_like_a_trainer() -> AbstractContextManager[object]:
    """The fault: a fence locks all of the file, so a look takes it for a trainer that lives."""
    return planted(locks, "_FENCE", locks._ALL)()


@proven_by(fences_like_a_trainer)
def test_a_fence_shuts_the_trainer_out_and_looks_like_none(path: Path) -> None:
    trainer, fence, other = (open_lock(path) for _ in range(3))
    try:
        assert (take_fence(fence), probe_lock(path)) == (True, LockFree())
        assert (take_lock(trainer), take_fence(other)) == (False, False)
        os.close(fence)
        assert (take_lock(trainer), take_fence(other), probe_lock(path)) == (True, False, LockHeld())
    finally:
        os.close(trainer)
        os.close(other)


def test_whoever_inherits_the_descriptor_holds_the_lock(path: Path) -> None:
    descriptor = open_lock(path)
    assert take_lock(descriptor)
    with subprocess.Popen(["sleep", "30"], pass_fds=[descriptor]) as heir:
        os.close(descriptor)
        try:
            assert probe_lock(path) == LockHeld()
            assert holds_lock(heir.pid, path)
        finally:
            heir.kill()
    assert probe_lock(path) == LockFree()


def test_a_probe_and_an_open_file_are_no_holders(path: Path) -> None:
    descriptor = open_lock(path)
    assert not holds_lock(os.getpid(), path)
    assert take_lock(descriptor)
    assert holds_lock(os.getpid(), path)
    os.close(descriptor)
    assert not holds_lock(os.getpid(), path)
    assert not holds_lock(2**22, path)
    assert not holds_lock(os.getpid(), path.with_name("nowhere"))


def test_a_probe_by_another_process_does_not_take_what_it_asks_about(path: Path) -> None:
    code = "import sys, pathlib; from countermark.files.locks import probe_lock; print(probe_lock(pathlib.Path(sys.argv[1])))"
    descriptor = open_lock(path)
    assert take_lock(descriptor)
    assert subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout == "LockHeld()\n"
    os.close(descriptor)
    assert subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout == "LockFree()\n"


def test_what_is_no_lock_file_is_absent_or_unreadable(path: Path) -> None:
    assert probe_lock(path) == LockAbsent()
    assert probe_lock(path / "deeper") == LockAbsent()
    path.symlink_to("elsewhere")
    assert isinstance(probe_lock(path), LockUnreadable)
    path.unlink()
    path.mkdir()
    assert probe_lock(path) == LockUnreadable("lock is no regular file")
    path.rmdir()
    os.mkfifo(path)
    assert probe_lock(path) == LockUnreadable("lock is no regular file")
    assert not path.with_name("elsewhere").exists()
