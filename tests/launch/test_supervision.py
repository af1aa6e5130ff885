"""What a supervisor waits for, and the log that it bounds while it waits."""

import os
import time
from pathlib import Path

from countermark.files import procfs
from countermark.files.locks import LockFree, LockHeld, probe_lock
from countermark.launch.log import BoundedLog
from countermark.wire.receipts import Exited, Failed, Succeeded
from tests.faults import planted, proven_by
from tests.launch.conftest import Place
from tests.launch.planting import in_supervisor


@proven_by(in_supervisor("no_subreaper"))
def test_a_command_that_forks_and_exits_has_not_ended_until_the_last_descendant_has(place: Place) -> None:
    script = "setsid sh -c 'setsid sh -c \"sleep 0.8; echo late >> last\" & exit 0' & exit 4"
    place.launcher().dispatch(place.order(script))
    terminal = place.terminal()
    assert (place.root / "last").exists()
    assert (terminal.outcome, terminal.main) == (Failed(4), Exited(4))
    assert terminal.ended_ms - terminal.started_ms >= 700


def test_children_hold_the_lock_after_the_main_process_died(place: Place) -> None:
    """Data-loader forks inherit the descriptor: the attempt lives as long as they do."""
    place.launcher().dispatch(place.order("until [ -e go ]; do sleep 0.05; done & exit 0"))
    place.wait(lambda: (row := procfs.read_stat(place.trainer_pid())) is None or row.ended if place.runs() else False)
    assert probe_lock(place.folder() / "lock") == LockHeld()
    assert not (place.folder() / "terminal.json").exists()
    (place.root / "go").touch()
    assert place.terminal().outcome == Succeeded()
    assert probe_lock(place.folder() / "lock") == LockFree()


@proven_by(in_supervisor("no_subreaper"))
def test_children_that_close_every_descriptor_are_waited_for_all_the_same(place: Place) -> None:
    closing = "import os, time; os.closerange(0, 4096); time.sleep(0.8); open('closed', 'w').close()"
    place.launcher().dispatch(place.order(f'python3 -S -c "{closing}" & exit 0'))
    assert place.terminal().outcome == Succeeded()
    assert (place.root / "closed").exists()


def test_a_supervisor_costs_next_to_nothing_while_it_waits(place: Place) -> None:
    place.launcher().dispatch(place.order("sleep 2"))
    place.wait(lambda: place.runs() == 1)
    pid = place.supervisor_pid()

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1)
    assert (ticks() - before) / os.sysconf("SC_CLK_TCK") <= 0.05


# -------------------------------------------------------------------------------------------------------------- the log


@proven_by(in_supervisor("log_is_not_bounded"))
def test_a_command_that_fills_its_log_does_not_fill_the_disk(place: Place) -> None:
    script = "i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero | tr '\\0' a; i=$((i+1)); sleep 0.05; done; echo the end"
    place.launcher(log_bytes_max=400_000).dispatch(place.order(script))
    largest = 0
    while not (place.folder() / "terminal.json").exists():
        used = sum(path.stat().st_size for path in place.folder().glob("log*.txt") if path.exists())
        largest = max(largest, used)
        time.sleep(0.02)
    # 4,000,000 bytes were written; the bound, what came in between two looks, and the tail are what may lie there.
    assert 400_000 < largest < 3_500_000
    # The last look may come after the last word: then that lies in the tail.
    assert ((place.folder() / "log.1.txt").read_text() + place.log()).count("the end\n") == 1
    assert "countermark: the log passed 400000 bytes and was cut at" in place.log()
    assert (place.folder() / "log.1.txt").stat().st_size >= 100_000


def test_a_log_within_its_bound_is_left_alone(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path, 100)
    os.write(log.writer, b"x" * 100)
    log.bound()
    assert (tmp_path / "log.txt").read_bytes() == b"x" * 100
    assert not (tmp_path / "log.1.txt").exists()


@proven_by(planted(BoundedLog, "_keep_tail", lambda self, size: 0))
def test_the_tail_is_kept_and_the_file_begins_anew_under_its_writers(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path, 100)
    os.write(log.writer, bytes(range(200)))
    log.bound()
    os.write(log.writer, b"after")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.1.txt")} == {"log.1.txt": bytes(range(175, 200))}
    said = "countermark: the log passed 100 bytes and was cut at 200; the last 25 bytes are in log.1.txt\n"
    assert (tmp_path / "log.txt").read_bytes() == said.encode() + b"after"


def test_a_disk_too_full_for_the_tail_costs_the_tail_and_not_the_disk(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path, 100)
    (tmp_path / ".tmp-log.1.txt").mkdir()
    os.write(log.writer, b"x" * 200)
    log.bound()
    assert (
        tmp_path / "log.txt"
    ).read_bytes() == b"countermark: the log passed 100 bytes and was cut at 200; no room was left for its tail\n"


def test_what_could_not_be_said_is_said_later(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path, 10_000)
    own, log._own = log._own, os.open("/dev/full", os.O_WRONLY)
    log.say("first")
    os.close(log._own)
    log._own = own
    log.say("second")
    assert (tmp_path / "log.txt").read_text() == "countermark: first\ncountermark: second\n"
