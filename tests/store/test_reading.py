"""A store on a read-only disk is read as it stands there, its logs included, and nothing is left behind."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from countermark.store import reading
from countermark.store.failures import ServerTakesNoWrites, StoreError, StoreForbidden, StoreLocked, StoreMissing, StoreReadOnly
from countermark.store.postgres import PostgresStore
from countermark.store.reading import open_to_read
from countermark.store.sqlite import SqliteStore
from tests.faults import planted, proven_by
from tests.postgres import Cluster
from tests.store.examples import CONTEXT, RUN, desired, recorded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with one run."""
    made = tmp_path / "store"
    with SqliteStore.open(made, create=True) as store:
        store.record_demand(desired(), CONTEXT, 1)
    return made


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies are made."""
    place = tmp_path / "copies"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def read_only(tmp_path: Path, folder: Path) -> Iterator[Path]:
    """The store on a disk that nobody can write to, taken while somebody had it open: its logs hold what the databases do not."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    with SqliteStore.open(folder, create=False) as store:
        store.record_demand(desired("second"), CONTEXT, 2)
        shutil.copytree(folder, disk / "store")
    assert (disk / "store" / "ledger.sqlite-wal").stat().st_size > 0
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    yield disk / "store"
    subprocess.run(["umount", "-l", str(disk)], check=True)


def runs(folder: Path) -> int:
    with open_to_read(f"sqlite:///{folder}") as store:
        return len(store.list_runs())


def without_logs() -> Any:
    return planted(reading, "_files", lambda folder: tuple(folder.glob("*.sqlite")))()


@proven_by(without_logs)
def test_a_store_on_a_read_only_disk_is_read_with_its_logs(read_only: Path, copies: Path) -> None:
    before = {path.name: path.read_bytes() for path in read_only.iterdir()}
    assert runs(read_only) == 2
    assert {path.name: path.read_bytes() for path in read_only.iterdir()} == before
    assert list(copies.iterdir()) == [], "the copy is gone"


def test_a_store_that_can_be_written_is_not_copied(folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_copy", lambda *_: pytest.fail("it was copied"))
    assert runs(folder) == 1


def failing(monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    """The store itself cannot be opened; a copy of it can."""
    opened = reading.open_store

    def fails(url: str, create: bool) -> Any:
        if "countermark-" not in url:
            raise StoreError(failure)
        return opened(url, create)

    monkeypatch.setattr(reading, "open_store", fails)


def test_a_store_of_somebody_else_is_copied_too(folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, StoreForbidden(str(folder), "it may not be written"))
    assert runs(folder) == 1


def test_what_is_no_store_is_said_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        runs(tmp_path / "nowhere")
    assert isinstance(caught.value.failure, StoreMissing)
    with pytest.raises(StoreError), open_to_read("http://nowhere"):
        pass


def never_compared() -> Any:
    return planted(reading, "_state", lambda folder: ())()


@proven_by(never_compared)
@pytest.mark.parametrize("changes", [1, 99])
def test_a_file_that_changes_while_it_is_copied_is_copied_again(
    folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    failing(monkeypatch, StoreReadOnly(str(folder)))
    copied: list[str] = []
    copy = shutil.copyfile

    def restless(source: Path, target: Path) -> None:
        copy(source, target)
        if source.name == "ledger.sqlite":
            copied.append(source.name)
        if source.name == "ledger.sqlite" and len(copied) <= changes:
            with closing(os.fdopen(os.open(source, os.O_RDONLY))) as file:
                os.utime(file.fileno(), ns=(len(copied), len(copied)))

    monkeypatch.setattr(shutil, "copyfile", restless)
    if changes == 1:
        assert runs(folder) == 1
        assert len(copied) == 2
    else:
        try:
            runs(folder)
        except StoreError as error:
            assert isinstance(error.failure, StoreLocked)
        else:
            pytest.fail("a torn copy was read")
    assert list(copies.iterdir()) == []


def copied_first() -> AbstractContextManager[object]:
    """A store of any kind is taken for a folder."""

    def wrong(url: str, create: bool) -> Any:
        raise StoreError(StoreReadOnly(url))

    return planted(reading, "open_store", wrong)()


@proven_by(copied_first)
def test_a_store_in_postgresql_is_read_where_it_is(postgres_url: str, copies: Path) -> None:
    with PostgresStore.open(postgres_url, create=True) as store:
        recorded(store)
    try:
        with open_to_read(postgres_url) as store:
            assert [each.run_id for each in store.list_runs()] == [RUN]
            assert list(copies.iterdir()) == []
    except StoreError as error:
        pytest.fail(str(error))


def test_a_postgresql_server_that_takes_no_writes_is_no_disk_to_be_copied(postgres: Cluster, postgres_url: str, copies: Path) -> None:
    PostgresStore.initialise(postgres_url)
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    postgres.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StoreError) as caught, open_to_read(postgres_url):
        pass
    assert isinstance(caught.value.failure, ServerTakesNoWrites)
    assert list(copies.iterdir()) == []
