"""Readings of an attempt's processes, from receipts made by hand and from real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from countermark.files import boots, locks, procfs
from countermark.files.attempt_folder import ReceiptAbsent, ReceiptRead, ReceiptRefused
from countermark.files.procfs import descendants
from countermark.observe import processes
from countermark.observe.processes import (
    Alive,
    Dead,
    NeverStarted,
    OnAnotherHost,
    ProcessRefused,
    Settling,
    read_process,
    read_start,
    read_terminal,
)
from countermark.wire.receipts import Exited, ProcessIdentity, ProcessReceipt, StartReceipt, Succeeded, TerminalReceipt, encode
from tests.faults import planted, proven_by

NONCE = "0123456789abcdef" * 2
OTHER = "f" * 32
OTHER_BOOT = "01234567-89ab-cdef-0123-456789abcdef"


@dataclass
class Folder:
    """An attempt's folder made by hand. Its receipts name processes that are long gone unless told otherwise."""

    path: Path

    def write(self, start: dict[str, Any] | None = None, process: dict[str, Any] | None = None, attempt: str = NONCE) -> tuple[Any, Any]:
        here = procfs.this_process()
        gone = msgspec.structs.replace(here, pid=2**22, start_ticks=1)
        supervisor = msgspec.structs.replace(gone, **(start or {}))
        trainer = msgspec.structs.replace(gone, **(process or {}))
        receipts = StartReceipt(1, attempt, supervisor, 0), ProcessReceipt(1, attempt, trainer, 0)
        (self.path / "start.json").write_bytes(encode(receipts[0]))
        (self.path / "process.json").write_bytes(encode(receipts[1]))
        return receipts

    @contextmanager
    def held(self) -> Iterator[None]:
        """The lock, held on an open file description of its own."""
        descriptor = locks.open_lock(self.path / "lock")
        assert locks.take_lock(descriptor)
        try:
            yield
        finally:
            os.close(descriptor)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    path = tmp_path / NONCE
    path.mkdir()
    (path / "lock").touch()
    return Folder(path)


@contextmanager
def a_process(code: str = "import time; time.sleep(60)") -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-S", "-c", code]) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()


def named(pid: int, **changes: Any) -> dict[str, Any]:
    """What a receipt says of a process that is there now."""
    row = procfs.read_stat(pid)
    assert row is not None
    return {"pid": pid, "start_ticks": row.start_ticks} | changes


def until(what: Any) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lock_is_not_asked() -> AbstractContextManager[object]:
    return planted(processes.locks, "probe_lock", lambda path: locks.LockFree())()


def zombies_are_alive() -> AbstractContextManager[object]:
    return planted(procfs.ProcessStat, "ended", property(lambda self: False))()


def the_start_time_is_not_compared() -> AbstractContextManager[object]:
    return planted(processes, "_row", lambda identity: procfs.read_stat(identity.pid))()


# ------------------------------------------------------------------------------------------------------------- the lock


@proven_by(lock_is_not_asked)
def test_who_holds_the_lock_is_alive_with_and_without_a_process_receipt(folder: Folder) -> None:
    start, process = folder.write()
    with folder.held():
        assert read_process(folder.path) == Alive(start, process, "lock")
        (folder.path / "process.json").unlink()
        assert read_process(folder.path) == Alive(start, None, "lock")
    assert read_process(folder.path) == Dead(start, None, "no process was forked")


def test_probing_takes_nothing_and_leaves_nothing(folder: Folder) -> None:
    folder.write()
    for _ in range(3):
        read_process(folder.path)
    with folder.held():
        read_process(folder.path)
    with folder.held():
        pass
    assert sorted(path.name for path in folder.path.iterdir()) == ["lock", "process.json", "start.json"]


@proven_by(zombies_are_alive)
def test_a_zombie_has_the_pid_and_start_time_and_is_dead(folder: Folder) -> None:
    with a_process("") as zombie:
        process = named(zombie.pid)
        until(lambda: (row := procfs.read_stat(zombie.pid)) is not None and row.state == "Z")
        start, receipt = folder.write(process=process)
        assert read_process(folder.path) == Dead(start, receipt, "a zombie is left of it")
        with folder.held():
            assert read_process(folder.path) == Alive(start, receipt, "lock")


@proven_by(the_start_time_is_not_compared)
def test_a_reused_pid_is_another_process(folder: Folder) -> None:
    with a_process() as stranger:
        start, process = folder.write(process=named(stranger.pid, start_ticks=named(stranger.pid)["start_ticks"] - 1))
        assert read_process(folder.path) == Dead(start, process, "its process is gone")
        start, process = folder.write(process=named(stranger.pid))
        assert read_process(folder.path) == Alive(start, process, "process")


