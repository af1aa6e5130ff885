"""The simulated hosts: attempt folders, supervisors, the trainers that they fork, and the jobs of a cluster.

Rules kept here:

1. Each ``yield`` is a step: whatever runs may be stopped, continued or killed there, and anybody else may run in between. What stands
   between two yields happens at once, as an exclusive create or a rename does.
2. A supervisor and its child do what ``countermark.launch`` does, in its order: the exclusive start receipt, the fork, the lock, the
   process receipt, the fence under the lock, exec; the terminal after the last descendant.
3. A trainer does what its plan says. What it really did is kept beside the folder, so that conclusions can be held against the truth.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from countermark.evidence.members import (
    CancelledByRequest,
    Failed,
    Killed,
    NotExecuted,
    Outcome,
    Preempted,
    Succeeded,
)
from countermark.run.attempts import AttemptKey
from tests.simulation.history import Began, Ended

if TYPE_CHECKING:
    from tests.simulation.world import World

#: What a process does, step by step; each step's name says what was done last.
Script: TypeAlias = Generator[str, None, None]

Integration = Literal["agrees", "diverges", "unread", "none"]
Lie = Literal["terminal", "second output", "shared place", "refusal", "second process", "late process"]

#: How a trainer may end by itself, the plain way first.
ENDS: tuple[Outcome, ...] = (Succeeded(), Failed(1), Failed(3), Killed(9), Killed(15), Killed(11))


class Process:
    """Something that runs on a host until it ends, is killed, or is stopped for a while."""

    __slots__ = ("at", "continued", "host", "kind", "mortal", "name", "script", "stopped")

    def __init__(self, name: str, host: "Host", script: Script, mortal: bool = True) -> None:
        self.name = name
        self.kind = name.partition(" ")[0]
        #: Whether it can be killed and stopped; what a scheduler does cannot.
        self.mortal = mortal
        self.host = host
        self.script: Script | None = script
        self.at = "begun"
        self.stopped = False
        #: The step at which it was continued last.
        self.continued = -1

    def step(self) -> None:
        if self.script is None:
            return
        try:
            self.at = next(self.script)
        except StopIteration:
            self.script = None

    def kill(self) -> None:
        if self.script is not None:
            self.script.close()
            self.script = None

    @property
    def alive(self) -> bool:
        return self.script is not None


class Host:
    """A machine: its name and which boot it is in."""

    __slots__ = ("boot", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.boot = 1


@final
@dataclass(slots=True)
class Plan:
    """What a trainer will do, decided when it begins. ``checkpoints``: for each, whether it is whole."""

    integration: Integration
    checkpoints: tuple[bool, ...]
    output: bool
    end: Outcome
    hangs: bool
    descendant: bool


@final
@dataclass(slots=True, eq=False)
class Execution:
    """One trainer that really began: where, when (in steps), and how its main process ended."""

    attempt: AttemptKey
    host: Host
    boot: int
    pid: int
    began_at: int
    end: Outcome | None = None
    main_alive: bool = True
    members: int = 1

    @property
    def alive(self) -> bool:
        """Whether the trainer or a descendant of it lives."""
        return self.members > 0


@final
@dataclass(slots=True, eq=False)
class Folder:
    """The folder of one attempt, with what really happened there (``executions``, ``terminal_at``, ``lies``)."""

    attempt: AttemptKey
    claimed: bool = False
    started: tuple[Host, int, Process] | None = None
    process: tuple[Host, int, int] | None = None
    child: Process | None = None
    holders: list[object] = field(default_factory=list[object])
    #: Who shuts trainers out at this moment: no look takes a fence for a trainer.
    fencing: list[object] = field(default_factory=list[object])
    fenced: bool = False
    stop: bool = False
    terminal: Outcome | None = None
    terminal_at: int = -1
    output: str | None = None
    integration: Integration = "none"
    checkpoints: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    executions: list[Execution] = field(default_factory=list[Execution])
    lies: set[Lie] = field(default_factory=set[Lie])
    #: A call that started nothing said so; another call of the same claim may have gone on.
    refused: bool = False

    def lives(self) -> bool:
        return any(execution.alive for execution in self.executions)


@final
@dataclass(slots=True, eq=False)
class Said:
    """What a supervisor told whoever started it; empty while it said nothing."""

    answer: Literal["", "started", "already", "not started"] = ""


def exclusive(folder: Folder) -> bool:
    """Whether somebody has the start receipt already."""
    return folder.started is not None


def barred(folder: Folder) -> bool:
    """Whether the child, holding the lock, must not become the trainer."""
    return folder.fenced or folder.stop


def supervisor(world: "World", host: Host, folder: Folder, said: Said) -> Script:
    """Win the start, fork, wait for every descendant, write the terminal."""
    me = world.running
    yield "begun"
    if exclusive(folder):
        said.answer = "already"
        return
    if not world.cluster and world.fails("refuse"):
        said.answer = "not started"
        return
    folder.started = (host, host.boot, me)
    yield "start written"
    said.answer = "started"
    child = world.spawn(f"child of {folder.attempt.nonce.hex[:2]}", host, lambda: trainer(world, host, folder, me))
    folder.child = child
    yield "forked"
    asked = False
    while child.alive or folder.lives():
        if folder.stop and not asked:
            asked = True
            yield "stop seen"
            world.signal(folder, Killed(15))
        yield "waiting"
    yield "descendants ended"
    end = folder.executions[-1].end if folder.executions else None
    if end is None:
        end = CancelledByRequest() if folder.stop or folder.fenced else NotExecuted(125, "it never began")
    elif folder.stop:
        end = CancelledByRequest()
    if folder.terminal is None:
        folder.terminal = end
        folder.terminal_at = world.steps
    yield "terminal written"


def trainer(world: "World", host: Host, folder: Folder, parent: Process) -> Script:
    """The supervisor's child: lock, process receipt, fence, exec; then the trainer's own steps."""
    me = world.running
    yield "child begun"
    while folder.holders or folder.fencing:
        yield "waiting for the lock"
    folder.holders.append(me)
    try:
        yield "locked"
        world.pids += 1
        pid = world.pids
        folder.process = (host, host.boot, pid)
        yield "process written"
        if barred(folder):
            return
        yield "fence checked"
        execution = world.exec(folder, host, pid)
        try:
            yield from _train(world, folder, execution)
        finally:
            # However it went, also by being killed: the main process is gone.
            world.main_ended(folder, execution)
    finally:
        folder.holders.remove(me)


def _train(world: "World", folder: Folder, execution: Execution) -> Script:
    plan = world.plan(folder)
    yield "exec"
    folder.integration = plan.integration
    yield "manifest written"
    for number, whole in enumerate(plan.checkpoints, start=1):
        folder.checkpoints.append((number + world.best_step(folder), whole))
        yield "checkpoint written"
    if plan.descendant:
        execution.members += 1
        descendant = world.spawn(
            f"descendant of {folder.attempt.nonce.hex[:2]}", execution.host, lambda: _descendant(world, folder, execution)
        )
        # It inherits the lock with the fork.
        world.go_on(descendant)
    while plan.hangs and not world.quiet:
        yield "hanging"
    if plan.output:
        folder.output = world.digest(folder)
        yield "output written"
    execution.end = plan.end


def _descendant(world: "World", folder: Folder, execution: Execution) -> Script:
    """A data loader that holds the lock and lives on for a while."""
    me = world.running
    folder.holders.append(me)
    try:
        yield "descendant"
        while execution.main_alive:
            yield "descendant"
        yield "descendant alone"
    finally:
        folder.holders.remove(me)
        world.member_ended(execution)


def began(attempt: AttemptKey, execution: Execution) -> Began:
    return Began(attempt.nonce.hex, f"{execution.host.name}/{execution.boot}/{execution.pid}")


def ended(attempt: AttemptKey, execution: Execution) -> Ended:
    return Ended(attempt.nonce.hex, f"{execution.host.name}/{execution.boot}/{execution.pid}")


# ------------------------------------------------------------------------------------------------------------- cluster


@final
@dataclass(slots=True, eq=False)
class Job:
    """A job of the cluster's scheduler, named after its claim. ``listed_ms``: from when on the listing shows it; ``late``: that is after
    the grace that counts from its intent."""

    attempt: AttemptKey
    listed_ms: int
    late: bool
    state: Literal["queued", "running", "ended", "removed"] = "queued"
    supervisor: Process | None = None
    forgotten: bool = False


def job_script(world: "World", job: Job, folder: Folder) -> Script:
    """The scheduler's part: queue, run the in-job supervisor on some node, maybe run it once more elsewhere, and take note of the end."""
    yield "queued"
    if job.state == "removed":
        return
    copies = 2 if world.choices.chance(world.rates.requeue) else 1
    for copy in range(copies):
        job.state = "running"
        host = world.nodes[(copy + world.choices.pick(len(world.nodes))) % len(world.nodes)]
        job.supervisor = _supervise(world, host, folder)
        yield "running"
        while job.supervisor.alive:
            if copy + 1 < copies and world.choices.chance(0.2):
                # The node fails and takes everything of the job with it; the scheduler starts the job again.
                world.lose_node(folder, host, job.supervisor)
            yield "running"
        # A scheduler ends each run of a job with everything that it left behind, also before it starts the job again.
        world.sweep_up(folder, job)
    job.state = "ended"


def _supervise(world: "World", host: Host, folder: Folder) -> Process:
    """The in-job supervisor, which nobody waits for."""
    return world.spawn(f"supervisor of {folder.attempt.nonce.hex[:2]}", host, lambda: supervisor(world, host, folder, Said()))


def scheduler_outcome(folder: Folder) -> Outcome:
    """What the scheduler's accounting says of an ended job."""
    end = folder.executions[-1].end if folder.executions else None
    if folder.terminal is not None:
        return folder.terminal
    return Preempted() if end is None else end
