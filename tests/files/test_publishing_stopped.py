"""Publishing, stopped at any operation on the disk by a failure or a kill: no proper prefix counts, and the next one succeeds."""

import errno
import os
import resource
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from countermark.files import leftovers, publishing
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint
from countermark.files.publishing import PublishedCheckpoint, PublishFailed, publish_checkpoint
from countermark.run.checkpoint import AdmittedCheckpoint, Atomic, CheckpointReadback, admit_checkpoint
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.files import boundaries
from tests.files.boundaries import Fate, crossing, dies, fails
from tests.files.folders import NONCE, WORK_KEY, checkpoint
from tests.recipe.examples import clean_manifest, clean_spellings

GIVEN: Final[dict[str, Any]] = {"step": 4, "attempt": NONCE, "work_key": WORK_KEY, "manifest": clean_spellings()}
WHOLE: Final = "whole"


def publish(source: Path, parent: Path) -> object:
    return publish_checkpoint(source, parent, **GIVEN)


def fate_of(parent: Path) -> list[str]:
    """What a reader says of everything that lies there."""
    return sorted(_said(path) for path in parent.iterdir()) if parent.exists() else []


def _said(path: Path) -> str:
    found = read_checkpoint(path)
    atomic = isinstance(found, CheckpointReadback) and isinstance(found.publication, Atomic)
    admitted = admit_checkpoint(found, clean_manifest(), frozenset({NONCE}))
    return WHOLE if atomic and isinstance(admitted, AdmittedCheckpoint) else "atomic" if atomic else "nothing"


def goes_on(source: Path, parent: Path) -> bool:
    """Whether the next publication succeeds, or finds the step published already, and nothing else is left either way."""
    there = fate_of(parent)
    again = publish(source, parent)
    return isinstance(again, Refused if WHOLE in there else PublishedCheckpoint) and os.listdir(parent) == ["step-4"]


@contextmanager
def in_place() -> Iterator[None]:
    """What trainers do: the folder has its final name from the beginning, and nobody clears up."""

    @contextmanager
    def final(parent: Path, name: str) -> Iterator[Path]:
        (parent / name).mkdir()
        yield parent / name

    with (
        patch.object(publishing, "filled", final),
        patch.object(publishing, "rename_new", lambda source, target: True),
        patch.object(publishing, "_remove", lambda temporary: None),
    ):
        yield


def killed(work: Callable[[], object], fate: Fate) -> Iterator[int]:
    """The work in a process that is killed at its first boundary, at its second, and so on until it comes through; yields after each."""
    at = 0
    while True:
        at += 1
        child = os.fork()
        if not child:
            with crossing(at, fate):
                work()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            assert status == 0
            return
        yield at


@proven_by(in_place)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_operation_no_proper_prefix_is_atomic_and_the_next_one_succeeds(tmp_path: Path, after: bool) -> None:
    source = checkpoint(tmp_path / "t")
    parents: list[Path] = []

    def work() -> None:
        publish(source, tmp_path / f"p{len(parents)}")

    told: list[list[str]] = []
    for _ in killed(work, dies(after=after)):
        parent = tmp_path / f"p{len(parents)}"
        told.append(fate_of(parent))
        assert goes_on(source, parent), (len(told), told[-1])
        parents.append(parent)
    assert len(told) > 40
    # Nothing yet, or what is nothing, or (killed behind the rename) all of it.
    assert {tuple(each) for each in told} == {(), ("nothing",), (WHOLE,)}


#: How a disk fails: at one operation, with a half write before it, or at everything from there on (also where it is to be cleared up).
FAILURES: Final = {
    "full": (fails(errno.ENOSPC, half=True), False),
    "broken": (fails(errno.EIO), False),
    "full for good": (fails(errno.ENOSPC), True),
    "over quota": (fails(errno.EDQUOT, half=True), False),
}


