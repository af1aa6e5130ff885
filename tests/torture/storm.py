"""A storm over one ledger: real controllers, supervisors and trainers, killed with SIGKILL and held with SIGSTOP, until enough ran.

Rules kept here:

1. Everything that is started is below this process, which is a subreaper: whatever happens, an interrupt included, all of it is ended and
   reaped here, and nothing else is ever signalled.
2. Every signal goes through a pid descriptor whose process was compared (``procfs.signal_exactly``).
3. When enough was launched the storm is over: nobody dies any more, and the controllers go on until nothing is left to do. Then each run
   is looked at once more and judged.
"""

import ctypes
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from countermark.files import procfs
from countermark.files.procfs import ProcessStat
from tests.simulation.history import Killed, append, figures
from tests.simulation.history import read as read_history
from tests.torture.controller import DRIVER, Controller
from tests.torture.judge import judge
from tests.torture.scene import HERE, Scene
from tests.torture.tally import Count, Figures

TICK_S: Final = 0.03
#: How long the controllers may take to bring everything to rest once the storm is over.
REST_S_MAX: Final = 180.0
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
Say = Callable[[Figures, Count], None]


def become_subreaper() -> None:
    """Orphans of everything that is started from here come back here."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl: this process cannot become a subreaper")


def below() -> tuple[ProcessStat, ...]:
    """Every living process that was started from here."""
    return tuple(row for row in procfs.descendants(os.getpid(), procfs.processes()) if not row.ended)


def end_everything() -> None:
    """Kill and reap whatever is below; what is forked meanwhile falls to the next round."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        rows = below()
        for row in rows:
            procfs.signal_exactly(row.pid, row.start_ticks, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def words_of(pid: int) -> list[str]:
    """The command line of a process; none where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")[:-1]
    except OSError:
        return []


@final
@dataclass
class Storm:
    """One storm. ``launches`` and ``kills`` are what it goes on for, ``seconds_max`` at most; ``restarts`` how often the
    database is restarted meanwhile, at even distances of launches."""

    scene: Scene
    launches: int
    kills: int
    seconds_max: float
    say: Say = lambda figures, count: None
    restart: Callable[[], None] | None = None
    restarts: int = 0
    count: Count = field(default_factory=Count)
    controllers: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    held: dict[tuple[int, int], float] = field(default_factory=dict)
    read_bytes: int = 0

    def __post_init__(self) -> None:
        self.chance: random.Random = self.scene.chance("hand")
        self.figures = Figures(self.scene.ledger, self.scene.mutant, self.scene.seed)

    def run(self) -> Figures:
        """The storm and its calm; the figures of what was done, also where it is broken off."""
        become_subreaper()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Also where whoever started this in the background had them ignored.
            signal.signal(number, signal.default_int_handler)
        began = time.monotonic()
        try:
            self.scene.make()
            self._blow(began)
            if self._doubled():
                # What a mutant leaves behind need not come to rest.
                return self.figures
            self.scene.calm.touch()
            self._rest()
            self._judge()
        except KeyboardInterrupt:
            self.figures.broken_off = True
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            end_everything()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
            self.figures.seconds = time.monotonic() - began
            self._read_history()
        return self.figures

    # ----------------------------------------------------------------------------------------------------------- its phases

    def _blow(self, began: float) -> None:
        restarts = [number * self.launches // (self.restarts + 1) for number in range(1, self.restarts + 1)] if self.restart else []
        said = 0.0
        while (now := time.monotonic()) - began < self.seconds_max and not self._enough():
            self._keep_controllers(self.scene.weather.controllers)
            self._wake(now)
            if self._happens(self.scene.weather.kills_per_s):
                self._signal_somebody(signal.SIGKILL)
            if self._happens(self.scene.weather.stops_per_s):
                self._signal_somebody(signal.SIGSTOP)
            self._read_counts()
            if restarts and self.count.launches >= restarts[0] and self.restart is not None:
                restarts.pop(0)
                self.restart()
                self.figures.restarts += 1
            if now - said >= 1:
                said = now
                self._read_history()
                self.say(self.figures, self.count)
            time.sleep(TICK_S)

    def _doubled(self) -> bool:
        return bool(self.scene.mutant) and sum(self.count.doubles().values()) > 0

    def _enough(self) -> bool:
        return self._doubled() or (self.count.launches >= self.launches and self.figures.kills.total() >= self.kills)

    def _rest(self) -> None:
        deadline = time.monotonic() + REST_S_MAX
        while len(self.done) < self.scene.weather.controllers:
            if time.monotonic() > deadline:
                self.figures.findings.append(f"the controllers did not come to rest within {REST_S_MAX:.0f} s")
                return
            self._keep_controllers(self.scene.weather.controllers)
            self._wake(float("inf"))
            self._read_counts()
            time.sleep(TICK_S)

    def _judge(self) -> None:
        # Supervisors outlive what they launched by a moment, and those of cancelled runs by their grace.
        deadline = time.monotonic() + 15
        while below() and time.monotonic() < deadline:
            self._wake(float("inf"))
            self._reap()
            time.sleep(TICK_S)
        self.figures.findings.extend(f"still alive when all was over: {' '.join(words_of(row.pid))}" for row in below())
        self._read_counts()
        judge(self.scene, self.count, self.figures)

    # ------------------------------------------------------------------------------------------------------------- processes

    def _keep_controllers(self, number: int) -> None:
        self._reap()
        for slot in set(range(number)) - set(self.controllers.values()) - self.done:
            self.figures.lives += 1
            self.controllers[self._forked(slot, self.figures.lives)] = slot

    def _forked(self, slot: int, life: int) -> int:
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            Controller(self.scene, self.scene.chance("controller", slot, life), life).live()
            code = 0
        except BaseException:
            with open(self.scene.root / "crashes", "a", encoding="utf-8") as file:
                file.write(traceback.format_exc())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            slot = self.controllers.pop(pid, None)
            code = os.waitstatus_to_exitcode(status)
            if slot is not None and code == 0:
                self.done.add(slot)
            elif slot is not None and code != -signal.SIGKILL:
                self.figures.findings.append(f"a controller crashed with code {code}: see {self.scene.root / 'crashes'}")

    def _happens(self, per_s: float) -> bool:
        return self.chance.random() < per_s * TICK_S

    def _kind(self, row: ProcessStat) -> str:
        if row.pid in self.controllers:
            return "controller"
        words = words_of(row.pid)
        if str(HERE / "trainer.py") in words:
            return "trainer"
        return "supervisor" if str(DRIVER) in words else "other"

    def _signal_somebody(self, number: signal.Signals) -> None:
        wanted = self.chance.choice(("controller", "controller", "supervisor", "trainer", "trainer"))
        rows = [row for row in below() if not row.stopped]
        self.chance.shuffle(rows)
        for row in rows:
            if self._kind(row) == wanted:
                if procfs.signal_exactly(row.pid, row.start_ticks, number) and number == signal.SIGKILL:
                    append(self.scene.history, Killed(wanted, "anywhere"))
                return

    def _wake(self, now: float) -> None:
        """Wake who was held long enough: a supervisor as soon as a successor of its attempt began, everybody after a while."""
        stopped = [row for row in below() if row.stopped]
        for row in stopped:
            key = (row.pid, row.start_ticks)
            if key not in self.held:
                self.figures.stops += 1
                most = self.scene.weather.frozen_s_max if self._kind(row) == "supervisor" else 1.0
                self.held[key] = time.monotonic() + self.chance.uniform(most / 4, most)
            if now >= self.held[key] or self._followed(row):
                procfs.signal_exactly(row.pid, row.start_ticks, signal.SIGCONT)
        for key in set(self.held) - {(row.pid, row.start_ticks) for row in stopped}:
            del self.held[key]

    def _followed(self, row: ProcessStat) -> bool:
        """Whether a stopped supervisor's attempt has a successor that began."""
        words = words_of(row.pid)
        if str(DRIVER) not in words:
            return False
        folder = Path(words[-1])
        try:
            claim = json.loads((folder / "claim.json").read_bytes())
        except OSError:
            return False
        return self.count.followed(claim["argv"][5], folder.name)

    # --------------------------------------------------------------------------------------------------------------- counting

    def _read_counts(self) -> None:
        with open(self.scene.count, "rb") as file:
            file.seek(self.read_bytes)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read_bytes += len(whole)
        for line in whole.decode().splitlines():
            self.count.take(line)

    def _read_history(self) -> None:
        self._read_counts()
        seen = figures(read_history(self.scene.history))
        self.figures.launches = self.count.launches
        if not self.figures.verdicts:
            # What the judge counted with the ledger in hand stands.
            self.figures.doubles = self.count.doubles()
        self.figures.kills = Counter(seen.kills)
        self.figures.answers = Counter(seen.calls)
