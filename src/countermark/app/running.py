"""Runs: record a demand or attach to it, look at it and conclude, act on the conclusion, and watch until a verdict.

Rules kept here:

1. A run is a demand: the same requester and request attach to what is there and start nothing by themselves.
2. Every look is recorded before anybody acts on it.
3. Waiting is cheap: between two sweeps only locks and receipts are looked at.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from countermark.app.acting import Acted, act
from countermark.app.compare import find_run as find_run_in
from countermark.app.patience import patiently
from countermark.app.ports import Ports
from countermark.app.sweeping import Progress, admitted, look, quiet
from countermark.evidence.members import NotAttempted, Observed
from countermark.files.attempt_folder import ReceiptRead, read_terminal
from countermark.lines.conclusion import conclusion_lines
from countermark.lines.surface import SweepUndecodable
from countermark.observe.processes import Alive, Settling, read_process
from countermark.recipe import Requirements, Resolution, WorkKey
from countermark.run.demand import Demand, DemandId, TrainingRunDesired, admit_demand
from countermark.run.records import Attached, Recorded, RowUnreadable, RunContext, RunListed, RunRecord, StoredVerdict, SweepDamaged
from countermark.sessions.filters.binding import FilterDefect, read_where
from countermark.store.interface import Store
from countermark.values import NonEmpty, Principal, Refused, Request, shown
from countermark.verdict.kinds import (
    ARMS,
    Cancelled,
    Conclusion,
    Converged,
    GraceRunning,
    InProgress,
    LaunchPending,
    ObservationRequired,
    SeveralCandidates,
    Verdict,
)
from countermark.verdict.sweep import Sweep, conclude
from countermark.wire.sweep import decode_sweep, encode_sweep


@final
@dataclass(frozen=True, slots=True)
class Demanded:
    """The run of a demand. ``attached``: it was there before; ``other_command``: the caller named another command, which was not used."""

    record: RunRecord
    attached: bool
    other_command: bool


@final
@dataclass(frozen=True, slots=True)
class Looked:
    """A run as one sweep found it, with the conclusion and the id under which the sweep is stored."""

    record: RunRecord
    sweep: Sweep
    sweep_id: str
    conclusion: Conclusion


def demand_run(
    ports: Ports, resolution: Resolution, work: WorkKey, requester: Principal, request: Request | None, context: RunContext
) -> Demanded | Refused[object]:
    """Record the demand for this work, or attach to the run that it is already."""
    name = request if request is not None else Request(work.digest.hex)
    desired = admit_demand(Demand(DemandId(requester, name), work), resolution, Requirements())
    if isinstance(desired, Refused):
        return Refused(desired.defects)
    assert isinstance(desired, TrainingRunDesired)
    answer = ports.store.record_demand(desired, context, ports.now_ms())
    match answer:
        case Refused():
            return Refused(answer.defects)
        case Recorded(record):
            return Demanded(record, attached=False, other_command=False)
        case Attached(record):
            there = record.context
            differs = (there.argv, there.cwd, dict(there.env)) != (context.argv, context.cwd, dict(context.env))
            return Demanded(record, attached=True, other_command=differs)


def look_at(ports: Ports, run_id: str, progress: Progress = quiet) -> Looked | Refused[object]:
    """Sweep the run, conclude, and record both."""
    record = ports.load(run_id)
    if isinstance(record, Refused):
        return Refused(record.defects)
    started = ports.now_ms()
    sweep = look(record.ledger, ports.observer, ports.grace_ms, progress)
    conclusion = conclude(sweep)
    if isinstance(conclusion, Refused):
        return conclusion
    sweep_id = ports.new_id()
    stored = ports.store.record_sweep(run_id, sweep_id, encode_sweep(sweep), started, ports.now_ms())
    if isinstance(stored, Refused):
        return Refused(stored.defects)
    verdict = ports.store.record_verdict(sweep_id, stored_verdict(record, conclusion))
    return Refused(verdict.defects) if isinstance(verdict, Refused) else Looked(record, sweep, sweep_id, conclusion)


def is_closed(conclusion: Conclusion) -> bool:
    """Whether nothing is left to do or to look for, as long as nobody decides otherwise."""
    return isinstance(conclusion.verdict, Converged | SeveralCandidates | Cancelled)


def seen_from_elsewhere(looked: Looked) -> bool:
    """Whether an attempt of the run is one that only another host can look at."""
    return any(isinstance(reading.arm, NotAttempted) for reading in looked.sweep.reads.processes.population.readings)


def nothing_lives(looked: Looked) -> bool:
    """Whether the processes of every attempt were looked at, and none was seen to live."""
    population = looked.sweep.reads.processes.population
    seen = all(isinstance(reading.arm, Observed) for reading in population.readings)
    return seen and all(process.state == "dead" for process in population.members())


def stored_verdict(record: RunRecord, conclusion: Conclusion) -> StoredVerdict:
    """A conclusion as the store keeps it: its arm, its text, and whether anything is left to do or to look for."""
    closed = is_closed(conclusion)
    text = "\n".join(conclusion_lines(conclusion)).encode() + b"\n"
    return StoredVerdict(type(conclusion.verdict).__name__, closed, record.ledger.version, text)


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a controller: what was found, and what was done about it."""

    looked: Looked
    acted: Acted


