"""Every open run, advanced by any number of controllers over one ledger.

Rules kept here:

1. A controller that acts takes runs from the store's agenda, which hands each to one controller at a time, and says when to look next. This
   saves looks; that nothing is started twice rests on the slots alone. One that only watches keeps its own time and takes nothing away.
2. What another controller left at rest this one may be allowed to act on: each looks at every open run once by itself.
3. A run that waiting does not change is left alone for long; when all are such, or closed, a controller ends (unless it is to stay).
4. No run waits for another one's trainer, refusal or damage. A closed run is not even loaded.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, final

from countermark.app.patience import PATIENCE_S, STAYING_S, patiently
from countermark.app.ports import Ports
from countermark.app.running import (
    Looked,
    Signs,
    Step,
    StepRefused,
    changed,
    hope_of,
    is_closed,
    look_at,
    seen_from_elsewhere,
    signs_of,
    step_of,
)
from countermark.app.sweeping import quiet
from countermark.run.records import RunListed
from countermark.values import Refused
from countermark.verdict.kinds import Verdict

T = TypeVar("T")
Allowed = Callable[[Verdict], bool]


@final
@dataclass(frozen=True, slots=True)
class Pace:
    """``lease_ms``: for how long a run that was taken is this controller's. ``hope_ms``: the longest time until a run is looked at that may
    change by itself. ``rest_ms``: until one that waiting does not change is looked at all the same; longer than the other two.
    ``batch_s``: how much work is taken at a time. ``nap_s``: the longest sleep."""

    lease_ms: int = 30_000
    hope_ms: int = 30_000
    rest_ms: int = 900_000
    batch_s: float = 2.0
    batch_max: int = 256
    nap_s: float = 1.0


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """What one look at a run found and did, or why it could not."""

    run: RunListed
    step: Step | StepRefused | Refused[object]

    @property
    def closed(self) -> bool:
        """Whether nothing is left to do for the run."""
        return not isinstance(self.step, Refused) and is_closed(self.step.looked.conclusion)

    @property
    def done(self) -> tuple[str, ...]:
        """What was done, in lines."""
        return self.step.acted.lines if isinstance(self.step, Step) else ()


@final
@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is due now: how many runs are open, and how often that was so before."""

    left: int
    rounds: int


def once_each(ports: Ports, retries: int, allowed: Allowed, progress: Callable[[str], None] = quiet) -> Iterator[Turn]:
    """One turn for every open run; where something was done for it, what is told is what a second look found."""
    for run in ports.store.list_runs(open_only=True):
        step = step_of(ports, run.run_id, retries, allowed, progress)
        if isinstance(step, Step) and step.acted.lines:
            looked = look_at(ports, run.run_id, progress)
            step = Step(looked, step.acted) if isinstance(looked, Looked) else looked
        yield Turn(run, step)


class _Agenda(Protocol):
    """When which run is to be looked at."""

    def take(self, limit: int) -> tuple[RunListed, ...]: ...

    def again(self, run_id: str, after_ms: int) -> None: ...

    def next_ms(self) -> int | None:
        """How long until a run is due, in milliseconds; None when none is open."""
        ...


@final
@dataclass(slots=True)
class _Shared:
    """The store's agenda."""

    ports: Ports
    pace: Pace
    unseen: dict[str, RunListed] | None = None
    seen: set[str] = field(default_factory=set[str])

    def take(self, limit: int) -> tuple[RunListed, ...]:
        due = self.ports.store.take_due(self.ports.now_ms(), self.pace.lease_ms, limit)
        if not due:
            due = self._unseen(limit)
        if self.unseen is None:
            self.seen.update(run.run_id for run in due)
        else:
            for run in due:
                self.unseen.pop(run.run_id, None)
        return due

    def _unseen(self, limit: int) -> tuple[RunListed, ...]:
        """Open runs that this controller did not look at yet, when it first found nothing that is due."""
        if self.unseen is None:
            listed = self.ports.store.list_runs(open_only=True)
            self.unseen = {run.run_id: run for run in listed if run.run_id not in self.seen}
            self.seen.clear()
        return tuple(self.unseen.values())[:limit]

    def again(self, run_id: str, after_ms: int) -> None:
        self.ports.store.look_again(run_id, self.ports.now_ms() + after_ms)

    def next_ms(self) -> int | None:
        due = self.ports.store.next_due()
        return None if due is None else due - self.ports.now_ms()


@final
@dataclass(slots=True)
class _Own:
    """This controller's own times, by a clock that nobody sets back. A run that is new, or that somebody acted on, is due."""

    ports: Ports
    due: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def take(self, limit: int) -> tuple[RunListed, ...]:
        now = _clock_ms()
        listed = self.ports.store.list_runs(open_only=True)
        known = {run.run_id: self.due.get(run.run_id, (-1, now)) for run in listed}
        self.due = {run.run_id: (run.version, known[run.run_id][1] if known[run.run_id][0] == run.version else now) for run in listed}
        return tuple(run for run in listed if self.due[run.run_id][1] <= now)[:limit]

    def again(self, run_id: str, after_ms: int) -> None:
        if run_id in self.due:
            self.due[run_id] = (self.due[run_id][0], _clock_ms() + after_ms)

    def next_ms(self) -> int | None:
        return min(due for _, due in self.due.values()) - _clock_ms() if self.due else None


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


