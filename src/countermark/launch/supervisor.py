"""The supervisor of one attempt: ``python -m countermark.launch.supervisor FOLDER``.

Rules kept here:

1. The command forks once. The first process waits until the second has won or lost the start, says so by its exit code, and is gone; the
   second is the supervisor: a session leader of its own, with no terminal, no inherited descriptor and no parent to wait for it.
2. The start receipt is created exclusively and durably before anything is forked: one start per claim, ever, whoever dispatches. A fence
   does not bar the start, only COMMAND: another supervisor may have been past such a look, so nobody could say that nothing was started.
3. The supervisor is a subreaper: whoever COMMAND leaves behind becomes its child, and the terminal is written after the last of them ended.
4. A stop is asked for durably (``stop.json``) or by SIGTERM: SIGTERM to all below, SIGKILL after the grace, until nobody is left. SIGHUP
   and SIGINT are for terminals and ignored.
5. The terminal receipt waits for a full disk; it is never half-written and never written over.
6. It stays light: no database, no command line library, no training stack is imported here.
"""

import argparse
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import msgspec

from countermark.files import procfs
from countermark.files.attempt_folder import (
    FENCED,
    START,
    STOP,
    TERMINAL,
    ReceiptAbsent,
    ReceiptRead,
    ReceiptRefused,
    present,
    read_claim,
    read_stop,
)
from countermark.launch.log import LOG_BYTES_MAX, BoundedLog
from countermark.launch.patience import write_patiently
from countermark.launch.steps import AfterSupervisorStep, go_on
from countermark.launch.trainer import NOT_BEGUN, become_command
from countermark.wire.receipts import (
    ClaimReceipt,
    Exited,
    MainEnd,
    NotExecuted,
    ProcessIdentity,
    Signalled,
    StartReceipt,
    TerminalReceipt,
    encode,
    outcome_of,
)

#: Exit codes of the command: what became of the start. ``NOT_STARTED`` is the supervisor's own word, after which it starts nothing;
#: ``SILENT``: it ended without one.
STARTED: Final = 0
ALREADY_STARTED: Final = 3
NOT_STARTED: Final = 5
SILENT: Final = 6
#: The grace of a stop that names none, in seconds.
GRACE_S: Final = 10.0
#: How often the log's size and a request to stop are looked at, in seconds.
TICK_S: Final = 0.25
_START_WAIT_S: Final = 5.0
_TERMINAL_WAIT_S: Final = 7 * 24 * 3600.0
_REPORT_BYTES_MAX: Final = 64 * 1024
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NAME: Final = 15
_WATCHED: Final = (signal.SIGCHLD, signal.SIGTERM)


def main(arguments: Sequence[str], after: AfterSupervisorStep = go_on) -> int:
    """Start the supervisor of the claim folder that the arguments name; returns in the first process only, with the exit code."""
    parser = argparse.ArgumentParser(prog="countermark.launch.supervisor", description="Supervise one claimed attempt.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--log-bytes-max", type=int, default=LOG_BYTES_MAX)
    options = parser.parse_args(arguments)
    try:
        hear, tell = os.pipe()
        second = os.fork()
    except OSError as error:
        print(f"no process could be made: {error.strerror}", file=sys.stderr)
        return NOT_STARTED
    if second == 0:
        code = NOT_STARTED
        try:
            os.close(hear)
            code = _in_second_process(options.folder, options.log_bytes_max, tell, after)
        finally:
            # Whatever happens, the caller's code runs in the first process only.
            os._exit(code)
    os.close(tell)
    with os.fdopen(hear, "rb") as answers:
        answer = answers.read(_REPORT_BYTES_MAX).decode(errors="replace")
    said, _, text = answer.partition(" ")
    print(text or "the supervisor died before it could start", file=sys.stderr)
    return int(said) if said else SILENT


def _in_second_process(folder: Path, log_bytes_max: int, tell: int, after: AfterSupervisorStep) -> int:
    def answer(code: int, text: str) -> int:
        try:
            os.write(tell, f"{code} {text}"[:4000].encode(errors="replace"))
        except BrokenPipeError:
            # Whoever dispatched has given up waiting; what the receipts say stands all the same.
            return code
        finally:
            os.close(tell)
        return code

    try:
        supervision = _begin(folder.absolute(), log_bytes_max, after, answer)
    except Exception as error:
        return answer(NOT_STARTED, f"{type(error).__name__}: {error}")
    if isinstance(supervision, int):
        return supervision
    try:
        supervision.carry_through()
    except Exception:
        supervision.log.say("the supervisor failed; COMMAND goes on without it\n" + traceback.format_exc())
        return NOT_STARTED
    return STARTED