@final
@dataclass(frozen=True, slots=True)
class StepRefused:
    """What was found, and every reason why what it asks for was not done."""

    looked: Looked
    defects: NonEmpty[object]


def step_of(
    ports: Ports, run_id: str, retries: int, allowed: Callable[[Verdict], bool], progress: Progress = quiet
) -> Step | StepRefused | Refused[object]:
    """Look, and do what the verdict asks for where ``allowed`` says so."""
    looked = look_at(ports, run_id, progress)
    if isinstance(looked, Refused):
        return looked
    if not allowed(looked.conclusion.verdict):
        return Step(looked, Acted(()))
    acted = act(ports, looked.record, looked.conclusion.verdict, retries, admitted(looked.sweep))
    return StepRefused(looked, acted.defects) if isinstance(acted, Refused) else Step(looked, acted)


def advance(
    ports: Ports, run_id: str, retries: int, allowed: Callable[[Verdict], bool], progress: Progress = quiet
) -> Step | Refused[object]:
    """``step_of`` for whoever does not ask what was found where nothing could be done."""
    step = step_of(ports, run_id, retries, allowed, progress)
    return Refused(step.defects) if isinstance(step, StepRefused) else step


def look_soon(ports: Ports, run_id: str) -> None:
    """Have controllers look at the run now, which may have been at rest before it was acted on."""
    ports.store.look_again(run_id, ports.now_ms())


def watch(
    ports: Ports,
    run_id: str,
    retries: int,
    allowed: Callable[[Verdict], bool],
    progress: Progress = quiet,
    told: Callable[[str], None] = quiet,
) -> Iterator[Step | Refused[object]]:
    """Advance until nothing is left to wait for. Each look is given out, with what was done for it.

    What certainly changes (a trainer at work, a grace that runs) is waited for without an end; what may or may not change (a launch of
    which nobody knows the outcome, a reading to be made once more) for as long as the grace.
    """
    uncertain_since: float | None = None
    while True:
        step = patiently(lambda: advance(ports, run_id, retries, allowed, progress), told)
        yield step
        if isinstance(step, Refused):
            return
        if step.acted.lines:
            uncertain_since = None
            patiently(lambda: look_soon(ports, run_id), told)
            time.sleep(ports.poll_s)
            continue
        hope = hope_of(step.looked)
        if hope is None:
            return
        if hope.certain:
            uncertain_since = None
        elif uncertain_since is None:
            uncertain_since = time.monotonic()
        elif time.monotonic() - uncertain_since >= ports.grace_ms / 1000:
            return
        wait_for_change(ports, step.looked, hope.longest_s)


@final
@dataclass(frozen=True, slots=True)
class Hope:
    """Looking again may find something else although nobody acts: after ``longest_s`` seconds in any case, and whether it surely will."""

    certain: bool
    longest_s: float


def hope_of(looked: Looked) -> Hope | None:
    """What there is to wait for, or None."""
    verdict = looked.conclusion.verdict
    if isinstance(verdict, InProgress):
        return Hope(True, 30.0)
    if isinstance(verdict, LaunchPending):
        left = [why.grace_ms - why.waited_ms for why in looked.conclusion.why_not if isinstance(why, GraceRunning)]
        return Hope(True, min(left) / 1000 + 0.01) if left else Hope(False, 1.0)
    if isinstance(verdict, ObservationRequired) and (verdict.orders_missing or _ended_meanwhile(looked.sweep)):
        return Hope(False, 0.0)
    return None


def _ended_meanwhile(sweep: Sweep) -> bool:
    """Whether an attempt's end shows in the second reading of terminals only: the next sweep reads all of what it left."""
    first = {terminal.attempt for terminal in sweep.reads.terminals.population.members()}
    return any(terminal.attempt not in first for terminal in sweep.reads.terminals_again.population.members())


Signs = Mapping[Path, tuple[bool, bool]]
"""Of each attempt's folder, whether it has a terminal and whether anything of it lives."""


