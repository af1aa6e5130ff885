"""A place for real attempts: orders, launchers with planted faults, waiting with an end, and no process left behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.files import procfs
from countermark.files.attempt_folder import ReceiptRead, read_process_receipt, read_start, read_terminal
from countermark.launch.local import LocalLauncher
from countermark.launch.order import LaunchOrder
from countermark.launch.stopping import stop_attempt
from countermark.wire.receipts import TerminalReceipt
from tests.launch import planting

HERE: Final = Path(__file__).parent
NONCE: Final = "0123456789abcdef" * 2
WAIT_S: Final = 20.0


@dataclass
class Place:
    """One attempts folder, and what happened in it. COMMAND counts its own executions in ``count``."""

    root: Path
    frozen: list[int] = field(default_factory=list)

    @property
    def count(self) -> Path:
        return self.root / "count"

    def driver(self, *options: str) -> tuple[str, ...]:
        planted = [word for name in planting.FAULTS for word in ("--plant", name)]
        return (sys.executable, "-P", str(HERE / "driver.py"), *planted, *options)

    def launcher(self, *options: str, **settings: Any) -> LocalLauncher:
        """A launcher whose supervisor is the product's, with the driver's options and what a test planted."""
        return LocalLauncher(self.root / "attempts", supervisor=self.driver(*options), **settings)

    def order(self, script: str = "", nonce: str = NONCE, **changes: Any) -> LaunchOrder:
        """COMMAND is a shell that counts itself and goes on with ``script``."""
        fields: dict[str, Any] = {
            "nonce": nonce,
            "work_key": "wk1:" + "0" * 64,
            "demand": "someone/once",
            "argv": ("/bin/sh", "-c", f"echo x >> {self.count}; {script}"),
            "cwd": str(self.root),
            "env": {},
            "resume": None,
            "manifest": b"{}\n",
        }
        return LaunchOrder(**(fields | changes))

    def folder(self, nonce: str = NONCE) -> Path:
        return self.root / "attempts" / nonce

    def runs(self) -> int:
        """How often COMMAND was executed, by its own count."""
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0

    def wait(self, what: Callable[[], object], seconds: float = WAIT_S) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"waited {seconds} s in vain"
            time.sleep(0.02)

    def terminal(self, nonce: str = NONCE) -> TerminalReceipt:
        """The terminal, waited for: long on a busy machine, short where a planted fault may keep it away for ever."""
        seconds = 3.0 if planting.FAULTS else WAIT_S
        self.wait((self.folder(nonce) / "terminal.json").exists, seconds)
        reading = read_terminal(self.folder(nonce))
        assert isinstance(reading, ReceiptRead), reading
        return reading.receipt

    def log(self, nonce: str = NONCE) -> str:
        return (self.folder(nonce) / "log.txt").read_text(errors="replace")

    def supervisor_pid(self, nonce: str = NONCE) -> int:
        reading = read_start(self.folder(nonce))
        assert isinstance(reading, ReceiptRead), reading
        return reading.receipt.supervisor.pid

    def trainer_pid(self, nonce: str = NONCE) -> int:
        reading = read_process_receipt(self.folder(nonce))
        assert isinstance(reading, ReceiptRead), reading
        return reading.receipt.process.pid

    def begin_controller(self, order: LaunchOrder, *step: str, options: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        """Another controller, as a process of its own."""
        fields = {name: getattr(order, name) for name in LaunchOrder.__dataclass_fields__}
        fields |= {"manifest": order.manifest.decode(), "supervisor": self.driver(*options)}
        path = self.root / "order.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        command = [sys.executable, str(HERE / "controller.py"), str(self.root / "attempts"), str(path), *step]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def close(self) -> None:
        """End what is left: supervisors first (a frozen one would wake up as somebody's child), then the attempts' processes."""
        for folder in (self.root / "attempts").glob("*"):
            start = read_start(folder)
            if isinstance(start, ReceiptRead):
                named = start.receipt.supervisor
                below = procfs.descendants(named.pid, procfs.processes()) if procfs.read_stat(named.pid) else ()
                procfs.signal_exactly(named.pid, named.start_ticks, signal.SIGKILL)
                for row in below:
                    procfs.signal_exactly(row.pid, row.start_ticks, signal.SIGKILL)
            stop_attempt(folder, 0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()
