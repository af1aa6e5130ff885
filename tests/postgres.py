"""PostgreSQL servers that tests start by themselves, each with a data folder of its own that is gone with the test.

``postgres_cluster()`` starts one; the fixtures ``postgres`` (one for the session, or for the worker) and ``postgres_url`` (an empty
database for one test) share one among the tests.

Rules kept here:

1. A server listens on a socket in its own folder only, and never on the network.
2. What is acknowledged is on the disk: ``fsync`` stays on unless durability is not what a suite is about, and ``synchronous_commit``
   stays on always.
3. Where PostgreSQL is not installed nothing passes in silence: the tests are skipped with what to install, and fail where the variable CI
   is set.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, final
from urllib.parse import quote

import pytest

#: How a server ends: ``smart`` waits for clients, ``fast`` ends them, ``immediate`` crashes by itself, ``kill`` is SIGKILL to all.
Mode = Literal["smart", "fast", "immediate", "kill"]

SUPERUSER: Final = "postgres"
MISSING: Final = (
    "PostgreSQL is not installed, and the tests of the shared ledger need a server of their own: apt-get install postgresql-15 "
    "(any version from 14 on; nothing of the system's own server is used)"
)
_NEEDED: Final = "TESTS_NEED_POSTGRESQL"
# Read before the environment is cleaned for the tests; workers inherit the answer.
if os.environ.get("CI"):
    os.environ[_NEEDED] = "1"


def binaries() -> Path | None:
    """The folder of the newest server's programs, or None."""
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if installed:
        return max(installed, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0))
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


def without_postgresql() -> None:
    """Ends the test: skipped here, failed where every test must run."""
    if os.environ.get(_NEEDED):
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@final
class Cluster:
    """A running server and its databases."""

    def __init__(self, folder: Path, programs: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self._programs = programs
        self._settings = settings
        self._names = 0
        self._free: list[str] = []

    def _run(self, program: str, *arguments: str) -> None:
        """A program of the server's, by the account that may run it: it refuses to be root."""
        account = pwd.getpwnam(SUPERUSER) if os.geteuid() == 0 else None
        identity: dict[str, Any] = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False, **identity)
        if done.returncode:
            log = self.log.read_text(errors="replace")[-2_000:] if self.log.exists() else ""
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}{log}")

    def make(self) -> None:
        """The data folder, and what the server is told."""
        if os.geteuid() == 0:
            shutil.chown(self.folder, SUPERUSER)
        self.folder.chmod(0o755)
        self._run("initdb", "-D", str(self.data), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        lines = [f"{name} = '{value}'" for name, value in self._settings.items()]
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("\n".join(["", *lines, ""]))

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        # A worker's server must not outlive the tests because its pipes are held: everything goes into the log.
        try:
            self._run("pg_ctl", "-D", str(self.data), "-l", str(self.log), "-w", "-t", "60", "start")
        except RuntimeError:
            # Soon after a crash it may give up waiting for a server that comes up all the same; where none runs, this fails too.
            self._run("pg_ctl", "-D", str(self.data), "status")

    def stop(self, mode: Mode = "immediate") -> None:
        """End the server, if it runs."""
        if mode == "kill":
            self.kill()
            return
        with suppress(RuntimeError):
            self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "-t", "60", "stop")

    def pid(self) -> int:
        """The server's first process."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """SIGKILL to the server and its children, as the kernel does it when memory runs out."""
        first = self.pid()
        family = [first, *_children(first)]
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(runs(pid) for pid in family):
            if time.monotonic() > deadline:
                raise RuntimeError("the server's processes do not end")
            time.sleep(0.01)
        # Where nobody reaps a dead process, its number still looks taken, and so does everything that names it.
        for stale in (self.data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            stale.unlink(missing_ok=True)

    def restart(self, mode: Mode = "fast") -> None:
        """End the server in a way, and start it again."""
        self.stop(mode)
        self.start()

    def url(self, database: str, user: str = SUPERUSER, password: str | None = None) -> str:
        """The address of one of its databases."""
        who = quote(user, safe="") + ("" if password is None else ":" + quote(password, safe=""))
        return f"postgresql://{who}@/{quote(database, safe='')}?host={quote(str(self.folder), safe='')}"

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements one by one as the superuser; the rows of the last one."""
        import psycopg

        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def new_database(self) -> str:
        """The address of a database with nothing in it."""
        if self._free:
            return self.url(self._free.pop())
        self._names += 1
        name = f"t{self._names}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Empty a database of ``new_database`` for another test: making one costs more than emptying one."""
        name = url.rpartition("/")[2].partition("?")[0]
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        self.sql(ended, f"ALTER DATABASE {name} RESET ALL")
        self.sql("DROP SCHEMA IF EXISTS countermark, countermark_sessions CASCADE", database=name)
        self._free.append(name)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@contextmanager
def postgres_cluster(durable: bool = True, **settings: str) -> Generator[Cluster, None, None]:
    """A server of one's own. ``durable=False`` turns ``fsync`` off, for suites that are not about durability; ``settings`` go into its
    configuration. Skips (or fails, see above) where no server is installed."""
    programs = binaries()
    if programs is None:
        without_postgresql()
        raise AssertionError("unreachable")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    told = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "max_connections": "120",
        "shared_buffers": "32MB",
        "max_wal_size": "256MB",
        "fsync": "on" if durable else "off",
        "full_page_writes": "on" if durable else "off",
        "autovacuum_naptime": "10min",
        **settings,
    }
    cluster = Cluster(folder, programs, told)
    try:
        cluster.make()
        cluster.start()
        yield cluster
    finally:
        if (cluster.data / "postmaster.pid").exists():
            cluster.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """One server for all tests of the session (of the worker)."""
    with postgres_cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_databases(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Addresses of empty databases, taken back after the test."""
    taken: list[str] = []

    def new() -> str:
        taken.append(request.getfixturevalue("postgres").new_database())
        return taken[-1]

    yield new
    for url in taken:
        request.getfixturevalue("postgres").give_back(url)


@pytest.fixture
def postgres_url(postgres_databases: Callable[[], str]) -> str:
    """The address of an empty database."""
    return postgres_databases()
