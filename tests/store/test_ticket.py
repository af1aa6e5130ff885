"""The ticket excludes, is fair to who waits, bounds the wait, and dies with its holder."""

import fcntl
import os
import signal
import struct
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.store import ticket as room
from countermark.store.ticket import Ticket, TicketTimeout
from tests.faults import planted, proven_by


def no_lock() -> AbstractContextManager[object]:
    """Locks that are always had."""
    return planted(room, "_set", lambda descriptor, kind, byte: True)()


def posix_lock() -> AbstractContextManager[object]:
    """Locks of the process instead of the open file: its threads do not exclude each other."""

    def wrong(descriptor: int, kind: int, byte: int) -> bool:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0))
        except OSError:
            return False
        return True

    return planted(room, "_set", wrong)()


@proven_by(no_lock, posix_lock)
def test_one_at_a_time_holds_it_threads_too(tmp_path: Path) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with Ticket(tmp_path / "t", 10):
                with guard:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.002)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def no_door() -> AbstractContextManager[object]:
    """A counter without a queue before it: who leaves takes it again at once."""
    honest = room._set

    def wrong(descriptor: int, kind: int, byte: int) -> bool:
        return True if byte == 0 else honest(descriptor, kind, byte)

    return planted(room, "_set", wrong)()


def turns_before_the_waiter(path: Path) -> int:
    """How often one that writes in a loop has the ticket before one that waits for it."""
    turns, waiting, had = 0, threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        with Ticket(path, 10):
            had.set()

    with Ticket(path, 10):
        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait()
        time.sleep(0.2)
    while not had.is_set() and turns < 400:
        with Ticket(path, 10):
            if not had.is_set():
                turns += 1
                time.sleep(0.004)
    thread.join()
    return turns


@proven_by(no_door)
def test_who_writes_in_a_loop_cannot_starve_who_waits(tmp_path: Path) -> None:
    """The waiter queues while the other holds; between its turns the other may pass once at most. A waiter without a queue is lucky now and
    then, on a busy machine, and never every time."""
    assert max(turns_before_the_waiter(tmp_path / "t") for _ in range(6)) <= 1


def test_a_wait_is_bounded_and_names_the_holder(tmp_path: Path) -> None:
    with Ticket(tmp_path / "t", 1), pytest.raises(TicketTimeout) as caught, Ticket(tmp_path / "t", 0.1):
        pytest.fail("two hold one ticket")
    assert 100 <= caught.value.waited_ms < 1_000
    assert caught.value.holder == str(os.getpid())
    with Ticket(tmp_path / "t", 0) as waited_s:
        assert waited_s < 0.05


def test_who_waited_in_vain_leaves_the_door_free(tmp_path: Path) -> None:
    with Ticket(tmp_path / "t", 1):
        for _ in range(3):
            with pytest.raises(TicketTimeout), Ticket(tmp_path / "t", 0.02):
                pytest.fail("two hold one ticket")
    with Ticket(tmp_path / "t", 0):
        pass


def test_a_killed_holder_leaves_nothing_locked(tmp_path: Path) -> None:
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        with Ticket(tmp_path / "t", 1):
            os.write(told, b"x")
            time.sleep(60)
        os._exit(0)
    assert os.read(ready, 1) == b"x"
    with pytest.raises(TicketTimeout) as caught, Ticket(tmp_path / "t", 0.05):
        pytest.fail("two hold one ticket")
    assert caught.value.holder == str(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with Ticket(tmp_path / "t", 1):
        pass
    os.close(ready)
    os.close(told)


def test_an_exception_inside_gives_it_back(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Ticket(tmp_path / "t", 1):
        raise KeyError
    with Ticket(tmp_path / "t", 0):
        pass


@pytest.mark.parametrize("content", [b"", b"not a number", b"\xff" * 64])
def test_whatever_stands_in_the_file_is_only_a_hint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with Ticket(tmp_path / "t", 1):
        assert (tmp_path / "t").read_bytes()[:20].strip() == str(os.getpid()).encode()
