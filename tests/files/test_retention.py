"""Deleting checkpoints, stopped at any operation on the disk: no half of one is ever taken for a checkpoint, and the next one goes on."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from countermark.files import leftovers, retention
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint, step_of
from countermark.files.leftovers import alone_in, clear, filled, take_away
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.files.retention import RemovalFailed, carry_out, held
from countermark.run.checkpoint import Atomic, CheckpointReadback, admit_checkpoint
from countermark.run.retention import Held, RetentionPlan, SuccessorChanged, plan_retention
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.files.boundaries import count, crossing, dies, fails
from tests.files.folders import NONCE, WORK_KEY, checkpoint
from tests.files.test_publishing_stopped import killed
from tests.recipe.examples import clean_manifest, clean_spellings

GIVEN: Final[dict[str, Any]] = {"attempt": NONCE, "work_key": WORK_KEY, "manifest": clean_spellings()}
STEPS: Final = (4, 6)


def plan_of(parent: Path, keep: int = 1) -> RetentionPlan:
    """What is to become of everything there."""
    listed = list_checkpoints(parent)
    assert isinstance(listed, CheckpointListing)
    plan = plan_retention([judged(parent, name) for _, name in listed.checkpoints], keep, {}, torn=True)
    assert isinstance(plan, RetentionPlan)
    return plan


def judged(parent: Path, name: str) -> Held:
    readback = read_checkpoint(parent / name)
    return held(parent, name, readback, admit_checkpoint(readback, clean_manifest(), frozenset({NONCE})))


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A folder with two published checkpoints."""
    for step in STEPS:
        done = publish_checkpoint(checkpoint(tmp_path / "t", step), tmp_path / "clean", step=step, **GIVEN)
        assert isinstance(done, PublishedCheckpoint)
    return tmp_path / "clean"


def copied(clean: Path, name: str) -> Path:
    return Path(shutil.copytree(clean, clean.parent / name))


def prune(parent: Path, told: Any = len) -> object:
    return carry_out(parent, plan_of(parent), told)


def unwell(parent: Path) -> list[str]:
    """The checkpoints, by their names, that are not whole."""
    listed = list_checkpoints(parent)
    assert isinstance(listed, CheckpointListing)
    found = {name: read_checkpoint(parent / name) for _, name in listed.checkpoints}
    return [name for name, each in found.items() if not (isinstance(each, CheckpointReadback) and isinstance(each.publication, Atomic))]


def goes_on(parent: Path) -> bool:
    """Whether what was stopped is done by the next one, and nothing is left over."""
    prune(parent)
    clear(parent, lambda name: step_of(name) is not None)
    return os.listdir(parent) == ["step-6"] and unwell(parent) == []


def deleted_in_place(path: Path) -> None:
    """The fault: the checkpoint is deleted under its own name."""
    shutil.rmtree(path)


def test_what_goes_goes_and_the_rest_is_untouched(clean: Path) -> None:
    heard: list[str] = []
    assert prune(clean, heard.append) == ("step-4",) == tuple(heard)
    assert os.listdir(clean) == ["step-6"] and unwell(clean) == []
    assert prune(clean) == ()


@proven_by(planted(retention, "take_away", deleted_in_place))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_operation_no_half_of_a_checkpoint_bears_its_name(clean: Path, after: bool) -> None:
    places: list[Path] = [copied(clean, "p0")]
    for _ in killed(lambda: prune(places[-1]), dies(after=after)):
        assert unwell(places[-1]) == [], len(places)
        assert goes_on(places[-1])
        places.append(copied(clean, f"p{len(places)}"))
    assert len(places) > 10


@contextmanager
def in_place() -> Iterator[None]:
    with patch.object(retention, "take_away", deleted_in_place):
        yield


@proven_by(in_place)
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_disk_that_fails_at_any_operation_says_what_and_leaves_no_half(clean: Path, code: int) -> None:
    counted = copied(clean, "counted")
    for at in range(1, count(lambda: prune(counted)) + 1):
        place = copied(clean, f"p{at}")
        plan = plan_of(place)
        with crossing(at, fails(code)), pytest.raises(RemovalFailed) as failed:
            carry_out(place, plan, len)
        assert failed.value.errno == code and "could not be taken away" in failed.value.what and str(place) in failed.value.where
        assert ("still there, whole" in failed.value.what) == os.path.lexists(failed.value.where)
        assert unwell(place) == [] and goes_on(place)


@proven_by(planted(leftovers, "sync_folder", lambda path: None))
def test_the_name_is_gone_durably_before_anything_is_deleted(clean: Path) -> None:
    with crossing() as found:
        take_away(clean / "step-4")
    assert found.crossed[:2] == ["rename", "fsync"] and set(found.crossed[2:]) <= {"unlink", "rmdir"}


