"""How a history is lived: who there is, what goes wrong, and the calm in which everything must come to rest.

Rules kept here:

1. In the calm, whatever was stopped goes on, every host has a controller, nothing fails and nobody asks for anything.
2. Within a bounded number of rounds the run is then closed, or waits for a person and says for what. Nothing else is rest.
3. A closed run that nobody changed is concluded to be closed again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from countermark.app import acting, running, sweeping
from countermark.app.running import Step
from countermark.files.attempt_folder import ReceiptAbsent, ReceiptRead
from countermark.lines.surface import AttemptNotFenced, CheckpointGone, RetriesUsedUp
from countermark.run.attempts import AttemptKey
from countermark.run.claims import RunLedger
from countermark.values import Refused
from countermark.verdict import Conclusion, Sweep, fold
from countermark.verdict.kinds import (
    Blocked,
    Cancelled,
    Converged,
    LaunchPending,
    Lost,
    ObservationRequired,
    ResumeAvailable,
    RetryRequired,
    SeveralCandidates,
    StopRequired,
    Verdict,
)
from tests.simulation import clean
from tests.simulation.broken import Broken
from tests.simulation.choices import Choices
from tests.simulation.clean import GRACE_MS
from tests.simulation.history import Killed as KilledEvent
from tests.simulation.hosts import Folder, Host, Process
from tests.simulation.judging import at_the_end, folders_of, judge
from tests.simulation.ledger import RUN
from tests.simulation.persons import WISHES, ask, called_at_the_end
from tests.simulation.ports import SimPorts
from tests.simulation.world import Actor, World

ROUNDS_MAX: Final = 60
LEVELS: Final = (0.02, 0.08, 0.25)

#: Where a supervisor or its child has not become the trainer yet.
BEFORE_EXEC: Final = frozenset({"begun", "start written", "forked", "child begun", "locked", "process written", "fence checked"})

#: What goes wrong in a history, each as often as it stands there.
MENUS: Final = (
    ("die", "die", "die", "kill", "freeze", "reboot", "forget"),
    ("freeze", "freeze", "freeze", "freeze", "kill", "die"),
    ("kill", "kill", "kill", "freeze", "die", "forget"),
)

_WORLD: list[World] = []


# ------------------------------------------------------------------------------------------------------- the program


@contextmanager
def simulated() -> Iterator[None]:
    """The program's own operations, with what they do beside deciding (bytes for files, texts for people) left out, and each conclusion
    held against the truth."""
    concluded = running.conclude

    def concluding(sweep: Sweep) -> Any:
        conclusion = concluded(sweep)
        world = _WORLD[-1]
        assert isinstance(conclusion, Conclusion), f"a sweep of the program fits together: {conclusion}"
        assert world.acting is not None
        world.say(f"concludes {type(conclusion.verdict).__name__} at version {sweep.ledger.version}")
        judge(world, world.acting, sweep, conclusion)
        world.pause("concluded")
        return conclusion

    with ExitStack() as stack:
        for target, name, replacement in (
            (running, "conclude", concluding),
            (running, "encode_sweep", lambda sweep: b""),
            (running, "conclusion_lines", lambda conclusion: ()),
            (acting, "encode_desired", lambda desired: b""),
            (acting, "read_terminal", _terminal_of),
            (fold, "admit_checkpoint", clean.admitted),
            (sweeping, "admit_checkpoint", clean.admitted),
        ):
            stack.enter_context(patch.object(target, name, replacement))
        yield


def _terminal_of(folder: Folder) -> ReceiptRead[object] | ReceiptAbsent:
    """A folder's terminal, as far as the program asks whether there is one."""
    return ReceiptAbsent() if folder.terminal is None else ReceiptRead(folder.terminal)


# ------------------------------------------------------------------------------------------------------------ actors


def controller(world: World, retries: int, seen: dict[str, tuple[Verdict, object]]) -> Callable[[Actor], None]:
    """Look and act whenever the run is on the agenda; ``seen`` keeps each controller's last verdict, and what became of it."""

    def body(actor: Actor) -> None:
        ports: Any = SimPorts(world, actor.host)
        while True:
            world.pause("idle")
            # As the program's own waiting does, it looks again when something changed or time went by.
            if (world.store.is_open() and actor.moves != world.moves) or actor.lazy:
                actor.stages = {}
                actor.moves = world.moves
                step = running.advance(ports, RUN, 0 if actor.lazy else retries, lambda verdict: not actor.lazy)
                seen[actor.name] = (_verdict_of(world, step), step)

    return body


