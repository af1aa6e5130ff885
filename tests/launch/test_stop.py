"""Stopping real trainers: obedient, deaf, forked away, without a supervisor; and never a stranger with a reused pid."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from countermark.files import boots, durable, locks, procfs
from countermark.files.attempt_folder import ReceiptAbsent, ReceiptRead, read_process_receipt, read_terminal
from countermark.files.locks import LockFree, probe_lock
from countermark.launch import stopping
from countermark.launch.stopping import NothingToStop, StopFailed, Stopped, StopPending
from countermark.wire.receipts import Cancelled, Exited, NotExecuted, ProcessReceipt, Signalled, StartReceipt, encode
from tests.faults import planted, proven_by
from tests.launch.conftest import NONCE, Place
from tests.launch.planting import in_supervisor

#: COMMAND that ignores SIGTERM, and whose children do so, too.
DEAF = "trap '' TERM; while :; do sleep 0.2; done"
#: COMMAND that leaves a deaf process in a session of its own and ends.
FORKS_AND_EXITS = f'setsid sh -c "echo x >> ../../away; {DEAF}" & exit 0'


def running(place: Place, script: str, *options: str) -> None:
    place.launcher(*options).dispatch(place.order(script))
    place.wait(lambda: place.runs() == 1)


def kill_supervisor(place: Place) -> None:
    pid = place.supervisor_pid()
    os.kill(pid, signal.SIGKILL)
    place.wait(lambda: (row := procfs.read_stat(pid)) is None or row.ended)


def test_an_obedient_trainer_ends_in_its_own_way_and_is_cancelled(place: Place) -> None:
    running(place, "trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done")
    assert place.launcher().stop(NONCE, 10) == Stopped()
    terminal = place.terminal()
    assert (terminal.outcome, terminal.main) == (Cancelled(), Exited(0))
    assert "saved" in place.log()


@proven_by(in_supervisor("no_kill_after_grace"))
def test_a_deaf_trainer_is_killed_after_the_grace(place: Place) -> None:
    running(place, DEAF)
    began = time.monotonic()
    with patch.object(stopping, "_AFTER_GRACE_S", 1.0):
        assert place.launcher().stop(NONCE, 0.5) == Stopped()
    assert time.monotonic() - began >= 0.5
    terminal = place.terminal()
    assert (terminal.outcome, terminal.main) == (Cancelled(), Signalled(9))


@proven_by(in_supervisor("no_subreaper"))
def test_who_forked_away_is_killed_too_and_the_outcome_stays_that_of_the_main_process(place: Place) -> None:
    running(place, f"cd $COUNTERMARK_ATTEMPT; {FORKS_AND_EXITS}")
    place.wait((place.root / "away").exists)
    # Long enough for a supervisor that takes the end of the main process for the attempt's.
    place.wait(lambda: procfs.read_stat(place.trainer_pid()) is None)
    time.sleep(0.5)
    assert not (place.folder() / "terminal.json").exists()
    with patch.object(stopping, "_AFTER_GRACE_S", 1.0):
        assert place.launcher().stop(NONCE, 0.3) == Stopped()
    # It had ended by itself before anybody asked.
    assert place.terminal().main == Exited(0)
    assert probe_lock(place.folder() / "lock") == LockFree()


@proven_by(in_supervisor("stop_is_not_seen"))
def test_a_recorded_stop_needs_no_signal(place: Place) -> None:
    running(place, "sleep 30")
    nobody = procfs.this_process()
    request = stopping.StopReceipt(1, NONCE, 100, nobody, 0)
    (place.folder() / "stop.json").write_bytes(encode(request))
    assert place.terminal().outcome == Cancelled()


def test_sigterm_at_the_supervisor_ends_the_trainer_by_its_own_signal(place: Place) -> None:
    running(place, "sleep 30")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(place.supervisor_pid(), number)
    terminal = place.terminal()
    assert terminal.main == Signalled(15)


@pytest.mark.parametrize("script", ["sleep 30", DEAF, f"cd $COUNTERMARK_ATTEMPT; {FORKS_AND_EXITS}"])
def test_without_its_supervisor_the_trainer_is_stopped_from_here(place: Place, script: str) -> None:
    running(place, script)
    if "setsid" in script:
        place.wait((place.root / "away").exists)
    kill_supervisor(place)
    assert place.launcher().stop(NONCE, 0.3) == Stopped()
    assert probe_lock(place.folder() / "lock") == LockFree()
    assert isinstance(read_terminal(place.folder()), ReceiptAbsent)


def test_a_frozen_supervisor_does_not_keep_its_trainer_alive(place: Place) -> None:
    running(place, "sleep 30")
    os.kill(place.supervisor_pid(), signal.SIGSTOP)
    place.wait(lambda: (row := procfs.read_stat(place.supervisor_pid())) is not None and row.stopped)
    assert place.launcher().stop(NONCE, 0.2) == Stopped()
    os.kill(place.supervisor_pid(), signal.SIGCONT)
    assert place.terminal().outcome == Cancelled()


def test_a_stop_before_the_start_ends_a_late_start_at_once(place: Place) -> None:
    place.folder().mkdir(parents=True)
    assert place.launcher().stop(NONCE, 1) == NothingToStop()
    place.launcher().dispatch(place.order())
    terminal = place.terminal()
    assert (terminal.outcome, terminal.main) == (Cancelled(), NotExecuted(125, "the attempt was stopped before COMMAND began"))
    assert place.runs() == 0


def test_a_stop_without_a_folder_fails_aloud(place: Place) -> None:
    assert isinstance(place.launcher().stop(NONCE, 1), StopFailed)


def no_room(*asked: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@proven_by(planted(procfs, "signal_exactly", lambda pid, start_ticks, number: True))
def test_where_the_request_cannot_be_written_the_supervisor_is_told_by_a_signal(place: Place) -> None:
    running(place, "sleep 30")
    with planted(durable, "write_new", no_room)(), patch.object(stopping, "_AFTER_GRACE_S", 1.0):
        assert place.launcher().stop(NONCE, 1) == Stopped()
    assert not (place.folder() / "stop.json").exists()
    assert place.terminal().main == Signalled(15)


# ----------------------------------------------------------------------------------------------------- never a stranger


@contextmanager
def a_stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has nothing to do with any attempt."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def pid_alone() -> AbstractContextManager[object]:
    """The fault: a process is its pid."""

    def row(pid: int) -> object:
        found = read(pid)
        if not CURRENT:
            # Somebody else reads the table, before the test has its receipt.
            return found
        receipt = CURRENT[0]
        return (
            None if found is None else procfs.ProcessStat(pid, found.state, found.parent, found.group, found.session, receipt.start_ticks)
        )

    read, table = procfs.read_stat, procfs.processes

    @contextmanager
    def fault() -> Iterator[None]:
        with (
            patch.object(procfs, "read_stat", row),
            patch.object(procfs, "processes", lambda: [row(found.pid) or found for found in table()]),
        ):
            yield

    return fault()


CURRENT: list[procfs.ProcessIdentity] = []


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("change", ["start_ticks", "boot_id", "pid_namespace", "host"])
def test_a_reused_pid_is_never_signalled(place: Place, change: str, recorded: bool) -> None:
    """The receipts name the stranger's pid, and one other thing that is not the stranger's."""
    with a_stranger() as stranger:
        row = procfs.read_stat(stranger.pid)
        assert row is not None
        named = msgspec.structs.replace(procfs.this_process(), pid=stranger.pid, start_ticks=row.start_ticks)
        other = {
            "start_ticks": named.start_ticks - 1,
            "boot_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12,
            "pid_namespace": 1,
            "host": "elsewhere",
        }
        _write_receipts(place, msgspec.structs.replace(named, **{change: other[change]}))
        with patch.object(stopping, "_AFTER_GRACE_S", 0.3), nullcontext() if recorded else planted(durable, "write_new", no_room)():
            result = place.launcher().stop(NONCE, 0.1)
        time.sleep(0.05)
        assert stranger.poll() is None
        expected = {"start_ticks": Stopped, "boot_id": Stopped, "pid_namespace": StopPending, "host": StopPending}
        assert isinstance(result, expected[change])


@proven_by(pid_alone)
def test_a_pid_with_another_start_time_is_another_process(place: Place) -> None:
    with a_stranger() as stranger:
        row = procfs.read_stat(stranger.pid)
        assert row is not None
        named = msgspec.structs.replace(procfs.this_process(), pid=stranger.pid, start_ticks=row.start_ticks - 1)
        CURRENT[:] = [named]
        _write_receipts(place, named, dead_supervisor=True)
        with patch.object(stopping, "_AFTER_GRACE_S", 0.3):
            place.launcher().stop(NONCE, 0.1)
        time.sleep(0.1)
        assert stranger.poll() is None


def the_trainers_place_is_not_asked() -> AbstractContextManager[object]:
    """The fault: a trainer is looked for here because its supervisor was here."""
    honest = stopping.read_process_receipt

    def moved(folder: Path) -> object:
        found, here = honest(folder), procfs.this_process()
        if not isinstance(found, ReceiptRead):
            return found
        places = {"host": here.host, "boot_id": here.boot_id, "pid_namespace": here.pid_namespace}
        named = msgspec.structs.replace(found.receipt.process, **places)
        return ReceiptRead(msgspec.structs.replace(found.receipt, process=named))

    return planted(stopping, "read_process_receipt", moved)()


@pytest.mark.parametrize(
    "elsewhere",
    [{"host": "elsewhere"}, {"boot_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12}, {"pid_namespace": 1}],
    ids=lambda each: next(iter(each)),
)
@proven_by(the_trainers_place_is_not_asked)
def test_a_trainer_of_another_place_is_not_looked_for_in_this_one(place: Place, elsewhere: dict[str, Any]) -> None:
    """The supervisor was here and is dead; pid and start time of what it started are a stranger's here."""
    with a_stranger() as stranger:
        row = procfs.read_stat(stranger.pid)
        assert row is not None
        named = msgspec.structs.replace(procfs.this_process(), pid=stranger.pid, start_ticks=row.start_ticks)
        _write_receipts(place, named, dead_supervisor=True)
        away = ProcessReceipt(1, NONCE, msgspec.structs.replace(named, **elsewhere), 0)
        (place.folder() / "process.json").write_bytes(encode(away))
        descriptor = locks.open_lock(place.folder() / "lock")
        assert locks.take_lock(descriptor), "so that somebody is still looked for"
        with patch.object(stopping, "_AFTER_GRACE_S", 0.1):
            place.launcher().stop(NONCE, 0.05)
        os.close(descriptor)
        time.sleep(0.05)
        assert stranger.poll() is None


