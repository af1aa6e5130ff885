"""What surrounds a run goes wrong, over each ledger: full and read-only disks, a clock that is stepped back, a pid that comes back, another
pid namespace, a zombie. The next controller's verdict is the true one, and nothing is started twice."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.app.ports import ATTEMPTS
from countermark.files import procfs
from countermark.files.attempt_folder import ReceiptRead, read_process_receipt, read_start
from countermark.files.procfs import ProcessStat
from countermark.launch.local import LocalLauncher
from countermark.observe import local, processes
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown
from countermark.store.failures import StoreError, StoreFull, StoreReadOnly
from countermark.values import NonEmpty
from countermark.verdict import places
from countermark.verdict.kinds import (
    GraceRunning,
    InProgress,
    LaunchPending,
    Lost,
    ObservationRequired,
    RetryRequired,
)
from countermark.wire.receipts import ProcessIdentity
from tests.app.bench import HONEST, Bench, arm, everything, fixtures, names
from tests.faults import planted, proven_by
from tests.launch.conftest import Place
from tests.launch.planting import in_supervisor
from tests.torture.conftest import Matrix, processes_of
from tests.torture.ledgers import ports_at
from tests.torture.surroundings import fill, read_only, small_disk, stranger
from tests.torture.test_matrix import converges_in_one_attempt, lost, only_claim, supervisor_gone, trainer_gone, verdict, wake

#: Long against the grace of the tests' settings.
SEVERAL_GRACES_S: Final = 1.0
#: Longer than a grace on a busy machine, and not so long that a planted fault is waited for in vain for ever.
SOON_S: Final = 8.0


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small disk under the attempts. Asked for before ``matrix``, so that it is there when the store is made."""
    with small_disk(tmp_path / ".countermark" / ATTEMPTS) as place:
        yield place


def in_progress(bench: Bench, run: str, seconds: float = SEVERAL_GRACES_S) -> None:
    """In progress all the while, whatever may be done."""
    attempt = only_claim(bench, run).attempt
    for _ in range(4):
        threading.Event().wait(seconds / 4)
        assert verdict(bench, run) == InProgress(NonEmpty(attempt))
        assert bench.acted(run, retries=9) == ()


def named(bench: Bench, run: str) -> tuple[ProcessIdentity, ProcessIdentity]:
    """The supervisor and the trainer of the run's newest attempt, by their receipts."""
    start, process = read_start(bench.folder(run)), read_process_receipt(bench.folder(run))
    assert isinstance(start, ReceiptRead) and isinstance(process, ReceiptRead)
    return start.receipt.supervisor, process.receipt.process


def killed(*identities: ProcessIdentity) -> None:
    for one in identities:
        assert procfs.signal_exactly(one.pid, one.start_ticks, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------------------- full disks


def what_broke_is_unknown() -> AbstractContextManager[object]:
    return planted(LocalLauncher, "_looked", lambda self, folder, said: DispatchUnknown(said.why))()


#: When the disk is full: before anything of the launch is written, and after the claim, so that the supervisor finds no room for its start.
FULL: Final = {"the call": "", "the supervisor": "claim written"}


@pytest.mark.parametrize("who", ["the call", pytest.param("the supervisor", marks=pytest.mark.slow)])
@proven_by(what_broke_is_unknown)
def test_a_launch_onto_a_full_disk_is_refused_and_made_again_when_asked(disk: Path, matrix: Matrix, who: str) -> None:
    """This call surely started nothing. Another one may still come, and with no room there is no fence either, so nothing follows until
    there is one."""
    bench = matrix.bench
    run = bench.told(HONEST)
    ballast = disk / "ballast"

    def full(step: str) -> None:
        if step == FULL[who]:
            fill(disk)

    full("")
    launcher = replace(bench.ports.launcher, after=full)
    assert bench.with_ports(launcher=launcher).acted(run)
    (outcome,) = bench.record(run).ledger.outcomes
    assert isinstance(outcome.result, DispatchRefused) and "No space left on device" in outcome.result.why
    assert (bench.folder(run) / "claim.json").exists() == (who == "the supervisor")
    attempt = only_claim(bench, run).attempt
    assert verdict(bench, run) == RetryRequired(NonEmpty(attempt))
    assert names(bench.step(run)) == ["RetriesUsedUp"]
    assert names(bench.step(run, retries=1)) == ["AttemptNotFenced"]
    assert len(bench.claims(run)) == 1 and bench.executions() == []
    ballast.unlink()
    assert arm(bench.ended(run, retries=1, allowed=everything)) == "Converged"
    assert (bench.executions(), bench.causes(run)) == ([""], ["InitialAttempt", "InfrastructureRetry"])
    assert (bench.folder(run, 0) / "fenced").exists() and bench.ports.store.check() == ()


@proven_by(in_supervisor("nothing_is_tried_again"))
def test_a_disk_that_fills_up_while_it_trains_delays_the_end_and_loses_nothing(disk: Path, matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "output", "hang"))
    assert matrix.with_supervisor().acted(run)
    bench.hanging()
    ballast = fill(disk)
    _, trainer = named(bench, run)
    bench.go_on()
    bench.wait(lambda: (row := procfs.read_stat(trainer.pid)) is None or row.start_ticks != trainer.start_ticks)
    in_progress(bench, run)
    assert not (bench.folder(run) / "terminal.json").exists()
    ballast.unlink()
    bench.wait((bench.folder(run) / "terminal.json").exists)
    converges_in_one_attempt(bench, run)


