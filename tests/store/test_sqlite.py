"""Stores in a bad environment: said by type, with place and remedy, and nothing that was recorded is lost."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection

from countermark.run.claims import Committed
from countermark.run.records import Recorded, RunRecord
from countermark.store import StoreError, creation
from countermark.store import sqlite as room
from countermark.store.creation import LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE
from countermark.store.failures import (
    NotAStore,
    StoreDamaged,
    StoreFailure,
    StoreForbidden,
    StoreFull,
    StoreIncomplete,
    StoreLocked,
    StoreMissing,
    StoreOfAnotherVersion,
    StoreOnNetwork,
    StoreReadOnly,
)
from countermark.store.filesystem import Mount
from countermark.store.schema import SCHEMA_VERSION
from countermark.store.sqlite import SqliteStore
from countermark.store.ticket import Ticket
from tests.faults import planted, proven_by
from tests.run.examples import demand_id, desired, key, transition
from tests.store.examples import CONTEXT, RUN, loaded, recorded, won

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with one run and one claim, closed."""
    folder = tmp_path / "project" / ".countermark"
    with SqliteStore.open(folder, create=True) as store:
        recorded(store)
        won(store, 1)
    return folder


def failure(act: Callable[[], object]) -> StoreFailure:
    with pytest.raises(StoreError) as caught:
        act()
    error = caught.value
    assert error.where in str(error) and error.what in str(error) and error.remedy in str(error)
    return error.failure


def opened(folder: Path, create: bool = False, wait_s: float = 5) -> Callable[[], object]:
    return lambda: SqliteStore.open(folder, create, wait_s).close()


def whole(folder: Path) -> RunRecord:
    """The one run of the fixture's store, which a check finds whole."""
    with SqliteStore.open(folder, create=False) as store:
        assert store.check() == ()
        return loaded(store)


# ------------------------------------------------------------------------------------------------------ making and opening


def test_a_store_is_made_where_there_is_none_and_found_again(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE}
    assert len(whole(folder).ledger.claims) == 1


def test_without_leave_nothing_is_made(tmp_path: Path) -> None:
    assert failure(opened(tmp_path / "none")) == StoreMissing(str(tmp_path / "none"))
    assert list(tmp_path.iterdir()) == []


def test_a_name_full_of_signs_is_a_folder_like_any_other(tmp_path: Path) -> None:
    folder = tmp_path / "a b?mode=ro&c#d%20'é\udcff"
    with SqliteStore.open(folder, create=True) as store:
        recorded(store)
    assert (folder / LEDGER_FILE).is_file()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_process_that_changes_its_folder_keeps_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteStore.open(Path(".countermark"), create=True) as store:
        monkeypatch.chdir("/")
        recorded(store)
        assert store.location == f"sqlite:///{tmp_path}/.countermark"
    assert whole(tmp_path / ".countermark").ledger.version == 0


def test_control_facts_are_synced_and_observations_are_in_a_file_of_their_own(folder: Path) -> None:
    with SqliteStore.open(folder, create=False) as store:
        for database, level in ((store._ledger, 2), (store._observations, 1)):
            with database.engine.connect() as connection:
                read = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("synchronous", "journal_mode")}
                assert read == {"synchronous": level, "journal_mode": "wal"}
                assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1


def test_opening_is_quick(folder: Path) -> None:
    opened(folder)()
    times = []
    for _ in range(5):
        began = time.perf_counter()
        opened(folder)()
        times.append(time.perf_counter() - began)
    assert min(times) < 0.05


def test_importing_the_room_loads_no_driver() -> None:
    code = "import countermark.store, sys; print([m for m in ('sqlalchemy', 'sqlite3', '_sqlite3', 'psycopg') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_forked_child_is_told_to_open_its_own(folder: Path) -> None:
    with SqliteStore.open(folder, create=False) as store:
        child = os.fork()
        if not child:
            try:
                store.load_run(RUN)
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# --------------------------------------------------------------------------------------------------------------- bad files


def empty_is_a_database() -> AbstractContextManager[object]:
    """Files that are handed to SQLite unread."""
    return planted(room, "regular_file", lambda path: path.stat())()


GARBAGE = {
    "empty": b"",
    "text": b"hello\n" * 1000,
    "short": b"SQLite",
    "zeros": bytes(8192),
    "header": b"SQLite format 3\0" + b"\xff" * 4000,
}


