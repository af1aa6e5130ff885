"""What an attempt's folder and the process table show about its processes.

Rules kept here:

1. The lock, not the pid, says alive: it is held by whoever inherited it, a zombie holds nothing, and a reused pid never held it. Probing
   does not take it.
2. A process that closed the lock's descriptor is found by pid *and* start time in the same boot and pid namespace, or below its
   supervisor. Both are positive evidence; neither is needed while the lock is held.
3. "Dead" is said only of this host, and of this pid namespace or an earlier boot. Everything else is another answer, never "none". Where
   several machines share the folder, another boot may be another machine's of the same name.
4. A torn or hostile receipt, an unreadable lock, and receipts that contradict each other are refused with the reason.
5. A receipt that names another attempt is passed on as it is: whose folder it lies in is decided where the claims are known.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from countermark.files import locks, procfs
from countermark.files.attempt_folder import (
    LOCK,
    PROCESS,
    START,
    ReceiptAbsent,
    ReceiptRead,
    ReceiptReading,
    ReceiptRefused,
    read_process_receipt,
    read_start,
    read_terminal,
)
from countermark.files.boots import may_live_elsewhere
from countermark.files.locks import LockAbsent, LockFree, LockHeld, LockReading, LockUnreadable
from countermark.files.procfs import ProcessStat
from countermark.wire.receipts import ProcessIdentity, ProcessReceipt, StartReceipt, TerminalReceipt

__all__ = [
    "Alive",
    "Dead",
    "LifeSign",
    "NeverStarted",
    "OnAnotherHost",
    "ProcessReading",
    "ProcessRefused",
    "ReceiptAbsent",
    "ReceiptRead",
    "ReceiptRefused",
    "Settling",
    "StartReading",
    "TerminalReading",
    "read_process",
    "read_start",
    "read_terminal",
]

TerminalReading = ReceiptReading[TerminalReceipt]
StartReading = ReceiptReading[StartReceipt]

#: What showed life: the lock is held; the trainer's own process; a process below its supervisor.
LifeSign = Literal["lock", "process", "descendant"]


@final
@dataclass(frozen=True, slots=True)
class NeverStarted:
    """There is no start receipt, nothing else either, and nobody holds the lock."""


@final
@dataclass(frozen=True, slots=True)
class Alive:
    """The trainer or a descendant lives. ``process`` is None while the trainer has not written its receipt yet."""

    start: StartReceipt
    process: ProcessReceipt | None
    sign: LifeSign


@final
@dataclass(frozen=True, slots=True)
class Settling:
    """No trainer and no descendant is seen, but the supervisor is at work: a process or the terminal may still come."""

    start: StartReceipt
    process: ProcessReceipt | None


@final
@dataclass(frozen=True, slots=True)
class Dead:
    """The attempt was started and no process of it lives; ``why`` says what was seen instead."""

    start: StartReceipt
    process: ProcessReceipt | None
    why: str


@final
@dataclass(frozen=True, slots=True)
class OnAnotherHost:
    """The attempt's processes are another host's: nobody can look from here."""

    host: str


@final
@dataclass(frozen=True, slots=True)
class ProcessRefused:
    """Somebody looked and could not tell."""

    why: str


ProcessReading = NeverStarted | Alive | Settling | Dead | OnAnotherHost | ProcessRefused


def read_process(folder: Path) -> ProcessReading:
    """The processes of the attempt whose folder this is. Total: whatever lies there, and whatever the process table does."""
    try:
        return _read(folder)
    except (OSError, ValueError, IndexError) as error:
        return ProcessRefused(f"the process table cannot be read: {error}")


def _read(folder: Path) -> ProcessReading:
    # The lock first: what begins afterwards shows in the receipts or in the table.
    lock = locks.probe_lock(folder / LOCK)
    start = read_start(folder)
    process = read_process_receipt(folder)
    if isinstance(start, ReceiptRefused):
        return ProcessRefused(start.why)
    if isinstance(process, ReceiptRefused):
        return ProcessRefused(process.why)
    if isinstance(start, ReceiptAbsent):
        return _without_start(lock, process)
    return _started(folder, lock, start.receipt, process.receipt if isinstance(process, ReceiptRead) else None)


def _without_start(lock: LockReading, process: ReceiptRead[ProcessReceipt] | ReceiptAbsent) -> NeverStarted | ProcessRefused:
    if isinstance(process, ReceiptRead):
        return ProcessRefused(f"there is a {PROCESS} and no {START}: the reads disagree")
    match lock:
        case LockFree() | LockAbsent():
            return NeverStarted()
        case LockHeld():
            return ProcessRefused(f"the lock is held and there is no {START}: a fence is being put up, or a receipt was lost")
        case LockUnreadable(why):
            return ProcessRefused(why)


def _started(folder: Path, lock: LockReading, start: StartReceipt, process: ProcessReceipt | None) -> ProcessReading:
    here = procfs.this_process()
    named = start.supervisor if process is None else process.process
    for host in (named.host, start.supervisor.host):
        if host != here.host:
            return OnAnotherHost(host)
    if named.boot_id != start.supervisor.boot_id:
        return ProcessRefused(f"{START} and {PROCESS} name two boots")
    if named.boot_id != here.boot_id:
        elsewhere = may_live_elsewhere(folder, lock)
        return Dead(start, process, "this host was booted again since") if elsewhere is None else ProcessRefused(elsewhere)
    match lock:
        case LockHeld():
            return Alive(start, process, "lock")
        case LockUnreadable(why):
            return ProcessRefused(why)
        case LockAbsent():
            return ProcessRefused(f"the lock file is gone although there is a {START}: whoever holds it can no longer be seen")
        case LockFree():
            pass
    for namespace in (named.pid_namespace, start.supervisor.pid_namespace):
        if namespace != here.pid_namespace:
            return ProcessRefused(f"the attempt is in pid namespace {namespace}, this observer in {here.pid_namespace}")
    return _by_table(start, process)


def _by_table(start: StartReceipt, process: ProcessReceipt | None) -> Alive | Settling | Dead:
    """What the process table says where the lock is free."""
    supervisor = _row(start.supervisor)
    supervised = supervisor is not None and not supervisor.ended
    why = "no process was forked"
    if process is not None:
        main = _row(process.process)
        if main is not None and not main.ended:
            return Alive(start, process, "process")
        why = "a zombie is left of it" if main is not None else "its process is gone"
        if supervised and any(not row.ended for row in procfs.descendants(start.supervisor.pid, procfs.processes())):
            return Alive(start, process, "descendant")
    if supervisor is None or supervisor.ended:
        return Dead(start, process, why)
    return Dead(start, process, f"{why}, and its supervisor is stopped") if supervisor.stopped else Settling(start, process)


def _row(named: ProcessIdentity) -> ProcessStat | None:
    """The row of exactly this process; None where its pid is free or another process's by now."""
    row = procfs.read_stat(named.pid)
    return row if row is not None and row.start_ticks == named.start_ticks else None
