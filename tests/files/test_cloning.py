"""Publishing on file systems that share blocks between files, where one can be made and mounted here: it takes a superuser and ``mkfs``."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from countermark.files import publishing
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from tests.faults import planted, proven_by
from tests.files import folders
from tests.recipe.examples import clean_spellings

#: The least that either is made with.
_DISK_BYTES = 512 << 20
_WEIGHT_BYTES = 64 << 20


@pytest.fixture(params=["btrfs", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A disk of this kind, which is a file, mounted."""
    make, image, place = shutil.which(f"mkfs.{request.param}"), tmp_path / "image", tmp_path / "disk"
    if os.geteuid() != 0 or make is None:
        pytest.skip(f"no superuser, or no mkfs.{request.param}")
    image.touch()
    os.truncate(image, _DISK_BYTES)
    place.mkdir()
    subprocess.run([make, "-q", str(image)], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def taken(disk: Path) -> int:
    """The bytes of a disk that are taken, once everything is on it."""
    os.sync()
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@proven_by(planted(publishing, "_clone", lambda descriptor, source: False))
def test_what_is_published_shares_the_blocks_of_its_source_until_one_is_written_to(disk: Path) -> None:
    source = folders.checkpoint(disk / "trainer", 4)
    weights = os.urandom(_WEIGHT_BYTES)
    (source / "events").write_bytes(weights)
    before = taken(disk)
    given: Any = {"attempt": folders.NONCE, "work_key": folders.WORK_KEY, "manifest": clean_spellings()}
    published = publish_checkpoint(source, disk / "kept", step=4, **given)
    assert isinstance(published, PublishedCheckpoint)
    assert taken(disk) - before < _WEIGHT_BYTES // 4
    with (source / "events").open("r+b") as file:
        file.write(b"\0" * 4096)
    assert (Path(published.path) / "events").read_bytes() == weights
    shutil.rmtree(source)
    assert (Path(published.path) / "events").read_bytes() == weights
