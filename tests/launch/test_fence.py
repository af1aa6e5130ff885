"""A stopped supervisor or child that wakes up after a relaunch never becomes a second trainer."""

import fcntl
import os
import signal
import struct
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.files import durable, locks, procfs
from countermark.files.attempt_folder import ReceiptRead, read_fenced, read_start
from countermark.launch import local
from countermark.launch.local import Dispatched, DispatchUnknown, Fenced, FenceFailed, FenceHeldOff
from countermark.wire.receipts import Cancelled, Failed, NotExecuted, Succeeded
from tests.faults import planted, proven_by
from tests.launch.conftest import NONCE, Place
from tests.launch.planting import in_supervisor


def frozen_pid(place: Place) -> int:
    """The pid of the process that froze itself: the supervisor, or its one child."""
    supervisor = place.supervisor_pid()
    below = [row.pid for row in procfs.descendants(supervisor, procfs.processes())]
    frozen = [pid for pid in (supervisor, *below) if (row := procfs.read_stat(pid)) is not None and row.stopped]
    return frozen[0] if frozen else 0


@pytest.mark.parametrize("step", ["start written", "child begun"])
@proven_by(in_supervisor("fence_is_not_checked"))
def test_frozen_before_the_lock_then_fenced_it_never_becomes_command(place: Place, step: str) -> None:
    controller = place.begin_controller(place.order(), options=("--at", step, "--act", "freeze_self"))
    place.wait(lambda: (place.folder() / "start.json").exists() and frozen_pid(place))
    assert place.launcher().fence(NONCE) == Fenced()
    assert isinstance(read_fenced(place.folder()), ReceiptRead)
    os.kill(frozen_pid(place), signal.SIGCONT)
    terminal = place.terminal()
    assert controller.communicate(timeout=20)[0].startswith("Dispatched")
    assert place.runs() == 0
    assert (terminal.outcome, terminal.main) == (Cancelled(), NotExecuted(125, "a relaunch fenced this attempt"))


def fence_takes_no_lock() -> AbstractContextManager[object]:
    return planted(local.locks, "take_fence", lambda descriptor: True)()


@pytest.mark.parametrize("step", ["locked", "process written", "fence checked"])
@proven_by(fence_takes_no_lock)
def test_frozen_with_the_lock_it_cannot_be_fenced_and_goes_on_as_the_one_trainer(place: Place, step: str) -> None:
    """Past the check of the fence, only the lock stands between a frozen child and a second trainer."""
    place.launcher("--at", step, "--act", "freeze_self").dispatch(place.order())
    place.wait(lambda: frozen_pid(place))
    assert place.launcher().fence(NONCE) == FenceHeldOff()
    assert not (place.folder() / "fenced").exists()
    os.kill(frozen_pid(place), signal.SIGCONT)
    assert place.terminal().outcome == Succeeded()
    assert place.runs() == 1


@proven_by(in_supervisor("fence_is_not_checked"))
def test_frozen_before_the_start_then_fenced_the_supervisor_starts_and_its_child_never_becomes_command(place: Place) -> None:
    """It could have been past a look at the fence, too: only the exclusive start says who was first, and nothing was refused."""
    controller = place.begin_controller(place.order(), options=("--at", "begun", "--act", "freeze_self"))
    place.wait(lambda: frozen_supervisors(place))
    assert place.launcher().fence(NONCE) == Fenced()
    (frozen,) = frozen_supervisors(place)
    os.kill(frozen, signal.SIGCONT)
    assert controller.communicate(timeout=20)[0].startswith("Dispatched Dispatched(")
    assert isinstance(read_start(place.folder()), ReceiptRead)
    terminal = place.terminal()
    assert (terminal.outcome, terminal.main) == (Cancelled(), NotExecuted(125, "a relaunch fenced this attempt"))
    assert place.runs() == 0


def test_a_dispatch_that_gave_up_on_a_frozen_supervisor_is_unknown_until_the_start_is_there(place: Place) -> None:
    """Whoever dispatched is gone when the supervisor wakes up; it goes on all the same, and once."""
    launcher = place.launcher("--at", "begun", "--act", "freeze_self", start_timeout_s=3)
    assert launcher.dispatch(place.order()) == DispatchUnknown("the supervisor said nothing for 3 s")
    (frozen,) = frozen_supervisors(place)
    os.kill(frozen, signal.SIGCONT)
    assert place.terminal().outcome == Succeeded()
    assert place.launcher().dispatch(place.order()) == Dispatched("already started")
    assert place.runs() == 1


