"""The cut: stages that really ran, in their order, for one subject; and the tokens that cannot be skipped."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from countermark.evidence import cut as room
from countermark.evidence.cut import (
    STAGES,
    CheckpointsDone,
    ManifestsDone,
    ObservationCut,
    Ordered,
    OutOfOrder,
    OutputsDone,
    ProcessesDone,
    Receipts,
    Stage,
    StageRead,
    StageSkipped,
    SweepToken,
    TerminalsDone,
    Unobserved,
    after_checkpoints,
    after_manifests,
    after_outputs,
    after_processes,
    after_terminals,
    after_terminals_again,
    cut_of,
)
from countermark.evidence.members import EnumerationReceipt
from countermark.run.demand import Subject
from tests.faults import planted, proven_by
from tests.run.examples import HALF_OF, stranger
from tests.verdict.scenes import receipt, subject

OTHERS = tuple(stranger(fact) for fact in HALF_OF)


def receipts(stage: Stage) -> Receipts:
    return (receipt(stage, "local"),)


def cut(*stages: Stage, finished: bool = True) -> ObservationCut:
    return ObservationCut(subject(), tuple(StageRead(stage, receipts(stage)) for stage in stages), finished)


def clocked() -> Any:
    """Order by the clocks in the receipts instead of by what ran after what."""

    def order(self: ObservationCut, wanted: Subject, earlier: Stage, later: Stage) -> Any:
        started = {read.stage: read.receipts[0].started_ms for read in self.stages}
        return Ordered() if started[earlier] < started[later] else OutOfOrder()

    return planted(ObservationCut, "order", order)()


@pytest.mark.parametrize(("one", "other"), list(permutations(STAGES, 2)))
def test_order_is_that_of_the_cut(one: Stage, other: Stage) -> None:
    assert cut(one, other).order(subject(), one, other) == Ordered()
    assert cut(other, one).order(subject(), one, other) == OutOfOrder()


@proven_by(clocked)
def test_clocks_are_no_order() -> None:
    """A clock was stepped back between two readings."""
    stepped = {"terminals": 2_000, "processes": 1_000}
    stages: tuple[Stage, ...] = ("terminals", "processes")
    reads = tuple(StageRead(stage, (EnumerationReceipt(stage, "o", "n1", stepped[stage], stepped[stage]),)) for stage in stages)
    assert ObservationCut(subject(), reads, True).order(subject(), "terminals", "processes") == Ordered()


def test_what_the_sweep_did_not_read_is_unobserved_and_named() -> None:
    assert cut("terminals").order(subject(), "terminals", "outputs") == Unobserved("the sweep did not read outputs")
    assert cut().order(subject(), "terminals", "outputs") == Unobserved("the sweep did not read terminals and outputs")


def test_a_broken_off_sweep_orders_nothing() -> None:
    assert cut(*STAGES, finished=False).order(subject(), "terminals", "outputs") == Unobserved("the sweep was broken off")


@pytest.mark.parametrize("other", OTHERS)
def test_another_subjects_sweep_orders_nothing(other: Subject) -> None:
    assert cut(*STAGES).order(other, "terminals", "outputs") == Unobserved("the sweep is about another subject")


def test_a_stage_stands_once() -> None:
    with pytest.raises(ValueError, match=r"^a stage runs once in a sweep$"):
        cut("terminals", "terminals")


def test_a_stage_is_not_read_before_itself() -> None:
    assert cut("terminals").order(subject(), "terminals", "terminals") == OutOfOrder()


# -------------------------------------------------------------------------------------------------------------- tokens


def whole(without: Stage | None = None) -> list[SweepToken]:
    """The tokens of a sweep; at ``without`` nobody looked."""

    def looked(stage: Stage) -> Receipts:
        return () if stage == without else receipts(stage)

    terminals = after_terminals(subject(), looked("terminals"))
    processes = after_processes(terminals, subject(), looked("processes"))
    outputs = after_outputs(processes, subject(), looked("outputs"))
    checkpoints = after_checkpoints(outputs, subject(), looked("checkpoints"))
    manifests = after_manifests(checkpoints, subject(), looked("manifests"))
    return [terminals, processes, outputs, checkpoints, manifests, after_terminals_again(manifests, subject(), looked("terminals_again"))]


@pytest.mark.parametrize("length", range(1, 7))
def test_a_cut_is_as_long_as_the_sweep_came_and_only_the_whole_one_is_finished(length: int) -> None:
    assert cut_of(whole()[length - 1]) == cut(*STAGES[:length], finished=length == 6)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_at_which_nobody_looked_did_not_run(stage: Stage) -> None:
    assert cut_of(whole(without=stage)[-1]) == cut(*(one for one in STAGES if one != stage))


STEPS: tuple[tuple[type, Callable[..., Any]], ...] = (
    (TerminalsDone, after_processes),
    (ProcessesDone, after_outputs),
    (OutputsDone, after_checkpoints),
    (CheckpointsDone, after_manifests),
    (ManifestsDone, after_terminals_again),
)


def trusting() -> Any:
    """Whoever holds a token may go on."""
    return planted(room, "_next", lambda token, wanted, subject, stage, receipts: token.stages)()


@proven_by(trusting)
@pytest.mark.parametrize(("held", "step"), [(held, step) for held in range(6) for step in range(5) if held != step])
def test_no_stage_is_skipped_or_repeated(held: int, step: int) -> None:
    token, (wanted, after) = whole()[held], STEPS[step]
    with pytest.raises(StageSkipped, match=rf"^{STAGES[step + 1]} follows {wanted.__name__}, not {type(token).__name__}$"):
        after(token, subject(), ())


@proven_by(trusting)
@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("other", OTHERS)
def test_holding_a_token_is_no_authorization(step: int, other: Subject) -> None:
    with pytest.raises(StageSkipped, match=rf"^{STAGES[step + 1]} was read for another subject than the sweep's$"):
        STEPS[step][1](whole()[step], other, ())