def _verdict_of(world: World, step: Step | Refused[object]) -> Any:
    return step.looked.conclusion.verdict if isinstance(step, Step) else world.store.arm


def set_up(world: World) -> tuple[int, int]:
    """Decide who there is; answers the number of retries that are allowed, and of turbulent steps."""
    choices = world.choices
    world.launcher = ("local", "local", "slurm", "ray")[choices.pick(4)]  # type: ignore[assignment]
    world.hosts = [Host(f"n{number}") for number in range(1, 2 + (0, 0, 1, 2)[choices.pick(4)])]
    world.nodes = [Host("node1"), Host("node2")]
    world.retention_known = not choices.chance(0.3)
    world.lag_ms_max = (0, GRACE_MS - 50)[choices.pick(2)]
    rates = world.rates
    for name in ("fault", "read", "refuse", "time_out", "fence", "lie", "requeue", "dishonest", "person", "leap"):
        often = 0.3 if name in ("lie", "dishonest", "refuse") else 0.6
        if choices.chance(often):
            setattr(rates, name, LEVELS[choices.pick(3)])
    rates.person *= 0.2
    menu = choices.pick(len(MENUS))
    world.faults = MENUS[menu]
    if menu == 1:
        # Who is stopped for long enough is taken for lost.
        rates.fault, rates.leap = max(rates.fault, 0.08), max(rates.leap, 0.08)
    rates.failing = (0.0, 0.3, 0.8)[choices.pick(3)]
    world.retries = choices.pick(3)
    return world.retries, 20 + 20 * choices.pick(5)


def live(choices: Choices, tracing: bool = False) -> World:
    """Live one history to its end. Raises ``Broken`` where something happened that must not; the world carries the trace."""
    world = World(choices, tracing)
    _WORLD.append(world)
    try:
        retries, length = set_up(world)
        seen: dict[str, tuple[Verdict, object]] = {}
        for number in range(2 + choices.pick(3)):
            _start(world, world.hosts[number % len(world.hosts)], retries, seen)
        try:
            turbulent(world, length, retries, seen)
            calm(world, retries, seen)
            at_the_end(world)
            if world.store.is_open() and choices.chance(0.5):
                # Whoever waits for a person gets one.
                ask(world, called_at_the_end(world, next(iter(seen.values()), (None, None))[0]))
                calm(world, retries, seen)
                at_the_end(world)
        except Broken as broken:
            broken.add_note("\n".join(world.trace or ()))
            raise
        return world
    finally:
        _WORLD.pop()
        world.bury()


def _start(world: World, host: Host, retries: int, seen: dict[str, tuple[Verdict, object]]) -> Actor:
    actor = Actor(f"controller {world.new_id()}@{host.name}", host, controller(world, retries, seen))
    world.actors.append(actor)
    return actor


def step(world: World, who: Actor | Process) -> None:
    """Let one of them go on to its next step."""
    if isinstance(who, Actor):
        world.acting = who
        try:
            who.let.switch()
        finally:
            world.acting = None
    else:
        world.go_on(who)


# --------------------------------------------------------------------------------------------------------- turbulence


def turbulent(world: World, length: int, retries: int, seen: dict[str, tuple[Verdict, object]]) -> None:
    choices, rates = world.choices, world.rates
    for _ in range(length):
        world.steps += 1
        world.true_ms += 20
        world.moves += world.steps % 16 == 0
        if choices.chance(rates.leap):
            _leap(world)
        if choices.chance(rates.fault):
            _fault(world, retries, seen)
        if choices.chance(rates.person):
            ask(world, WISHES[choices.pick(len(WISHES))])
        runnable: list[Actor | Process] = [actor for actor in world.actors if actor.alive and not actor.stopped]
        runnable.extend(process for process in world.processes if process.script is not None and not process.stopped)
        if not runnable or (len(runnable) == len(world.actors) and not world.store.is_open() and not rates.person):
            return
        step(world, runnable[choices.pick(len(runnable))])


