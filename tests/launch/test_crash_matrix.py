"""The crash matrix of the local launcher: a real SIGKILL after each named step, and what is found afterwards.

Every row ends with the same question: how often did COMMAND run? It counts itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

import pytest

from countermark.files import procfs
from countermark.files.attempt_folder import START, ReceiptAbsent, ReceiptRead, read_start, read_terminal
from countermark.files.locks import LockFree, LockHeld, probe_lock
from countermark.launch import local
from countermark.launch.local import Dispatched, DispatchRefused, DispatchUnknown
from countermark.launch.steps import LAUNCH_STEPS, SUPERVISOR_STEPS, LaunchStep, SupervisorStep
from countermark.wire.receipts import Killed, NotExecuted, Signalled, Succeeded
from tests.faults import proven_by
from tests.launch.conftest import Place
from tests.launch.planting import in_supervisor


@contextmanager
def a_start_can_be_repeated() -> Iterator[None]:
    """Neither the launcher nor the supervisor minds a start receipt that is there."""
    seen = local.present
    with (
        in_supervisor("start_is_not_exclusive")(),
        patch.object(local, "present", lambda folder, name: name != START and seen(folder, name)),
    ):
        yield


@pytest.mark.parametrize("step", LAUNCH_STEPS)
def test_a_controller_killed_at_any_step_is_carried_on_with_and_one_trainer_runs(place: Place, step: LaunchStep) -> None:
    order = place.order("sleep 0.2")
    controller = place.begin_controller(order, step)
    out, _ = controller.communicate(timeout=30)
    assert (controller.returncode, out) == (-9, "")
    started = step == "supervisor launched"
    assert place.launcher().dispatch(order) == Dispatched("already started" if started else "started")
    assert place.terminal().outcome == Succeeded()
    assert place.launcher().dispatch(order) == Dispatched("already started")
    assert place.runs() == 1


#: Killed after these steps, the supervisor has said nothing, so the dispatch is unknown; a call that is still to come carries the claim on.
BEFORE_START: Final[tuple[SupervisorStep, ...]] = ("begun",)
#: The claim is used up and COMMAND never ran.
NEVER_EXECUTED: Final[tuple[SupervisorStep, ...]] = ("start written", "child begun", "locked", "process written", "fence checked")
#: COMMAND ran or runs to its end, without anybody to write a terminal.
EXECUTED: Final[tuple[SupervisorStep, ...]] = ("forked", "main ended", "descendants ended")


def test_the_rows_below_name_every_step_once() -> None:
    rows = (*BEFORE_START, *NEVER_EXECUTED, *EXECUTED, "terminal written")
    assert sorted(rows) == sorted(SUPERVISOR_STEPS)


@pytest.mark.parametrize("step", BEFORE_START)
def test_before_the_start_receipt_the_same_claim_is_carried_on_with(place: Place, step: SupervisorStep) -> None:
    result = place.launcher("--at", step).dispatch(place.order())
    assert isinstance(result, DispatchUnknown)
    assert "the supervisor died before it could start" in result.why
    assert isinstance(read_start(place.folder()), ReceiptAbsent)
    assert place.launcher().dispatch(place.order()) == Dispatched("started")
    place.terminal()
    assert place.runs() == 1


@pytest.mark.parametrize("step", NEVER_EXECUTED)
@proven_by(a_start_can_be_repeated)
def test_after_the_start_receipt_the_claim_never_starts_again(place: Place, step: SupervisorStep) -> None:
    """The supervisor dies, or both die where the step is the child's: COMMAND never ran and never will under this claim."""
    act = "kill_self" if step == "start written" else "kill_both"
    result = place.launcher("--at", step, "--act", act).dispatch(place.order())
    assert isinstance(result, Dispatched)
    place.wait(lambda: _all_gone(place))
    assert place.launcher().dispatch(place.order()) == Dispatched("already started")
    _give_a_second_start_time(place)
    assert place.runs() == 0
    assert isinstance(read_terminal(place.folder()), ReceiptAbsent)
    assert (place.folder() / "process.json").exists() == (step in ("process written", "fence checked"))


def _give_a_second_start_time(place: Place) -> None:
    """What a second start would do shows within this time, or a terminal shows that it is over."""
    try:
        place.wait((place.folder() / "terminal.json").exists, 0.5)
    except AssertionError:
        return


def _all_gone(place: Place) -> bool:
    start = read_start(place.folder())
    assert isinstance(start, ReceiptRead)
    row = procfs.read_stat(start.receipt.supervisor.pid)
    gone = row is None or row.ended or row.start_ticks != start.receipt.supervisor.start_ticks
    return gone and probe_lock(place.folder() / "lock") == LockFree()


