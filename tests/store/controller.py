"""Controllers in processes of their own over one real ledger, which are killed with SIGKILL and come back.

``race FOLDER ADDRESS CONTROLLERS ROUNDS SEED KEY``: each controller claims a start of the runs r0, r1, … under identities of its own, and
writes a line for each answer *after* the answer. Each kills itself at planned points, is brought back by the parent and goes on with the
same round. With KEY ``transition`` they claim the run's initial attempt; with ``attempt`` the transition carries the attempt's identity,
which is what a key on the attempt amounts to.

``make FOLDER ADDRESS MAKERS SEED``: makers of one store start at once, and some are killed from outside at a random moment.

ADDRESS is the store's, on any kind of database; FOLDER keeps what the controllers write down beside it.

Both print the number of kills by point as JSON.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from countermark.run.attempts import AttemptKey, InitialAttempt, Nonce, RequestedReexecution
from countermark.run.claims import AlreadyCommitted, Committed, SnapshotStale, Transition
from countermark.store import ledger
from countermark.store.interface import Store
from countermark.store.opening import open_store
from tests.run.examples import demand_id, work

POINTS = ("before the claim", "in the transaction", "between insert and commit", "after the commit", "after the intent")


def die_at(planned: str, here: str) -> None:
    if planned == here:
        os.kill(os.getpid(), signal.SIGKILL)


def claimant(store: Store, who: str, by_attempt: bool, answers: Any) -> Callable[[int, str], None]:
    """What one controller does in a round, dying at the planned point."""
    honest = ledger.append_claim
    point = ""

    def append(*asked: Any) -> None:
        die_at(point, POINTS[1])
        honest(*asked)
        die_at(point, POINTS[2])

    def act(number: int, planned: str) -> None:
        nonlocal point
        point = planned
        nonce = Nonce(hashlib.sha256(f"{who}/{number}".encode()).hexdigest()[:32])
        cause = RequestedReexecution(nonce.hex) if by_attempt else InitialAttempt()
        asked = Transition(demand_id(f"r{number}"), work(), cause)
        die_at(point, POINTS[0])
        answer = store.claim_start(asked.demand.run_id(), 0, asked, AttemptKey(work(), nonce), 1)
        while isinstance(answer, SnapshotStale):
            answer = store.claim_start(asked.demand.run_id(), answer.current, asked, AttemptKey(work(), nonce), 1)
        assert isinstance(answer, Committed | AlreadyCommitted), answer
        answers.write(json.dumps([number, type(answer).__name__, answer.claim.attempt.nonce.hex]) + "\n")
        die_at(point, POINTS[3])
        store.record_dispatch_intent(answer.claim, "local", "n1", 2)
        die_at(point, POINTS[4])

    ledger.append_claim = append
    return act


def controller(folder: Path, address: str, who: str, begin: int, rounds: int, seed: int, by_attempt: bool) -> None:
    chance = random.Random(f"{seed}/{who}")
    with open_store(address, create=False) as store, (folder / f"answers-{who}").open("a", buffering=1) as answers:
        act = claimant(store, who, by_attempt, answers)
        while not (folder / "go").exists():
            time.sleep(0.001)
        for number in range(begin, rounds):
            (folder / f"round-{who.partition('.')[0]}").write_text(str(number))
            act(number, chance.choice(POINTS) if chance.random() < 0.2 else "")


def forked(act: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        act()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def race(folder: Path, address: str, controllers: int, rounds: int, seed: int, by_attempt: bool) -> Counter[str]:
    def start(who: str, begin: int) -> int:
        return forked(lambda: controller(folder, address, who, begin, rounds, seed, by_attempt))

    living = {start(f"{number}.0", 0): f"{number}.0" for number in range(controllers)}
    (folder / "go").touch()
    ended: Counter[str] = Counter()
    while living:
        child, status = os.wait()
        name, _, lives = living.pop(child).partition(".")
        code = os.waitstatus_to_exitcode(status)
        ended["killed" if code == -signal.SIGKILL else "ended" if code == 0 else "crashed"] += 1
        if code == -signal.SIGKILL:
            again = f"{name}.{int(lives) + 1}"
            living[start(again, int((folder / f"round-{name}").read_text()))] = again
    return ended


def make(address: str, makers: int, seed: int) -> Counter[str]:
    """Some makers are killed within the few milliseconds that a making takes; the last one is left to end."""
    chance = random.Random(seed)
    children = [forked(lambda: open_store(address, create=True).close()) for _ in range(makers)]
    doomed = children[: makers - 1]
    for child in doomed:
        time.sleep(chance.random() * 0.015)
        os.kill(child, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return Counter("killed" if code == -signal.SIGKILL else "ended" if code == 0 else "crashed" for code in codes)


if __name__ == "__main__":
    command, place, address, *numbers = sys.argv[1:]
    if command == "race":
        done = race(Path(place), address, int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3] == "attempt")
    else:
        done = make(address, int(numbers[0]), int(numbers[1]))
    print(json.dumps(done))
