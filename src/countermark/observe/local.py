"""The observer of local attempts: looks at receipts, the process table and the files of each attempt's folder, from this host.

Rules kept here:

1. Each attempt's folder is a source of its own, with its own arm and receipt: one torn folder hides nothing of another.
2. An attempt that was dispatched on another host, or by another launcher, is ``NotAttempted`` here; one that nobody dispatched yet has no
   folder and no source.
3. Whatever cannot be read completely is ``ReadRefused`` with the reason, never a short ``Observed``.
4. "There is none" is said only where opening, listing and the file system's kind agree on it: a folder that is no folder, a name that is
   listed and not found, and whatever a network file system does not show are refused.
5. A launch makes the folder: of an attempt that was launched, a missing folder shows nothing, least of all that its trainer is dead. Of
   another attempt a folder that is proven to be missing is looked at like an empty one.
6. Once a run is cancelled, its attempts are also asked whether they could still begin. The fence is read before the lock and the process
   table: what stood before nothing was seen to live keeps everything from beginning afterwards.
7. The observer's own readings of artifacts stand beside the trainer's word as a second source; neither replaces the other.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar, final

from countermark.evidence.members import (
    CancelledByRequest,
    CheckpointSeen,
    EnumerationReceipt,
    ExecutionIdentity,
    Failed,
    Killed,
    ManifestSeen,
    Misfiled,
    NotAttempted,
    NotExecuted,
    Observed,
    Outcome,
    OutputSeen,
    Population,
    Preempted,
    ProcessSeen,
    ProcessState,
    ReadRefused,
    SourceReading,
    Succeeded,
    Terminal,
    one_source,
)
from countermark.files.adapter import AdapterConfig, read_adapter
from countermark.files.attempt_folder import (
    FENCED,
    NETWORK_FILE_SYSTEMS,
    OUTPUT,
    ReceiptAbsent,
    ReceiptRead,
    ReceiptRefused,
    file_system_of,
    present,
    read_bounded,
    read_terminal,
)
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint, step_of
from countermark.files.desired import CHECKPOINTS, EFFECTIVE
from countermark.files.layouts.weights import adapter_facts
from countermark.files.outputs import measure_output
from countermark.lines.defects import sentence
from countermark.observe import base as base_files
from countermark.observe.artifacts import SOURCE, artifact_readings
from countermark.observe.processes import Alive, Dead, NeverStarted, OnAnotherHost, ProcessRefused, Settling, read_process
from countermark.recipe import spelled
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Dispatched, DispatchIntent, RunLedger
from countermark.run.rates import explained
from countermark.run.readback import ArtifactFact, CheckpointReadback
from countermark.values import NonEmpty, Refused, Unreadable
from countermark.wire import receipts
from countermark.wire.effective import EFFECTIVE_BYTES_MAX, EffectiveManifest, decode_effective
from countermark.wire.receipts import ProcessIdentity

M = TypeVar("M")


@final
@dataclass(slots=True)
class _Found(Generic[M]):
    """What one folder showed on one axis."""

    members: list[M] = field(default_factory=list[M])
    refusals: list[str] = field(default_factory=list[str])
    misfiled: list[Misfiled] = field(default_factory=list[Misfiled])
    elsewhere: str = ""


Look = Callable[[AttemptKey, Path, "_Found[M]"], None]


@final
@dataclass(frozen=True, slots=True)
class LocalObserver:
    """Looks at the attempts under ``attempts_root``. ``now_ms`` and ``new_id`` stamp the receipts; they order nothing."""

    attempts_root: Path
    host: str
    now_ms: Callable[[], int]
    new_id: Callable[[], str]

    def terminals(self, ledger: RunLedger) -> Population[Terminal]:
        """Each attempt's end, as its supervisor wrote it."""
        return self._population(ledger, "supervisor", _terminal)

    def processes(self, ledger: RunLedger) -> Population[ProcessSeen]:
        """Each attempt's execution, by its locks and the process table; once the run is cancelled, also whether it could still begin."""
        return self._population(ledger, "process table", _process_or_opening if ledger.cancellations else _process)

    def outputs(self, ledger: RunLedger) -> Population[OutputSeen]:
        """What lies at each attempt's output place, read back."""
        return self._population(ledger, "output place", _output)

    def checkpoints(self, ledger: RunLedger) -> Population[CheckpointSeen]:
        """Every checkpoint-like folder of each attempt, read back component by component."""
        return self._population(ledger, "checkpoints folder", _checkpoints)

    def manifests(self, ledger: RunLedger) -> Population[ManifestSeen]:
        """Each attempt's effective manifest: the trainer's word, and what its artifacts and the base's files show."""
        desired = spelled(ledger.desired.manifest)

        def look(attempt: AttemptKey, folder: Path, found: _Found[ManifestSeen]) -> None:
            word = _trainers_word(attempt, folder, found)
            if base := base_files.base_reading(folder, word):
                found.members.append(ManifestSeen(attempt, base_files.SOURCE, base))
            if shown := artifact_readings(explained(_artifact_facts(folder), ledger.desired.manifest), desired):
                found.members.append(ManifestSeen(attempt, SOURCE, shown))

        return self._population(ledger, "effective manifest", look)

    def _population(self, ledger: RunLedger, source: str, look: "Look[M]") -> Population[M]:
        """One source for each dispatched attempt; a single empty one when nothing was dispatched."""
        intents = {intent.attempt: intent for intent in ledger.intents}
        launched = {outcome.attempt for outcome in ledger.outcomes if isinstance(outcome.result, Dispatched)}
        readings: list[SourceReading[M]] = []
        for claim in ledger.claims:
            attempt = claim.attempt
            if (intent := intents.get(attempt)) is not None:
                name = f"{source} {attempt.nonce.hex[:8]}@{intent.host}"
                readings.append(SourceReading(name, self._arm(intent, attempt in launched, source, look), attempt))
        if (found := NonEmpty.of(readings)) is not None:
            return Population(found)
        now = self.now_ms()
        return one_source(f"{source} @{self.host}", Observed((), EnumerationReceipt(self.new_id(), source, self.host, now, now)))

    def _arm(self, intent: DispatchIntent, launched: bool, source: str, look: "Look[M]") -> "Observed[M] | NotAttempted | ReadRefused":
        if intent.launcher != "local":
            return NotAttempted(f"the attempt was dispatched by {intent.launcher}, and only local ones are looked at here")
        if intent.host != self.host:
            return NotAttempted(f"the attempt is on {intent.host}; look from there")
        attempt = intent.attempt
        folder = self.attempts_root / attempt.nonce.hex
        started = self.now_ms()
        found: _Found[M] = _Found()
        try:
            if not _there(folder, found) and launched and not found.refusals:
                found.refusals.append(f"the ledger says that {folder.name[:8]} was launched here, and its folder is gone: put it back")
            if not found.refusals:
                look(attempt, folder, found)
        except OSError as error:
            found.refusals.append(f"{error.filename or folder.name}: {error.strerror or error}")
        if found.elsewhere:
            return NotAttempted(f"the attempt's processes are on {found.elsewhere}; look from there")
        receipt = EnumerationReceipt(self.new_id(), source, self.host, started, self.now_ms())
        if found.refusals:
            return ReadRefused("; ".join(found.refusals), receipt)
        return Observed(tuple(found.members), receipt, tuple(found.misfiled))