def test_a_full_disk_under_the_whole_store_is_said_and_the_ledger_goes_on(tmp_path: Path, made: Path) -> None:
    """SQLite's: where the claim cannot be written, nothing is launched."""
    fixtures(tmp_path, made)
    with small_disk(tmp_path / ".countermark") as disk, ports_at(disk, create=True) as ports:
        bench = Bench(tmp_path, ports)
        run = bench.told(HONEST)
        ballast = fill(disk)
        with pytest.raises(StoreError) as caught:
            bench.acted(run)
        assert isinstance(caught.value.failure, StoreFull)
        ballast.unlink()
        assert bench.claims(run) == () and not ports.launcher.attempts_root.exists()
        converges_in_one_attempt(bench, run)
        Place(disk).close()


# -------------------------------------------------------------------------------------------------------- read-only disks


def every_launch_succeeds() -> AbstractContextManager[object]:
    honest = LocalLauncher.dispatch

    def dispatch(self: LocalLauncher, order: Any) -> Any:
        answer = honest(self, order)
        return Dispatched("as it always does") if isinstance(answer, DispatchRefused) else answer

    return planted(LocalLauncher, "dispatch", dispatch)()


@proven_by(every_launch_succeeds)
def test_a_launch_onto_a_read_only_disk_is_refused_and_made_again_when_asked(disk: Path, matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(HONEST)
    with read_only(disk):
        assert bench.acted(run)
        (outcome,) = bench.record(run).ledger.outcomes
        assert isinstance(outcome.result, DispatchRefused) and outcome.result.why.endswith("cannot be made: Read-only file system")
        assert verdict(bench, run) == RetryRequired(NonEmpty(only_claim(bench, run).attempt))
        assert names(bench.step(run)) == ["RetriesUsedUp"]
        assert names(bench.step(run, retries=1)) == ["AttemptNotFenced"]
    assert bench.executions() == []
    assert arm(bench.ended(run, retries=1, allowed=everything)) == "Converged"
    assert (bench.executions(), bench.causes(run)) == ([""], ["InitialAttempt", "InfrastructureRetry"])


@proven_by(in_supervisor("nothing_is_tried_again"))
def test_a_disk_that_becomes_read_only_while_it_trains_delays_the_end_and_loses_nothing(disk: Path, matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "output", "hang"))
    assert matrix.with_supervisor().acted(run)
    bench.hanging()
    _, trainer = named(bench, run)
    with read_only(disk):
        bench.go_on()
        bench.wait(lambda: (row := procfs.read_stat(trainer.pid)) is None or row.start_ticks != trainer.start_ticks)
        in_progress(bench, run)
        assert not (bench.folder(run) / "terminal.json").exists()
    bench.wait((bench.folder(run) / "terminal.json").exists)
    converges_in_one_attempt(bench, run)


