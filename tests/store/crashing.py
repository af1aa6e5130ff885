"""Migrations that are killed: before each statement, and at each call by which a commit reaches the disk.

``python -m tests.store.crashing FOLDER [log]`` migrates stores in ``FOLDER`` and kills each at the next such call of the commit; it prints
the versions of both files that are found afterwards, one line a kill. It runs with ``SHIM`` loaded before the C library. With ``log`` the
files stay in the write-ahead log, where a commit of two files is two commits.
"""

import ctypes
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from sqlalchemy import event
from sqlalchemy.engine import Engine

from countermark.store.migrations import sqlite
from countermark.store.migrations.outcome import Migrated, NothingToDo
from tests.store.migrating import Old, OldFolder

#: What is told apart from a reading: a kill before a reading is one before the next writing.
WRITING: Final = re.compile(r"\s*(ALTER|ATTACH|BEGIN|COMMIT|CREATE|DROP|INSERT|LOCK|PRAGMA \w+\.(journal|locking)_mode=|ROLLBACK)")
SHIM: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>
static long left = -1;
void arm(long calls) { left = calls; }
static void tick(void) { if (left > 0 && --left == 0) kill(getpid(), SIGKILL); }
#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
int fsync(int fd) { REAL(fsync); tick(); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); tick(); return real(fd); }
int unlink(const char *path) { REAL(unlink); tick(); return real(path); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); tick(); return real(fd, size); }
ssize_t write(int fd, const void *from, size_t size) { REAL(write); tick(); return real(fd, from, size); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) { REAL(pwrite64); tick(); return real(fd, from, size, at); }
"""


def shim(folder: Path) -> Path:
    """The library that counts the calls, compiled into a folder."""
    (folder / "shim.c").write_text(SHIM)
    library = folder / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "shim.c"), "-ldl"], check=True, timeout=60)
    return library


def in_a_child(act: Callable[[], object]) -> bool:
    """Whether a forked child ended by itself, and well; a killed one did not."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL) or os.WEXITSTATUS(status) == 0, status
    return not os.WIFSIGNALED(status)


class Killer:
    """Ends the process before its statement with a number that writes."""

    def __init__(self, at: int) -> None:
        self._left = at
        self._beside = False

    def __call__(self, statement: str) -> None:
        # Between a savepoint and its end a schema is made for comparison, which is taken back whatever happens.
        if statement.startswith(("SAVEPOINT", "ROLLBACK TO")):
            self._beside = statement.startswith("SAVEPOINT")
        if WRITING.match(statement) and not self._beside:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def killed_before_statement(old: Old, at: int) -> bool:
    """Whether a migration ended before its statement number ``at``, and well."""
    killer, real = Killer(at), sqlite.open_file

    def traced(path: Path, wait_s: float) -> sqlite3.Connection:
        connection = real(path, wait_s)
        connection.set_trace_callback(killer)
        return connection

    def migrate() -> None:
        with patch.object(sqlite, "open_file", traced):
            if old.kind == "postgresql":
                event.listen(Engine, "before_cursor_execute", lambda _, __, statement, *___: killer(statement))
                event.listen(Engine, "commit", lambda _: killer("COMMIT"))
            assert isinstance(old.migrate(), Migrated | NothingToDo)

    return not in_a_child(migrate)


def stays_in_the_log(files: Any) -> bool:
    """The fault: the files are held for one connection, and a commit is two."""
    for database in ("main", "observations"):
        files.raw.execute(f"PRAGMA {database}.locking_mode=EXCLUSIVE")
    files.raw.execute("BEGIN EXCLUSIVE")
    files.raw.execute("COMMIT")
    return True


def _killed_in_commit(old: OldFolder, at: int, in_log: bool) -> bool:
    library: Any = ctypes.CDLL(None)
    real = sqlite.open_file

    def traced(path: Path, wait_s: float) -> sqlite3.Connection:
        connection = real(path, wait_s)
        began: list[str] = []

        def said(statement: str) -> None:
            began.extend([statement] if statement.startswith("BEGIN IMMEDIATE") else [])
            library.arm(at if began and statement == "COMMIT" else -1)

        connection.set_trace_callback(said)
        return connection

    def migrate() -> None:
        with ExitStack() as stack:
            stack.enter_context(patch.object(sqlite, "open_file", traced))
            # What is looked at before and after writes nothing.
            stack.enter_context(patch.object(sqlite, "_file_findings", lambda *_: ()))
            stack.enter_context(patch.object(sqlite, "_findings_now", lambda *_: ()))
            if in_log:
                stack.enter_context(patch.object(sqlite._Files, "_left_the_log", stays_in_the_log))
            old.migrate()

    return not in_a_child(migrate)


def main(folder: Path, in_log: bool) -> None:
    """Kills until a migration ends by itself, or leaves half a store."""
    number = 0
    killed, half = True, False
    while killed and not half:
        number += 1
        old = OldFolder(folder / str(number))
        killed = _killed_in_commit(old, number, in_log)
        ledger, observations = (max(each) for each in old.versions())
        half = ledger != observations
        sys.stdout.write(f"{'killed' if killed else 'done'} {ledger} {observations}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "log" in sys.argv[2:])