@pytest.mark.parametrize("name", [LEDGER_FILE, OBSERVATIONS_FILE])
@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_a_file_that_is_no_database_is_refused_and_left_alone(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    for create in (False, True):
        assert isinstance(failure(opened(folder, create)), NotAStore)
        assert (folder / name).read_bytes() == content


@proven_by(empty_is_a_database)
def test_an_empty_ledger_is_never_taken_for_a_new_one(folder: Path) -> None:
    (folder / LEDGER_FILE).write_bytes(b"")
    assert failure(opened(folder, create=True)) == NotAStore(str(folder / LEDGER_FILE), "it is empty")


def test_another_programs_database_is_refused(folder: Path) -> None:
    (folder / LEDGER_FILE).unlink()
    with closing(sqlite3.connect(folder / LEDGER_FILE)) as other:
        other.execute("CREATE TABLE runs (run_id TEXT)")
        other.commit()
    assert isinstance(failure(opened(folder, create=True)), NotAStore)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_refused_without_waiting(folder: Path, make: Callable[[Path], None]) -> None:
    (folder / LEDGER_FILE).unlink()
    make(folder / LEDGER_FILE)
    assert failure(opened(folder)) == NotAStore(str(folder / LEDGER_FILE), "it is no regular file")


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 10**9])
@pytest.mark.parametrize("name", [LEDGER_FILE, OBSERVATIONS_FILE])
def test_a_newer_schema_is_refused_and_left_alone(folder: Path, name: str, version: int) -> None:
    with closing(sqlite3.connect(folder / name)) as newer:
        newer.execute("INSERT INTO schema_versions VALUES (?, 0)", (version,))
        newer.commit()
    before = (folder / name).read_bytes()
    assert failure(opened(folder, create=True)) == StoreOfAnotherVersion(str(folder / name), version, SCHEMA_VERSION)
    assert failure(lambda: SqliteStore.initialise(folder)) == StoreOfAnotherVersion(str(folder / name), version, SCHEMA_VERSION)
    assert (folder / name).read_bytes() == before


def test_a_truncated_ledger_is_said_to_be_damaged(folder: Path) -> None:
    size = (folder / LEDGER_FILE).stat().st_size
    os.truncate(folder / LEDGER_FILE, size // 2)
    with pytest.raises(StoreError) as caught, SqliteStore.open(folder, create=False) as store:
        store.load_run(RUN)
        store.check()
        pytest.fail("half a ledger was read")
    assert isinstance(caught.value.failure, StoreDamaged)


# ------------------------------------------------------------------------------------------------------- something is gone


def always_makes() -> AbstractContextManager[object]:
    """A creation that looks at the ledger's file alone."""
    return planted(creation, "ledger_was_here", lambda folder: False)()


def with_sweep(folder: Path) -> None:
    with SqliteStore.open(folder, create=False) as store:
        store.record_sweep(RUN, "s1", b"{}", 1, 2)


def with_attempt(folder: Path) -> None:
    (folder / "attempts" / key(1).nonce.hex).mkdir(parents=True)


def with_log(folder: Path) -> None:
    (folder / f"{LEDGER_FILE}-wal").write_bytes(b"x")


@proven_by(always_makes)
@pytest.mark.parametrize("leave", [with_sweep, with_attempt, with_log])
def test_a_lost_ledger_is_never_replaced_by_an_empty_one(folder: Path, leave: Callable[[Path], None]) -> None:
    leave(folder)
    (folder / LEDGER_FILE).unlink()
    assert failure(opened(folder, create=True)) == StoreIncomplete(str(folder), LEDGER_FILE)
    assert not (folder / LEDGER_FILE).exists()
    assert isinstance(failure(opened(folder)), StoreIncomplete)


def test_lost_observations_are_said_and_made_anew_only_on_purpose(folder: Path) -> None:
    (folder / OBSERVATIONS_FILE).unlink()
    assert failure(opened(folder, create=True)) == StoreIncomplete(str(folder), OBSERVATIONS_FILE)
    assert SqliteStore.initialise(folder) == (OBSERVATIONS_FILE,)
    assert SqliteStore.initialise(folder) == ()
    assert len(whole(folder).ledger.claims) == 1


def trusting() -> AbstractContextManager[object]:
    """An open store that never looks at its file again."""
    return planted(room.SqliteFile, "still_there", lambda self: None)()


@proven_by(trusting)
@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_ledger_that_is_taken_away_under_an_open_store_takes_no_fact(folder: Path, tmp_path: Path, change: str) -> None:
    with SqliteStore.open(folder, create=False) as store:
        loaded(store)
        copy = tmp_path / "copy"
        shutil.copy(folder / LEDGER_FILE, copy)
        (folder / LEDGER_FILE).unlink()
        if change == "replaced":
            copy.rename(folder / LEDGER_FILE)
        for act in (lambda: store.load_run(RUN), lambda: store.cancel(RUN, "ada", 1)):
            assert isinstance(failure(act), StoreDamaged)


# ------------------------------------------------------------------------------------------------------------- a bad place


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "lustre"])
@pytest.mark.parametrize("create", [False, True])
def test_a_network_file_system_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, create: bool
) -> None:
    monkeypatch.setattr(room, "mount_under", lambda folder: Mount("/", kind, ("rw",)))
    assert failure(opened(tmp_path / "shared", create)) == StoreOnNetwork(str(tmp_path / "shared"), kind)
    assert list(tmp_path.iterdir()) == []


