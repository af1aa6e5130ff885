"""The indexed input of reconciliation, and what one pass over all attempts finds.

Rules kept here:

1. One pass indexes, one pass judges each attempt; what concerns several attempts (places, checkpoints) is one pass more. Nothing recurs.
2. Only what is needed is computed: an effective manifest is compared where there is one or where a success needs one.
3. Where the input is unordered, the answer does not depend on the order in which it came: ties fall to the smaller nonce or path.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from countermark.evidence.composition import EvidenceComposition
from countermark.evidence.cut import STAGES, Stage
from countermark.recipe import spelled
from countermark.run.attempts import AttemptKey, predecessor_of
from countermark.run.checkpoint import AdmittedCheckpoint, admit_checkpoint
from countermark.run.claims import ControlComposition
from countermark.values import NonEmpty, Refused
from countermark.verdict.kinds import (
    CANDIDATE_SEAL,
    Blocker,
    BlockerAdjudicated,
    CheckpointNotAdmitted,
    CompletionCandidate,
    ContradictoryTerminals,
    OrderMissing,
    OrphanOutput,
    SharedLocation,
)
from countermark.verdict.rulings import Rulings, blocker_text, location_settled
from countermark.verdict.standing import (
    ManifestAgreement,
    Standing,
    control_blockers,
    manifest_agreement,
    manifest_blockers,
    ordered_blockers,
    output_blockers,
    process_blockers,
    standings,
    terminal_blockers,
)

Admissions = tuple[tuple[tuple[AttemptKey, AdmittedCheckpoint], ...], tuple[CheckpointNotAdmitted, ...]]


@final
@dataclass(slots=True)
class Fold:
    """The input by attempt, and what the pass over it found: blockers, candidates, and what no read order licensed.

    ``ruled``: of each attempt that a person ruled on, the names of the blockers that are to be seen, and whether each is settled.
    ``blind``: of each stage, the attempts of which some source was not read completely (None: of every attempt). ``hosts``: from where
    processes were looked at; ``processes_started_ms``: when the first such look began, as its receipt says.
    """

    evidence: EvidenceComposition
    control: ControlComposition
    grace_ms: int
    desired: Mapping[str, str]
    found: dict[AttemptKey, Standing]
    agreements: dict[AttemptKey, ManifestAgreement]
    blockers: list[Blocker]
    orders: dict[AttemptKey, tuple[OrderMissing, ...]]
    candidates: list[CompletionCandidate]
    ruled: dict[AttemptKey, dict[str, bool]]
    blind: dict[Stage, frozenset[AttemptKey | None]]
    hosts: frozenset[str]
    processes_started_ms: int | None

    def agreement(self, standing: Standing) -> ManifestAgreement:
        """How what the attempt ran compares with what was asked for."""
        known = self.agreements.get(standing.attempt)
        if known is None:
            known = self.agreements[standing.attempt] = manifest_agreement(standing, self.desired)
        return known

    def complete(self, stage: Stage, attempt: AttemptKey) -> bool:
        """Whether every source of the stage that speaks of the attempt was read completely."""
        blind = self.blind[stage]
        return not blind or (None not in blind and attempt not in blind)


def fold_of(evidence: EvidenceComposition, control: ControlComposition, grace_ms: int) -> Fold:
    """Index the input and judge each attempt."""
    found = standings(evidence, control.states)
    blind: dict[Stage, frozenset[AttemptKey | None]] = {stage: evidence.readback.population(stage).blind_about() for stage in STAGES}
    looks = evidence.readback.reads.processes.population.receipts()
    hosts = frozenset(receipt.host for receipt in looks)
    started_ms = min((receipt.started_ms for receipt in looks), default=None)
    desired = spelled(control.desired.manifest)
    fold = Fold(evidence, control, grace_ms, desired, found, {}, [], {}, [], {}, blind, hosts, started_ms)
    for standing in found.values():
        _judge(fold, standing)
    _judge_places(fold)
    return fold


def _judge(fold: Fold, standing: Standing) -> None:
    contradictions = terminal_blockers(standing)
    believed = _ruled(standing, contradictions) if standing.control.adjudications else None
    ordered, missing = ordered_blockers(standing, fold.evidence, fold.complete("outputs", standing.attempt))
    diverging = manifest_blockers(standing, fold.agreement(standing)) if standing.manifests else ()
    blockers: tuple[Blocker, ...] = (
        *contradictions,
        *process_blockers(standing),
        *output_blockers(standing),
        *diverging,
        *control_blockers(standing),
        *ordered,
    )
    if missing:
        fold.orders[standing.attempt] = missing
    open_ones = [one for one in blockers if not (standing.rulings.settles(one) or (believed is not None and one in contradictions))]
    fold.blockers.extend(open_ones)
    if standing.rulings.given:
        fold.ruled[standing.attempt] = {blocker_text(one): one not in open_ones for one in blockers}
    if not open_ones and standing.succeeded() and standing.outputs and fold.agreement(standing).equal():
        output = min(standing.outputs, key=lambda seen: seen.path)
        fold.candidates.append(CompletionCandidate(standing.attempt, output.digest, output.path, CANDIDATE_SEAL))


def _ruled(standing: Standing, contradictions: tuple[ContradictoryTerminals, ...]) -> str | None:
    """Let what persons ruled on the attempt hold for it; the source whose terminals stand alone, if one was believed."""
    standing.rulings = Rulings.of(standing.control.adjudications)
    standing.set_aside = standing.rulings.set_aside()
    believed = standing.rulings.believed(standing.terminals(), contradictions)
    if believed is not None:
        standing.believe(believed)
    return believed


def _judge_places(fold: Fold) -> None:
    """What concerns several attempts: the places that more than one wrote to, each settled or not by what was ruled on all of them."""
    rulings = {attempt: fold.found[attempt].rulings for attempt in fold.ruled}
    for blocker in _shared_locations(fold.found.values()):
        settled = location_settled(blocker, rulings)
        if not settled:
            fold.blockers.append(blocker)
        for attempt in blocker.attempts:
            if attempt in fold.ruled:
                fold.ruled[attempt][blocker_text(blocker)] = settled


def adjudications(fold: Fold) -> tuple[BlockerAdjudicated, ...]:
    """Every ruling of a person on the run's attempts, with what it does to the blocker that it names."""
    return tuple(note for attempt, seen in fold.ruled.items() for note in fold.found[attempt].rulings.notes(seen))