def another_boot_is_an_earlier_one() -> AbstractContextManager[object]:
    return planted(stopping, "may_live_elsewhere", lambda folder, lock: None)()


@proven_by(another_boot_is_an_earlier_one)
def test_another_machine_of_this_name_is_not_said_to_be_stopped(place: Place) -> None:
    """On a disk of this machine alone, with nothing held, another boot is an earlier one."""
    away = msgspec.structs.replace(procfs.this_process(), pid=2**22, start_ticks=1, boot_id="0" * 8 + "-0000-0000-0000-" + "0" * 12)
    _write_receipts(place, away)
    descriptor = locks.open_lock(place.folder() / "lock")
    said: dict[tuple[str, bool], type] = {}
    for held in (False, True):
        assert not held or locks.take_lock(descriptor)
        for system in ("ext4", "nfs4"):
            with planted(boots, "file_system_of", lambda path: system)():  # noqa: B023
                said[system, held] = type(place.launcher().stop(NONCE, 0.1))
    os.close(descriptor)
    assert said == {("ext4", False): Stopped, ("nfs4", False): StopPending, ("ext4", True): StopPending, ("nfs4", True): StopPending}


def test_the_same_receipt_with_the_right_start_time_is_signalled(place: Place) -> None:
    """The positive control: the receipts do lead to the process."""
    with a_stranger() as process:
        row = procfs.read_stat(process.pid)
        assert row is not None
        named = msgspec.structs.replace(procfs.this_process(), pid=process.pid, start_ticks=row.start_ticks)
        _write_receipts(place, named, dead_supervisor=True)
        with patch.object(stopping, "_AFTER_GRACE_S", 0.3):
            place.launcher().stop(NONCE, 0.1)
        assert process.wait(5) == -15


