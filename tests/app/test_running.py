"""Whole runs through the real ledger, launcher and supervisor, with a trainer that does as it is told: demands, looks, verdicts."""

from contextlib import AbstractContextManager
from dataclasses import replace

import msgspec
import pytest

from countermark.app import running
from countermark.app.deciding import resume_run
from countermark.app.running import latest_sweep, nothing_lives, open_runs
from countermark.files.attempt_folder import ReceiptRead, read_terminal
from countermark.observe import artifacts, local
from countermark.recipe import ROSTER
from countermark.verdict.kinds import (
    Blocked,
    Converged,
    EffectiveManifestDiverges,
    NoSuccess,
    ObservationRequired,
    SuccessWithoutOutput,
)
from countermark.verdict.sweep import conclude
from countermark.wire.receipts import encode
from tests.app.bench import BOTH_LEDGERS, HONEST, Bench, arm, names, refusals
from tests.faults import planted, proven_by
from tests.recipe.examples import CLEAN

pytestmark = BOTH_LEDGERS

# ------------------------------------------------------------------------------------------------------------ demands


def test_an_honest_trainer_converges_and_a_second_demand_attaches_and_starts_nothing(bench: Bench) -> None:
    first = bench.demand(*bench.trainer(HONEST))
    run = first.record.run_id
    assert not first.attached
    assert arm(bench.look(run)) == "ExecutionRequired"
    assert bench.acted(run)[0].startswith("claimed attempt ")
    said, _ = bench.watched(run)
    assert said[-1] == "Converged" and set(said) <= {"InProgress", "Converged"}
    second = bench.demand("another", "command")
    assert (second.record.run_id, second.attached, second.other_command) == (run, True, True)
    assert bench.acted(run) == ()
    assert bench.executions() == [""] and bench.causes(run) == ["InitialAttempt"]

    other = bench.demand(*bench.trainer(HONEST), request="once-more")
    assert not other.attached and other.record.run_id != run
    assert arm(bench.look(other.record.run_id)) == "ExecutionRequired"
    still_open = open_runs(bench.ports)
    assert isinstance(still_open, tuple)
    assert [(one.summary.run_id, one.arm) for one in still_open] == [(other.record.run_id, "ExecutionRequired")]

    again = bench.demand(*bench.trainer(HONEST))
    assert (again.attached, again.other_command) == (True, False)


def test_every_look_is_stored_and_gives_the_same_conclusion_again(bench: Bench) -> None:
    run = bench.told(HONEST)
    last = bench.ended(run)
    stored = latest_sweep(bench.ports, run)
    assert isinstance(stored, type(last.sweep)) and conclude(stored) == last.conclusion
    record = bench.ports.store.latest_sweep(run)
    assert record is not None and not hasattr(record, "defects")
    verdicts = bench.ports.store.verdicts(last.sweep_id)
    assert [(verdict.arm, verdict.closed) for verdict in verdicts] == [("Converged", True)]
    assert bench.ports.store.check() == ()


