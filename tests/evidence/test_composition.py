"""Binder and composition: every mismatch of every stage and half is named, alone and together."""

from dataclasses import replace
from itertools import combinations
from typing import Any, get_args

import pytest

from countermark.evidence import composition as room
from countermark.evidence.composition import (
    CompositionDefect,
    CutCoversUnreadAxis,
    EvidenceComposition,
    ForeignMember,
    Half,
    RawReads,
    Readback,
    ReceiptMismatch,
    SubjectMismatch,
    bind_readback,
    compose_evidence,
)
from countermark.evidence.cut import STAGES, ObservationCut, Stage, StageRead
from countermark.evidence.members import EnumerationReceipt, Misfiled, NotAttempted, RawRead
from countermark.run.attempts import AttemptGraph, AttemptKey, admit_attempt_graph
from countermark.run.claims import Dispatched
from countermark.run.demand import Subject
from countermark.values import NonEmpty, Refused
from countermark.verdict import Sweep
from tests.faults import planted, proven_by
from tests.run.examples import demand_id, work
from tests.verdict.scenes import Scene, Try, changed, checkpoint, ended, key, manifest, output, process, subject, sweep

CLEAN = Scene(
    (Try(1, Dispatched("started")),),
    terminals={"supervisor": (ended(1),)},
    processes={"local": (process(1, "dead"),)},
    outputs={"local": (output(1),)},
    checkpoints={"local": (checkpoint(1),)},
    manifests={"local": (manifest(1),)},
)
HALVES: tuple[Half, ...] = get_args(Half)
STRANGERS: dict[Half, Subject] = {
    "demand": Subject(demand_id("another"), subject().work),
    "work": Subject(subject().demand, work("another")),
}


def graph(of: Sweep) -> AttemptGraph:
    admitted = admit_attempt_graph(subject(), of.attempts)
    assert isinstance(admitted, AttemptGraph)
    return admitted


def rebound(reads: RawReads, stage: Stage, about: Subject) -> RawReads:
    one: dict[str, Any] = {stage: RawRead(about, reads.by_stage()[stage].population)}
    return replace(reads, **one)


def bound(reads: RawReads) -> frozenset[SubjectMismatch]:
    answer = bind_readback(subject(), reads)
    found = tuple(answer.defects) if isinstance(answer, Refused) else ()
    assert len(found) == len(set(found))
    return frozenset(found)


def composed(scene: Scene, **parts: Any) -> list[CompositionDefect]:
    of = sweep(scene)
    readback = bind_readback(subject(), of.reads)
    assert isinstance(readback, Readback)
    answer = compose_evidence(parts.get("graph", graph(of)), readback, parts.get("cut", of.cut))
    return list(answer.defects) if isinstance(answer, Refused) else []


# ---------------------------------------------------------------------------------------------------------------- binder

FOREIGN = [(stage, half) for stage in STAGES for half in HALVES]
original_halves = room._halves


def first_axis_wins() -> Any:
    """The binder as it once was: it returns at the first mismatch."""

    def bind(wanted: Subject, reads: RawReads) -> Any:
        for stage in STAGES:
            if defects := original_halves(stage, wanted, reads.by_stage()[stage].subject):
                return Refused(NonEmpty(defects[0]))
        return Readback(wanted, reads, room._SEAL)

    return planted(_here(), "bind_readback", bind)()


def demand_alone() -> Any:
    """The work half is not compared."""
    return planted(room, "_halves", lambda stage, wanted, found: original_halves(stage, wanted, replace(found, work=wanted.work)))()


def work_alone() -> Any:
    """The demand half is not compared."""
    return planted(room, "_halves", lambda stage, wanted, found: original_halves(stage, wanted, replace(found, demand=wanted.demand)))()


def _here() -> Any:
    import sys

    return sys.modules[__name__]


def test_reads_of_one_subject_are_bound() -> None:
    assert bound(sweep(CLEAN).reads) == frozenset()


@pytest.mark.parametrize(("stage", "half"), FOREIGN)
def test_one_foreign_axis_is_named(stage: Stage, half: Half) -> None:
    assert bound(rebound(sweep(CLEAN).reads, stage, STRANGERS[half])) == {SubjectMismatch(stage, half)}


@proven_by(first_axis_wins)
@pytest.mark.parametrize(("one", "other"), list(combinations(STAGES, 2)))
@pytest.mark.parametrize("half", HALVES)
def test_two_foreign_axes_at_once_are_both_named(one: Stage, other: Stage, half: Half) -> None:
    reads = rebound(rebound(sweep(CLEAN).reads, one, STRANGERS[half]), other, STRANGERS[half])
    assert bound(reads) == {SubjectMismatch(one, half), SubjectMismatch(other, half)}


@proven_by(demand_alone, work_alone, first_axis_wins)
def test_both_halves_of_every_axis_are_compared() -> None:
    reads = sweep(CLEAN).reads
    for stage in STAGES:
        reads = rebound(reads, stage, Subject(STRANGERS["demand"].demand, STRANGERS["work"].work))
    assert bound(reads) == {SubjectMismatch(stage, half) for stage, half in FOREIGN}


# ----------------------------------------------------------------------------------------------------------- composition


def test_clean_parts_compose() -> None:
    assert composed(CLEAN) == []


def other_sweeps_cut(*stages: Stage) -> ObservationCut:
    """The clean cut with the receipts of another sweep at these stages."""
    own = sweep(CLEAN).cut
    forged = tuple(
        StageRead(read.stage, (EnumerationReceipt("forged", "o", "n1", 0, 1),)) if read.stage in stages else read for read in own.stages
    )
    return replace(own, stages=forged)


