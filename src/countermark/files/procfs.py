"""The process table, as Linux shows it under ``/proc``, and signals that hit one process only.

Rules kept here:

1. A process is a pid *and* its start ticks: a reading without both names nothing.
2. A signal goes through a pid descriptor whose process was compared after the descriptor was opened, so that a reused pid is never hit.
3. A table that cannot be read is an ``OSError``, never an empty table.
"""

import os
import signal
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.wire.receipts import ProcessIdentity

_PROC: Final = Path("/proc")


@final
@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One row of the process table. ``state`` is the kernel's letter: R, S, D running or waiting, T and t stopped, Z and X ended."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def ended(self) -> bool:
        """Whether only the exit status is left (a zombie has the pid and start time of the process that it was)."""
        return self.state in "ZXx"

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger holds it."""
        return self.state in "Tt"


def parse_stat(text: str) -> ProcessStat:
    """A row from the text of ``/proc/<pid>/stat``; the name in it is the process's own and may hold anything, brackets included."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return ProcessStat(int(head.partition(" ")[0]), fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def read_stat(pid: int) -> ProcessStat | None:
    """The row of a process, or None when there is no such process. Raises ``OSError`` when one exists and cannot be read."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        if process_exists(pid):
            raise PermissionError(f"process {pid} exists and is hidden from the process table") from None
        return None


def process_exists(pid: int) -> bool:
    """Whether the kernel knows the pid at all, asked without the process table."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def processes() -> Iterator[ProcessStat]:
    """Every process of this pid namespace that the table shows; those that end meanwhile are left out."""
    for name in os.listdir(_PROC):
        if name.isdecimal():
            try:
                text = (_PROC / name / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield parse_stat(text)


def descendants(ancestor: int, table: Iterable[ProcessStat]) -> tuple[ProcessStat, ...]:
    """The rows of all processes below ``ancestor``, itself left out, those that ended included."""
    children: dict[int, list[ProcessStat]] = {}
    for row in table:
        children.setdefault(row.parent, []).append(row)
    found: list[ProcessStat] = []
    waiting = [ancestor]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found.extend(below)
        waiting.extend(row.pid for row in below)
    return tuple(found)


def signal_exactly(pid: int, start_ticks: int, number: signal.Signals) -> bool:
    """Send a signal to the process with this pid *and* start time; False when there is none such, or it ended meanwhile."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor holds one process. If the row read now is that of the wanted start time, the descriptor's process is the wanted
        # one: had it ended and the pid been given away, the row would show another start time.
        row = read_stat(pid)
        if row is None or row.start_ticks != start_ticks or row.ended:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """The random name of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def pid_namespace() -> int:
    """The inode of this process's pid namespace: pids mean nothing across two of them."""
    return os.stat(_PROC / "self/ns/pid").st_ino


def host_name() -> str:
    """This machine's name, as receipts carry it."""
    return socket.gethostname() or "localhost"


def this_process() -> ProcessIdentity:
    """The identity of the calling process."""
    row = read_stat(os.getpid())
    if row is None:
        raise FileNotFoundError("this process is not in the process table: /proc belongs to another pid namespace")
    return ProcessIdentity(host_name(), boot_id(), row.pid, row.start_ticks, pid_namespace())
