"""One sweep over a run: look at every axis in the order that licenses conclusions.

Rules kept here:

1. The stages run in the order terminals, processes, outputs, checkpoints, manifests, terminals again; each hands its token to the next.
2. A sweep that is broken off is thrown away: it raises, and nothing of it is kept.
"""

from collections.abc import Callable
from typing import Protocol

from countermark.evidence.composition import RawReads
from countermark.evidence.cut import (
    after_checkpoints,
    after_manifests,
    after_outputs,
    after_processes,
    after_terminals,
    after_terminals_again,
    cut_of,
)
from countermark.evidence.members import CheckpointSeen, ManifestSeen, OutputSeen, Population, ProcessSeen, RawRead, Terminal
from countermark.run.checkpoint import AdmittedCheckpoint, admit_checkpoint
from countermark.run.claims import RunLedger
from countermark.run.demand import subject_of
from countermark.verdict.sweep import Sweep

#: Told the name of each stage before it is read, and an empty one when nothing is read any more.
Progress = Callable[[str], None]


def quiet(stage: str) -> None:
    """Nobody watches."""


class Observer(Protocol):
    """Whoever looks at the five axes of a run: the attempts of a host, a scheduler, or a stand-in."""

    def terminals(self, ledger: RunLedger) -> Population[Terminal]: ...

    def processes(self, ledger: RunLedger) -> Population[ProcessSeen]: ...

    def outputs(self, ledger: RunLedger) -> Population[OutputSeen]: ...

    def checkpoints(self, ledger: RunLedger) -> Population[CheckpointSeen]: ...

    def manifests(self, ledger: RunLedger) -> Population[ManifestSeen]: ...


def look(ledger: RunLedger, observer: Observer, grace_ms: int, progress: Progress = quiet) -> Sweep:
    """Read the six stages. ``ledger`` is loaded before, so that every attempt that it names is looked at."""
    try:
        return _looked(ledger, observer, grace_ms, progress)
    finally:
        progress("")


def _looked(ledger: RunLedger, observer: Observer, grace_ms: int, progress: Progress) -> Sweep:
    subject = subject_of(ledger.desired)
    progress("terminals")
    terminals = RawRead(subject, observer.terminals(ledger))
    first = after_terminals(subject, terminals.population.receipts())
    progress("processes")
    processes = RawRead(subject, observer.processes(ledger))
    second = after_processes(first, subject, processes.population.receipts())
    progress("outputs")
    outputs = RawRead(subject, observer.outputs(ledger))
    third = after_outputs(second, subject, outputs.population.receipts())
    progress("checkpoints")
    checkpoints = RawRead(subject, observer.checkpoints(ledger))
    fourth = after_checkpoints(third, subject, checkpoints.population.receipts())
    progress("manifests")
    manifests = RawRead(subject, observer.manifests(ledger))
    fifth = after_manifests(fourth, subject, manifests.population.receipts())
    progress("terminals again")
    again = RawRead(subject, observer.terminals(ledger))
    done = after_terminals_again(fifth, subject, again.population.receipts())
    reads = RawReads(terminals, processes, outputs, checkpoints, manifests, again)
    return Sweep.of_claims(ledger, reads, cut_of(done), grace_ms)


def admitted(sweep: Sweep) -> tuple[AdmittedCheckpoint, ...]:
    """The checkpoints of the run that can be gone on from, newest first."""
    members = frozenset(attempt.key.nonce.hex for attempt in sweep.attempts)
    answers = (
        admit_checkpoint(seen.readback, sweep.ledger.desired.manifest, members) for seen in sweep.reads.checkpoints.population.members()
    )
    found = [answer for answer in answers if isinstance(answer, AdmittedCheckpoint)]
    return tuple(sorted(found, key=lambda checkpoint: (-checkpoint.step, checkpoint.path)))
