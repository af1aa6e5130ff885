"""The simulated observer: what can be seen of the folders and of the scheduler from one host, read step by step.

Rules kept here:

1. It says what ``countermark.observe.local`` would say of the same folder: the lock is probed first, then the receipts, then the process
   table, and somebody else may run in between.
2. A read that fails is refused. Where the world tells lies (``Folder.lies``), they are members beside the true ones.
3. A cluster's processes and ends have a source of their own, its scheduler, which forgets ended jobs and shows new ones late.
"""

from typing import TYPE_CHECKING, Any, TypeVar

from countermark.evidence.members import (
    CheckpointSeen,
    EnumerationReceipt,
    ExecutionIdentity,
    Failed,
    ManifestSeen,
    NotAttempted,
    Observed,
    OutputSeen,
    Population,
    ProcessSeen,
    ProcessState,
    ReadRefused,
    SourceReading,
    Succeeded,
    Terminal,
)
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Dispatched, RunLedger
from countermark.values import NonEmpty, Sha256
from tests.simulation import clean
from tests.simulation.hosts import Folder, Host, Process, scheduler_outcome

if TYPE_CHECKING:
    from tests.simulation.world import World

M = TypeVar("M")


class Unseen(Exception):
    """What could not be read, and why."""


class SimObserver:
    """Looks from ``host`` at the attempts of the run."""

    def __init__(self, world: "World", host: Host) -> None:
        self.world = world
        self.host = host

    # ------------------------------------------------------------------------------------------------------- stages

    def terminals(self, ledger: RunLedger) -> Population[Terminal]:
        self.world.stage_begins("terminals")
        return self._population(ledger, "supervisor", self._terminal, self._scheduler_terminals if self.world.cluster else None)

    def processes(self, ledger: RunLedger) -> Population[ProcessSeen]:
        self.world.stage_begins("processes")
        if self.world.cluster:
            return self._population(ledger, "scheduler", None, self._opening(self._jobs) if ledger.cancellations else self._jobs)
        return self._population(ledger, "process table", self._opening(self._process) if ledger.cancellations else self._process, None)

    def outputs(self, ledger: RunLedger) -> Population[OutputSeen]:
        return self._population(ledger, "output place", self._output, None)

    def checkpoints(self, ledger: RunLedger) -> Population[CheckpointSeen]:
        return self._population(ledger, "checkpoints folder", self._checkpoints, None)

    def manifests(self, ledger: RunLedger) -> Population[ManifestSeen]:
        return self._population(ledger, "effective manifest", self._manifest, None)

    # -------------------------------------------------------------------------------------------------- populations

    def _population(self, ledger: RunLedger, source: str, look: Any, everywhere: Any) -> Population[Any]:
        world = self.world
        world.pause(f"reading {source}")
        if not ledger.intents:
            # Nothing was dispatched: there is no folder and no job to look at.
            return Population(NonEmpty(SourceReading(source, Observed((), self._receipt(source, world.now_ms())))))
        readings: list[SourceReading[Any]] = []
        hosts = {intent.attempt.nonce.hex: intent.host for intent in ledger.intents}
        dispatched = [claim.attempt for claim in ledger.claims if claim.attempt.nonce.hex in hosts]
        if look is not None:
            launched = {outcome.attempt.nonce.hex for outcome in ledger.outcomes if isinstance(outcome.result, Dispatched)}
            for attempt in dispatched:
                nonce = attempt.nonce.hex
                readings.append(
                    SourceReading(f"{source} {nonce}", self._arm(attempt, hosts[nonce], nonce in launched, source, look), attempt)
                )
        if everywhere is not None:
            readings.append(SourceReading("scheduler", self._everywhere(dispatched, everywhere)))
        return Population(NonEmpty(readings[0], tuple(readings[1:])))

    def _receipt(self, source: str, started_ms: int) -> EnumerationReceipt:
        return EnumerationReceipt(self.world.new_id(), source, self.host.name, started_ms, self.world.now_ms())

    def _arm(self, attempt: AttemptKey, host: str, launched: bool, source: str, look: Any) -> Observed[Any] | NotAttempted | ReadRefused:
        if host != self.world.place(self.host):
            return NotAttempted(f"the attempt is on {host}")
        started = self.world.now_ms()
        if self.world.fails("read"):
            return ReadRefused("input/output error", self._receipt(source, started))
        folder = self.world.folders.get((host, attempt.nonce.hex))
        if folder is None and launched:
            return ReadRefused("it was launched and its folder is gone", self._receipt(source, started))
        try:
            members = look(attempt, Folder(attempt) if folder is None else folder)
        except Unseen as error:
            return ReadRefused(str(error), self._receipt(source, started))
        return Observed(members, self._receipt(source, started))

    def _everywhere(self, dispatched: list[AttemptKey], look: Any) -> Observed[Any] | ReadRefused:
        started = self.world.now_ms()
        if self.world.fails("read"):
            return ReadRefused("the scheduler does not answer", self._receipt("scheduler", started))
        try:
            members = tuple(member for attempt in dispatched for member in look(attempt))
        except Unseen as error:
            return ReadRefused(str(error), self._receipt("scheduler", started))
        return Observed(members, self._receipt("scheduler", started))

    # ------------------------------------------------------------------------------------------------------ folders

    def _terminal(self, attempt: AttemptKey, folder: Folder) -> tuple[Terminal, ...]:
        if folder.terminal is None:
            return ()
        said = Terminal(attempt, folder.terminal, "supervisor", 0)
        if "terminal" not in folder.lies:
            return (said,)
        other = Failed(1) if isinstance(folder.terminal, Succeeded) else Succeeded()
        return (said, Terminal(attempt, other, "launcher", 0))

    def _opening(self, look: Any) -> Any:
        """The look, and in what it does not show to be over the member that says so; the fence is read first."""

        def look_for_an_opening(attempt: AttemptKey, *folder: Folder) -> tuple[ProcessSeen, ...]:
            fenced = self.world.folder(self.world.place(self.host), attempt.nonce.hex).fenced
            self.world.maybe_pause("fence read")
            members: tuple[ProcessSeen, ...] = look(attempt, *folder)
            over = fenced or any(seen.lives or seen.execution is not None for seen in members)
            return members if over else (*members, ProcessSeen(attempt, None, "unbarred"))

        return look_for_an_opening

    def _process(self, attempt: AttemptKey, folder: Folder) -> tuple[ProcessSeen, ...]:
        held = bool(folder.holders)
        self.world.maybe_pause("lock probed")
        started = folder.started
        self.world.maybe_pause("start read")
        named = folder.process
        if started is None:
            if named is not None:
                raise Unseen("there is a process receipt and no start: the reads disagree")
            if held:
                raise Unseen("the lock is held and there is no start")
            return ()
        identity = None if named is None else ExecutionIdentity(named[0].name, f"boot {named[1]}", "1", named[2], 7)
        _, boot, by = started
        seen = ProcessSeen(attempt, identity, self._state(folder, held, boot, by, named is not None))
        return (seen, *self._lied(attempt, folder, identity))

    def _state(self, folder: Folder, held: bool, boot: int, by: Process, named: bool) -> ProcessState:
        if boot != self.host.boot:
            return "dead"
        if held:
            return "alive"
        if named and ((folder.child is not None and folder.child.alive) or (by.alive and folder.lives())):
            return "alive"
        return "settling" if by.alive and not by.stopped else "dead"

    def _lied(self, attempt: AttemptKey, folder: Folder, identity: ExecutionIdentity | None) -> tuple[ProcessSeen, ...]:
        lies: list[ProcessSeen] = []
        if "second process" in folder.lies and identity is not None:
            lies.append(ProcessSeen(attempt, ExecutionIdentity("elsewhere", "boot 1", "1", 1, 1), "alive" if folder.lives() else "dead"))
        if "late process" in folder.lies and folder.terminal is not None:
            lies.append(ProcessSeen(attempt, None, "alive"))
        return tuple(lies)

    def _output(self, attempt: AttemptKey, folder: Folder) -> tuple[OutputSeen, ...]:
        if folder.output is None:
            return ()
        place = "/shared" if "shared place" in folder.lies else f"/{attempt.nonce.hex}"
        seen = OutputSeen(attempt, place, Sha256(folder.output * 64), 1, "renamed into place")
        if "second output" not in folder.lies:
            return (seen,)
        return (seen, OutputSeen(attempt, f"{place}/other", Sha256("e" * 64), 1, "renamed into place"))

    def _checkpoints(self, attempt: AttemptKey, folder: Folder) -> tuple[CheckpointSeen, ...]:
        return tuple(clean.checkpoint(attempt, step, whole) for step, whole in folder.checkpoints)

    def _manifest(self, attempt: AttemptKey, folder: Folder) -> tuple[ManifestSeen, ...]:
        return () if folder.integration == "none" else (ManifestSeen(attempt, "trainer", clean.effective(folder.integration)),)

    # ------------------------------------------------------------------------------------------------------ scheduler

    def _jobs(self, attempt: AttemptKey) -> tuple[ProcessSeen, ...]:
        found: list[ProcessSeen] = []
        folder = self.world.folders.get((self.world.place(self.host), attempt.nonce.hex))
        for job in self.world.jobs.get(attempt.nonce.hex, ()):
            if job.forgotten:
                if not self.world.retention_known:
                    raise Unseen("an ended job may have been forgotten")
                continue
            if job.listed_ms > self.world.true_ms or job.state == "removed" or folder is None:
                continue
            named = folder.process
            mine = named is not None and folder.started is not None and folder.started[2] is job.supervisor
            identity = ExecutionIdentity(named[0].name, f"boot {named[1]}", "1", named[2], 7) if named is not None and mine else None
            if job.state == "queued":
                found.append(ProcessSeen(attempt, None, "settling"))
            elif job.state == "running":
                found.append(ProcessSeen(attempt, identity, "alive" if folder.lives() and mine else "settling"))
            elif mine:
                found.append(ProcessSeen(attempt, identity, "dead"))
        return tuple(found) if folder is None else (*found, *self._lied(attempt, folder, found[0].execution if found else None))

    def _scheduler_terminals(self, attempt: AttemptKey) -> tuple[Terminal, ...]:
        folder = self.world.folders.get((self.world.place(self.host), attempt.nonce.hex))
        for job in self.world.jobs.get(attempt.nonce.hex, ()):
            started = folder is not None and folder.started is not None and folder.started[2] is job.supervisor
            if started and folder is not None and job.state == "ended" and not job.forgotten and job.listed_ms <= self.world.true_ms:
                return (Terminal(attempt, scheduler_outcome(folder), "scheduler", 0),)
        return ()
