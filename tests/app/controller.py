"""A controller as a program: advances one run once, dies after a step if it is told to, and says what it did.

    controller.py [--plant FAULT] [--die STEP] [--meet FOLDER NUMBER] [--url LEDGER] STORE RUN
    controller.py [--plant FAULT] --rounds [--url LEDGER] STORE

With ``--rounds`` it advances every open run until nothing is left to wait for, and holds a run that it took for a second and a half.
Steps: ``looked`` (nothing is claimed), ``claimed``, ``intended``, ``launched`` (no outcome is recorded). ``--meet`` waits before the claim
until so many controllers have come as far.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from countermark.app import acting, rounds
from countermark.app.ports import opened
from countermark.app.running import Step, advance
from countermark.run.attempts import RequestedReexecution

PACE = rounds.Pace(lease_ms=1500, hope_ms=3000, rest_ms=120_000, nap_s=0.1)


class Store:
    """The store, with something done before or after a call of it."""

    def __init__(self, store: Any, before: dict[str, Callable[[], None]], after: dict[str, Callable[[], None]]) -> None:
        self._store, self._before, self._after = store, before, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any) -> Any:
            self._before.get(name, _nothing)()
            answer = method(*arguments)
            self._after.get(name, _nothing)()
            return answer

        return call if name in self._before or name in self._after else method


def _nothing() -> None:
    return


def _die() -> None:
    os._exit(9)


def _meet(folder: Path, number: int) -> Callable[[], None]:
    def meet() -> None:
        (folder / f"met-{os.getpid()}").touch()
        deadline = time.monotonic() + 20
        while len(list(folder.glob("met-*"))) < number and time.monotonic() < deadline:
            time.sleep(0.005)

    return meet


def claims_are_keyed_by_attempt() -> None:
    """The slot holds the attempt's own name, and a moved ledger is looked past."""
    start = acting.start

    def by_attempt(ports: Any, record: Any, cause: Any, by: str = "") -> Any:
        answer = start(ports, record, RequestedReexecution(ports.new_nonce()), by)
        if isinstance(answer, acting.Acted) and "look again" in answer.lines[0]:
            return by_attempt(ports, ports.load(record.run_id), cause)
        return answer

    acting.start = by_attempt


def everybody_takes_everything() -> None:
    """The agenda hands every run to every controller, again and again."""
    taken_s: dict[str, float] = {}

    def take(shared: Any, limit: int) -> Any:
        now = time.monotonic()
        fresh = tuple(run for run in shared.ports.store.list_runs(open_only=True) if now - taken_s.get(run.run_id, 0) > 0.3)
        taken_s.update(dict.fromkeys((run.run_id for run in fresh), now))
        return fresh

    rounds._Shared.take = take  # type: ignore[method-assign]


FAULTS = {fault.__name__: fault for fault in (claims_are_keyed_by_attempt, everybody_takes_everything)}
DEATHS = {"looked": ("before", "claim_start"), "claimed": ("after", "claim_start"), "intended": ("after", "record_dispatch_intent")}
DEATHS |= {"launched": ("before", "record_dispatch_outcome")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plant", action="append", default=[], choices=FAULTS)
    parser.add_argument("--die", choices=DEATHS)
    parser.add_argument("--meet", nargs=2)
    parser.add_argument("--url")
    parser.add_argument("--rounds", action="store_true")
    parser.add_argument("store", type=Path)
    parser.add_argument("run", nargs="?")
    given = parser.parse_args()
    for name in given.plant:
        FAULTS[name]()
    hooks: dict[str, dict[str, Callable[[], None]]] = {"before": {}, "after": {}}
    if given.die:
        when, what = DEATHS[given.die]
        hooks[when][what] = _die
    if given.meet:
        hooks["before"]["claim_start"] = _meet(Path(given.meet[0]), int(given.meet[1]))
    with opened(given.store, create=False, url=given.url, grace_s=0.3, stop_grace_s=0.2, poll_s=0.02) as ports:
        if given.rounds:
            turns = rounds.Rounds(ports, 0, lambda verdict: True, shares=True, stay=False, pace=PACE).turns()
            print(sum(isinstance(turn, rounds.Turn) and bool(turn.done) for turn in turns))
            return
        store: Any = Store(ports.store, hooks["before"], hooks["after"])
        step = advance(replace(ports, store=store), given.run, 0, lambda verdict: True)
        print(type(step.looked.conclusion.verdict).__name__, *step.acted.lines, sep="\n") if isinstance(step, Step) else print(step)


if __name__ == "__main__":
    main()