#: How much time of a poll goes into looking for signs of change, in seconds.
_SIGNS_S: Final = 0.05


@final
@dataclass(slots=True)
class Rounds:
    """A controller: iterate ``turns`` to have it work. ``shares``: it takes its runs from the store's agenda. ``stay``: it goes on when
    nothing is left, for the runs that come later. ``told``: hears sentences about a store that is waited for; ``progress``: the stages of
    each sweep."""

    ports: Ports
    retries: int
    allowed: Allowed
    shares: bool
    stay: bool
    told: Callable[[str], None] = quiet
    progress: Callable[[str], None] = quiet
    pace: Pace = field(default_factory=Pace)
    _signs: dict[str, Signs] = field(default_factory=dict[str, Signs])
    _uncertain: dict[str, float] = field(default_factory=dict[str, float])
    _did: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def turns(self) -> Iterator[Turn | Pause]:
        """Each look at a run, and each time at which nothing is due, until nothing is left to wait for."""
        agenda: _Agenda = _Shared(self.ports, self.pace) if self.shares else _Own(self.ports)
        limit, rounds = 1, 0
        while True:
            began = time.monotonic()
            taken = self._take(agenda, limit)
            for run in taken:
                yield self._turn(agenda, run)
            if taken:
                limit = self._limit(len(taken), time.monotonic() - began)
                continue
            left_ms = self._patiently(agenda.next_ms)
            if not self.stay and (left_ms is None or left_ms > max(self.pace.lease_ms, self.pace.hope_ms)):
                return
            rounds += 1
            yield Pause(len(self._patiently(lambda: self.ports.store.list_runs(open_only=True))), rounds)
            self._nap(agenda, self.pace.nap_s if left_ms is None else min(max(left_ms, 0) / 1000, self.pace.nap_s))

    def _take(self, agenda: _Agenda, limit: int) -> tuple[RunListed, ...]:
        return self._patiently(lambda: agenda.take(limit))

    def _limit(self, done: int, took_s: float) -> int:
        """How many runs are taken next, so that a batch is worked through long before its lease ends."""
        fitting = int(self.pace.batch_s * done / max(took_s, 1e-6))
        return max(1, min(fitting, 2 * done, self.pace.batch_max))

    def _patiently(self, act: Callable[[], T]) -> T:
        return patiently(act, self.told, STAYING_S if self.stay else PATIENCE_S)

    def _turn(self, agenda: _Agenda, run: RunListed) -> Turn:
        step = self._patiently(lambda: step_of(self.ports, run.run_id, self.retries, self.allowed, self.progress))
        turn = Turn(run, step)
        self._signs.pop(run.run_id, None)
        if turn.closed:
            self._uncertain.pop(run.run_id, None)
            self._did.pop(run.run_id, None)
            return turn
        after_ms = self._after_ms(run.run_id, step) if isinstance(step, Step) else self.pace.rest_ms
        self._again(agenda, run.run_id, after_ms)
        return turn

    def _again(self, agenda: _Agenda, run_id: str, after_ms: int) -> None:
        self._patiently(lambda: agenda.again(run_id, after_ms))

    def _after_ms(self, run_id: str, step: Step) -> int:
        """When to look again, from what there is to hope for."""
        soon_ms = int(self.ports.poll_s * 1000)
        if step.acted.lines:
            # What is done a second time, and comes to nothing again, is not done without a break.
            repeated = self._did.get(run_id) == step.acted.lines
            self._did[run_id] = step.acted.lines
            self._uncertain.pop(run_id, None)
            return self.pace.hope_ms if repeated else soon_ms
        hope = hope_of(step.looked)
        if hope is None:
            return self._rest_ms(step)
        wait_ms = max(soon_ms, min(int(hope.longest_s * 1000), self.pace.hope_ms))
        if hope.certain:
            self._uncertain.pop(run_id, None)
            self._signs[run_id] = signs_of(self.ports, step.looked)
            return wait_ms
        since = self._uncertain.setdefault(run_id, time.monotonic())
        return wait_ms if time.monotonic() - since < self.ports.grace_ms / 1000 else self._rest_ms(step)

    def _rest_ms(self, step: Step) -> int:
        """The agenda is one for all hosts: what only another one can look at is left for it, and not put to rest for both."""
        return self.pace.hope_ms if self.stay and seen_from_elsewhere(step.looked) else self.pace.rest_ms

    def _nap(self, agenda: _Agenda, longest_s: float) -> None:
        """Sleep, and meanwhile look whether some attempt of this host changed."""
        deadline = time.monotonic() + longest_s
        while True:
            time.sleep(max(0.0, min(self.ports.poll_s, deadline - time.monotonic())))
            looked_until = time.monotonic() + _SIGNS_S
            for run_id in list(self._signs):
                signs = self._signs.pop(run_id)
                if changed(signs):
                    self._again(agenda, run_id, 0)
                    return
                # To the end of the line, so that each is looked at in its turn.
                self._signs[run_id] = signs
                if time.monotonic() >= looked_until:
                    break
            if time.monotonic() >= deadline:
                return
