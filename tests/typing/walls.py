"""Illegal lines: each must stay an error of mypy's, for the reason that its comment names.

This module is never run. ``tests/typing/test_walls.py`` runs strict mypy over it: an ignore that became unnecessary is a wall that fell,
and a wall that errs for another reason than the named one is reported too. Add walls to the room that they protect, one line each.
"""

from dataclasses import replace
from decimal import Decimal

from countermark.app.acting import resume
from countermark.app.ports import Ports
from countermark.evidence.composition import EvidenceComposition
from countermark.evidence.cut import (
    ManifestsDone,
    Ordered,
    OutOfOrder,
    OutputsDone,
    ProcessesDone,
    SweepDone,
    TerminalsDone,
    Unobserved,
    after_checkpoints,
    after_manifests,
    after_outputs,
    after_processes,
    after_terminals_again,
)
from countermark.evidence.cut import Receipts as ReadingReceipts
from countermark.evidence.members import NotAttempted, Observed, OutputSeen, Population, ProcessSeen, RawRead, ReadRefused, Terminal
from countermark.recipe import Contract, Manifest, Requirements, Resolution, contract_of, derive_work_key
from countermark.recipe.coordinates import DataOrder, Off, SeededShuffle
from countermark.run.attempts import AttemptGraph, AttemptKey, Nonce
from countermark.run.checkpoint import AdmittedCheckpoint, CheckpointReadback, SoundCheckpoint, WeightsOnlyCheckpoint
from countermark.run.claims import ControlComposition
from countermark.run.demand import Subject
from countermark.run.records import RunRecord
from countermark.values import (
    FilesDigest,
    NonEmpty,
    NonNegativeDecimal,
    PerMille,
    PositiveDecimal,
    PositiveInt,
    Principal,
    Refused,
    Sha256,
    Unreadable,
    WeightsRoot,
)
from countermark.verdict import ConvergenceInput, Verdict, join, reconcile
from countermark.verdict.kinds import Blocked, CompletionCandidate, Converged, ResumeAvailable


def wants_sha256(digest: Sha256) -> None: ...


def wants_positive(number: PositiveInt) -> None: ...


def wants_principal(principal: Principal) -> None: ...


# ------------------------------------------------------------------------------------------------------------ values


def digests_do_not_mix(text: str, root: WeightsRoot, files: FilesDigest, digest: Sha256) -> None:
    wants_sha256(digest)
    wants_sha256(text)  # type: ignore[arg-type]
    wants_sha256(root)  # type: ignore[arg-type]
    wants_sha256(files)  # type: ignore[arg-type]
    print(root == digest)  # type: ignore[comparison-overlap]
    print(digest == text)  # type: ignore[comparison-overlap]


def what_was_read_may_be_unreadable(raw: object) -> None:
    wants_sha256(Sha256.read(raw))  # type: ignore[arg-type]
    print(PositiveInt.read(raw).number)  # type: ignore[union-attr]
    wants_principal(raw)  # type: ignore[arg-type]


def numbers_do_not_mix(number: int, anything: NonNegativeDecimal, share: PerMille) -> None:
    wants_positive(number)  # type: ignore[arg-type]
    wants_positive(share)  # type: ignore[arg-type]
    positive: PositiveDecimal = anything  # type: ignore[assignment]
    print(positive, NonNegativeDecimal(0.1))  # type: ignore[arg-type]
    print(anything + Decimal(1))  # type: ignore[operator]


def values_do_not_change(digest: Sha256) -> None:
    digest.hex = "0" * 64  # type: ignore[misc]
    digest.note = "mine"  # type: ignore[attr-defined]
    print(replace(digest, hex=0))  # type: ignore[arg-type]


def a_refusal_has_a_defect(defects: tuple[str, ...], refused: Refused[str]) -> None:
    print(Refused())  # type: ignore[call-arg]
    print(Refused(defects))  # type: ignore[arg-type]
    print(NonEmpty())  # type: ignore[call-arg]
    print(Refused(NonEmpty.of(defects)))  # type: ignore[arg-type]
    if refused:  # type: ignore[truthy-bool]
        print("always")


def a_sum_is_taken_apart_completely(answer: Refused[str] | Unreadable | Sha256) -> str:
    match answer:  # type: ignore[exhaustive-match]
        case Refused():
            return "refused"
        case Sha256():
            return "read"
    return "an arm was forgotten"


class Wider(Sha256):  # type: ignore[misc]
    """A value's type is final: a subclass could spell itself otherwise."""


# ------------------------------------------------------------------------------------------------------------ recipe


def a_manifest_comes_from_observations(manifest: Manifest, resolution: Resolution, account: Principal) -> None:
    derive_work_key(account, contract_of(resolution), Requirements())
    derive_work_key(account, manifest, Requirements())  # type: ignore[arg-type]
    derive_work_key("local", contract_of(resolution), Requirements())  # type: ignore[arg-type]
    print(contract_of(manifest))  # type: ignore[arg-type]
    print(Contract(manifest))  # type: ignore[call-arg]
    print(Resolution(manifest, (), ()))  # type: ignore[call-arg]
    print(Requirements("model"))  # type: ignore[arg-type]
    print(replace(resolution, manifest=manifest))  # type: ignore[call-arg]


