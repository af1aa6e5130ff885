"""Paths that a person or a recipe can name and that no system has: an answer from every reader, never an exception."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from countermark.files import reading
from countermark.files.checkpoints import list_checkpoints, read_checkpoint
from countermark.files.dataset_file import load_dataset, measure_dataset
from countermark.files.exact import measure_files
from countermark.files.model_folder import measure_base, measure_weights
from countermark.files.outputs import measure_output
from countermark.files.tokenizer_folder import measure_tokenizer
from countermark.run.checkpoint import CheckpointNotThere, CheckpointReadback, ComponentRead
from countermark.values import Refused
from countermark.weights.refusals import FileDefect, FileUnreadable
from tests.files.folders import checkpoint
from tests.files.tensors import write

READERS: list[Callable[[Path], object]] = [
    measure_weights, measure_base, measure_output, measure_files, measure_tokenizer, measure_dataset, load_dataset, read_checkpoint,
    list_checkpoints,
]  # fmt: skip
PATHS = ["a\0b", "x" * 5000, "y" * 300, "\ud800", "\udc80", "/dev/null", "/nowhere/at/all", "/etc/passwd/under"]


@pytest.mark.parametrize("path", PATHS, ids=ascii)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_path_that_leads_nowhere_is_an_answer(reader: Callable[[Path], object], path: str) -> None:
    assert isinstance(reader(Path(path)), Refused | CheckpointNotThere | FileDefect)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_ring_of_links_is_an_answer(reader: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert isinstance(reader(tmp_path / "a"), Refused | CheckpointNotThere | FileDefect)


def fails(code: int) -> Callable[..., object]:
    def call(*given: object, **named: object) -> object:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE], ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize("operation", ["preadv", "open", "scandir"])
def test_what_a_disk_answers_is_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, code: int) -> None:
    folder = checkpoint(tmp_path)
    (tmp_path / "d.jsonl").write_text("{}")
    write(folder / "config.json", b"{}")
    monkeypatch.setattr(reading.os, operation, fails(code))
    for reader in READERS:
        path = tmp_path / "d.jsonl" if reader in {measure_dataset, load_dataset} else folder
        if (reader is list_checkpoints and operation != "scandir") or (path != folder and operation == "scandir"):
            continue
        found = reader(path)
        if isinstance(found, CheckpointReadback):
            assert not any(isinstance(part, ComponentRead) for part in found.components.values())
        else:
            assert isinstance(found, Refused | CheckpointNotThere | FileUnreadable)
