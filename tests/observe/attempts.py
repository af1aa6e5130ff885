"""Attempts of one run by hand: their ledger, their folders, and the observer that looks at them."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from countermark.evidence.members import (
    Population,
    Read,
    ReadRefused,
)
from countermark.files import procfs
from countermark.observe.local import LocalObserver
from countermark.recipe import spellings
from countermark.run.attempts import InfrastructureRetry
from countermark.run.claims import DispatchIntent, RunLedger
from countermark.wire import receipts
from countermark.wire.effective import encode_effective
from countermark.wire.receipts import Exited, ProcessReceipt, StartReceipt, TerminalReceipt, encode
from tests.files import folders
from tests.run.examples import claimed, desired, key

AXES = ("terminals", "processes", "outputs", "checkpoints", "manifests")
HERE = procfs.this_process()
OTHER = "f" * 32


@dataclass
class World:
    """Attempts 1, 2, … of one run, each dispatched on this host unless told otherwise."""

    root: Path
    ledger: RunLedger = field(default_factory=lambda: RunLedger(desired(), 0))
    ids: int = 0

    def attempt(self, number: int, host: str | None = HERE.host, folder: bool = True) -> Path:
        cause = None if number == 1 else InfrastructureRetry(key(number - 1))
        ledger = claimed(self.ledger, number, cause)
        intents = ledger.intents if host is None else (*ledger.intents, DispatchIntent(key(number), "local", host, 0))
        self.ledger = replace(ledger, intents=intents)
        path = self.root / key(number).nonce.hex
        if folder:
            path.mkdir(parents=True)
        return path

    @property
    def observer(self) -> LocalObserver:
        def new_id() -> str:
            self.ids += 1
            return f"{self.ids:032x}"

        return LocalObserver(self.root, HERE.host, lambda: 5, new_id)

    def look(self, axis: str) -> Population[Any]:
        found: Population[Any] = getattr(self.observer, axis)(self.ledger)
        return found

    def arms(self, axis: str) -> list[object]:
        return [reading.arm for reading in self.look(axis).readings]

    def members(self, axis: str) -> list[Any]:
        return list(self.look(axis).members())

    def refusals(self, axis: str) -> list[str]:
        return [arm.reason for arm in self.arms(axis) if isinstance(arm, ReadRefused)]


def terminal(folder: Path, outcome: receipts.Outcome | None = None, main: receipts.MainEnd | None = None, attempt: str = "") -> None:
    receipt = TerminalReceipt(1, attempt or folder.name, outcome or receipts.Succeeded(), main or Exited(0), 10, 20, "supervisor", HERE)
    (folder / "terminal.json").write_bytes(encode(receipt))


def processes(folder: Path, attempt: str = "", **changes: Any) -> None:
    """Receipts of processes that are long gone, unless changed."""
    named = msgspec.structs.replace(HERE, **({"pid": 2**22, "start_ticks": 1} | changes))
    name = attempt or folder.name
    (folder / "lock").touch()
    (folder / "start.json").write_bytes(encode(StartReceipt(1, name, named, 0)))
    (folder / "process.json").write_bytes(encode(ProcessReceipt(1, name, named, 0)))


def output(folder: Path, **config: Any) -> Path:
    made = folder / "output"
    made.mkdir()
    (made / "adapter_model.safetensors").write_bytes(folders.adapter_bytes())
    (made / "adapter_config.json").write_text(json.dumps(folders.adapter_config(**config)), encoding="utf-8")
    return made


def effective(folder: Path, ledger: RunLedger, attempt: str = "") -> None:
    said = {name: Read(value, "live_object") for name, value in spellings(ledger.desired.manifest).items()}
    (folder / "effective.json").write_bytes(encode_effective(attempt or folder.name, dict(said)))