@pytest.mark.parametrize("step", ["child begun", "locked", "process written", "fence checked"])
@proven_by(in_supervisor("lock_is_not_inherited"))
def test_a_trainer_whose_supervisor_dies_at_any_of_its_steps_is_seen_by_its_lock(place: Place, step: SupervisorStep) -> None:
    place.launcher("--at", step, "--act", "kill_parent").dispatch(place.order("sleep 30"))
    place.wait(lambda: place.runs() == 1)
    assert (probe_lock(place.folder() / "lock"), (place.folder() / "process.json").exists()) == (LockHeld(), True)
    assert place.launcher().dispatch(place.order("sleep 30")) == Dispatched("already started")
    assert place.runs() == 1


def test_a_supervisor_killed_after_the_fork_leaves_a_trainer_that_runs_to_its_end(place: Place) -> None:
    place.launcher("--at", "forked").dispatch(place.order("sleep 0.3; echo end"))
    place.wait(lambda: place.runs() == 1)
    place.wait(lambda: _all_gone(place))
    assert place.log() == "end\n"
    assert isinstance(read_terminal(place.folder()), ReceiptAbsent)
    assert place.launcher().dispatch(place.order("sleep 0.3; echo end")) == Dispatched("already started")
    assert place.runs() == 1


@pytest.mark.parametrize("step", ["main ended", "descendants ended"])
def test_a_supervisor_killed_before_the_terminal_leaves_none(place: Place, step: SupervisorStep) -> None:
    place.launcher("--at", step).dispatch(place.order("touch $COUNTERMARK_ATTEMPT/output"))
    place.wait(lambda: place.runs() == 1 and _all_gone(place))
    assert isinstance(read_terminal(place.folder()), ReceiptAbsent)
    assert (place.folder() / "output").exists()
    assert place.launcher().dispatch(place.order("touch $COUNTERMARK_ATTEMPT/output")) == Dispatched("already started")
    assert place.runs() == 1


def test_a_supervisor_killed_after_the_terminal_has_said_everything(place: Place) -> None:
    place.launcher("--at", "terminal written").dispatch(place.order())
    assert place.terminal().outcome == Succeeded()
    assert place.runs() == 1


@pytest.mark.parametrize("step", ["child begun", "locked", "process written", "fence checked"])
def test_a_child_that_dies_before_it_becomes_command_has_a_terminal(place: Place, step: SupervisorStep) -> None:
    place.launcher("--at", step).dispatch(place.order())
    terminal = place.terminal()
    assert (terminal.outcome, terminal.main) == (Killed(9), Signalled(9))
    assert place.runs() == 0


# -------------------------------------------------------------------------------------------------------- full disk


@pytest.mark.parametrize("receipt", ["start.json", "process.json", "terminal.json"])
@proven_by(in_supervisor("nothing_is_tried_again"))
def test_a_disk_that_is_full_for_a_moment_delays_a_receipt_and_is_said(place: Place, receipt: str) -> None:
    place.launcher("--full", receipt).dispatch(place.order())
    terminal = place.terminal()
    assert terminal.outcome == Succeeded()
    assert place.runs() == 1
    place.wait(lambda: "the receipt was written after" in place.log())
    assert "a receipt cannot be written (No space left on device): trying again" in place.log()
    assert [path.name for path in place.folder().iterdir() if path.name.startswith(".tmp")] == []


@pytest.mark.parametrize("receipt", ["start.json", "process.json", "terminal.json"])
@proven_by(in_supervisor("own_receipt_is_anothers"))
def test_a_receipt_that_got_its_name_and_no_confirmation_is_confirmed_later_and_nobody_elses(place: Place, receipt: str) -> None:
    answer = place.launcher("--full", receipt, "--late", "--times", "1").dispatch(place.order())
    assert answer == Dispatched("started")
    assert place.terminal().outcome == Succeeded()
    assert place.runs() == 1
    place.wait(lambda: "the receipt was written after" in place.log(), 3)


def test_a_disk_that_stays_full_before_the_start_refuses_and_leaves_nothing_started(place: Place) -> None:
    """The supervisor says itself that it did not start, after it removed what it wrote beside the receipt's place."""
    result = place.launcher("--full", "start.json", "--times", "1000000").dispatch(place.order())
    assert isinstance(result, DispatchRefused)
    assert "the start receipt cannot be written: No space left on device" in result.why
    assert isinstance(read_start(place.folder()), ReceiptAbsent)
    # A refusal speaks of its own call: one that was about to come starts the claim all the same, unless there is a fence.
    assert place.launcher().dispatch(place.order()) == Dispatched("started")
    place.terminal()
    assert place.runs() == 1


def test_a_receipt_that_somebody_else_put_there_stops_the_trainer_before_it_begins(place: Place) -> None:
    place.folder().mkdir(parents=True)
    (place.folder() / "process.json").write_text("{}")
    place.launcher().dispatch(place.order())
    terminal = place.terminal()
    assert isinstance(terminal.main, NotExecuted)
    assert terminal.main.why == "the process receipt cannot be written: File exists"
    assert place.runs() == 0
