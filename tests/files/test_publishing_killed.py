"""Publishing in a process of its own that is really killed, and on file systems that clone."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from countermark.files.checkpoints import CheckpointListing, list_checkpoints, read_checkpoint
from countermark.files.publishing import Disk, PublishedCheckpoint, publish_checkpoint
from countermark.run.checkpoint import AdmittedCheckpoint, Atomic, CheckpointReadback, admit_checkpoint
from tests.files.folders import NONCE, WORK_KEY, checkpoint
from tests.recipe.examples import clean_manifest, clean_spellings

GIVEN: dict[str, Any] = {"step": 4, "attempt": NONCE, "work_key": WORK_KEY, "manifest": clean_spellings()}

PUBLISHER = """
import os, signal, sys
from pathlib import Path
from countermark.files import publishing
from tests.files.test_publishing_killed import GIVEN

class Dies(publishing.Disk):
    left = int(sys.argv[3])

def dying(name):
    operation = getattr(publishing.Disk, name)
    def call(self, *given):
        Dies.left -= 1
        if Dies.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return operation(self, *given)
    return call

for name in ("make_folder", "create", "clone", "write", "sync", "sync_folder", "rename_new"):
    setattr(Dies, name, dying(name))
answer = publishing.publish_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]), disk=Dies(), **GIVEN)
print(type(answer).__name__, int(sys.argv[3]) - Dies.left)
"""


def run(source: Path, parent: Path, at: int) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-c", PUBLISHER, str(source), str(parent), str(at)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, timeout=60)


def test_a_publisher_that_is_killed_leaves_nothing_that_counts(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "t")
    clean = run(source, tmp_path / "whole", 10_000)
    assert clean.stdout.startswith("PublishedCheckpoint"), clean.stderr
    operations = int(clean.stdout.split()[1])
    # At the first file, in the middle, before the manifest is synced, before the rename, and after it.
    for at in (2, operations // 2, operations - 3, operations - 1, operations):
        parent = tmp_path / str(at)
        killed = run(source, parent, at)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        listed = list_checkpoints(parent)
        assert isinstance(listed, CheckpointListing)
        assert [name for _, name in listed.checkpoints] == (["step-4"] if at == operations else [])
        for name in (*(name for _, name in listed.checkpoints), *listed.others):
            found = read_checkpoint(parent / name)
            assert isinstance(found, CheckpointReadback)
            assert isinstance(found.publication, Atomic) == (name == "step-4")
        # The next one is not kept from publishing by what the killed one left.
        again = publish_checkpoint(source, parent, **GIVEN)
        assert isinstance(again, PublishedCheckpoint) == (at != operations)


class Cloning(Disk):
    """A file system that shares blocks, as far as anybody can tell by reading."""

    def clone(self, descriptor: int, source: int) -> bool:
        os.sendfile(descriptor, source, 0, os.fstat(source).st_size)
        return True

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        assert bytes(data[:1]) == b"{", "only the manifest is written"
        return super().write(descriptor, data)


def test_where_the_file_system_clones_nothing_is_copied(tmp_path: Path) -> None:
    answer = publish_checkpoint(checkpoint(tmp_path / "t"), tmp_path / "p", disk=Cloning(), **GIVEN)
    assert isinstance(answer, PublishedCheckpoint)
    admitted = admit_checkpoint(read_checkpoint(Path(answer.path)), clean_manifest(), frozenset({NONCE}))
    assert isinstance(admitted, AdmittedCheckpoint)


@pytest.mark.parametrize("when", ["create", "sync", "write"])
def test_a_source_that_is_written_to_while_it_is_copied_is_not_published(tmp_path: Path, when: str) -> None:
    source = checkpoint(tmp_path / "t")

    class Racing(Disk):
        raced = False

    def racing(self: Racing, *given: Any) -> Any:
        if not self.raced:
            self.raced = True
            (source / "optimizer.pt").write_bytes((source / "optimizer.pt").read_bytes())
        return getattr(Disk, when)(self, *given)

    setattr(Racing, when, racing)
    answer = publish_checkpoint(source, tmp_path / "p", disk=Racing(), **GIVEN)
    assert not isinstance(answer, PublishedCheckpoint) and list((tmp_path / "p").iterdir()) == []