@pytest.mark.parametrize("name", FAILURES)
@proven_by(in_place)
def test_a_disk_that_fails_at_any_operation_leaves_nothing_that_counts(tmp_path: Path, name: str) -> None:
    fate, stays = FAILURES[name]
    source = checkpoint(tmp_path / "t")
    failed = 0
    for at in range(1, boundaries.count(lambda: publish(source, tmp_path / "clean")) + 1):
        parent = tmp_path / f"p{at}"
        with crossing(at, fate, stays=stays) as found:
            try:
                answer: object = publish(source, parent)
            except PublishFailed as error:
                answer = error
        if isinstance(answer, PublishFailed):
            failed += 1
            said = str(answer)
            assert str(parent / "step-4") in said and "published" in said, said
            assert (WHOLE in fate_of(parent)) == ("was published whole" in said)
            assert set(fate_of(parent)) <= ({WHOLE} if "whole" in said else {"nothing"} if stays else set()), (at, found.crossed[at - 1])
        else:
            # A clone that fails is a copy; nothing else may fail unheard.
            assert isinstance(answer, PublishedCheckpoint) and found.crossed[at - 1] == "ioctl"
        assert goes_on(source, parent) if isinstance(answer, PublishFailed) else fate_of(parent) == [WHOLE]
    assert failed > 30


def test_what_is_told_names_what_where_and_what_to_do(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "t")
    told: dict[str, set[str]] = {}
    for at in range(1, boundaries.count(lambda: publish(source, tmp_path / "clean")) + 1):
        with crossing(at, fails(errno.ENOSPC)) as found:
            try:
                publish(source, tmp_path / f"p{at}")
            except PublishFailed as error:
                assert error.errno == errno.ENOSPC and error.where == str(tmp_path / f"p{at}" / "step-4")
                told.setdefault(found.crossed[at - 1], set()).add(f"{error.what} → {error.remedy}")
    whats = " ".join(told["write"])
    assert "optimizer.pt" in whats and "countermark.json" in whats and "No space left on device" in whats
    assert all("checkpoint prune" in said for said in told["write"])
    assert any("was published whole" in said for said in told["fsync"])


@proven_by(planted(publishing, "sync_folder", lambda path: None))
def test_the_manifest_the_names_in_the_folder_and_then_the_folders_own_name_are_synced(tmp_path: Path) -> None:
    with crossing() as found:
        publish(checkpoint(tmp_path / "t"), tmp_path / "p")
    assert found.crossed[-6:] == ["open", "write", "fsync", "fsync", "renameat2", "fsync"]


def interrupts(*, after: bool) -> Fate:
    """Ctrl-C, before the call or right after it."""

    def fate(call: Callable[..., Any], name: str, given: tuple[Any, ...]) -> Any:
        if after:
            call()
        raise KeyboardInterrupt

    return fate


@proven_by(in_place)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_interrupted_at_any_operation_only_a_whole_one_stays_and_nothing_is_left_beside_it(tmp_path: Path, after: bool) -> None:
    source = checkpoint(tmp_path / "t")
    told: set[tuple[str, ...]] = set()
    for at in range(1, boundaries.count(lambda: publish(source, tmp_path / "clean")) + 1):
        parent = tmp_path / f"p{at}"
        with crossing(at, interrupts(after=after)) as found, suppress(KeyboardInterrupt):
            publish(source, parent)
        fate = tuple(fate_of(parent))
        # The one moment in which the folder is there and nobody holds it yet.
        empty = after and found.crossed[at - 1] == "mkdir" and fate == ("nothing",)
        assert fate in {(), (WHOLE,)} or empty, (at, found.crossed[at - 1], fate)
        told.add(fate)
        assert goes_on(source, parent)
    assert {(), (WHOLE,)} <= told


@proven_by(planted(publishing, "write_all", lambda descriptor, data: os.write(descriptor, data)))
def test_writes_that_take_one_byte_at_a_time_are_no_failure(tmp_path: Path) -> None:
    with crossing(1, boundaries.short, stays=True):
        try:
            answer: object = publish(checkpoint(tmp_path / "t", README_md=b"---\n"), tmp_path / "p")
        except PublishFailed as error:
            answer = error
    assert isinstance(answer, PublishedCheckpoint) and fate_of(tmp_path / "p") == [WHOLE]


# ------------------------------------------------------------------------------------------------------------ real disks


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """A file system of its own with room for so many bytes."""
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    if os.geteuid() or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "t")
    fits: list[bool] = []
    for pages in range(1, 40, 3):
        with small_disk(disk := tmp_path / str(pages), pages * os.sysconf("SC_PAGE_SIZE")):
            try:
                answer: object = publish(source, disk / "p")
            except PublishFailed as error:
                answer = error
                assert error.errno == errno.ENOSPC
            fits.append(isinstance(answer, PublishedCheckpoint))
            assert fate_of(disk / "p") == ([WHOLE] if fits[-1] else [])
    assert fits == sorted(fits) and set(fits) == {False, True}


