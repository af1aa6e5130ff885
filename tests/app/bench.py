"""A store on a disk with a real launcher and supervisor, short settings, and a trainer that does as it is told."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.app.ports import Ports
from countermark.app.running import Demanded, Looked, Step, advance, demand_run, look_at, watch
from countermark.evidence.members import Population, ReadRefused
from countermark.lines.defects import known, sentence
from countermark.recipe import Requirements, contract_of, derive_work_key
from countermark.run.claims import ExecutionClaim
from countermark.run.records import RunContext, RunRecord
from countermark.values import Principal, Refused, Request
from countermark.verdict.kinds import ExecutionRequired, LaunchDispatchRequired, Verdict
from tests.app import planting
from tests.recipe.examples import clean_resolution

HERE: Final = Path(__file__).parent
WAIT_S: Final = 25.0
#: More attempts than any of the runs here may make: what makes more is not bounded.
ATTEMPTS_MAX: Final = 4
#: For modules and tests that run on both ledgers; a fault is planted on one of them only (see ``conftest``).
BOTH_LEDGERS: Final = pytest.mark.parametrize("ledger", ["sqlite", "postgresql"], indirect=True)
#: Settings of every store under test, in seconds.
SETTINGS: Final = {"grace_s": 0.3, "stop_grace_s": 0.2, "poll_s": 0.02}
HONEST: Final = ("effective", "save 4", "output")


def everything(verdict: Verdict) -> bool:
    return True


def nothing(verdict: Verdict) -> bool:
    return False


def starts(verdict: Verdict) -> bool:
    return isinstance(verdict, ExecutionRequired | LaunchDispatchRequired)


def arm(looked: Looked) -> str:
    return type(looked.conclusion.verdict).__name__


def names(refused: object) -> list[str]:
    """The defects of a refusal by name; each has its sentence."""
    assert isinstance(refused, Refused), refused
    assert all(sentence(defect).message for defect in known(refused.defects))
    return [type(defect).__name__ for defect in refused.defects]


def refusals(population: Population[Any]) -> list[str]:
    return [reading.arm.reason for reading in population.readings if isinstance(reading.arm, ReadRefused)]


@dataclass
class Bench:
    """One store, and what happened in it."""

    root: Path
    ports: Ports
    url: str | None = None
    controllers: "list[subprocess.Popen[str]]" = field(default_factory=list)

    @property
    def store(self) -> Path:
        """The store's folder, in which the attempts are, wherever the ledger is."""
        return self.root / ".countermark"

    @property
    def address(self) -> str:
        """What ``--store`` names."""
        return self.url or f"sqlite:///{self.store}"

    @cached_property
    def resolution(self) -> Any:
        return clean_resolution()

    def trainer(self, *scripts: tuple[str, ...]) -> tuple[str, ...]:
        """The command of a trainer; one script for each execution."""
        return (sys.executable, str(HERE / "trainer.py"), str(self.root), json.dumps(scripts))

    def demand(self, *argv: str, request: str | None = None, cwd: Path | None = None) -> Demanded:
        work = derive_work_key(Principal("local"), contract_of(self.resolution), Requirements())
        context = RunContext("topics-lora", {"model": "/models/base"}, {"save_steps": 5}, argv, str(cwd or self.root), {}, "local")
        name = None if request is None else Request(request)
        demanded = demand_run(self.ports, self.resolution, work, Principal("tester"), name, context)
        assert isinstance(demanded, Demanded), demanded
        return demanded

    def told(self, *scripts: tuple[str, ...]) -> str:
        """The run of a trainer with these scripts."""
        return self.demand(*self.trainer(*scripts)).record.run_id

    def many(self, count: int, *script: str) -> dict[str, Path]:
        """Runs whose trainers do the same, each with the place where it counts its executions."""
        found: dict[str, Path] = {}
        for number in range(count):
            place = self.root / f"place-{number}"
            place.mkdir()
            (place / "fixtures").symlink_to(self.root / "fixtures")
            command = (sys.executable, str(HERE / "trainer.py"), str(place), json.dumps([script]))
            found[self.demand(*command, request=f"one-of-many-{number}").record.run_id] = place
        return found

    def look(self, run: str) -> Looked:
        looked = look_at(self.ports, run)
        assert isinstance(looked, Looked), looked
        return looked

    def step(self, run: str, retries: int = 0, allowed: Callable[[Verdict], bool] = everything) -> Step | Refused[object]:
        return advance(self.ports, run, retries, allowed)

    def acted(self, run: str, retries: int = 0) -> tuple[str, ...]:
        """The lines of one step that is not refused."""
        step = self.step(run, retries)
        assert isinstance(step, Step), step
        return step.acted.lines

    def watched(
        self, run: str, retries: int = 0, allowed: Callable[[Verdict], bool] = starts
    ) -> tuple[list[str], Looked | Refused[object]]:
        """The verdicts on the way, each named once, and where it ended."""
        deadline = time.monotonic() + WAIT_S
        said: list[str] = []
        last: Looked | Refused[object] | None = None
        for step in watch(self.ports, run, retries, allowed):
            assert time.monotonic() < deadline, f"still watching after {WAIT_S} s: {said}"
            assert len(self.claims(run)) <= ATTEMPTS_MAX, f"it is started again and again: {self.causes(run)}"
            last = step.looked if isinstance(step, Step) else step
            if isinstance(last, Looked) and said[-1:] != [arm(last)]:
                said.append(arm(last))
        assert last is not None
        return said, last

    def ended(self, run: str, retries: int = 0, allowed: Callable[[Verdict], bool] = starts) -> Looked:
        """Watch to the end of it, which is a verdict."""
        _, last = self.watched(run, retries, allowed)
        assert isinstance(last, Looked), last
        return last

    def record(self, run: str) -> RunRecord:
        record = self.ports.load(run)
        assert isinstance(record, RunRecord), record
        return record

    def claims(self, run: str) -> tuple[ExecutionClaim, ...]:
        return self.record(run).ledger.claims

    def causes(self, run: str) -> list[str]:
        return [type(claim.transition.cause).__name__ for claim in self.claims(run)]

    def folder(self, run: str, at: int = -1) -> Path:
        """The folder of an attempt, by its place among the claims."""
        return self.ports.launcher.folder(self.claims(run)[at].attempt.nonce.hex)

    def executions(self) -> list[str]:
        """What each execution of the trainer was told to resume from, by its own count."""
        count = self.root / "count"
        return count.read_text(encoding="utf-8").splitlines() if count.exists() else []

    def wait(self, what: Callable[[], object], seconds: float = WAIT_S) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"waited {seconds} s in vain"
            time.sleep(0.02)

    def hanging(self) -> None:
        self.wait((self.root / "hanging").exists)

    def go_on(self) -> None:
        (self.root / "go on").touch()

    def controller(self, run: str | None, *options: str) -> "subprocess.Popen[str]":
        """Another controller, a process of its own, which advances the run once."""
        planted = [word for name in planting.FAULTS for word in ("--plant", name)]
        store = (*(() if self.url is None else ("--url", self.url)), str(self.store))
        command = [sys.executable, str(HERE / "controller.py"), *planted, *options, *store, *([] if run is None else [run])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.root)
        self.controllers.append(process)
        return process

    def with_ports(self, **changes: Any) -> "Bench":
        """The same store, reached through other ports."""
        return Bench(self.root, replace(self.ports, **changes), self.url, self.controllers)


def fixtures(root: Path, made: Path) -> None:
    shutil.copytree(made, root / "fixtures")