def test_a_run_in_progress_is_waited_for_and_not_started_again(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    for _ in range(2):
        assert arm(bench.look(run)) == "InProgress"
        assert bench.acted(run) == ()
    bench.go_on()
    said, _ = bench.watched(run)
    assert said[-1] == "Converged" and bench.executions() == [""]


# ------------------------------------------------------------------------------------------------- what trainers may do


def outputs_are_not_missed() -> AbstractContextManager[object]:
    return planted(local, "_output", lambda attempt, folder, found: found.refusals.append("nobody looked"))()


@proven_by(outputs_are_not_missed)
def test_success_without_output_is_blocked(bench: Bench) -> None:
    run = bench.told(("effective", "save 4"))
    verdict = bench.ended(run).conclusion.verdict
    attempt = bench.claims(run)[0].attempt
    assert isinstance(verdict, Blocked) and tuple(verdict.blockers) == (SuccessWithoutOutput(attempt),)
    assert bench.acted(run, retries=9) == (), "nobody acts on what a person must look at"


@pytest.mark.parametrize(
    ("lies", "told"),
    [
        (("learning_rate=0.001",), ("learning_rate",)),
        (("learning_rate=0.001", "seed=18"), ("seed", "learning_rate")),
    ],
)
def test_a_trainer_that_ran_something_else_is_named_by_coordinate(bench: Bench, lies: tuple[str, ...], told: tuple[str, ...]) -> None:
    found = dict(lie.split("=") for lie in lies)
    run = bench.told((f"effective {' '.join(lies)}", "output"))
    verdict = bench.ended(run).conclusion.verdict
    attempt = bench.claims(run)[0].attempt
    expected = tuple(f"{name}: {CLEAN[name]} → {found[name]} (trainer)" for name in told)
    assert isinstance(verdict, Blocked) and tuple(verdict.blockers) == (EffectiveManifestDiverges(attempt, expected),)


def artifacts_are_not_asked() -> AbstractContextManager[object]:
    return planted(local, "artifact_readings", lambda facts, desired: {})()


@proven_by(artifacts_are_not_asked)
def test_a_trainers_word_is_held_against_its_artifacts(bench: Bench) -> None:
    """The output's configuration says rank 8, the trainer says that all is as asked."""
    run = bench.told(("effective", "output other-rank"))
    verdict = bench.ended(run).conclusion.verdict
    expected = EffectiveManifestDiverges(bench.claims(run)[0].attempt, (f"rank: 4 → 8 ({artifacts.SOURCE})",))
    assert isinstance(verdict, Blocked) and tuple(verdict.blockers) == (expected,)


def test_a_coordinate_that_nobody_read_keeps_a_run_from_converging(bench: Bench) -> None:
    run = bench.told(("effective numeric_format", "output"))
    verdict = bench.ended(run).conclusion.verdict
    assert isinstance(verdict, ObservationRequired)
    assert [unread.coordinates for unread in verdict.coordinates_unread] == [("numeric_format: the trainer has no such object",)]
    assert (verdict.refused, verdict.not_attempted, verdict.orders_missing) == ((), (), ())


def test_a_foreign_command_ends_unverified_with_every_coordinate_named(bench: Bench) -> None:
    run = bench.demand("/bin/sh", "-c", "mkdir {output} && echo 42 > {output}/answer.txt").record.run_id
    verdict = bench.ended(run).conclusion.verdict
    assert isinstance(verdict, ObservationRequired)
    assert [unread.coordinates for unread in verdict.coordinates_unread] == [tuple(f"{name}: nobody read it" for name in ROSTER)]
    assert bench.acted(run, retries=9) == ()


def test_a_command_that_is_not_there_fails_as_in_a_shell(bench: Bench) -> None:
    run = bench.demand("no-such-command-here").record.run_id
    last = bench.ended(run)
    assert arm(last) == "RetryRequired"
    why = "never executed (exit code 127): 'no-such-command-here', or the interpreter that its first line names, was not found"
    assert last.conclusion.why_not == (NoSuccess(bench.claims(run)[0].attempt, why),)


def test_a_command_that_forks_and_exits_has_ended_when_its_descendants_have(bench: Bench) -> None:
    run = bench.told(("fork", *HONEST))
    said, last = bench.watched(run)
    assert "InProgress" in said and said[-1] == "Converged"
    assert isinstance(last, running.Looked) and last.conclusion.notes == ()


# ---------------------------------------------------------------------------------------------- folders that lie or tear


def a_torn_receipt_is_absent() -> AbstractContextManager[object]:
    real = local.read_terminal

    def reads(folder: object) -> object:
        found = real(folder)  # type: ignore[arg-type]
        return local.ReceiptAbsent() if isinstance(found, local.ReceiptRefused) else found

    return planted(local, "read_terminal", reads)()


@proven_by(a_torn_receipt_is_absent)
def test_a_torn_terminal_is_refused_and_never_taken_for_none(bench: Bench) -> None:
    run = bench.told(HONEST)
    assert arm(bench.ended(run)) == "Converged"
    terminal = bench.folder(run) / "terminal.json"
    whole = terminal.read_bytes()
    terminal.write_bytes(whole[: len(whole) // 2])
    looked = bench.look(run)
    whys = refusals(looked.sweep.reads.terminals.population)
    assert [why.partition(": ")[0] for why in whys] == ["terminal.json"]
    assert isinstance(looked.conclusion.verdict, ObservationRequired)
    assert {(one.stage, one.reason) for one in looked.conclusion.verdict.refused} == {("terminals_again", whys[0])}
    assert bench.acted(run, retries=9) == () and bench.executions() == [""]
    terminal.write_bytes(whole)
    assert arm(bench.look(run)) == "Converged"


def test_a_terminal_of_another_attempt_is_a_foreign_member(bench: Bench) -> None:
    run = bench.told(HONEST)
    bench.ended(run)
    folder = bench.folder(run)
    read = read_terminal(folder)
    assert isinstance(read, ReceiptRead)
    (folder / "terminal.json").write_bytes(encode(msgspec.structs.replace(read.receipt, attempt="f" * 32)))
    assert set(names(running.look_at(bench.ports, run))) == {"ForeignMember"}
    assert set(names(bench.step(run))) == {"ForeignMember"}


def test_a_folder_behind_a_link_is_not_the_attempts(bench: Bench) -> None:
    run = bench.told(HONEST)
    bench.ended(run)
    folder = bench.folder(run)
    elsewhere = folder.rename(bench.root / "elsewhere")
    folder.symlink_to(elsewhere)
    looked = bench.look(run)
    why = f"{folder.name} is a symbolic link"
    reads = looked.sweep.reads
    axes = (reads.terminals, reads.processes, reads.outputs, reads.checkpoints, reads.manifests, reads.terminals_again)
    assert [refusals(axis.population) for axis in axes] == [[why]] * 6
    assert isinstance(looked.conclusion.verdict, ObservationRequired)
    folder.unlink()
    elsewhere.rename(folder)
    assert isinstance(bench.look(run).conclusion.verdict, Converged)


def test_a_run_that_is_not_resumable_says_what_it_is(bench: Bench) -> None:
    run = bench.told(HONEST)
    assert names(resume_run(bench.ports, run, None, "ada")) == ["ResumeUnavailable"]
    assert names(running.look_at(bench.ports, "0" * 32)) == ["RunUnknown"]


def test_that_nothing_lives_is_said_only_of_what_was_looked_at_and_is_dead(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    assert not nothing_lives(bench.look(run))
    away = bench.with_ports(observer=replace(bench.ports.observer, host="elsewhere"))
    bench.go_on()
    # The look that finds the end may have seen the trainer a moment before; the next one cannot.
    bench.ended(run)
    assert nothing_lives(bench.look(run)) and not nothing_lives(away.look(run))
