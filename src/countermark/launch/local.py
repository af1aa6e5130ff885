"""The local launcher: processes of this machine, one folder per claim.

Rules kept here:

1. Create or get: the claim folder is made exclusively, its claim is created exclusively and durably, and whoever finds them there goes on
   from where the other dispatch stopped. Only the supervisor's exclusive start receipt decides who starts, so dispatching again is safe
   after a crash at any step, and by any number of controllers.
2. The claim is written last: where it is, all that a supervisor needs is, and where it is not, no supervisor begins.
3. A folder whose claim says something else is refused: nothing of it is started or changed.
4. "Refused" is said only when this call surely started nothing and no start is there: nothing was launched, or the supervisor itself said
   that it did not start. Whoever was silent, or was not waited for, may have started: that is "unknown", so only look. Another call of the
   same claim may come later all the same; whoever follows a refusal therefore puts up the fence first.
5. The supervisor outlives the controller: its own session, no terminal, no inherited descriptors, and nobody who must wait for it.
6. A fence is put up under the attempt's lock: afterwards nothing becomes COMMAND there, however late it wakes up. A fenced attempt can
   still be started, and ends at once as cancelled: the start receipt alone tells who was first.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files import durable, locks, procfs
from countermark.files.attempt_folder import (
    CLAIM,
    FENCED,
    LOCK,
    MANIFEST,
    START,
    WORK,
    ReceiptAbsent,
    ReceiptRead,
    ReceiptRefused,
    present,
    read_bounded,
    read_claim,
    read_start,
)
from countermark.launch.log import LOG_BYTES_MAX
from countermark.launch.order import LaunchOrder, claim_of, reasons_against
from countermark.launch.steps import AfterLaunchStep, go_on
from countermark.launch.stopping import StopResult, stop_attempt
from countermark.launch.supervisor import ALREADY_STARTED, NOT_STARTED, STARTED
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown, LaunchResult
from countermark.wire.receipts import ClaimReceipt, FencedReceipt, encode

#: How a supervisor is started: isolated from modules that lie in the working folder.
SUPERVISOR: Final = (sys.executable, "-P", "-m", "countermark.launch.supervisor")
#: How long a supervisor may take to win or lose the start, in seconds.
START_TIMEOUT_S: Final = 60.0


@final
@dataclass(frozen=True, slots=True)
class Fenced:
    """Nothing will become COMMAND in this attempt's folder any more."""


@final
@dataclass(frozen=True, slots=True)
class FenceHeldOff:
    """The attempt's lock is held: COMMAND or one of its descendants lives, so it cannot be fenced."""


@final
@dataclass(frozen=True, slots=True)
class FenceFailed:
    """The fence could not be put up."""

    why: str


FenceResult = Fenced | FenceHeldOff | FenceFailed