def test_a_path_through_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert isinstance(failure(opened(tmp_path / "file" / ".countermark", create=True)), StoreForbidden)
    assert isinstance(failure(opened(tmp_path / "file", create=True)), StoreForbidden)


def test_a_ticket_that_is_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / TICKET_FILE).unlink()
    (folder / TICKET_FILE).symlink_to(tmp_path / "elsewhere")
    assert isinstance(failure(opened(folder, create=True)), StoreForbidden)
    assert not (tmp_path / "elsewhere").exists()


def as_nobody(folder: Path) -> str:
    """The failure's name when an ordinary user opens the store."""
    code = (
        "import os, sys, pathlib\n"
        "from countermark.store.sqlite import SqliteStore, StoreError\n"
        "store = pathlib.Path(sys.argv[1])\n"
        "if os.geteuid() == 0:\n"
        "    SqliteStore.open(store, create=False).close()  # everything is imported before the user can read nothing of ours\n"
        "    os.setgid(65534); os.setuid(65534)\n"
        "try: SqliteStore.open(store, create=True).close()\n"
        "except StoreError as error: print(type(error.failure).__name__)\n"
        "else: print('opened')\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("locked", ["folder", LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE])
def test_a_store_that_the_user_may_not_write_is_said(locked: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        folder = Path(place) / ".countermark"
        opened(folder, create=True)()
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        assert as_nobody(folder) == "opened"
        (folder if locked == "folder" else folder / locked).chmod(0o500 if locked == "folder" else 0o400)
        if locked == "folder":
            os.chmod(folder, 0)
        assert as_nobody(folder) == "StoreForbidden"
        folder.chmod(0o777)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    if not AS_ROOT:
        pytest.skip("mounting needs root; the page limit below covers a full database without it")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    yield disk
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], capture_output=True, check=False)
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


def test_a_full_disk_is_said_nothing_is_lost_and_it_goes_on_when_there_is_room(small_disk: Path) -> None:
    folder = small_disk / ".countermark"
    with SqliteStore.open(folder, create=True) as store:
        recorded(store)
        ballast = fill(small_disk)
        written, full = 0, None
        for number in range(400):
            try:
                answer = store.record_demand(desired(f"r{number}"), CONTEXT, number)
            except StoreError as error:
                full = error.failure
                break
            assert isinstance(answer, Recorded)
            written += 1
        assert isinstance(full, StoreFull)
        assert len(store.list_runs()) == 1 + written
        ballast.unlink()
        assert isinstance(store.claim_start(RUN, 0, transition(), key(1), 1), Committed)
    assert len(whole(folder).ledger.claims) == 1


def test_a_reading_that_finds_no_room_for_the_log_says_that_the_disk_is_full(small_disk: Path) -> None:
    folder = small_disk / ".countermark"
    opened(folder, create=True)()
    ballast = fill(small_disk)
    assert isinstance(failure(lambda: SqliteStore.open(folder, create=False).list_runs()), StoreFull)
    ballast.unlink()
    assert SqliteStore.open(folder, create=False).list_runs() == ()