def no_receipts_compared() -> Any:
    """The composition trusts the cut's own word about its receipts."""
    original = compose_evidence

    def compose(graph: Any, readback: Any, cut: Any) -> Any:
        reads = tuple(StageRead(read.stage, readback.population(read.stage).receipts()) for read in cut.stages)
        return original(graph, readback, replace(cut, stages=reads))

    return planted(_here(), "compose_evidence", compose)()


@proven_by(no_receipts_compared)
@pytest.mark.parametrize("stage", STAGES)
def test_a_cut_of_another_sweep_is_named_by_its_receipt(stage: Stage) -> None:
    assert composed(CLEAN, cut=other_sweeps_cut(stage)) == [ReceiptMismatch(stage)]


def test_every_foreign_receipt_is_named() -> None:
    assert composed(CLEAN, cut=other_sweeps_cut(*STAGES)) == [ReceiptMismatch(stage) for stage in STAGES]


@pytest.mark.parametrize("stage", STAGES)
def test_a_cut_that_claims_an_unread_axis_is_named(stage: Stage) -> None:
    field = "again" if stage == "terminals_again" else stage
    unread = changed(CLEAN, **{"again": CLEAN.terminals, field: {"local": NotAttempted("nobody looked")}})
    assert composed(unread) == []
    own = sweep(CLEAN).cut
    assert composed(unread, cut=own) == [CutCoversUnreadAxis(stage)]


def test_a_reading_that_the_cut_does_not_cover_composes_and_is_unordered() -> None:
    assert composed(changed(CLEAN, order=STAGES[:3], finished=False)) == []


def test_one_look_is_not_two() -> None:
    """The first reading of terminals handed in once more, with a cut that says so: nothing was looked at again."""
    of = sweep(CLEAN)
    reads = replace(of.reads, terminals_again=of.reads.terminals)
    first = of.cut.stages[0]
    cut = replace(of.cut, stages=(*of.cut.stages[:-1], StageRead("terminals_again", first.receipts)))
    readback = bind_readback(subject(), reads)
    assert isinstance(readback, Readback)
    answer = compose_evidence(graph(of), readback, cut)
    assert isinstance(answer, Refused)
    assert list(answer.defects) == [ReceiptMismatch("terminals_again")]


MAKERS: dict[str, Any] = {"terminals": ended, "processes": process, "outputs": output, "checkpoints": checkpoint, "manifests": manifest}


def no_membership() -> Any:
    """Membership is not asked."""
    return planted(room, "_membership", lambda graph: lambda attempt: True)()


def nonces_alone() -> Any:
    """An equal nonce is an equal attempt, whatever the work."""
    return planted(room, "_membership", lambda graph: lambda attempt: attempt.nonce in {key.nonce for key in graph.attempts})()


@proven_by(no_membership)
@pytest.mark.parametrize("axis", list(MAKERS))
def test_a_member_outside_the_graph_is_foreign(axis: str) -> None:
    scene = changed(CLEAN, **{axis: {"local": (MAKERS[axis](1), MAKERS[axis](7))}})
    expected: list[Stage] = ["terminals", "terminals_again"] if axis == "terminals" else [axis]  # type: ignore[list-item]
    assert composed(scene) == [ForeignMember(stage, key(7)) for stage in expected]


@proven_by(nonces_alone)
def test_an_equal_nonce_under_another_account_is_foreign() -> None:
    stranger = AttemptKey(work("another"), key(1).nonce)
    scene = changed(CLEAN, outputs={"local": (replace(output(1), attempt=stranger),)})
    assert composed(scene) == [ForeignMember("outputs", stranger)]


@pytest.mark.parametrize("stage", STAGES)
def test_a_receipt_that_names_another_attempt_is_foreign_even_when_that_one_is_a_member(stage: Stage) -> None:
    scene = changed(CLEAN, misfiled={stage: (Misfiled(key(1), key(1).nonce.hex),)})
    assert composed(scene) == [ForeignMember(stage, key(1))]


def test_a_graph_and_a_cut_of_another_subject_are_named_by_half() -> None:
    of = sweep(CLEAN)
    both = Subject(STRANGERS["demand"].demand, STRANGERS["work"].work)
    foreign_graph = admit_attempt_graph(both, ())
    assert isinstance(foreign_graph, AttemptGraph)
    found = composed(changed(CLEAN, checkpoints={"local": ()}), graph=foreign_graph, cut=replace(of.cut, subject=both))
    subjects = {defect for defect in found if isinstance(defect, SubjectMismatch)}
    assert subjects == {SubjectMismatch(part, half) for part in ("graph", "cut") for half in HALVES}
    members = [defect.stage for defect in found if isinstance(defect, ForeignMember)]
    assert members == ["terminals", "processes", "outputs", "manifests", "terminals_again"]


def test_everything_wrong_at_once_is_named() -> None:
    scene = changed(CLEAN, outputs={"local": (output(7), output(8))}, processes={"local": NotAttempted("no")})
    cut = replace(other_sweeps_cut("manifests"), subject=STRANGERS["work"])
    assert composed(scene, cut=cut) == [
        SubjectMismatch("cut", "work"),
        CutCoversUnreadAxis("processes"),
        ForeignMember("outputs", key(7)),
        ForeignMember("outputs", key(8)),
        ReceiptMismatch("manifests"),
    ]


def test_readbacks_and_compositions_are_minted_by_their_doors_alone() -> None:
    of = sweep(CLEAN)
    with pytest.raises(ValueError, match="minted"):
        Readback(subject(), of.reads, object())
    readback = bind_readback(subject(), of.reads)
    assert isinstance(readback, Readback)
    with pytest.raises(ValueError, match="minted"):
        EvidenceComposition(subject(), graph(of), readback, of.cut, object())
