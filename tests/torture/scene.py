"""The place of a storm over one ledger: its folders, its weather, and the ports through which its controllers reach everything.

Rules kept here:

1. Whatever a storm draws by chance it draws from the seed; only the order in which processes run is the machine's.
2. Everything that is counted lies in two files that are only ever appended to: ``history`` (read by ``tests.simulation.history``) and
   ``count`` (read by ``tests.torture.tally``).
"""

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

from countermark.app.ports import ATTEMPTS, Ports, opened
from countermark.evidence.members import Read, Unread
from countermark.recipe import spellings
from countermark.wire.effective import encode_effective
from tests.files.folders import adapter_bytes, adapter_config
from tests.recipe.examples import clean_manifest

HERE: Final = Path(__file__).parent
#: What the fixtures say where a trainer puts its attempt's name.
NOBODY: Final = "0" * 32


@final
@dataclass(frozen=True, slots=True)
class Weather:
    """How rough it is. Chances are those of each named point or each launch; rates are those of the storm's own hand, per second."""

    controllers: int = 5
    runs_open_max: int = 14
    life_s: float = 0.5
    point_kill: float = 0.012
    point_stop: float = 0.004
    meeting: float = 0.15
    supervisor_act: float = 0.33
    #: Where a supervisor or its child is struck, and how; empty: anywhere, in any way.
    struck: tuple[str, str] | tuple[()] = ()
    short_call: float = 0.02
    cancels: float = 0.01
    gives_up: float = 0.004
    gives_up_pending: float = 0.02
    #: A person retries, asks for a re-execution or sets a conflict aside.
    decides: float = 0
    #: At each reading of a controller's clock: that it is stepped, by ``step_ms_max`` at most to either side of the true time.
    clock_step: float = 0
    step_ms_max: int = 5_000
    kills_per_s: float = 1.5
    stops_per_s: float = 0.7
    frozen_s_max: float = 2.5


#: Nothing is killed, stopped or held: what is left is the race, and every controller is in it.
RACE: Final = Weather(
    runs_open_max=6,
    life_s=2,
    point_kill=0,
    point_stop=0,
    meeting=1,
    supervisor_act=0,
    short_call=0,
    cancels=0,
    gives_up=0,
    gives_up_pending=0,
    kills_per_s=0,
    stops_per_s=0,
)
#: Persons decide while controllers race, and every controller has a clock of its own that jumps to and fro.
PERSONS: Final = replace(Weather(), decides=0.04, clock_step=0.01)
#: Supervisors that sleep between their start receipt and the fork, until a successor began.
SLEEPERS: Final = replace(
    RACE, runs_open_max=10, life_s=4, meeting=0, supervisor_act=0.5, struck=("start written", "freeze_self"), frozen_s_max=60
)


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """One ledger and everything around it. ``url`` is empty for the SQLite ledger in the folder; ``mutant`` is empty for the product."""

    root: Path
    seed: int
    weather: Weather
    url: str = ""
    mutant: str = ""

    @property
    def store(self) -> Path:
        return self.root / ".countermark"

    @property
    def attempts(self) -> Path:
        return self.store / ATTEMPTS

    @property
    def history(self) -> Path:
        return self.root / "history"

    @property
    def count(self) -> Path:
        return self.root / "count"

    @property
    def calm(self) -> Path:
        """There once the storm is over: nobody dies any more, and every trainer is honest."""
        return self.root / "calm"

    @property
    def waiting(self) -> Path:
        """A file for each run that was seen to wait for a person."""
        return self.root / "waiting"

    @property
    def ledger(self) -> str:
        return "PostgreSQL" if self.url else "SQLite"

    def chance(self, *names: object) -> random.Random:
        """The chance of one process."""
        return random.Random("/".join(map(str, (self.seed, *names))))

    def command(self, run: str) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", str(HERE / "trainer.py"), str(self.root), run, str(self.weather.life_s))

    def make(self) -> None:
        """The folders, the fixtures and the empty store."""
        for name in ("fixtures/output", "live", "meetings", "waiting"):
            (self.root / name).mkdir(parents=True)
        (self.root / "seed").write_text(str(self.seed), encoding="ascii")
        fixtures = self.root / "fixtures"
        (fixtures / "output" / "adapter_model.safetensors").write_bytes(adapter_bytes(fill=1))
        (fixtures / "output" / "adapter_config.json").write_text(json.dumps(adapter_config()), encoding="utf-8")
        said: dict[str, Read | Unread] = {name: Read(value, "live_object") for name, value in spellings(clean_manifest()).items()}
        (fixtures / "effective.json").write_bytes(encode_effective(NOBODY, said))
        (fixtures / "lying.json").write_bytes(encode_effective(NOBODY, said | {"seed": Read("18", "live_object")}))
        self.history.touch()
        self.count.touch()
        with self.ports(self.chance("maker"), create=True):
            pass

    @contextmanager
    def ports(self, chance: random.Random, create: bool = False) -> Iterator[Ports]:
        """The scene as one process reaches it. Raises ``StoreError``."""
        settings = {"grace_s": 0.5, "stop_grace_s": 0.2, "poll_s": 0.02}
        with opened(self.store, create=create, url=self.url or None, **settings) as ports:
            yield replace(ports, new_id=lambda: chance.randbytes(16).hex())