def not_ready_for_others(call: object, path: object, error: tuple[object, BaseException, object]) -> None:
    raise error[1]


@proven_by(planted(leftovers, "_unless_gone", not_ready_for_others))
@pytest.mark.parametrize("at", range(1, 11))
def test_who_helps_with_a_deletion_makes_it_no_failure(clean: Path, at: int) -> None:
    """A publisher into the folder takes away what somebody is deleting there at that moment."""

    def helped(call: Any, name: str, given: object) -> object:
        clear(clean, lambda name: True)
        return call()

    plan = plan_of(clean)
    with crossing(at + 2, helped) as found:
        try:
            gone: object = carry_out(clean, plan, len)
        except RemovalFailed as error:
            gone = error
    assert found.crossed[at + 1] in {"unlink", "rmdir"}
    assert gone == ("step-4",) and os.listdir(clean) == ["step-6"]


def test_the_step_is_what_is_read_and_else_what_the_name_says(clean: Path) -> None:
    """One that vanished, one whose name says nothing, and one that was given another's name."""
    (clean / "step-4").rename(clean / "step-9")
    (clean / "step-6").rename(clean / "backup")
    assert [judged(clean, name).step for name in ("step-4", "gone", "step-9", "backup")] == [4, 0, 4, 6]


@proven_by(planted(retention, "_changed", lambda parent, one: False))
@pytest.mark.parametrize("how", ["vanished", "written to", "torn"])
def test_where_the_successor_changed_no_more_goes(clean: Path, how: str) -> None:
    plan = plan_of(clean)
    if how == "vanished":
        (clean / "step-6").rename(clean / "backup")
    elif how == "torn":
        (clean / "step-6" / "README.md").unlink()
    else:
        os.utime(clean / "step-6" / "optimizer.pt")
    assert carry_out(clean, plan, len) == Refused(NonEmpty(SuccessorChanged(str(clean / "step-6"))))
    assert "step-4" in os.listdir(clean)


def test_a_checkpoint_that_is_one_file_goes_as_well(tmp_path: Path) -> None:
    path = tmp_path / "step=8.ckpt"
    path.write_bytes(b"x")
    take_away(path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".gone-step-8-0123456789abcdef").write_bytes(b"x")
    assert [left.name for left in clear(tmp_path, lambda name: True)] == [".gone-step-8-0123456789abcdef"]
    assert list(tmp_path.iterdir()) == []


@proven_by(planted(leftovers, "_held", lambda folder: os.open("/", os.O_RDONLY)))
def test_one_decides_at_a_time(tmp_path: Path) -> None:
    with alone_in(tmp_path) as first, alone_in(tmp_path) as second:
        assert (first, second) == (True, False)
    with alone_in(tmp_path) as again:
        assert again


def test_no_folder_stays_held_by_who_looked(tmp_path: Path) -> None:
    """At one that is filled, at one that the dead left, and at one that was replaced meanwhile."""
    before = os.listdir("/proc/self/fd")
    (tmp_path / ".tmp-step-2-0123456789abcdef").mkdir()
    with filled(tmp_path, "step-4") as filling:
        with alone_in(filling) as alone:
            assert not alone
        assert [left.of for left in clear(tmp_path, lambda name: True)] == ["step-2"]
    with patch.object(leftovers, "_is", lambda folder, descriptor: False), alone_in(tmp_path) as replaced:
        assert not replaced
    assert os.listdir("/proc/self/fd") == before


def test_where_nobody_can_tell_it_is_left_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that other machines share, and on one without locks."""
    (tmp_path / ".tmp-step-2-0123456789abcdef").mkdir()
    monkeypatch.setattr(leftovers, "file_system_of", lambda path: "nfs")
    assert clear(tmp_path, lambda name: True) == ()
    assert [left.state for left in leftovers.leftovers(tmp_path, lambda name: True)] == [leftovers.State.UNKNOWN]
    monkeypatch.undo()

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(leftovers.fcntl, "flock", no_locks)
    with filled(tmp_path, "step-4") as filling:
        states = {left.of: left.state for left in leftovers.leftovers(tmp_path, lambda name: True)}
        assert states == {"step-2": leftovers.State.UNKNOWN, "step-4": leftovers.State.UNKNOWN} and filling.is_dir()


def test_who_is_cleared_away_before_he_held_his_folder_takes_another(tmp_path: Path) -> None:
    taken: list[Path] = []
    hold = leftovers._held

    def late(folder: Path) -> int | None:
        if not taken:
            taken.append(folder)
            folder.rmdir()
        return hold(folder)

    with patch.object(leftovers, "_held", late), filled(tmp_path, "step-4") as filling:
        assert filling.is_dir() and filling != taken[0]
    with patch.object(leftovers, "_held", lambda folder: None), pytest.raises(OSError, match="every temporary folder"):
        filled(tmp_path, "step-5").__enter__()