def _leap(world: World) -> None:
    """Time passes, or somebody sets the clocks back."""
    world.moves += 1
    match world.choices.pick(4):
        case 0 | 1:
            world.true_ms += 700
        case 2:
            world.true_ms += 3 * GRACE_MS
        case other:
            assert other == 3
            world.offset_ms -= 5_000
            world.figures["fault: clock stepped back"] += 1


def _fault(world: World, retries: int, seen: dict[str, tuple[Verdict, object]]) -> None:
    choices = world.choices
    actors = [actor for actor in world.actors if actor.alive]
    processes = [process for process in world.processes if process.alive and process.mortal]
    what = world.faults[choices.pick(len(world.faults))]
    if what == "die" or (what == "kill" and not processes):
        at_work = [actor for actor in actors if actor.at not in ("idle", "begun")] or actors
        victim = at_work[choices.pick(len(at_work))]
        world.die(victim)
        if victim.name.startswith("controller"):
            _start(world, victim.host, retries, seen)
    elif what == "kill":
        process = processes[choices.pick(len(processes))]
        world.figures[f"killed: {process.name.split()[0]} {process.at}"] += 1
        world.note(KilledEvent(process.name.split()[0], process.at))
        world.say(f"{process.name} is killed at: {process.at}")
        process.kill()
    elif what == "freeze":
        early = [process for process in processes if process.at in BEFORE_EXEC and not process.stopped]
        _freeze(world, early if early and choices.chance(0.6) else [*actors, *processes])
    elif what == "reboot":
        _reboot(world, world.hosts[choices.pick(len(world.hosts))], retries, seen)
    else:
        _forget(world)


def _freeze(world: World, everyone: Sequence[Actor | Process]) -> None:
    """Stop somebody, or continue who was stopped."""
    who = everyone[world.choices.pick(len(everyone))]
    who.stopped = not who.stopped
    world.figures[f"{'stopped' if who.stopped else 'continued'}: {who.name.split()[0]} {who.at}"] += 1
    world.say(f"{who.name} is {'stopped' if who.stopped else 'continued'} at: {who.at}")
    if isinstance(who, Process):
        who.continued = world.steps


def _reboot(world: World, host: Host, retries: int, seen: dict[str, tuple[Verdict, object]]) -> None:
    world.figures["fault: host booted again"] += 1
    world.say(f"{host.name} is booted again")
    for process in world.processes:
        if process.alive and process.host is host:
            process.kill()
    for actor in tuple(world.actors):
        if actor.alive and actor.host is host:
            world.die(actor)
            if actor.name.startswith("controller"):
                _start(world, host, retries, seen)
    host.boot += 1


def _forget(world: World) -> None:
    """The cluster forgets an ended job whose outcome was recorded; its key is free again."""
    recorded = {outcome.attempt.nonce.hex for outcome in world.store.ledger.outcomes}
    for nonce, jobs in world.jobs.items():
        for job in jobs:
            if job.state == "ended" and nonce in recorded and not job.forgotten:
                job.forgotten = True
                world.figures["fault: job forgotten"] += 1
                return


# --------------------------------------------------------------------------------------------------------------- calm


def calm(world: World, retries: int, seen: dict[str, tuple[Verdict, object]]) -> None:
    """Let everything come to rest, and see what it rests at."""
    world.quiet = True
    world.say("CALM")
    for who in (*world.actors, *world.processes):
        if who.stopped:
            who.stopped = False
            if isinstance(who, Process):
                who.continued = world.steps
    for host in world.hosts:
        if not any(_looks(actor) and actor.host is host for actor in world.actors):
            _start(world, host, retries, seen)
    for actor in world.actors:
        # A controller finishes what it is at; a person gets what was asked for.
        _once(world, actor, 0 if _looks(actor) else -1)
    lookers = [next(actor for actor in world.actors if _looks(actor) and actor.host is host) for host in world.hosts]
    for actor in world.actors:
        actor.alive = actor in lookers
    for _ in range(ROUNDS_MAX):
        before = _counted(world)
        _run_out(world)
        world.true_ms += 2 * GRACE_MS
        world.moves += 1
        seen.clear()
        for actor in lookers:
            _once(world, actor, 1)
        at_work = any(process.alive for process in world.processes)
        if not at_work and (not world.store.is_open() or before == _counted(world)):
            _rests(world, seen, lookers)
            return
    raise Broken(f"no rest after {ROUNDS_MAX} rounds; the last verdict is {world.store.arm}")


