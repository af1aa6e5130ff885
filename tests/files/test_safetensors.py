"""Safetensors files on a disk: hashed tensor by tensor, and never a line of a file that changes."""

import hashlib
import os
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import save_file

from countermark.files import reading
from countermark.files.reading import BUFFER_BYTES, OpenFile, open_file
from countermark.files.safetensors import hash_tensors, read_table, table_of
from countermark.values import NonEmpty, Refused, WeightsRoot
from countermark.weights import TensorLine, TensorTable, weights_root
from countermark.weights.refusals import FileAbsent, FileChanged, FileDefect, FileNotRegular, LinkLeavesFolder
from tests.faults import planted, proven_by
from tests.files.tensors import encoded, f32, write


def lines(folder: Path, name: str = "f.safetensors") -> tuple[TensorLine, ...] | FileDefect:
    opened = open_file(folder, name)
    if not isinstance(opened, OpenFile):
        return opened
    with opened:
        table = read_table(opened)
        assert isinstance(table, TensorTable)
        return hash_tensors(opened, table)


def test_the_official_writer_is_read_to_the_same_bytes(tmp_path: Path) -> None:
    draw = numpy.random.default_rng(3)
    tensors = {
        "layer.10.w": draw.standard_normal((5, 7)).astype(numpy.float32),
        "layer.2.w": draw.standard_normal((3, 1)).astype(numpy.float16),
        "ids": draw.integers(0, 9, (4,)),
        "scalar": numpy.array(7, dtype=numpy.int32),
        "empty": numpy.zeros((0, 3), dtype=numpy.float64),
        "mask": draw.integers(0, 2, (2, 2)).astype(bool),
        "large": draw.standard_normal(BUFFER_BYTES // 4 + 3).astype(numpy.float32),
    }
    save_file(tensors, tmp_path / "f.safetensors", {"format": "pt"})
    found = lines(tmp_path)
    assert isinstance(found, tuple)
    spelled = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "float64": "F64", "bool": "BOOL"}
    assert {(line.name, line.dtype, line.shape, line.sha256.hex) for line in found} == {
        (name, spelled[str(one.dtype)], one.shape, hashlib.sha256(one.tobytes()).hexdigest()) for name, one in tensors.items()
    }


def test_the_root_is_independent_of_metadata_and_order(tmp_path: Path) -> None:
    one = {"a": f32(1, 2), "b": f32(3)}
    write(tmp_path / "f.safetensors", encoded(one, {"x": "1", "y": "2"}))
    write(tmp_path / "g.safetensors", encoded(dict(reversed(one.items()))))
    first, second = lines(tmp_path), lines(tmp_path, "g.safetensors")
    assert isinstance(first, tuple) and isinstance(second, tuple)
    assert isinstance(weights_root(first), WeightsRoot) and weights_root(first) == weights_root(second)


@proven_by(planted(reading.OpenFile, "changed", lambda self: False))
def test_a_file_that_is_written_to_meanwhile_gives_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "f.safetensors", encoded({"a": f32(*range(100)), "b": f32(2)}))
    original = reading.OpenFile.sha256
    before = path.stat()

    def writing(self: OpenFile, begin: int, end: int, progress: reading.Progress | None = None) -> object:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x07")
        # A writer that puts the old times back is still seen, by the inode's own.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return original(self, begin, end, progress)

    monkeypatch.setattr(reading.OpenFile, "sha256", writing)
    assert lines(tmp_path) == FileChanged("f.safetensors")


def test_a_file_that_shrinks_meanwhile_gives_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "f.safetensors", encoded({"a": f32(*range(100))}))
    original = reading.OpenFile.sha256

    def shrinking(self: OpenFile, begin: int, end: int, progress: reading.Progress | None = None) -> object:
        os.truncate(path, path.stat().st_size - 9)
        return original(self, begin, end, progress)

    monkeypatch.setattr(reading.OpenFile, "sha256", shrinking)
    assert lines(tmp_path) == FileChanged("f.safetensors")


def test_short_reads_are_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "f.safetensors", encoded({"a": f32(*range(100))}))
    whole = lines(tmp_path)
    original = os.preadv
    monkeypatch.setattr(reading.os, "preadv", lambda fd, parts, at: original(fd, [parts[0][:7]], at))
    assert lines(tmp_path) == whole


def test_progress_counts_every_byte_of_data(tmp_path: Path) -> None:
    write(tmp_path / "f.safetensors", encoded({"a": f32(*range(600_000)), "b": f32(1)}))
    seen: list[int] = []
    opened = open_file(tmp_path, "f.safetensors")
    assert isinstance(opened, OpenFile)
    with opened:
        table = read_table(opened)
        assert isinstance(table, TensorTable)
        hash_tensors(opened, table, seen.append)
    assert sum(seen) == 2_400_004 and max(seen) <= BUFFER_BYTES


def test_progress_may_stop_the_reading(tmp_path: Path) -> None:
    write(tmp_path / "f.safetensors", encoded({"a": f32(1)}))

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    opened = open_file(tmp_path, "f.safetensors")
    assert isinstance(opened, OpenFile)
    with opened:
        table = read_table(opened)
        assert isinstance(table, TensorTable)
        with pytest.raises(KeyboardInterrupt):
            hash_tensors(opened, table, stop)


@pytest.mark.parametrize("kind", ["nothing", "pipe", "folder", "device", "link out", "link within", "dangling link"])
def test_only_regular_files_within_the_folder_are_opened(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    inside = write(folder / "inside.safetensors", encoded({"a": f32(1)}))
    path = folder / "f.safetensors"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "link out":
        path.symlink_to(write(tmp_path / "outside", encoded({"a": f32(1)})))
    elif kind == "link within":
        path.symlink_to(inside.name)
    elif kind == "dangling link":
        path.symlink_to("gone")
    found = table_of(folder, path.name)
    wanted: dict[str, FileDefect] = {
        "nothing": FileAbsent(path.name),
        "pipe": FileNotRegular(path.name, "a pipe"),
        "folder": FileNotRegular(path.name, "a folder"),
        "device": LinkLeavesFolder(path.name),
        "link out": LinkLeavesFolder(path.name),
        "dangling link": FileAbsent(path.name),
    }
    assert isinstance(found, TensorTable) if kind == "link within" else found == Refused(NonEmpty(wanted[kind]))


def test_a_device_is_refused_by_kind(tmp_path: Path) -> None:
    assert table_of(Path("/dev"), "zero") == Refused(NonEmpty(FileNotRegular("zero", "a character device")))