def _write_receipts(place: Place, named: procfs.ProcessIdentity, dead_supervisor: bool = False) -> None:
    place.folder().mkdir(parents=True)
    (place.folder() / "lock").touch()
    supervisor = msgspec.structs.replace(named, pid=2**22, start_ticks=1) if dead_supervisor else named
    (place.folder() / "start.json").write_bytes(encode(StartReceipt(1, NONCE, supervisor, 0)))
    (place.folder() / "process.json").write_bytes(encode(ProcessReceipt(1, NONCE, named, 0)))
    assert isinstance(read_process_receipt(place.folder()), ReceiptRead)


def test_an_observer_and_a_fence_that_have_the_lock_open_are_no_members(place: Place) -> None:
    """Both hold descriptors of the lock file, the fence even the lock: neither is the attempt's."""
    running(place, "exit 0")
    place.terminal()
    named = read_process_receipt(place.folder())
    assert isinstance(named, ReceiptRead)
    holder = "import sys, time; from pathlib import Path; from countermark.files import locks; d = locks.open_lock(Path(sys.argv[1])); "
    holder += "print(locks.take_lock(d), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holder, str(place.folder() / "lock")], stdout=subprocess.PIPE) as fence:
        try:
            assert fence.stdout is not None
            assert fence.stdout.readline() == b"True\n"
            assert locks.holds_lock(fence.pid, place.folder() / "lock")
            with patch.object(stopping, "_AFTER_GRACE_S", 0.3):
                assert isinstance(place.launcher().stop(NONCE, 0.1), StopPending)
            assert fence.poll() is None
        finally:
            fence.kill()
