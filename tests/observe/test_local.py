"""The observer of local attempts over folders made by hand: every arm of every axis, and what hides nothing of what else."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countermark.evidence.members import (
    CancelledByRequest,
    Failed,
    Killed,
    ManifestSeen,
    Misfiled,
    NotAttempted,
    NotExecuted,
    Observed,
    Outcome,
    Preempted,
    ProcessSeen,
    Read,
    ReadRefused,
    Succeeded,
    Terminal,
)
from countermark.files import locks, procfs
from countermark.files.checkpoints import CheckpointListing
from countermark.observe import local
from countermark.observe.local import LocalObserver
from countermark.recipe import spellings
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Dispatched, DispatchOutcome, DispatchRefused, DispatchUnknown
from countermark.run.readback import CheckpointNotThere
from countermark.wire import receipts
from countermark.wire.receipts import Exited, StartReceipt, encode
from tests.faults import planted, proven_by
from tests.files import folders
from tests.files.folders import checkpoint
from tests.observe.attempts import AXES, HERE, OTHER, World, effective, output, processes, terminal
from tests.run.examples import key

# --------------------------------------------------------------------------------------------------------------- sources


@pytest.mark.parametrize("axis", AXES)
def test_before_anything_is_dispatched_there_is_one_source_with_nothing_in_it(world: World, axis: str) -> None:
    for _ in range(2):
        (arm,) = world.arms(axis)
        assert isinstance(arm, Observed) and arm.members == () and (arm.receipt.host, arm.receipt.started_ms) == (HERE.host, 5)
        world.attempt(len(world.ledger.claims) + 1, host=None, folder=False)


@pytest.mark.parametrize("axis", AXES)
def test_an_attempt_without_a_folder_was_looked_for_and_there_is_none(world: World, axis: str) -> None:
    world.attempt(1, folder=False)
    world.attempt(2)
    population = world.look(axis)
    assert [reading.about for reading in population.readings] == [key(1), key(2)]
    assert population.complete() and list(population.members()) == []
    assert len({receipt.id for receipt in population.receipts()}) == 2


def every_host_is_this_one() -> AbstractContextManager[object]:
    real = LocalObserver._arm
    return planted(LocalObserver, "_arm", lambda self, intent, *rest: real(self, replace(intent, host=self.host), *rest))()


def every_launcher_is_this_one() -> AbstractContextManager[object]:
    real = LocalObserver._arm
    return planted(LocalObserver, "_arm", lambda self, intent, *rest: real(self, replace(intent, launcher="local"), *rest))()


def a_gone_folder_is_an_empty_one() -> AbstractContextManager[object]:
    real = LocalObserver._arm
    return planted(LocalObserver, "_arm", lambda self, intent, launched, *rest: real(self, intent, False, *rest))()


@proven_by(a_gone_folder_is_an_empty_one)
@pytest.mark.parametrize("axis", AXES)
def test_a_folder_that_a_launch_made_and_that_is_gone_shows_nothing(world: World, axis: str) -> None:
    for number in (1, 2, 3):
        world.attempt(number, folder=False)
    results = (Dispatched("started"), DispatchUnknown("it broke"), DispatchRefused("no"))
    outcomes = tuple(DispatchOutcome(key(number), result, 0) for number, result in enumerate(results, 1))
    world.ledger = replace(world.ledger, outcomes=outcomes)
    gone = f"the ledger says that {key(1).nonce.hex[:8]} was launched here, and its folder is gone: put it back"
    assert world.refusals(axis) == [gone]
    assert [isinstance(arm, Observed) for arm in world.arms(axis)] == [False, True, True]


@proven_by(every_host_is_this_one)
def test_an_attempt_of_another_host_is_not_looked_at_and_hides_nothing(world: World) -> None:
    world.attempt(1, host="elsewhere")
    terminal(world.attempt(2))
    for axis in AXES:
        first, second = world.look(axis).readings
        assert first.arm == NotAttempted("the attempt is on elsewhere; look from there"), axis
        assert isinstance(second.arm, Observed), axis
    assert world.members("terminals") == [Terminal(key(2), Succeeded(), "supervisor", 20)]


@proven_by(every_launcher_is_this_one)
@pytest.mark.parametrize("launcher", ["slurm", "ray"])
def test_an_attempt_of_another_launcher_is_not_looked_at_and_never_taken_for_gone(world: World, launcher: Any) -> None:
    """Nothing of it lies in a folder here: that there is nothing to be seen says nothing."""
    world.attempt(1)
    (intent,) = world.ledger.intents
    world.ledger = replace(world.ledger, intents=(replace(intent, launcher=launcher),))
    for axis in AXES:
        (reading,) = world.look(axis).readings
        told = NotAttempted(f"the attempt was dispatched by {launcher}, and only local ones are looked at here")
        assert (reading.arm, reading.about) == (told, key(1)), axis


# --------------------------------------------------------------------------------------------------- folders that are none


def anything_is_looked_into() -> AbstractContextManager[object]:
    return planted(local, "_there", lambda path, found: path.exists())()


@proven_by(anything_is_looked_into)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("what", ["a symbolic link", "no folder"])
def test_what_stands_in_the_folders_place_is_refused_on_every_axis(world: World, axis: str, what: str) -> None:
    folder = world.attempt(1)
    terminal(world.attempt(2))
    folder.rmdir()
    if what == "no folder":
        folder.write_bytes(b"")
    else:
        elsewhere = world.root / "elsewhere"
        elsewhere.mkdir()
        terminal(elsewhere, attempt=folder.name)
        folder.symlink_to(elsewhere)
    assert world.refusals(axis) == [f"{folder.name} is {what}"]
    assert len(world.members("terminals")) == 1


def listings_are_not_asked() -> AbstractContextManager[object]:
    return planted(local, "_absence_unproven", lambda path: None)()


@proven_by(listings_are_not_asked)
@pytest.mark.parametrize("axis", ["outputs", "checkpoints", "terminals", "manifests"])
def test_absence_is_not_said_where_a_network_file_system_may_hide_it(world: World, axis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.attempt(1, folder=False)
    world.root.mkdir()
    monkeypatch.setattr(local, "file_system_of", lambda path: "nfs4")
    (why,) = world.refusals(axis) or [""]
    assert "nfs4" in why, "the folder itself"
    (world.root / key(1).nonce.hex).mkdir()
    if axis in ("outputs", "checkpoints"):
        (why,) = world.refusals(axis) or [""]
        assert why.startswith({"outputs": "output", "checkpoints": "checkpoints"}[axis]) and "nfs4" in why


@proven_by(listings_are_not_asked)
def test_absence_is_not_said_where_the_reads_disagree(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.attempt(1)
    real = local.os.listdir
    monkeypatch.setattr(local.os, "listdir", lambda path: [*real(path), "output"])
    assert world.refusals("outputs") == [f"{key(1).nonce.hex} lists output, which was not found: the reads disagree"]


# ------------------------------------------------------------------------------------------------------------- terminals


@pytest.mark.parametrize(
    ("said", "main", "seen"),
    [
        (receipts.Succeeded(), Exited(0), Succeeded()),
        (receipts.Failed(3), Exited(3), Failed(3)),
        (receipts.Failed(127), receipts.NotExecuted(127, "not found"), NotExecuted(127, "not found")),
        (receipts.Killed(9), receipts.Signalled(9), Killed(9)),
        (receipts.Cancelled(), receipts.Signalled(15), CancelledByRequest()),
        (receipts.Preempted(), receipts.Signalled(15), Preempted()),
    ],
)
def test_each_end_is_a_member(world: World, said: receipts.Outcome, main: receipts.MainEnd, seen: Outcome) -> None:
    terminal(world.attempt(1), said, main)
    assert world.members("terminals") == [Terminal(key(1), seen, "supervisor", 20)]


def torn_is_absent() -> AbstractContextManager[object]:
    real = local.read_terminal

    def reads(folder: Path) -> object:
        found = real(folder)
        return local.ReceiptAbsent() if isinstance(found, local.ReceiptRefused) else found

    return planted(local, "read_terminal", reads)()


@proven_by(torn_is_absent)
@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"null", b"{}" * 40_000])
def test_a_torn_terminal_is_refused_and_hides_nothing_of_another_attempt(world: World, content: bytes) -> None:
    (world.attempt(1) / "terminal.json").write_bytes(content)
    terminal(world.attempt(2))
    arms = world.arms("terminals")
    assert [type(arm) for arm in arms] == [ReadRefused, Observed]
    assert world.refusals("terminals")[0].startswith("terminal.json: ")
    assert [member.attempt for member in world.members("terminals")] == [key(2)]


def names_are_not_compared() -> AbstractContextManager[object]:
    return planted(local, "Misfiled", lambda folder, names: None)()


@proven_by(names_are_not_compared)
def test_what_names_another_attempt_is_misfiled_and_a_member_of_neither(world: World) -> None:
    folder = world.attempt(1)
    terminal(folder, attempt=OTHER)
    processes(folder, attempt=OTHER)
    effective(folder, world.ledger, attempt=OTHER)
    for axis in ("terminals", "processes", "manifests"):
        population = world.look(axis)
        assert list(population.members()) == [], axis
        assert list(population.misfiled()) == [Misfiled(key(1), OTHER)], axis


# ------------------------------------------------------------------------------------------------------------- processes


def test_a_process_is_seen_alive_and_dead_with_its_identity(world: World) -> None:
    folder = world.attempt(1)
    processes(folder)
    (dead,) = world.members("processes")
    assert (dead.state, dead.execution.pid, dead.execution.boot_id) == ("dead", 2**22, HERE.boot_id)
    descriptor = locks.open_lock(folder / "lock")
    assert locks.take_lock(descriptor)
    (alive,) = world.members("processes")
    assert alive == replace(dead, state="alive")
    (folder / "process.json").unlink()
    assert world.members("processes") == [ProcessSeen(key(1), None, "alive")]
    locks.os.close(descriptor)


def test_a_supervisor_at_work_is_settling(world: World) -> None:
    folder = world.attempt(1)
    processes(folder)
    (folder / "start.json").write_bytes(encode(StartReceipt(1, folder.name, HERE, 0)))
    # This very process stands for the supervisor, so it must have no child that could be the trainer.
    assert not [row for row in procfs.descendants(HERE.pid, procfs.processes()) if not row.ended]
    assert [member.state for member in world.members("processes")] == ["settling"]


def test_receipts_of_another_host_and_receipts_that_cannot_be_read_say_nothing(world: World) -> None:
    processes(world.attempt(1), host="elsewhere")
    (world.attempt(2) / "start.json").write_bytes(b"{")
    processes(world.attempt(3))
    first, second, third = world.arms("processes")
    assert first == NotAttempted("the attempt's processes are on elsewhere; look from there")
    assert isinstance(second, ReadRefused) and second.reason.startswith("start.json: ")
    assert isinstance(third, Observed) and [member.attempt for member in third.members] == [key(3)]


# --------------------------------------------------------------------------------------------------- outputs, checkpoints


def test_an_output_is_read_back_and_a_broken_one_is_refused_with_every_reason(world: World) -> None:
    whole = output(world.attempt(1))
    broken = output(world.attempt(2))
    (broken / "adapter_model.safetensors").write_bytes(b"short")
    (broken / "adapter_config.json").unlink()
    (world.attempt(3) / "output").symlink_to(whole)
    first, second, third = world.arms("outputs")
    assert isinstance(first, Observed)
    (seen,) = first.members
    assert (seen.attempt, seen.path, seen.materialization.split(" ")[0]) == (key(1), str(whole), "adapter")
    assert isinstance(second, ReadRefused) and second.reason.count("; ") >= 1 and "adapter_config.json" in second.reason
    assert isinstance(third, ReadRefused)


def test_checkpoints_are_seen_whatever_is_wrong_with_them_and_another_attempts_is_misfiled(world: World) -> None:
    place = world.attempt(1) / "checkpoints"
    checkpoint(place, 4, "checkpoint-4")
    checkpoint(place, 8, "checkpoint-8", optimizer_pt=None)
    (place / ".tmp-step-12-0").mkdir()
    (place / "notes.txt").write_bytes(b"")
    seen = world.members("checkpoints")
    assert [(member.step, Path(member.path).name) for member in seen] == [(4, "checkpoint-4"), (8, "checkpoint-8")]
    (world.attempt(2) / "checkpoints").write_bytes(b"no folder")
    assert world.refusals("checkpoints") == ["checkpoints is no folder"]
    assert len(world.members("checkpoints")) == 2


def what_vanished_was_never_there() -> AbstractContextManager[object]:
    """The fault: the list of checkpoints is taken to be what can still be read of it."""
    listed = local.list_checkpoints

    def there(place: Path) -> object:
        found = listed(place)
        assert isinstance(found, CheckpointListing)
        readable = tuple(each for each in found.checkpoints if not isinstance(local.read_checkpoint(place / each[1]), CheckpointNotThere))
        return replace(found, checkpoints=readable)

    return planted(local, "list_checkpoints", there)()


@proven_by(what_vanished_was_never_there)
def test_a_checkpoint_that_vanishes_while_it_is_looked_at_is_a_refusal(world: World) -> None:
    """The listing says that it is there and the reading that it is not: the reads disagree."""
    place = world.attempt(1) / "checkpoints"
    for step in (4, 8):
        checkpoint(place, step, f"checkpoint-{step}")
    honest = local.read_checkpoint
    gone = CheckpointNotThere(str(place / "checkpoint-8"), "it is not there")
    with planted(local, "read_checkpoint", lambda path: gone if path.name == "checkpoint-8" else honest(path))():
        assert world.refusals("checkpoints") == ["checkpoint-8 was there and is gone: it is not there"]
    assert [member.step for member in world.members("checkpoints")] == [4, 8]


def test_a_checkpoint_that_another_attempt_published_is_misfiled(world: World, tmp_path: Path) -> None:
    from countermark.files.publishing import publish_checkpoint

    source = checkpoint(tmp_path, 4)
    manifest = spellings(world.ledger.desired.manifest)
    place = world.attempt(1) / "checkpoints"
    publish_checkpoint(source, place, step=4, attempt=OTHER, work_key="wk1:" + "e" * 64, manifest=manifest)
    population = world.look("checkpoints")
    assert list(population.members()) == [] and list(population.misfiled()) == [Misfiled(key(1), OTHER)]


# ------------------------------------------------------------------------------------------------------------- manifests


def said(members: Iterable[ManifestSeen], source: str) -> Mapping[str, object]:
    (found,) = [member.coordinates for member in members if member.source == source]
    return found


def test_the_trainers_word_and_the_artifacts_stand_side_by_side(world: World) -> None:
    folder = world.attempt(1)
    effective(folder, world.ledger)
    assert [member.source for member in world.members("manifests")] == ["trainer"]
    output(folder, r=8, lora_alpha=16)
    members = world.members("manifests")
    assert [member.source for member in members] == ["trainer", "artifacts"]
    assert said(members, "trainer")["rank"] == Read("4", "live_object")
    assert said(members, "artifacts")["rank"] == Read("8", "artifact")
    assert set(said(members, "artifacts")) == {"target_modules", "rank", "scaling", "dropout", "method"}


def test_the_newest_checkpoint_shows_what_its_files_say(world: World) -> None:
    place = world.attempt(1) / "checkpoints"
    checkpoint(place, 4)
    checkpoint(place, 8, optimizer_pt=folders.torch_file(folders.optimizer(step=8, betas=(0.95, 0.999))))
    shown = said(world.members("manifests"), "artifacts")
    assert shown["optimizer"] == Read("adamw_torch(beta1=0.95,beta2=0.999,eps=1e-8)", "artifact")
    assert (shown["total_steps"], shown["micro_batch"]) == (Read("20", "artifact"), Read("2", "artifact"))


def test_a_torn_word_is_refused_though_artifacts_show_something(world: World) -> None:
    folder = world.attempt(1)
    output(folder)
    (folder / "effective.json").write_bytes(b"{")
    assert world.refusals("manifests")[0].startswith("effective.json: ")
    assert world.members("manifests") == []


def test_an_error_of_the_disk_is_a_refusal_of_that_attempt_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.attempt(1), world.attempt(2)
    terminal(first)
    terminal(second)
    real = local.read_terminal

    def reads(folder: Path) -> object:
        if folder == first:
            raise OSError(5, "Input/output error", str(folder))
        return real(folder)

    monkeypatch.setattr(local, "read_terminal", reads)
    assert world.refusals("terminals") == [f"{first}: Input/output error"]
    assert [member.attempt for member in world.members("terminals")] == [key(2)]


def test_an_attempt_of_another_principal_has_its_own_key(world: World) -> None:
    terminal(world.attempt(1))
    assert [member.attempt for member in world.members("terminals")] != [AttemptKey(key(1, "other").work, key(1).nonce)]