def _looks(actor: Actor) -> bool:
    return actor.alive and actor.name.startswith("controller")


def _counted(world: World) -> tuple[int, int | None, int, int]:
    """What changes whenever somebody did something."""
    return world.store.ledger.version, world.store.closed_at, len(world.processes), sum(folder.fenced for folder in world.folders.values())


def _run_out(world: World) -> None:
    """Every process goes on until it ends."""
    for _ in range(300):
        going = [process for process in world.processes if process.script is not None]
        if not going:
            return
        for process in going:
            world.steps += 1
            step(world, process)
    raise Broken(f"processes do not end: {[(process.name, process.at) for process in world.processes if process.alive]}")


def _once(world: World, actor: Actor, looks: int) -> None:
    """The actor finishes what it is at, and looks so many times more."""
    for _ in range(400):
        if not actor.alive or (actor.at in ("idle", "begun") and looks == 0):
            return
        looks -= actor.at == "idle"
        world.steps += 1
        step(world, actor)
        for process in world.processes[-6:]:
            if process.script is not None:
                step(world, process)
    raise Broken(f"{actor.name} does not come to an end; it is at {actor.at}")


def _rests(world: World, seen: dict[str, tuple[Verdict, object]], lookers: list[Actor]) -> None:
    """Whether what the run rests at is an end, or a person's turn."""
    if not world.store.is_open():
        world.figures[f"rest: {world.store.closed_arm}"] += 1
        if world.choices.pick(3) == 0:
            _stays_closed(world, seen, lookers)
        return
    waits = {name: _waits_for_a_person(world, verdict, became) for name, (verdict, became) in seen.items()}
    if not waits or not all(waits.values()):
        texts = {name: f"{verdict}, then {became if isinstance(became, Refused) else ''}" for name, (verdict, became) in seen.items()}
        raise Broken(f"the run rests at what is no rest: {texts}")
    for name in sorted({verdict if isinstance(verdict, str) else type(verdict).__name__ for verdict, _ in seen.values()}):
        world.figures[f"rest: {name}"] += 1


def _waits_for_a_person(world: World, verdict: Any, became: object) -> bool:
    refused = isinstance(became, Refused)
    if refused and all(isinstance(defect, RetriesUsedUp | AttemptNotFenced | CheckpointGone) for defect in became.defects):
        return True
    if isinstance(verdict, Blocked):
        return True
    if isinstance(verdict, ObservationRequired):
        return bool(verdict.coordinates_unread or verdict.not_attempted or (verdict.refused and not world.retention_known))
    if isinstance(verdict, LaunchPending):
        return True
    if isinstance(verdict, StopRequired):
        # What an observer says of a process that is none cannot be ended, however often it is tried.
        return all(any(folder.lies & {"late process", "second process"} for folder in folders_of(world, each)) for each in verdict.attempts)
    return refused and isinstance(verdict, Lost | RetryRequired | ResumeAvailable)


def _stays_closed(world: World, seen: dict[str, tuple[Verdict, object]], lookers: list[Actor]) -> None:
    """Look once more although nobody asks, without acting: a closed run is closed again, unless what was given up shows up, a lie
    was not told yet, or a scheduler forgot what it had shown."""
    forgotten = any(job.forgotten for jobs in world.jobs.values() for job in jobs)
    lied = any(folder.lies for folder in world.folders.values())
    excused = bool(world.store.ledger.abandonments) or lied or forgotten or not world.retention_known
    seen.clear()
    for actor in lookers:
        actor.lazy = True
        _once(world, actor, 1)
    verdicts = [verdict for verdict, _ in seen.values()]
    closed = [isinstance(verdict, Converged | SeveralCandidates | Cancelled) for verdict in verdicts]
    # Of a cancelled run a terminal may come to light that contradicts what else is there; it starts nothing.
    contradicted = world.store.closed_arm == "Cancelled" and any(isinstance(verdict, Blocked) for verdict in verdicts)
    if not any(closed) and not excused and not contradicted:
        raise Broken(
            f"the run was closed as {world.store.closed_arm}, and is concluded to be {[type(each).__name__ for each in verdicts]} now"
        )


__all__ = ["AttemptKey", "RunLedger", "live", "simulated"]
