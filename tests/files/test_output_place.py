"""The places at which an attempt publishes: durable before they have their names, taken once, never written over by whoever is late."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, Final
from unittest.mock import patch

import pytest

from countermark.files import publishing
from countermark.files.publishing import PublishedCheckpoint, PublishFailed, publish_checkpoint, publish_output
from countermark.run.publication import FolderTaken
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.files.boundaries import crossing
from tests.files.folders import NONCE, WORK_KEY, adapter_bytes, checkpoint
from tests.recipe.examples import clean_spellings

GIVEN: Final[dict[str, Any]] = {"step": 4, "attempt": NONCE, "work_key": WORK_KEY, "manifest": clean_spellings()}
#: What is published, and how: from a trainer's folder to a place under ``parent``.
PUBLISHERS: Final[dict[str, Callable[[Path, Path], object]]] = {
    "step-4": lambda source, parent: publish_checkpoint(source, parent, **GIVEN),
    "output": lambda source, parent: publish_output(source, parent / "output"),
}


def copied_in_passing(source: Path, target: Path) -> Path:
    """The fault: files are copied and left to the system."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    publishing.sync_folder(target)
    return target


@pytest.mark.parametrize("name", PUBLISHERS)
@proven_by(planted(publishing, "_copy", copied_in_passing))
def test_all_of_it_is_on_the_disk_before_its_name_and_its_name_before_it_is_said(tmp_path: Path, name: str) -> None:
    source = checkpoint(tmp_path / "t")
    (source / "runs").mkdir()
    (source / "runs" / "events").write_bytes(b"x")
    synced: list[str] = []
    unsynced: list[str] = []

    def noting(call: Callable[..., Any], operation: str, given: tuple[Any, ...]) -> Any:
        if operation == "fsync":
            synced.append(os.readlink(f"/proc/self/fd/{given[0]}"))
        if operation == "renameat2":
            temporary = Path(os.fsdecode(given[1]))
            unsynced.extend(str(path) for path in (temporary, *temporary.rglob("*")) if str(path) not in synced)
            synced.clear()
        return call()

    with crossing(1, noting, stays=True):
        answer = PUBLISHERS[name](source, tmp_path / "p")
    assert not isinstance(answer, Refused), answer
    assert (unsynced, synced) == ([], [str(tmp_path / "p")])


def the_last_one_stays(source: Path, target: Path) -> bool:
    """The fault: what is there is cleared away for what comes."""
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)
    return True


@pytest.mark.parametrize("name", PUBLISHERS)
@proven_by(planted(publishing, "rename_new", the_last_one_stays))
def test_who_comes_late_overwrites_nothing_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    target = tmp_path / "p" / name
    rename = publishing.rename_new

    def overtaken(source: Path, place: Path) -> bool:
        target.mkdir()
        (target / "theirs").write_bytes(b"theirs")
        return rename(source, place)

    with patch.object(publishing, "rename_new", overtaken):
        answer = PUBLISHERS[name](checkpoint(tmp_path / "t"), tmp_path / "p")
    assert answer == Refused(NonEmpty(FolderTaken(str(target))))
    assert os.listdir(tmp_path / "p") == [name] and os.listdir(target) == ["theirs"]


@proven_by(planted(publishing, "rename_new", the_last_one_stays))
def test_of_several_publishers_at_once_one_is_told_that_it_published(tmp_path: Path) -> None:
    sources = [checkpoint(tmp_path / str(at), adapter_model_safetensors=adapter_bytes(fill=at)) for at in range(4)]
    for race in range(4):
        parent = tmp_path / f"p{race}"
        at_once = Barrier(len(sources))

        def publishes(source: Path, parent: Path = parent, at_once: Barrier = at_once) -> object:
            at_once.wait()
            try:
                return publish_checkpoint(source, parent, **GIVEN)
            except PublishFailed as error:
                return error

        with ThreadPoolExecutor(len(sources)) as threads:
            answers = list(threads.map(publishes, sources))
        winners = [at for at, answer in enumerate(answers) if isinstance(answer, PublishedCheckpoint)]
        assert len(winners) == 1
        taken = Refused(NonEmpty(FolderTaken(str(parent / "step-4"))))
        assert [answer for at, answer in enumerate(answers) if at not in winners] == [taken] * 3
        weights = (parent / "step-4" / "adapter_model.safetensors").read_bytes()
        assert weights == adapter_bytes(fill=winners[0]) and os.listdir(parent) == ["step-4"]