def frozen_supervisors(place: Place) -> list[int]:
    return [row.pid for row in procfs.processes() if row.stopped and _is_supervisor_of(row.pid, place)]


def _is_supervisor_of(pid: int, place: Place) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return os.fsencode(place.folder()) in line.read().split(b"\0")
    except OSError:
        return False


def test_a_fenced_claim_ends_at_once_and_a_fence_stands_for_ever(place: Place) -> None:
    launcher = place.launcher()
    assert launcher.fence(NONCE) == Fenced()
    first = (place.folder() / "fenced").read_bytes()
    assert launcher.fence(NONCE) == Fenced()
    assert (place.folder() / "fenced").read_bytes() == first
    assert launcher.dispatch(place.order()) == Dispatched("started")
    assert (place.terminal().outcome, place.runs()) == (Cancelled(), 0)
    assert launcher.dispatch(place.order()) == Dispatched("already started")


def test_a_live_attempt_is_not_fenced_and_an_ended_one_is(place: Place) -> None:
    place.launcher().dispatch(place.order("sleep 0.5"))
    place.wait(lambda: place.runs() == 1)
    assert place.launcher().fence(NONCE) == FenceHeldOff()
    place.terminal()
    assert place.launcher().fence(NONCE) == Fenced()


def test_a_fence_that_cannot_be_put_up_says_so(place: Place) -> None:
    (place.root / "attempts").write_text("a file in the way")
    result = place.launcher().fence(NONCE)
    assert isinstance(result, FenceFailed)
    assert "cannot be put up" in result.why


def fence_lets_go_early() -> AbstractContextManager[object]:
    """The fault: the lock is looked at, and free again before the fence is up."""
    honest = local.locks.take_fence

    def looked_at(descriptor: int) -> bool:
        free = honest(descriptor)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
        return free

    return planted(local.locks, "take_fence", looked_at)()


@proven_by(fence_lets_go_early, fence_takes_no_lock)
def test_nobody_takes_the_lock_between_the_look_at_it_and_the_fence(place: Place) -> None:
    """A child that took it there would have looked for the fence before it was up."""
    taken: list[bool] = []
    honest = durable.write_new

    def write(path: Path, data: bytes) -> None:
        descriptor = locks.open_lock(path.parent / "lock")
        taken.append(locks.take_lock(descriptor))
        os.close(descriptor)
        honest(path, data)
        descriptor = locks.open_lock(path.parent / "lock")
        taken.append(locks.take_lock(descriptor))
        os.close(descriptor)

    with planted(durable, "write_new", write)():
        assert place.launcher().fence(NONCE) == Fenced()
    assert taken == [False, False]


@proven_by(in_supervisor("lock_is_not_waited_for"))
def test_a_child_waits_for_whoever_holds_the_lock_for_a_moment(place: Place) -> None:
    descriptor = held(place)
    assert place.launcher().dispatch(place.order()) == Dispatched("started")
    time.sleep(0.3)
    assert place.runs() == 0
    os.close(descriptor)
    assert (place.terminal().outcome, place.runs()) == (Succeeded(), 1)


@proven_by(in_supervisor("lock_is_not_taken"))
def test_a_child_that_never_gets_the_lock_never_becomes_command(place: Place) -> None:
    """Whoever holds it may be the attempt's trainer, and goes on alone."""
    descriptor = held(place)
    place.launcher("--plant", "lock_is_not_waited_for").dispatch(place.order())
    terminal = place.terminal()
    os.close(descriptor)
    assert (terminal.outcome, terminal.main) == (Failed(125), NotExecuted(125, "the attempt's lock is held by somebody else"))
    assert place.runs() == 0


def held(place: Place) -> int:
    """The attempt's lock, held by a descriptor of this process."""
    place.folder().mkdir(parents=True)
    descriptor = locks.open_lock(place.folder() / "lock")
    assert locks.take_lock(descriptor)
    return descriptor


def test_the_fence_lets_go_of_the_lock(place: Place) -> None:
    place.launcher().fence(NONCE)
    assert locks.probe_lock(place.folder() / "lock") == locks.LockFree()
