"""The process table, and signals that hit one process only."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from countermark.files import procfs
from countermark.files.procfs import ProcessStat, descendants, parse_stat, read_stat, signal_exactly
from tests.faults import planted, proven_by

TAIL = " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 " + "0 " * 30


def parses_from_the_left(text: str) -> ProcessStat:
    fields = text.split()
    return ProcessStat(int(fields[0]), fields[2], *(int(field) if field.isdecimal() else 0 for field in (*fields[3:6], fields[21])))


@proven_by(planted(sys.modules[__name__], "parse_stat", parses_from_the_left))
@pytest.mark.parametrize("name", ["a b", "a) R 1 1 1", ") (", "0 R 1 2 3)"])
def test_a_processes_name_cannot_forge_its_row(name: str) -> None:
    assert parse_stat(f"42 ({name}){TAIL}") == ProcessStat(42, "S", 7, 8, 9, 4711)


@pytest.mark.parametrize("name", ["sh", "((", ""])
def test_a_row_is_read_whatever_the_name(name: str) -> None:
    assert parse_stat(f"42 ({name}){TAIL}") == ProcessStat(42, "S", 7, 8, 9, 4711)


def test_this_process_is_in_the_table_with_its_parent() -> None:
    mine = read_stat(os.getpid())
    assert mine is not None
    assert (mine.parent, mine.group, mine.session, mine.ended, mine.stopped) == (os.getppid(), os.getpgid(0), os.getsid(0), False, False)
    assert mine.pid in {row.pid for row in procfs.processes()}


def test_a_process_that_is_not_there_is_none_and_a_hidden_one_is_an_error() -> None:
    assert read_stat(2**22 + 1) is None
    with patch.object(procfs, "_PROC", Path("/nowhere")), pytest.raises(PermissionError, match="hidden"):
        read_stat(os.getpid())
    with patch.object(procfs, "_PROC", Path("/nowhere")), pytest.raises(FileNotFoundError):
        list(procfs.processes())


def test_descendants_are_all_below_and_nobody_else() -> None:
    def row(pid: int, parent: int) -> ProcessStat:
        return ProcessStat(pid, "S", parent, pid, pid, 0)

    table = [row(1, 0), row(5, 4), row(2, 1), row(3, 1), row(4, 2), row(6, 3), row(9, 9)]
    assert sorted(found.pid for found in descendants(2, table)) == [4, 5]
    assert sorted(found.pid for found in descendants(1, table)) == [2, 3, 4, 5, 6]
    assert [found.pid for found in descendants(9, table)] == [9]
    assert descendants(7, table) == ()
    chain = [row(pid + 1, pid) for pid in range(1, 50_000)]
    assert len(descendants(1, chain)) == 49_999


def test_a_signal_hits_the_process_with_this_start_time_only() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]) as process:
        row = read_stat(process.pid)
        assert row is not None
        assert signal_exactly(process.pid, row.start_ticks - 1, signal.SIGKILL) is False
        assert signal_exactly(process.pid, row.start_ticks + 1, signal.SIGKILL) is False
        assert process.poll() is None
        assert signal_exactly(process.pid, row.start_ticks, signal.SIGKILL) is True
        assert process.wait() == -9
        assert signal_exactly(process.pid, row.start_ticks, signal.SIGKILL) is False


def test_a_zombie_is_not_signalled() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    row = read_stat(process.pid)
    assert row is not None
    assert (row.ended, signal_exactly(process.pid, row.start_ticks, signal.SIGTERM)) == (True, False)
    process.wait()