@final
@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Starts, stops and fences attempts under one folder, on this machine.

    ``supervisor`` is the command that a claim folder is appended to; ``log_bytes_max`` bounds ``log.txt``.
    """

    attempts_root: Path
    log_bytes_max: int = LOG_BYTES_MAX
    supervisor: tuple[str, ...] = SUPERVISOR
    start_timeout_s: float = START_TIMEOUT_S
    after: AfterLaunchStep = go_on

    def folder(self, nonce: str) -> Path:
        """Where the attempt's receipts and files lie."""
        return self.attempts_root.absolute() / nonce

    def dispatch(self, order: LaunchOrder) -> LaunchResult:
        """Start the claim, or find it started. Blocks until a supervisor won or lost the start, for ``start_timeout_s`` at most."""
        if reasons := reasons_against(order):
            return DispatchRefused("; ".join(reasons))
        folder = self.folder(order.nonce)
        try:
            self._make_folder(folder)
        except OSError as error:
            return self._looked(folder, DispatchRefused(f"the claim folder {folder} cannot be made: {error.strerror}"))
        try:
            if (other := self._write_claim(folder, claim_of(order), order.manifest)) is not None:
                return DispatchRefused(other)
        except OSError as error:
            return self._looked(folder, DispatchRefused(f"the claim cannot be written to {folder}: {error.strerror}"))
        if present(folder, START):
            return Dispatched("already started")
        return self._start(folder)

    def _make_folder(self, folder: Path) -> None:
        durable.make_folder(self.attempts_root)
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir() or folder.is_symlink():
                raise
        # Also when it was there: whoever made it may have died before this.
        durable.sync_folder(self.attempts_root)
        self.after("folder made")

    def _write_claim(self, folder: Path, claim: ClaimReceipt, manifest: bytes) -> str | None:
        """Write what is not there yet, the claim last; why the folder is another claim's, if it is."""
        if present(folder, CLAIM) and (other := _another(folder, claim)) is not None:
            return other
        if not _created(folder / MANIFEST, manifest) and read_bounded(folder / MANIFEST, len(manifest)) != manifest:
            return f"{MANIFEST} in the claim folder is another one"
        os.close(locks.open_lock(folder / LOCK))
        (folder / WORK).mkdir(exist_ok=True)
        durable.sync_folder(folder)
        self.after("manifest written")
        if not _created(folder / CLAIM, encode(claim)):
            if (other := _another(folder, claim)) is not None:
                return other
            # Whoever wrote it may have died before this.
            durable.sync_folder(folder)
        self.after("claim written")
        return None

    def _start(self, folder: Path) -> LaunchResult:
        command = (*self.supervisor, "--log-bytes-max", str(self.log_bytes_max), str(folder))
        null = subprocess.DEVNULL
        try:
            process = subprocess.Popen(command, stdin=null, stdout=null, stderr=subprocess.PIPE, cwd="/", start_new_session=True)
        except OSError as error:
            return self._looked(folder, DispatchRefused(f"the supervisor cannot be started: {error.strerror}"))
        with process:
            try:
                _, report = process.communicate(timeout=self.start_timeout_s)
            except subprocess.TimeoutExpired:
                return self._looked(folder, DispatchUnknown(f"the supervisor said nothing for {self.start_timeout_s:g} s"))
            finally:
                process.kill()
        self.after("supervisor launched")
        if process.returncode == STARTED:
            return Dispatched("started")
        if process.returncode == ALREADY_STARTED:
            return Dispatched("already started")
        why = f"the supervisor ended with code {process.returncode}: {report.decode(errors='replace').strip()[-2000:]}"
        return self._looked(folder, DispatchRefused(why) if process.returncode == NOT_STARTED else DispatchUnknown(why))

    def _looked(self, folder: Path, said: DispatchRefused | DispatchUnknown) -> LaunchResult:
        """The answer of a call that heard of no start: the start receipt decides, nothing else does. That there is none shows only in a
        folder that is really there, or surely is not."""
        if not present(self.attempts_root, folder.name):
            return said
        match read_start(folder):
            case ReceiptRead():
                return Dispatched(f"started, although {said.why}")
            case ReceiptAbsent():
                return DispatchUnknown(said.why) if folder.is_symlink() else said
            case ReceiptRefused(refused):
                return DispatchUnknown(f"{said.why}; {refused}")

    def stop(self, nonce: str, grace_s: float) -> StopResult:
        """Ask for the attempt's end and wait for it: SIGTERM, then SIGKILL after ``grace_s`` seconds."""
        return stop_attempt(self.folder(nonce), grace_s)

    def fence(self, nonce: str) -> FenceResult:
        """Take the attempt's lock and durably say that nothing may become COMMAND there any more."""
        folder = self.folder(nonce)
        try:
            # A claim that was never launched is fenced too: its dispatch may still be under way somewhere on this host.
            self._make_folder(folder)
            descriptor = locks.open_lock(folder / LOCK)
            try:
                if not locks.take_fence(descriptor):
                    return FenceHeldOff()
                by = procfs.this_process()
                receipt = FencedReceipt(1, nonce, by, time.time_ns() // 1_000_000)
                durable.write_new(folder / FENCED, encode(receipt))
            except FileExistsError:
                # Whoever put it up may have died before this.
                durable.sync_folder(folder)
            finally:
                os.close(descriptor)
        except OSError as error:
            return FenceFailed(f"the fence in {folder} cannot be put up: {error.strerror}")
        return Fenced()


def _created(path: Path, data: bytes) -> bool:
    """Create the file with these bytes, unless something bears its name: what is there is found also where the disk has no room."""
    if present(path.parent, path.name):
        return False
    try:
        durable.write_new(path, data)
    except FileExistsError:
        return False
    return True


def _another(folder: Path, wanted: ClaimReceipt) -> str | None:
    """Why the folder is not this claim's; None where it is."""
    match read_claim(folder):
        case ReceiptRead(receipt):
            names = [name for name in ClaimReceipt.__struct_fields__ if getattr(receipt, name) != getattr(wanted, name)]
            return f"the claim folder holds another claim: {', '.join(names)}" if names else None
        case ReceiptAbsent():
            return "the claim folder holds another claim: it vanished while it was read"
        case ReceiptRefused(why):
            return f"the claim folder holds something else: {why}"