def test_a_store_that_becomes_read_only_is_said_and_the_ledger_goes_on(tmp_path: Path, made: Path) -> None:
    """SQLite's: what cannot be recorded is not acted on, and the trainer is not disturbed."""
    fixtures(tmp_path, made)
    store = tmp_path / ".countermark"
    with ports_at(store, create=True) as ports:
        bench = Bench(tmp_path, ports)
        run = bench.told(("effective", "output", "hang"))
        assert bench.acted(run)
        bench.hanging()
    with read_only(store), pytest.raises(StoreError) as caught, ports_at(store) as ports:
        Bench(tmp_path, ports).look(run)
    assert isinstance(caught.value.failure, StoreReadOnly)
    with ports_at(store) as ports:
        bench = Bench(tmp_path, ports)
        in_progress(bench, run)
        bench.go_on()
        converges_in_one_attempt(bench, run)
        Place(store).close()


# ----------------------------------------------------------------------------------------------------------------- clocks


def under(bench: Bench, now_ms: Callable[[], int]) -> Bench:
    """The bench of a controller whose machine has another clock."""
    ports = bench.ports
    return bench.with_ports(now_ms=now_ms, observer=local.LocalObserver(ports.launcher.attempts_root, ports.host, now_ms, ports.new_id))


HOUR_MS: Final = 3_600_000
waited = places._waited_ms


def time_has_no_direction() -> AbstractContextManager[object]:
    return planted(places, "_waited_ms", lambda fold, standing: abs(waited(fold, standing) or 0))()


