"""The local launcher: processes of this machine, one folder per claim.

Rules kept here:

1. Create or get: the claim folder is made exclusively, its claim is created exclusively and durably, and whoever finds them there goes on
   from where the other dispatch stopped. Only the supervisor's exclusive start receipt decides who starts, so dispatching again is safe
   after a crash at any step, and by any number of controllers.
2. A folder whose claim says something else is refused: nothing of it is started or changed.
3. "Refused" is said only when nothing was started here: the order was unsound, the claim another, or the folder could not be made.
   Whatever broke later is "unknown": only look.
4. The supervisor outlives the controller: its own session, no terminal, no inherited descriptors, and nobody who must wait for it.
5. A fence is put up under the attempt's lock: afterwards nothing becomes COMMAND there, however late it wakes up. A fenced attempt can
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
from countermark.launch.supervisor import ALREADY_STARTED, STARTED
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
            why = f"the claim folder {folder} cannot be made: {error.strerror}"
            return self._looked(folder, why) if present(self.attempts_root, order.nonce) else DispatchRefused(why)
        try:
            if (other := self._write_claim(folder, claim_of(order), order.manifest)) is not None:
                return DispatchRefused(other)
        except OSError as error:
            return self._looked(folder, f"the claim cannot be written to {folder}: {error.strerror}")
        if present(folder, START):
            return Dispatched("already started")
        return self._start(folder)

    def _make_folder(self, folder: Path) -> None:
        self.attempts_root.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir() or folder.is_symlink():
                raise
        # Also when it was there: whoever made it may have died before this.
        durable.sync_folder(self.attempts_root)
        self.after("folder made")

    def _write_claim(self, folder: Path, claim: ClaimReceipt, manifest: bytes) -> str | None:
        """Write what is not there yet; why the folder is another claim's, if it is."""
        try:
            durable.write_new(folder / CLAIM, encode(claim))
        except FileExistsError:
            found = read_claim(folder)
            if isinstance(found, ReceiptRefused):
                return f"the claim folder holds something else: {found.why}"
            if not isinstance(found, ReceiptRead) or found.receipt != claim:
                names = _difference(found.receipt if isinstance(found, ReceiptRead) else None, claim)
                return f"the claim folder holds another claim: {names}"
        self.after("claim written")
        try:
            durable.write_new(folder / MANIFEST, manifest)
        except FileExistsError:
            if read_bounded(folder / MANIFEST, len(manifest)) != manifest:
                return f"{MANIFEST} in the claim folder is another one"
        os.close(locks.open_lock(folder / LOCK))
        (folder / WORK).mkdir(exist_ok=True)
        durable.sync_folder(folder)
        self.after("manifest written")
        return None

    def _start(self, folder: Path) -> LaunchResult:
        command = (*self.supervisor, "--log-bytes-max", str(self.log_bytes_max), str(folder))
        try:
            run = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
                timeout=self.start_timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return self._looked(folder, f"the supervisor said nothing for {self.start_timeout_s:g} s")
        except OSError as error:
            return self._looked(folder, f"the supervisor cannot be started: {error.strerror}")
        self.after("supervisor launched")
        said = run.stderr.decode(errors="replace").strip()[-2000:]
        if run.returncode == STARTED:
            return Dispatched("started")
        if run.returncode == ALREADY_STARTED:
            return Dispatched("already started")
        return self._looked(folder, f"the supervisor ended with code {run.returncode}: {said}")

    def _looked(self, folder: Path, why: str) -> LaunchResult:
        """What is known after a launch that gave no plain answer: the start receipt decides, nothing else does."""
        match read_start(folder):
            case ReceiptRead():
                return Dispatched(f"started, although {why}")
            case ReceiptAbsent():
                return DispatchUnknown(why)
            case ReceiptRefused(refused):
                return DispatchUnknown(f"{why}; {refused}")

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


def _difference(found: ClaimReceipt | None, wanted: ClaimReceipt) -> str:
    """The fields in which two claims differ."""
    if found is None:
        return "it vanished while it was read"
    names = [name for name in ClaimReceipt.__struct_fields__ if getattr(found, name) != getattr(wanted, name)]
    return ", ".join(names)
