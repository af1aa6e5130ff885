"""A bench over each ledger: runs in the real store, with real controllers, supervisors and trainers that die on purpose."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from countermark.app.running import Looked
from countermark.files import procfs
from countermark.launch.local import LocalLauncher
from countermark.lines.conclusion import conclusion_lines
from tests.app.bench import Bench, fixtures
from tests.app.conftest import made
from tests.launch.conftest import Place
from tests.torture import planting
from tests.torture.ledgers import ports_at

__all__ = ["made"]

HERE: Final = Path(__file__).parent


@dataclass
class Matrix:
    """One run's bench over one ledger."""

    bench: Bench
    url: str

    def die(self, run: str, point: str) -> None:
        """Another controller advances the run and is killed at the point."""
        planted = [word for name in planting.FAULTS for word in ("--plant", name)]
        command = [sys.executable, "-m", "tests.torture.mortal", "--at", point, "--url", self.url, *planted, str(self.bench.store), run]
        done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == -9, done.stdout + done.stderr

    def with_supervisor(self, *options: str, timeout_s: float = 60.0) -> Bench:
        """The same bench with supervisors that are struck."""
        launcher = LocalLauncher(
            self.bench.ports.launcher.attempts_root,
            supervisor=Place(self.bench.store).driver(*options),
            start_timeout_s=timeout_s,
        )
        return self.bench.with_ports(launcher=launcher)


def text(looked: Looked) -> list[str]:
    """The conclusion as a person reads it."""
    return list(conclusion_lines(looked.conclusion))


@pytest.fixture(params=["sqlite", "postgresql"])
def matrix(request: pytest.FixtureRequest, tmp_path: Path, made: Path) -> Iterator[Matrix]:
    fixtures(tmp_path, made)
    url = "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with ports_at(tmp_path / ".countermark", url, create=True) as ports:
        yield Matrix(Bench(tmp_path, ports, url or None), url)
        for row in processes_of(tmp_path):
            procfs.signal_exactly(row.pid, row.start_ticks, signal.SIGKILL)


def words_of(pid: int) -> list[str]:
    """The command line of a process; none where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")[:-1]
    except OSError:
        return []


def processes_of(folder: Path) -> list[procfs.ProcessStat]:
    """Every living process whose command line names something in the folder: supervisors, their children before exec, trainers."""
    rows = (row for row in procfs.processes() if row.pid != os.getpid() and not row.ended)
    return [row for row in rows if any(str(folder) in word for word in words_of(row.pid))]
