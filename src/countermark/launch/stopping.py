"""Stopping an attempt from outside its supervisor.

Rules kept here:

1. The request is written durably first: a supervisor acts on it whether or not it can be signalled, and the terminal says "cancelled".
2. While the supervisor lives it does the killing, because it knows its descendants for certain. Where it is dead or stopped, this module
   signals the trainer itself.
3. No process is signalled that is not shown to be the attempt's: the process of the receipt (host, boot, pid namespace, pid *and* start
   time), its descendants, or a holder of the attempt's lock that also has the attempt's session, group or environment. Each signal goes
   through a pid descriptor that was compared after it was opened.
4. "Stopped" is said only when the lock is free and the trainer's process is gone.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files import durable, locks, procfs
from countermark.files.attempt_folder import (
    LOCK,
    STOP,
    TERMINAL,
    ReceiptAbsent,
    ReceiptRead,
    ReceiptRefused,
    present,
    read_process_receipt,
    read_start,
)
from countermark.files.boots import may_live_elsewhere
from countermark.files.procfs import ProcessStat
from countermark.wire.receipts import ProcessIdentity, StopReceipt, encode

_POLL_S: Final = 0.05
#: How long after the grace the last process may take to vanish, in seconds.
_AFTER_GRACE_S: Final = 5.0


@final
@dataclass(frozen=True, slots=True)
class Stopped:
    """No process of the attempt lives."""


@final
@dataclass(frozen=True, slots=True)
class NothingToStop:
    """The attempt never started; the request is recorded, so that a late start ends at once."""


@final
@dataclass(frozen=True, slots=True)
class StopPending:
    """The request is recorded, and a process of the attempt still lives or may live."""

    why: str


@final
@dataclass(frozen=True, slots=True)
class StopFailed:
    """Nothing was signalled, and the request may not be recorded."""

    why: str


StopResult = Stopped | NothingToStop | StopPending | StopFailed


def stop_attempt(folder: Path, grace_s: float) -> StopResult:
    """Record the request, see it carried out, and say whether anything is left after ``grace_s`` and a moment."""
    try:
        mine = procfs.this_process()
        unrecorded = _record(folder, grace_s, mine)
    except OSError as error:
        return StopFailed(f"this process cannot be named: {error.strerror}")
    start = read_start(folder)
    if isinstance(start, ReceiptAbsent):
        return NothingToStop() if unrecorded is None else StopFailed(unrecorded)
    if isinstance(start, ReceiptRefused):
        return StopPending(start.why)
    supervisor = start.receipt.supervisor
    if supervisor.host != mine.host:
        return StopPending(f"the attempt is on {supervisor.host}: its supervisor reads the request there")
    try:
        if supervisor.boot_id != mine.boot_id:
            elsewhere = may_live_elsewhere(folder, locks.probe_lock(folder / LOCK))
            return Stopped() if elsewhere is None else StopPending(elsewhere)
        return _carry_out(folder, supervisor, mine, grace_s, unrecorded)
    except OSError as error:
        return StopPending(f"the process table cannot be read: {error.strerror}")


def _record(folder: Path, grace_s: float, mine: ProcessIdentity) -> str | None:
    """Write the request; why it is not recorded, if it is not."""
    receipt = StopReceipt(1, folder.name, max(0, round(grace_s * 1000)), mine, time.time_ns() // 1_000_000)
    try:
        try:
            durable.write_new(folder / STOP, encode(receipt))
        except FileExistsError:
            # Whoever asked before may have died before this.
            durable.sync_folder(folder)
    except OSError as error:
        return f"the request to stop cannot be written to {folder}: {error.strerror}"
    return None


def _carry_out(folder: Path, supervisor: ProcessIdentity, mine: ProcessIdentity, grace_s: float, unrecorded: str | None) -> StopResult:
    began = time.monotonic()
    reachable = supervisor.pid_namespace == mine.pid_namespace
    if unrecorded is not None and reachable:
        # It cannot read what could not be written; it understands SIGTERM, too.
        procfs.signal_exactly(supervisor.pid, supervisor.start_ticks, signal.SIGTERM)
    asked = False
    while True:
        waited_s = time.monotonic() - began
        supervised = reachable and _works(supervisor)
        if not supervised and not _lives(folder, mine, reachable):
            return Stopped() if reachable or present(folder, TERMINAL) else StopPending("the attempt is in another pid namespace")
        if waited_s > grace_s + _AFTER_GRACE_S:
            return StopPending("a process of the attempt still lives" if unrecorded is None else unrecorded)
        if reachable and not supervised and not asked:
            _signal_members(folder, mine, signal.SIGTERM)
            _signal_members(folder, mine, signal.SIGCONT)
            asked = True
        if reachable and not supervised and waited_s >= grace_s:
            _signal_members(folder, mine, signal.SIGKILL)
        time.sleep(_POLL_S)


def _works(supervisor: ProcessIdentity) -> bool:
    """Whether the supervisor itself lives and is not held by a signal."""
    row = procfs.read_stat(supervisor.pid)
    return row is not None and row.start_ticks == supervisor.start_ticks and not row.ended and not row.stopped


def _lives(folder: Path, mine: ProcessIdentity, reachable: bool) -> bool:
    match locks.probe_lock(folder / LOCK):
        case locks.LockFree() | locks.LockAbsent():
            return reachable and _main(folder, mine) is not None
        case locks.LockHeld() | locks.LockUnreadable():
            return True


def _main(folder: Path, mine: ProcessIdentity) -> ProcessStat | None:
    """The trainer's row, if the process of the receipt is of this host, boot and pid namespace and still lives."""
    receipt = read_process_receipt(folder)
    if not isinstance(receipt, ReceiptRead):
        return None
    named = receipt.receipt.process
    if (named.host, named.boot_id, named.pid_namespace) != (mine.host, mine.boot_id, mine.pid_namespace):
        return None
    row = procfs.read_stat(named.pid)
    return row if row is not None and row.start_ticks == named.start_ticks and not row.ended else None


def _signal_members(folder: Path, mine: ProcessIdentity, number: signal.Signals) -> None:
    for row in _members(folder, mine):
        procfs.signal_exactly(row.pid, row.start_ticks, number)


def _members(folder: Path, mine: ProcessIdentity) -> Iterator[ProcessStat]:
    """The rows of all living processes that are shown to be the attempt's."""
    receipt = read_process_receipt(folder)
    if not isinstance(receipt, ReceiptRead):
        return
    named = receipt.receipt.process
    if (named.host, named.boot_id, named.pid_namespace) != (mine.host, mine.boot_id, mine.pid_namespace):
        return
    table = tuple(row for row in procfs.processes() if not row.ended and row.pid != mine.pid)
    found: set[int] = set()
    if any(row.pid == named.pid and row.start_ticks == named.start_ticks for row in table):
        found = {named.pid, *(row.pid for row in procfs.descendants(named.pid, table))}
    for row in table:
        if row.pid in found or (row.start_ticks >= named.start_ticks and _holds_as_member(row, named.pid, folder)):
            yield row


def _holds_as_member(row: ProcessStat, main: int, folder: Path) -> bool:
    """Whether a process holds the attempt's lock and is no stranger to it: a fence holds the lock for a moment, too."""
    if not locks.holds_lock(row.pid, folder / LOCK):
        return False
    if main in (row.session, row.group):
        return True
    try:
        environment = Path(f"/proc/{row.pid}/environ").read_bytes()
    except OSError:
        return False
    return b"COUNTERMARK_ATTEMPT=" + os.fsencode(folder) in environment.split(b"\0")