def _shared_locations(found: Iterable[Standing]) -> tuple[SharedLocation, ...]:
    """Places that several attempts wrote to."""
    first: dict[str, AttemptKey] = {}
    shared: dict[str, set[AttemptKey]] = {}
    for standing in found:
        for members in (standing.outputs, standing.checkpoints):
            for member in members:
                writer = first.setdefault(member.path, standing.attempt)
                if writer != standing.attempt:
                    shared.setdefault(member.path, {writer}).add(standing.attempt)
    return tuple(SharedLocation(path, tuple(sorted(attempts, key=_by_nonce))) for path, attempts in shared.items())


def _by_nonce(attempt: AttemptKey) -> str:
    return attempt.nonce.hex


def orphan_outputs(fold: Fold) -> tuple[OrphanOutput, ...]:
    """Every output of an attempt without success, unless the attempt is still running and may yet end in one."""
    return tuple(
        OrphanOutput(standing.attempt, output.path, output.digest)
        for standing in fold.found.values()
        if standing.outputs and not standing.succeeded() and (standing.terminals() or not standing.stirring())
        for output in standing.outputs
    )


def perhaps_alive(fold: Fold, standing: Standing) -> tuple[OrderMissing, ...]:
    """Of a process that was seen alive beside a terminal that no earlier reading shows: the order that would tell which one is old news.

    A terminal that only the second reading shows licenses nothing about processes, so the process is not taken for gone either.
    """
    return tuple(missing for missing in fold.orders.get(standing.attempt, ()) if missing.rule == "LiveProcessAfterTerminal")


def admissions(fold: Fold) -> Admissions:
    """Every checkpoint of the run with the attempt whose folder holds it: admitted (highest step first), or with all its defects."""
    members = frozenset(key.nonce.hex for key in fold.found)
    manifest = fold.control.desired.manifest
    admitted: list[tuple[AttemptKey, AdmittedCheckpoint]] = []
    rejected: list[CheckpointNotAdmitted] = []
    for standing in fold.found.values():
        for seen in standing.checkpoints:
            answer = admit_checkpoint(seen.readback, manifest, members)
            if isinstance(answer, Refused):
                rejected.append(CheckpointNotAdmitted(seen.attempt, seen.step, seen.path, answer.defects))
            else:
                admitted.append((seen.attempt, answer))
    admitted.sort(key=lambda pair: (-pair[1].step, pair[0].nonce.hex, pair[1].path))
    return tuple(admitted), tuple(rejected)


def followed_from(fold: Fold, ended: NonEmpty[AttemptKey], holder: AttemptKey) -> AttemptKey:
    """The frontier attempt that goes on from a checkpoint which ``holder`` wrote: the first by nonce that ``holder`` led to. Where all of
    the frontier ended there is one, for every attempt leads to the frontier.

    Each attempt is visited once, from the frontier backwards.
    """
    visited: set[AttemptKey] = set()
    attempts = fold.evidence.graph.attempts
    for last in sorted(ended, key=_by_nonce):
        step: AttemptKey | None = last
        while step is not None and step not in visited:
            if step == holder:
                return last
            visited.add(step)
            step = predecessor_of(attempts[step].cause)
    return ended.first