@proven_by(time_has_no_direction)
def test_a_clock_that_is_stepped_back_only_lengthens_the_wait(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    attempt = only_claim(bench, run).attempt
    early = under(bench, lambda: bench.ports.now_ms() - HOUR_MS)
    in_progress(early, run)
    killed(*named(bench, run))
    bench.wait(lambda: trainer_gone(bench, run))
    for _ in range(3):
        threading.Event().wait(0.2)
        looked = early.look(run)
        assert looked.conclusion.verdict == LaunchPending(NonEmpty(attempt))
        assert GraceRunning(attempt, 0, bench.ports.grace_ms) in looked.conclusion.why_not
        assert early.acted(run, retries=9) == ()
    assert lost(bench, run) == Lost(NonEmpty(attempt))
    assert bench.ports.store.check() == ()


def test_a_clock_that_runs_backwards_orders_nothing(matrix: Matrix) -> None:
    """Each time it is asked it is a minute earlier: the run converges all the same, and the ledger is sound."""
    steps = count()
    bench = under(matrix.bench, lambda: matrix.bench.ports.now_ms() - 60_000 * next(steps))
    run = bench.told(HONEST)
    converges_in_one_attempt(bench, run)
    looked = bench.look(run)
    assert arm(looked) == "Converged" and looked.conclusion.notes == ()
    assert next(steps) > 10


def test_a_clock_that_is_stepped_forward_takes_nobody_who_lives_for_lost(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    in_progress(under(bench, lambda: bench.ports.now_ms() + 24 * HOUR_MS), run)
    bench.go_on()
    converges_in_one_attempt(bench, run)


# -------------------------------------------------------------------------------------------------------------- processes


def the_start_time_is_not_compared() -> AbstractContextManager[object]:
    return planted(processes, "_row", lambda identity: procfs.read_stat(identity.pid))()


@proven_by(the_start_time_is_not_compared)
def test_a_pid_that_came_back_is_somebody_else_who_is_left_alone(matrix: Matrix) -> None:
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"), HONEST)
    assert bench.acted(run)
    bench.hanging()
    attempt = only_claim(bench, run).attempt
    identities = named(bench, run)
    killed(*identities)
    bench.wait(lambda: trainer_gone(bench, run) and supervisor_gone(bench, run) and procfs.read_stat(identities[1].pid) is None)
    with stranger(identities[1].pid) as pid:
        assert lost(bench, run, SOON_S) == Lost(NonEmpty(attempt))
        bench.ports.store.cancel(run, "tester", bench.ports.now_ms())
        assert arm(bench.ended(run, allowed=everything)) == "Cancelled"
        row = procfs.read_stat(pid)
        assert row is not None and not row.ended and not row.stopped
    assert len(bench.executions()) == 1


def zombies_are_alive() -> AbstractContextManager[object]:
    return planted(ProcessStat, "ended", property(lambda self: False))()


@proven_by(zombies_are_alive)
def test_a_zombie_is_dead_although_its_pid_and_start_time_are_there(matrix: Matrix) -> None:
    """Its supervisor is stopped and cannot reap it; woken, it tells the true end."""
    bench = matrix.bench
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    attempt = only_claim(bench, run).attempt
    supervisor, trainer = named(bench, run)
    assert procfs.signal_exactly(supervisor.pid, supervisor.start_ticks, signal.SIGSTOP)
    killed(trainer)
    bench.wait(lambda: (row := procfs.read_stat(trainer.pid)) is not None and row.state == "Z")
    assert lost(bench, run, SOON_S) == Lost(NonEmpty(attempt))
    row = procfs.read_stat(trainer.pid)
    assert row is not None and (row.state, row.start_ticks) == ("Z", trainer.start_ticks)
    wake(bench)
    bench.wait((bench.folder(run) / "terminal.json").exists)
    assert verdict(bench, run) == RetryRequired(NonEmpty(attempt))
    assert len(bench.claims(run)) == 1


# ---------------------------------------------------------------------------------------------------------- pid namespaces


@pytest.fixture
def contained(matrix: Matrix) -> Bench:
    """The bench of a controller whose supervisors live in a pid namespace of their own, as in a container that shares the folder."""
    entering = ("unshare", "--pid", "--fork", "--mount-proc")
    done = subprocess.run([*entering, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this user may not make a pid namespace: {done.stderr.strip()}")
    # The first process of a namespace takes all others with it: it stays until its last orphan has ended.
    init = "import os, subprocess, sys, time\ncode = subprocess.run(sys.argv[1:]).returncode\n"
    init += "while True:\n  try:\n    os.wait()\n  except ChildProcessError:\n    sys.exit(code)\n"
    supervisor = (*entering, sys.executable, "-c", init, *Place(matrix.bench.store).driver())
    # Its first process ends with its last one, so the call is not answered: the receipts show that it began.
    launcher = LocalLauncher(matrix.bench.ports.launcher.attempts_root, supervisor=supervisor, start_timeout_s=1.5)
    return matrix.bench.with_ports(launcher=launcher)


honest_look = local.read_process


def unseen_is_dead(folder: Path) -> object:
    seen = honest_look(folder)
    start = read_start(folder)
    if isinstance(seen, processes.ProcessRefused) and isinstance(start, ReceiptRead):
        return processes.Dead(start.receipt, None, "it is not in the table")
    return seen


def what_is_not_in_the_table_is_dead() -> AbstractContextManager[object]:
    return planted(local, "read_process", unseen_is_dead)()


@proven_by(what_is_not_in_the_table_is_dead)
def test_an_attempt_in_another_pid_namespace_lives_by_its_lock_and_is_never_lost(contained: Bench) -> None:
    """Nobody here can look into its table: with its lock free and no terminal, nobody knows, and nothing is done."""
    bench = contained
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    supervisor, trainer = named(bench, run)
    assert trainer.pid_namespace == supervisor.pid_namespace != procfs.pid_namespace()
    in_progress(bench, run)
    # The end of a namespace's first process ends them all, the supervisor included.
    inside = [row for row in processes_of(bench.root) if namespace_of(row.pid) == trainer.pid_namespace]
    first = min(inside, key=lambda row: row.start_ticks)
    assert procfs.signal_exactly(first.pid, first.start_ticks, signal.SIGKILL)
    bench.wait(lambda: not [row for row in processes_of(bench.root) if namespace_of(row.pid) == trainer.pid_namespace])
    for _ in range(4):
        threading.Event().wait(SEVERAL_GRACES_S / 4)
        seen = verdict(bench, run)
        assert isinstance(seen, ObservationRequired)
        assert {(one.stage, "in pid namespace" in one.reason) for one in seen.refused} == {("processes", True)}
        assert bench.acted(run, retries=9) == ()
    assert len(bench.executions()) == 1


def namespace_of(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def test_an_attempt_that_ended_in_another_pid_namespace_has_said_everything(contained: Bench) -> None:
    """Its supervisor's word is enough: it speaks after the last descendant has ended."""
    bench = contained
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    bench.go_on()
    bench.wait((bench.folder(run) / "terminal.json").exists)
    converges_in_one_attempt(bench, run)