def test_a_stopped_trainer_is_alive(folder: Folder) -> None:
    with a_process() as trainer:
        os.kill(trainer.pid, signal.SIGSTOP)
        start, process = folder.write(process=named(trainer.pid))
        assert read_process(folder.path) == Alive(start, process, "process")


# -------------------------------------------------------------------------------------------------------- the supervisor

_WITH_A_CHILD = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)']); import time; time.sleep(60)"
)


def no_descendants() -> AbstractContextManager[object]:
    return planted(procfs, "descendants", lambda ancestor, table: ())()


@proven_by(no_descendants)
def test_a_process_below_the_supervisor_is_alive_though_it_closed_the_lock(folder: Folder) -> None:
    with a_process(_WITH_A_CHILD) as supervisor:
        until(lambda: descendants(supervisor.pid, procfs.processes()))
        below = descendants(supervisor.pid, procfs.processes())
        try:
            start, process = folder.write(start=named(supervisor.pid))
            assert read_process(folder.path) == Alive(start, process, "descendant")
        finally:
            for row in below:
                procfs.signal_exactly(row.pid, row.start_ticks, signal.SIGKILL)


def test_a_supervisor_alone_is_settling_and_a_stopped_one_is_nothing(folder: Folder) -> None:
    with a_process() as supervisor:
        start, process = folder.write(start=named(supervisor.pid))
        assert read_process(folder.path) == Settling(start, process)
        (folder.path / "process.json").unlink()
        assert read_process(folder.path) == Settling(start, None)
        os.kill(supervisor.pid, signal.SIGSTOP)
        until(lambda: (row := procfs.read_stat(supervisor.pid)) is not None and row.stopped)
        assert read_process(folder.path) == Dead(start, None, "no process was forked, and its supervisor is stopped")


# ---------------------------------------------------------------------------------------------------- where nobody can tell


@pytest.mark.parametrize("held", [False, True])
def test_another_host_is_not_looked_at(folder: Folder, held: bool) -> None:
    folder.write(start={"host": "elsewhere"}, process={"host": "elsewhere"})
    if held:
        with folder.held():
            assert read_process(folder.path) == OnAnotherHost("elsewhere")
    assert read_process(folder.path) == OnAnotherHost("elsewhere")
    folder.write(process={"host": "elsewhere"})
    assert read_process(folder.path) == OnAnotherHost("elsewhere")
    folder.write(start={"host": "elsewhere"})
    assert read_process(folder.path) == OnAnotherHost("elsewhere"), "its supervisor may be at work there"


def test_an_earlier_boot_is_dead_whoever_has_the_pid_now(folder: Folder) -> None:
    with a_process() as stranger:
        start, process = folder.write(start=named(stranger.pid, boot_id=OTHER_BOOT), process=named(stranger.pid, boot_id=OTHER_BOOT))
        assert read_process(folder.path) == Dead(start, process, "this host was booted again since")
    folder.write(process={"boot_id": OTHER_BOOT})
    assert read_process(folder.path) == ProcessRefused("start.json and process.json name two boots")


def any_other_boot_is_an_earlier_one() -> AbstractContextManager[object]:
    return planted(processes, "may_live_elsewhere", lambda folder, lock: None)()


@proven_by(any_other_boot_is_an_earlier_one)
def test_another_machine_of_this_name_is_not_taken_for_an_earlier_boot(folder: Folder) -> None:
    """They share the folder. Only on a disk of this machine alone, and with nothing held, is another boot an earlier one."""
    start, process = folder.write(start={"boot_id": OTHER_BOOT}, process={"boot_id": OTHER_BOOT})
    there = "start.json is of another boot"
    held = ProcessRefused(f"the lock is held although {there}: the reads disagree")
    expected: dict[str, object] = {
        "ext4": Dead(start, process, "this host was booted again since"),
        "nfs4": ProcessRefused(f"{there}, and on a nfs4 file system perhaps of another machine of this name"),
        "ceph": ProcessRefused(f"{there}, and on a ceph file system perhaps of another machine of this name"),
    }
    for system, found in expected.items():
        with planted(boots, "file_system_of", lambda path: system)():  # noqa: B023
            assert read_process(folder.path) == found
            with folder.held():
                assert read_process(folder.path) == held


