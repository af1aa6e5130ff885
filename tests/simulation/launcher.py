"""The simulated launchers: local processes of one host (create or get), and two kinds of cluster, one that creates or gets by claim.

Rules kept here:

1. Between any two steps of a launch, a fence or a stop its caller may wait or die; what it did until then stays.
2. A launch that was broken off says what ``countermark.launch.local`` would: the start receipt decides, nothing else does. It may find no
   room before the claim, for a process, or for the supervisor's start. A cluster's call that timed out may have queued the job or not.
3. A cluster's key closes the gap between launch and record only: it is free again once the job is forgotten.
"""

from typing import TYPE_CHECKING

from countermark.evidence.members import Killed
from countermark.launch.local import Fenced, FenceFailed, FenceHeldOff, FenceResult
from countermark.launch.order import LaunchOrder
from countermark.launch.stopping import NothingToStop, Stopped, StopPending, StopResult
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown, LaunchResult
from tests.simulation.broken import Broken
from tests.simulation.clean import GRACE_MS
from tests.simulation.hosts import Folder, Host, Job, Said, supervisor

if TYPE_CHECKING:
    from tests.simulation.world import World

_NO_ROOM = DispatchRefused("no space left on device")


class SimLauncher:
    """Starts attempts from ``host``."""

    def __init__(self, world: "World", host: Host) -> None:
        self.world = world
        self.host = host

    def folder(self, nonce: str) -> Folder:
        """The attempt's folder, as it is or would be."""
        return self.world.folder(self.world.place(self.host), nonce)

    def _made(self, nonce: str) -> Folder:
        place = self.world.place(self.host)
        made = self.world.folder(place, nonce)
        self.world.folders[place, nonce] = made
        return made

    # ------------------------------------------------------------------------------------------------------ dispatch

    def dispatch(self, order: LaunchOrder) -> LaunchResult:
        world = self.world
        world.pause("launch called")
        folder = self._made(order.nonce)
        if world.fails("refuse"):
            return self._looked(folder, _NO_ROOM)
        world.pause("folder made")
        world.pause("manifest written")
        if not folder.claimed:
            if world.fails("refuse"):
                return self._looked(folder, _NO_ROOM)
            world.may_be_lied_about(folder)
        folder.claimed = True
        world.pause("claim written")
        answer = self._submit(order.nonce, folder) if world.cluster else self._start(folder)
        if "refusal" in folder.lies:
            return DispatchRefused("the launcher reports a failure and starts all the same")
        return answer

    def _start(self, folder: Folder) -> LaunchResult:
        """Start a supervisor, and wait until it won or lost the start."""
        world = self.world
        if folder.started is not None:
            return Dispatched("already started")
        if world.fails("refuse"):
            return self._looked(folder, _NO_ROOM)
        said = Said()
        name = f"supervisor of {folder.attempt.nonce.hex[:2]}"
        started = world.spawn(name, self.host, lambda: supervisor(world, self.host, folder, said))
        world.pause("supervisor launched")
        while said.answer == "" and started.alive:
            if world.fails("time out"):
                break
            world.pause("waiting for the supervisor")
        if said.answer in ("started", "already"):
            return Dispatched("started")
        return self._looked(folder, _NO_ROOM if said.answer == "not started" else DispatchUnknown("the supervisor said nothing"))

    def _looked(self, folder: Folder, said: DispatchRefused | DispatchUnknown) -> LaunchResult:
        """The answer of a call that heard of no start."""
        if folder.started is not None:
            return Dispatched(f"started, although {said.why}")
        if isinstance(said, DispatchRefused):
            folder.refused = True
        return said

    def _submit(self, nonce: str, folder: Folder) -> LaunchResult:
        """Submit a job, or get the one of this claim where the cluster can."""
        world = self.world
        known = [job for job in world.jobs.get(nonce, ()) if not job.forgotten]
        if world.launcher == "ray" and known:
            return Dispatched("the job is there already")
        if world.fails("time out") and world.choices.chance(0.5):
            return DispatchUnknown("the call timed out before anything was queued")
        if world.launcher == "slurm" and world.jobs.get(nonce):
            raise Broken(f"attempt {nonce[:2]} is submitted a second time to a scheduler that cannot tell")
        listed_ms = world.true_ms + world.choices.pick(world.lag_ms_max + 1)
        intended_ms = max(intent.recorded_ms for intent in world.store.ledger.intents if intent.attempt == folder.attempt)
        job = Job(folder.attempt, listed_ms, listed_ms + world.offset_ms > intended_ms + GRACE_MS)
        world.jobs.setdefault(nonce, []).append(job)
        world.queue(job, folder)
        world.pause("job queued")
        if world.fails("time out"):
            return DispatchUnknown("the call timed out")
        return Dispatched("job queued")

    # -------------------------------------------------------------------------------------------------- fence and stop

    def fence(self, nonce: str) -> FenceResult:
        world = self.world
        world.pause("fencing")
        if world.fails("fence"):
            return FenceFailed("read-only file system")
        folder = self._made(nonce)
        me = object()
        if folder.holders or folder.fencing:
            return FenceHeldOff()
        folder.fencing.append(me)
        try:
            world.pause("lock taken")
            folder.fenced = True
            world.pause("fence written")
        finally:
            folder.fencing.remove(me)
        return Fenced()

    def stop(self, nonce: str, grace_s: float) -> StopResult:
        world = self.world
        world.pause("stopping")
        folder = self._made(nonce)
        folder.stop = True
        world.pause("stop written")
        for job in world.jobs.get(nonce, ()):
            if job.state == "queued":
                job.state = "removed"
        if folder.started is None:
            return NothingToStop()
        _, boot, by = folder.started
        if boot == by.host.boot and by.alive and not by.stopped:
            # The supervisor sees to it; whether it did shows at the next look.
            return StopPending("its supervisor was asked")
        # It is dead or stopped: what lives of the attempt is signalled from here.
        world.signal(folder, Killed(9))
        return Stopped() if not folder.lives() else StopPending("a process of the attempt still lives")
