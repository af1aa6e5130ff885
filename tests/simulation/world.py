"""One simulated history: hosts, controllers, persons, a clock, and whatever goes wrong, in an order that the decisions give.

Rules kept here:

1. Controllers and persons run the program's own operations (``countermark.app``) as they are, over simulated ports. Each call of a port is
   a moment at which another may run, or at which they die.
2. One thing happens at a time. Who is next, what fails and what a trainer does are decisions (``Choices``): nothing else is random.
3. After the turbulent part everything that stopped is continued, whoever died is started again and nothing fails any more.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from greenlet import GreenletExit, getcurrent, greenlet

from countermark.evidence.members import Killed, Outcome
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Launcher, RunLedger
from tests.simulation import clean
from tests.simulation.broken import Broken
from tests.simulation.choices import Choices
from tests.simulation.history import Event
from tests.simulation.history import Killed as KilledEvent
from tests.simulation.hosts import (
    ENDS,
    Execution,
    Folder,
    Host,
    Integration,
    Job,
    Lie,
    Plan,
    Process,
    Script,
    began,
    ended,
    job_script,
)
from tests.simulation.ledger import SimStore

Failing = Literal["read", "refuse", "time out", "fence"]
LIES: tuple[Lie, ...] = ("terminal", "second output", "shared place", "refusal", "second process", "late process")


@final
@dataclass(slots=True)
class Rates:
    """How often what goes wrong, for each step or call (0 … 1)."""

    fault: float = 0.0
    read: float = 0.0
    refuse: float = 0.0
    time_out: float = 0.0
    fence: float = 0.0
    lie: float = 0.0
    requeue: float = 0.0
    dishonest: float = 0.0
    person: float = 0.0
    leap: float = 0.0
    failing: float = 0.0


class Actor:
    """A controller or a person: a program that waits at each call of a port."""

    def __init__(self, name: str, host: Host, body: Callable[["Actor"], None]) -> None:
        self.name = name
        self.host = host
        self.body = body
        self.at = "begun"
        self.alive = True
        self.stopped = False
        self.lazy = False
        #: How far the world had moved when it looked last.
        self.moves = -1
        self.stages: dict[str, int] = {}
        #: When it began to read processes last, by the true clock.
        self.looked_ms = 0
        #: Every place at which it waited.
        self.past: set[str] = set()
        self.let = greenlet(self._run)

    def _run(self) -> None:
        self.body(self)
        self.alive = False


class World:
    """Everything that there is in one history."""

    def __init__(self, choices: Choices, tracing: bool = False) -> None:
        self.choices = choices
        self.trace: list[str] | None = [] if tracing else None
        self.hub = getcurrent()
        self.history: list[Event] = []
        self.figures: Counter[str] = Counter()
        self.steps = 0
        #: How often something changed that is worth another look.
        self.moves = 0
        self.true_ms = 1_000_000
        self.offset_ms = 0
        self.ids = 0
        self.pids = 100
        self.quiet = False
        self.rates = Rates()
        self.faults: Sequence[str] = ("die",)
        self.retries = 0
        self.launcher: Launcher = "local"
        self.hosts: list[Host] = []
        self.nodes: list[Host] = []
        self.folders: dict[tuple[str, str], Folder] = {}
        self.jobs: dict[str, list[Job]] = {}
        self.processes: list[Process] = []
        #: Where processes waited, each point with what waits there.
        self.processes_past: set[tuple[str, str]] = set()
        self.actors: list[Actor] = []
        self.lag_ms_max = 0
        self.retention_known = True
        self.running: Process = Process("nobody", Host("nowhere"), _nothing())
        self.acting: Actor | None = None
        self.store = SimStore(self, RunLedger(clean.desired(), 0), clean.CONTEXT)
        self.by_nonce = {key.nonce.hex: key for key in map(clean.key, range(60))}

    # ------------------------------------------------------------------------------------------------- what is told

    def note(self, event: Event) -> None:
        self.history.append(event)
        self.moves += 1

    def say(self, text: str) -> None:
        if self.trace is not None:
            who = self.acting.name if self.acting is not None else self.running.name
            self.trace.append(f"{self.steps:4} {who}: {text}")

    def called(self, fact: object) -> str:
        """What a fact is about, for the trace."""
        if self.trace is None:
            return ""
        transition = getattr(fact, "transition", None)
        attempt: AttemptKey | None = getattr(fact, "attempt", None)
        cause = "" if transition is None else f" {transition.cause!r}".replace(repr(clean.desired().demand.work), "…")
        result = getattr(fact, "result", "")
        return f"{'' if attempt is None else attempt.nonce.hex[:2]}{cause} {result}".strip()

    # ------------------------------------------------------------------------------------------------ clock and names

    @property
    def cluster(self) -> bool:
        return self.launcher != "local"

    def place(self, host: Host) -> str:
        """Under which name a launch from this host stands in the ledger, and its folders lie."""
        return "cluster" if self.cluster else host.name

    def now_ms(self) -> int:
        return self.true_ms + self.offset_ms

    def new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def new_nonce(self) -> str:
        self.ids += 1
        self.pids += 1
        number = self.figures["nonces"]
        self.figures["nonces"] = number + 1
        return clean.nonces()[number].hex

    def folder(self, place: str, nonce: str) -> Folder:
        found = self.folders.get((place, nonce))
        return Folder(self.by_nonce[nonce]) if found is None else found

    def past(self) -> set[str]:
        """Every point at which somebody waited, with what waited there."""
        actors = {f"{actor.name.partition(' ')[0]} {point}" for actor in self.actors for point in actor.past}
        return actors | {f"{kind} {point}" for kind, point in self.processes_past}

    # ----------------------------------------------------------------------------------------------- what may happen

    def pause(self, at: str) -> None:
        """A call of a port: others may run now."""
        actor = self.acting
        if actor is not None:
            actor.at = at
            actor.past.add(at)
            self.hub.switch()

    def maybe_pause(self, at: str) -> None:
        if self.choices.chance(0.1):
            self.pause(at)

    def fails(self, what: Failing) -> bool:
        if self.quiet:
            return False
        rates = self.rates
        match what:
            case "read":
                often = rates.read
            case "refuse":
                often = rates.refuse
            case "time out":
                often = rates.time_out
            case "fence":
                often = rates.fence
        if not self.choices.chance(often):
            return False
        self.figures[f"fault: {what}"] += 1
        self.say(f"fails: {what}")
        return True

    def stage_begins(self, stage: str) -> None:
        if self.acting is not None:
            if stage == "processes":
                self.acting.looked_ms = self.true_ms
            self.acting.stages["terminals again" if stage in self.acting.stages and stage == "terminals" else stage] = self.steps

    def spawn(self, name: str, host: Host, script: Callable[[], Script], mortal: bool = True) -> Process:
        process = Process(name, host, script(), mortal)
        self.processes.append(process)
        return process

    def go_on(self, process: Process) -> None:
        """Let a process do its next step."""
        before, self.running = self.running, process
        process.step()
        self.processes_past.add((process.kind, process.at))
        self.running = before

    def may_be_lied_about(self, folder: Folder) -> None:
        """Decide, when an attempt is launched, whether an observer will be told something untrue of it."""
        if self.choices.chance(self.rates.lie):
            lie = LIES[self.choices.pick(len(LIES))]
            folder.lies.add(lie)
            self.figures[f"lie: {lie}"] += 1
            self.say(f"a lie will be told about {folder.attempt.nonce.hex[:2]}: {lie}")

    # ---------------------------------------------------------------------------------------------- what trainers do

    def plan(self, folder: Folder) -> Plan:
        choices = self.choices
        if not choices.chance(self.rates.dishonest):
            end = ENDS[choices.pick(len(ENDS))] if choices.chance(self.rates.failing) else ENDS[0]
            good = end == ENDS[0]
            written = tuple(choices.chance(0.8) for _ in range(choices.pick(3)))
            return Plan("agrees", written, good, end, choices.chance(0.2), choices.chance(0.15))
        kinds: tuple[Integration, ...] = ("agrees", "diverges", "unread", "none")
        return Plan(kinds[choices.pick(4)], (), not choices.chance(0.5), ENDS[0], False, False)

    def best_step(self, folder: Folder) -> int:
        return sum(len(each.checkpoints) for each in self.folders.values() if each is not folder)

    def digest(self, folder: Folder) -> str:
        return "df"[self.choices.pick(2)]

    def exec(self, folder: Folder, host: Host, pid: int) -> Execution:
        if not self.store.is_open():
            raise Broken(f"a trainer of {folder.attempt.nonce.hex[:2]} begins after the run was closed as {self.store.closed_arm}")
        execution = Execution(folder.attempt, host, host.boot, pid, self.steps)
        folder.executions.append(execution)
        self.note(began(folder.attempt, execution))
        self.figures["launches"] += 1
        self.figures["launched twice"] += len(folder.executions) > 1
        self.say(f"TRAINER BEGINS for {folder.attempt.nonce.hex[:2]} on {host.name}")
        return execution

    def main_ended(self, folder: Folder, execution: Execution) -> None:
        execution.main_alive = False
        if execution.end is None:
            execution.end = Killed(9)
        self.say(f"trainer of {folder.attempt.nonce.hex[:2]} ended: {execution.end}")
        self.member_ended(execution)

    def member_ended(self, execution: Execution) -> None:
        execution.members -= 1
        if execution.members == 0:
            self.note(ended(execution.attempt, execution))

    def signal(self, folder: Folder, end: Outcome) -> None:
        """End whatever of the attempt began."""
        for execution in folder.executions:
            if execution.main_alive and execution.end is None:
                execution.end = end
        if folder.child is not None:
            folder.child.kill()
        for holder in tuple(folder.holders):
            if isinstance(holder, Process):
                holder.kill()

    # ------------------------------------------------------------------------------------------------------- cluster

    def queue(self, job: Job, folder: Folder) -> None:
        self.spawn(f"job of {folder.attempt.nonce.hex[:2]}", self.nodes[0], lambda: job_script(self, job, folder), False)

    def lose_node(self, folder: Folder, host: Host, lost: Process) -> None:
        self.figures["fault: node lost"] += 1
        self.say(f"node {host.name} is lost")
        lost.kill()
        self.signal(folder, Killed(9))

    def sweep_up(self, folder: Folder, job: Job) -> None:
        """End what the job's dead supervisor left behind."""
        if folder.started is not None and folder.started[2] is job.supervisor:
            self.signal(folder, Killed(9))

    # ------------------------------------------------------------------------------------------------------- dying

    def die(self, actor: Actor) -> None:
        self.figures[f"controller killed: {actor.at}"] += 1
        self.note(KilledEvent("controller", actor.at))
        self.say(f"{actor.name} dies at: {actor.at}")
        actor.alive = False
        self.acting = None
        if actor.let:
            actor.let.throw(GreenletExit)

    def bury(self) -> None:
        """End every program that still waits, so that nothing of a history is left in memory."""
        self.acting = None
        for actor in self.actors:
            if actor.let:
                actor.let.throw(GreenletExit)
        for process in self.processes:
            process.kill()

    # ------------------------------------------------------------------------------------------------------- invariants

    def must_not_be_dispatched(self, attempt: AttemptKey) -> None:
        """Called where an intent was admitted: the launcher will be called for the attempt."""
        if any(outcome.attempt == attempt for outcome in self.store.ledger.outcomes):
            raise Broken(f"attempt {attempt.nonce.hex[:2]} may be dispatched again after its outcome")
        if self.store.ledger.cancellations:
            raise Broken(f"attempt {attempt.nonce.hex[:2]} may be dispatched although the run was cancelled")


def _nothing() -> Script:
    yield from ()
