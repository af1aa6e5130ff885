"""``python -m tests.store.starters ADDRESS STARTERS [FAULT]``: so many processes open one new store at once, of any kind, and do their
first work: each records a demand that is the same for all, and one of its own.

Prints as JSON how many ended and crashed, and how often the common demand was recorded and attached to. With FAULT ``no turn`` nobody waits
until another has made the store.
"""

import json
import os
import sys
from collections import Counter
from contextlib import nullcontext

from countermark.run.records import Attached, Recorded
from countermark.store import postgres, sqlite
from countermark.store.opening import open_store
from tests.run.examples import desired
from tests.store.controller import forked
from tests.store.examples import CONTEXT


def without_turns() -> None:
    """The fault: whoever makes a store does not exclude the others."""
    sqlite.__dict__["Turn"] = lambda folder, wait_s: nullcontext()
    postgres.__dict__["MAKING"] = os.getpid()


def start(address: str, starters: int, fault: str) -> Counter[str]:
    """All are forked first and then let go together; each ends well only when it could do its work."""
    ready, go = os.pipe()
    said, told = os.pipe()

    def starter(number: int) -> None:
        os.close(go)
        if fault == "no turn":
            without_turns()
        os.read(ready, 1)
        with open_store(address, create=True) as store:
            common = store.record_demand(desired("all"), CONTEXT, 1)
            assert isinstance(common, Recorded | Attached), common
            own = store.record_demand(desired(f"own-{number}"), CONTEXT, 1)
            assert isinstance(own, Recorded), own
        os.write(told, f"{type(common).__name__}\n".encode())

    children = [forked(lambda number=number: starter(number)) for number in range(starters)]  # type: ignore[misc]
    os.close(go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(told)
    with os.fdopen(said) as answers:
        answered = Counter(answers.read().split())
    return Counter("ended" if code == 0 else "crashed" for code in codes) + answered


if __name__ == "__main__":
    address, number, *faults = sys.argv[1:]
    print(json.dumps(start(address, int(number), "".join(faults))))
