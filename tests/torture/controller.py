"""A controller of a storm: a process that demands runs, looks, claims, launches and acts like any other, and is killed at its named points.

It is forked from the storm, which has everything loaded, so that hundreds of them can die within minutes; it opens the ledger itself. What
it runs is the program's own ``advance``; only the store is wrapped, to write the history and to die before or after a call of it.

Rules kept here:

1. A process that kills itself says so before, in one append. A kill that nobody could see is not counted.
2. Two controllers that are about to do the same thing to one run wait for each other now and then, for a moment: races that a busy machine
   would rarely show are made on purpose.
3. Only runs that can go on count towards the number of open ones: one that waits for a person is marked as such, judged at the end, and
   another takes its place. A launch of which nobody knows whether it began, and nothing shows, is given up by a person after a while.
4. A ledger that cannot be reached for now is waited for, as a person with a shell loop would.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

from countermark.app import deciding, ruling
from countermark.app.ports import Ports
from countermark.app.running import Demanded, Step, advance, demand_run, watch
from countermark.launch.local import LocalLauncher
from countermark.launch.steps import SUPERVISOR_STEPS
from countermark.observe.local import LocalObserver
from countermark.recipe import Requirements, Resolution, contract_of, derive_work_key
from countermark.run.claims import AlreadyCommitted, Committed, SetAside, SnapshotStale
from countermark.run.records import RunContext
from countermark.store.failures import StoreError
from countermark.values import Principal, Refused, Request
from countermark.verdict.kinds import Blocked, LaunchPending, Verdict
from tests.recipe.examples import clean_resolution
from tests.simulation.history import Answered, Asked, Killed, append
from tests.torture.mutants import MUTANTS
from tests.torture.scene import Scene

DRIVER: Final = Path(__file__).parent.parent / "launch" / "driver.py"
RETRIES: Final = 1_000_000
#: Before and after these calls of the store a controller may die.
CALLS: Final = ("record_demand", "claim_start", "record_dispatch_intent", "record_dispatch_outcome", "record_sweep", "record_verdict")
#: Acts of a supervisor that its child cannot do to its parent, or that would leave a process stopped that nobody can name.
CHILD_STEPS: Final = ("child begun", "locked", "process written", "fence checked")
MEETING_S: Final = 0.25


def everything(verdict: Verdict) -> bool:
    return True


@final
@dataclass
class Controller:
    """One life of one controller. ``life``: its number, which no other process of the storm has, as pids come back in a long one."""

    scene: Scene
    chance: random.Random
    life: int
    resolution: Resolution = field(default_factory=clean_resolution)
    calls: int = 0

    # ------------------------------------------------------------------------------------------------- what may happen to it

    @property
    def calm(self) -> bool:
        return self.scene.calm.exists()

    def point(self, name: str) -> None:
        """A named point: the end of this life, or a pause of which nobody is told."""
        weather = self.scene.weather
        drawn = self.chance.random()
        if drawn >= weather.point_kill + weather.point_stop or self.calm:
            return
        if drawn < weather.point_kill:
            append(self.scene.history, Killed("controller", name))
            os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGSTOP)

    def meet(self, what: str) -> None:
        """Wait a moment for another controller that is about to do the same."""
        if self.calm or self.chance.random() >= self.scene.weather.meeting:
            return
        place = self.scene.root / "meetings" / what
        try:
            place.mkdir()
        except FileExistsError:
            # Somebody waits there, or waited in vain: both go on now.
            (place / str(os.getpid())).touch()
            return
        deadline = time.monotonic() + MEETING_S
        while not os.listdir(place) and time.monotonic() < deadline:
            time.sleep(0.002)

    # ----------------------------------------------------------------------------------------------------- what it acts through

    def launcher(self, ports: Ports) -> LocalLauncher:
        """A launcher whose supervisors are the product's, and some of which die or are held at a named step."""
        words = ["--history", str(self.scene.history)]
        weather = self.scene.weather
        timeout_s = 20.0
        if not self.calm and self.chance.random() < weather.supervisor_act:
            step = self.chance.choice(SUPERVISOR_STEPS)
            acts = ["kill_self", "kill_self", "freeze_self"]
            acts += ["kill_parent", "kill_both"] if step in CHILD_STEPS else []
            at, act = weather.struck or (step, self.chance.choice(acts))
            words += ["--at", at, "--act", act]
            timeout_s = 1.5
        if not self.calm and self.chance.random() < weather.short_call:
            timeout_s = 0.03
        for name in MUTANTS[self.scene.mutant].in_supervisors:
            words += ["--plant", name]
        supervisor = (ports.launcher.supervisor[0], "-P", str(DRIVER), *words)
        return LocalLauncher(self.scene.attempts, supervisor=supervisor, start_timeout_s=timeout_s, after=self.launch_point)

    def launch_point(self, step: str) -> None:
        self.point(f"launching: after {step}")

    def progress(self, stage: str) -> None:
        self.point(f"sweeping: before {stage}")

    # ---------------------------------------------------------------------------------------------------------------- its life

    def live(self) -> None:
        """Until the storm is over and nothing is left to do."""
        for plant in MUTANTS[self.scene.mutant].in_controllers:
            plant()
        while True:
            try:
                with self.scene.ports(self.chance) as ports:
                    store: Any = Watched(ports.store, self)
                    self._work(self._under_its_clock(replace(ports, store=store)))
                return
            except StoreError:
                time.sleep(0.05)

    def _under_its_clock(self, ports: Ports) -> Ports:
        """The ports, read by a clock that is stepped now and then; the true one in the calm."""
        offset = 0

        def now_ms() -> int:
            nonlocal offset
            if self.chance.random() < self.scene.weather.clock_step:
                offset = self.chance.randint(-self.scene.weather.step_ms_max, self.scene.weather.step_ms_max)
            return time.time_ns() // 1_000_000 + (0 if self.calm else offset)

        return replace(ports, now_ms=now_ms, observer=LocalObserver(self.scene.attempts, ports.host, now_ms, ports.new_id))

    def _work(self, ports: Ports) -> None:
        while not self.calm:
            waiting = set(os.listdir(self.scene.waiting))
            agenda = [one.run_id for one in ports.store.list_runs(open_only=True)]
            runs = [run for run in agenda if run not in waiting]
            if len(runs) < self.scene.weather.runs_open_max:
                runs.append(self._demand(ports, len(ports.store.list_runs())))
            # The oldest more often: that is where controllers meet. One that waits for a person now and then: it must not be started.
            drawn = self.chance.random()
            run = runs[0] if drawn < 0.3 else self.chance.choice(agenda if drawn < 0.35 and agenda else runs)
            self._persons_word(ports, run)
            self._advance(ports, run)
        for run in [one.run_id for one in ports.store.list_runs(open_only=True)]:
            self._bring_to_rest(replace(ports, launcher=self.launcher(ports)), run)

    def _bring_to_rest(self, ports: Ports, run: str) -> None:
        """Watch the run to its end. A launch of which nobody knows whether it began, and nothing shows, is a person's to give up."""
        last: Step | None = None
        for step in watch(ports, run, RETRIES, everything):
            last = step if isinstance(step, Step) else None
        if last is not None and isinstance(pending := last.looked.conclusion.verdict, LaunchPending):
            for attempt in pending.attempts:
                ports.store.abandon(run, attempt, "storm", ports.now_ms())
            self._bring_to_rest(ports, run)

    def _demand(self, ports: Ports, number: int) -> str:
        """The run of this number; two controllers that demand it make one."""
        work = derive_work_key(Principal("local"), contract_of(self.resolution), Requirements())
        name = f"r{number}"
        context = RunContext("storm", {}, {}, self.scene.command(name), str(self.scene.root), {}, "local")
        demanded = demand_run(ports, self.resolution, work, Principal("storm"), Request(name), context)
        assert isinstance(demanded, Demanded), demanded
        return demanded.record.run_id

    def _advance(self, ports: Ports, run: str) -> None:
        step = advance(replace(ports, launcher=self.launcher(ports)), run, RETRIES, everything, self.progress)
        if isinstance(step, Step) and step.acted.lines:
            return
        verdict = step.looked.conclusion.verdict if isinstance(step, Step) else None
        if isinstance(verdict, Blocked):
            (self.scene.waiting / run).touch()
        if isinstance(verdict, LaunchPending) and self.chance.random() < self.scene.weather.gives_up_pending:
            ports.store.abandon(run, verdict.attempts.first, "storm", ports.now_ms())
        time.sleep(self.chance.random() * 0.05)

    def _decide(self, ports: Ports, run: str) -> None:
        """What a person asks for by the program's own operations: of this run, or of one that may have been at rest for long."""
        acting = replace(ports, launcher=self.launcher(ports))
        match self.chance.choice(("retry", "set aside", "set aside", "reexecute", "reexecute")):
            case "retry":
                deciding.retry_run(acting, run, None, False, "storm")
            case "set aside":
                blocked = os.listdir(self.scene.waiting)
                if blocked:
                    chosen = self.chance.choice(blocked)
                    ruling.adjudicate(acting, chosen, None, SetAside(), "seen", "storm")
                    (self.scene.waiting / chosen).unlink(missing_ok=True)
            case _:
                chosen = self.chance.choice(acting.store.list_runs()).run_id
                deciding.reexecute_run(acting, chosen, None, "storm")

    def _persons_word(self, ports: Ports, run: str) -> None:
        """Now and then a person cancels a run, gives up an attempt that may be alive, or decides something else."""
        drawn = self.chance.random()
        if self.chance.random() < self.scene.weather.decides:
            self._decide(ports, run)
        if drawn < self.scene.weather.cancels:
            ports.store.cancel(run, "storm", ports.now_ms())
        elif drawn < self.scene.weather.cancels + self.scene.weather.gives_up:
            record = ports.load(run)
            claims = record.ledger.claims if hasattr(record, "ledger") else ()
            if claims:
                ports.store.abandon(run, claims[-1].attempt, "storm", ports.now_ms())


