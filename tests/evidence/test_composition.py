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
from countermark.evidence.cut import STAGES, ObservationCut, Ordered, OutOfOrder, Stage, StageRead
from countermark.evidence.members import EnumerationReceipt, Misfiled, NotAttempted, Population, RawRead
from countermark.run.attempts import AttemptGraph, AttemptKey, admit_attempt_graph
from countermark.run.claims import Dispatched
from countermark.run.demand import Subject
from countermark.values import NonEmpty, Refused
from countermark.verdict import Sweep
from tests.faults import planted, proven_by
from tests.run.examples import HALF_OF, demand_id, stranger, work
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
#: Every fact about a run in which a reading can be another run's, alone.
FACTS = list(HALF_OF)
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


def one_account() -> Any:
    """Works are told apart by their account alone."""

    def halves(stage: Any, wanted: Subject, found: Subject) -> Any:
        alike = replace(found, work=wanted.work) if found.work.principal == wanted.work.principal else found
        return original_halves(stage, wanted, alike)

    return planted(room, "_halves", halves)()


def one_request() -> Any:
    """Demands are told apart by the request's name alone, whoever gave it."""

    def halves(stage: Any, wanted: Subject, found: Subject) -> Any:
        alike = replace(found, demand=wanted.demand) if found.demand.request == wanted.demand.request else found
        return original_halves(stage, wanted, alike)

    return planted(room, "_halves", halves)()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fact", FACTS)
def test_one_foreign_axis_is_named_whichever_fact_of_the_run_differs(stage: Stage, fact: str) -> None:
    assert bound(rebound(sweep(CLEAN).reads, stage, stranger(fact))) == {SubjectMismatch(stage, HALF_OF[fact])}


@proven_by(one_account, one_request)
def test_two_runs_may_share_all_but_one_fact_and_are_told_apart_by_it() -> None:
    for fact in FACTS:
        for part in ("graph", "cut"):
            of = sweep(changed(CLEAN, checkpoints={"local": ()}))
            foreign = admit_attempt_graph(stranger(fact), ())
            given: dict[str, Any] = {"graph": foreign} if part == "graph" else {"cut": replace(of.cut, subject=stranger(fact))}
            found = [defect for defect in composed(CLEAN, **given) if isinstance(defect, SubjectMismatch)]
            assert found == [SubjectMismatch(part, HALF_OF[fact])], (part, fact)  # type: ignore[arg-type]


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


def test_clean_parts_compose_and_order_by_their_own_cut() -> None:
    of = sweep(CLEAN)
    own, readback = graph(of), bind_readback(subject(), of.reads)
    assert isinstance(readback, Readback)
    evidence = compose_evidence(own, readback, of.cut)
    assert evidence == EvidenceComposition(subject(), own, readback, of.cut, room._SEAL)
    assert evidence.order("terminals", "outputs") == Ordered()
    assert evidence.order("outputs", "terminals") == OutOfOrder()


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


TWO_SOURCES = changed(CLEAN, processes={"local": (process(1, "dead"),), "scheduler": ()})


def altered(scene: Scene, stage: Stage, made: Any) -> ObservationCut:
    """The scene's own cut with the receipts of one stage made otherwise."""
    own = sweep(scene).cut
    return replace(own, stages=tuple(StageRead(one.stage, made(one.receipts)) if one.stage == stage else one for one in own.stages))


def first_receipt_alone() -> Any:
    """Of a stage's receipts the first one is compared."""
    original = compose_evidence

    def compose(graph: Any, readback: Any, cut: Any) -> Any:
        def mended(read: StageRead) -> StageRead:
            own = readback.population(read.stage).receipts()
            return StageRead(read.stage, own) if own and read.receipts[:1] == own[:1] else read

        return original(graph, readback, replace(cut, stages=tuple(map(mended, cut.stages))))

    return planted(_here(), "compose_evidence", compose)()


@pytest.mark.parametrize("field", ["id", "observer", "host", "started_ms", "ended_ms"])
def test_a_receipt_is_matched_in_every_field(field: str) -> None:
    """A sweep of another host, or of another time, may have come to the same id."""
    other: dict[str, Any] = {field: 1 if field.endswith("_ms") else "another"}
    cut = altered(CLEAN, "outputs", lambda receipts: tuple(replace(one, **other) for one in receipts))
    assert composed(CLEAN, cut=cut) == [ReceiptMismatch("outputs")]


@proven_by(first_receipt_alone)
def test_of_several_sources_every_receipt_is_matched() -> None:
    assert composed(TWO_SOURCES) == []
    forged = EnumerationReceipt("forged", "o", "n1", 0, 1)
    for made in (
        lambda receipts: (receipts[0], forged),
        lambda receipts: receipts[:1],
        lambda receipts: (*receipts, forged),
        lambda receipts: receipts * 2,
    ):
        assert composed(TWO_SOURCES, cut=altered(TWO_SOURCES, "processes", made)) == [ReceiptMismatch("processes")]


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


def test_of_two_sources_the_one_that_was_not_looked_at_again_makes_it_one_look() -> None:
    twice = changed(CLEAN, terminals={"supervisor": (ended(1),), "scheduler": ()})
    assert composed(twice) == []
    of = sweep(twice)
    readings = of.reads.terminals_again.population.readings
    halfway = Population(NonEmpty(readings.first, (of.reads.terminals.population.readings.more[0],)))
    reads = replace(of.reads, terminals_again=RawRead(subject(), halfway))
    cut = altered(twice, "terminals_again", lambda _: halfway.receipts())
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


def test_a_member_is_known_by_what_its_work_is_and_not_by_who_read_it() -> None:
    again = AttemptKey(replace(key(1).work), key(1).nonce)
    assert again.work is not key(1).work
    assert composed(changed(CLEAN, outputs={"local": (replace(output(1), attempt=again),)})) == []


@proven_by(nonces_alone)
@pytest.mark.parametrize("fact", ["account", "computation"])
def test_an_equal_nonce_at_another_work_is_foreign(fact: str) -> None:
    other = AttemptKey(stranger(fact).work, key(1).nonce)
    scene = changed(CLEAN, outputs={"local": (replace(output(1), attempt=other),)})
    assert composed(scene) == [ForeignMember("outputs", other)]


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
    with pytest.raises(ValueError, match=r"^a readback is minted by bind_readback$"):
        Readback(subject(), of.reads, object())
    readback = bind_readback(subject(), of.reads)
    assert isinstance(readback, Readback)
    with pytest.raises(ValueError, match=r"^an evidence composition is minted by compose_evidence$"):
        EvidenceComposition(subject(), graph(of), readback, of.cut, object())