@pytest.mark.parametrize("which", ["start", "process"])
def test_another_pid_namespace_is_refused_unless_the_lock_shows_life(folder: Folder, which: str) -> None:
    start, process = folder.write(**{which: {"pid_namespace": 1}})
    here = procfs.pid_namespace()
    assert read_process(folder.path) == ProcessRefused(f"the attempt is in pid namespace 1, this observer in {here}")
    with folder.held():
        assert read_process(folder.path) == Alive(start, process, "lock")


def unreadable_is_absent() -> AbstractContextManager[object]:
    """The fault that this project is about: what cannot be read is taken for what is not there."""
    read = processes.read_process_receipt
    replacement = lambda folder: ReceiptAbsent() if isinstance(found := read(folder), ReceiptRefused) else found  # noqa: E731
    return planted(processes, "read_process_receipt", replacement)()


@proven_by(unreadable_is_absent)
@pytest.mark.parametrize("content", [b"", b"{", b"null", b"\0" * 500, b"x" * 100_000])
def test_a_torn_process_receipt_is_refused_and_never_absent(folder: Folder, content: bytes) -> None:
    folder.write()
    (folder.path / "process.json").write_bytes(content)
    found = read_process(folder.path)
    assert isinstance(found, ProcessRefused)
    assert found.why.startswith("process.json: ")


@pytest.mark.parametrize("name", ["start.json", "process.json", "terminal.json"])
@pytest.mark.parametrize("kind", ["torn", "pipe", "folder", "link", "dangling link", "giant", "device"])
def test_whatever_stands_in_a_receipts_place_is_refused_quickly(folder: Folder, name: str, kind: str) -> None:
    folder.write()
    path = folder.path / name
    path.unlink(missing_ok=True)
    sound = folder.path / "elsewhere"
    sound.write_bytes(encode(TerminalReceipt(1, NONCE, Succeeded(), Exited(0), 0, 0, "supervisor", procfs.this_process())))
    match kind:
        case "torn":
            path.write_bytes(sound.read_bytes()[:-20])
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(sound)
        case "dangling link":
            path.symlink_to(folder.path / "nowhere")
        case "giant":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case _:
            path.symlink_to("/dev/zero")
    began = time.monotonic()
    found: Any = read_terminal(folder.path) if name == "terminal.json" else read_process(folder.path)
    assert isinstance(found, ReceiptRefused | ProcessRefused)
    assert found.why.startswith(name + ": ")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "gone"])
def test_a_lock_that_cannot_be_asked_is_refused(folder: Folder, kind: str) -> None:
    folder.write()
    path = folder.path / "lock"
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(folder.path / "start.json")
        case _:
            pass
    assert isinstance(read_process(folder.path), ProcessRefused)


def test_a_process_table_that_cannot_be_read_is_refused(folder: Folder) -> None:
    folder.write()

    def fails(pid: int) -> None:
        raise PermissionError(13, "hidden")

    with planted(procfs, "read_stat", fails)():
        found = read_process(folder.path)
    assert isinstance(found, ProcessRefused)
    assert "hidden" in found.why


# -------------------------------------------------------------------------------------------------------- not there at all


def test_without_a_start_nothing_was_started_and_disagreement_is_refused(folder: Folder, tmp_path: Path) -> None:
    assert read_process(tmp_path / OTHER) == NeverStarted()
    assert read_process(folder.path) == NeverStarted()
    with folder.held():
        assert isinstance(read_process(folder.path), ProcessRefused)
    folder.write()
    (folder.path / "start.json").unlink()
    assert read_process(folder.path) == ProcessRefused("there is a process.json and no start.json: the reads disagree")


def test_receipts_are_read_or_absent_and_another_attempts_is_passed_on(folder: Folder) -> None:
    assert (read_start(folder.path), read_terminal(folder.path)) == (ReceiptAbsent(), ReceiptAbsent())
    start, process = folder.write(attempt=OTHER)
    assert read_start(folder.path) == ReceiptRead(start)
    found = read_process(folder.path)
    assert isinstance(found, Dead)
    assert (found.start.attempt, found.process) == (OTHER, process)
    terminal = TerminalReceipt(1, OTHER, Succeeded(), Exited(0), 0, 0, "supervisor", procfs.this_process())
    (folder.path / "terminal.json").write_bytes(encode(terminal))
    assert read_terminal(folder.path) == ReceiptRead(terminal)


def test_the_identity_of_this_process_is_what_the_table_says() -> None:
    mine = procfs.this_process()
    assert isinstance(mine, ProcessIdentity)
    assert mine.pid == os.getpid()
    assert mine.start_ticks == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert os.readlink("/proc/self/ns/pid") == f"pid:[{mine.pid_namespace}]"