class Watched:
    """The store, with points before and after the calls that matter, and with claims in the history."""

    def __init__(self, store: Any, controller: Controller) -> None:
        self._store, self._controller = store, controller

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._store, name)
        return (lambda *arguments, **named: self._call(name, method, arguments, named)) if name in CALLS else method

    def _call(self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        controller = self._controller
        controller.point(f"before {name}")
        answer = self._claim(method, arguments, named) if name == "claim_start" else method(*arguments, **named)
        controller.point(f"after {name}")
        if name == "record_dispatch_intent":
            controller.meet(f"intent-{arguments[0].attempt.nonce.hex}")
        return answer

    def _claim(self, method: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        run, snapshot, transition, candidate, *_ = arguments
        controller, history = self._controller, self._controller.scene.history
        controller.meet(f"claim-{run}-{snapshot}")
        controller.calls += 1
        call = f"{controller.life}.{controller.calls}"
        append(history, Asked(call, run, transition.slot().hex, candidate.nonce.hex, snapshot))
        answer = method(*arguments, **named)
        match answer:
            case Committed(claim):
                append(history, Answered(call, "committed", claim.attempt.nonce.hex, claim.version))
            case AlreadyCommitted(claim):
                append(history, Answered(call, "already", claim.attempt.nonce.hex, claim.version))
            case SnapshotStale(current):
                append(history, Answered(call, "stale", "", current))
            case Refused():
                append(history, Answered(call, "refused", "", 0))
        return answer