def _mode(path: Path, found: "_Found[M]") -> int | None:
    """The kind of what is there; None where nothing is, and an absence that nothing proves is a refusal."""
    try:
        return os.stat(path, follow_symlinks=False).st_mode
    except FileNotFoundError:
        if (why := _absence_unproven(path)) is not None:
            found.refusals.append(why)
        return None


def _there(path: Path, found: "_Found[M]") -> bool:
    """Whether a folder is there to be looked into. What stands in its place is a refusal."""
    mode = _mode(path, found)
    if mode is None:
        return False
    if not stat.S_ISDIR(mode):
        found.refusals.append(f"{path.name} is {'a symbolic link' if stat.S_ISLNK(mode) else 'no folder'}")
        return False
    return True


def _absence_unproven(path: Path) -> str | None:
    """Why it is not proven that a name that was not found is not there; None where it is."""
    try:
        if path.name in os.listdir(path.parent):
            return f"{path.parent.name} lists {path.name}, which was not found: the reads disagree"
        system = file_system_of(path.parent)
    except FileNotFoundError:
        return None
    if system in NETWORK_FILE_SYSTEMS:
        return f"{path.name} is not visible on a {system} file system, which does not prove that it was not written"
    return None


def _terminal(attempt: AttemptKey, folder: Path, found: _Found[Terminal]) -> None:
    match read_terminal(folder):
        case ReceiptAbsent():
            pass
        case ReceiptRefused(why):
            found.refusals.append(why)
        case ReceiptRead(receipt):
            if receipt.attempt != attempt.nonce.hex:
                found.misfiled.append(Misfiled(attempt, receipt.attempt))
            else:
                found.members.append(Terminal(attempt, outcome_seen(receipt), receipt.writer, receipt.ended_ms))


def outcome_seen(receipt: receipts.TerminalReceipt) -> Outcome:
    """A receipt's outcome as an evidence value; a COMMAND that never ran says what stood in its way."""
    match receipt.outcome:
        case receipts.Succeeded():
            return Succeeded()
        case receipts.Failed(exit_code=code):
            main = receipt.main
            return NotExecuted(code, main.why) if isinstance(main, receipts.NotExecuted) else Failed(code)
        case receipts.Killed(signal=number):
            return Killed(number)
        case receipts.Cancelled():
            return CancelledByRequest()
        case receipts.Preempted():
            return Preempted()