def _begin(folder: Path, log_bytes_max: int, after: AfterSupervisorStep, answer: Callable[[int, str], int]) -> "int | _Supervision":
    """Win the start, or give the exit code that says why not."""
    _detach()
    after("begun")
    read = read_claim(folder)
    if isinstance(read, ReceiptAbsent):
        return answer(NOT_STARTED, f"there is no claim in {folder}")
    if isinstance(read, ReceiptRefused):
        return answer(NOT_STARTED, read.why)
    claim = read.receipt
    if claim.attempt != folder.name:
        return answer(NOT_STARTED, f"the claim in {folder.name} is that of {claim.attempt}")
    log = BoundedLog(folder, log_bytes_max)
    identity = procfs.this_process()
    started_ms = _now_ms()
    receipt = encode(StartReceipt(1, claim.attempt, identity, started_ms))
    error = write_patiently(folder / START, receipt, log.say, _START_WAIT_S)
    if isinstance(error, FileExistsError):
        return answer(ALREADY_STARTED, "already started")
    if error is not None:
        return answer(NOT_STARTED, f"the start receipt cannot be written: {error.strerror}")
    after("start written")
    answer(STARTED, "started")
    _quiet()
    return _Supervision(folder, claim, log, identity, started_ms, after)


def _detach() -> None:
    """A session of our own; nothing that a terminal sends; COMMAND's orphans become our children."""
    os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Ignored SIGCHLD (which is inherited) would make the system reap our children and lose how they ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, _WATCHED)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl: this process cannot become a subreaper")
    libc.prctl(_PR_SET_NAME, b"countermark", 0, 0, 0)


def _quiet() -> None:
    """Let go of the descriptors of whoever dispatched."""
    with open(os.devnull, "r+b", buffering=0) as null:
        for descriptor in (0, 1, 2):
            os.dup2(null.fileno(), descriptor)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@final
@dataclass(slots=True)
class _Stop:
    """A stop under way: since when (monotonic seconds), and how long until SIGKILL."""

    since_s: float
    grace_s: float


@final
@dataclass(slots=True)
class _Supervision:
    """One attempt from the fork to the terminal."""

    folder: Path
    claim: ClaimReceipt
    log: BoundedLog
    identity: ProcessIdentity
    started_ms: int
    after: AfterSupervisorStep
    stop: _Stop | None = None
    main_status: int | None = None
    cancelled: bool = False
    asked_by_signal: bool = False
    faults: set[str] = field(default_factory=set[str])

    def carry_through(self) -> None:
        hear, report = os.pipe()
        try:
            main = os.fork()
        except OSError as error:
            self._write_terminal(NotExecuted(NOT_BEGUN, f"no process could be made: {error.strerror}"))
            return
        if main == 0:
            os.close(hear)
            become_command(self.folder, self.claim, self.log, report, self.after)
        os.close(report)
        self.after("forked")
        while self._reap(main):
            if (seen := signal.sigtimedwait(_WATCHED, TICK_S)) is not None and seen.si_signo == signal.SIGTERM:
                self.asked_by_signal = True
            self._without_failing(self.log.bound)
            self._without_failing(self._stop_if_asked)
        self.after("descendants ended")
        with os.fdopen(hear, "rb") as reports:
            self._write_terminal(self._main_end(reports.read(_REPORT_BYTES_MAX)))
        self.after("terminal written")

    def _reap(self, main: int) -> bool:
        """Take in every child that ended; whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == main:
                self.main_status = status
                self.cancelled = present(self.folder, STOP)
                self.after("main ended")

    def _without_failing(self, act: Callable[[], None]) -> None:
        """The log and a stop are worth trying again, never worth losing the terminal for; each failure is said once."""
        try:
            act()
        except OSError as error:
            text = f"the supervisor goes on although it failed: {error}"
            if text not in self.faults:
                self.faults.add(text)
                self.log.say(text)

    def _stop_if_asked(self) -> None:
        if self.stop is None:
            if not (self.asked_by_signal or present(self.folder, STOP)):
                return
            request = read_stop(self.folder)
            grace_s = request.receipt.grace_ms / 1000 if isinstance(request, ReceiptRead) else GRACE_S
            self.stop = _Stop(time.monotonic(), grace_s)
            self.log.say(f"stopping: SIGTERM now, SIGKILL in {grace_s:g} s")
            # A stopped process would keep its SIGTERM for later; SIGCONT lets it end in an orderly way.
            self._signal_all(signal.SIGTERM)
            self._signal_all(signal.SIGCONT)
        elif time.monotonic() - self.stop.since_s >= self.stop.grace_s:
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for row in procfs.descendants(os.getpid(), procfs.processes()):
            if not row.ended:
                procfs.signal_exactly(row.pid, row.start_ticks, number)

    def _main_end(self, report: bytes) -> MainEnd:
        if report:
            return msgspec.json.decode(report, type=NotExecuted)
        assert self.main_status is not None, "the loop ends after the last child, the main one included"
        code = os.waitstatus_to_exitcode(self.main_status)
        return Exited(code) if code >= 0 else Signalled(-code)

    def _write_terminal(self, main: MainEnd) -> None:
        fenced = isinstance(main, NotExecuted) and present(self.folder, FENCED)
        outcome = outcome_of(main, stopped=self.cancelled or fenced)
        receipt = TerminalReceipt(1, self.claim.attempt, outcome, main, self.started_ms, _now_ms(), "supervisor", self.identity)
        error = write_patiently(self.folder / TERMINAL, encode(receipt), self.log.say, _TERMINAL_WAIT_S, _until_sigterm)
        if error is not None:
            self.log.say(f"the terminal receipt was not written: {error.strerror}")


def _until_sigterm(seconds: float) -> bool:
    """Wait; answers False when SIGTERM came, which ends the waiting for a disk."""
    return signal.sigtimedwait((signal.SIGTERM,), seconds) is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