def nothing_is_left_open(manifest: Manifest) -> None:
    print(replace(manifest, seed=None))  # type: ignore[arg-type]
    print(replace(manifest, seed="auto"))  # type: ignore[arg-type]
    print(replace(manifest, total_steps=-1))  # type: ignore[arg-type]
    print(manifest.method.rank, manifest.rank)  # type: ignore[attr-defined]
    print(Manifest(seed=manifest.seed))  # type: ignore[call-arg]
    manifest.seed = manifest.seed  # type: ignore[misc]


def a_coordinate_is_not_another(manifest: Manifest) -> None:
    print(replace(manifest, micro_batch=manifest.seed))  # type: ignore[arg-type]
    print(replace(manifest, packing=manifest.loss_mask))  # type: ignore[arg-type]
    print(replace(manifest, data_order=Off()))  # type: ignore[arg-type]


def an_order_of_rows_is_taken_apart_completely(order: DataOrder) -> int:
    match order:  # type: ignore[exhaustive-match]
        case SeededShuffle(_, seed):
            return seed.number
    return 0


# ---------------------------------------------------------------------------------------------------------- evidence


def a_stage_is_not_skipped(
    terminals: TerminalsDone, processes: ProcessesDone, outputs: OutputsDone, whole: SweepDone, about: Subject, receipts: ReadingReceipts
) -> None:
    after_processes(terminals, about, receipts)
    after_outputs(terminals, about, receipts)  # type: ignore[arg-type]
    after_processes(processes, about, receipts)  # type: ignore[arg-type]
    after_checkpoints(processes, about, receipts)  # type: ignore[arg-type]
    after_manifests(outputs, about, receipts)  # type: ignore[arg-type]
    after_terminals_again(outputs, about, receipts)  # type: ignore[arg-type]
    after_terminals_again(whole, about, receipts)  # type: ignore[arg-type]
    skipped: ManifestsDone = terminals  # type: ignore[assignment]
    print(skipped)


def an_order_is_no_yes_or_no(evidence: EvidenceComposition) -> None:
    order = evidence.order("terminals", "outputs")
    if order:  # type: ignore[truthy-bool]
        print("always")
    print(evidence.order("terminals", "logs"))  # type: ignore[arg-type]


def an_order_has_three_answers(order: Ordered | OutOfOrder | Unobserved) -> str:
    match order:  # type: ignore[exhaustive-match]
        case Ordered():
            return "yes"
        case OutOfOrder():
            return "no"
    return "nobody knows was forgotten"


def an_arm_of_a_population_is_taken_apart_completely(arm: Observed[OutputSeen] | NotAttempted | ReadRefused) -> int:
    match arm:  # type: ignore[exhaustive-match]
        case Observed(members):
            return len(members)
        case ReadRefused():
            return 0
    return 0


def an_unread_arm_has_no_members(arm: Observed[OutputSeen] | ReadRefused) -> None:
    print(arm.members)  # type: ignore[union-attr]
    print(NotAttempted("on another host").receipt)  # type: ignore[attr-defined]
    print(Observed((), None))  # type: ignore[arg-type]
    print(ReadRefused("the disk failed"))  # type: ignore[call-arg]


def axes_do_not_mix(terminals: RawRead[Terminal], processes: Population[ProcessSeen], about: Subject) -> None:
    other: RawRead[OutputSeen] = terminals  # type: ignore[assignment]
    print(other, RawRead[Terminal](about, processes))  # type: ignore[arg-type]


def an_attempt_is_a_nonce_of_a_work(nonce: Nonce, text: str, key: AttemptKey, about: Subject) -> None:
    print(AttemptKey(about.work, nonce), AttemptKey(about.work, text))  # type: ignore[arg-type]
    print(key == nonce)  # type: ignore[comparison-overlap]
    print(AttemptGraph(about, {}))  # type: ignore[call-arg]


# ----------------------------------------------------------------------------------------------------------- verdict


def control_comes_joined(evidence: EvidenceComposition, control: ControlComposition, graph: AttemptGraph) -> None:
    join(evidence, control, 0)
    join(graph, control, 0)  # type: ignore[arg-type]
    join(evidence, graph, 0)  # type: ignore[arg-type]
    reconcile(join(evidence, control, 0))  # type: ignore[arg-type]
    print(ConvergenceInput(evidence, control, 0))  # type: ignore[call-arg]


def a_verdict_is_taken_apart_completely(verdict: Verdict) -> str:
    match verdict:  # type: ignore[exhaustive-match]
        case Converged():
            return "converged"
    return "twelve arms were forgotten"


def a_candidate_is_not_made_by_hand(attempt: AttemptKey, output: Sha256) -> None:
    print(CompletionCandidate(attempt, output, "/store"))  # type: ignore[call-arg]
    print(Blocked(()))  # type: ignore[arg-type]


def only_an_admitted_checkpoint_is_resumed_from(
    ports: Ports, record: RunRecord, attempt: AttemptKey, sound: SoundCheckpoint, weights: WeightsOnlyCheckpoint, seen: CheckpointReadback
) -> None:
    resume(ports, record, attempt, sound, 0)  # type: ignore[arg-type]
    resume(ports, record, attempt, weights, 0)  # type: ignore[arg-type]
    resume(ports, record, attempt, seen, 0)  # type: ignore[arg-type]
    print(ResumeAvailable(attempt, NonEmpty(sound)))  # type: ignore[arg-type]
    print(AdmittedCheckpoint("/p", "l", 5, None, {}, sound.digest, False))  # type: ignore[call-arg]
