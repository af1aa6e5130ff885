"""Ctrl-C, or a request to end, anywhere in a controller's work: it ends as a shell expects, and the next one goes on from the ledger."""

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.launch.local import LocalLauncher
from countermark.run.claims import DispatchRefused
from tests.app.bench import HONEST, Bench, everything
from tests.app.test_rounds import controller, executions, until_the_end, verdict_of
from tests.faults import planted, proven_by

PROGRAM: Final = Path(__file__).parent / "interrupted.py"

#: Where a controller may be when the signal comes: each of its calls to the store, the launcher and the observer, and its sleep.
POINTS: Final = (
    ("SqlStore.take_due", "after"),
    ("SqlStore.load_run", "after"),
    ("LocalObserver.processes", "before"),
    ("SqlStore.record_sweep", "before"),
    ("SqlStore.record_verdict", "after"),
    ("SqlStore.claim_start", "before"),
    ("SqlStore.claim_start", "after"),
    ("SqlStore.record_dispatch_intent", "after"),
    ("LocalLauncher._make_folder", "after"),
    ("LocalLauncher._write_claim", "after"),
    ("LocalLauncher._start", "after"),
    ("SqlStore.record_dispatch_outcome", "before"),
    ("SqlStore.look_again", "before"),
    ("Rounds._nap", "before"),
)
TERMINATED: Final = POINTS[6::4]
#: Every point on the ledger that costs less, every other one on the other.
BOTH: Final = [("sqlite", *point) for point in POINTS] + [("postgresql", *point) for point in POINTS[::2]]


def interrupted(bench: Bench, number: str, where: str, when: str) -> subprocess.CompletedProcess[str]:
    """A controller of all runs, which got the signal there."""
    args = ("reconcile", "--all", "--act", "--watch", "--store", bench.address)
    environment = os.environ | {"COUNTERMARK_GRACE_S": "0.3", "COUNTERMARK_WATCH_INTERVAL_S": "0.02", "COUNTERMARK_STOP_GRACE_S": "0.2"}
    command = [sys.executable, str(PROGRAM), number, where, when, *args]
    return subprocess.run(command, cwd=bench.root, env=environment, capture_output=True, text=True, timeout=60, check=False)


def launches_are_not_looked_up() -> AbstractContextManager[object]:
    """A launcher that does not find what an earlier call began."""
    honest = LocalLauncher.dispatch

    def dispatch(self: Any, order: Any) -> Any:
        return DispatchRefused("it was begun before") if self.folder(order.nonce).exists() else honest(self, order)

    return planted(LocalLauncher, "dispatch", dispatch)()


def goes_on(bench: Bench, number: str, where: str, when: str) -> int:
    """The exit code of a controller that got a signal, when another one has brought its runs to their end."""
    runs = bench.many(2, *HONEST)
    ended = interrupted(bench, number, where, when)
    assert "Traceback" not in ended.stderr, ended.stderr
    found = until_the_end(controller(bench).turns())
    assert {verdict_of(turn) for turn in found.values()} <= {"Converged"}, found
    assert {run: executions(place) for run, place in runs.items()} == dict.fromkeys(runs, 1)
    assert bench.ports.store.list_runs(open_only=True) == () and bench.ports.store.check() == ()
    return ended.returncode


@pytest.mark.parametrize(("ledger", "where", "when"), BOTH, indirect=["ledger"])
def test_ctrl_c_leaves_a_ledger_from_which_the_next_controller_goes_on(bench: Bench, where: str, when: str) -> None:
    assert goes_on(bench, "SIGINT", where, when) == 130


@pytest.mark.parametrize(("where", "when"), TERMINATED)
def test_so_does_a_request_to_end(bench: Bench, where: str, when: str) -> None:
    assert goes_on(bench, "SIGTERM", where, when) == -signal.SIGTERM


@proven_by(launches_are_not_looked_up)
def test_a_launch_that_was_broken_off_is_found_and_gone_on_with(bench: Bench) -> None:
    assert goes_on(bench, "SIGINT", "LocalLauncher._make_folder", "after") == 130


def test_what_was_broken_off_is_said_once_and_plainly(bench: Bench) -> None:
    bench.told(HONEST)
    ended = interrupted(bench, "SIGINT", "SqlStore.claim_start", "before")
    assert ended.stderr.splitlines() == [
        "countermark: interrupted; nothing is half done: what was recorded stays, and the same command carries on"
    ]
    assert ended.stdout == ""
    assert bench.ended(bench.told(HONEST), allowed=everything).conclusion.why_not == ()