def test_making_a_store_on_a_full_disk_leaves_none(small_disk: Path) -> None:
    ballast = fill(small_disk)
    folder = small_disk / ".countermark"
    assert isinstance(failure(opened(folder, create=True)), StoreFull)
    assert not (folder / LEDGER_FILE).exists()
    ballast.unlink()
    opened(folder, create=True)()
    assert {path.name for path in folder.iterdir()} == {LEDGER_FILE, OBSERVATIONS_FILE, TICKET_FILE}


def test_a_read_only_disk_is_said(small_disk: Path) -> None:
    folder = small_disk / ".countermark"
    store = SqliteStore.open(folder, create=True)
    recorded(store)
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for create in (False, True):
        assert isinstance(failure(opened(folder, create)), StoreReadOnly)
    assert isinstance(failure(opened(small_disk / "other", create=True)), StoreReadOnly)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert whole(folder).ledger.version == 0


def test_a_database_that_may_not_grow_is_full_and_whole(folder: Path) -> None:
    with SqliteStore.open(folder, create=False) as store:
        with store._ledger.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError) as caught:
            for number in range(100):
                store.record_demand(desired(f"r{number}"), CONTEXT, number)
        assert isinstance(caught.value.failure, StoreFull)
    assert whole(folder).ledger.version == 1


# ------------------------------------------------------------------------------------------------------------------ locks


def test_who_waits_in_vain_is_told_for_how_long_and_for_whom(folder: Path) -> None:
    with SqliteStore.open(folder, create=False, wait_s=0.2) as store, Ticket(folder / TICKET_FILE, 1):
        said = failure(lambda: store.cancel(RUN, "ada", 1))
        assert isinstance(said, StoreLocked)
        assert (said.holder, 200 <= said.waited_ms < 2_000) == (str(os.getpid()), True)
        assert loaded(store).ledger.version == 1
    assert not whole(folder).ledger.cancellations


def test_a_program_that_locks_past_the_ticket_is_waited_for_and_said(folder: Path) -> None:
    with SqliteStore.open(folder, create=False, wait_s=0.2) as store, closing(sqlite3.connect(folder / LEDGER_FILE)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert isinstance(failure(lambda: store.cancel(RUN, "ada", 1)), StoreLocked)
        assert loaded(store).ledger.version == 1
        other.rollback()
        assert isinstance(store.cancel(RUN, "ada", 1), Recorded)


def test_readers_do_not_wait_for_a_writer(folder: Path) -> None:
    with SqliteStore.open(folder, create=False, wait_s=0.2) as store, store._writing(RUN):
        answers: list[int] = []
        reader = threading.Thread(target=lambda: answers.append(loaded(store).ledger.version))
        reader.start()
        reader.join(5)
        assert answers == [1]


@contextmanager
def deferred() -> Iterator[None]:
    """Writers that begin like readers and take no ticket: what one read is not what it writes over."""
    honest = room.SqliteFile.transaction

    @contextmanager
    def transaction(self: room.SqliteFile, first: Callable[[Connection], object], begin: str) -> Iterator[object]:
        with honest(self, first, "BEGIN") as given:
            yield given
            time.sleep(0.03)

    with ExitStack() as faults:
        faults.enter_context(planted(room, "Turn", lambda *_: nullcontext())())
        faults.enter_context(planted(room.SqliteFile, "transaction", transaction)())
        yield


@proven_by(deferred)
def test_threads_of_one_store_that_claim_one_slot_make_one_claim(folder: Path) -> None:
    retry = transition(demand=demand_id("weekly"))
    weekly = demand_id("weekly").run_id()
    answers: list[object] = []
    with SqliteStore.open(folder, create=False) as store:
        recorded(store, desired("weekly"))
        start = threading.Barrier(6)

        def claim(number: int) -> None:
            start.wait()
            try:
                answers.append(store.claim_start(weekly, 0, retry, key(number), 1))
            except Exception as error:
                answers.append(error)

        threads = [threading.Thread(target=claim, args=(number,)) for number in range(10, 16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winner = loaded(store, weekly).ledger.claims
    assert len(winner) == 1
    assert Counter(type(answer).__name__ for answer in answers) == {"AlreadyCommitted": 5, "Committed": 1}
    assert {answer.claim for answer in answers} == set(winner)  # type: ignore[attr-defined]
