"""A controller as a program that advances one run once, and that a real SIGKILL ends at a named point of the ledger's or the sweep's.

    mortal.py [--at POINT] [--plant FAULT] STORE RUN

Whatever is recorded before the point is recorded; nothing is said, cleaned up or flushed after it.
"""

import argparse
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from countermark.app.running import Step, advance
from countermark.run.claims import Dispatched
from countermark.store import ledger
from countermark.store.base import SqlStore
from tests.torture.ledgers import ports_at

#: Points of a controller: calls of the store by name, and stages of a sweep.
STAGES: Final = ("terminals", "processes", "outputs", "checkpoints", "manifests", "terminals again")
BEFORE: Final = {"looked": "claim_start", "launched": "record_dispatch_outcome", "concluded": "record_sweep", "swept": "record_verdict"}
AFTER: Final = {"claimed": "claim_start", "intended": "record_dispatch_intent", "verdict written": "record_verdict"}
POINTS: Final = ("in the transaction", *BEFORE, *AFTER, *(f"before {stage}" for stage in STAGES))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal:
    """The store of a controller that dies before or after a call of it."""

    def __init__(self, store: Any, point: str) -> None:
        self._store, self._point = store, point

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if BEFORE.get(self._point) == name:
                die()
            answer = method(*arguments, **named)
            if AFTER.get(self._point) == name:
                die()
            return answer

        return call


def die_in_the_transaction(commit_first: bool) -> None:
    """After the claim's rows were written, before they are committed."""
    honest = ledger.append_claim

    def append(connection: Any, *asked: Any, **named: Any) -> None:
        honest(connection, *asked, **named)
        if commit_first:
            connection.commit()
        die()

    ledger.append_claim = append


def outcomes_are_written_before_the_launch(ports: Any, intent: Any) -> None:
    """The launcher's answer is taken for granted as soon as the intent is there."""
    ports.store.record_dispatch_outcome(intent.fact, Dispatched("as it always does"), ports.now_ms())


class Hasty:
    """A store that is wrong in one known way, beneath the one that dies."""

    def __init__(self, ports: Any, fault: str) -> None:
        self._ports, self._fault = ports, fault

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._ports.store, name)
        if self._fault == "outcomes_are_written_before_the_launch" and name == "record_dispatch_intent":

            def intend(*arguments: Any) -> Any:
                answer = method(*arguments)
                outcomes_are_written_before_the_launch(self._ports, answer)
                return answer

            return intend
        return method


FAULTS: Final = (
    "commits_come_too_early",
    "answers_come_before_the_commit",
    "outcomes_are_written_before_the_launch",
    "half_a_sweep_is_kept",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", choices=POINTS, default="")
    parser.add_argument("--plant", choices=FAULTS, action="append", default=[])
    parser.add_argument("--url", default="")
    parser.add_argument("store", type=Path)
    parser.add_argument("run")
    given = parser.parse_args()
    if given.at == "in the transaction" or "answers_come_before_the_commit" in given.plant:
        die_in_the_transaction("commits_come_too_early" in given.plant)
    with ports_at(given.store, given.url) as ports:
        assert isinstance(ports.store, SqlStore), "what dies in a transaction dies in the product's own"
        beneath: Any = Hasty(ports, given.plant[0]) if given.plant else ports.store
        store: Any = Mortal(beneath, given.at)

        def progress(stage: str) -> None:
            if given.at == f"before {stage}":
                if "half_a_sweep_is_kept" in given.plant:
                    ports.store.record_sweep(given.run, ports.new_id(), b"half of it", 1, 2)
                die()

        step = advance(replace(ports, store=store), given.run, 0, lambda verdict: True, progress)
        print(type(step.looked.conclusion.verdict).__name__, *step.acted.lines, sep="\n") if isinstance(step, Step) else print(step)


if __name__ == "__main__":
    main()