def _process(attempt: AttemptKey, folder: Path, found: _Found[ProcessSeen]) -> None:
    reading = read_process(folder)
    match reading:
        case NeverStarted():
            pass
        case ProcessRefused(why):
            found.refusals.append(why)
        case OnAnotherHost(host):
            found.elsewhere = host
        case Alive() | Settling() | Dead():
            named = {receipt.attempt for receipt in (reading.start, reading.process) if receipt is not None}
            if named != {attempt.nonce.hex}:
                found.misfiled.extend(Misfiled(attempt, name) for name in sorted(named - {attempt.nonce.hex}))
                return
            identity = _execution(reading.process.process) if reading.process is not None else None
            found.members.append(ProcessSeen(attempt, identity, _state(reading)))


def _process_or_opening(attempt: AttemptKey, folder: Path, found: _Found[ProcessSeen]) -> None:
    """The attempt's execution, and whether it could still begin: a process that wrote its receipt took the only start that there is."""
    fenced = present(folder, FENCED)
    _process(attempt, folder, found)
    over = fenced or any(seen.lives or seen.execution is not None for seen in found.members)
    if not over and not (found.refusals or found.misfiled or found.elsewhere):
        found.members.append(ProcessSeen(attempt, None, "unbarred"))


def _state(reading: Alive | Settling | Dead) -> ProcessState:
    match reading:
        case Alive():
            return "alive"
        case Settling():
            return "settling"
        case Dead():
            return "dead"


def _execution(process: ProcessIdentity) -> ExecutionIdentity:
    return ExecutionIdentity(process.host, process.boot_id, str(process.pid_namespace), process.pid, process.start_ticks)


def _output(attempt: AttemptKey, folder: Path, found: _Found[OutputSeen]) -> None:
    path = folder / OUTPUT
    if _mode(path, found) is None:
        return
    reading = measure_output(path)
    if isinstance(reading, Refused):
        found.refusals.append("the output cannot be read back: " + "; ".join(sentence(defect).message for defect in reading.defects))
        return
    found.members.append(OutputSeen(attempt, str(path), reading.digest, reading.bytes, f"{reading.kind} {reading.root.spell()}"))


def _trainers_word(attempt: AttemptKey, folder: Path, found: _Found[ManifestSeen]) -> EffectiveManifest | None:
    """The trainer's word, which is a member as well; None where there is none that can be read, or it is another attempt's."""
    data = read_bounded(folder / EFFECTIVE, EFFECTIVE_BYTES_MAX)
    document = decode_effective(data) if isinstance(data, bytes) else data
    if isinstance(document, Unreadable):
        found.refusals.append(f"{EFFECTIVE}: {document.why}")
    elif document is not None and document.attempt != attempt.nonce.hex:
        found.misfiled.append(Misfiled(attempt, document.attempt))
    elif document is not None:
        found.members.append(ManifestSeen(attempt, "trainer", document.readings()))
        return document
    return None


def _checkpoints(attempt: AttemptKey, folder: Path, found: _Found[CheckpointSeen]) -> None:
    if not _there(folder / CHECKPOINTS, found):
        return
    listed = list_checkpoints(folder / CHECKPOINTS)
    if not isinstance(listed, CheckpointListing):
        found.refusals.append(sentence(listed).message)
        return
    for _, name in listed.checkpoints:
        readback = read_checkpoint(folder / CHECKPOINTS / name)
        if not isinstance(readback, CheckpointReadback):
            found.refusals.append(f"{name} was there and is gone: {readback.why}")
        elif readback.attempt is not None and readback.attempt != attempt.nonce.hex:
            found.misfiled.append(Misfiled(attempt, readback.attempt))
        else:
            named = step_of(name)
            found.members.append(CheckpointSeen(attempt, readback.step if named is None else named, readback.path, readback))


def _artifact_facts(folder: Path) -> tuple[ArtifactFact, ...]:
    """What the newest checkpoint and the output show; what cannot be read is refused on its own axis and shows nothing here."""
    facts: list[ArtifactFact] = []
    listed = list_checkpoints(folder / CHECKPOINTS) if present(folder, CHECKPOINTS) else None
    if isinstance(listed, CheckpointListing) and listed.checkpoints:
        readback = read_checkpoint(folder / CHECKPOINTS / listed.checkpoints[-1][1])
        facts.extend(readback.facts if isinstance(readback, CheckpointReadback) else ())
    if present(folder / OUTPUT, "adapter_config.json"):
        config = read_adapter(folder / OUTPUT)
        facts.extend(adapter_facts(config) if isinstance(config, AdapterConfig) else ())
    return tuple(dict.fromkeys(facts))
