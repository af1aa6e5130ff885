"""What lies beside the files of a store that is to be migrated, and who has them open: seen before anything is touched."""

import subprocess
import sys
from pathlib import Path

import pytest

from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE
from countermark.store.failures import StoreError, StoreIncomplete, StoreInUse
from countermark.store.migrations import sqlite
from countermark.store.migrations.outcome import Migrated, NotWhole
from tests.faults import planted, proven_by
from tests.store.migrating import OldFolder

_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT max(version) FROM schema_versions").fetchall()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> OldFolder:
    return OldFolder(tmp_path / "store")


@proven_by(planted(sqlite, "_who_has_open", lambda paths: ()))
@pytest.mark.parametrize("name", [LEDGER_FILE, OBSERVATIONS_FILE])
def test_the_processes_that_have_a_store_open_are_named(folder: OldFolder, name: str) -> None:
    command = [sys.executable, "-c", _HOLDER, str(folder.folder / name)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError) as raised:
            folder.migrate(wait_s=0.2)
        holder.stdin.close()
    assert raised.value.failure == StoreInUse(str(folder.folder), 200, (f"process {holder.pid}",))
    assert f"open elsewhere by process {holder.pid}" in raised.value.what
    assert isinstance(folder.migrate(), Migrated)


@proven_by(planted(sqlite, "_torn_logs", lambda folder: None))
@pytest.mark.parametrize("names", [(LEDGER_FILE,), (OBSERVATIONS_FILE,), (LEDGER_FILE, OBSERVATIONS_FILE)])
def test_a_torn_log_is_refused_and_kept_for_whoever_mends_it(folder: OldFolder, names: tuple[str, ...]) -> None:
    logs = [folder.folder / f"{name}-wal" for name in names]
    for log in logs:
        log.write_bytes(b"\x37\x7f\x06\x82" + b"torn" * 100)
    before = {path.name: path.read_bytes() for path in folder.folder.iterdir()}
    for dry_run in (True, False):
        found = folder.migrate(dry_run)
        assert isinstance(found, NotWhole), found
        assert (found.plan.found, [(each.code, each.where) for each in found.findings]) == (
            1,
            [("LogUnreadable", str(log)) for log in logs],
        )
    after = {path.name: path.read_bytes() for path in folder.folder.iterdir() if path.name != "ticket.lock"}
    assert after == before


@pytest.mark.parametrize("name", [LEDGER_FILE, OBSERVATIONS_FILE])
def test_a_file_that_is_gone_is_named_and_none_is_made(folder: OldFolder, name: str) -> None:
    (folder.folder / name).rename(folder.folder / "elsewhere")
    (folder.folder / f"{name}-wal").write_bytes(b"left behind")
    with pytest.raises(StoreError) as raised:
        folder.migrate()
    assert raised.value.failure == StoreIncomplete(str(folder.folder), name)
    assert not (folder.folder / name).exists() and folder.copies() == []