def test_a_file_that_may_not_grow_any_further(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "t")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for most in (0, 100, 5000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            with pytest.raises(PublishFailed, match="File too large"):
                publish(source, tmp_path / "p")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert fate_of(tmp_path / "p") == []


# ------------------------------------------------------------------------------------------------------- copies, not links


def linked(source: Path, name: str, target: Path) -> None:
    """The fault: what is published is the trainer's own file under a second name."""
    os.link(source / name, target / name)


@proven_by(planted(publishing, "_copy_file", linked))
def test_a_trainer_that_writes_into_its_own_files_again_does_not_reach_what_was_published(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "t")
    assert isinstance(publish(source, tmp_path / "p"), PublishedCheckpoint)
    for path in source.iterdir():
        with path.open("r+b") as file:
            file.write(b"\xff" * 8)
    assert fate_of(tmp_path / "p") == [WHOLE]


def sharing(descriptor: int, source: int) -> bool:
    """A file system that shares blocks, as far as anybody can tell by reading."""
    os.sendfile(descriptor, source, 0, os.fstat(source).st_size)
    return True


def test_where_the_file_system_clones_nothing_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoint(tmp_path / "t")
    monkeypatch.setattr(publishing, "_clone", sharing)
    with crossing() as found:
        publish(source, tmp_path / "p")
    assert fate_of(tmp_path / "p") == [WHOLE]
    assert found.crossed.count("write") == 1, "only the manifest is written"


@pytest.mark.parametrize("when", ["open", "fsync", "write"])
def test_a_source_that_is_written_to_while_it_is_copied_is_not_published(tmp_path: Path, when: str) -> None:
    source = checkpoint(tmp_path / "t")
    raced: list[str] = []

    def races(call: Callable[..., Any], name: str, given: tuple[Any, ...]) -> Any:
        if name == when and not raced and (name != "fsync" or stat.S_ISREG(os.fstat(given[0]).st_mode)):
            raced.append(name)
            (source / "optimizer.pt").write_bytes((source / "optimizer.pt").read_bytes())
        return call()

    with crossing(1, races, stays=True):
        answer = publish(source, tmp_path / "p")
    assert raced and isinstance(answer, Refused) and list((tmp_path / "p").iterdir()) == []


# ------------------------------------------------------------------------------------------------------------- leftovers


def test_every_prefix_of_every_file_under_the_final_name_is_seen(tmp_path: Path) -> None:
    """Somebody copies what was published file by file, and is stopped: in any order, at any byte."""
    publish(checkpoint(tmp_path / "t"), tmp_path / "p")
    folder = tmp_path / "p" / "step-4"
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for size in {0, 1, len(content) // 2, len(content) - 1}:
            path.write_bytes(content[:size])
            assert fate_of(tmp_path / "p") == ["nothing"], (path.name, size)
        path.unlink()
        assert fate_of(tmp_path / "p") == ["nothing"], path.name
        path.write_bytes(content)
    assert fate_of(tmp_path / "p") == [WHOLE]


@proven_by(planted(leftovers, "_held", lambda folder: os.open("/", os.O_RDONLY)))
def test_what_a_live_publisher_fills_is_left_alone(tmp_path: Path) -> None:
    """Another step is published beside it, and clears away what the dead left."""
    parent = tmp_path / "p"
    (parent / ".tmp-step-2-0123456789abcdef").mkdir(parents=True)
    (parent / ".tmp-notes-0123456789abcdef").mkdir()
    links = {f".{kind}-step-3-0123456789abcdef" for kind in ("tmp", "gone")}
    for link in links:
        (parent / link).symlink_to(tmp_path)
    with leftovers.filled(parent, "step-8") as filling:
        (filling / "file").write_bytes(b"x")
        assert isinstance(publish(checkpoint(tmp_path / "t"), parent), PublishedCheckpoint)
        assert filling.is_dir() and (filling / "file").is_file()
        names = {path.name for path in parent.iterdir()}
    assert names == {"step-4", filling.name, ".tmp-notes-0123456789abcdef", *links}
    listed = list_checkpoints(parent)
    assert isinstance(listed, CheckpointListing) and listed.checkpoints == ((4, "step-4"),)
