"""The digest of exact files against the tools that anybody can check it with."""

import os
import subprocess
from pathlib import Path

from countermark.files.exact import MeasuredFiles, files_digest, measure_files
from countermark.values import NonEmpty, Refused
from countermark.weights.refusals import FileAbsent, FileNameUnlistable, FileNotRegular, FolderEmpty, FolderTooDeep, LinkLeavesFolder
from tests.files.tensors import write

COMMAND = "find . -type f | cut -c3- | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum | cut -f1 -d' '"


def measured(folder: Path) -> MeasuredFiles:
    found = measure_files(folder)
    assert isinstance(found, MeasuredFiles), found
    return found


def test_it_is_what_find_sort_and_sha256sum_say(tmp_path: Path) -> None:
    for name, content in {"b.bin": b"1", "a/x.bin": b"22", "a.bin": b"", "Z": b"3", "ü ö": b"4", "a/b/c": b"5", "a-1": b"6"}.items():
        write(tmp_path / name, content)
    (tmp_path / "empty folder").mkdir()
    said = subprocess.run(["bash", "-c", COMMAND], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    found = measured(tmp_path)
    assert found.digest.hex == said and found.bytes == 7 and len(found.files) == 7
    assert files_digest({path: digest for path, digest, _ in found.files}) == found.digest


def test_a_link_counts_as_its_target(tmp_path: Path) -> None:
    write(tmp_path / "one" / "a", b"1")
    write(tmp_path / "two" / "a", b"1")
    write(tmp_path / "one" / "b", b"1")
    (tmp_path / "two" / "b").symlink_to("a")
    assert measured(tmp_path / "one").digest == measured(tmp_path / "two").digest


def test_everything_that_has_no_digest_is_named_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    write(folder / "fine", b"1")
    write(folder / "new\nline", b"1")
    os.mkfifo(folder / "pipe")
    (folder / "out").symlink_to("/etc/hostname")
    (folder / "loop").symlink_to(".")
    (folder / "gone").symlink_to("nowhere")
    found = measure_files(folder)
    assert isinstance(found, Refused)
    assert set(found.defects) == {
        FileNameUnlistable("new\nline"),
        FileNotRegular("pipe", "a pipe"),
        LinkLeavesFolder("out"),
        FileNotRegular("loop", "a link to a folder"),
        FileAbsent("gone"),
    }


def test_folders_beyond_any_depth_are_refused(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    (deep / "f").touch()
    assert measure_files(tmp_path) == Refused(NonEmpty(FolderTooDeep("/".join(["d"] * 65))))


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    assert measure_files(tmp_path) == Refused(NonEmpty(FolderEmpty()))
    assert isinstance(measure_files(tmp_path / "none"), Refused)
