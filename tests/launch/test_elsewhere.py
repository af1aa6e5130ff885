"""Attempts on a real disk that is full, and in a real pid namespace of their own. Both need rights that not every machine gives."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from countermark.files import procfs
from countermark.launch.local import LocalLauncher
from countermark.launch.stopping import Stopped, StopPending
from countermark.observe.processes import Alive, ProcessRefused, read_process
from countermark.wire.receipts import Cancelled, Succeeded
from tests.launch.conftest import NONCE, Place


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_command_that_fills_the_disk_gets_its_terminal_when_there_is_room_again(small_disk: Path) -> None:
    place = Place(small_disk)
    place.launcher().dispatch(place.order("echo before; cat /dev/zero > filler; exit 0"))
    place.wait(lambda: (small_disk / "filler").exists() and procfs.read_stat(place.trainer_pid()) is None)
    time.sleep(0.5)
    names = {path.name for path in place.folder().iterdir()}
    assert [name for name in names if name == "terminal.json" or name.startswith(".tmp")] == []
    (small_disk / "filler").unlink()
    assert place.terminal().outcome == Succeeded()
    place.wait(lambda: "the receipt was written after" in place.log())
    assert place.log().startswith("before\n")


@pytest.fixture
def namespaced(place: Place) -> LocalLauncher:
    """A launcher whose supervisors live in a pid namespace of their own, as in a container that shares the folder."""
    entering = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*entering, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not make a pid namespace")
    # The first process of a namespace takes all others with it: it must stay.
    init = "import subprocess, sys, time; code = subprocess.run(sys.argv[1:]).returncode; time.sleep(3); sys.exit(code)"
    return LocalLauncher(place.root / "attempts", supervisor=(*entering, sys.executable, "-c", init, *place.driver()))


def test_an_attempt_in_another_pid_namespace_is_seen_by_its_lock_and_stopped_by_its_record(place: Place, namespaced: LocalLauncher) -> None:
    dispatching = threading.Thread(target=namespaced.dispatch, args=[place.order("sleep 30")])
    dispatching.start()
    place.wait(lambda: place.runs() == 1)
    here = procfs.pid_namespace()
    alive = read_process(place.folder())
    assert isinstance(alive, Alive)
    assert alive.sign == "lock"
    assert alive.process is not None
    assert alive.process.process.pid_namespace != here
    assert namespaced.stop(NONCE, 2) == Stopped()
    assert place.terminal().outcome == Cancelled()
    refused = read_process(place.folder())
    assert isinstance(refused, ProcessRefused)
    assert f"this observer in {here}" in refused.why
    dispatching.join()


def test_a_namespace_that_died_with_its_supervisor_is_not_called_dead(place: Place, namespaced: LocalLauncher) -> None:
    """The lock is free and nobody can look for what closed it: refused, and a stop says that it cannot know."""
    dispatching = threading.Thread(target=namespaced.dispatch, args=[place.order("sleep 30")])
    dispatching.start()
    place.wait(lambda: place.runs() == 1)
    # The end of a namespace's first process ends them all. Seen from outside it is the first of ours in another namespace.
    here = os.readlink("/proc/self/ns/pid")
    inside = [row for row in procfs.descendants(os.getpid(), procfs.processes()) if _namespace_of(row.pid) not in ("", here)]
    first = min(inside, key=lambda row: row.start_ticks)
    assert procfs.signal_exactly(first.pid, first.start_ticks, signal.SIGKILL)
    dispatching.join()
    place.wait(lambda: isinstance(read_process(place.folder()), ProcessRefused))
    assert not (place.folder() / "terminal.json").exists()
    assert isinstance(namespaced.stop(NONCE, 0), StopPending)


def _namespace_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