def signs_of(ports: Ports, looked: Looked) -> Signs:
    """The signs of life as the sweep saw them, so that nothing between the look and the waiting is missed."""
    reads = looked.sweep.reads
    ended = {terminal.attempt for reading in (reads.terminals, reads.terminals_again) for terminal in reading.population.members()}
    lived = {process.attempt for process in reads.processes.population.members() if process.lives}
    return {
        ports.launcher.folder(claim.attempt.nonce.hex): (claim.attempt in ended, claim.attempt in lived)
        for claim in looked.record.ledger.claims
    }


def changed(signs: Signs) -> bool:
    """Whether some attempt lives or has ended otherwise than it did: a hint for when to look, never evidence."""
    return any(_signs(folder) != before for folder, before in signs.items())


def wait_for_change(ports: Ports, looked: Looked, longest_s: float) -> None:
    """Wait until some attempt lives or has ended otherwise than the sweep saw it, or for ``longest_s`` seconds (one poll at least)."""
    seen = signs_of(ports, looked)
    deadline = time.monotonic() + longest_s
    time.sleep(ports.poll_s)
    while (left := deadline - time.monotonic()) > 0 and not changed(seen):
        time.sleep(min(ports.poll_s, left))


def _signs(folder: Path) -> tuple[bool, bool]:
    """Whether an attempt has a terminal, and whether anything of it lives."""
    ended = isinstance(read_terminal(folder), ReceiptRead)
    return ended, isinstance(read_process(folder), Alive | Settling)


def find_run(ports: Ports, text: str) -> RunRecord | Refused[object]:
    """The run that an id of a run or of one of its attempts names, in full or by 8 or more of its first digits."""
    return find_run_in(ports.store, text)


@final
@dataclass(frozen=True, slots=True)
class KeptSweep:
    """A sweep as it was stored, with its id."""

    sweep_id: str
    sweep: Sweep


def kept_sweep(ports: Ports, run_id: str) -> KeptSweep | None | Refused[object]:
    """The run's last sweep with its id; None when nobody looked yet."""
    stored = ports.store.latest_sweep(run_id)
    if stored is None or isinstance(stored, Refused):
        return stored
    sweep = decode_sweep(stored.document)
    if not isinstance(sweep, Sweep):
        return Refused(NonEmpty(SweepUndecodable(stored.sweep_id, sweep.why)))
    return KeptSweep(stored.sweep_id, sweep)


def latest_sweep(ports: Ports, run_id: str) -> Sweep | None | Refused[object]:
    """The run's last sweep as it was stored; None when nobody looked yet."""
    kept = kept_sweep(ports, run_id)
    return kept.sweep if isinstance(kept, KeptSweep) else kept


def list_runs(ports: Ports, where: str | None = None) -> tuple[RunListed, ...] | Refused[FilterDefect]:
    """The runs for which a filter holds, those that were recorded last first."""
    return runs_in(ports.store, where)


def runs_in(store: Store, where: str | None = None) -> tuple[RunListed, ...] | Refused[FilterDefect]:
    """As ``list_runs``, of a store that is only read."""
    chosen = None if where is None else read_where(where, "runs")
    if isinstance(chosen, Refused):
        return chosen
    found = store.list_runs() if chosen is None else store.runs_where(chosen)
    return tuple(reversed(found))


@final
@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is not closed, with the arm of its latest verdict (empty: nobody looked yet) and the version at which it was concluded.
    ``damage`` is what is wrong with its latest look, as it was stored; then there is no verdict."""

    summary: RunListed
    arm: str
    version: int
    damage: tuple[SweepDamaged | RowUnreadable, ...] = ()


def open_runs(ports: Ports) -> tuple[OpenRun, ...]:
    """The runs in which something is left to do or to look for, by their latest stored verdicts. One that was damaged hides no other."""
    return tuple(_open_run(ports, summary) for summary in ports.store.list_runs(open_only=True))


def _open_run(ports: Ports, summary: RunListed) -> OpenRun:
    stored = ports.store.latest_sweep(summary.run_id)
    if isinstance(stored, Refused):
        return OpenRun(summary, "", 0, tuple(stored.defects))
    verdicts = () if stored is None else ports.store.verdicts(stored.sweep_id)
    if stored is None or not verdicts:
        return OpenRun(summary, "", 0)
    last = verdicts[-1]
    if last.arm not in ARMS:
        return OpenRun(summary, "", 0, (RowUnreadable("verdicts", stored.sweep_id, f"{shown(last.arm)} is no verdict"),))
    return OpenRun(summary, last.arm, last.version)
