"""The child of a supervisor, from the fork until it becomes COMMAND.

Rules kept here:

1. Before exec, in this order: the lock, then the process receipt, then the fence under the lock. A supervisor that is killed after the
   fork leaves no trainer that nobody can see; a child that was stopped while a relaunch fenced it never becomes COMMAND.
2. The lock's descriptor is inherited on a high number, so that a script's ``exec 3>file`` does not close it by accident.
3. COMMAND gets default signal dispositions, an empty mask, standard input from the null device, and the log as output and error.
4. What stands in the way is reported through a pipe that exec closes: an empty report means that COMMAND ran.
"""

import fcntl
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from countermark.files import locks, procfs
from countermark.files.attempt_folder import FENCED, LOCK, MANIFEST, OUTPUT, PROCESS, STOP, present
from countermark.launch.log import BoundedLog
from countermark.launch.order import sha256_text
from countermark.launch.patience import write_patiently
from countermark.launch.steps import AfterSupervisorStep
from countermark.values import shown
from countermark.wire.receipts import ClaimReceipt, Fresh, NotExecuted, ProcessReceipt, ResumesFrom, encode

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
#: What the child exits with when it never became COMMAND for a reason that is not COMMAND's.
NOT_BEGUN: Final = 125
_LOCK_DESCRIPTOR_MIN: Final = 500
_LOCK_WAIT_S: Final = 30.0
_RECEIPT_WAIT_S: Final = 60.0
_PLACEHOLDER: Final = re.compile(r"\{(manifest|output|resume)\}")


def become_command(folder: Path, claim: ClaimReceipt, log: BoundedLog, report: int, after: AfterSupervisorStep) -> NoReturn:
    """Become COMMAND, or report why not on the descriptor ``report`` and exit with the code that says so."""
    try:
        ended = _become(folder, claim, log, after)
    except Exception as error:
        ended = NotExecuted(NOT_BEGUN, f"the supervisor's child failed: {type(error).__name__}: {error}"[:2000])
    log.say(f"COMMAND was not executed: {ended.why}")
    os.write(report, msgspec.json.encode(ended))
    os._exit(ended.code)


def _become(folder: Path, claim: ClaimReceipt, log: BoundedLog, after: AfterSupervisorStep) -> NotExecuted:
    os.setsid()
    after("child begun")
    if not _hold_lock(folder / LOCK):
        return NotExecuted(NOT_BEGUN, "the attempt's lock is held by somebody else")
    after("locked")
    if (refusal := _write_receipt(folder, claim, log)) is not None:
        return refusal
    after("process written")
    if (refusal := _prepare(folder, claim, log.writer)) is not None:
        return refusal
    environment = command_environment(folder, claim, os.environ)
    argv = command_arguments(folder, claim)
    if present(folder, FENCED):
        return NotExecuted(NOT_BEGUN, "a relaunch fenced this attempt")
    if present(folder, STOP):
        return NotExecuted(NOT_BEGUN, "the attempt was stopped before COMMAND began")
    after("fence checked")
    return _execute(argv, environment)


def _hold_lock(path: Path) -> bool:
    """Take the lock on a high descriptor that COMMAND inherits. A fence holds it for a moment only, so wait for that."""
    opened = locks.open_lock(path)
    try:
        descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _LOCK_DESCRIPTOR_MIN)
    except OSError:
        # Fewer descriptors than that are allowed here: the low number has to do.
        descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(opened)
    deadline = time.monotonic() + _LOCK_WAIT_S
    while not locks.take_lock(descriptor):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    os.set_inheritable(descriptor, True)
    return True


def _write_receipt(folder: Path, claim: ClaimReceipt, log: BoundedLog) -> NotExecuted | None:
    receipt = ProcessReceipt(1, claim.attempt, procfs.this_process(), time.time_ns() // 1_000_000)
    error = write_patiently(folder / PROCESS, encode(receipt), log.say, _RECEIPT_WAIT_S)
    return None if error is None else NotExecuted(NOT_BEGUN, f"the process receipt cannot be written: {error.strerror}")


def _prepare(folder: Path, claim: ClaimReceipt, log_writer: int) -> NotExecuted | None:
    """Everything that exec inherits: the working folder, the three standard descriptors, the signals."""
    try:
        if sha256_text((folder / MANIFEST).read_bytes()) != claim.manifest_sha256:
            return NotExecuted(NOT_BEGUN, f"{MANIFEST} is not the one that was claimed")
    except OSError as error:
        return NotExecuted(NOT_BEGUN, f"{MANIFEST}: {error.strerror}")
    try:
        os.chdir(claim.cwd)
    except OSError as error:
        return NotExecuted(NOT_EXECUTABLE, f"the working folder {claim.cwd}: {error.strerror}"[:2000])
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    os.dup2(log_writer, 1)
    os.dup2(log_writer, 2)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except OSError:
            # The C library keeps two real-time signals for itself.
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return None


def command_environment(folder: Path, claim: ClaimReceipt, inherited: Mapping[str, str]) -> dict[str, str]:
    """COMMAND's environment: what the supervisor inherited, the named variables over it, and ours over both."""
    return {
        **inherited,
        **claim.env,
        "COUNTERMARK_MANIFEST": str(folder / MANIFEST),
        "COUNTERMARK_ATTEMPT": str(folder),
        "COUNTERMARK_OUTPUT": str(folder / OUTPUT),
        "COUNTERMARK_RESUME": _resume(claim),
    }


def command_arguments(folder: Path, claim: ClaimReceipt) -> tuple[str, ...]:
    """COMMAND with its placeholders replaced, each once: a path that holds a placeholder is left as it is."""
    values = {"manifest": str(folder / MANIFEST), "output": str(folder / OUTPUT), "resume": _resume(claim)}
    return tuple(_PLACEHOLDER.sub(lambda found: values[found[1]], argument) for argument in claim.argv)


def _resume(claim: ClaimReceipt) -> str:
    match claim.beginning:
        case Fresh():
            return ""
        case ResumesFrom(path=path):
            return path


def _execute(argv: tuple[str, ...], environment: dict[str, str]) -> NotExecuted:
    """Returns only when COMMAND cannot be executed."""
    try:
        os.execvpe(argv[0], argv, environment)
    except (FileNotFoundError, NotADirectoryError):
        return NotExecuted(NOT_FOUND, f"{shown(argv[0], 1000)}, or the interpreter that its first line names, was not found")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return NotExecuted(NOT_EXECUTABLE, f"{shown(argv[0], 1000)} cannot be executed: {why}")
