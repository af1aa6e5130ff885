"""The places at which an attempt publishes: durable before they have their names, taken once, never written over by whoever is late."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.files import publishing
from countermark.files.publishing import Disk, publish_checkpoint, publish_output
from countermark.run.publication import FolderTaken
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.files.folders import NONCE, WORK_KEY, checkpoint
from tests.recipe.examples import clean_spellings

GIVEN: Final[dict[str, Any]] = {"step": 4, "attempt": NONCE, "work_key": WORK_KEY, "manifest": clean_spellings()}
#: What is published, and how: from a trainer's folder to a place under ``parent``.
PUBLISHERS: Final[dict[str, Callable[[Path, Path, Disk], object]]] = {
    "step-4": lambda source, parent, disk: publish_checkpoint(source, parent, disk=disk, **GIVEN),
    "output": lambda source, parent, disk: publish_output(source, parent / "output", disk=disk),
}


class Noting(Disk):
    """Notes what is durable at the moment at which the folder gets its name, and what is synced after it."""

    def __init__(self) -> None:
        self.synced: set[str] = set()
        self.unsynced: list[str] | None = None
        self.after: list[str] = []

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self.synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        (self.synced.add if self.unsynced is None else self.after.append)(str(path))

    def rename_new(self, source: Path, target: Path) -> bool:
        below = [source, *source.rglob("*")]
        self.unsynced = sorted(str(path.relative_to(source)) for path in below if str(path) not in self.synced)
        return super().rename_new(source, target)


def copied_in_passing(disk: Disk, source: Path, target: Path, *, depth: int) -> tuple[()]:
    """The fault: files are copied and left to the system."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    disk.sync_folder(target)
    return ()


@pytest.mark.parametrize("name", PUBLISHERS)
@proven_by(planted(publishing, "_copy", copied_in_passing))
def test_all_of_it_is_on_the_disk_before_its_name_and_its_name_before_it_is_said(tmp_path: Path, name: str) -> None:
    source, disk = checkpoint(tmp_path / "t"), Noting()
    if name == "output":
        (source / "runs").mkdir()
        (source / "runs" / "events").write_bytes(b"x")
    answer = PUBLISHERS[name](source, tmp_path / "p", disk)
    assert not isinstance(answer, Refused), answer
    assert (disk.unsynced, disk.after) == ([], [str(tmp_path / "p")])


class Overtaken(Disk):
    """Another publisher takes the place between the last look and the name."""

    def rename_new(self, source: Path, target: Path) -> bool:
        target.mkdir()
        (target / "theirs").write_bytes(b"theirs")
        return super().rename_new(source, target)


def the_last_one_stays(source: Path, target: Path) -> bool:
    """The fault: what is there is cleared away for what comes."""
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)
    return True


@pytest.mark.parametrize("name", PUBLISHERS)
@proven_by(planted(publishing, "rename_new", the_last_one_stays))
def test_who_comes_late_overwrites_nothing_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    answer = PUBLISHERS[name](checkpoint(tmp_path / "t"), tmp_path / "p", Overtaken())
    target = tmp_path / "p" / name
    assert answer == Refused(NonEmpty(FolderTaken(str(target))))
    assert os.listdir(tmp_path / "p") == [name] and os.listdir(target) == ["theirs"]
