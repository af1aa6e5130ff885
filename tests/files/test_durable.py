"""Durable files: whole or not there, and created by exactly one of several writers."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest

from countermark.files import durable
from tests.faults import planted, proven_by
from tests.launch.noting import durably_made, noting


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".tmp")]


def creates_by_rename() -> AbstractContextManager[object]:
    return planted(durable, "write_new", durable.replace)()


@proven_by(creates_by_rename)
def test_a_name_that_is_taken_stays_as_it_is(tmp_path: Path) -> None:
    durable.write_new(tmp_path / "a", b"first")
    try:
        durable.write_new(tmp_path / "a", b"second")
    except FileExistsError:
        pass
    else:
        pytest.fail("the second writer was not told")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert temporaries(tmp_path) == []


@pytest.mark.parametrize("kind", ["dangling link", "folder", "pipe"])
def test_whatever_bears_the_name_takes_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    {"dangling link": lambda: path.symlink_to("nowhere"), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises(FileExistsError):
        durable.write_new(path, b"x")
    assert not (tmp_path / "nowhere").exists()


@proven_by(creates_by_rename)
def test_of_many_writers_at_once_one_succeeds(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from countermark.files import durable\n"
        "create = durable.replace if sys.argv[2] == 'replace' else durable.write_new\n"
        "won = 0\n"
        "for number in range(60):\n"
        "    try:\n        create(Path(sys.argv[1]) / str(number), b'x'); won += 1\n"
        "    except FileExistsError:\n        pass\n"
        "print(won)"
    )
    how = "replace" if durable.write_new is durable.replace else "write_new"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), how], stdout=subprocess.PIPE) for _ in range(3)]
    assert sum(int(writer.communicate()[0]) for writer in writers) == 60
    assert temporaries(tmp_path) == []


def test_replacing_puts_the_new_bytes_in_place_whole(tmp_path: Path) -> None:
    durable.replace(tmp_path / "a", b"first")
    durable.replace(tmp_path / "a", b"second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"second"}


WRITE_STEPS = [(durable.write_new, call) for call in ("open", "write", "fsync", "link")]
WRITE_STEPS += [(durable.replace, call) for call in ("open", "write", "fsync", "replace")]


@pytest.mark.parametrize(("write", "call"), WRITE_STEPS)
def test_a_disk_that_fails_leaves_nothing_half_written(tmp_path: Path, write: Callable[[Path, bytes], None], call: str) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if write is durable.replace:
        (tmp_path / "a").write_bytes(b"before")
    with patch.object(durable.os, call, full), pytest.raises(OSError, match="No space left"):
        write(tmp_path / "a", b"after")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == ({"a": b"before"} if write is durable.replace else {})


@contextmanager
def interrupts_are_not_seen() -> Iterator[None]:
    """The fault: only what the disk says takes the temporary file away."""
    remove = durable._remove

    def only_of_the_disk(temporary: Path) -> None:
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
            remove(temporary)

    with planted(durable, "_remove", only_of_the_disk)():
        yield


@proven_by(interrupts_are_not_seen)
@pytest.mark.parametrize(("write", "call"), [each for each in WRITE_STEPS if each[1] != "open"])
def test_an_interrupt_leaves_nothing_half_written(tmp_path: Path, write: Callable[[Path, bytes], None], call: str) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with patch.object(durable.os, call, interrupted), pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a", b"after")
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_gone_on_with(tmp_path: Path) -> None:
    write = os.write
    with patch.object(durable.os, "write", lambda descriptor, data: write(descriptor, bytes(data[:7]))):
        durable.write_new(tmp_path / "a", bytes(range(256)))
    assert (tmp_path / "a").read_bytes() == bytes(range(256))


@pytest.mark.parametrize("write", [durable.write_new, durable.replace])
def test_a_disk_that_takes_nothing_and_does_not_say_why_has_failed(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    asked: list[int] = []

    def nothing(descriptor: int, data: memoryview) -> int:
        asked.append(len(data))
        assert len(asked) == 1, "it is asked again, for ever"
        return 0

    with patch.object(durable.os, "write", nothing), pytest.raises(OSError, match="Input/output error"):
        write(tmp_path / "a", b"x")
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """A controller writes for weeks."""
    before = os.listdir("/proc/self/fd")
    durable.write_new(tmp_path / "a", b"x")
    durable.replace(tmp_path / "a", b"y")
    durable.make_folder(tmp_path / "b" / "c")
    with pytest.raises(FileExistsError):
        durable.write_new(tmp_path / "a", b"x")
    assert os.listdir("/proc/self/fd") == before


def no_sync() -> AbstractContextManager[object]:
    return planted(durable, "sync_folder", lambda path: None)()


@proven_by(no_sync)
@pytest.mark.parametrize("how", ["write_new", "replace"])
def test_bytes_are_synced_before_the_name_and_the_folder_after_it(tmp_path: Path, how: str) -> None:
    happened: list[str] = []
    fsync, link, rename = os.fsync, os.link, os.replace

    def note(what: str, act: Callable[..., object]) -> Callable[..., object]:
        def noting(*arguments: object, **named: object) -> object:
            happened.append(what)
            return act(*arguments, **named)

        return noting

    with (
        patch.object(durable.os, "fsync", note("sync", fsync)),
        patch.object(durable.os, "link", note("name", link)),
        patch.object(durable.os, "replace", note("name", rename)),
    ):
        getattr(durable, how)(tmp_path / "a", b"x")
    assert happened == ["sync", "name", "sync"]


# ------------------------------------------------------------------------------------------------------------- folders


def notes_of(tmp_path: Path, make: Callable[[], object]) -> list[str]:
    """What is done to the disk meanwhile."""
    (tmp_path / "notes").touch()
    with patch.multiple("os", **noting(tmp_path / "notes")):
        make()
    return (tmp_path / "notes").read_text(encoding="utf-8").splitlines()


@proven_by(no_sync)
def test_each_folder_that_is_made_is_synced_into_the_one_around_it(tmp_path: Path) -> None:
    def make() -> None:
        durable.make_folder(tmp_path / "here" / "a" / "b")
        durable.write_new(tmp_path / "here" / "a" / "b" / "file", b"x")

    (tmp_path / "here").mkdir()
    notes = notes_of(tmp_path, make)
    assert [name for name, around in (("a", "here"), ("b", "a")) if not durably_made(notes, name, around)] == []


def only_what_is_made(path: Path) -> None:
    """The fault: what is there already is believed to be there for good."""
    for one in reversed([one for one in (path, *path.parents) if not one.exists()]):
        one.mkdir()
        durable.sync_folder(one.parent)


@proven_by(planted(durable, "make_folder", only_what_is_made))
@pytest.mark.parametrize("left", ["here", "here/a", "here/a/b"])
def test_a_folder_that_somebody_made_and_died_before_it_was_durable_is_made_durable(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir(parents=True)
    around = (tmp_path / left).parent
    notes = notes_of(tmp_path, lambda: durable.make_folder(tmp_path / "here" / "a" / "b"))
    assert f"synced {around.name}" in notes


@proven_by(planted(durable, "suppress", lambda *kinds: nullcontext()))
def test_a_folder_in_one_that_we_may_not_list_is_used_and_what_is_made_in_it_is_synced(tmp_path: Path) -> None:
    sync, synced = durable.sync_folder, list[Path]()

    def permitted(path: Path) -> None:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        synced.append(path)
        sync(path)

    mine = tmp_path / "mine"
    mine.mkdir()
    with patch.object(durable, "sync_folder", permitted):
        try:
            durable.make_folder(mine / "new")
        except PermissionError as error:
            pytest.fail(f"it was given up: {error}")
    assert (mine / "new").is_dir() and synced == [mine]


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_what_is_no_folder_is_no_folder(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    {"file": path.touch, "dangling link": lambda: path.symlink_to("nowhere")}[kind]()
    with pytest.raises(OSError, match="File exists"):
        durable.make_folder(path / "b")
    with pytest.raises(OSError, match="File exists"):
        durable.make_folder(path)
